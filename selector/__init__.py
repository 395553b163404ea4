"""Which attention kernel runs prefill and which runs decode, and why not the others.

>>> from selector import Layer, Selector
>>> layer = Layer.of(head_size=128, dtype="bfloat16", kv_cache_dtype="auto", attn_type="decoder")
>>> answer = Selector.load().bind("H200", layer).resolve(query_len=512, seq_len=512)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from selector.binding import Bound, Selector
    from selector.devices import find_device
    from selector.errors import AttnselError, ManifestError
    from selector.exchange import ServerError
    from selector.remote import RemoteSelector
    from selector.values import (
        Device,
        Facts,
        Fallback,
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
    "Fallback",
    "Finding",
    "Layer",
    "ManifestError",
    "Outcome",
    "Phase",
    "Policy",
    "RemoteSelector",
    "Request",
    "Resolution",
    "Selector",
    "ServerError",
    "find_device",
]

_HOMES = {
    "binding": ("Bound", "Selector"),
    "devices": ("find_device",),
    "errors": ("AttnselError", "ManifestError"),
    "exchange": ("ServerError",),
    "remote": ("RemoteSelector",),
}


def __getattr__(name: str) -> object:
    """Imports a public name when it is first asked for: a tool that needs one room opens one."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next((module for module, names in _HOMES.items() if name in names), "values")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
