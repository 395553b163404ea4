"""The values of a field that rules tell apart, numbered: sets of them become bit masks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations, pairwise
from math import lcm

from selector.domains import Domain, Span, Value
from selector.lint.solving import OverBudgetError

__all__ = ["Values", "numbers_of", "values_of"]

_MOST_STEPS = 6
_MOST_TRIED = 512

Spelled = tuple[tuple[Span, ...], frozenset[bool | str], bool]


class Values:
    """The values of one field.

    Args:
        values: one at least of all those that nothing tells apart.

    Attributes:
        values: by number.
        all: the mask of all of them.
    """

    def __init__(self, values: Iterable[Value | None]) -> None:
        self.values = tuple(values)
        self.all = (1 << len(self.values)) - 1
        self._masks: dict[Spelled, int] = {}

    def mask(self, allowed: Domain) -> int:
        """The values within a set."""
        key = (allowed.spans, allowed.names, allowed.all_names_but)
        found = self._masks.get(key)
        if found is None:
            admits = allowed.admits
            found = sum(1 << n for n, v in enumerate(self.values) if v is not None and admits(v))
            self._masks[key] = found
        return found

    def of(self, mask: int) -> Iterator[Value | None]:
        """Yields the values of a mask, in order."""
        return (value for n, value in enumerate(self.values) if mask >> n & 1)


def values_of(universe: Domain, sets: Sequence[Domain], both: bool = False) -> Iterator[Value]:
    """Yields values of a field: one at least of all those that are in the same sets.

    Args:
        universe: what the field can be.
        sets: what tells its values apart.
        both: whether the least and the largest of those are wanted.

    Raises:
        OverBudgetError: the sets hold multiples of too many numbers.
    """
    if universe.all_names_but:
        told = sorted({n for one in sets for n in one.names} - universe.names, key=str)
        yield from told
        fresh = "other"
        while fresh in told or not universe.admits(fresh):
            fresh += "_"
        yield fresh
    else:
        yield from sorted(universe.names, key=lambda n: (not isinstance(n, bool), str(n)))
    if universe.spans:
        spans = {*universe.spans, *(span for one in sets for span in one.spans)}
        yield from (n for n in numbers_of(spans, both) if universe.admits(n))


def numbers_of(spans: Iterable[Span], both: bool = False) -> list[int]:
    """Numbers: one at least of all those that are in the same spans.

    Raises:
        OverBudgetError: the spans hold multiples of too many numbers.
    """
    spans = tuple(spans)
    cuts = {span.low for span in spans if span.low is not None}
    cuts |= {span.high + 1 for span in spans if span.high is not None}
    factors = _factors({s.step for s in spans} | {hole for s in spans for hole in s.holes})
    found: set[int] = set()
    ends: list[int | None] = [None, *sorted(cuts), None]
    for low, after in pairwise(ends):
        high = None if after is None else after - 1
        if low is not None and low == high:
            found.add(low)
            continue
        for factor, others in factors:
            found.update(_between(low, high, factor, others, both))
    return sorted(found)


def _factors(steps: set[int]) -> list[tuple[int, list[int]]]:
    """Every combination of what divides a number, and what then does not."""
    if len(steps) > _MOST_STEPS:
        raise OverBudgetError
    subsets = (kept for size in range(len(steps) + 1) for kept in combinations(steps, size))
    found = {lcm(*kept) for kept in subsets}
    return [(factor, [step for step in steps if factor % step]) for factor in sorted(found)]


def _between(
    low: int | None, high: int | None, factor: int, others: Sequence[int], both: bool
) -> Iterator[int]:
    """Yields the least multiple of a factor within ends that nothing else divides; or both ends."""
    if low is None:
        yield from (-one for one in _first(-(high or 0), factor, others, None))
        return
    yield from _first(low, factor, others, high)
    if both and high is not None:
        yield from (-one for one in _first(-high, factor, others, -low))
    elif both:
        far = low + 2 * lcm(factor, *others)
        yield from _first(far, factor, others, None)


def _first(start: int, factor: int, others: Sequence[int], end: int | None) -> Iterator[int]:
    """Yields the first multiple of a factor, from a start on, that no other step divides."""
    first = -(-start // factor) * factor
    for number in range(first, first + factor * _MOST_TRIED, factor):
        if end is not None and number > end:
            return
        if all(number % step for step in others):
            yield number
            return
    raise OverBudgetError
