"""Sets by example: what they cost, how they are kept, and what is refused."""

from __future__ import annotations

import time
from functools import reduce
from operator import or_

import pytest

from selector.domains import ANY, EMPTY, MOST_SPANS, Domain, Span

# -- cost ----------------------------------------------------------------------------------------

PRIMES = [p for p in range(2, 270) if all(p % q for q in range(2, p))]
FIFTY = PRIMES[:50]


def test_fifty_coprime_multiples() -> None:
    union = Domain.union(Domain.between(None, None, p) for p in FIFTY)
    coprime = ~union
    assert len(coprime.spans) == 1
    assert coprime.admits(1)
    assert coprime.admits(FIFTY[-1] + 4)  # the next prime
    assert not coprime.admits(0)
    assert ~coprime == union
    assert coprime & union == EMPTY
    assert coprime | union == ANY


def test_fifty_coprime_multiples_with_nested_ends() -> None:
    started = time.process_time()
    parts = [Domain.between(7 * i, 10**6 - 13 * i, p) for i, p in enumerate(FIFTY)]
    others = [Domain.between(-11 * i, 10**5 + 17 * i, p + 1) for i, p in enumerate(FIFTY)]
    union, other = Domain.union(parts), Domain.union(others)
    missing = ~union
    assert ~missing == union
    assert union <= union | other
    assert not union <= other
    rest = union - other
    assert rest <= union
    assert (rest & other).is_empty()
    assert time.process_time() - started < 30


def test_thousands_of_numbers() -> None:
    started = time.process_time()
    numbers = Domain.of(*range(0, 30_000, 3))
    between = ~numbers
    assert between.nearest(3) == 2
    assert ~between == numbers
    assert reduce(or_, [Domain.of(3 * i) for i in range(300)]) <= numbers
    assert numbers - Domain.between(None, 14_998) == Domain.of(*range(15_000, 30_000, 3))
    assert numbers & Domain.between(0, 6) == Domain.of(0, 3, 6)
    assert time.process_time() - started < 30


def test_what_cannot_stay_small_is_refused_and_does_not_run_on() -> None:
    steps = iter(FIFTY)
    irregular = Domain.union(
        Domain.between(None, None, a) - Domain.between(None, None, b)
        for a, b in zip(steps, steps, strict=True)
    )
    everything = Domain.between(None, None)
    started = time.process_time()
    with pytest.raises(OverflowError, match=f"{MOST_SPANS:,}"):
        assert ~irregular
    assert irregular <= irregular
    assert not everything <= irregular
    even = Domain.between(None, None, 2)
    assert everything <= Domain.union([irregular, even, everything - even])
    assert time.process_time() - started < 30


def pigeons_in_holes(holes: int) -> Domain:
    """Everything, in pieces of which none can be spared: one pigeon more than there are holes.

    A number's prime ``p[i][j]`` says that pigeon ``i`` sits in hole ``j``. Either some pigeon sits
    nowhere, or two share a hole.
    """
    primes = iter(PRIMES)
    p = [[next(primes) for _ in range(holes)] for _ in range(holes + 1)]
    nowhere = [
        Domain.between(None, None) - Domain.union(Domain.between(None, None, q) for q in row)
        for row in p
    ]
    shared = [
        Domain.between(None, None, p[i][j] * p[k][j])
        for j in range(holes)
        for i in range(holes + 1)
        for k in range(i)
    ]
    return Domain.union([*nowhere, *shared])


def test_an_inclusion_that_takes_too_many_cuts_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    everything = Domain.between(None, None)
    assert everything <= pigeons_in_holes(4)
    monkeypatch.setattr("selector.domains.MOST_SPANS", 8)  # the same refusal, sooner
    with pytest.raises(OverflowError, match="8 sets"):
        assert everything <= pigeons_in_holes(4)


def test_values_of_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="float"):
        Domain.of(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="NoneType"):
        Domain.of(64, None)  # type: ignore[arg-type]


def test_multiples_of_less_than_one_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        Domain.between(0, 8, 0)


def test_lists_stay_lists_and_neighbouring_ranges_become_one() -> None:
    assert len((Domain.of(64, 65) | Domain.of(66)).spans) == 3
    assert len((Domain.of(6) | Domain.between(1, 5)).spans) == 2
    assert len((Domain.between(1, 5) | Domain.between(6, 9)).spans) == 1
    assert len((Domain.between(16, 64, 16) | Domain.between(80, None, 16)).spans) == 1
    assert len((Domain.between(16, 64, 16) | Domain.between(96, None, 16)).spans) == 2
    assert (Domain.between(1, 5) | Domain.of(3, True)).only() is None
    assert (Domain.of(3) | Domain.of(3)).only() == 3
    assert Domain.of(True).only() is True


def test_a_set_of_one_number_is_that_number_however_it_is_said() -> None:
    assert Domain.between(1, 10, 8).only() == 8
    assert Domain.between(1, 10, 8) == Domain.of(8)
    assert (Domain.of(8) | Domain.between(1, 10, 8)).only() == 8
    assert Domain.between(1, 10, 8).spans == Domain.of(8).spans
    assert Domain.between(-10, -1, 8).only() == -8
    assert (Domain.between(1, 10) - Domain.of(1, 2, 3, 4) - Domain.between(6, None)).only() == 5


def test_ends_are_members() -> None:
    (span,) = Domain.between(1, 100, 16).spans
    assert (span.low, span.high) == (16, 96)
    (span,) = (Domain.between(16, 96, 16) - Domain.between(None, None, 32)).spans
    assert (span.low, span.high, span.step) == (16, 80, 16)
    assert Domain.between(5, 7, 8) == EMPTY
    assert Domain.between(9, 7) == EMPTY


@pytest.mark.parametrize(
    ("domain", "value", "nearest"),
    [
        (Domain.of(64, 128, 256), 96, 64),  # as far from both: the smaller
        (Domain.of(64, 128, 256), 97, 128),
        (Domain.of(64, 128, 256), 128, 128),
        (Domain.between(16, None, 16), 3, 16),
        (Domain.between(None, 250, 16), 9999, 240),
        (Domain.of("unset"), 16, None),
        (Domain.of(True), False, True),
        (Domain.of(False, 64), True, False),
        (Domain.of(64, "unset"), True, None),
        (Domain.of("bfloat16", "float16"), "bf16", "bfloat16"),
        (Domain.of(True), "true", None),
        (~Domain.of("auto"), "auto", None),
        (~Domain.of("auto"), "fp8", "fp8"),
        (ANY, -7, -7),
        (EMPTY, 7, None),
    ],
)
def test_nearest(domain: Domain, value: int | str, nearest: int | str | None) -> None:
    found = domain.nearest(value)
    assert (type(found), found) == (type(nearest), nearest)


def test_numbers_in_spans() -> None:
    span = Span(10, 90, 10, frozenset({40}))
    assert span.first_from(-5) == 10
    assert span.first_from(31) == 50
    assert span.first_from(91) is None
    assert span.last_to(1000) == 90
    assert span.last_to(49) == 30
    assert span.last_to(9) is None
    assert not span.is_interval
    assert Span(10, 90).is_interval
