"""Fields that no question has: bounds that another field gives, and requirements."""

from __future__ import annotations

from collections.abc import Mapping

from selector.domains import Domain, Value
from selector.fields import Vocabulary
from selector.judge import unmet
from selector.manifest import Requirement
from selector.plan.memo import remember
from selector.rules import Answer, Question, Test
from selector.values import Facts

__all__ = ["Need", "Relation"]

_MOST = 1 << 14
_ANSWERS = {Answer.YES: True, Answer.NO: False, Answer.MAYBE: None}


class Relation:
    """A field lies within bounds that other fields give.

    Attributes:
        names: the field, and those that bound it.
    """

    def __init__(self, vocabulary: Vocabulary, test: Test) -> None:
        self.vocabulary = vocabulary
        self.test = test
        self.names = tuple(dict.fromkeys(test.reads))
        self._known: dict[tuple[Value | Domain | None, ...], bool | None] = {}
        self._bounds = [
            (*self._end(bound.low), *self._end(bound.high), bound.multiple_of)
            for bound in test.allowed.bounds
        ]
        self._fixed = None if test.allowed.fixed.is_empty() else test.allowed.fixed

    def _end(self, end: int | str | None) -> tuple[int | None, int | None]:
        """A number that bounds it, or which of the values does."""
        return (None, self.names.index(end)) if isinstance(end, str) else (end, None)

    def of(self, values: Mapping[str, Value | Domain]) -> bool | None:
        """Whether it holds; ``None`` when that is unknown."""
        return self.holds(tuple(map(values.get, self.names)))

    def holds(self, values: tuple[Value | Domain | None, ...]) -> bool | None:
        """The same of the values of ``names``, in order."""
        for value in values:
            if type(value) is not int:
                break
        else:
            return self._of_numbers(values)  # type: ignore[arg-type]
        if values not in self._known:
            said = {n: v for n, v in zip(self.names, values, strict=True) if v is not None}
            answer = _ANSWERS[self.test.answer(Question(self.vocabulary, said))]
            remember(self._known, values, answer, _MOST)
        return self._known[values]

    def _of_numbers(self, values: tuple[int, ...]) -> bool:
        """The same where all are whole numbers."""
        value = values[0]
        for low, low_at, high, high_at, step in self._bounds:
            low = low if low_at is None else values[low_at]
            high = high if high_at is None else values[high_at]
            if (
                (low is None or low <= value)
                and (high is None or value <= high)
                and (step == 1 or not value % step)
            ):
                return True
        return self._fixed is not None and self._fixed.admits(value)


class Need:
    """A requirement is met."""

    def __init__(self, requirement: Requirement) -> None:
        self.requirement = requirement
        self._known: dict[str | bool | None, bool] = {}

    def of(self, facts: Facts) -> bool | None:
        """Whether it is met; ``None`` when nothing is known of the fact."""
        need = self.requirement
        if need.fact not in facts.values:
            return None
        seen = facts.values[need.fact]
        if seen not in self._known:
            self._known[seen] = not any(unmet((need,), facts, []))
        return self._known[seen]
