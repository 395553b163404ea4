"""Names of architectures and products, as people and drivers write them."""

from __future__ import annotations

import re

import pytest

from selector.binding import Selector
from selector.devices import architectures, find_device, find_gpu, known_capabilities
from selector.errors import UnknownDeviceError
from selector.values import Device, Layer


@pytest.mark.parametrize(
    ("text", "capability"),
    [
        ("12.0", "12.0"),
        (" 12.0 ", "12.0"),
        ("120", "12.0"),
        ("sm120", "12.0"),
        ("SM120", "12.0"),
        ("sm_120", "12.0"),
        ("sm_120a", "12.0"),
        ("sm_120f", "12.0"),
        ("compute_120", "12.0"),
        ("sm_90a", "9.0"),
        ("90", "9.0"),
        ("sm75", "7.5"),
        ("sm_103", "10.3"),
        ("12.1", "12.1"),
        ("8.10", "8.10"),
    ],
)
def test_architectures(text: str, capability: str) -> None:
    assert find_device(text) == Device("cuda", capability)


@pytest.mark.parametrize("platform", ["cpu", "rocm", "xpu", "tpu", "npu"])
def test_platforms_without_a_compute_capability(platform: str) -> None:
    assert find_device(platform) == find_device(platform.upper()) == Device(platform)


@pytest.mark.parametrize(
    ("name", "product", "capability"),
    [
        # as torch.cuda.get_device_name() gives them
        ("Tesla T4", "T4", "7.5"),
        ("Tesla V100-SXM2-32GB", "V100", "7.0"),
        ("Quadro RTX 6000", "Quadro RTX 6000", "7.5"),
        ("Quadro RTX 5000", "Quadro RTX 5000", "7.5"),
        ("Quadro RTX 4000", "Quadro RTX 4000", "7.5"),
        ("NVIDIA A100-SXM4-80GB", "A100", "8.0"),
        ("NVIDIA A100 80GB PCIe", "A100", "8.0"),
        ("NVIDIA A10G", "A10G", "8.6"),
        ("NVIDIA RTX A6000", "RTX A6000", "8.6"),
        ("NVIDIA GeForce RTX 3080 Ti", "RTX 3080", "8.6"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", "8.9"),
        ("NVIDIA L4", "L4", "8.9"),
        ("NVIDIA L40S", "L40S", "8.9"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX 6000 Ada", "8.9"),
        ("NVIDIA RTX 4500 Ada Generation", "RTX 4500 Ada", "8.9"),
        ("NVIDIA RTX 4000 SFF Ada Generation", "RTX 4000 SFF Ada", "8.9"),
        ("NVIDIA H100 80GB HBM3", "H100", "9.0"),
        ("NVIDIA H200", "H200", "9.0"),
        ("NVIDIA H20", "H20", "9.0"),
        ("NVIDIA GH200 480GB", "GH200", "9.0"),
        ("NVIDIA B200", "B200", "10.0"),
        ("NVIDIA GB200", "GB200", "10.0"),
        ("NVIDIA B300 SXM6 AC", "B300", "10.3"),
        ("NVIDIA GeForce RTX 5090", "RTX 5090", "12.0"),
        ("NVIDIA GeForce RTX 5090 Laptop GPU", "RTX 5090", "12.0"),
        (
            "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "RTX PRO 6000 Blackwell",
            "12.0",
        ),
        (
            "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
            "RTX PRO 6000 Blackwell",
            "12.0",
        ),
        ("NVIDIA GB10", "GB10", "12.1"),
        # as people write them
        ("h100", "H100", "9.0"),
        ("b200", "B200", "10.0"),
        ("rtx pro 6000", "RTX PRO 6000 Blackwell", "12.0"),
        ("RTX-5070", "RTX 5070", "12.0"),
        ("RTX 5060 Ti", "RTX 5060", "12.0"),
        ("DGX Spark", "DGX Spark", "12.1"),
    ],
)
def test_products(name: str, product: str, capability: str) -> None:
    assert find_device(name) == find_gpu(name) == Device("cuda", capability, product)


def test_products_of_amd_have_no_compute_capability() -> None:
    assert find_gpu("AMD Instinct MI300X") == Device("rocm", None, "MI300X")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "RTX 6000",
            'GPU "RTX 6000" can be Quadro RTX 6000 (7.5), RTX 6000 Ada (8.9), '
            "RTX PRO 6000 Blackwell (12.0); say which",
        ),
        (
            "NVIDIA RTX 5000",
            'GPU "NVIDIA RTX 5000" can be Quadro RTX 5000 (7.5), RTX 5000 Ada (8.9), '
            "RTX PRO 5000 Blackwell (12.0); say which",
        ),
        ("B2000", 'unknown GPU "B2000"; did you mean B200 (10.0)? `attnsel info --gpus` lists all'),
        ("H10", 'unknown GPU "H10"; did you mean H100 (9.0)? `attnsel info --gpus` lists all'),
        ("rtx5090", "did you mean RTX 5090 (12.0)?"),
        ("5090", "did you mean RTX 5090 (12.0)?"),
        ("MI300", "did you mean MI300X (rocm)?"),
        ("no\nsuch\tGPU", 'unknown GPU "no such GPU"'),
        ("", 'unknown GPU ""; `attnsel info --gpus` lists all'),
        ("  ", "unknown GPU"),
        ("x" * 1000, f'unknown GPU "{"x" * 60}"; `attnsel info --gpus` lists all'),
    ],
)
def test_names_of_no_product_or_of_several(name: str, said: str) -> None:
    with pytest.raises(UnknownDeviceError, match=re.escape(said)) as raised:
        find_gpu(name)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("12", 'architecture "12" is not major.minor; write "12.0" or sm120'),
        ("sm_9", 'architecture "sm_9" is not major.minor; write "9.0" or sm90'),
        ("hopper", 'unknown architecture or GPU "hopper"'),
        ("cuda", 'unknown architecture or GPU "cuda"'),
        ("12.0.1", "unknown architecture or GPU"),
        ("-1.0", "unknown architecture or GPU"),
    ],
)
def test_what_is_no_architecture(text: str, said: str) -> None:
    with pytest.raises(UnknownDeviceError, match=re.escape(said)):
        find_device(text)


def test_every_product_finds_itself() -> None:
    for row in architectures():
        for product in row["products"]:
            assert find_gpu(product) == Device(row["platform"], row["capability"], product)


def test_capabilities_are_known_from_oldest_to_newest() -> None:
    numbers = [tuple(map(int, capability.split("."))) for capability in known_capabilities()]
    assert numbers == sorted(set(numbers))
    assert {"8.0", "9.0", "10.0", "12.0", "12.1"} <= set(known_capabilities())


@pytest.mark.parametrize(("arch", "is_known"), [("13.0", False), ("12.7", False), ("12.0", True)])
def test_a_capability_of_tomorrow_is_noted(arch: str, is_known: bool) -> None:
    layer = Layer.of(head_size=128, dtype="bfloat16", kv_cache_dtype="auto", attn_type="decoder")
    answer = Selector.load().bind(arch, layer).resolve(5, 9)
    newest = known_capabilities()[-1]
    note = f"compute capability {arch} is not known here; the newest known is {newest}"
    assert (note in answer.notes) is not is_known
    assert (answer.backend is None) is not is_known
