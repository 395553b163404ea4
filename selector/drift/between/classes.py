"""Which class of one version is which of the other, and two of them as a pair."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import msgspec

from selector.drift.reading import ClassReading, EngineReading
from selector.drift.saying import name_of

__all__ = ["Classes", "find_moves"]


def find_moves(old: EngineReading, new: EngineReading) -> dict[str, str]:
    """Old path → new path, of classes and operators that are in another module by the same name.

    Only where one version has one of that name and the other another: else nobody knows which of
    them it is.
    """
    before, after = _paths(old), _paths(new)
    gone, came = _by_name(before - after), _by_name(after - before)
    return {
        paths[0]: came[name][0]
        for name, paths in gone.items()
        if len(paths) == 1 and len(came.get(name, ())) == 1
    }


def _paths(reading: EngineReading) -> set[str]:
    classes = {
        path
        for backend in (*reading.backends, *reading.prefill)
        for cls in backend.classes().values()
        for path in cls.mro
    }
    return classes | {operator.name for operator in reading.operators}


def _by_name(paths: set[str]) -> dict[str, list[str]]:
    named: defaultdict[str, list[str]] = defaultdict(list)
    for path in sorted(paths):
        named[name_of(path)].append(path)
    return named


class Classes(msgspec.Struct, frozen=True):
    """A class of a backend in both versions.

    Attributes:
        backend: the backend's name.
        role: which of its classes.
        before, after: the class.
        moves: old path → new path of classes that moved.
        capabilities: the architectures that both were asked about.
        lists: method → the list of accepted values that a base class's method looks into.
        names: dotted paths of the classes of both backends, which are compared themselves.
    """

    backend: str
    role: str
    before: ClassReading
    after: ClassReading
    moves: Mapping[str, str]
    capabilities: tuple[str, ...]
    lists: Mapping[str, str]
    names: frozenset[str]

    def is_same(self, before: str, after: str) -> bool:
        """Whether a class of the old version is this one of the new."""
        return self.moves.get(before, before) == after
