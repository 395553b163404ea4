"""Values that the manifest accepts, or the class claims, and that a constructor refuses."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

from selector.drift.guards import CAPABILITY as ARCHITECTURES
from selector.drift.machines import Machine, Machines, Pair, machines_for, machines_of, stated_at
from selector.drift.reading import Answer, Attribute, ClassReading, EngineReading, Guard
from selector.drift.rules import LOOSER, REFUSED, UNDECIDED, UNREAD
from selector.drift.saying import (
    answer_on,
    feature_on,
    listed,
    name_of,
    on_words,
    place_of,
    refuser_of,
    source_of,
    takes,
    value_of,
    why_open,
)
from selector.manifest import Manifest
from selector.values import Finding, Severity
from selector.words import listed_and

__all__ = ["compare_constructors"]

_NAMES = re.compile(r"[\w.]+ (?:not in|!=) |not \([\w.]+ (?:in|==) ")
"""A test that names the values which are taken; others say which are not, and may say too few."""


def compare_constructors(
    manifest: Manifest, reading: EngineReading, pairs: list[Pair]
) -> Iterator[Finding]:
    """What constructors refuse of what is accepted.

    Args:
        manifest: as it is, not as claimed.
        reading: of the engine.
        pairs: the entries, and the backends that they describe.
    """
    machines = machines_of(manifest, reading)
    for pair in pairs:
        here = machines_for(pair.entry, machines)
        yield from _looser(pair, here)
        yield from _unread(pair, here)
        impl = pair.backend.impl
        for guard in impl.guards if impl is not None and here else ():
            yield from _guarded(pair, guard, here)


def _looser(pair: Pair, machines: Machines) -> Iterator[Finding]:
    """Values that class and manifest refuse, and the constructor names among what it takes."""
    cls, impl, words = pair.backend.cls, pair.backend.impl, pair.vocabulary
    if cls is None or impl is None or not machines:
        return
    for guard in impl.guards:
        for one in guard.refuses if len(guard.tests) == 1 else ():
            field, stands_for = words.arguments.get(one.name, ("", None))
            said = cls.attributes.get(words.values.get(field, ""))
            if said is None or stands_for is not None or not _NAMES.match(guard.tests[0]):
                continue
            values = [
                value_of(raw)
                for raw in one.asked
                if raw is not None
                and raw in said.asked
                and all(takes(answer_on(said, c), raw) is False for c in machines)
                and all(_lets_through(impl, one.name, raw, c) for c in machines)
                and _refuses(pair, field, value_of(raw), machines)
            ]
            if values:
                text = f"{refuser_of(guard)} takes {listed(values)}"
                text += f" ({guard.tests[0]}), and {source_of(said)} refuses"
                them = "them" if len(values) > 1 else "it"
                at = stated_at(pair.entry, field)
                yield LOOSER.finding(at, f"{pair.entry.name} {field}: {text} {them}")


def _unread(pair: Pair, machines: Machines) -> Iterator[Finding]:
    """Features that the manifest accepts, and whose argument nothing reads."""
    impl = pair.backend.impl
    for one in impl.unread if impl is not None else ():
        field, value = pair.vocabulary.arguments.get(one.name, ("", None))
        where = [
            capability
            for capability, on in machines.items()
            if value is not None and field in on.fields and on.accepts(pair.entry, field, value)
        ]
        if impl is not None and where:
            words = f"{pair.entry.name} {field}: the manifest accepts it {on_words(where)}, and "
            words += f"no class of {name_of(impl.path)} reads {one.name} ({place_of(one.at)})"
            yield UNREAD.finding(stated_at(pair.entry, field), words)


def _refuses(pair: Pair, field: str, value: Any, machines: Machines) -> bool:
    known = (on for on in machines.values() if field in on.fields)
    return all(on.accepts(pair.entry, field, value) is False for on in known)


def _lets_through(impl: ClassReading, argument: str, raw: Any, capability: str) -> bool:
    """Whether no guard of a constructor refuses a value, or may refuse it."""
    return all(
        takes(answer_on(one, capability), raw) is False
        for guard in impl.guards
        for one in guard.refuses
        if one.name == argument
    )


def _guarded(pair: Pair, guard: Guard, machines: Machines) -> Iterator[Finding]:
    cases: list[_Case] = []
    for refused in guard.refuses:
        if refused.name in pair.vocabulary.arguments:
            cases += _cases(pair, refused, machines)
        elif refused.name == ARCHITECTURES:
            certain = [c for c in machines if takes(answer_on(refused, c), c)]
            where = [c for c in certain if machines[c].runs(pair.entry)]
            if where:
                words = f"{pair.entry.name} capability: the manifest accepts {', '.join(where)}"
                at = stated_at(pair.entry, "capability")
                yield REFUSED.finding(at, f"{words}, and {_raises(guard)} there")
    names = [*dict.fromkeys(one.partition(".")[0] for one in guard.arguments)]
    open_ = [one for one in cases if one.state is _State.OPEN]
    if open_ and len(names) > 1:
        yield _together(pair, guard, names, open_[0])
        cases = [one for one in cases if one not in open_]
    yield from (_told(pair, guard, one) for one in cases)


def _together(pair: Pair, guard: Guard, names: list[str], first: _Case) -> Finding:
    """One note for a guard of several arguments: asked one by one, each leaves it open."""
    words = f"{pair.entry.name}: whether {refuser_of(guard)} refuses what is accepted"
    words += f" depends on {listed_and(names)} together, which are asked one by one"
    return UNDECIDED.finding(pair.entry.position, f"{words}: {first.why}")


def _raises(guard: Guard) -> str:
    return f"{refuser_of(guard)} raises {guard.exception} under {' and '.join(guard.tests)}"


def _cases(pair: Pair, refused: Attribute, machines: Machines) -> Iterator[_Case]:
    """What is to be told of the values of an argument, those that are alike in one."""
    field, stands_for = pair.vocabulary.arguments[refused.name]
    groups: defaultdict[tuple[_State, tuple[str, ...]], list[Any]] = defaultdict(list)
    for raw in refused.asked:
        if raw is None:
            continue  # nothing is asked for
        value = value_of(raw) if stands_for is None else stands_for
        states: defaultdict[_State, list[str]] = defaultdict(list)
        for capability, machine in machines.items():
            answer = answer_on(refused, capability)
            if (state := _state(pair, field, value, machine, answer, raw)) is None:
                continue
            if state in (_State.OPEN, _State.ACCEPTED) or _claims(pair, field, raw, capability):
                states[state].append(capability)
        for state, seen in states.items():
            groups[state, tuple(seen)].append(value)
    for (state, where), values in groups.items():
        why = why_open(refused, where) if state is _State.OPEN else ""
        yield _Case(field, state, where, values, why)


def _told(pair: Pair, guard: Guard, case: _Case) -> Finding:
    at, subject = stated_at(pair.entry, case.field), f"{pair.entry.name} {case.field}"
    what = "it" if case.values == [True] else listed(case.values)
    raises = f"{_raises(guard)} {on_words(case.where)}"
    if case.state is _State.OPEN:
        words = f"whether {refuser_of(guard)} refuses {what} is not known: {case.why}"
        return UNDECIDED.finding(at, f"{subject}: {words}")
    if case.state is _State.ACCEPTED:
        return REFUSED.finding(at, f"{subject}: the manifest accepts {what}, and {raises}")
    words = f"the class claims {what}, and {raises}; {case.state.value}"
    return REFUSED.finding(at, f"{subject}: {words}", severity=Severity.NOTE)


class _State(Enum):
    """What the manifest makes of a value that a constructor refuses; of an open one, that."""

    ACCEPTED = "the manifest accepts it"
    CHANGED = "the manifest says that it is changed before"
    REFUSED = "the manifest refuses it too"
    OPEN = "not known"


class _Case(NamedTuple):
    """What a guard makes of values of a field: what there is to tell, where, and why it is open."""

    field: str
    state: _State
    where: tuple[str, ...]
    values: list[Any]
    why: str


def _state(
    pair: Pair, field: str, value: Any, machine: Machine, answer: Answer | None, raw: Any
) -> _State | None:
    """``None``: the constructor takes the value, or the field is none of the manifest's."""
    refuses = takes(answer, raw)
    if refuses is False or field not in machine.fields:
        return None
    stated = machine.accepts(pair.entry, field, value)
    if stated is False:
        return _State.REFUSED if refuses else None
    reaches = machine.coerced(pair.entry, field, value)
    if reaches != {value}:
        if not any(takes(answer, one) is not False for one in reaches):
            return _State.CHANGED if refuses else None
        return _State.OPEN if value in reaches else None
    if refuses is None or stated is None:
        return _State.OPEN
    return _State.ACCEPTED


def _claims(pair: Pair, field: str, raw: Any, capability: str) -> bool:
    """Whether the class certainly accepts a value."""
    words, cls = pair.vocabulary, pair.backend.cls
    name = words.values.get(field) or words.features.get(field, ("", None))[0]
    attribute = cls.attributes.get(name) if cls is not None else None
    if attribute is None:
        return False
    if field in words.features:
        return feature_on(attribute, capability) is True
    return takes(answer_on(attribute, capability), raw) is True
