"""What one backend says by itself, and what is not understood."""

from __future__ import annotations

import pytest

from selector.serving.logs.log import read_log


@pytest.mark.parametrize(
    ("text", "backend", "code", "asked"),
    [
        ("ValueError: Head size 288 is not supported by FlashAttention. Supported head sizes are: "
         "[32, 64]. Set VLLM_USE_V1=0 to use another attention backend.",
         "FLASH_ATTN", "HEAD_SIZE", {"head_size": 288}),
        ("Head size 80 is not supported by TritonAttention.",
         "TRITON_ATTN", "HEAD_SIZE", {"head_size": 80}),
        ("NotImplementedError: FlashAttention does not support fp8 kv-cache on this device.",
         "FLASH_ATTN", "KV_CACHE_DTYPE", {"kv_cache_dtype": "fp8"}),
        ("NotImplementedError: FlashMLA V1 with FP8 KV cache not yet supported",
         "FLASHMLA", "KV_CACHE_DTYPE", {"mla": True, "kv_cache_dtype": "fp8"}),
        ("NotImplementedError: FlashAttnMLA V1 with FP8 KV cache not yet supported",
         "FLASH_ATTN_MLA", "KV_CACHE_DTYPE", {"mla": True, "kv_cache_dtype": "fp8"}),
        ("AssertionError: Sinks are only supported in FlashAttention 3",
         "FLASH_ATTN", "SINK", {"sink": True}),
        ("NotImplementedError: FlashInfer backend currently does not support attention sinks, "
         "please use trtllm on blackwell or flash attention on earlier GPUs.",
         "FLASHINFER", "SINK", {"sink": True}),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
         "FLASH_ATTN", "CAPABILITY", {}),
        ("INFO selector.py:240] Cannot use FlashAttention-2 backend for Volta and Turing GPUs.",
         "FLASH_ATTN", "CAPABILITY", {}),
        ("INFO [cuda.py:240] Cannot use FlashAttention-2 backend for head size 72.",
         "FLASH_ATTN", "HEAD_SIZE", {"head_size": 72}),
        ("ValueError: Invalid attention backend for cuda, with use_v1: True use_mla: True",
         None, None, {"mla": True}),
        ("NotImplementedError: Encoder self-attention and encoder/decoder cross-attention are not "
         "implemented for TritonMLAImpl", "TRITON_MLA", "ATTN_TYPE", {"mla": True}),
    ],
)  # fmt: skip
def test_sentences_of_one_backend(
    text: str, backend: str | None, code: str | None, asked: dict[str, object]
) -> None:
    (error,) = read_log(text).errors
    assert (error.kind, error.backend) == ("refused", backend)
    assert dict(error.asked) == asked
    assert [r.code for r in error.reasons.get(backend or "", ())] == ([code] if backend else [])


@pytest.mark.parametrize(
    "text",
    [
        "ValueError: Unknown attention backend: 'FLASH_ATTNN'. Valid options are: FLASH_ATTN",
        "ValueError: Invalid attention backend: 'FLASH_ATTNN'. Valid backends are: FLASH_ATTN",
    ],
)
def test_a_name_that_is_no_backend(text: str) -> None:
    (error,) = read_log(text).errors
    assert (error.kind, error.backend) == ("forced", "FLASH_ATTNN")


def test_the_source_that_raises_it_is_no_error() -> None:
    log = read_log(
        '    raise NotImplementedError("FlashAttention does not support fp8 kv-cache on this '
        'device.")\n    assert x, "Sinks are only supported in FlashAttention 3"\n'
    )
    assert not log.errors
    assert not log.unread


def test_what_did_not_stop_the_engine_counts_only_alone() -> None:
    passed_over = "INFO Cannot use FlashAttention-2 backend for Volta and Turing GPUs.\n"
    raised = "NotImplementedError: FlashAttention does not support fp8 kv-cache on this device.\n"
    assert [e.asked for e in read_log(passed_over * 3).errors] == [{}]
    assert read_log(passed_over * 3).errors[0].count == 3
    (error,) = read_log(passed_over + raised).errors
    assert error.asked == {"kv_cache_dtype": "fp8"}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[TensorRT-LLM][ERROR] Assertion failed: The attention sinks is only supported on SM90",
         "TensorRT-LLM"),
        ("NotImplementedError: No operator found for `memory_efficient_attention_forward` with "
         "inputs:", "xformers"),
        ("ValueError: TRTLLM MHA backend is only supported on Blackwell GPUs (SM100).", "SM100"),
        ("AssertionError: HybridAttentionBackend does not support speculative decoding", "Hybrid"),
        ("ValueError: No common block size for 16", "--block-size"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_kept(text: str, told: str) -> None:
    log = read_log(f"INFO all is well\n{text}\n{text}\n")
    assert not log.errors
    (left,) = log.unread
    assert left.line == 2
    assert told in left.text


def test_ordinary_lines_are_not_taken_for_errors() -> None:
    log = read_log(
        "INFO [cuda.py:1] Using FLASH_ATTN attention backend out of potential backends\n"
        '  File "/x/vllm/attention/layer.py", line 83, in get_attn_backend\n'
        "RuntimeError: Engine core initialization failed. See root cause above.\n"
    )
    assert not log.errors
    assert not log.unread
