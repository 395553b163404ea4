"""Sets of allowed values, with exact algebra.

A :class:`Domain` is a set of integers together with a set of names (strings
and booleans). The integers are a union of *spans*: every multiple of ``step``
from ``low`` to ``high`` that no number in ``holes`` divides. Such unions are
closed under and, or and minus, so "is this allowed", "do these rules overlap"
and "what is the nearest allowed value" have exact answers and never need to
enumerate a range. The names are a finite set or the complement of one.

Booleans are names, never integers: ``True`` is not ``1`` here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import lcm

import msgspec

__all__ = ["ANY", "EMPTY", "Domain", "Span", "Value"]

Value = bool | int | str


class Span(msgspec.Struct, frozen=True):
    """Multiples of ``step`` in ``[low, high]`` that no member of ``holes`` divides.

    ``None`` for ``low`` or ``high`` means unbounded on that side.
    """

    low: int | None = None
    high: int | None = None
    step: int = 1
    holes: frozenset[int] = frozenset()

    def admits(self, value: int) -> bool:
        """Whether ``value`` is a member."""
        return (
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and value % self.step == 0
            and all(value % hole for hole in self.holes)
        )

    def first_from(self, start: int) -> int | None:
        """The smallest member that is at least ``start``, if there is one."""
        if self.low is not None:
            start = max(start, self.low)
        value = -(-start // self.step) * self.step
        while self.high is None or value <= self.high:
            if self.admits(value):
                return value
            value += self.step
        return None

    def last_to(self, end: int) -> int | None:
        """The largest member that is at most ``end``, if there is one."""
        mirrored = Span(
            None if self.high is None else -self.high,
            None if self.low is None else -self.low,
            self.step,
            self.holes,
        )
        found = mirrored.first_from(-end)
        return None if found is None else -found


def _span(
    low: int | None, high: int | None, step: int = 1, holes: Iterable[int] = ()
) -> Iterator[Span]:
    """Yields the span in lowest terms, or nothing when it has no member."""
    multiples = {lcm(hole, step) for hole in holes}
    if step in multiples:  # every multiple of step is excluded
        return
    kept = frozenset(h for h in multiples if not any(h % o == 0 for o in multiples if o != h))
    rough = Span(low, high, step, kept)
    if low is not None:
        low = rough.first_from(low)
        if low is None:
            return
    if high is not None:
        high = rough.last_to(high)
        if high is None:
            return
    if low is not None and low == high:
        step, kept = 1, frozenset()
    yield Span(low, high, step, kept)


def _meet(a: Span, b: Span) -> Iterator[Span]:
    lows = [x for x in (a.low, b.low) if x is not None]
    highs = [x for x in (a.high, b.high) if x is not None]
    low, high = max(lows, default=None), min(highs, default=None)
    if low is not None and high is not None and low > high:
        return
    yield from _span(low, high, lcm(a.step, b.step), a.holes | b.holes)


def _outside(span: Span) -> tuple[Span, ...]:
    """The integers that are not in ``span``, as spans."""
    parts: list[Span] = []
    if span.low is not None:
        parts.append(Span(None, span.low - 1))
    if span.high is not None:
        parts.append(Span(span.high + 1, None))
    parts.extend(_span(span.low, span.high, 1, (span.step,)))
    for hole in span.holes:
        parts.extend(_span(span.low, span.high, hole))
    return tuple(parts)


def _meet_all(left: Iterable[Span], right: tuple[Span, ...]) -> tuple[Span, ...]:
    return _absorb(m for a in left for b in right for m in _meet(a, b))


def _absorb(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Drops repeated spans and spans that lie inside a plain interval beside them."""
    unique = tuple(dict.fromkeys(spans))
    plain = [s for s in unique if s.step == 1 and not s.holes]
    return tuple(s for s in unique if not any(_inside(s, p) for p in plain if p != s))


def _inside(inner: Span, outer: Span) -> bool:
    """Whether ``inner``'s bounds lie within those of ``outer``, a plain interval."""
    low_fits = outer.low is None or (inner.low is not None and inner.low >= outer.low)
    high_fits = outer.high is None or (inner.high is not None and inner.high <= outer.high)
    return low_fits and high_fits


