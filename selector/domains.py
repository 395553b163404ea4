"""Sets of allowed values, with exact algebra.

A :class:`Domain` is a set of integers together with a set of names (strings
and booleans). The integers are a union of *spans*: every multiple of ``step``
from ``low`` to ``high`` that no number in ``holes`` divides. Such unions are
closed under and, or and minus, so "is this allowed", "do these rules overlap"
and "what is the nearest allowed value" have exact answers and never need to
enumerate a range. The names are a finite set or the complement of one.

Sets made of intervals, numbers and multiples stay small under all operations.
Only the complement of many spans that have holes themselves can grow without
bound (it is as hard as satisfiability); there an operation raises
``OverflowError`` rather than run on.

Booleans are names, never integers: ``True`` is not ``1`` here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import inf, lcm

import msgspec

__all__ = ["ANY", "EMPTY", "MOST_SPANS", "Domain", "Span", "Value"]

Value = bool | int | str

MOST_SPANS = 4096
"""No operation looks at more spans with a step at once than this."""


class Span(msgspec.Struct, frozen=True):
    """Multiples of ``step`` in ``[low, high]`` that no member of ``holes`` divides.

    ``None`` for ``low`` or ``high`` means unbounded on that side.
    """

    low: int | None = None
    high: int | None = None
    step: int = 1
    holes: frozenset[int] = frozenset()

    @property
    def is_interval(self) -> bool:
        """Whether every integer from ``low`` to ``high`` is a member."""
        return self.step == 1 and not self.holes

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
    low: int | None, high: int | None, step: int = 1, holes: frozenset[int] = frozenset()
) -> Iterator[Span]:
    """Yields the span in lowest terms, or nothing when it has no member."""
    if any(step % hole == 0 for hole in holes):  # every multiple of step is excluded
        return
    kept: frozenset[int] = frozenset()
    for hole in sorted({lcm(hole, step) for hole in holes}):
        kept = _with_hole(kept, hole)
    yield from _trim(low, high, step, kept)


def _with_hole(holes: frozenset[int], hole: int) -> frozenset[int]:
    """``holes`` and one more, without those that another one makes needless."""
    if any(hole % other == 0 for other in holes):
        return holes
    return frozenset({hole, *(other for other in holes if other % hole)})


def _trim(low: int | None, high: int | None, step: int, holes: frozenset[int]) -> Iterator[Span]:
    """Yields the span with members for ends, or nothing when it has no member."""
    rough = Span(low, high, step, holes)
    if low is not None:
        low = rough.first_from(low)
        if low is None:
            return
    if high is not None:
        high = rough.last_to(high)  # there is one: ``low``, or some number far below
    if low is not None and low == high:
        step, holes = 1, frozenset()
    yield Span(low, high, step, holes)


def _overlap(a: Span, b: Span) -> tuple[int | None, int | None] | None:
    """The ends of what the intervals of two spans share, if they share anything."""
    low = b.low if a.low is None else a.low if b.low is None else max(a.low, b.low)
    high = b.high if a.high is None else a.high if b.high is None else min(a.high, b.high)
    return None if low is not None and high is not None and low > high else (low, high)


def _meet(a: Span, b: Span) -> Iterator[Span]:
    """The integers in both, as at most one span."""
    ends = _overlap(a, b)
    if ends is not None:
        yield from _span(*ends, lcm(a.step, b.step), a.holes | b.holes)


def _cut(span: Span, away: Span) -> Iterator[Span]:
    """The integers in ``span`` but not in ``away``."""
    ends = _overlap(span, away)
    if ends is None:
        yield span
        return
    if away.low is not None and (span.low is None or span.low < away.low):
        yield from _trim(span.low, away.low - 1, span.step, span.holes)
    if away.high is not None and (span.high is None or span.high > away.high):
        yield from _trim(away.high + 1, span.high, span.step, span.holes)
    step = lcm(span.step, away.step)
    if step != span.step:
        yield from _trim(*ends, span.step, _with_hole(span.holes, step))
    for hole in away.holes:
        yield from _span(*ends, lcm(step, hole), span.holes)


def _cut_all(spans: Iterable[Span], away: Iterable[Span]) -> tuple[Span, ...]:
    """The integers in one of ``spans`` and in none of ``away``."""
    plain, stepped = _split(away)
    pieces = _meet_all(spans, _gaps(plain))
    for span in stepped:
        pieces = tuple(dict.fromkeys(part for piece in pieces for part in _cut(piece, span)))
        _check_size(len(pieces))
    return _unite(pieces)


def _gaps(plain: list[Span]) -> tuple[Span, ...]:
    """The integers outside intervals that are in order and apart."""
    gaps: list[Span] = []
    start: int | None = None
    for span in plain:
        if span.low is not None and (start is None or start < span.low):
            gaps.append(Span(start, span.low - 1))
        if span.high is None:
            return tuple(gaps)
        start = span.high + 1
    return (*gaps, Span(start, None))


def _meet_all(left: Iterable[Span], right: Iterable[Span]) -> tuple[Span, ...]:
    """The integers in one of ``left`` and in one of ``right``."""
    plain, stepped = _split(left)
    plain_too, stepped_too = _split(right)
    found: list[Span] = []
    first = 0
    for a in plain:
        while first < len(plain_too) and _is_before(plain_too[first], a):
            first += 1
        for b in plain_too[first:]:
            if _is_before(a, b):
                break
            found.extend(_meet(a, b))
    for a in stepped:
        for b in (*plain_too, *stepped_too):
            found.extend(_meet(a, b))
    for b in stepped_too:
        for a in plain:
            found.extend(_meet(a, b))
    return _unite(found)


def _is_before(a: Span, b: Span) -> bool:
    return a.high is not None and b.low is not None and a.high < b.low


def _split(spans: Iterable[Span]) -> tuple[list[Span], list[Span]]:
    """Plain intervals, in order and apart from each other, and the other spans."""
    plain: list[Span] = []
    stepped: list[Span] = []
    for span in spans:
        (plain if span.is_interval else stepped).append(span)
    return _join(plain), stepped


def _join(spans: Iterable[Span]) -> list[Span]:
    """Spans that differ in their ends only, in order; neighbours become one.

    Single numbers stay apart: ``{64, 65}`` is a list of two, not a range.
    """
    joined: list[Span] = []
    for span in sorted(spans, key=_start):
        last = joined[-1] if joined else None
        if last is None or not _touches(last, span):
            joined.append(span)
        elif last.high is not None and (span.high is None or span.high > last.high):
            joined[-1] = Span(last.low, span.high, last.step, last.holes)
    return joined


def _touches(a: Span, b: Span) -> bool:
    """Whether ``b``, which does not begin before ``a``, overlaps it or comes next after it."""
    if a.high is None or b.low is None or b.low <= a.high:
        return True
    if a.low == a.high or b.low == b.high:
        return False
    return not any(_trim(a.high + 1, b.low - 1, a.step, a.holes))


def _unite(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same integers in fewer spans: none is there twice or inside an interval beside it."""
    alike: dict[tuple[int, frozenset[int]], list[Span]] = {}
    for span in dict.fromkeys(spans):
        alike.setdefault((span.step, span.holes), []).append(span)
    plain = _join(alike.pop((1, frozenset()), ()))
    starts = [_start(span) for span in plain]
    found = list(plain)
    for group in alike.values():
        for span in _join(group):
            _check_size(len(found) - len(plain))
            place = bisect_right(starts, _start(span))
            if not place or _overlap(span, plain[place - 1]) != (span.low, span.high):
                found.append(span)
    return tuple(found)


