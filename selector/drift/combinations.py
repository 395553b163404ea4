"""Values that are only taken, or only refused, together: methods of several arguments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from selector.drift.machines import Machine, Machines, Pair, machines_for, machines_of
from selector.drift.reading import Attribute, EngineReading
from selector.drift.rules import CLAIM, UNDECIDED
from selector.drift.saying import (
    answer_on,
    feature_on,
    on_words,
    source_of,
    takes,
    value_of,
    why_open,
)
from selector.manifest import Manifest
from selector.values import Finding, Position
from selector.words import listed_and

__all__ = ["compare_combinations"]


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
    differ: defaultdict[tuple[bool, tuple[str, ...]], list[Mapping[str, Any]]] = defaultdict(list)
    open_: dict[str, None] = {}
    alike: dict[Any, bool | None] = {}
    for raw in method.asked:
        values = dict(zip(fields, map(value_of, raw), strict=True))
        where: defaultdict[bool, list[str]] = defaultdict(list)
        for capability, on in machines.items():
            alone = {
                _alone(alike, pair, *one, capability, on)
                for one in zip(values.items(), raw, strict=True)
            }
            if False in alone:
                continue
            code = takes(answer_on(method, capability), raw)
            if code and None in alone:
                code = None
            stated = on.allows(pair.entry, values)
            if None in (stated, code):
                open_[capability] = None
            elif stated is not code:
                where[stated is True].append(capability)
        for stated, seen in where.items():
            differ[stated, tuple(seen)].append(values)
    at = _place(pair)
    for (stated, on_), found in differ.items():
        verbs = ("accepts", "refuses") if stated else ("refuses", "accepts")
        text = f"{pair.entry.name}: the manifest {verbs[0]} {_words(found)}, and "
        yield CLAIM.finding(at, f"{text}{source_of(method)} {verbs[1]} that {on_words(on_)}")
    if open_:
        why = why_open(method, [*open_]) or (
            f"{source_of(method)} says it from the code alone, and the manifest lets it depend on "
            "what is not known here"
        )
        what = f"{pair.entry.name} {method.name} {on_words([*open_])}"
        yield UNDECIDED.finding(at, f"{what}: {why}")


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
    words, cls = pair.vocabulary, pair.backend.cls
    assert cls is not None
    if machine.accepts(pair.entry, field, value) is False:
        return False
    if (method := cls.attributes.get(words.values.get(field, ""))) is not None:
        return takes(answer_on(method, capability), raw)
    if raw is True and field in words.features:
        feature = cls.attributes.get(words.features[field][0])
        return True if feature is None else feature_on(feature, capability)
    return True


def _words(found: list[Mapping[str, Any]]) -> str:
    """The first of some combinations, but for features that it does without."""
    said = [
        f"{field} {str(value).lower() if isinstance(value, bool) else value}"
        for field, value in found[0].items()
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
