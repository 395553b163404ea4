"""Sentences of vLLM's refusals and their codes."""

from __future__ import annotations

import pytest

from selector.serving.logs.reasons import code_of, read_reason_list


@pytest.mark.parametrize(
    "sentences",
    [
        ["FP8 KV cache requires FA3 on SM90, FA4 with head_size=512 on SM90, or FA4 on SM100"],
        ["sparse not supported", "FA4 sparse MLA requires (8, 16) gathered query heads, got num=1"],
        ["FA4 unavailable: FA4 is only supported on capability 9.x, 10.x, or 11.x", "MLA not x"],
        ["device-cpu query lens mismatch not supported, this is needed for adaptive verification"],
        ["vllm._flashmla_C is not available, likely was not compiled", "DCP not supported"],
        ["FLASHMLA_SPARSE supports head_size 512 only with bf16 (NoPE), got kv_cache_dtype=None, "
         "capability=DeviceCapability(major=10, minor=0)", "an unknown thing is missing"],
    ],
)  # fmt: skip
def test_sentences_with_commas(sentences: list[str]) -> None:
    assert [r.text for r in read_reason_list(", ".join(sentences))] == sentences
    assert [r.text for r in read_reason_list(repr(sentences)[1:-1])] == sentences


def test_codes() -> None:
    assert code_of("attention sinks not supported") == code_of("sink setting not supported")
    assert code_of("sink not supported on compute capability < 9.0") == "FA_SINK_SM90"
    assert code_of("FLASHINFER: fa2 prefill misreads an NVFP4 KV cache") == "FI_NVFP4_HEAD_64"
    assert code_of("ImportError") == "NOT_INSTALLED"
    assert code_of("moon phase not supported") is None
    assert code_of("") is None
