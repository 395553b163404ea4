"""Two answers to one question: whether the later one accepts more, less, or cannot be compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from selector.drift.between.changes import Kind
from selector.drift.reading import Answer
from selector.drift.saying import takes

__all__ = ["Delta", "compare_answers", "compare_values"]

_ABLE = ("supports_", "can_", "accepts")
"""How attributes begin of which ``True`` accepts more than ``False``; of others, nobody knows."""
_LISTS = ("get_supported_", "supported_")
"""How attributes begin that list what is accepted."""


class Delta(msgspec.Struct, frozen=True):
    """How two answers differ.

    Attributes:
        kind: in which way.
        before, after: the answers, as far as they differ; ``None`` where values were gained or
            lost.
        gained, lost: the values.
    """

    kind: Kind
    before: Answer | None = None
    after: Answer | None = None
    gained: tuple[Any, ...] = ()
    lost: tuple[Any, ...] = ()


def compare_answers(
    name: str, before: Answer, after: Answer, asked: Sequence[Any]
) -> Iterator[Delta]:
    """Yields how two answers differ; what is not known in one or both, too.

    Args:
        name: of the attribute that gives them: it says what ``True`` and a longer list mean.
        before: the earlier answer.
        after: the later one.
        asked: the values with which both were asked.
    """
    if asked and _lists_values(before) and _lists_values(after):
        yield from compare_values(before, after, asked)
    elif not (before.known and after.known):
        yield Delta(_doubt(before.known, after.known), before, after)
    elif _parts(before) != _parts(after):
        yield _known(name, before, after)


def compare_values(before: Answer, after: Answer, asked: Sequence[Any]) -> Iterator[Delta]:
    """Yields which of the values are accepted now, or no longer, and which are not known."""
    said = [(value, takes(before, value), takes(after, value)) for value in asked]
    gained = tuple(value for value, *both in said if both == [False, True])
    lost = tuple(value for value, *both in said if both == [True, False])
    if gained or lost:
        yield Delta(_direction(gained, lost), None, None, gained, lost)
    for known in ((True, False), (False, True), (False, False)):
        values = [value for value, *both in said if tuple(one is not None for one in both) == known]
        if values:
            yield Delta(
                _doubt(*known),
                _of_these(before, values, known[0]),
                _of_these(after, values, known[1]),
            )


def _lists_values(answer: Answer) -> bool:
    """Whether it says, value by value, what is accepted."""
    listed = isinstance(answer.value, (list, tuple))
    return not answer.raises and (bool(answer.undecided) or (listed and answer.known))


def _of_these(answer: Answer, values: list[Any], known: bool) -> Answer:
    """What an answer says of some of the values."""
    if known:
        return Answer(value=[value for value in values if takes(answer, value)])
    return Answer(value=[], dynamic=answer.dynamic, undecided=tuple(values))


def _parts(answer: Answer) -> bytes:
    return msgspec.json.encode((answer.value, answer.raises))


def _doubt(before: bool, after: bool) -> Kind:
    if before == after:
        return Kind.UNCOMPARED
    return Kind.OPENED if before else Kind.SETTLED


def _direction(gained: Sequence[Any], lost: Sequence[Any]) -> Kind:
    if gained and lost:
        return Kind.CHANGED
    return Kind.WIDENED if gained else Kind.NARROWED


def _known(name: str, before: Answer, after: Answer) -> Delta:
    old, new = before.value, after.value
    raises = before.raises or after.raises
    if not raises and name.startswith(_ABLE) and isinstance(old, bool) and isinstance(new, bool):
        return Delta(Kind.WIDENED if new else Kind.NARROWED, before, after)
    # an empty list means "any" to many classes, and nobody says whether here
    if not raises and name.startswith(_LISTS) and _is_list(old) and _is_list(new):
        gained = tuple(value for value in new if value not in old)
        lost = tuple(value for value in old if value not in new)
        if gained or lost:
            return Delta(_direction(gained, lost), None, None, gained, lost)
    return Delta(Kind.CHANGED, before, after)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value)
