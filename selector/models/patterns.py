"""Which kind of attention each layer has.

A kind is ``full``, ``sliding``, ``chunked``, ``cross`` or ``none`` (no attention). The table's
``layers`` rules are tried on the config's own keys first, then on class defaults, then the layer
types the class repeats, then the window alone. The rules:

* ``words``: a list with one layer type a layer.
* ``letters``: a string with one letter a layer.
* ``indices``: a list of layer numbers, counted from ``first``.
* ``flags``: a list with 0 or 1 a layer.
* ``every``: every n-th layer differs; ``offset`` or ``first`` says which comes first.
* ``tail``: layers from this one on differ.
* ``blocks``: a list of objects, one a layer, that say whether there is attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from selector.errors import ContradictionError, UnknownModelError, ValueRefusedError
from selector.models.source import MISSING, Read, Source, shown
from selector.models.tables import PatternRule, Spelling
from selector.values import Origin

__all__ = ["Kinds", "layer_kinds"]


class Kinds(NamedTuple):
    """The kind of every layer, where that came from, and what was assumed."""

    kinds: list[str]
    origin: Origin
    keys: str
    notes: tuple[str, ...] = ()


def layer_kinds(source: Source) -> Kinds:
    """The kind of each layer of a stack, in order.

    Raises:
        UnknownModelError: nothing says how many layers there are.
        ValueRefusedError: a key holds what it cannot.
        ContradictionError: a list has fewer entries than there are layers.
    """
    count = _count(source).value
    notes: list[str] = []
    for origin in (Origin.CONFIG, Origin.DEFAULT):
        for rule in source.tables.patterns:
            raw = source.raw(rule.key) if origin is Origin.CONFIG else source.default(rule.key)
            if not _applies(rule, raw, source):
                continue
            kinds = _RULES[rule.rule](rule, raw, count, source, notes)
            if kinds is None:
                continue
            if origin is Origin.DEFAULT:
                source.assumed[rule.key] = None
            return Kinds(kinds, origin, source.path(rule.key), tuple(notes))
    cycle = source.tables.cycle(source.model_type)
    if cycle is not None:
        words = [cycle.words[i % len(cycle.words)] for i in range(count)]
        if cycle.last:
            words[-1] = cycle.last
        kinds = [_kind(source, word) or "full" for word in words]
        return Kinds(kinds, Origin.DEFAULT, "", tuple(notes))
    window = source.integer("sliding_window")
    if window is not None and window.value > 0:
        keys = window.keys
        return Kinds(["sliding"] * count, Origin.DERIVED, keys, tuple(notes))
    return Kinds(["full"] * count, Origin.DEFAULT, "", tuple(notes))


def _count(source: Source) -> Read[int]:
    """The number of layers; a list that names each one says it when nothing else does."""
    spelling = source.spelling("num_layers")
    given = any(source.raw(key) not in (MISSING, None) for key in spelling.keys)
    if not given:
        for rule in source.tables.patterns:
            raw = source.raw(rule.key)
            if rule.sets_count and isinstance(raw, list | str) and raw:
                length = source.whole(rule.key, len(raw), spelling)
                return Read(length, Origin.DERIVED, source.path(rule.key))
    count = source.integer("num_layers")
    if count is None:
        raise UnknownModelError(
            f"{source.file}: no attention fields: looked for {_names(source, 'num_layers')} "
            f"and {_names(source, 'num_heads')}"
        )
    times = (source.family.counts or {}).get(count.keys.removeprefix(source.prefix), 1)
    return Read(count.value * times, count.origin, count.keys)


def _names(source: Source, quantity: str) -> str:
    return ", ".join(map(source.path, source.spelling(quantity).keys))


def _applies(rule: PatternRule, raw: object, source: Source) -> bool:
    if raw is MISSING or raw is None or raw == []:
        return False
    if rule.only and source.model_type not in rule.only:
        return False
    if rule.needs and source.either(rule.needs)[0] in (MISSING, None, False, 0):
        return False
    return not (rule.unless_false and source.either(rule.unless_false)[0] is False)


def _words(
    rule: PatternRule, raw: object, count: int, source: Source, notes: list[str]
) -> list[str] | None:
    if not isinstance(raw, list):
        raise _refuse(rule, raw, source, "a list of layer types")
    words = _fitted(rule, raw, count, source, notes)
    kinds: list[str] = []
    unknown: dict[str, None] = {}
    for word in words:
        if not isinstance(word, str):
            raise _refuse(rule, word, source, "a layer type")
        kind = _kind(source, word)
        if kind is None:
            unknown[word] = None
        kinds.append(kind or "full")
    for word in list(unknown)[:3]:
        notes.append(f"layer type {shown(word)} is not known: read as full attention")
    return [kind for kind in kinds if kind != "skip"]


def _kind(source: Source, word: str) -> str | None:
    own = source.family.words or {}
    return own.get(word) or source.tables.words.get(word)


def _letters(
    rule: PatternRule, raw: object, count: int, source: Source, notes: list[str]
) -> list[str] | None:
    if not isinstance(raw, str):
        return None
    letters = _fitted(rule, list(raw), count, source, notes)
    known = rule.letters
    for letter in letters:
        if letter not in known:
            raise _refuse(rule, letter, source, f"one of {' '.join(known)}")
    kinds = [known[str(letter)] for letter in letters]
    return [kind for kind in kinds if kind != "skip"]


def _fitted(
    rule: PatternRule, raw: list[object], count: int, source: Source, notes: list[str]
) -> list[object]:
    """The list cut or repeated to one entry a layer."""
    if rule.cycle and raw:
        return [raw[i % len(raw)] for i in range(count)]
    if len(raw) < count:
        raise ContradictionError(
            f"{source.file}: {source.path(rule.key)} names {len(raw)} layers, "
            f"but the model has {count}"
        )
    if len(raw) > count:
        notes.append(f"{rule.key} names {len(raw)} layers: the first {count} are read")
    return raw[:count]


def _indices(
    rule: PatternRule, raw: object, count: int, source: Source, notes: list[str]
) -> list[str] | None:
    if not isinstance(raw, list):
        raise _refuse(rule, raw, source, "a list of layer numbers")
    numbers = Spelling((), 2**31)
    wanted = {source.whole(rule.key, one, Spelling((), numbers.most, 0)) for one in raw}
    return [rule.at if i + rule.first in wanted else rule.other for i in range(count)]


def _flags(
    rule: PatternRule, raw: object, count: int, source: Source, notes: list[str]
) -> list[str] | None:
    if not isinstance(raw, list):
        raise _refuse(rule, raw, source, "a list of 0 and 1")
    flags = _fitted(rule, raw, count, source, notes)
    for flag in flags:
        if flag not in (0, 1):
            raise _refuse(rule, flag, source, "0 or 1")
    return [rule.at if flag else rule.other for flag in flags]


def _every(
    rule: PatternRule, raw: object, count: int, source: Source, notes: list[str]
) -> list[str] | None:
    if not isinstance(raw, int) or isinstance(raw, bool):
        return None
    if raw < 1:
        raise _refuse(rule, raw, source, "at least 1")
    offset: object = 0 if rule.first else raw - 1
    if rule.offset:
        offset = source.either(rule.offset)[0]
        if not isinstance(offset, int):
            offset = 0
    return [rule.at if i % raw == offset else rule.other for i in range(count)]


def _tail(
    rule: PatternRule, raw: object, count: int, source: Source, notes: list[str]
) -> list[str] | None:
    start = source.whole(rule.key, raw, Spelling((), 2**31, 0))
    return [rule.at if i >= start else rule.other for i in range(count)]


def _blocks(
    rule: PatternRule, raw: object, count: int, source: Source, notes: list[str]
) -> list[str] | None:
    if not isinstance(raw, list):
        raise _refuse(rule, raw, source, "a list with an object for each layer")
    return [_block_kind(block) for block in _fitted(rule, raw, count, source, notes)]


def _block_kind(block: object) -> str:
    """``full``, or ``none`` where a block skips its attention or replaces it."""
    attention = block.get("attention") if isinstance(block, Mapping) else None
    if not isinstance(attention, Mapping):
        return "full"
    skipped = attention.get("no_op") is True or attention.get("replace_with_linear") is True
    return "none" if skipped else "full"


def _refuse(rule: PatternRule, raw: object, source: Source, what: str) -> ValueRefusedError:
    return ValueRefusedError(f"{source.file}: {source.path(rule.key)} {shown(raw)} is not {what}")


_RULES = {
    "words": _words,
    "letters": _letters,
    "indices": _indices,
    "flags": _flags,
    "every": _every,
    "tail": _tail,
    "blocks": _blocks,
}
