"""Rules of a policy: conditions that a manifest's ``when`` can say, over what a shape asks.

A condition is at most three tests. A test bounds one field from one side, at a power of two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy
from numpy.typing import NDArray

from selector.tuning.results import Measured, Shape

__all__ = [
    "FIELDS",
    "Condition",
    "Conditions",
    "Rule",
    "Test",
    "conditions_over",
    "questions_of",
    "values_of",
]

FIELDS = (
    *("query_len", "context_len", "batch_num_heads", "gqa_group", "head_size"),
    *("num_kv_heads", "num_heads", "block_size"),
)
"""Fields that a rule may test; of two rules that say the same of the shapes, the earlier.

``batch_num_heads`` stands for ``num_reqs`` too: kernels see heads, whosever they are.
"""

_MOST_TESTS = 3


class Test(msgspec.Struct, frozen=True):
    """A field is at least, or at most, a number."""

    field: str
    least: int | None = None
    most: int | None = None

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it holds for a shape's values."""
        value = values[self.field]
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )


Condition = tuple[Test, ...]
"""Tests that all hold; none: always."""


class Rule(msgspec.Struct, frozen=True):
    """Where a condition holds, candidates are tried in this order."""

    when: Condition
    order: tuple[str, ...]

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the rule speaks of a shape."""
        return all(test.holds(values) for test in self.when)


class Conditions(msgspec.Struct, frozen=True):
    """Conditions over some shapes, none like another there.

    Attributes:
        whens: their tests.
        bounds: how many bounds each has.
        holds: conditions × shapes.
    """

    whens: tuple[Condition, ...]
    bounds: NDArray[numpy.int64]
    holds: NDArray[numpy.bool_]


def values_of(shape: Shape, told: bool = True) -> dict[str, int]:
    """What the fields are for a shape.

    Args:
        shape: what was timed.
        told: whether the one who asks says how many requests run together; else it is one.
    """
    request, together = shape.request, shape.num_reqs if told else 1
    query_len, seq_len = request.query_len or 0, request.seq_len or 0
    return {
        "query_len": query_len,
        "context_len": seq_len - query_len,
        "batch_num_heads": shape.num_heads * together,
        "gqa_group": shape.num_heads // shape.num_kv_heads,
        "head_size": shape.head_size,
        "num_kv_heads": shape.num_kv_heads,
        "num_heads": shape.num_heads,
        "block_size": shape.page_size,
    }


def questions_of(measured: Iterable[Measured]) -> Iterator[tuple[Measured, bool]]:
    """Yields every question about shapes: each, and whether it says how many requests there are.

    Of several requests, not everybody who asks says so: such a shape is asked about both ways.
    """
    for one in measured:
        yield one, True
    for one in measured:
        if one.shape.num_reqs > 1:
            yield one, False


def conditions_over(
    shapes: Sequence[Mapping[str, int]], fields: Sequence[str] = FIELDS, fewest: int = 1
) -> Conditions:
    """Every condition that tells these shapes apart.

    Of several that hold for the same shapes, the one with the fewest bounds and the first fields.

    Args:
        shapes: their values, at least one.
        fields: what may be tested.
        fewest: shapes for which a condition holds, and that each of its bounds shuts out.
    """
    tests = list(_tests(shapes, fields, fewest))
    holds = numpy.array([[test.holds(one) for one in shapes] for test in tests], bool)
    holds = holds.reshape(len(tests), len(shapes))
    kept = _first_of_each(holds)
    tests, holds = [tests[at] for at in kept], holds[kept]
    chosen = numpy.arange(len(tests))[:, None]
    found = [(chosen, holds)]
    for _ in range(_MOST_TESTS - 1):
        chosen, both = _narrowed(*found[-1], holds, fewest)
        found.append((chosen, both))
    every = numpy.concatenate([each for _, each in found])
    picks = [tuple(row) for chosen, _ in found for row in chosen.tolist()]
    kept = _first_of_each(every)
    return Conditions(
        tuple(_joined(tests[at] for at in picks[index]) for index in kept),
        numpy.array([len(picks[index]) for index in kept], numpy.int64),
        every[kept],
    )


def _narrowed(
    chosen: NDArray[numpy.int64],
    holds: NDArray[numpy.bool_],
    tests: NDArray[numpy.bool_],
    fewest: int,
) -> tuple[NDArray[numpy.int64], NDArray[numpy.bool_]]:
    """Conditions with one more test each, behind the last of theirs."""
    wide = tests.astype(numpy.float32)
    both = holds.astype(numpy.float32) @ wide.T
    fits = numpy.arange(len(tests)) > chosen[:, -1:]
    fits &= (both >= fewest) & (both <= holds.sum(1)[:, None] - fewest)
    rows, more = numpy.nonzero(fits)
    narrow = holds[rows] & tests[more]
    left = narrow.sum(1)
    shuts_out = numpy.ones(len(rows), bool)
    for place in range(chosen.shape[1]):
        others = numpy.delete(chosen[rows], place, axis=1)
        without = tests[more].copy()
        for column in others.T:
            without &= tests[column]
        shuts_out &= without.sum(1) - left >= fewest
    rows, more, narrow = rows[shuts_out], more[shuts_out], narrow[shuts_out]
    return numpy.column_stack([chosen[rows], more]), narrow


def _first_of_each(holds: NDArray[numpy.bool_]) -> list[int]:
    """The rows that are like none before."""
    packed = numpy.packbits(holds, axis=1)
    found: dict[bytes, int] = {}
    for index, row in enumerate(packed):
        found.setdefault(row.tobytes(), index)
    return list(found.values())


def _joined(tests: Iterable[Test]) -> Condition:
    """The tests, those of one field as one."""
    found: dict[str, Test] = {}
    for test in tests:
        other = found.get(test.field, test)
        least = test.least if other.least is None else other.least
        most = test.most if other.most is None else other.most
        found[test.field] = Test(test.field, least, most)
    return tuple(found.values())


def _tests(
    shapes: Sequence[Mapping[str, int]], fields: Sequence[str], fewest: int
) -> Iterator[Test]:
    """Yields the tests that hold for some shapes and shut out others, at least so many each."""
    for field in fields:
        seen = sorted(values[field] for values in shapes)
        for at in (1 << n for n in range(seen[-1].bit_length())):
            low = sum(value <= at for value in seen)
            if fewest <= low <= len(seen) - fewest:
                yield Test(field, most=at)
            high = sum(value >= at for value in seen)
            if fewest <= high <= len(seen) - fewest:
                yield Test(field, least=at)
