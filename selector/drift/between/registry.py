"""Which backends both versions have, which came and went, and which have other classes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from selector.drift.between.changes import BackendChange, Kind
from selector.drift.reading import Backend, ClassReading, EngineReading
from selector.values import Position

__all__ = ["Pair", "compare_registries", "pair_backends"]

REGISTRY = "registry"
"""The role of the backend itself, in a change of it."""


class Pair(NamedTuple):
    """A backend that both versions have; by its new name, where it has two."""

    name: str
    old_name: str
    before: Backend
    after: Backend


def pair_backends(old: EngineReading, new: EngineReading) -> list[Pair]:
    """The backends of the same name, and those of another name that register the same class."""
    before, after = old.named(), new.named()
    gone = _by_class({name: one for name, one in before.items() if name not in after})
    came = _by_class({name: one for name, one in after.items() if name not in before})
    names = {came[path]: gone[path] for path in came.keys() & gone.keys()}
    return [
        Pair(name, names.get(name, name), before[names.get(name, name)], one)
        for name, one in after.items()
        if names.get(name, name) in before
    ]


def _by_class(backends: Mapping[str, Backend]) -> dict[str, str]:
    """Class → the name of the backend that registers it, where only one does."""
    count = Counter(one.registered for one in backends.values())
    return {
        one.registered: name
        for name, one in backends.items()
        if one.registered and count[one.registered] == 1
    }


def compare_registries(
    old: EngineReading, new: EngineReading, pairs: Sequence[Pair], moves: Mapping[str, str]
) -> Iterator[BackendChange]:
    """Yields what came, what went, and which classes are others or could not be read."""
    yield from _unpaired(old, new, {pair.old_name for pair in pairs}, Kind.REMOVED)
    yield from _unpaired(new, old, {pair.name for pair in pairs}, Kind.ADDED)
    for pair in pairs:
        if pair.old_name != pair.name:
            places = (pair.before.at, pair.after.at)
            yield BackendChange(
                Kind.RENAMED, pair.name, REGISTRY, pair.old_name, pair.name, *places
            )
        yield from _classes(pair, moves)


def _unpaired(
    reading: EngineReading, other: EngineReading, paired: set[str], kind: Kind
) -> Iterator[BackendChange]:
    """The backends that only one version has, as far as the other's registry was read."""
    unread = {
        name
        for part, known in ((reading.backends, other.backends), (reading.prefill, other.prefill))
        if other.findings and not known
        for name in (one.name for one in part)
    }
    for name, one in reading.named().items():
        if name in paired:
            continue
        told = kind
        missing = ""
        if one.name in unread:
            told = Kind.OPENED if kind is Kind.REMOVED else Kind.SETTLED
            missing = "its registry could not be read"
        said = (one.registered or "no class", missing)
        places: tuple[Position | None, Position | None] = (one.at, None)
        if kind is Kind.ADDED:
            said, places = (said[1], said[0]), (None, one.at)
        yield BackendChange(told, name, REGISTRY, *said, *places)


def _classes(pair: Pair, moves: Mapping[str, str]) -> Iterator[BackendChange]:
    before, after = pair.before, pair.after
    parts = (
        ("backend", before.cls, after.cls, before.problem, after.problem),
        ("impl", before.impl, after.impl, before.impl_problem, after.impl_problem),
        ("builder", before.builder, after.builder, before.builder_problem, after.builder_problem),
    )
    for role, old, new, *problems in parts:
        places = (old.at if old else before.at, new.at if new else after.at)
        said = (_said(old, problems[0]), _said(new, problems[1]))
        if old and new and old.path != new.path:
            moved = moves.get(old.path) == new.path
            kind = Kind.MOVED if moved else Kind.CHANGED
        elif bool(old) != bool(new):
            kind = Kind.OPENED if old else Kind.SETTLED
        elif not old and any(problems) and before.registered and after.registered:
            kind = Kind.UNCOMPARED
        else:
            continue
        yield BackendChange(kind, pair.name, role, *said, *places)


def _said(cls: ClassReading | None, problem: str) -> str:
    """The class, or why it is not known; a problem of the whole source has no place."""
    return cls.path if cls is not None else problem.removeprefix(":1: ") or "no class"
