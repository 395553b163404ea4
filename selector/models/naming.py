"""What groups of layers are called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from selector.values import LayerGroup

__all__ = ["name_group", "with_names"]


def name_group(kind: str, values: Mapping[str, object]) -> str:
    """``sparse``, ``mla``, ``sliding``, ``encoder-sliding``, ``cross``, …: by kind and fields."""
    attn_type = values["attn_type"]
    if attn_type == "encoder_decoder":
        return "cross"
    name = kind
    if values["mla"]:
        name = "sparse" if values["sparse"] else "mla"
    if attn_type in ("encoder", "encoder_only"):
        return "encoder" if name == "full" else f"encoder-{name}"
    return name


def with_names(groups: Sequence[LayerGroup]) -> tuple[LayerGroup, ...]:
    """The groups, with a number behind names that would repeat: ``full``, ``full-2``."""
    seen: dict[str, int] = {}
    named = []
    for group in groups:
        seen[group.name] = seen.get(group.name, 0) + 1
        times = seen[group.name]
        if times > 1:
            group = msgspec.structs.replace(group, name=f"{group.name}-{times}")
        named.append(group)
    return tuple(named)
