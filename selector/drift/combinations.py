"""Values that are only taken, or only refused, together: methods of several arguments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from selector.drift.machines import Machine, Machines, Pair, machines_for, machines_of
from selector.drift.reading import Attribute, EngineReading
from selector.drift.rules import CLAIM, UNDECIDED
from selector.drift.saying import (
    answer_on,
    on_words,
    source_of,
    takes,
    takes_alone,
    value_of,
    why_undecided,
)
from selector.drift.tables import Said, Table, find_differences
from selector.manifest import Manifest
from selector.values import Finding, Position
from selector.words import listed_and

__all__ = ["compare_combinations"]

_Case = tuple[tuple[str, Any], ...]
"""Values of some fields."""


def compare_combinations(
    manifest: Manifest, reading: EngineReading, pairs: list[Pair]
) -> Iterator[Finding]:
    """Where a class and the constraints of its entry differ about values that go together.

    A value that one of them refuses alone is left to the comparison of claims.

    Args:
        manifest: as claimed.
        reading: of the engine.
        pairs: the entries of that manifest, and the backends that they describe.
    """
    machines = machines_of(manifest, reading)
    for pair in pairs:
        here = machines_for(pair.entry, machines)
        cls = pair.backend.cls
        for name, fields in pair.vocabulary.combinations.items() if here and cls else ():
            method = cls.attributes.get(name) if cls is not None else None
            known = manifest.vocabulary.fields.keys() >= set(fields)
            if method is not None and method.asked and known:
                yield from _compared(pair, method, fields, here)


def _compared(
    pair: Pair, method: Attribute, fields: tuple[str, ...], machines: Machines
) -> Iterator[Finding]:
    found, at = find_differences(_table(pair, method, fields, machines)), _place(pair)
    for (stated, where), cases in found.differ.items():
        verbs = ("accepts", "refuses") if stated else ("refuses", "accepts")
        text = f"{pair.entry.name}: the manifest {verbs[0]} {_words(cases)}, and "
        yield CLAIM.finding(at, f"{text}{source_of(method)} {verbs[1]} that {on_words(where)}")
    if found.undecided:
        what = f"{pair.entry.name} {method.name} {on_words(found.undecided_on)}"
        yield UNDECIDED.finding(at, f"{what}: {why_undecided(method, found.undecided_on)}")


def _table(pair: Pair, method: Attribute, fields: tuple[str, ...], machines: Machines) -> Table:
    """Both sides of each combination, where neither certainly refuses a part of it alone."""
    alike: dict[Any, bool | None] = {}
    said: defaultdict[_Case, dict[str, Said]] = defaultdict(dict)
    for raw in method.asked:
        case = tuple(zip(fields, map(value_of, raw), strict=True))
        for capability, on in machines.items():
            alone = {
                _alone(alike, pair, *one, capability, on) for one in zip(case, raw, strict=True)
            }
            if False not in alone:
                code = takes(answer_on(method, capability), raw)
                code = None if code and None in alone else code
                said[case][capability] = (on.allows(pair.entry, dict(case)), code)
    return said


def _alone(
    known: dict[Any, bool | None],
    pair: Pair,
    stated: tuple[str, Any],
    raw: Any,
    capability: str,
    machine: Machine,
) -> bool | None:
    """Whether both sides take a value whatever else is asked; ``None``: one may not."""
    key = (*stated, type(raw), capability)
    if key not in known:
        known[key] = _takes(pair, *stated, raw, capability, machine)
    return known[key]


def _takes(
    pair: Pair, field: str, value: Any, raw: Any, capability: str, machine: Machine
) -> bool | None:
    cls = pair.backend.cls
    assert cls is not None
    if machine.accepts(pair.entry, field, value) is False:
        return False
    return takes_alone(cls, pair.vocabulary, field, raw, capability)


def _words(found: list[_Case]) -> str:
    """The first of some combinations, but for features that it does without."""
    said = [
        f"{field} {str(value).lower() if isinstance(value, bool) else value}"
        for field, value in found[0]
        if value is not False
    ]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"{listed_and(said)} together{more}"


def _place(pair: Pair) -> Position:
    """The first constraint of the entry; where it has none, the entry."""
    for spec in pair.entry.phases.values():
        for constraint in spec.constraints:
            return constraint.position
    return pair.entry.position
