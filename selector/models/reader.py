"""A Hugging Face config → the distinct attention layers of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from selector.errors import UnknownModelError
from selector.models.beside import read_drafters, read_towers
from selector.models.naming import name_group, with_names
from selector.models.patterns import Kinds, layer_kinds
from selector.models.quantisation import KvCache, kv_cache, quantisation_method
from selector.models.rules import (
    Draft,
    describe_features,
    describe_heads,
    describe_latent,
    describe_window,
    is_on,
)
from selector.models.source import Read, Source, shown
from selector.models.tables import tables
from selector.values import LayerGroup, Model, Origin

__all__ = ["read_config"]

_DEPTH = 3
"""How many configs may sit inside one another before the language model's own."""


class Stack(NamedTuple):
    """Layers one after the other that see the same tokens: ``attn_type`` says which."""

    source: Source
    attn_type: str


class Common(NamedTuple):
    """What all layers of a model share."""

    dtype: Read[str]
    cache: KvCache
    mm_prefix: bool


class Slot(NamedTuple):
    """What tells one layer of a stack from another: its kind and what is said of it alone."""

    kind: str
    overrides: tuple[tuple[str, int, str], ...] = ()


def read_config(
    config: Mapping[str, object], *, name: str = "config.json", source: str = ""
) -> Model:
    """Gives the distinct attention layers of a model from its Hugging Face config.

    Head counts are the whole model's (tensor parallel size 1); :func:`selector.models.shard`
    divides them. Sizes are in elements, windows in tokens. Every field has an origin and, unless
    it is a default, the keys it was read from; what was assumed is in ``notes``.

    Args:
        config: the object in ``config.json``.
        name: what errors and the model call it.
        source: the public page its values come from, if any.

    Raises:
        UnknownModelError: the config has no attention fields, or its attention cannot be said
            with the vocabulary's fields.
        ValueRefusedError: a field holds what it cannot.
        ContradictionError: two fields cannot both hold.
    """
    if not isinstance(config, Mapping):
        raise UnknownModelError(f"{name}: {shown(config)} is not an object")
    notes: dict[str, None] = {}
    top = Source(name, config, tables(), model_type=_model_type(config))
    levels = _levels(top)
    text = levels[-1]
    _refuse_unreadable(levels)
    _note_beginnings(text, notes)
    if text.family.attention == "none":
        free = len(layer_kinds(text).kinds)
        return Model(name, top.model_type, (), free, tuple(notes), source)
    cache = kv_cache(*levels)
    common = Common(_dtype(levels, notes), cache, _mm_prefix(levels, notes))
    notes.update(dict.fromkeys(cache.notes))
    groups: list[LayerGroup] = []
    attention_free = 0
    defaults: dict[str, str] = {}
    for stack in _stacks(top, text):
        free, found = _read_stack(stack, common, notes)
        attention_free += free
        groups += found
        _note_assumed(stack.source, notes, defaults)
    shared = _kv_shared(text)
    if shared:
        notes[f"the last {shared} layers use the KV cache of earlier ones"] = None
    named = with_names(groups)
    return Model(
        name,
        top.model_type,
        named,
        attention_free,
        tuple(notes),
        source,
        read_towers(levels, partial(_read_tower, common)),
        read_drafters(levels, named, text.family.draft_kind),
        shared,
        MappingProxyType(defaults),
        top.tables.defaults_source if defaults else "",
        quantisation_method(*levels),
    )


def _read_tower(
    common: Common, source: Source, attn_type: str, notes: dict[str, None]
) -> tuple[LayerGroup, ...]:
    """The groups of a tower: what the model's layers share, less what is of its KV cache."""
    own = Common(common.dtype, KvCache("auto", False, Origin.DEFAULT, ""), False)
    groups = _read_stack(Stack(source, attn_type), own, notes)[1]
    _note_assumed(source, notes, {})
    return with_names(groups)


def _model_type(config: Mapping[str, object]) -> str:
    found = config.get("model_type")
    return found[:80] if isinstance(found, str) else ""


