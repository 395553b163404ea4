"""Two readings of an engine, compared: what came, what went, and what says something else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from selector.drift.between.changes import (
    Change,
    EngineDifference,
    GuardChange,
    Kind,
    Version,
    What,
)
from selector.drift.between.classes import Classes, find_moves
from selector.drift.between.constructors import compare_arguments, compare_guards
from selector.drift.between.members import compare_claims, compare_methods
from selector.drift.between.operators import (
    compare_operators,
    pair_operators,
    unpaired_operators,
)
from selector.drift.between.registry import Pair, compare_registries, pair_backends
from selector.drift.reading import EngineReading, Vocabulary

__all__ = ["compare_engines"]


def compare_engines(old: EngineReading, new: EngineReading) -> EngineDifference:
    """Everything that two versions of an engine's code say differently.

    Args:
        old: what is compared with.
        new: the other; read by the same reader.
    """
    pairs = pair_backends(old, new)
    moves = find_moves(old, new)
    capabilities = tuple(one for one in old.capabilities if one in new.capabilities)
    classes = [*_classes(pairs, moves, capabilities, new.vocabulary)]
    found: list[Change] = []
    guards: list[GuardChange] = []
    same = 0
    for one in classes:
        for part in (compare_claims(one), compare_methods(one), compare_arguments(one)):
            same += sum(not changes for changes in part.values())
            found += [change for changes in part.values() for change in changes]
        guards += compare_guards(one)
    operators = pair_operators(old, new, moves)
    for changes in compare_operators(operators, capabilities):
        same += not changes
        found += changes
    told = [_overriding(change, classes) for change in _joined(found)]
    told.sort(key=lambda change: -len(change.backends))
    registry = [
        *compare_registries(old, new, pairs, moves),
        *unpaired_operators(old, new, operators),
    ]
    return EngineDifference(
        _version(old),
        _version(new),
        capabilities,
        tuple(pair.name for pair in pairs),
        tuple(after.name for _, after in operators),
        tuple(one for one in registry if one.kind is not Kind.UNCOMPARED),
        tuple(one for one in told if one.kind is not Kind.UNCOMPARED),
        tuple(_joined_guards(guards)),
        same,
        tuple(one for one in told if one.kind is Kind.UNCOMPARED),
        tuple(one for one in registry if one.kind is Kind.UNCOMPARED),
    )


def _version(reading: EngineReading) -> Version:
    count = len(reading.backends) + len(reading.prefill)
    operators = len(reading.operators)
    return Version(
        reading.engine, reading.version, reading.source, count, operators, reading.findings
    )


def _classes(
    pairs: Sequence[Pair],
    moves: dict[str, str],
    capabilities: tuple[str, ...],
    vocabulary: Vocabulary,
) -> Iterator[Classes]:
    """The classes that were read in both versions."""
    lists = {
        method: vocabulary.lists[field]
        for field, method in vocabulary.values.items()
        if field in vocabulary.lists
    }
    for pair in pairs:
        before, after = pair.before.classes(), pair.after.classes()
        names = frozenset(one.path for part in (before, after) for one in part.values())
        for role in before:
            if role in after:
                yield Classes(
                    pair.name, role, before[role], after[role], moves, capabilities, lists, names
                )


def _joined(changes: Iterable[Change]) -> Iterator[Change]:
    """Each change once, with all backends that it reaches."""
    groups: dict[bytes, list[Change]] = {}
    for change in changes:
        alone = msgspec.structs.replace(change, backends=(), own_before=(), own_after=())
        groups.setdefault(msgspec.json.encode(alone), []).append(change)
    for group in groups.values():
        before = tuple(name for one in group for name in one.own_before)
        after = tuple(name for one in group for name in one.own_after)
        names = tuple(name for one in group for name in one.backends)
        kind = group[0].kind
        if kind is Kind.MOVED and set(before) - set(after):
            kind = Kind.UNSTATED
        elif kind is Kind.MOVED and set(after) - set(before):
            kind = Kind.STATED
        yield msgspec.structs.replace(
            group[0], kind=kind, backends=names, own_before=before, own_after=after
        )


def _joined_guards(guards: Iterable[GuardChange]) -> Iterator[GuardChange]:
    groups: dict[bytes, list[GuardChange]] = {}
    for guard in guards:
        alone = msgspec.structs.replace(guard, backends=())
        groups.setdefault(msgspec.json.encode(alone), []).append(guard)
    for group in groups.values():
        names = tuple(name for one in group for name in one.backends)
        yield msgspec.structs.replace(group[0], backends=names)


def _overriding(change: Change, classes: Sequence[Classes]) -> Change:
    """The change, with the heirs of the class that changed which say it themselves."""
    before, after = change.by or (change.before, change.after)
    if after is None or change.what in (What.ARGUMENT, What.OPERATOR):
        return change
    names = []
    for one in classes:
        if one.role != change.role or one.backend in change.backends:
            continue
        if before is not None and not one.is_same(before.defined_in, after.defined_in):
            return change
        name = one.lists[change.name] if change.by else change.name
        members = one.after.methods if change.what is What.METHOD else one.after.attributes
        said = members.get(name)
        if after.defined_in in one.after.mro and said and said.defined_in != after.defined_in:
            names.append(one.backend)
    return msgspec.structs.replace(change, overridden_by=tuple(names))
