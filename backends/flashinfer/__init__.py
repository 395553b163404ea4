"""Adapters for FlashInfer. The names here are those that a manifest's ``adapter`` gives.

Importing this imports neither torch nor FlashInfer.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from backends.flashinfer import latents, paged, ragged, tables
from backends.flashinfer.adapter import FlashInferAdapter

__all__ = [
    "attention_sink",
    "cuda_cores",
    "cudnn",
    "cutlass",
    "fa2",
    "fa3",
    "mla_cutlass",
    "mla_fa2",
    "mla_fa3",
    "mla_trtllm_gen",
    "sparse_mla_sm90",
    "sparse_mla_sm120",
    "sparse_mla_trtllm_gen",
    "trtllm_gen",
    "xqa",
]

# About twice the largest error of a right result over the cases of the manifest: one H200,
# 2026-11-30, FlashInfer 0.7.4, torch 2.11. In bfloat16 3.5e-3 for FA2 and sinks (131,072 tokens of
# context), 3.1e-3 for FA3 and CUDA cores, 2.9e-3 for MLA, 2.6e-3 for sparse MLA; in float16 3.2e-4
# at most. XQA reached 4.9e-3 (2,048 tokens of context) and 3.3e-4. What never ran is given nothing.
_ROUNDING = MappingProxyType({"bfloat16": 6e-3, "float16": 8e-4})
_XQA = MappingProxyType({"bfloat16": 1e-2, "float16": 8e-4})
_UNMEASURED: Mapping[str, float] = MappingProxyType({})

_PAGED = frozenset(
    {
        "a cache without a latent",
        "non_causal",
        "requests of different query_len",
        "several queries a request",
        "sinks",
        "sliding_window",
        "soft_cap",
        "v_head_size",
    }
)
_DECODE = frozenset({"a cache without a latent", "sinks", "sliding_window", "soft_cap"})
_RAGGED = _PAGED - {"sinks"}
_LATENT = frozenset(
    {"mla", "non_causal", "requests of different query_len", "several queries a request"}
)
_EXPANDED = frozenset({"a cache without a latent", "v_head_size"})
_SPARSE = (_LATENT - {"non_causal"}) | {"topk"}

_NO_BLACKWELL = "it needs a GPU of compute capability {}, and none was at hand"

fa2 = FlashInferAdapter("flashinfer_fa2", _PAGED, paged.start_fa2, paged.shrink, _ROUNDING)
fa3 = FlashInferAdapter("flashinfer_fa3", _PAGED, paged.start_fa3, paged.shrink, _ROUNDING)
cuda_cores = FlashInferAdapter(
    "flashinfer_cuda_cores", _DECODE, paged.start_cuda_cores, paged.shrink, _ROUNDING
)
attention_sink = FlashInferAdapter(
    "flashinfer_attention_sink", _PAGED, paged.start_sinks, paged.shrink, _ROUNDING
)
xqa = FlashInferAdapter(
    "flashinfer_xqa", _DECODE - {"soft_cap"}, tables.start_xqa, tables.shrink_xqa, _XQA
)
cudnn = FlashInferAdapter(
    "flashinfer_cudnn",
    _PAGED - {"soft_cap"},
    tables.start_cudnn,
    tables.shrink_xqa,
    _UNMEASURED,
    unverified="nvidia-cudnn-frontend was not at hand on a GPU",
)
cutlass = FlashInferAdapter(
    "flashinfer_cutlass",
    _RAGGED,
    partial(ragged.start_ragged, "cutlass"),
    paged.shrink,
    _UNMEASURED,
    reads_pages=False,
    unverified=_NO_BLACKWELL.format("10.x or 11.0"),
)
trtllm_gen = FlashInferAdapter(
    "flashinfer_trtllm_gen",
    _PAGED - {"soft_cap", "v_head_size"},
    tables.start_trtllm_gen,
    tables.shrink_xqa,
    _UNMEASURED,
    unverified=_NO_BLACKWELL.format("10.x"),
)
mla_fa2 = FlashInferAdapter(
    "flashinfer_mla_fa2", _LATENT, latents.start_fa2, paged.shrink, _ROUNDING
)
mla_fa3 = FlashInferAdapter(
    "flashinfer_mla_fa3", _LATENT, latents.start_fa3, paged.shrink, _ROUNDING
)
mla_cutlass = FlashInferAdapter(
    "flashinfer_mla_cutlass",
    _LATENT,
    latents.start_cutlass,
    latents.shrink_cutlass,
    _UNMEASURED,
    unverified=_NO_BLACKWELL.format("10.x or 11.0"),
)
mla_trtllm_gen = FlashInferAdapter(
    "flashinfer_mla_trtllm_gen",
    _LATENT | _EXPANDED,
    tables.start_mla_trtllm_gen,
    tables.shrink_xqa,
    _UNMEASURED,
    unverified=_NO_BLACKWELL.format("10.x"),
)
sparse_mla_sm90 = FlashInferAdapter(
    "flashinfer_sparse_mla_sm90",
    _SPARSE | _EXPANDED,
    latents.start_sparse_fa3,
    paged.shrink,
    _ROUNDING,
)
sparse_mla_trtllm_gen = FlashInferAdapter(
    "flashinfer_sparse_mla_trtllm_gen",
    _SPARSE | _EXPANDED,
    tables.start_sparse_trtllm_gen,
    tables.shrink_xqa,
    _UNMEASURED,
    unverified=_NO_BLACKWELL.format("10.x"),
)
sparse_mla_sm120 = FlashInferAdapter(
    "flashinfer_sparse_mla_sm120",
    _SPARSE | _EXPANDED,
    tables.start_sparse_sm120,
    tables.shrink_xqa,
    _UNMEASURED,
    packed=frozenset({"fp8_ds_mla"}),
    unverified=_NO_BLACKWELL.format("12.x"),
)
