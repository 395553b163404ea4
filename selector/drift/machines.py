"""What an entry of a manifest says of one value on one architecture: yes, no, or not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from selector.domains import Value
from selector.drift.reading import Backend, EngineReading, Vocabulary
from selector.drift.saying import FUTURE
from selector.fields import parse_capability
from selector.manifest import Entry, Manifest, PhaseSpec
from selector.rules import Answer as Holds
from selector.rules import FirstMatch, Question, Test
from selector.values import Position

__all__ = ["Machine", "Machines", "Pair", "machines_for", "machines_of", "stated_at"]


class Pair(NamedTuple):
    """An entry of the manifest, the backend that it describes, and where its classes say what."""

    entry: Entry
    backend: Backend
    vocabulary: Vocabulary


class Machine:
    """A device of which nothing else is known, and questions about it by what is supposed."""

    def __init__(self, manifest: Manifest, platform: str, capability: str) -> None:
        self.fields = manifest.vocabulary.fields
        code = parse_capability(capability)
        known: dict[str, Any] = {"platform": platform, "capability": code}
        self.question = Question(manifest.vocabulary, known).derived(manifest.derive)
        self._derived = manifest.derive.keys() | manifest.changing.keys()
        self._supposing: dict[tuple[str, type, Value], Question] = {}
        self._derive = manifest.derive
        self._together: dict[Any, Question] = {}

    def supposing(self, field: str, value: Value) -> Question:
        """The question in which one field has this value."""
        key = (field, type(value), value)
        if key not in self._supposing:
            if field in self._derived:  # is not computed anew
                self._supposing[key] = self.question.plus({field: value})
            else:
                self._supposing[key] = self.question.supposing(field, value)
        return self._supposing[key]

    def runs(self, entry: Entry) -> bool | None:
        """Whether an entry accepts the device."""
        said = [
            _accepts(entry, name, value, self.question)
            for name in ("platform", "capability")
            if (value := self.question.known(name)) is not None
        ]
        return False if False in said else None if None in said else True

    def accepts(self, entry: Entry, field: str, value: Value) -> bool | None:
        """Whether an entry accepts a value of a field, whatever the other fields are.

        ``None``: that depends on other fields or facts.
        """
        return _accepts(entry, field, value, self.supposing(field, value))

    def allows(self, entry: Entry, values: Mapping[str, Value]) -> bool | None:
        """Whether an entry takes these values together, in any of its phases.

        ``None``: that depends on other fields or facts.
        """
        key = tuple((field, type(value), value) for field, value in values.items())
        if key not in self._together:
            asked = self.question.plus(values)
            self._together[key] = asked.derived(self._derive)
        question = self._together[key]
        said = [_allows(spec, values, question) for spec in entry.phases.values()]
        return True if True in said else None if None in said else False

    def coerced(self, entry: Entry, field: str, value: Value) -> set[Value]:
        """The values that an entry can make of one before its constructor sees it."""
        if (rules := entry.coerce.get(field)) is None:
            return {value}
        results = {match.rule.result for match in rules.matches(self.supposing(field, value))}
        return {value if result == "same" else result for result in results}


def _accepts(entry: Entry, field: str, value: Value, question: Question) -> bool | None:
    """In any of the phases that the entry serves."""
    said: list[bool | None] = []
    for spec in entry.phases.values():
        if (first := spec.accepts.get(field)) is None:
            unstated = question.vocabulary.fields[field].unstated()
            said.append(unstated is None or unstated.admits(value))
        else:
            said.append(_first(first, question))
    return True if True in said else None if None in said else False


def _allows(spec: PhaseSpec, values: Mapping[str, Value], question: Question) -> bool | None:
    said = [
        _first(first, question)
        for field in values
        if (first := spec.accepts.get(field)) is not None
    ]
    broken = [one.violated(question) for one in spec.constraints]
    if False in said or Holds.YES in broken:
        return False
    return None if None in said or Holds.MAYBE in broken else True


def _first(first: FirstMatch[Test], question: Question) -> bool | None:
    said = {match.rule.result.answer(question) for match in first.matches(question)}
    if len(said) != 1 or Holds.MAYBE in said:
        return None
    return Holds.YES in said


Machines = Mapping[str, Machine]
"""By compute capability."""


def machines_of(manifest: Manifest, reading: EngineReading) -> Machines:
    """Each known architecture that an engine's code was asked about, as a manifest's questions."""
    return {
        one: Machine(manifest, reading.platform, one)
        for one in reading.capabilities
        if one != FUTURE
    }


def machines_for(entry: Entry, machines: Machines) -> Machines:
    """Those of some architectures that an entry accepts, or may accept."""
    return {one: on for one, on in machines.items() if on.runs(entry) is not False}


def stated_at(entry: Entry, field: str) -> Position:
    """Where the manifest speaks of a field of an entry; the entry where it says nothing."""
    for spec in entry.phases.values():
        if (first := spec.accepts.get(field)) is not None:
            return first.rules[0].result.position
    return entry.position
