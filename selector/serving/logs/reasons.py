"""Why vLLM refused a backend: its sentences, in the spellings of all its versions → codes.

The code of a refusal by one field is the field's name in capitals; the other codes name the rule.
Of each sentence only the fragment that tells it from all others is kept here.
"""

from __future__ import annotations

import re

import msgspec

from selector.serving.logs.literal import one_blank, read_strings, split_outside

__all__ = ["Reason", "code_of", "read_reason_list", "split_sentences"]


class Reason(msgspec.Struct, frozen=True):
    """One sentence of a refusal, and its code; ``None``: no version known here says so."""

    text: str
    code: str | None


_LONGEST = 400
"""Of a longer sentence only so many characters are kept."""

_MOST_SENTENCES = 40
"""No backend has more reasons; what is beyond is left out."""

_INNER = re.compile(r"[A-Z0-9_]{1,60}: ")
"""How a backend made of two begins a sentence of the one inside it."""

_FRAGMENTS = (
    (r"head_size (\S+ )?not", "HEAD_SIZE"),
    (r"dtype (\S+ )?not", "DTYPE"),
    (r"kv_cache_dtype (\S+ )?not", "KV_CACHE_DTYPE"),
    (r"block_size (\S+ )?not", "BLOCK_SIZE"),
    (r"partial multimodal|mm_prefix not", "MM_PREFIX"),
    (r"(non-)?MLA not", "MLA"),
    (r"attention sinks|sink setting", "SINK"),
    (r"(non-)?sparse not", "SPARSE"),
    (r"per-head", "PER_HEAD_QUANT_SCALES"),
    (r"compute cap", "CAPABILITY"),
    (r"attention type", "ATTN_TYPE"),
    (r"sliding window", "SLIDING_WINDOW"),
    (r"R-SWA", "RSWA"),
    (r"non-causal attention", "NON_CAUSAL"),
    (r"non-causal MLA", "NON_CAUSAL_DCP"),
    (r"batch inv", "BATCH_INVARIANT"),
    (r"KV connector", "KV_CONNECTOR"),
    (r"PCP not", "PCP"),
    (r"DCP not", "DCP"),
    (r"device-cpu", "ADAPTIVE_VERIFICATION"),
    (r"sink not", "FA_SINK_SM90"),
    (r"SM90 FP8 KV", "FA_FP8_MM_PREFIX_SM90"),
    (r"FP8 KV cache req", "FA_FP8_KV"),
    (r"mm_prefix \(", "FA_MM_PREFIX_FA4"),
    (r"causal route", "CAUSAL_ROUTE_FA"),
    (r"fa2 prefill", "FI_NVFP4_HEAD_64"),
    (r"the sink prefill", "FI_NVFP4_SINK"),
    (r"nvfp4 KV cache in FlashI", "FI_NVFP4_DEVICE"),
    (r"b12x currently req", "B12X_BF16_QUERY"),
    (r"b12x does", "B12X_FP16_KV"),
    (r"b12x currently sup", "B12X_QUANT_KV"),
    (r"b12x paged", "B12X_DEVICE"),
    (r"FlashAttention MLA not", "FA_MLA_DEVICE"),
    (r"FlashMLA Sparse is", "FLASHMLA_SPARSE_DEVICE"),
    (r"FlashMLA (Dense )?is", "FLASHMLA_DENSE_DEVICE"),
    (r"vllm\._flashmla\w* is", "FLASHMLA_MISSING"),
    (r"FlashInfer MLA kernel", "FI_MLA_NOPE"),
    (r"tokenspeed_mla req", "TOKENSPEED_DIMS"),
    (r"tokenspeed_mla package", "TOKENSPEED_MISSING"),
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
    (r"ImportError|required dependencies", "NOT_INSTALLED"),
)

_TABLE = [(re.compile(fragment), code) for fragment, code in _FRAGMENTS]

_GOES_ON = re.compile(
    r"(?:but|got|or|and|which|this|likely|not|only|see|use|capability)\b|\w{1,60}=|\d"
)
"""How the rest of a sentence begins that has a comma in it."""

_HAS_VERB = re.compile(
    r"\b(?:not|requires?d?|only|is|are|does|do|cannot|supports?|supported|missing|unavailable"
    r"|needs?|failed|invalid|Error)\b|Error\b"
)


def code_of(sentence: str) -> str | None:
    """The code of one sentence; ``None`` when no version known here says it."""
    told = sentence[:_LONGEST]
    inner = _INNER.match(told)
    if inner:
        told = told[inner.end() :]
    for fragment, code in _TABLE:
        if fragment.match(told):
            return code
    return None


def split_sentences(text: str) -> list[str]:
    """The sentences of a list written without quotes: a comma may also stand inside one."""
    sentences: list[str] = []
    for piece in split_outside(text, ","):
        told = one_blank(piece)
        if not any(c.isalnum() for c in told):
            continue
        if sentences and _continues(told):
            sentences[-1] += f", {told}"
        else:
            sentences.append(told)
    return sentences[:_MOST_SENTENCES]


def _continues(piece: str) -> bool:
    """Whether a piece belongs to the sentence before it."""
    if code_of(piece):
        return False
    if _GOES_ON.match(piece):
        return True
    return not _HAS_VERB.search(piece)


def read_reason_list(text: str) -> tuple[Reason, ...]:
    """The reasons between two square brackets, quoted as Python does it or not at all."""
    told = text.strip()
    quoted = told[:1] in ("'", '"') or told[:2] in ("\\'", '\\"')
    found = read_strings(told) if quoted else split_sentences(told)
    sentences = [s for s in map(one_blank, found) if any(c.isalnum() for c in s)]
    return tuple(Reason(s[:_LONGEST], code_of(s)) for s in sentences[:_MOST_SENTENCES])
