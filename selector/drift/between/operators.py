"""What operators declare, against what they did in the other version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from selector.drift.between.answers import Delta, compare_answers
from selector.drift.between.changes import BackendChange, Change, Kind, Side, What
from selector.drift.between.members import grouped
from selector.drift.reading import Answer, EngineReading, Operator
from selector.drift.saying import takes

__all__ = ["OPERATOR", "compare_operators", "pair_operators", "unpaired_operators"]

OPERATOR = "operator"
"""The role of an operator, in a change of it."""

RAISING = "accepts without raising"
"""What an operator is said to do where no call certainly raises."""

Pairs = Sequence[tuple[Operator, Operator]]


def pair_operators(
    old: EngineReading, new: EngineReading, moves: Mapping[str, str]
) -> list[tuple[Operator, Operator]]:
    """The operators of the same name, and those that only moved to another module."""
    before = {moves.get(one.name, one.name): one for one in old.operators}
    return [(before[one.name], one) for one in new.operators if one.name in before]


def unpaired_operators(
    old: EngineReading, new: EngineReading, pairs: Pairs
) -> Iterator[BackendChange]:
    """Yields the operators that came, went or moved."""
    before = {one.name for one, _ in pairs}
    after = {one.name for _, one in pairs}
    for one in old.operators:
        if one.name not in before:
            yield BackendChange(Kind.REMOVED, one.name, OPERATOR, one.name, "", one.at, None)
    for one in new.operators:
        if one.name not in after:
            yield BackendChange(Kind.ADDED, one.name, OPERATOR, "", one.name, None, one.at)
    for was, one in pairs:
        if was.name != one.name:
            yield BackendChange(Kind.MOVED, one.name, OPERATOR, was.name, one.name, was.at, one.at)


def compare_operators(pairs: Pairs, capabilities: Sequence[str]) -> Iterator[list[Change]]:
    """Yields how each declaration of each operator changed; nothing where both say the same."""
    for before, after in pairs:
        old, new = (_declared(one, capabilities) for one in (before, after))
        for name in [*new, *(name for name in old if name not in new)]:
            deltas = _compare(name, old.get(name, {}), new.get(name, {}))
            yield [
                _made(name, delta, where, (_side(before, name, where), _side(after, name, where)))
                for delta, where in grouped(deltas)
            ]


def _side(one: Operator, name: str, where: Sequence[str]) -> Side:
    """The operator; where it raises, if that is what is said of it."""
    raising = one.refuses if name == RAISING and one.refuses else {}
    return Side(one.name, raising.get(where[0], one.at))


def _declared(one: Operator, capabilities: Sequence[str]) -> dict[str, dict[str, Answer]]:
    """What it says, by name and by architecture."""
    said = {f"accepts by {name}": answer for name, answer in one.backends.items()}
    if one.accepts is not None:
        said["accepts"] = one.accepts
    declared = {
        name: {capability: _holds(answer, capability) for capability in capabilities}
        for name, answer in said.items()
    }
    if one.refuses is not None:
        declared[RAISING] = {
            capability: Answer(value=capability not in one.refuses) for capability in capabilities
        }
    features = {**one.features, "enforced": Answer(value=one.enforced)}
    return declared | {name: dict.fromkeys(capabilities, part) for name, part in features.items()}


def _holds(answer: Answer, capability: str) -> Answer:
    """Whether a list of architectures has one; a call without any certainly raises."""
    if answer.raises:
        return Answer(value=False)
    known = takes(answer, capability)
    return answer if known is None else Answer(value=known)


def _compare(
    name: str, before: Mapping[str, Answer], after: Mapping[str, Answer]
) -> Iterable[tuple[str, Delta]]:
    if before and after:
        for capability, old in before.items():
            for delta in compare_answers(name, old, after[capability], ()):
                yield capability, delta
        return
    kind = Kind.REMOVED if before else Kind.ADDED
    for capability, answer in (before or after).items():
        yield capability, Delta(kind, answer if before else None, None if before else answer)


def _made(name: str, delta: Delta, where: tuple[str, ...], sides: tuple[Side, Side]) -> Change:
    before, after = (
        msgspec.structs.replace(side, answer=answer)
        for side, answer in zip(sides, (delta.before, delta.after), strict=True)
    )
    told = sides[1].defined_in
    return Change(
        delta.kind,
        What.OPERATOR,
        OPERATOR,
        name,
        None if delta.kind is Kind.ADDED else before,
        None if delta.kind is Kind.REMOVED else after,
        where,
        delta.gained,
        delta.lost,
        backends=(told,),
        own_before=(told,),
        own_after=(told,),
    )
