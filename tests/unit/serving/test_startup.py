"""What a log says of the engine: version, GPU, model, settings."""

from __future__ import annotations

import textwrap

import pytest

from selector.serving.log import read_log


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("INFO 11-29 [api_server.py:1] vLLM API server version 0.28.1rc1.dev446+g798544433",
         "0.28.1rc1.dev446+g798544433"),
        ("INFO 11-27 02:01:37 api.py:585] vLLM API server version 0.6.4.post1", "0.6.4.post1"),
        ("Initializing a V1 LLM engine (v0.11.0) with config: model='x'", "0.11.0"),
        ("Initializing an LLM engine (v0.6.1.post2)", "0.6.1.post2"),
        ("Dumping input data for V1 LLM engine (v0.10.1.1) with config: model='x'", "0.10.1.1"),
        ("(APIServer pid=1)  █   █  █▄   ▄█\n ▄▄ ▄█ █  █ ▀▄▀ █  version 0.15.1", "0.15.1"),
        ("vLLM Version                 : 0.19.1", "0.19.1"),
        ("[pip3] vllm==0.20.0", "0.20.0"),
        ("docker run vllm/vllm-openai:v0.22.0 --model x", "0.22.0"),
        ("Initializing a V1 LLM engine\n(v0.26.0) with config:", "0.26.0"),
        ("vllm==0.1\nvLLM API server version 0.28.0", "0.28.0"),
    ],
)  # fmt: skip
def test_versions(line: str, version: str) -> None:
    log = read_log(line)
    assert log.version is not None
    assert log.version.text == version


@pytest.mark.parametrize(
    ("line", "gpu", "capability"),
    [
        ("NVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible",
         "NVIDIA GeForce RTX 5090", "12.0"),
        ("Your Tesla T4 GPU has compute capability 7.5.", "Tesla T4", "7.5"),
        ("| 0  NVIDIA H100 80GB HBM3   On |", "NVIDIA H100 80GB HBM3", None),
        ("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)", "NVIDIA A100-SXM4-80GB", None),
        ("GPU 0: NVIDIA GB10", "NVIDIA GB10", None),
        ("GPU 3: NVIDIA H20-3e", "NVIDIA H20-3e", None),
        ("AMD Instinct MI300X", "AMD Instinct MI300X", None),
        ("config at E=8,N=1,device_name=NVIDIA_RTX_PRO_6000_Blackwell_Server_Edition.json",
         "NVIDIA RTX PRO 6000 Blackwell Server Edition", None),
        ("capability=DeviceCapability(major=12, minor=1)", "12.1", "12.1"),
        ("device is sm_120", "12.0", "12.0"),
        ("built for sm_80 sm_90", None, None),
        ("NVIDIA CUDA toolkit; NVIDIA-SMI 580.1", None, None),
        ("only on devices with compute capability >= 8.0", None, None),
    ],
)  # fmt: skip
def test_devices(line: str, gpu: str | None, capability: str | None) -> None:
    log = read_log(line)
    assert (log.gpu and log.gpu.text) == gpu
    assert (log.capability and log.capability.text) == capability


def test_arguments_of_older_versions() -> None:
    log = read_log(
        "INFO 02-14 03:50:41 api_server.py:529] args: Namespace(subparser='serve', "
        "model_tag='org/big', host=None, origins=['*'], kv_cache_dtype='fp8', block_size=32)"
    )
    assert log.model is not None
    assert log.model.text == "org/big"
    assert {n: t.text for n, t in log.settings.items()} == {
        "subparser": "serve",
        "model_tag": "org/big",
        "origins": "['*']",
        "kv_cache_dtype": "fp8",
        "block_size": "32",
    }


def test_a_command_line() -> None:
    log = read_log(
        "$ VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve org/m --kv-cache-dtype=fp8 -tp 4 "
        '--speculative-config \'{"method": "mtp"}\' --trust-remote-code 2>&1 | tee log'
    )
    assert {n: t.text for n, t in log.settings.items()} == {
        "VLLM_ATTENTION_BACKEND": "FLASHINFER",
        "kv_cache_dtype": "fp8",
        "tp": "4",
        "speculative_config": '{"method": "mtp"}',
        "trust_remote_code": "true",
    }
    assert not read_log("the vllm serve command crashes with --kv-cache-dtype fp8").settings


def test_wrapped_arguments() -> None:
    text = "non-default args: {'model': 'org/m', 'kv_cache_dtype': 'fp8', 'max_model_len': 4096}"
    for width in range(40, 90):
        log = read_log("\n".join(f"(APIServer pid=1) INFO {w}" for w in textwrap.wrap(text, width)))
        assert {n: t.text for n, t in log.settings.items()} == {
            "model": "org/m",
            "kv_cache_dtype": "fp8",
            "max_model_len": "4096",
        }
