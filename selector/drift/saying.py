"""What an entry and what a class say of one value on one architecture: yes, no, or not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any, NamedTuple

from selector.devices import known_capabilities
from selector.domains import Value
from selector.drift.reading import (
    Answer,
    Attribute,
    Backend,
    ClassReading,
    Dynamic,
    EngineReading,
    Method,
    Vocabulary,
)
from selector.fields import UNSET, parse_capability
from selector.manifest import Entry, Manifest, PhaseSpec
from selector.rules import Answer as Holds
from selector.rules import FirstMatch, Question, Test
from selector.values import Position

__all__ = [
    "CAPABILITIES",
    "FUTURE",
    "Machine",
    "Pair",
    "answer_on",
    "called",
    "feature_on",
    "listed",
    "method_fails",
    "name_of",
    "on_words",
    "place_of",
    "source_of",
    "stated_at",
    "supplier",
    "takes",
    "value_of",
    "why_open",
    "why_words",
]

FUTURE = "99.0"
"""A compute capability that no GPU has, to see which tests have no upper end."""
CAPABILITIES = (*known_capabilities(), FUTURE)
"""The architectures that an engine's code is asked about."""
SHOWN = 8
"""So many values are named; the rest are counted."""


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


def answer_on(attribute: Attribute, capability: str) -> Answer | None:
    """What an attribute says on an architecture."""
    return attribute.answer or attribute.by_capability.get(capability)


def takes(answer: Answer | None, value: Any) -> bool | None:
    """Whether a method that was asked with values accepts this one of them."""
    if answer is None or answer.raises or value in answer.undecided:
        return None
    if answer.dynamic is not None and not answer.undecided:
        return None
    return value in answer.value if isinstance(answer.value, (list, tuple)) else None


def feature_on(attribute: Attribute, capability: str) -> bool | None:
    """Whether a yes or no is certainly one of them on an architecture, and which."""
    answer = answer_on(attribute, capability)
    if answer is None or not answer.known or answer.raises:
        return None
    return answer.value if isinstance(answer.value, bool) else None


def supplier(cls: ClassReading, method: Attribute, by: Attribute | None) -> Attribute:
    """Which one settles what a class says: a method, or the list that it looks into.

    The one that stands in the nearer class; a method that is nearer may not look into the list.
    """
    if by is None or by.defined_in not in cls.mro or method.defined_in not in cls.mro:
        return method
    nearer = cls.mro.index(by.defined_in) <= cls.mro.index(method.defined_in)
    return by if nearer else method


def value_of(raw: Any) -> Value:
    """A value of the code as a manifest spells it."""
    if raw is None:
        return UNSET
    return raw.removeprefix("torch.") if isinstance(raw, str) else raw


def method_fails(method: Method) -> str:
    """What keeps a method from running, where that is seen."""
    owner = f"{method.name} of {name_of(method.defined_in)} ({place_of(method.at)})"
    if method.raises:
        return f"{owner} raises {method.raises}"
    if method.missing:
        needed = ", ".join(f"{one.name} ({place_of(one.at)})" for one in method.missing)
        return f"{owner} reads what no class sets: {needed}"
    return ""


def stated_at(entry: Entry, field: str) -> Position:
    """Where the manifest speaks of a field of an entry; the entry where it says nothing."""
    for spec in entry.phases.values():
        if (first := spec.accepts.get(field)) is not None:
            return first.rules[0].result.position
    return entry.position


def why_open(attribute: Attribute, capabilities: Sequence[str]) -> str:
    """Why the code's answer is not known; empty where it is."""
    for capability in capabilities:
        answer = answer_on(attribute, capability)
        if answer is None:
            return "was not asked there"
        if answer.raises:
            return f"raises {answer.raises}"
        if answer.dynamic is not None:
            return why_words(answer.dynamic)
    return ""


def why_words(found: Dynamic) -> str:
    """Where something that is not known depends on what."""
    expression = shorten(found.expression, 100, placeholder="…")
    return f"{place_of(found.at)}: {expression} {found.why}"


def called(reading: EngineReading) -> str:
    """The engine and its version, where the source states one."""
    return f"{reading.engine} {reading.version}".rstrip()


def name_of(path: str) -> str:
    """The last part of a dotted path."""
    return path.rpartition(".")[2]


def place_of(at: Position) -> str:
    """File and line, for a sentence."""
    return f"{at.file}:{at.line}"


def source_of(attribute: Attribute) -> str:
    """The class that has an attribute, its name, and where that is."""
    owner = name_of(attribute.defined_in) or "a class that is not known"
    return f"{owner}.{attribute.name} ({place_of(attribute.at)})"


def listed(values: Sequence[Any]) -> str:
    """Values in words; many are cut."""
    words = ", ".join(str(value) for value in values[:SHOWN])
    more = len(values) - SHOWN
    return f"{words} and {more} more" if more > 0 else words


def on_words(capabilities: Sequence[str]) -> str:
    """``on 8.0, 9.0``; on all of them: ``everywhere``."""
    everywhere = len(capabilities) == len(CAPABILITIES) - 1
    return "everywhere" if everywhere else f"on {', '.join(capabilities)}"
