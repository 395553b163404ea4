"""What constructors certainly refuse of a field, architecture by architecture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from selector.domains import Value
from selector.drift.guards import CAPABILITY as ARCHITECTURES
from selector.drift.reading import Attribute, Backend, Guard, Vocabulary
from selector.drift.saying import (
    answer_on,
    on_words,
    refuser_of,
    takes,
    value_of,
    why_open,
)

__all__ = ["Refusals", "read_refusals", "refused_architectures"]


class Refusals(NamedTuple):
    """What constructors make of a field.

    Attributes:
        refused: capability → the values that they certainly refuse.
        asked: all values that they were asked with.
        guards: whose tests.
        why: of tests that are not known, what stands in the way.
    """

    refused: dict[str, set[Value]]
    asked: dict[Value, None]
    guards: dict[str, None]
    why: list[str]

    @property
    def by(self) -> str:
        """The tests, for a sentence."""
        return ", ".join(self.guards)


def read_refusals(
    backend: Backend, vocabulary: Vocabulary, field: str, accepted: Sequence[str]
) -> Refusals:
    """What the constructors of the implementation certainly refuse of a field."""
    found = Refusals({one: set() for one in accepted}, {}, {}, [])
    impl = backend.impl
    for guard in impl.guards if impl is not None else ():
        for refused in guard.refuses:
            about, stands_for = vocabulary.arguments.get(refused.name, ("", None))
            if about == field:
                _refuse(found, guard, refused, stands_for, accepted)
    return found


def refused_architectures(backend: Backend, capabilities: Sequence[str]) -> Refusals:
    """The compute capabilities on which they certainly raise, whatever they are given."""
    found = Refusals({one: set() for one in capabilities}, {}, {}, [])
    impl = backend.impl
    for guard in impl.guards if impl is not None else ():
        for refused in guard.refuses:
            for one in capabilities if refused.name == ARCHITECTURES else ():
                if takes(answer_on(refused, one), one):
                    found.refused[one].add(one)
                    found.guards[refuser_of(guard)] = None
    return found


def _refuse(
    found: Refusals, guard: Guard, refused: Attribute, stands_for: Value | None, on: Sequence[str]
) -> None:
    """Adds what one test refuses."""
    by = refuser_of(guard)
    asked = [raw for raw in refused.asked if raw is not None]  # nothing is asked for
    values = [value_of(raw) if stands_for is None else stands_for for raw in asked]
    found.asked.update(dict.fromkeys(values))
    open_: list[str] = []
    for capability in on:
        answer = answer_on(refused, capability)
        said = [takes(answer, raw) for raw in asked]
        away = {value for value, one in zip(values, said, strict=True) if one}
        found.refused[capability] |= away
        if away:
            found.guards[by] = None
        if None in said:
            open_.append(capability)
    if open_:
        why = why_open(refused, open_)
        found.why.append(f"what {by} refuses {on_words(open_)} is not known: {why}")
