"""Which lengths of a request go together, and with which bounds of its layer.

Query and sequence length, what is cached, and the fields that bound them are held against each
other by their differences: ``seq_len - query_len >= 0``, ``seq_len - index_topk <= 0``. Such
differences can all be had by whole numbers when no way around them is negative (difference
constraints; Bellman, 1958), so that a combination of classes is known to exist or not, and lengths
can be named that show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from math import inf

from selector.analysis.diagram import Level
from selector.domains import Domain, Span
from selector.fields import REQUEST_FIELDS
from selector.manifest import Measure
from selector.rules import Test

__all__ = ["InexactError", "Lengths", "bounds_of_requests"]

_MOST_BANDS = 4096
_MOST_WAYS = 512
_USUAL_END = 2048
"""What bounds lengths, such as the tokens an indexer keeps, is taken to be this."""

Matrix = tuple[tuple[float, ...], ...]
"""For two numbers, the most by which the second is larger; the first number of all is 0."""

Limit = tuple[int, int, float]
"""Of two numbers: the second is larger than the first by at most so many."""

State = tuple[frozenset[Matrix], frozenset[str]]
"""Ways in which lengths can be, one of which holds; the bounds that are no numbers."""

_ZERO, _QUERY, _SEQ = 0, 1, 2


class InexactError(Exception):
    """Questions cannot be counted by classes; the text says what of them."""


def bounds_of_requests(relations: Mapping[str, Test], measures: Iterable[str]) -> dict[str, Test]:
    """The bounds that other fields give to lengths."""
    changing = {*REQUEST_FIELDS, *measures}
    return {name: test for name, test in relations.items() if test.field in changing}


class Lengths:
    """Goes through the fields that make up a request.

    Args:
        order: these fields; what bounds lengths before the bounds, a measure behind all others.
        bounds: fields that stand for a bound of lengths by other fields.
        measures: sizes that follow from lengths.

    Raises:
        InexactError: something here is more than differences of numbers.
    """

    def __init__(
        self, order: Sequence[Level], bounds: Mapping[str, Test], measures: Sequence[Measure]
    ) -> None:
        names = {level.name for level in order}
        self.order = order
        self._bounds = {name: test for name, test in bounds.items() if name in names}
        self._numbers = {"query_len": _QUERY, "seq_len": _SEQ}
        for end in (end for test in self._bounds.values() for end in test.ends):
            self._numbers.setdefault(end, len(self._numbers) + 1)
        self.ends = frozenset(self._numbers) - REQUEST_FIELDS
        self._measures = {one.name: one for one in measures if one.name in names}
        self._check()
        size = len(self._numbers) + 1
        start: Matrix = tuple(
            tuple(0.0 if i == j else inf for j in range(size)) for i in range(size)
        )
        first = _tightened(start, [(_QUERY, _ZERO, -1), (_SEQ, _QUERY, 0)])
        assert first is not None
        self._first: State = (frozenset({first}), frozenset())
        self._states: list[State] = [self._first]
        self._known: dict[State, int] = {self._first: 0}
        self._memo: dict[tuple[int, int], tuple[int | None, ...]] = {}
        self.start = 0

    def _check(self) -> None:
        """Refuses what is more than differences of numbers."""
        if len(self._measures) > 1:
            raise InexactError("two measures of one batch")
        for name, test in self._bounds.items():
            steps = any(bound.multiple_of > 1 for bound in test.allowed.bounds)
            if test.field not in ("query_len", "seq_len") or steps:
                raise InexactError(f"a bound of {name}")
        held: list[str] = []
        for test in self._bounds.values():
            held += {*test.ends}
        if missing := self.ends - {level.name for level in self.order if level.classes}:
            raise InexactError(f"a bound by {min(missing)}")
        for level in self.order:
            spans = [span for values in level.classes for span in values.spans]
            if level.name in REQUEST_FIELDS and not all(span.is_interval for span in spans):
                raise InexactError(f"multiples of {level.name}")
            stepped = level.name in self.ends and not all(span.is_interval for span in spans)
            if level.name in self.ends and any(c.spans and _names(c) for c in level.classes):
                raise InexactError(f"values of {level.name}")
            if stepped and held.count(level.name) > 1:
                raise InexactError(f"multiples of {level.name}, which bounds several lengths")

    # -- going through ----------------------------------------------------------------------------

    def next(self, index: int, mask: int) -> tuple[int | None, ...]:
        """The states that a level's classes lead to; ``None`` where no lengths are so."""
        found = self._memo.get((index, mask))
        if found is None:
            state, level = self._states[mask], self.order[index]
            if index == len(self.order) - 1:  # behind it all states are alike
                able = (
                    any(True for _ in self._ways(state, level.name, one)) for one in level.classes
                )
                found = tuple(0 if one else None for one in able)
            else:
                ways = (self._with(state, level.name, one) for one in level.classes)
                found = tuple(None if way is None else self._number(way) for way in ways)
            self._memo[index, mask] = found
        return found

    def _number(self, state: State) -> int:
        number = self._known.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def _with(self, state: State, name: str, values: Domain) -> State | None:
        """What is left of a state when a field has one of these values."""
        ways, symbols = state
        if name in self.ends and not values.spans:
            return ways, symbols | {name}
        left = frozenset(self._ways(state, name, values))
        if len(left) > _MOST_WAYS and name not in self._measures:
            raise InexactError(f"the many ranges of {name}")
        return (left, symbols) if left else None

    def _ways(self, state: State, name: str, values: Domain) -> Iterator[Matrix]:
        """Yields the ways in which lengths can be when a field has one of these values."""
        ways, symbols = state
        if name in self.ends and not values.spans:
            yield from ways
            return
        for limits in self._limits(name, values, symbols):
            for way in ways:
                if (found := _tightened(way, limits)) is not None:
                    yield found

    def _limits(self, name: str, values: Domain, symbols: frozenset[str]) -> Iterator[list[Limit]]:
        """Yields the ways in which a field has one of these values."""
        if name in self._numbers:
            for span in values.spans:
                yield _within(_ZERO, self._numbers[name], span)
        elif name == "context_len":
            for span in values.spans:
                yield _within(_QUERY, _SEQ, span)
        elif name == "has_context":
            if values.admits(True):
                yield [(_SEQ, _QUERY, -1)]
            if values.admits(False):
                yield [(_QUERY, _SEQ, 0)]
        elif name == "num_prefills":
            if values.admits(1):
                yield []
        elif name in self._measures:
            yield from _measured(self._measures[name], values)
        else:
            yield from self._bounded(self._bounds[name], values.admits(True), symbols)

    def _bounded(self, test: Test, holds: bool, symbols: frozenset[str]) -> Iterator[list[Limit]]:
        """Yields the ways in which a length is within bounds, or is not."""
        one = self._numbers[test.field]
        parts: list[tuple[int | str | None, int | str | None]] = []
        parts += [(span.low, span.high) for span in test.allowed.fixed.spans]
        parts += [(bound.low, bound.high) for bound in test.allowed.bounds]
        sides = [
            [self._side(one, low, -1), self._side(one, high, 1)]
            for low, high in parts
            if symbols.isdisjoint((low, high))
        ]
        if holds:
            yield from ([limit for limit in side if limit is not None] for side in sides)
            return
        outside = [[_not(limit) for limit in side if limit is not None] for side in sides]
        yield from (list(ways) for ways in product(*outside))

    def _side(self, one: int, end: int | str | None, sign: int) -> Limit | None:
        if end is None:
            return None
        other, by = (self._numbers[end], 0) if isinstance(end, str) else (_ZERO, end)
        return (other, one, by) if sign > 0 else (one, other, -by)

    # -- lengths that show it ---------------------------------------------------------------------

    def solved(self, classes: Mapping[str, Domain]) -> dict[str, Domain] | None:
        """Lengths, and values of what bounds them, of these classes; ``None``: there are none."""
        state: State | None = self._first
        for level in self.order:
            if state is not None and level.name in classes:
                state = self._with(state, level.name, classes[level.name])
        if state is None:
            return None
        (ways, symbols) = state
        way = min(ways, key=lambda one: (-one[_QUERY][_ZERO], -one[_SEQ][_ZERO]))
        found = {}
        for name in (*sorted(self.ends - symbols), "query_len", "seq_len"):
            number = self._numbers[name]
            low, high = -way[number][_ZERO], way[_ZERO][number]
            ends = None if low == -inf else int(low), None if high == inf else int(high)
            able = classes.get(name, Domain.between(1, None)) & Domain.between(*ends)
            value = able.nearest(_USUAL_END if name in self.ends else 1)
            if not isinstance(value, int):
                return None
            held = _tightened(way, [(_ZERO, number, value), (number, _ZERO, -value)])
            if held is None:
                return None
            way, found[name] = held, Domain.of(value)
        return found


