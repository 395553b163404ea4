"""Codes for the sentences with which vLLM 0.33.0 refuses an attention backend.

The code of a refusal by one field is the field's name in capitals; the other codes name the rule.
Of each sentence only the fragment that tells it from all others is kept here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

INNER = re.compile(r"[A-Z0-9_]+: ")
"""How a backend made of two begins a sentence of the one inside it."""

OF_FIELDS = (
    (r"head_size not", "HEAD_SIZE"),
    (r"dtype (torch\.\w+ )?not", "DTYPE"),
    (r"kv_cache_dtype not", "KV_CACHE_DTYPE"),
    (r"block_size not", "BLOCK_SIZE"),
    (r"partial multimodal", "MM_PREFIX"),
    (r"(non-)?MLA not", "MLA"),
    (r"attention sinks", "SINK"),
    (r"(non-)?sparse not", "SPARSE"),
    (r"per-head", "PER_HEAD_QUANT_SCALES"),
    (r"compute cap", "CAPABILITY"),
    (r"attention type", "ATTN_TYPE"),
    (r"sliding window", "SLIDING_WINDOW"),
    (r"R-SWA", "RSWA"),
    (r"non-causal attention", "NON_CAUSAL"),
    (r"non-causal MLA", "NON_CAUSAL_DCP"),
    (r"batch inv", "BATCH_INVARIANT"),
    (r"PCP not", "PCP"),
    (r"DCP not", "DCP"),
    (r"device-cpu", "ADAPTIVE_VERIFICATION"),
)
OF_RULES = (
    (r"sink not", "FA_SINK_SM90"),
    (r"SM90 FP8 KV", "FA_FP8_MM_PREFIX_SM90"),
    (r"FP8 KV cache req", "FA_FP8_KV"),
    (r"mm_prefix", "FA_MM_PREFIX_FA4"),
    (r"causal route", "CAUSAL_ROUTE_FA"),
    (r"fa2 prefill", "FI_NVFP4_HEAD_64"),
    (r"the sink prefill", "FI_NVFP4_SINK"),
    (r"b12x currently req", "B12X_BF16_QUERY"),
    (r"b12x does", "B12X_FP16_KV"),
    (r"b12x currently sup", "B12X_QUANT_KV"),
    (r"b12x paged", "B12X_DEVICE"),
    (r"FlashAttention MLA not", "FA_MLA_DEVICE"),
    (r"FlashMLA Sparse is", "FLASHMLA_SPARSE_DEVICE"),
    (r"FlashMLA Dense is", "FLASHMLA_DENSE_DEVICE"),
    (r"FlashInfer MLA kernel", "FI_MLA_NOPE"),
    (r"tokenspeed_mla req", "TOKENSPEED_DIMS"),
    (r"FlashAttention MLA Sparse currently", "FA_SPARSE_KV16"),
    (r"FlashAttention MLA Sparse does", "FA_SPARSE_DCP"),
    (r".+ requires (a )?model with", "INDEX_TOPK_MISSING"),
    (r"FLASHMLA_SPARSE .+ only with", "FLASHMLA_512"),
    (r"FLASHMLA_SPARSE .+ only for", "FLASHMLA_512_ROPE"),
    (r"FLASHMLA_SPARSE only", "FLASHMLA_NVFP4_SM100"),
    (r"\w+ does not support combined", "FI_SPARSE_PCP_DCP"),
    (r"\w+ SM10 does", "FI_SPARSE_DS_MLA"),
    (r"FlashInfer native", "FI_SPARSE_NOROPE"),
    (r"FlashInfer MLA Sparse kernel", "FI_SPARSE_NOPE"),
    (r"FA4 sparse MLA runs", "FA4_SPARSE_FLASHINFER"),
    (r"FA4 unavailable", "FA4_DEVICE"),
    (r"FA4 sparse MLA requires index", "FA4_SPARSE_TOPK"),
    (r"FA4 sparse MLA requires \(kv", "FA4_SPARSE_DIMS"),
    (r"FA4 sparse MLA requires .+ gathered", "FA4_SPARSE_HEADS"),
    (r"\w+_SM90 requires F", "FI_SM90_MISSING"),
    (r"\w+_SM90 requires s", "FI_SM90_SPARSE"),
    (r"\w+_SM90 requires k", "FI_SM90_LORA"),
    (r"\w+_SM90 requires q", "FI_SM90_ROPE"),
    (r"\w+ requires FlashInfer's", "FI_SM120_MISSING"),
    (r"\w+_SM120 requires index", "INDEX_TOPK_2048"),
    (r"\w+ SM10x uses", "DSV4_DS_MLA_SM100"),
    (r"\w+ requires SM10x", "DSV4_DEVICE"),
    (r"FlashMLA mega", "MEGA_SM100"),
    (r"Model does not have supported MLA", "MLA_DIMENSIONS"),
)
UNRECORDED = (
    (r"KV connector not", "KV_CONNECTOR"),
    (r"vllm\._flashmla_C is", "FLASHMLA_MISSING"),
    (r"tokenspeed_mla package", "TOKENSPEED_MISSING"),
)
"""Sentences of earlier public versions; the recorded decisions never give one of them."""

TABLE = [(re.compile(fragment), code) for fragment, code in (*OF_FIELDS, *OF_RULES, *UNRECORDED)]


@cache
def code_of(sentence: str) -> str:
    """The code of one sentence; a check that raised is ``CHECK_RAISES``.

    Raises:
        ValueError: No code is known for the sentence.
    """
    if sentence.startswith("!"):
        return "CHECK_RAISES"
    inner = INNER.match(sentence)
    told = sentence[inner.end() :] if inner else sentence
    for fragment, code in TABLE:
        if fragment.match(told):
            return code
    raise ValueError(f"no code is known for the reason {sentence!r}")


def codes_of(sentences: Iterable[str]) -> list[str]:
    """The codes of several sentences in their order, each once."""
    return list(dict.fromkeys(map(code_of, sentences)))


def class_of(error: str | None) -> str | None:
    """The exception's class name of an error, for ``ok`` and ``None`` the same."""
    return error and error.partition(":")[0]


def prefill_codes_of(refused: str) -> tuple[str, list[str]]:
    """An MLA prefill backend that was no candidate, and the codes of its sentences."""
    backend, _, sentences = refused.partition(": ")
    return backend, codes_of(re.split(r"; (?!supported:)", sentences))
