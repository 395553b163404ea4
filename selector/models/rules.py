"""The rules that make a layer's fields out of a config, each writing into a :class:`Draft`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from selector.domains import Value
from selector.errors import ContradictionError, UnknownModelError
from selector.fields import Vocabulary
from selector.models.source import MISSING, Read, Source
from selector.models.tables import Switch
from selector.values import Layer, LayerGroup, Origin

__all__ = [
    "Draft",
    "describe_features",
    "describe_heads",
    "describe_latent",
    "describe_window",
    "is_on",
]

_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


@cache
def _words() -> Vocabulary:
    return Vocabulary()


class Draft:
    """A layer being read: values, their origins and keys, and what was assumed on the way."""

    def __init__(self, notes: dict[str, None]) -> None:
        self.values: dict[str, Value] = {}
        self.origins: dict[str, Origin] = {}
        self.keys: dict[str, str] = {}
        self.notes = notes

    def put(self, field: str, value: Value, origin: Origin, keys: str = "") -> None:
        """Sets a field; ``keys`` are those it was read from."""
        self.values[field] = value
        self.origins[field] = origin
        if keys:
            self.keys[field] = keys

    def take(self, field: str, read: Read[int]) -> None:
        """Sets a field to what was read."""
        self.put(field, read.value, read.origin, read.keys)

    def note(self, text: str) -> None:
        """Says what was assumed; the same words once."""
        self.notes[text] = None

    def group(self, name: str, count: int) -> LayerGroup:
        """The finished layer, as one of ``count`` of its kind."""
        layer = Layer.read(self.values, _words())
        return LayerGroup(name, count, layer, self.origins, self.keys)


def quantity(source: Source, name: str, overrides: Mapping[str, Read[int]]) -> Read[int] | None:
    """A quantity of one layer: what is said of this layer alone, else of all."""
    return overrides.get(name) or source.integer(name)


def describe_heads(draft: Draft, source: Source, overrides: Mapping[str, Read[int]]) -> None:
    """Sets query and KV head counts, their ratio, and the head sizes of plain attention.

    Raises:
        UnknownModelError: nothing says how many heads there are, or how wide one is.
        ContradictionError: query heads cannot share KV heads evenly.
    """
    heads = _heads(source, overrides)
    kv_heads = _kv_heads(draft, source, heads, overrides)
    if heads.value % kv_heads.value:
        raise ContradictionError(
            f"{source.file}: {heads.value} query heads ({heads.keys or 'class default'}) cannot "
            f"share {kv_heads.value} KV heads ({kv_heads.keys or 'class default'}) evenly"
        )
    draft.take("num_heads", heads)
    draft.take("num_kv_heads", kv_heads)
    _put_group(draft, heads, kv_heads)
    size = _head_size(draft, source, heads, overrides)
    draft.take("head_size", size)
    draft.take("v_head_size", _value_size(source, size, overrides))
    for field in (*_LATENT, "index_topk"):
        draft.put(field, "absent", Origin.DERIVED)
    draft.put("mla", False, Origin.DERIVED)
    draft.put("sparse", False, Origin.DERIVED)


def _value_size(source: Source, size: Read[int], overrides: Mapping[str, Read[int]]) -> Read[int]:
    """How wide values are; those of an expanded latent are padded to the width of its keys."""
    own = quantity(source, "v_head_dim", overrides)
    expanded = ", " in size.keys and "qk_rope_head_dim" in size.keys
    return size.derived() if own is None or not own.value or expanded else own


def _heads(source: Source, overrides: Mapping[str, Read[int]]) -> Read[int]:
    heads = quantity(source, "num_heads", overrides)
    if heads is None:
        looked = ", ".join(map(source.path, source.spelling("num_heads").keys))
        raise UnknownModelError(f"{source.file}: no attention fields; looked for {looked}")
    return heads


def _put_group(draft: Draft, heads: Read[int], kv_heads: Read[int]) -> None:
    keys = ", ".join(dict.fromkeys(k for k in (heads.keys, kv_heads.keys) if k))
    draft.put("gqa_group", heads.value // kv_heads.value, Origin.DERIVED, keys)


def _kv_heads(
    draft: Draft, source: Source, heads: Read[int], overrides: Mapping[str, Read[int]]
) -> Read[int]:
    for rule in source.family.kv_heads:
        if rule.when and source.either(rule.when)[0] is not True:
            continue
        keys = source.path(rule.when) if rule.when else heads.keys
        if rule.number is not None:
            return Read(rule.number, Origin.DERIVED, keys)
        raw = source.raw(rule.key) if rule.key else MISSING
        if raw is MISSING or raw is None:
            return heads.derived()
        number = source.whole(rule.key, raw, source.spelling("num_kv_heads"))
        return Read(number, Origin.CONFIG, source.path(rule.key))
    found = quantity(source, "num_kv_heads", overrides)
    if found is None:
        return heads.derived()
    if found.origin is Origin.DEFAULT and heads.value % found.value:
        draft.note(f"{heads.value} query heads: as many KV heads assumed")
        return heads.derived()
    return found


def _head_size(
    draft: Draft, source: Source, heads: Read[int], overrides: Mapping[str, Read[int]]
) -> Read[int]:
    nope, rope = source.integer("qk_nope_head_dim"), source.integer("qk_rope_head_dim")
    if nope and rope and nope.value + rope.value:
        return Read(nope.value + rope.value, Origin.DERIVED, f"{nope.keys}, {rope.keys}")
    size = quantity(source, "head_dim", overrides)
    if size is not None and size.value:
        return size
    hidden = source.integer("hidden_size")
    if hidden is None or hidden.value < heads.value:
        looked = ", ".join(
            source.path(k) for n in ("head_dim", "hidden_size") for k in source.spelling(n).keys
        )
        raise UnknownModelError(
            f"{source.file}: cannot tell how wide a head is; looked for {looked}"
        )
    if hidden.value % heads.value:
        draft.note(
            f"hidden size {hidden.value} is no multiple of {heads.value} heads: "
            f"head_size rounded down"
        )
    keys = ", ".join(k for k in (hidden.keys, heads.keys) if k)
    return Read(hidden.value // heads.value, Origin.DERIVED, keys)


def describe_latent(draft: Draft, source: Source, overrides: Mapping[str, Read[int]]) -> bool:
    """Sets the fields of multi-head latent attention, if the layer has it, and says whether.

    Head size is that of the cached latent, ``kv_lora_rank + qk_rope_head_dim``, with one KV head.
    A layer with an indexer is sparse; its prefill may be computed densely for sequences no longer
    than ``index_topk``, since every token is then among those picked.
    """
    latent, rope = source.integer("kv_lora_rank"), source.integer("qk_rope_head_dim")
    if not source.family.mla or latent is None or not latent.value or rope is None:
        return False
    heads = _heads(source, overrides)
    draft.take("num_heads", heads)
    one = Read(1, Origin.DERIVED, latent.keys)
    draft.take("num_kv_heads", one)
    draft.put("gqa_group", heads.value, Origin.DERIVED, heads.keys)
    draft.put("mla", True, Origin.DERIVED, latent.keys)
    size = latent.value + rope.value
    draft.put("head_size", size, Origin.DERIVED, f"{latent.keys}, {rope.keys}")
    for field in _LATENT:
        read = source.integer(field)
        if read is None or (field == "v_head_dim" and not read.value):
            draft.put(field, "absent", Origin.CONFIG, source.path(field))
        else:
            draft.take(field, read)
    value_size = source.integer("v_head_dim")
    given = value_size if value_size is not None and value_size.value else None
    draft.take("v_head_size", given.derived() if given else Read(size, Origin.DERIVED))
    topk = source.integer("index_topk")
    if topk is not None and topk.value:
        draft.put("sparse", True, Origin.DERIVED, topk.keys)
        draft.take("index_topk", topk)
        draft.put("dense_prefill", True, Origin.DERIVED, topk.keys)
    else:
        draft.put("sparse", False, Origin.DERIVED)
        draft.put("index_topk", "absent", Origin.DERIVED)
        draft.put("dense_prefill", True, Origin.DERIVED, latent.keys)
    return True


def describe_window(draft: Draft, source: Source, kind: str, keys: str) -> None:
    """Sets the sliding window (the config's number of tokens) and chunked attention of a kind."""
    window = source.integer("sliding_window") if kind == "sliding" else None
    if window is not None and window.value > 0:
        draft.take("sliding_window", window)
    else:
        draft.put("sliding_window", "unset", Origin.DERIVED, keys)
    chunk = source.integer("chunk_size") if kind == "chunked" else None
    chunked = chunk is not None and chunk.value > 0
    origin = Origin.DERIVED if kind == "chunked" else Origin.DEFAULT
    draft.put("chunked", chunked, origin, chunk.keys if chunk else "")


def describe_features(draft: Draft, source: Source, kind: str) -> None:
    """Sets soft capping, attention sinks and ALiBi."""
    cap = source.number("soft_cap")
    if cap is None:
        draft.put("soft_cap", False, Origin.DEFAULT)
    else:
        draft.put("soft_cap", cap.value > 0, cap.origin, cap.keys)
    for field, switch in (("sink", source.family.sink), ("alibi", source.family.alibi)):
        on, origin, key = _switched(switch, source, kind)
        draft.put(field, on, origin, key)


def is_on(switch: Switch | None, source: Source) -> bool:
    """Whether a model has a feature, whatever the kind of its layers."""
    return _switched(switch, source, "")[0]


def _switched(switch: Switch | None, source: Source, kind: str) -> tuple[bool, Origin, str]:
    if switch is None or (switch.kinds and kind and kind not in switch.kinds):
        return False, Origin.DEFAULT, ""
    if switch.always:
        return True, Origin.DEFAULT, ""
    raw, origin = source.either(switch.key)
    if raw is MISSING or raw is None:
        return switch.default, Origin.DEFAULT, ""
    if switch.is_:
        return raw in switch.is_, Origin.DERIVED, source.path(switch.key)
    if switch.is_not:
        return raw not in switch.is_not, Origin.DERIVED, source.path(switch.key)
    return raw is True, origin, source.path(switch.key)
