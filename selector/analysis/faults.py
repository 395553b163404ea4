"""The lines of a manifest that let an answer break one of its promises."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from selector.analysis.examples import Example, asked_in
from selector.binding import Selector
from selector.changes.case import choice_of
from selector.manifest import Entry, Invariant
from selector.paths import decode_path
from selector.values import Choice, Phase, Position

__all__ = ["Fault", "faults_of"]

_FIXED = frozenset({"mla", "sparse", "platform"})
"""What an entry is, not what it may be blamed for."""


class Fault(msgspec.Struct, frozen=True):
    """A line that lets something happen, and what it says."""

    position: Position
    words: str


def faults_of(selector: Selector, promise: Invariant, example: Example) -> tuple[Fault, ...]:
    """The lines that let an answer break a promise, each once.

    Args:
        selector: gave the answer.
        promise: one of its manifest's invariants.
        example: the question that breaks it, and the answer.
    """
    return (*dict.fromkeys(_faults(selector, promise, example)),)


def _faults(selector: Selector, promise: Invariant, example: Example) -> Iterator[Fault]:
    asked = asked_in(selector, example)
    for phase in Phase:
        choice = choice_of(example.answer, phase)
        if choice.backend is None:
            continue
        entry = selector.manifest.entries[choice.backend]
        takes, chosen = choice.path in promise.never_paths, entry.name in promise.never_backends
        if takes:
            yield from _of_path(entry, choice)
        for test in promise.when.tests if chosen else ():
            accepts = entry.phases[phase].accepts.get(test.field)
            if accepts is not None and test.field not in _FIXED:
                at = accepts.matches(asked)[0].rule.result.position
                yield Fault(at, f"{entry.name} accepts {test.field} {asked.text(test.field)}")
        if (takes or chosen) and choice.rule is not None:
            yield Fault(choice.rule, f"this list gives {entry.name}")


def _of_path(entry: Entry, choice: Choice) -> Iterator[Fault]:
    """Yields the rule that gives a path, and the word that allows a dense one.

    No rule gives the path of a decode: it follows from what the entry is.
    """
    for position in choice.path_rules:
        yield Fault(position, f"this rule of {entry.name} gives {choice.path}")
    if choice.path_rules and entry.dense_prefill_at is not None:
        yield Fault(entry.dense_prefill_at, f"{entry.name} may compute prefill densely")
    if not choice.path_rules and choice.path == decode_path(entry):
        yield Fault(entry.position, f"{entry.name} decodes by {choice.path}, as what it is")