def _start(span: Span) -> float:
    return -inf if span.low is None else span.low


def _check_size(number: int) -> None:
    if number > MOST_SPANS:
        raise OverflowError(f"a set of more than {MOST_SPANS:,} sets of multiples")


def _are_covered(spans: Iterable[Span], others: Iterable[Span]) -> bool:
    """Whether every member of ``spans`` is in one of ``others``; stops at the first that is not."""
    plain, stepped = _split(others)
    stepped.sort(key=lambda s: (len(s.holes), s.step))  # what cuts away most, into fewest pieces
    left = [(piece, 0) for piece in _meet_all(spans, _gaps(plain))]
    cuts = 0
    while left:
        piece, done = left.pop()
        while done < len(stepped) and _overlap(piece, stepped[done]) is None:
            done += 1
        if done == len(stepped):
            return False
        left.extend((part, done + 1) for part in _cut(piece, stepped[done]))
        cuts += 1
        _check_size(cuts // 4)
    return True


@lru_cache(1 << 12)  # a manifest has few sets, and every question compares them
def _met(left: tuple[Span, ...], right: tuple[Span, ...]) -> tuple[Span, ...]:
    return _meet_all(left, right)


@lru_cache(1 << 12)
def _is_within(spans: tuple[Span, ...], others: tuple[Span, ...]) -> bool:
    known = frozenset(others)
    return _are_covered(set(spans) - known, known)


class Domain(msgspec.Struct, frozen=True, eq=False):
    """A set of values; build one with the class methods, combine with ``& | - ~``.

    Equality compares members, not spelling: ``Domain.of(1, 2) == Domain.between(1, 2)``.

    Operations raise ``OverflowError`` beyond ``MOST_SPANS`` spans with a step.
    """

    spans: tuple[Span, ...] = ()
    names: frozenset[bool | str] = frozenset()
    all_names_but: bool = False  # then ``names`` lists what is missing

    @classmethod
    def of(cls, *values: Value) -> Domain:
        """The set of exactly these values.

        Raises:
            TypeError: a value is not a boolean, an integer or text.
        """
        numbers: list[Span] = []
        names: list[bool | str] = []
        for value in values:
            if isinstance(value, bool | str):
                names.append(value)
            elif isinstance(value, int):
                numbers.append(Span(value, value))
            else:
                raise TypeError(f"{type(value).__name__} is not a value: {value!r:.60}")
        return cls(tuple(dict.fromkeys(numbers)), frozenset(names))

    @classmethod
    def between(cls, low: int | None, high: int | None, multiple_of: int = 1) -> Domain:
        """The multiples of ``multiple_of`` (at least 1) from ``low`` to ``high``, both included.

        Raises:
            ValueError: ``multiple_of`` is less than 1.
        """
        if multiple_of < 1:
            raise ValueError(f"multiple_of must be at least 1, got {multiple_of}")
        return cls(tuple(_span(low, high, multiple_of)))

    @classmethod
    def union(cls, domains: Iterable[Domain]) -> Domain:
        """Every value that is in one of ``domains``; faster than one ``|`` after the other."""
        parts = tuple(domains)
        missing = [part.names for part in parts if part.all_names_but]
        present = frozenset[bool | str]().union(*(p.names for p in parts if not p.all_names_but))
        spans = _unite(span for part in parts for span in part.spans)
        if missing:
            return cls(spans, frozenset.intersection(*missing) - present, True)
        return cls(spans, present)

    def admits(self, value: Value) -> bool:
        """Whether ``value`` is a member."""
        if isinstance(value, bool | str):
            return (value in self.names) is not self.all_names_but
        for span in self.spans:  # noqa: SIM110 - a generator costs more than the test
            if span.admits(value):
                return True
        return False

    def __and__(self, other: Domain) -> Domain:
        spans = _met(self.spans, other.spans)
        if self.all_names_but and other.all_names_but:
            return Domain(spans, self.names | other.names, True)
        if self.all_names_but:
            return Domain(spans, other.names - self.names)
        if other.all_names_but:
            return Domain(spans, self.names - other.names)
        return Domain(spans, self.names & other.names)

    def __or__(self, other: Domain) -> Domain:
        return Domain.union((self, other))

    def __invert__(self) -> Domain:
        return Domain(_cut_all((Span(),), self.spans), self.names, not self.all_names_but)

    def __sub__(self, other: Domain) -> Domain:
        names = self & Domain((), other.names, not other.all_names_but)
        return Domain(_cut_all(self.spans, other.spans), names.names, names.all_names_but)

    def is_empty(self) -> bool:
        """Whether there is no member."""
        return not self.spans and not self.names and not self.all_names_but

    def __le__(self, other: Domain) -> bool:
        """Whether every member is also in ``other``."""
        if other.all_names_but:
            names_fit = (
                other.names <= self.names
                if self.all_names_but
                else (other.names.isdisjoint(self.names))
            )
        else:
            names_fit = not self.all_names_but and self.names <= other.names
        return names_fit and _is_within(self.spans, other.spans)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Domain):
            return False
        if self.names == other.names and self.all_names_but is other.all_names_but:
            return self.spans == other.spans or (self <= other and other <= self)
        return False

    def __ne__(self, other: object) -> bool:  # a Struct's own compares identity
        return not self == other

    def __repr__(self) -> str:
        names = ", ".join(sorted(map(repr, self.names)))
        but = ", all_names_but=True" if self.all_names_but else ""
        return f"Domain({self.spans!r}, {{{names}}}{but})"

    def __hash__(self) -> int:  # of members, not of spelling
        return hash((self.names, self.all_names_but, *(self.admits(n) for n in (1, 64, 900))))

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
