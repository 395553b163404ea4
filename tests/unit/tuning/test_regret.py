"""Regret: 1 for the best, and otherwise how much longer it takes."""

from __future__ import annotations

from backends.shapes import read_grid
from selector.tuning.regret import first_of, regret_of, within
from selector.tuning.results import Measured, Timing

FIRST, SECOND, *_ = read_grid("small").shapes()


def measured(**times: float | None) -> tuple[Timing, ...]:
    return tuple(Timing(candidate=name, median_us=us) for name, us in times.items())


BOTH = [
    Measured(FIRST, measured(a=10.0, b=20.0, c=5.0)),
    Measured(SECOND, measured(a=16.0, b=2.0, c=None)),
]


def test_the_mean_is_geometric_and_the_worst_is_named() -> None:
    found = regret_of(first_of(("a",)), BOTH)
    assert found.mean == 4.0  # 2 and 8
    assert found.worst == 8.0
    assert found.worst_shape == SECOND
    assert (found.shapes, found.unserved) == (2, 0)


def test_what_did_not_run_is_counted_apart() -> None:
    found = regret_of(first_of(("c",)), BOTH)
    assert (found.mean, found.shapes, found.unserved) == (1.0, 1, 1)
    assert regret_of(lambda _: "nobody", BOTH).mean is None
    assert first_of(("c", "b"))(BOTH[1]) == "b"


def test_within_some_candidates_the_fastest_is_another() -> None:
    kept = within(BOTH, ("a", "b"))
    assert regret_of(first_of(("a",)), kept[:1]).mean == 1.0
    assert within(BOTH, ("c",))[0].shape == FIRST
    assert len(within(BOTH, ("c",))) == 1
