"""What a class refuses only together, as constraints that no accepted combination breaks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from selector.domains import Value
from selector.drift.drafting_sets import capability_set
from selector.drift.drafting_yaml import Block, Node, Plain, Rows, Text
from selector.drift.reading import Attribute, Backend, EngineReading
from selector.drift.saying import answer_on, source_of, takes, takes_alone, value_of
from selector.fields import Field

__all__ = ["Together", "draft_constraints"]

_MOST = 3
"""A constraint names no more fields than this; what needs more is left to do."""

Case = tuple[tuple[str, Value], ...]
"""Values of some fields."""
When = Mapping[str, Plain]


class _Where(dict[tuple[Case, ...], list[str]]):
    """Cases → the architectures on which they are told."""


class Together(NamedTuple):
    """A method that was asked with several values at once.

    Attributes:
        method: as it was read.
        constraints: what it refuses of what was asked.
        unknown: the architectures on which some of it is not known.
        left: how many refusals no constraint tells.
    """

    method: Attribute
    constraints: list[tuple[Node, ...]]
    unknown: list[str]
    left: int


def draft_constraints(
    backend: Backend,
    reading: EngineReading,
    fields: Mapping[str, Field],
    accepted: Sequence[str],
) -> Iterator[Together]:
    """Yields what each method of several arguments says.

    Args:
        backend: whose class is asked.
        reading: of the engine.
        fields: those that the draft can speak of.
        accepted: the architectures that the class accepts.
    """
    cls = backend.cls
    for name, asked in reading.vocabulary.combinations.items() if cls is not None else ():
        method = cls.attributes.get(name) if cls is not None else None
        if method is not None and method.asked and fields.keys() >= set(asked):
            yield _together(backend, reading, method, [fields[one] for one in asked], accepted)


class _Said(NamedTuple):
    """What it says on an architecture."""

    taken: tuple[Case, ...]
    refused: tuple[Case, ...]
    open: tuple[Case, ...]


def _together(
    backend: Backend,
    reading: EngineReading,
    method: Attribute,
    fields: Sequence[Field],
    accepted: Sequence[str],
) -> Together:
    said = {one: _said(backend, reading, method, fields, one) for one in accepted}
    groups: dict[_Said, list[str]] = {}
    for capability, one in said.items():
        groups.setdefault(one, []).append(capability)
    left, required, never = 0, _Where(), _Where()
    for one, where in groups.items():
        if one.refused and all(field.role == "context" for field in fields):
            required.setdefault(one.taken, []).extend(where)
            continue
        cases, missed = _covering(one)
        left += missed
        for case in cases:
            never.setdefault((case,), []).extend(where)
    constraints = [
        _constraint(method, _when(where, accepted, reading), taken)
        for taken, where in required.items()
    ]
    for values, where in _merged(never):
        when = {**_when(where, accepted, reading), **values}
        constraints.append(_constraint(method, when, ()))
    return Together(method, constraints, [c for c, one in said.items() if one.open], left)


def _when(where: Sequence[str], accepted: Sequence[str], reading: EngineReading) -> When:
    """The architectures of a constraint; none where it holds on all that are accepted."""
    if len(where) == len(accepted):
        return {}
    ordered = [one for one in accepted if one in where]
    return {"capability": capability_set(ordered, reading.capabilities, closed=False)}


def _said(
    backend: Backend, reading: EngineReading, method: Attribute, fields: Sequence[Field], on: str
) -> _Said:
    answer, cases = answer_on(method, on), {True: [], False: [], None: []}  # type: ignore[var-annotated]
    for raw in method.asked:
        one = takes(answer, raw)
        if one is not False or _alone(backend, reading, fields, raw, on):
            names = (field.name for field in fields)
            cases[one].append(tuple(zip(names, map(value_of, raw), strict=True)))
    return _Said(tuple(cases[True]), tuple(cases[False]), tuple(cases[None]))


def _alone(
    backend: Backend, reading: EngineReading, fields: Sequence[Field], raw: Sequence[Any], on: str
) -> bool:
    """Whether a class may take each value, whatever else is asked."""
    cls, words = backend.cls, reading.vocabulary
    return cls is not None and all(
        takes_alone(cls, words, field.name, value, on) is not False
        for field, value in zip(fields, raw, strict=True)
    )


def _covering(said: _Said) -> tuple[list[Case], int]:
    """Few values that all refused cases have and no other one; and how many cases that misses."""
    cases: list[Case] = []
    others = [*map(set, (*said.taken, *said.open))]
    left = [*said.refused]
    for size in range(_MOST + 1):
        for case in [*left]:
            if case not in left:
                continue
            for some in combinations(case, size):
                if not any(other.issuperset(some) for other in others):
                    cases.append(some)
                    left = [one for one in left if not set(one).issuperset(some)]
                    break
    return cases, len(left)


def _merged(never: _Where) -> Iterator[tuple[When, list[str]]]:
    """What never holds, and where; cases that differ in the values of one field only as one."""
    rules: list[tuple[dict[str, tuple[Value, ...]], list[str]]] = [
        ({field: (value,) for field, value in case}, where) for (case,), where in never.items()
    ]
    for field in dict.fromkeys(field for rule, _ in rules for field in rule):
        groups: dict[str, tuple[dict[str, tuple[Value, ...]], list[str]]] = {}
        for rule, where in rules:
            others = {name: values for name, values in rule.items() if name != field}
            known, _ = groups.setdefault(repr((others, field in rule, where)), ({**rule}, where))
            if field in rule:
                known[field] = tuple(dict.fromkeys([*known[field], *rule[field]]))
        rules = [*groups.values()]
    for rule, where in rules:
        yield {name: [*all_] if len(all_) > 1 else all_[0] for name, all_ in rule.items()}, where


def _constraint(method: Attribute, when: When, taken: Sequence[Case]) -> tuple[Node, ...]:
    """Only what was asked and taken; where nothing is, what must never hold."""
    nodes = [Node("code", method.name.removeprefix("supports_").upper())]
    if when or not taken:
        nodes.append(Node("when", when or {"platform": "any"}))
    rows = [tuple(Node(field, value) for field, value in case) for case in taken]
    if len(rows) > 1:
        nodes.append(Node("require", Block([Node("any_of", Rows(rows))])))
    elif rows:
        nodes.append(Node("require", dict(taken[0])))
    nodes.append(Node("reason", f"{method.name} refuses it; asked, not translated."))
    return (*nodes, Node("source", Text(source_of(method))))
