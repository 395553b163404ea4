"""Rules of a policy: conditions that a manifest's ``when`` can say, over what a shape asks.

A condition is at most two tests. A test bounds one field from one side, at a power of two; alone,
it may also bound it anywhere between two values that were measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import log2

import msgspec

from selector.tuning.results import Shape

__all__ = ["FIELDS", "REQUESTS", "Condition", "Rule", "Test", "conditions_over", "values_of"]

FIELDS = (
    *("query_len", "context_len", "seq_len", "gqa_group", "head_size"),
    *("num_kv_heads", "num_heads", "block_size"),
)
"""Fields that a rule may test; of two rules that say the same of the shapes, the earlier."""


class Test(msgspec.Struct, frozen=True):
    """A field is at least, or at most, a number."""

    field: str
    least: int | None = None
    most: int | None = None

    @property
    def is_round(self) -> bool:
        """Whether its bounds are powers of two."""
        return all(at is None or at & (at - 1) == 0 for at in (self.least, self.most))

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it holds for a shape's values."""
        value = values[self.field]
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )


REQUESTS = "num_reqs"
"""How many requests run together: no rule of a manifest sees it, and kernels do."""

Condition = tuple[Test, ...]
"""Tests that all hold; none: always."""


class Rule(msgspec.Struct, frozen=True):
    """Where a condition holds, candidates are tried in this order."""

    when: Condition
    order: tuple[str, ...]

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the rule speaks of a shape."""
        return all(test.holds(values) for test in self.when)


def values_of(shape: Shape) -> dict[str, int]:
    """What the fields are for a shape."""
    request = shape.request
    query_len, seq_len = request.query_len or 0, request.seq_len or 0
    return {
        "query_len": query_len,
        "context_len": seq_len - query_len,
        "seq_len": seq_len,
        "gqa_group": shape.num_heads // shape.num_kv_heads,
        "head_size": shape.head_size,
        "num_kv_heads": shape.num_kv_heads,
        "num_heads": shape.num_heads,
        "block_size": shape.page_size,
        REQUESTS: sum(n for n, _, _ in shape.requests),
    }


def conditions_over(
    shapes: Sequence[Mapping[str, int]], fields: Sequence[str] = FIELDS
) -> dict[int, Condition]:
    """Every condition that tells these shapes apart: which they are, as bits, and its tests.

    Of several that hold for the same shapes, the one with the fewest tests and the first fields.
    """
    single: dict[int, Condition] = {}
    everything = (1 << len(shapes)) - 1
    for test in _tests(shapes, fields):
        bits = _bits(test, shapes)
        if bits not in (0, everything):
            single.setdefault(bits, (test,))
    found = dict(single)
    pairs = [(bits, when) for bits, when in single.items() if when[0].is_round]
    for index, (bits, (first,)) in enumerate(pairs):
        for other, (second,) in pairs[index + 1 :]:
            both = bits & other
            if both not in (0, bits, other):
                found.setdefault(both, _joined(first, second))
    return found


def _joined(first: Test, second: Test) -> Condition:
    if first.field != second.field:
        return first, second
    least = first.least if first.least is not None else second.least
    most = first.most if first.most is not None else second.most
    return (Test(first.field, least, most),)


def _bits(test: Test, shapes: Iterable[Mapping[str, int]]) -> int:
    return sum(1 << index for index, values in enumerate(shapes) if test.holds(values))


def _tests(shapes: Sequence[Mapping[str, int]], fields: Sequence[str]) -> Iterable[Test]:
    """Yields the tests that hold for some shapes and not for all, round ones first."""
    for field in fields:
        seen = sorted({values[field] for values in shapes})
        for at in _powers(seen[0], seen[-1]):
            yield Test(field, most=at)
            yield Test(field, least=at)
        for low, high in pairwise(seen):
            yield Test(field, most=_between(low, high))
            yield Test(field, least=_between(low + 1, high + 1))


def _powers(low: int, high: int) -> list[int]:
    """Powers of two, from ``low`` to just below ``high``."""
    return [1 << n for n in range(64) if low <= 1 << n < high]


def _between(low: int, high: int) -> int:
    """The roundest number from ``low`` to just below ``high``, near the middle on a log scale."""
    middle = (log2(max(low, 1)) + log2(high)) / 2
    numbers = _powers(low, high)
    if numbers:
        return min(numbers, key=lambda number: abs(log2(number) - middle))
    number = round(pow(2.0, middle))
    rounded = round(number, 2 - len(str(number)))
    return next((n for n in (rounded, number) if low <= n < high), low)
