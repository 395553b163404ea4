"""A search asked for a question that says as little as it can, and what it says."""

from __future__ import annotations

from collections.abc import Iterator

from selector.domains import Value
from selector.fields import ABSENT, UNSET, show
from selector.lint.questions import Questions
from selector.lint.solving import Way

__all__ = ["quietest", "said_in"]

_STEPS = 500
_MOST_SAID = 3
_DEVICE = ("platform", "capability")


def quietest(questions: Questions, way: Way) -> Way:
    """The same, with every field at a value that asks for nothing, as far as that can be.

    Raises:
        OverBudgetError: that was not decided.
    """
    for name, quiet in _quiet_fields(questions):
        narrower = way & Way(((questions.fields[name], quiet),))
        if questions.solver.solve(narrower, _STEPS) is not None:
            way = narrower
    return way


def _quiet_fields(questions: Questions) -> Iterator[tuple[str, int]]:
    """Yields the fields that can ask for nothing, and the values with which they do."""
    words = questions.manifest.vocabulary
    for name, place in questions.fields.items():
        if name in words.fields and name not in (*_DEVICE, *questions.manifest.derive):
            off: tuple[Value, ...] = (UNSET, ABSENT)
            if name in words.off:
                off = (words.off[name],)
            elif name in questions.manifest.facts:
                off = (True,)
            quiet = sum(
                1 << n
                for n, value in enumerate(questions.values[place].values)
                if any(type(value) is type(one) and value == one for one in off)
            )
            if quiet:
                yield name, quiet


def said_in(questions: Questions, left: list[int]) -> str:
    """What sets a question apart, in words: features first, then what is narrowed."""
    words = questions.manifest.vocabulary
    quiet = dict(_quiet_fields(questions))
    features: list[str] = []
    others: list[str] = []
    plain: list[str] = []
    for name, place in questions.fields.items():
        field = words.fields.get(name)
        mask = left[place]
        if field is None or name in (*_DEVICE, *questions.manifest.derive):
            continue
        if mask == questions.values[place].all:
            continue
        value = next(v for v in questions.values[place].of(mask) if v is not None)
        into = features if field.role == "feature" else others
        (plain if mask & quiet.get(name, 0) else into).append(f"{name} {show(field, value)}")
    return ", ".join((features + others or plain)[:_MOST_SAID]) or "anything"
