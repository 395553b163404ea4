"""Which attention kernel runs prefill and which runs decode, and why not the others.

>>> from selector import Layer, Selector
>>> layer = Layer.of(head_size=128, dtype="bfloat16", kv_cache_dtype="auto", attn_type="decoder")
>>> answer = Selector.load().bind("H200", layer).resolve(query_len=512, seq_len=512)
"""

from selector.binding import Bound, Selector
from selector.devices import find_device
from selector.errors import AttnselError, ManifestError
from selector.values import (
    Device,
    Facts,
    Finding,
    Layer,
    Outcome,
    Phase,
    Policy,
    Request,
    Resolution,
)

__all__ = [
    "AttnselError",
    "Bound",
    "Device",
    "Facts",
    "Finding",
    "Layer",
    "ManifestError",
    "Outcome",
    "Phase",
    "Policy",
    "Request",
    "Resolution",
    "Selector",
    "find_device",
]
