"""Whether several conditions can hold at once: a complete search over fields with few values.

A field's values are numbered; a set of them is a bit mask. A *goal* is a list of ways, of which one
must be taken; a way narrows fields, and may bring goals of its own. The search ends with the values
that are left to every field, or with the certainty that there are none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["ALWAYS", "MOST_WORK", "Goal", "OverBudgetError", "Solver", "Way"]


class Way(NamedTuple):
    """One way to meet a goal.

    Attributes:
        narrows: fields by number, and the values that each may keep.
        goals: what must be met as well.
    """

    narrows: tuple[tuple[int, int], ...] = ()
    goals: tuple[Goal, ...] = ()

    def __and__(self, other: Way) -> Way:
        """Both at once."""
        if self is ALWAYS:
            return other
        return Way(self.narrows + other.narrows, self.goals + other.goals)


Goal = tuple[Way, ...]

ALWAYS = Way()


MOST_WORK = 400_000
"""So many goals are looked at in all, for all that one solver is asked; that takes a second."""


class OverBudgetError(Exception):
    """The search took more steps than it may."""


class Solver:
    """Searches for values.

    Args:
        full: field → all its values.
        always: what must be met whatever is asked.
        attached: field → what must be met as soon as it may not keep all its values.
    """

    def __init__(
        self,
        full: Sequence[int],
        always: Sequence[Goal],
        attached: Sequence[tuple[Goal, ...]],
    ) -> None:
        self.full = full
        self.always = tuple(always)
        self._attached = attached
        self._left = 0
        self._work = MOST_WORK

    def solve(self, way: Way, steps: int) -> list[int] | None:
        """The values left to every field once all is met; ``None``: it cannot be.

        Args:
            way: what is asked.
            steps: so many branches may be looked at.

        Raises:
            OverBudgetError: that is not enough.
        """
        self._left = steps
        values = [*self.full]
        pending: list[Goal] = []
        if not self._take(way, values, pending):
            return None
        return self._from(values, [*pending, *self.always])

    def _take(self, way: Way, values: list[int], pending: list[Goal]) -> bool:
        """Narrows fields as a way says, and adds what that brings; whether it can be."""
        for field, kept in way.narrows:
            had = values[field]
            left = had & kept
            if not left:
                return False
            if left != had:
                if had == self.full[field]:
                    pending += self._attached[field]
                values[field] = left
        pending += way.goals
        return True

    def _from(self, values: list[int], pending: list[Goal]) -> list[int] | None:
        self._left -= 1
        if self._left < 0:
            raise OverBudgetError
        before: list[int] = []
        while before != values:
            before = [*values]
            self._work -= len(pending)
            if self._work < 0:
                raise OverBudgetError
            left: list[Goal] = []
            for goal in pending:
                ways = _open_ways(goal, values)
                if ways is None:
                    continue
                if not ways:
                    return None
                if len(ways) > 1:
                    left.append(ways)
                elif not self._take(ways[0], values, left):
                    return None
            pending = left
        if not pending:
            return values
        first = min(pending, key=len)
        rest = [goal for goal in pending if goal is not first]
        for way in first:
            mine, more = [*values], [*rest]
            if self._take(way, mine, more):
                found = self._from(mine, more)
                if found is not None:
                    return found
        return None


def _open_ways(goal: Goal, values: Sequence[int]) -> Goal | None:
    """The ways that can still be taken; ``None``: one of them is taken already."""
    found = []
    for way in goal:
        taken = not way.goals
        for field, kept in way.narrows:
            left = values[field]
            if not left & kept:
                break
            if left & ~kept:
                taken = False
        else:
            if taken:
                return None
            found.append(way)
    return tuple(found)