def _names(values: Domain) -> bool:
    return bool(values.names) or values.all_names_but


def _within(base: int, number: int, span: Span) -> list[Limit]:
    """What it is that a number is larger than another by as much as a span says."""
    found: list[Limit] = []
    if span.low is not None:
        found.append((number, base, -span.low))
    if span.high is not None:
        found.append((base, number, span.high))
    return found


def _not(limit: Limit) -> Limit:
    first, second, by = limit
    return second, first, -by - 1


def _tightened(matrix: Matrix, limits: Iterable[Limit]) -> Matrix | None:
    """The matrix with more limits; ``None`` when they exclude each other."""
    for first, second, by in limits:
        if by >= matrix[first][second]:
            continue
        if matrix[second][first] + by < 0:
            return None
        after = matrix[second]
        matrix = tuple(
            tuple(min(old, row[first] + by + more) for old, more in zip(row, after, strict=True))
            for row in matrix
        )
    return matrix


# -- measures ------------------------------------------------------------------------------------


def _measured(measure: Measure, values: Domain) -> Iterator[list[Limit]]:
    """Yields query lengths and what is cached, for which a measure has one of these values.

    Raises:
        InexactError: it takes too many values.
    """
    if not all(span.is_interval for span in values.spans):
        raise InexactError(f"multiples of {measure.name}")
    top = max((end or 0 for span in values.spans for end in (span.low, span.high)), default=0)
    step = 32 * measure.word_align
    for low, high, rows in _bands(measure, top):
        query = [(_QUERY, _ZERO, -low), *([(_ZERO, _QUERY, high)] if high is not None else [])]
        least = rows * (-(-low // step) * measure.word_align)
        for span in values.spans:
            cached: list[Limit] = []
            if span.low is not None and least < span.low:
                words = -(-span.low // rows)
                more = step * (-(-words // measure.word_align) - 1) + 1
                cached.append((_SEQ, _QUERY, -more))
            if span.high is not None:
                if least > span.high:
                    continue
                cached.append((_QUERY, _SEQ, step * (span.high // rows // measure.word_align)))
            yield [*query, *cached]


def _bands(measure: Measure, top: int) -> Iterator[tuple[int, int | None, int]]:
    """Yields query lengths that fill as many rows and words: the first, the last, and the rows.

    In the last, which has no end, every measure is beyond ``top``.
    """
    step = 32 * measure.word_align
    low = 1
    for _ in range(_MOST_BANDS):
        small = low <= measure.small_tile
        tile = measure.small_tile if small else measure.large_tile
        rows = -(-low // tile) * tile
        if rows * (-(-low // step) * measure.word_align) > top:
            yield low, None, rows
            return
        high = min(rows, -(-low // step) * step)
        yield low, high, rows
        low = high + 1
    raise InexactError(f"the many values of {measure.name}")
