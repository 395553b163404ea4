"""Rules found in timings: as good as any fixed choice, few, and the same every time."""

from __future__ import annotations

from collections.abc import Callable
from math import log

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.shapes import read_grid
from selector.tuning.regret import by_rules, first_of, regret_of
from selector.tuning.results import Measured, Results, Shape, Timing
from selector.tuning.rules import Rule, conditions_over, values_of
from selector.tuning.rules import Test as Bound
from selector.tuning.search import PRICE, Aims, find_rules
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
    assert PRICE > 0


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
        best = "a" if values["context_len"] <= 2048 and values["head_size"] == 128 else "b"
        best = "c" if values["gqa_group"] >= 8 else best
        return {name: 10.0 if name == best else 15.0 for name in "abc"}

    measured = make_results(law).measured
    rules = find_rules(measured, Aims())
    assert len(rules) <= 4
    found = regret_of(by_rules(rules), measured)
    assert found.mean is not None
    assert found.mean <= 1.03


def test_a_region_of_three_tests_is_found(make_results: Callable[..., Results]) -> None:
    def law(shape: Shape) -> dict[str, float]:
        values = values_of(shape)
        few = values["head_size"] <= 128 and values["context_len"] >= 256
        return {"a": 10.0, "b": 5.0 if few and values["gqa_group"] >= 8 else 20.0}

    measured = make_results(law).measured
    first, last = find_rules(measured, Aims())
    assert first == Rule(
        (
            Bound("context_len", least=256),
            Bound("gqa_group", least=8),
            Bound("head_size", most=128),
        ),
        ("b", "a"),
    )
    assert last == Rule((), ("a", "b"))


def test_whoever_does_not_say_how_many_run_together_is_asked_about_too(
    make_results: Callable[..., Results],
) -> None:
    """Many requests want one kernel, one wants the other; where they are not told apart, either."""

    def law(shape: Shape) -> dict[str, float]:
        many = shape.num_reqs >= 16
        return {"a": 10.0 if many else 14.0, "b": 14.0 if many else 10.0}

    every = make_results(law).measured
    measured = [one for one in every if not 1 < one.shape.num_reqs < 16]
    rules = find_rules(measured, Aims())

    def chosen(one: Measured, told: bool) -> str:
        values = values_of(one.shape, told)
        assert told or values["batch_num_heads"] == one.shape.num_heads
        return next(rule for rule in rules if rule.holds(values)).order[0]

    many = [one for one in measured if one.shape.num_reqs >= 16]
    assert {chosen(one, told=True) for one in many} == {"a"}
    untold = sum(log(one.times[chosen(one, told=False)] / 10) for one in measured)
    assert untold <= min(sum(log(one.times[name] / 10) for one in measured) for name in "ab")


def test_conditions_are_what_they_say_and_all_different() -> None:
    values = [values_of(shape) for shape in read_grid("h200").shapes()[:40]]
    for fewest in (2, 5):
        found = conditions_over(values, fewest=fewest)
        assert len({row.tobytes() for row in found.holds}) == len(found.whens) > 100
        for when, bounds, holds in zip(found.whens, found.bounds, found.holds, strict=True):
            assert [Rule(when, ()).holds(each) for each in values] == holds.tolist()
            sides = [
                Bound(test.field, least, most)
                for test in when
                for least, most in ((test.least, None), (None, test.most))
                if (least, most) != (None, None)
            ]
            assert len(sides) == bounds <= 3
            assert holds.sum() >= fewest
            for side in sides:  # each shuts out so many that the others do not
                others = Rule(tuple(one for one in sides if one != side), ())
                assert sum(others.holds(each) for each in values) - holds.sum() >= fewest
                at = side.most if side.least is None else side.least
                assert at is not None
                assert at & (at - 1) == 0


def test_shapes_that_are_alike_have_no_condition() -> None:
    found = conditions_over([values_of(SHAPES[0])] * 20)
    assert (found.whens, found.holds.shape) == ((), (0, 20))
