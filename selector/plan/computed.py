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
    """A field lies within bounds that other fields give."""

    def __init__(self, vocabulary: Vocabulary, test: Test) -> None:
        self.vocabulary = vocabulary
        self.test = test
        ends = (end for bound in test.allowed.bounds for end in bound.ends)
        self.names = tuple(dict.fromkeys((test.field, *ends)))
        self._known: dict[tuple[Value | Domain | None, ...], bool | None] = {}

    def of(self, values: Mapping[str, Value | Domain]) -> bool | None:
        """Whether it holds; ``None`` when that is unknown."""
        key = tuple(map(values.get, self.names))
        if key not in self._known:
            said = {n: v for n, v in zip(self.names, key, strict=True) if v is not None}
            answer = _ANSWERS[self.test.answer(Question(self.vocabulary, said))]
            remember(self._known, key, answer, _MOST)
        return self._known[key]


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