def _levels(top: Source) -> list[Source]:
    """The top of the config, and the configs inside one another down to the language model's."""
    levels = [top]
    for _ in range(_DEPTH):
        level = levels[-1]
        for key in level.tables.nesting:
            nested = level.raw(key)
            if isinstance(nested, Mapping) and _describes_model(nested, level):
                levels.append(level.inside(key, nested))
                break
        else:
            break
    return levels


def _describes_model(nested: Mapping[str, object], outer: Source) -> bool:
    """Whether a nested config is worth reading: it says something, or the outer one does not."""
    keys = {k for n in ("num_layers", "num_heads") for k in outer.spelling(n).keys}
    inner_says = bool(keys & set(nested)) or "model_type" in nested
    return inner_says or not keys & set(outer.given)


def _refuse_unreadable(levels: Sequence[Source]) -> None:
    for level in levels:
        if level.family.refuse:
            raise UnknownModelError(
                f"{level.file}: model_type {level.model_type} is not read: {level.family.refuse}"
            )


def _note_beginnings(text: Source, notes: dict[str, None]) -> None:
    if not text.model_type:
        notes["no model_type: read by field names, as causal self-attention"] = None
    elif not text.tables.knows(text.model_type):
        notes[
            f"model_type {shown(text.model_type)} is not known: read by field names, "
            "as causal self-attention without sinks or ALiBi"
        ] = None


def _note_assumed(source: Source, notes: dict[str, None], defaults: dict[str, str]) -> None:
    if source.assumed:
        keys = ", ".join(source.assumed)
        of = f"{source.model_type}'s class defaults hold ({source.tables.defaults_source})"
        notes[f"left out of the config, so {of}: {keys}"] = None
        defaults.update({source.path(key): source.model_type for key in source.assumed})


def _kv_shared(text: Source) -> int:
    """How many of the last layers read the KV cache of earlier ones."""
    raw = text.either("num_kv_shared_layers")[0]
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 < raw < 10_000 else 0


def _dtype(levels: Sequence[Source], notes: dict[str, None]) -> Read[str]:
    """The element type the checkpoint declares; bfloat16 when it declares none."""
    for level in levels:
        for key in level.tables.dtypes:
            raw = level.raw(key)
            if not isinstance(raw, str):
                continue
            found = _DTYPES.get(raw.removeprefix("torch."))
            if found:
                return Read(found, Origin.CONFIG, level.path(key))
            notes[f"{level.path(key)} {shown(raw)} is no type to compute in: bfloat16 assumed"] = (
                None
            )
            return Read("bfloat16", Origin.DEFAULT)
    notes["no dtype in the config: bfloat16 assumed"] = None
    return Read("bfloat16", Origin.DEFAULT)


_DTYPES = {
    "float16": "float16",
    "half": "float16",
    "fp16": "float16",
    "bfloat16": "bfloat16",
    "bf16": "bfloat16",
    "float32": "float32",
    "float": "float32",
    "fp32": "float32",
}


def _mm_prefix(levels: Sequence[Source], notes: dict[str, None]) -> bool:
    switch = levels[0].family.mm_prefix
    if len(levels) == 1 or not is_on(switch, levels[-1]):
        return False
    note = "attention is bidirectional over image tokens; for text alone set mm_prefix=false"
    notes[note] = None
    return True


def _stacks(top: Source, text: Source) -> Iterator[Stack]:
    """The stacks of a model: one, or an encoder, a decoder and its cross-attention."""
    levels = dict.fromkeys((top, text))
    if not any((flag := level.flag("is_encoder_decoder")) and flag.value for level in levels):
        yield Stack(text, _self_attention(top, text))
        if text.family.cross_every or text.family.crossed:
            yield Stack(text, "encoder_decoder")
        return
    decoder = _inner(top, top.tables.decoders)
    yield Stack(_inner(top, top.tables.encoders) or text.as_role("encoder"), "encoder")
    yield Stack(decoder or text.as_role("decoder"), "decoder")
    yield Stack((decoder or text).as_role("cross"), "encoder_decoder")


