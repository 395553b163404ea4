"""What a log says of the engine: version, GPU, model, settings."""

from __future__ import annotations

import textwrap

import pytest

from selector.serving.logs.log import read_log


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


def said(text: str) -> dict[str, tuple[object, str]]:
    return {n: (t.value, t.origin) for n, t in read_log(text).settings.items()}


def values(text: str) -> dict[str, object]:
    return {n: t.value for n, t in read_log(text).settings.items()}


def test_arguments_of_older_versions() -> None:
    log = read_log(
        "INFO 02-14 03:50:41 api_server.py:529] args: Namespace(subparser='serve', "
        "model_tag='org/big', host=None, origins=['*'], kv_cache_dtype='fp8', block_size=32, "
        "gpu_memory_utilization=0.9, enable_prefix_caching=None, tensor_parallel_size=1)"
    )
    assert log.model is not None
    assert log.model.text == "org/big"
    assert log.shows_command
    assert not log.unread
    assert {n: t.value for n, t in log.settings.items()} == {
        "kv_cache_dtype": "fp8",
        "config_kv_cache_dtype": "fp8",
        "block_size": 32,
        "tp_size": 1,
    }


@pytest.mark.parametrize(
    "held",
    [
        "'attention_backend': 'FLASHINFER'",
        "'attention_backend': <AttentionBackendEnum.FLASHINFER: 'vllm.v1.attention.F'>",
        "'attention_backend': AttentionBackendEnum.FLASHINFER",
        "'attention_config': {'backend': 'FLASHINFER'}",
        "'attention_config': AttentionConfig(backend=<AttentionBackendEnum.FLASHINFER: 'a.b.F'>, "
        "flash_attn_version=None)",
    ],
)
def test_arguments_name_a_backend_in_many_ways(held: str) -> None:
    assert values(f"non-default args: {{{held}, 'port': 8000}}") == {"backend": "FLASHINFER"}


def test_an_argument_that_is_not_understood_leaves_the_others() -> None:
    text = "non-default args: {'kv_cache_dtype': 'fp9', 'block_size': 16, 'of_a_fork': 'x'}"
    assert values(text) == {"block_size": 16}
    (left,) = read_log(text).unread
    assert "fp9" in left.text
    assert left.line == 1


def test_a_command_line() -> None:
    assert said(
        "$ VLLM_ATTENTION_BACKEND=FLASHINFER vllm serve org/m --kv-cache-dtype=fp8 -tp 4 "
        '--speculative-config \'{"method": "mtp"}\' --trust-remote-code 2>&1 | tee log'
    ) == {
        "backend": ("FLASHINFER", "variable VLLM_ATTENTION_BACKEND"),
        "kv_cache_dtype": ("fp8", "--kv-cache-dtype"),
        "config_kv_cache_dtype": ("fp8", "--kv-cache-dtype"),
        "tp_size": (4, "-tp"),
        "speculative_method": ("mtp", "--speculative-config.method"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "Run `vllm serve org/m --block-size 16` again",
        "+ python3 -m vllm.entrypoints.openai.api_server --model org/m --block-size=16",
        "vllm serve org/m \\\n    --block-size 16 \\\n  --port 80\nINFO --block-size 32",
        "docker run --gpus all -e A=b vllm/vllm-openai:v0.22.0 --model org/m --block-size 16",
    ],
)
def test_where_commands_stand(text: str) -> None:
    log = read_log(text)
    assert values(text) == {"block_size": 16}
    assert log.shows_command
    assert log.model is not None
    assert log.model.text == "org/m"


@pytest.mark.parametrize(
    "text",
    [
        "the vllm serve command crashes with --kv-cache-dtype fp8",
        "vllm serve fails",
        "docker run --gpus all -it ubuntu bash",
    ],
)
def test_what_is_no_command_sets_nothing(text: str) -> None:
    log = read_log(text)
    assert not log.settings
    assert not log.shows_command
    assert not log.unread


def test_a_command_that_cannot_be_read_is_no_error_but_said() -> None:
    log = read_log('INFO all is well\nvllm serve org/m --hf-overrides \'{"a": 1')
    assert not log.settings
    (left,) = log.unread
    assert left.line == 2
    assert "quote" in left.text


def test_wrapped_arguments() -> None:
    text = "non-default args: {'model': 'org/m', 'kv_cache_dtype': 'fp8', 'max_model_len': 4096}"
    for width in range(40, 90):
        lines = (f"(APIServer pid=1) INFO {w}" for w in textwrap.wrap(text, width))
        assert values("\n".join(lines)) == {
            "kv_cache_dtype": "fp8",
            "config_kv_cache_dtype": "fp8",
            "max_model_len": 4096,
        }
