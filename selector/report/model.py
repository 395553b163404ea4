"""A model as it was read: its layers, what stands beside them, and where each value came from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from selector.domains import Domain, Value
from selector.fields import BUILTIN, Field, show, show_domain
from selector.report.text import BLANK, Line, Part, faint, grid, joined, line, strong, warn
from selector.report.wording import counted, kind_words
from selector.values import Drafter, Layer, LayerGroup, Model, Origin, Tower

__all__ = ["model_json", "model_lines", "models_json", "models_lines"]

_HUB = "https://huggingface.co/"

_FEATURES = ("sink", "soft_cap", "alibi", "chunked")
_OF_CLASS = ("sink", "alibi", "mm_prefix")
"""Features that a model's class has, whatever its config says."""

_IMPLIED = ("mla", "sparse", "tp_size", "chunked")


def model_json(model: Model) -> dict[str, Any]:
    """A model as JSON values; ``schemas/model.schema.json`` describes them."""
    return {
        "name": model.name,
        "model_type": model.model_type,
        "source": model.source,
        "layers": [_group_json(group) for group in model.groups],
        "attention_free": model.attention_free,
        "towers": [
            {
                "kind": tower.kind,
                "key": tower.key,
                "model_type": tower.model_type,
                "layers": [_group_json(group) for group in tower.groups],
                "notes": list(tower.notes),
            }
            for tower in model.towers
        ],
        "drafters": [
            {"key": drafter.key, "count": drafter.count, "like": drafter.like}
            for drafter in model.drafters
        ],
        "kv_shared_layers": model.kv_shared_layers,
        "defaults": dict(model.defaults),
        "defaults_source": model.defaults_source,
        "notes": list(model.notes),
    }


def _group_json(group: LayerGroup) -> dict[str, Any]:
    return {
        "name": group.name,
        "count": group.count,
        "layer": {name: _plain(name, value) for name, value in group.layer.fields.items()},
        "origins": {name: origin.value for name, origin in group.origins.items()},
        "keys": dict(group.keys),
    }


def _plain(name: str, value: Value | Domain) -> Value:
    """A value as it is; a set of values in words."""
    if not isinstance(value, Domain):
        return value
    field = next((f for f in BUILTIN if f.name == name), None)
    return str(value) if field is None else show_domain(field, value)


def models_json(models: Sequence[Model]) -> dict[str, Any]:
    """The presets as JSON values."""
    return {
        "presets": [
            {
                "name": model.name,
                "model_type": model.model_type,
                "source": model.source,
                "layers": [{"name": g.name, "count": g.count} for g in model.groups],
                "attention_free": model.attention_free,
            }
            for model in models
        ]
    }


def models_lines(models: Sequence[Model]) -> list[Line]:
    """The presets as a table: name, layers, page."""
    shared = _HUB if all(m.source.startswith(_HUB) for m in models) else ""
    page = f"page, after {shared}" if shared else "page"
    rows: list[list[Part]] = [[faint(title) for title in ("preset", "layers", page)]]
    rows += [[strong(m.name), _stack_words(m), m.source.removeprefix(shared)] for m in models]
    return grid(rows, gap=2)


def _stack_words(model: Model) -> str:
    parts = [f"{group.count:,} {group.name}" for group in model.groups]
    if model.attention_free:
        parts.append(f"{model.attention_free:,} without attention")
    return ", ".join(parts)


def model_lines(model: Model) -> list[Line]:
    """A model as text: its layers, what stands beside them, what was assumed."""
    lines = [_heading(model)]
    for index, group in enumerate(model.groups):
        first = model.groups[0] if index else None
        lines += [BLANK, *_group_lines(group, first, model)]
    if model.attention_free:
        lines += [BLANK, line(strong(counted(model.attention_free, "layer")), " without attention")]
    lines += _beside_lines(model)
    if model.notes:
        rows: list[list[Part]] = [[warn("note"), note] for note in model.notes]
        lines += [BLANK, *grid(rows)]
    return lines


def _heading(model: Model) -> Line:
    parts: list[Part] = [strong(model.name)]
    if model.model_type:
        parts.append(model.model_type)
    attending = sum(group.count for group in model.groups)
    parts.append(counted(attending, "attention layer"))
    size = model.groups[0].layer.get("tp_size") if model.groups else 1
    if size != 1:
        parts.append(f"one of {size} tensor-parallel ranks")
    if model.source:
        parts.append(faint(model.source))
    return joined(parts)