def _inner(top: Source, keys: tuple[str, ...]) -> Source | None:
    """One side of an encoder-decoder model that has a config of its own."""
    for key in keys:
        nested = top.raw(key)
        if isinstance(nested, Mapping):
            return _levels(top.inside(key, nested))[-1]
    return None


def _self_attention(top: Source, text: Source) -> str:
    """Which tokens a query sees in a model with one stack."""
    family = text.family
    classes = top.raw("architectures")
    if isinstance(classes, list) and any(c in top.tables.bidirectional for c in _texts(classes)):
        return "encoder_only"
    causal = text.flag("is_causal")
    if causal is not None and not causal.value:
        return "encoder_only"
    decoder = text.flag("is_decoder")
    if family.attention == "encoder" and not (decoder and decoder.value):
        return "encoder_only"
    if family.bidirectional and text.raw(family.bidirectional) is True:
        return "encoder_only"
    return "decoder"


def _texts(values: Sequence[object]) -> Iterator[str]:
    return (value for value in values[:8] if isinstance(value, str))


def _read_stack(
    stack: Stack, common: Common, notes: dict[str, None]
) -> tuple[int, list[LayerGroup]]:
    """How many layers of a stack have no attention, and the distinct ones that do."""
    kinds = layer_kinds(stack.source)
    notes.update(dict.fromkeys(kinds.notes))
    if stack.attn_type == "encoder_decoder":
        kinds = _crossed(stack.source, kinds)
    kinds = _settled(stack.source, kinds, notes)
    alike: dict[Slot, list[int]] = {}
    for number, slot in enumerate(_slots(stack.source, kinds)):
        alike.setdefault(slot, []).append(number)
    free = sum(len(numbers) for slot, numbers in alike.items() if slot.kind == "none")
    groups = [
        _read_group(stack, slot, numbers, kinds, common, notes)
        for slot, numbers in alike.items()
        if slot.kind != "none"
    ]
    return free, groups


def _crossed(source: Source, kinds: Kinds) -> Kinds:
    """One cross-attention for every layer with attention, or for every n-th layer."""
    count = sum(kind != "none" for kind in kinds.kinds)
    if source.family.cross_every:
        interval = source.either(source.family.cross_every)[0]
        count //= interval if isinstance(interval, int) and interval > 0 else 1
    return kinds._replace(kinds=["full"] * count)


def _settled(source: Source, kinds: Kinds, notes: dict[str, None]) -> Kinds:
    """The kinds, with windows and chunks taken away where the model does not apply them."""
    sliding, chunked = kinds.kinds.count("sliding"), kinds.kinds.count("chunked")
    if chunked and not _positive(source.for_kind("chunked").integer("chunk_size")):
        kinds = _replaced(kinds, "chunked", kinds.keys)
    if not sliding:
        return kinds
    use = source.flag("use_sliding_window")
    if use is not None and not use.value:
        return _replaced(kinds, "sliding", use.keys)
    if not _positive(source.for_kind("sliding").integer("sliding_window")):
        notes["sliding layers without a window: read as full attention"] = None
        return _replaced(kinds, "sliding", kinds.keys)
    if source.family.windows == "all or none" and sliding < len(kinds.kinds):
        notes[
            f"{sliding} of {len(kinds.kinds)} layers have a window in the config, but "
            f"{source.model_type} is served with a window in all layers or in none: read as none"
        ] = None
        return _replaced(kinds, "sliding", kinds.keys)
    return kinds


def _positive(read: Read[int] | None) -> bool:
    return read is not None and read.value > 0


def _replaced(kinds: Kinds, kind: str, keys: str) -> Kinds:
    """The kinds, with full attention in place of one of them."""
    plain = ["full" if one == kind else one for one in kinds.kinds]
    return kinds._replace(kinds=plain, origin=Origin.DERIVED, keys=keys)


