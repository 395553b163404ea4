"""Layers that keep the model's element type in their KV cache while the others do not."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import msgspec

from selector.fields import one_line
from selector.serving.commands.command import Command
from selector.serving.commands.values import Note
from selector.values import Layer, LayerGroup, Model

__all__ = ["Skips", "kept_layer", "skips_of"]

_KINDS = ("sliding_window",)
_PACKED = ("turboquant_", "ultraquant_")
_DIGITS = 7
_EDGE = 2
"""So many layers at either end keep their type under a packed cache."""


class Skips(msgspec.Struct, frozen=True):
    """Which layers are skipped, and who says so.

    Attributes:
        numbers: by number; each with what says it.
        sliding: what says that all layers with a window are; empty when nothing does.
        notes: what an operator should know.
    """

    numbers: MappingProxyType[int, str] = MappingProxyType({})
    sliding: str = ""
    notes: tuple[Note, ...] = ()

    def split(self, group: LayerGroup, *, numbered: bool) -> Iterator[tuple[LayerGroup, str]]:
        """Yields a group in its parts, each with what says that it is skipped, or nothing.

        Args:
            group: as read.
            numbered: whether its layers are counted as the numbers are.
        """
        layer = group.layer
        if _is_plain(layer):
            yield group, ""
            return
        if self.sliding and layer.get("mla") is not True and _has_window(layer):
            yield _kept(group), self.sliding
            return
        out = [n for n in group.numbers if n in self.numbers] if numbered else []
        if not out:
            yield group, ""
            return
        why = self.numbers[out[0]]
        if len(out) == group.count:
            yield _kept(group), why
            return
        left = tuple(n for n in group.numbers if n not in self.numbers)
        yield msgspec.structs.replace(group, count=len(left), numbers=left), ""
        kept = _kept(group)
        name = f"skipped-{group.name}"
        yield msgspec.structs.replace(kept, name=name, count=len(out), numbers=tuple(out)), why


def _has_window(layer: Layer) -> bool:
    window = layer.get("sliding_window")
    return isinstance(window, int) and not isinstance(window, bool) and window > 0


def _kept(group: LayerGroup) -> LayerGroup:
    """The same layers, skipped; the type of the run is from where theirs was."""
    origins, keys = dict(group.origins), dict(group.keys)
    if "kv_cache_dtype" in origins:
        origins.setdefault("config_kv_cache_dtype", origins["kv_cache_dtype"])
    if "kv_cache_dtype" in keys:
        keys.setdefault("config_kv_cache_dtype", keys["kv_cache_dtype"])
    layer = kept_layer(group.layer)
    return msgspec.structs.replace(group, layer=layer, origins=origins, keys=keys)


def kept_layer(layer: Layer) -> Layer:
    """The layer with a cache of the model's own type, in a run of the type it had."""
    run = {"config_kv_cache_dtype": layer.fields["kv_cache_dtype"]}
    return Layer(MappingProxyType({**run, **layer.fields, "kv_cache_dtype": "auto"}))


def skips_of(command: Command, model: Model) -> Skips:
    """The layers of a model that a command skips.

    Args:
        command: as read.
        model: as the command makes it, on one rank.
    """
    layers = [g for g in model.groups if g.layer.get("attn_type") != "encoder"]
    known = {number for group in layers for number in group.numbers}
    numbers = _edges(command, model, known)
    setting = command.setting("kv_cache_dtype_skip_layers")
    if setting is None:
        return Skips(MappingProxyType(numbers))
    shown, wrong, sliding = one_line(setting.origin), list[str](), ""
    for entry in setting.value:
        is_number = entry.isascii() and entry.isdigit() and len(entry) < _DIGITS
        if entry in _KINDS:
            sliding = shown
        elif not is_number or str(int(entry)) != entry:
            wrong.append(f"{shown} {one_line(entry)} names no layer; give numbers, sliding_window")
        elif known and int(entry) not in known:
            wrong.append(f"{shown} {entry} is no layer with attention; the last is {max(known)}")
        else:
            numbers[int(entry)] = shown
    if all(_is_plain(group.layer) for group in layers):
        wrong.append(f"{shown} changes nothing: the KV cache has the model's type everywhere")
    notes = [Note("dead", shown, text, setting.position) for text in wrong]
    if numbers and any(not group.numbers for group in layers):
        text = f"{shown}: some layers are not numbered here, and taken as not skipped"
        notes.append(Note("unmodelled", shown, text, setting.position))
    return Skips(MappingProxyType(numbers), sliding, tuple(notes))


def _edges(command: Command, model: Model, known: set[int]) -> dict[int, str]:
    """The layers that a packed cache leaves out by itself: at both ends, unless there are others.

    A model some of whose layers have no attention keeps all that have it.
    """
    asked = command.setting("kv_cache_dtype")
    if asked is None or not str(asked.value).startswith(_PACKED) or model.attention_free:
        return {}
    count = max(known, default=-1) + 1
    edge = min(_EDGE, count // 2)
    why = f"{one_line(asked.value)} leaves out the first and last {edge} layers"
    return dict.fromkeys((*range(edge), *range(count - edge, count)), why)


def _is_plain(layer: Layer) -> bool:
    return layer.get("kv_cache_dtype") in ("auto", "unset", None)