def _group_lines(group: LayerGroup, first: LayerGroup | None, model: Model) -> Iterator[Line]:
    """The fields of a group, or those in which it differs from the first."""
    layer = group.layer
    title = strong(counted(group.count, f"{group.name} layer"))
    kind = kind_words(layer.get("mla") is True, layer.get("sparse") is True)
    said = [field for field in _said(group) if first is None or _differs(field, group, first)]
    rows = [_row(field, group, model) for field in said]
    if first is None:
        yield line(title, faint(f"   {kind} attention"))
        yield from grid(rows, indent=2)
        if off := [name for name in _FEATURES if layer.get(name) is False]:
            yield line(faint(f"  off: {', '.join(off)}"))
        return
    gone = [f for f in _said(first) if f not in _said(group)]
    rows += [[faint(f.name), _value(f, layer) or "off", faint("")] for f in gone]
    yield line(title, faint(f"   as the {first.name} ones, but"))
    yield from grid(rows, indent=2)


def _said(group: LayerGroup) -> list[Field]:
    """The fields that say something, in the order of the vocabulary."""
    return [
        field
        for field in BUILTIN
        if field.name in group.layer.fields and _says_something(field, group.layer)
    ]


def _says_something(field: Field, layer: Layer) -> bool:
    value = layer.get(field.name)
    if field.name in _IMPLIED and value is not True:
        return False
    return value != field.off and value not in ("absent", "unset")


def _differs(field: Field, group: LayerGroup, first: LayerGroup) -> bool:
    return group.layer.get(field.name) != first.layer.get(field.name)


def _value(field: Field, layer: Layer) -> str:
    value = layer.get(field.name)
    if isinstance(value, int) and field.type == "integer":
        return f"{value:,}"
    if isinstance(value, Domain):
        return show_domain(field, value)
    return "" if value is None else show(field, value)


def _row(field: Field, group: LayerGroup, model: Model) -> list[Part]:
    return [
        faint(field.name),
        _value(field, group.layer),
        faint(_origin_words(field, group, model)),
    ]


def _origin_words(field: Field, group: LayerGroup, model: Model) -> str:
    """Where a value came from, and the keys it was read from."""
    origin = group.origins.get(field.name, Origin.DERIVED)
    keys = group.keys.get(field.name, "")
    if origin is Origin.FLAG:
        return f"--set {field.name}"
    if origin is Origin.DEFAULT:
        of = model.defaults.get(keys)
        own = "its class has it" if field.name in _OF_CLASS else "default"
        return f"{of}'s class default of {keys}" if of else own
    if origin is Origin.DERIVED:
        ranks = group.layer.get("tp_size") if field.name in ("num_heads", "num_kv_heads") else 1
        over = "" if ranks == 1 else f", over {ranks} ranks"
        return f"from {keys}{over}" if keys else "by rule"
    return f"{origin.value}: {keys}" if origin is Origin.CHECKPOINT else keys


def _beside_lines(model: Model) -> Iterator[Line]:
    rows: list[list[Part]] = [_tower_row(tower) for tower in model.towers]
    rows += [_drafter_row(drafter) for drafter in model.drafters]
    if rows:
        yield BLANK
        yield line(strong("beside the main stack"), faint("   not counted above"))
        yield from grid(rows, indent=2)


def _tower_row(tower: Tower) -> list[Part]:
    where = f"{tower.key} ({tower.model_type})" if tower.model_type else tower.key
    if not tower.groups:
        return [faint(tower.kind), warn(_short(tower.notes)), faint(where)]
    layers = [_tower_words(group) for group in tower.groups]
    return [faint(tower.kind), "; ".join(layers), faint(where)]


def _short(notes: Sequence[str]) -> str:
    words = notes[0] if notes else "not read"
    return words.partition(": looked for")[0].partition("; looked for")[0]


def _tower_words(group: LayerGroup) -> str:
    layer = group.layer
    heads, size = layer.get("num_heads"), layer.get("head_size")
    return f"{counted(group.count, f'{group.name} layer')}, {heads} heads of {size}"


def _drafter_row(drafter: Drafter) -> list[Part]:
    like = f" like the {drafter.like} ones" if drafter.like else ""
    return [faint("drafter"), f"{counted(drafter.count, 'layer')}{like}", faint(drafter.key)]
