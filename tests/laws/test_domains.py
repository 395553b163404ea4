"""The algebra of sets, against sets that are listed one by one.

An expression is built twice: as a :class:`Domain`, and as the plain set of its members within a
window. Ends lie within ±40 and steps divide 120, so beyond the ends every set repeats itself each
120 numbers: a window of ±280 holds two witnesses of whatever is there more than once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import lcm
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.domains import ANY, EMPTY, Domain, Value

NUMBERS = range(-280, 281)
NAMES: tuple[bool | str, ...] = (True, False, "auto", "unset", "fp8", "a word nobody mentions")
STEPS = (1, 2, 3, 4, 5, 6, 8, 12, 15, 24, 40, 60)

Listed = frozenset[tuple[str, Value]]
"""Members within the window, tagged with their type: ``True`` is not ``1``."""


def tagged(value: Value) -> tuple[str, Value]:
    return type(value).__name__, value


WINDOW: Listed = frozenset(map(tagged, (*NUMBERS, *NAMES)))


@dataclass(frozen=True)
class Pair:
    """One set, stated twice."""

    domain: Domain
    listed: Listed

    def __and__(self, other: Pair) -> Pair:
        return Pair(self.domain & other.domain, self.listed & other.listed)

    def __or__(self, other: Pair) -> Pair:
        return Pair(self.domain | other.domain, self.listed | other.listed)

    def __sub__(self, other: Pair) -> Pair:
        return Pair(self.domain - other.domain, self.listed - other.listed)

    def __invert__(self) -> Pair:
        return Pair(~self.domain, WINDOW - self.listed)


def listed(domain: Domain) -> Listed:
    return frozenset(tagged(v) for v in (*NUMBERS, *NAMES) if domain.admits(v))


def interval(low: int | None, high: int | None, step: int) -> Pair:
    members = (
        n
        for n in NUMBERS
        if (low is None or n >= low) and (high is None or n <= high) and n % step == 0
    )
    return Pair(Domain.between(low, high, step), frozenset(map(tagged, members)))


def these(values: list[Value]) -> Pair:
    return Pair(Domain.of(*values), frozenset(map(tagged, values)))


ends = st.none() | st.integers(-40, 40)
leaves = (
    st.builds(interval, ends, ends, st.sampled_from(STEPS))
    | st.builds(these, st.lists(st.integers(-40, 40) | st.sampled_from(NAMES[:-1]), max_size=4))
    | st.sampled_from((Pair(ANY, WINDOW), Pair(EMPTY, frozenset())))
)


def combined(parts: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    return (
        st.builds(lambda a: ~a, parts)
        | st.builds(lambda a, b: a & b, parts, parts)
        | st.builds(lambda a, b: a | b, parts, parts)
        | st.builds(lambda a, b: a - b, parts, parts)
    )


pairs = st.recursive(leaves, combined, max_leaves=7)


@given(pairs)
def test_membership_is_that_of_the_listed_set(pair: Pair) -> None:
    assert listed(pair.domain) == pair.listed


@given(pairs)
def test_a_set_is_empty_when_it_has_no_member(pair: Pair) -> None:
    assert pair.domain.is_empty() == (not pair.listed)


@given(pairs, pairs)
def test_inclusion_and_equality_compare_members(a: Pair, b: Pair) -> None:
    assert (a.domain <= b.domain) == (a.listed <= b.listed)
    assert (b.domain <= a.domain) == (b.listed <= a.listed)
    assert (a.domain == b.domain) == (a.listed == b.listed)
    assert (a.domain != b.domain) == (a.listed != b.listed)


@given(pairs, pairs)
def test_every_set_includes_its_intersections_and_is_included_in_its_unions(
    a: Pair, b: Pair
) -> None:
    assert (a & b).domain <= a.domain
    assert a.domain <= (a | b).domain


@given(pairs, pairs)
def test_equal_sets_have_equal_hashes(a: Pair, b: Pair) -> None:
    again = (a & b) | (a - b)
    assert again.domain == a.domain
    assert hash(again.domain) == hash(a.domain)


LAWS: dict[str, Callable[[Any, Any, Any], tuple[Domain, Domain]]] = {
    "involution": lambda a, b, c: (~~a, a),
    "de Morgan, and": lambda a, b, c: (~(a & b), ~a | ~b),
    "de Morgan, or": lambda a, b, c: (~(a | b), ~a & ~b),
    "absorption, and": lambda a, b, c: (a & (a | b), a),
    "absorption, or": lambda a, b, c: (a | (a & b), a),
    "distribution of and": lambda a, b, c: (a & (b | c), (a & b) | (a & c)),
    "distribution of or": lambda a, b, c: (a | (b & c), (a | b) & (a | c)),
    "commutation of and": lambda a, b, c: (a & b, b & a),
    "commutation of or": lambda a, b, c: (a | b, b | a),
    "association of and": lambda a, b, c: ((a & b) & c, a & (b & c)),
    "association of or": lambda a, b, c: ((a | b) | c, a | (b | c)),
    "minus": lambda a, b, c: (a - b, a & ~b),
    "minus itself": lambda a, b, c: (a - a, EMPTY),
    "excluded middle": lambda a, b, c: (a | ~a, ANY),
    "contradiction": lambda a, b, c: (a & ~a, EMPTY),
    "union of many": lambda a, b, c: (Domain.union([a, b, c]), a | b | c),
    "union of none": lambda a, b, c: (Domain.union([]), EMPTY),
}


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@given(leaves, leaves, leaves)
@settings(max_examples=40)
def test_laws(law: Callable[..., tuple[Domain, Domain]], a: Pair, b: Pair, c: Pair) -> None:
    left, right = law(a.domain, b.domain, c.domain)
    assert left == right


@given(pairs)
def test_only_is_the_single_member(pair: Pair) -> None:
    only = pair.domain.only()
    if len(pair.listed) == 1 and not pair.domain.all_names_but:
        assert pair.listed == {tagged(only)}  # type: ignore[arg-type]
    else:
        assert only is None


@given(pairs, st.integers(-40, 40))
def test_the_nearest_number_is_a_member_and_none_is_closer(pair: Pair, value: int) -> None:
    nearest = pair.domain.nearest(value)
    members = [n for n in NUMBERS if ("int", n) in pair.listed]
    assert nearest == min(members, key=lambda n: (abs(n - value), n), default=None)


@given(pairs, st.sampled_from(NAMES))
def test_the_nearest_name_is_a_member_of_its_kind(pair: Pair, value: bool | str) -> None:
    nearest = pair.domain.nearest(value)
    if tagged(value) in pair.listed:
        assert nearest is value
    elif nearest is None:
        # no other boolean; no word at all, or all but a few, of which none is the closest
        others = {tagged(not value)} if isinstance(value, bool) else {tagged(n) for n in NAMES[2:]}
        assert pair.domain.all_names_but or not others & pair.listed
    else:
        assert type(nearest) is type(value)
        assert pair.domain.admits(nearest)


big = st.integers(1, 65536)
far = st.none() | st.integers(-(10**15), 10**15)


@given(far, far, big, far, far, big, st.integers(-(10**15), 10**15))
def test_big_steps_and_far_ends(
    a_low: int | None,
    a_high: int | None,
    a_step: int,
    b_low: int | None,
    b_high: int | None,
    b_step: int,
    near: int,
) -> None:
    a, b = Domain.between(a_low, a_high, a_step), Domain.between(b_low, b_high, b_step)

    def in_a(n: int) -> bool:
        return (a_low is None or n >= a_low) and (a_high is None or n <= a_high) and not n % a_step

    def in_b(n: int) -> bool:
        return (b_low is None or n >= b_low) and (b_high is None or n <= b_high) and not n % b_step

    both = lcm(a_step, b_step)
    ends = [n for n in (a_low, a_high, b_low, b_high, near, 0) if n is not None]
    around = {n + d for n in ends for d in (-1, 0, 1)}
    around |= {-(-n // step) * step for n in ends for step in (a_step, b_step, both)}
    for n in around:
        assert (a & b).admits(n) == (in_a(n) and in_b(n))
        assert (a | b).admits(n) == (in_a(n) or in_b(n))
        assert (a - b).admits(n) == (in_a(n) and not in_b(n))
        assert (~a).admits(n) != in_a(n)
    for domain, step in ((a, a_step), (b, b_step), (a & b, both)):
        nearest = domain.nearest(near)
        if nearest is not None:
            assert isinstance(nearest, int)
            assert domain.admits(nearest)
            closer = abs(nearest - near) - 1
            assert (domain & Domain.between(near - closer, near + closer)).is_empty()
        else:
            assert domain.is_empty()
        assert domain <= Domain.between(None, None, step)
