"""What the manifest says that a class claims, value by value, against what the class says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from selector.drift.machines import Machine, Machines, Pair, stated_at
from selector.drift.reading import Attribute, Backend, EngineReading
from selector.drift.rules import CLAIM, OPEN_ENDED, UNDECIDED
from selector.drift.saying import (
    FUTURE,
    answer_on,
    called,
    feature_on,
    listed,
    name_of,
    on_words,
    place_of,
    source_of,
    supplier,
    takes,
    value_of,
    why_open,
    why_undecided,
)
from selector.drift.tables import Said, Table, find_differences
from selector.fields import parse_capability
from selector.manifest import Manifest
from selector.values import Finding, Position, Severity

__all__ = ["compare_claims"]


def compare_claims(
    manifest: Manifest, reading: EngineReading, pairs: list[Pair]
) -> Iterator[Finding]:
    """Differences of claims, and open-ended tests of the architecture.

    Args:
        manifest: as claimed.
        reading: of the engine.
        pairs: the entries of that manifest, and the backends that they describe.
    """
    machines = {one: Machine(manifest, reading.platform, one) for one in reading.capabilities}
    yield from _unsaid(manifest, reading, pairs)
    for pair in pairs:
        yield from _kinds(pair, reading.capabilities)
        yield from _open_ended(pair, machines)
        yield from _fields(pair, machines)
        yield from _threshold(pair, machines)


def _unsaid(manifest: Manifest, reading: EngineReading, pairs: list[Pair]) -> Iterator[Finding]:
    """Fields of which no class says anything: an older engine does not know them."""
    known = {name for pair in pairs if pair.backend.cls for name in pair.backend.cls.attributes}
    words = reading.vocabulary
    names = (
        words.kinds | words.values | {field: name for field, (name, _) in words.features.items()}
    )
    unsaid = [
        f for f, name in names.items() if f in manifest.vocabulary.fields and name not in known
    ]
    if pairs and unsaid:
        what = f"no class of {called(reading)} speaks of {', '.join(unsaid)}"
        at = Position(manifest.ref.file, 1, 1)
        yield UNDECIDED.finding(at, f"{what}: not compared")


def _kinds(pair: Pair, capabilities: Sequence[str]) -> Iterator[Finding]:
    """Whether it is MLA, and whether it is sparse."""
    for field, name in pair.vocabulary.kinds.items():
        if (attribute := _attribute(pair.backend, name)) is None:
            continue
        stated, at = getattr(pair.entry, field), stated_at(pair.entry, field)
        said = {feature_on(attribute, one) for one in capabilities}
        if said == {not stated}:
            words = f"the manifest says {str(stated).lower()}, and {source_of(attribute)} says"
            yield CLAIM.finding(at, f"{pair.entry.name} {field}: {words} {not stated}")
        elif said != {stated}:
            why = why_open(attribute, capabilities) or "depends on the architecture"
            yield UNDECIDED.finding(at, f"{pair.entry.name} {field}: {why}")


def _open_ended(pair: Pair, machines: Machines) -> Iterator[Finding]:
    """What is refused on older architectures, and accepted on all that will come."""
    if FUTURE not in machines:
        return
    runs = machines[FUTURE].runs(pair.entry) is not False
    asks = _attribute(pair.backend, pair.vocabulary.capability)
    ends = not runs or (asks is not None and feature_on(asks, FUTURE) is False)
    for field, attribute, said in _compared(pair, machines):
        if field != "capability" and ends:
            continue  # nobody asks it there
        groups: defaultdict[bool, list[Any]] = defaultdict(list)
        for value, by_capability in said.items():
            stated, accepts = by_capability[FUTURE]
            codes = [code for one, (_, code) in by_capability.items() if one != FUTURE]
            if accepts and False in (codes if field == "capability" else codes[:1]):
                groups[runs and stated is not False].append(value)
        for shared, values in groups.items():
            what = "" if values == [""] else f"{listed(values)} on "
            words = f"{_source(pair, field, attribute)} accepts {what}every future"
            also = "as the manifest does" if shared else "and the manifest does not"
            yield OPEN_ENDED.finding(
                stated_at(pair.entry, field),
                f"{pair.entry.name} {field}: {words} compute capability, {also}",
                severity=Severity.NOTE if shared else None,
            )


def _fields(pair: Pair, machines: Machines) -> Iterator[Finding]:
    known = {one: machine for one, machine in machines.items() if one != FUTURE}
    for field, attribute, said in _compared(pair, known):
        yield from _tell(pair, field, attribute, said)


def _threshold(pair: Pair, machines: Machines) -> Iterator[Finding]:
    """How long a query counts as a decode, where the builder's class says a number."""
    builder, rules = pair.backend.builder, pair.entry.decode_threshold
    said = builder.attributes.get(pair.vocabulary.threshold) if builder is not None else None
    if rules is None or builder is None or said is None:
        return
    set_at = [one for one in builder.assigned if one.name == said.name]
    where: defaultdict[tuple[int, frozenset[int]], list[str]] = defaultdict(list)
    for one, on in machines.items():
        answer = answer_on(said, one)
        stated = frozenset(match.rule.result for match in rules.matches(on.question))
        number = answer.value if answer is not None and answer.known else None
        if one == FUTURE or type(number) is not int or stated == {number}:
            continue
        if on.runs(pair.entry) is not False:
            where[number, stated].append(one)
    for (number, stated), seen in where.items():
        words = f"{pair.entry.name} decode_threshold: the manifest says {listed([*sorted(stated)])}"
        words += f", and {source_of(said)} says {number} {on_words(seen)}"
        if said.defined_in != builder.path:
            words += f", which {name_of(builder.path)} ({place_of(builder.at)}) inherits"
        if set_at:
            words += f"; a constructor sets {set_at[0].expression} ({place_of(set_at[0].at)})"
        decided = not set_at and number not in stated
        yield (CLAIM if decided else UNDECIDED).finding(rules.rules[0].position, words)


