"""What stands beside the main stack: towers and drafters. Neither is ever counted in it.

A tower is read with the rules of any stack, as far as they go; one that they cannot read is named
with the reason, and never keeps the model from being read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from selector.errors import AttnselError
from selector.models.source import Source
from selector.values import Drafter, LayerGroup, Tower

__all__ = ["read_drafters", "read_towers"]

ReadTower = Callable[[Source, str, dict[str, None]], Sequence[LayerGroup]]
"""A tower's source, its attention type and its notes → its groups."""

_MANY = 16
"""Towers listed at most; no model has more."""


def read_towers(levels: Sequence[Source], read: ReadTower) -> tuple[Tower, ...]:
    """The towers that the levels of a config name, in the table's order.

    Args:
        levels: from the top of the config to the language model.
        read: reads one stack.
    """
    found: dict[str, Tower] = {}
    for level in levels:
        for key, kind in level.tables.towers.items():
            nested = level.raw(key)
            if isinstance(nested, Mapping):
                source = level.inside(key, nested).as_role("tower")
                found.setdefault(source.prefix, _read_tower(kind, source, read))
    return tuple(found.values())[:_MANY]


def _read_tower(kind: str, source: Source, read: ReadTower) -> Tower:
    notes: dict[str, None] = {}
    key = source.prefix.removesuffix(".")
    attn_type = "decoder" if kind == "speech" else "encoder_only"
    try:
        groups = tuple(read(source, attn_type, notes))
    except AttnselError as error:
        words = str(error).removeprefix(f"{source.file}: ")
        return Tower(kind, key, source.model_type, (), (f"not read: {words}",))
    return Tower(kind, key, source.model_type, groups, tuple(notes))


def read_drafters(
    levels: Sequence[Source], groups: Sequence[LayerGroup], draft_kind: str
) -> tuple[Drafter, ...]:
    """The layers that draft tokens, by the keys that count them.

    Args:
        levels: from the top of the config to the language model.
        groups: the model's own layers.
        draft_kind: the kind of layer that the model's drafters share; empty for the last kind
            that is neither sliding nor chunked.
    """
    like = _shared(groups, draft_kind)
    found: dict[str, Drafter] = {}
    for level in reversed(levels):
        for key in level.tables.drafters:
            raw = level.raw(key)
            if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw <= 10_000:
                found.setdefault(key, Drafter(level.path(key), raw, like))
    return tuple(found.values())


def _shared(groups: Sequence[LayerGroup], draft_kind: str) -> str:
    if draft_kind:
        return next((group.name for group in groups if group.name == draft_kind), "")
    own = [g.name for g in groups if g.layer.get("attn_type") == "decoder"]
    whole = [name for name in own if not name.startswith(("sliding", "chunked"))]
    return (whole or own or [""])[-1]
