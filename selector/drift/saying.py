"""What a class says of one value on one architecture, and in words: yes, no, or not known."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import shorten
from typing import Any

from selector.devices import known_capabilities
from selector.domains import Value
from selector.drift.reading import (
    Answer,
    Attribute,
    Backend,
    ClassReading,
    Dynamic,
    EngineReading,
    Guard,
    Method,
    Vocabulary,
)
from selector.fields import UNSET
from selector.values import Position

__all__ = [
    "CAPABILITIES",
    "FUTURE",
    "answer_on",
    "called",
    "feature_on",
    "listed",
    "method_fails",
    "name_of",
    "on_words",
    "other_platform",
    "place_of",
    "problem_of",
    "refuser_name",
    "refuser_of",
    "says",
    "source_of",
    "supplier",
    "takes",
    "takes_alone",
    "value_of",
    "why_answer",
    "why_open",
    "why_undecided",
    "why_words",
]

FUTURE = "99.0"
"""A compute capability that no GPU has, to see which tests have no upper end."""
CAPABILITIES = (*known_capabilities(), FUTURE)
"""The architectures that an engine's code is asked about."""
SHOWN = 8
"""So many values are named; the rest are counted."""


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


def says(attribute: Attribute | None, value: bool) -> bool:
    """Whether an attribute is certainly this on every architecture."""
    if attribute is None or not attribute.known:
        return False
    return all(answer.value is value for answer in attribute.answers().values())


def takes_alone(
    cls: ClassReading, words: Vocabulary, field: str, value: Any, capability: str
) -> bool | None:
    """Whether a class takes a value, whatever else is asked; it takes what it does not speak of."""
    if (method := cls.attributes.get(words.values.get(field, ""))) is not None:
        return takes(answer_on(method, capability), value)
    feature = cls.attributes.get(words.features.get(field, ("", None))[0])
    return True if feature is None or value is not True else feature_on(feature, capability)


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


def why_open(attribute: Attribute, capabilities: Sequence[str]) -> str:
    """Why the code's answer is not known; empty where it is."""
    for capability in capabilities:
        answer = answer_on(attribute, capability)
        if answer is None:
            return "was not asked there"
        if why := why_answer(answer):
            return why
    return ""


def why_answer(answer: Answer) -> str:
    """Why an answer says no value; empty where it says one."""
    if answer.raises:
        return f"raises {answer.raises}"
    return why_words(answer.dynamic) if answer.dynamic is not None else ""


def why_undecided(attribute: Attribute, capabilities: Sequence[str]) -> str:
    """Why it is not known whether a manifest and the code say the same."""
    return why_open(attribute, capabilities) or (
        f"{source_of(attribute)} says it from the code alone, and the manifest lets it depend on "
        "what is not known here"
    )


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


def refuser_of(guard: Guard) -> str:
    """The constructor or function that refuses, and where."""
    return f"{refuser_name(guard)} ({place_of(guard.at)})"


def refuser_name(guard: Guard) -> str:
    """The constructor or function that refuses."""
    return f"{name_of(guard.by)}.__init__" if guard.in_constructor else name_of(guard.by)


def problem_of(backend: Backend) -> str:
    """Why the class is missing; a problem of the whole source has no place."""
    return backend.problem.removeprefix(":1: ")


def other_platform(backend: Backend, platforms: Sequence[str]) -> str:
    """The other platform that a backend, its module or an ancestor is named after."""
    classes = backend.cls.mro if backend.cls is not None else ()
    text = "_".join((backend.name, backend.registered, *classes)).lower()
    named = (one for one in platforms if re.search(rf"(?:^|[._]){re.escape(one)}", text))
    return next(named, "")


def listed(values: Sequence[Any]) -> str:
    """Values in words; many are cut."""
    words = ", ".join(str(value) for value in values[:SHOWN])
    more = len(values) - SHOWN
    return f"{words} and {more} more" if more > 0 else words


def on_words(capabilities: Sequence[str]) -> str:
    """``on 8.0, 9.0``; on all of them: ``everywhere``. One that no GPU has is not named."""
    known = [one for one in capabilities if one != FUTURE] or [*capabilities]
    everywhere = len(known) == len(CAPABILITIES) - 1
    return "everywhere" if everywhere else f"on {', '.join(known)}"