class Domain(msgspec.Struct, frozen=True, eq=False):
    """A set of values; build one with the class methods, combine with ``& | -``.

    Equality compares members, not spelling: ``Domain.of(1, 2) == Domain.between(1, 2)``.
    """

    spans: tuple[Span, ...] = ()
    names: frozenset[bool | str] = frozenset()
    all_names_but: bool = False  # then ``names`` lists what is missing

    @classmethod
    def of(cls, *values: Value) -> Domain:
        """The set of exactly these values."""
        numbers = (v for v in values if isinstance(v, int) and not isinstance(v, bool))
        names = frozenset(v for v in values if isinstance(v, bool | str))
        return cls(tuple(dict.fromkeys(Span(n, n) for n in numbers)), names)

    @classmethod
    def between(cls, low: int | None, high: int | None, multiple_of: int = 1) -> Domain:
        """The multiples of ``multiple_of`` (at least 1) from ``low`` to ``high``, both included.

        Raises:
            ValueError: ``multiple_of`` is less than 1.
        """
        if multiple_of < 1:
            raise ValueError(f"multiple_of must be at least 1, got {multiple_of}")
        return cls(tuple(_span(low, high, multiple_of)))

    def admits(self, value: Value) -> bool:
        """Whether ``value`` is a member."""
        if isinstance(value, bool | str):
            return (value in self.names) is not self.all_names_but
        return any(span.admits(value) for span in self.spans)

    def __and__(self, other: Domain) -> Domain:
        spans = _meet_all(self.spans, other.spans)
        if self.all_names_but and other.all_names_but:
            return Domain(spans, self.names | other.names, True)
        if self.all_names_but:
            return Domain(spans, other.names - self.names)
        if other.all_names_but:
            return Domain(spans, self.names - other.names)
        return Domain(spans, self.names & other.names)

    def __or__(self, other: Domain) -> Domain:
        spans = _absorb(self.spans + other.spans)
        if self.all_names_but and other.all_names_but:
            return Domain(spans, self.names & other.names, True)
        if self.all_names_but:
            return Domain(spans, self.names - other.names, True)
        if other.all_names_but:
            return Domain(spans, other.names - self.names, True)
        return Domain(spans, self.names | other.names)

    def __invert__(self) -> Domain:
        spans: tuple[Span, ...] = (Span(),)
        for span in self.spans:
            spans = _meet_all(spans, _outside(span))
        return Domain(spans, self.names, not self.all_names_but)

    def __sub__(self, other: Domain) -> Domain:
        return self & ~other

    def is_empty(self) -> bool:
        """Whether there is no member."""
        return not self.spans and not self.names and not self.all_names_but

    def __le__(self, other: Domain) -> bool:
        """Whether every member is also in ``other``."""
        return (self - other).is_empty()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self <= other and other <= self

    def __hash__(self) -> int:
        return hash((self.names, self.all_names_but))

    def only(self) -> Value | None:
        """The single member, or ``None`` when there are none or several."""
        if self.all_names_but or len(self.spans) + len(self.names) != 1:
            return None
        for name in self.names:
            return name
        span = self.spans[0]
        return span.low if span.low == span.high else None

    def nearest(self, value: Value) -> Value | None:
        """The member closest to ``value``: by distance for numbers, by spelling for names.

        Ties go to the smaller number. A boolean's nearest is the other boolean. ``None`` when
        nothing comparable is a member.
        """
        if self.admits(value):
            return value
        if isinstance(value, bool):
            return (not value) if self.admits(not value) else None
        if isinstance(value, str):
            words = sorted(n for n in self.names if isinstance(n, str))
            if self.all_names_but or not words:
                return None
            from difflib import get_close_matches

            return get_close_matches(value, words, 1, 0.0)[0]
        below = [n for s in self.spans if (n := s.last_to(value)) is not None]
        above = [n for s in self.spans if (n := s.first_from(value)) is not None]
        return min([*below, *above], key=lambda n: (abs(n - value), n), default=None)


EMPTY = Domain()
"""No value at all: the capability is never there."""

ANY = Domain((Span(),), frozenset(), True)
"""Every value."""