def _slots(source: Source, kinds: Kinds) -> Iterator[Slot]:
    """What each layer is, with what is said of it alone."""
    count = len(kinds.kinds)
    listed: dict[str, tuple[list[int], str]] = {}
    for name in ("num_heads", "num_kv_heads", "head_dim"):
        found = source.listing(name, count)
        if found is not None:
            listed[name] = found
    single = _per_layer(source) or _blocks(source)
    if not listed and not single:
        slots = {kind: Slot(kind) for kind in set(kinds.kinds)}
        yield from (slots[kind] for kind in kinds.kinds)
        return
    for i, kind in enumerate(kinds.kinds):
        own = {name: (numbers[i], key) for name, (numbers, key) in listed.items()}
        own.update(single.get(i, {}))
        yield Slot(kind, tuple((name, *one) for name, one in own.items()))


def _per_layer(source: Source) -> dict[int, dict[str, tuple[int, str]]]:
    """``per_layer_config``: layer number → quantity → value and key."""
    raw = source.raw("per_layer_config")
    found: dict[int, dict[str, tuple[int, str]]] = {}
    if not isinstance(raw, Mapping):
        return found
    for index, own in raw.items():
        text = str(index)
        if not (text.isascii() and text.isdigit() and len(text) < 6 and isinstance(own, Mapping)):
            continue
        for name in ("num_heads", "num_kv_heads", "head_dim"):
            spelling = source.spelling(name)
            for key in spelling.keys:
                if own.get(key) is not None:
                    number = source.whole(f"per_layer_config.{text}.{key}", own[key], spelling)
                    path = source.path(f"per_layer_config.*.{key}")
                    found.setdefault(int(text), {})[name] = (number, path)
                    break
    return found


def _blocks(source: Source) -> dict[int, dict[str, tuple[int, str]]]:
    """``block_configs``: how many query heads share a KV head, layer by layer."""
    raw = source.raw("block_configs")
    heads = source.integer("num_heads") if isinstance(raw, list) else None
    found: dict[int, dict[str, tuple[int, str]]] = {}
    if not isinstance(raw, list) or heads is None:
        return found
    path = source.path("block_configs.*.attention.n_heads_in_group")
    for index, block in enumerate(raw):
        own = block.get("attention") if isinstance(block, Mapping) else None
        group = own.get("n_heads_in_group") if isinstance(own, Mapping) else None
        if group is not None:
            shared = source.whole(path, group, source.spelling("num_heads"))
            found[index] = {"num_kv_heads": (max(heads.value // shared, 1), path)}
    return found


def _read_group(
    stack: Stack,
    slot: Slot,
    numbers: Sequence[int],
    kinds: Kinds,
    common: Common,
    notes: dict[str, None],
) -> LayerGroup:
    source = stack.source.for_kind(slot.kind)
    overrides = {name: Read(n, Origin.CONFIG, key) for name, n, key in slot.overrides}
    draft = Draft(notes)
    attn_type = "encoder_decoder" if slot.kind == "cross" else stack.attn_type
    # Latent attention is causal: a model that turns the mask off expands its latent first.
    if attn_type != "decoder" or not describe_latent(draft, source, overrides):
        describe_heads(draft, source, overrides)
    draft.put("attn_type", attn_type, Origin.DERIVED)
    describe_window(draft, source, slot.kind, kinds.keys)
    describe_features(draft, source, slot.kind)
    draft.put("dtype", common.dtype.value, common.dtype.origin, common.dtype.keys)
    draft.put("kv_cache_dtype", common.cache.dtype, common.cache.origin, common.cache.keys)
    if common.cache.per_head:
        draft.put("per_head_quant_scales", True, common.cache.origin, common.cache.keys)
    if common.mm_prefix and attn_type == "decoder":
        draft.put("mm_prefix", True, Origin.DEFAULT)
    draft.put("tp_size", 1, Origin.DEFAULT)
    group = draft.group(name_group(slot.kind, draft.values), len(numbers))
    counted = not (stack.attn_type == "encoder_decoder" and source.family.cross_every)
    return msgspec.structs.replace(group, numbers=tuple(numbers) if counted else ())
