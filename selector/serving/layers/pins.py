"""Backends that a command forces: for all layers, for a kind, for the drafter, for towers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from selector.serving.commands.command import Command
from selector.serving.commands.values import Setting
from selector.serving.layers.refusal import Stack
from selector.values import Layer, Phase, Policy

__all__ = [
    "PREFILL_SUFFIX",
    "Pin",
    "is_dense_mla",
    "kind_of",
    "pin_for",
    "pins_of",
    "policy_of",
    "unknown_kinds",
]

PREFILL_SUFFIX = "_MLA_PREFILL"
"""Behind the names of MLA prefill backends, some of which are names of other backends too."""

_KINDS = frozenset(
    {
        "full_attention",
        "mla_attention",
        "sliding_window",
        "sliding_window_mla",
        "encoder_only_attention",
        "cross_attention",
    }
)


class Pin(msgspec.Struct, frozen=True):
    """A backend that the command forces.

    Attributes:
        backend: its name in the manifest.
        origin: the spelling that says it.
        field: the setting.
        mla_prefill: it is the MLA prefill backend that is forced.
    """

    backend: str
    origin: str
    field: str
    mla_prefill: bool = False


def is_dense_mla(layer: Layer | Mapping[str, object]) -> bool:
    """Whether layers have a prefill backend of their own."""
    return layer.get("mla") is True and layer.get("sparse") is not True


def kind_of(layer: Layer) -> str:
    """The kind of KV cache group that layers belong to; empty for one that is never looked up."""
    attn_type = layer.get("attn_type")
    if attn_type == "encoder_only":
        return "encoder_only_attention"
    if attn_type == "encoder_decoder":
        return "cross_attention"
    if attn_type not in ("decoder", None):
        return ""
    windowed = isinstance(layer.get("sliding_window"), int) and layer.get("chunked") is not True
    if layer.get("mla") is True:
        return "sliding_window_mla" if windowed else "mla_attention"
    return "sliding_window" if windowed else "full_attention"


def pins_of(command: Command, stack: Stack, layer: Layer) -> tuple[Pin, ...]:
    """The backends that a command forces on layers of a stack.

    What is forced for the target does not reach its drafter, which has a key of its own.
    """
    if stack == "tower":
        return tuple(_plain(command.setting("tower_backend")))
    pins = [*_per_kind(command, layer)]
    if not pins and layer.get("attn_type") != "encoder":  # encoders beside a decoder choose apart
        pins += _plain(command.setting("draft_backend" if stack == "drafter" else "backend"))
    prefill = command.setting("mla_prefill_backend")
    if prefill is not None and is_dense_mla(layer):
        name = f"{prefill.value}{PREFILL_SUFFIX}"
        pins.append(Pin(name, prefill.origin, prefill.field, mla_prefill=True))
    return tuple(pins)


def _plain(setting: Setting | None) -> Iterator[Pin]:
    if setting is not None and isinstance(setting.value, str):
        yield Pin(setting.value, setting.origin, setting.field)


def _per_kind(command: Command, layer: Layer) -> Iterator[Pin]:
    setting = command.setting("backend_per_kind")
    if setting is None or not isinstance(setting.value, Mapping):
        return
    name = setting.value.get(kind_of(layer))
    if isinstance(name, str) and name.lower() != "auto":
        yield Pin(name.upper(), setting.origin, setting.field)


def unknown_kinds(command: Command) -> Sequence[str]:
    """Kinds that ``backend_per_kind`` names and vLLM never looks up."""
    setting = command.setting("backend_per_kind")
    held = setting.value if setting is not None else None
    return [str(k) for k in held if k not in _KINDS] if isinstance(held, Mapping) else []


def policy_of(pins: Sequence[Pin], layer: Layer) -> Policy:
    """The policy that pins come to; the backend of an MLA layer leaves its prefill free."""
    own = next((pin.backend for pin in pins if not pin.mla_prefill), None)
    prefill = next((pin.backend for pin in pins if pin.mla_prefill), None)
    if is_dense_mla(layer):
        return Policy(prefill_backend=prefill, decode_backend=own)
    return Policy(prefill_backend=own, decode_backend=own)


def pin_for(pins: Sequence[Pin], phase: Phase, layer: Mapping[str, object]) -> Pin | None:
    """The pin that forces a phase."""
    wanted = is_dense_mla(layer) and phase is Phase.PREFILL
    return next((pin for pin in pins if pin.mla_prefill is wanted), None)