def _compared(pair: Pair, machines: Machines) -> Iterator[tuple[str, Attribute, Table]]:
    """Each field of which both sides say something, where the entry runs."""
    words, cls = pair.vocabulary, pair.backend
    here = {
        one: on for one, on in machines.items() if one == FUTURE or on.runs(pair.entry) is not False
    }
    asked = next((one.fields for one in here.values()), {})
    if attribute := _attribute(cls, words.capability):
        yield "capability", attribute, _capabilities(pair, attribute, machines)
    for field, name in words.values.items():
        if (attribute := _attribute(cls, name)) is not None and field in asked:
            yield field, attribute, _values(pair, field, attribute, here)
    for field, (name, value) in words.features.items():
        if (attribute := _attribute(cls, name)) is not None and field in asked:
            said = {
                one: (on.accepts(pair.entry, field, value), feature_on(attribute, one))
                for one, on in here.items()
            }
            yield field, attribute, {"": said}


def _capabilities(pair: Pair, attribute: Attribute, machines: Machines) -> Table:
    said: dict[str, Said] = {}
    for one, on in machines.items():
        stated = on.accepts(pair.entry, "capability", parse_capability(one))
        said[one] = (stated, feature_on(attribute, one))
    return {"": said}


def _values(pair: Pair, field: str, attribute: Attribute, machines: Machines) -> Table:
    return {
        value_of(raw): {
            one: (
                on.accepts(pair.entry, field, value_of(raw)),
                takes(answer_on(attribute, one), raw),
            )
            for one, on in machines.items()
        }
        for raw in attribute.asked
    }


def _tell(pair: Pair, field: str, attribute: Attribute, said: Table) -> Iterator[Finding]:
    """Findings for one field, those of values that differ on the same architectures in one."""
    found, at = find_differences(said), stated_at(pair.entry, field)
    for (stated, where), group in found.differ.items():
        yield CLAIM.finding(
            at, _differs(pair, field, _source(pair, field, attribute), stated, where, group)
        )
    if found.undecided:
        what = f" {listed(found.undecided)}" if found.undecided != [""] else ""
        why = why_undecided(attribute, found.undecided_on)
        words = f"{pair.entry.name} {field}{what} {on_words(found.undecided_on)}: {why}"
        yield UNDECIDED.finding(at, words)


def _differs(
    pair: Pair,
    field: str,
    source: str,
    stated: bool,
    where: tuple[str, ...],
    values: list[Any],
) -> str:
    what, tail = listed(values) if values != [""] else "it", f" {on_words(where)}"
    if field == "capability":
        values, what, tail = [*where], ", ".join(where), ""
    them = "them" if len(values) > 1 else "it"
    verbs = ("accepts", "refuses") if stated else ("refuses", "accepts")
    return (
        f"{pair.entry.name} {field}: the manifest {verbs[0]} {what}, "
        f"and {source} {verbs[1]} {them}{tail}"
    )


def _source(pair: Pair, field: str, method: Attribute) -> str:
    """What says it, the class's own list too, and that the class only inherits it."""
    cls = pair.backend.cls
    assert cls is not None
    by = cls.attributes.get(pair.vocabulary.lists.get(field, ""))
    settles = supplier(cls, method, by)
    words = source_of(method)
    if settles is by and by.defined_in != method.defined_in:
        words += f", by {source_of(by)},"
    if settles.defined_in not in ("", cls.path):
        words += f", which {name_of(cls.path)} ({place_of(cls.at)}) inherits,"
    return words.replace(",,", ",")


def _attribute(backend: Backend, name: str) -> Attribute | None:
    return backend.cls.attributes.get(name) if backend.cls is not None else None
