"""Adapters for FlashInfer. The names here are those that a manifest's ``adapter`` gives.

Importing this imports neither torch nor FlashInfer.
"""

from __future__ import annotations

from types import MappingProxyType

from backends.flashinfer import paged
from backends.flashinfer.adapter import FlashInferAdapter

__all__ = ["attention_sink", "cuda_cores", "fa2", "fa3"]

# Until these are measured over the cases of the manifest: errors of 2.2e-3 to 2.7e-3 were seen in
# bfloat16, on an H200, for FA2, FA3 and both decodes, which is the rounding of the output (2**-9).
# The rounding of float16 is an eighth of it.
_ROUNDING = MappingProxyType({"bfloat16": 6e-3, "float16": 8e-4})

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

fa2 = FlashInferAdapter(
    "flashinfer_fa2", _PAGED, paged.start_fa2("flashinfer_fa2"), paged.shrink, _ROUNDING
)
fa3 = FlashInferAdapter(
    "flashinfer_fa3", _PAGED, paged.start_fa3("flashinfer_fa3"), paged.shrink, _ROUNDING
)
cuda_cores = FlashInferAdapter(
    "flashinfer_cuda_cores",
    frozenset({"a cache without a latent", "sinks", "sliding_window", "soft_cap"}),
    paged.start_decode("flashinfer_cuda_cores"),
    paged.shrink,
    _ROUNDING,
)
attention_sink = FlashInferAdapter(
    "flashinfer_attention_sink",
    _PAGED,
    paged.start_sinks("flashinfer_attention_sink"),
    paged.shrink,
    _ROUNDING,
)
