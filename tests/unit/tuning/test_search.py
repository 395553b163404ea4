"""Rules found in timings: as good as any fixed choice, few, and the same every time."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.shapes import read_grid
from selector.tuning.regret import by_rules, first_of, regret_of
from selector.tuning.results import Measured, Results, Shape, Timing
from selector.tuning.rules import Rule, conditions_over, values_of
from selector.tuning.search import PRICES, Aims, find_rules
from selector.values import Phase

SHAPES = read_grid("small").shapes()

times = st.one_of(st.none(), st.floats(1, 1000))
tables = st.lists(
    st.tuples(st.floats(1, 1000), times, times), min_size=len(SHAPES), max_size=len(SHAPES)
)


def measured_as(table: list[tuple[float | None, ...]]) -> list[Measured]:
    return [
        Measured(
            shape,
            tuple(
                Timing(candidate=name, median_us=us)
                for name, us in zip("abc", row, strict=True)
                if us is not None
            ),
        )
        for shape, row in zip(SHAPES, table, strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(tables, st.integers(1, 12))
def test_rules_cost_no_more_than_the_best_fixed_order(
    table: list[tuple[float | None, ...]], most: int
) -> None:
    measured = measured_as(table)
    rules = find_rules(measured, Aims(rules=most, weight=0))
    tuned = regret_of(by_rules(rules), measured)
    assert 1 <= len(rules) <= most
    assert rules[-1].when == ()
    assert tuned.unserved == 0
    fixed = [regret_of(first_of((name,)), measured) for name in "abc"]
    whole = [one.mean for one in fixed if one.unserved == 0]
    assert tuned.mean <= min(mean for mean in whole if mean is not None) * (1 + 1e-9)


@pytest.mark.parametrize("phase", list(Phase))
def test_a_law_is_found_again(make_results: Callable[..., Results], phase: Phase) -> None:
    """Two candidates, one better on some side of a bound: two rules, and nearly no regret."""
    mine = [one for one in make_results().measured if one.shape.phase is phase]
    measured = [
        Measured(one.shape, tuple(t for t in one.timings if not t.candidate.startswith("torch")))
        for one in mine
    ]
    seen = [one for one in measured if not one.shape.held_out]
    unseen = [one for one in measured if one.shape.held_out]
    rules = find_rules(seen, Aims())
    assert len(rules) == 2
    assert find_rules(seen, Aims()) == rules
    for part, bound in ((seen, 1.03), (unseen, 1.15)):
        found = regret_of(by_rules(rules), part)
        assert found.mean is not None
        assert found.mean <= 1.03
        assert found.worst is not None
        assert found.worst <= bound


def test_one_candidate_needs_no_rule_but_the_last() -> None:
    measured = measured_as([(1.0, None, None)] * len(SHAPES))
    assert find_rules(measured, Aims()) == (Rule((), ("a",)),)


def test_noise_makes_no_rules(make_results: Callable[..., Results]) -> None:
    """Two candidates that differ by two percent at random are not told apart."""
    results = make_results(lambda _: {"flashinfer_fa2": 10.0, "flashinfer_fa3": 10.0})
    assert len(find_rules(results.measured, Aims())) == 1
    assert min(PRICES) > 0


def test_a_double_is_never_first(make_results: Callable[..., Results]) -> None:
    """Where another does as well in the mean, five percent here and there make no rule."""

    def law(shape: Shape) -> dict[str, float]:
        long = (shape.request.seq_len or 0) > 4096
        double = 9.5 if shape.head_size == 64 else 10.5
        return {"b": 10.0, "double": double, "c": 5.0 if long else 20.0}

    measured = make_results(law).measured
    assert {rule.order[0] for rule in find_rules(measured, Aims())} == {"b", "c"}


def test_three_regions_are_told_apart(make_results: Callable[..., Results]) -> None:
    """Two conditions that overlap, and all else: three rules, in the order that this takes."""

    def law(shape: Shape) -> dict[str, float]:
        values = values_of(shape)
        best = "a" if values["seq_len"] <= 2048 and values["head_size"] == 128 else "b"
        best = "c" if values["gqa_group"] >= 8 else best
        return {name: 10.0 if name == best else 15.0 for name in "abc"}

    measured = make_results(law).measured
    rules = find_rules(measured, Aims())
    assert len(rules) <= 4
    found = regret_of(by_rules(rules), measured)
    assert found.mean is not None
    assert found.mean <= 1.03


def test_conditions_are_what_their_bits_say() -> None:
    values = [values_of(shape) for shape in SHAPES]
    found = conditions_over(values)
    everything = (1 << len(values)) - 1
    assert found
    for bits, when in found.items():
        assert bits not in (0, everything)
        rule = Rule(when, ())
        assert [rule.holds(each) for each in values] == [
            bool(bits >> index & 1) for index in range(len(values))
        ]
        assert len(when) <= 2
        if len(when) == 2:
            assert all(test.is_round for test in when)
