"""The run: who is a candidate, what is kept, and what a fault costs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from backends import bench, timing
from backends.bench import Candidates, find_candidates, measure
from backends.contract import Batch, RefusedError
from backends.keeper import ENDED, Keeper
from backends.part import PartError
from backends.shapes import Grid, read_grid
from backends.torch_sdpa import SdpaPlan, flash
from selector import Selector
from selector.tuning.results import Results, Timing, read_results
from selector.values import Device, Facts, Phase

torch = pytest.importorskip("torch")

CPU = Device("cpu")
FACTS = Facts({"torch": "2.11.0", "flashinfer-python": None})
GRID = read_grid("small")
SHAPES = GRID.shapes()[:3]
MANIFEST = Selector.load().manifest


@pytest.fixture(autouse=True)
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "LEAST", 2)
    monkeypatch.setattr(timing, "FEWEST", 2)
    monkeypatch.setattr(timing, "MOST", 2)


class Broken:
    """An adapter that fails in a way of its own."""

    reads_pages: ClassVar[bool] = True
    unverified: ClassVar[str] = ""
    name = "broken"

    def __init__(self, how: str) -> None:
        self.how = how

    def tolerance(self, _: str) -> float:
        return 0.0

    def prepare(self, _: object, __: str = "cuda") -> None:
        return None

    def plan(self, batch: Batch, device: str) -> Any:
        if self.how == "refuses":
            raise RefusedError("broken: not today")
        if self.how == "fails":
            raise RuntimeError("an illegal address\nwas met")
        if self.how == "kills":
            raise KeyboardInterrupt
        return Wrong(flash.plan(batch, device))


class Wrong:
    """A plan whose output is not that of the question."""

    def __init__(self, plan: SdpaPlan) -> None:
        self.plan, self.batch = plan, plan.batch

    def run(self, *given: Any) -> Any:
        return 1.5 * self.plan.run(*given)


def candidates(how: str = "") -> Candidates:
    found = find_candidates(MANIFEST, CPU, FACTS, SHAPES)
    if not how:
        return found
    batches = {
        shape: {"broken": each["torch_sdpa_math"], **each} for shape, each in found.batches.items()
    }
    adapters = {"broken": Broken(how), **found.adapters}
    paths = {"broken": "", **found.paths}
    return msgspec.structs.replace(found, adapters=adapters, paths=paths, batches=batches)


Run = Callable[..., Results]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    def go(
        found: Candidates, *, resume: bool = False, facts: Facts = FACTS, **options: Any
    ) -> Results:
        keeper = Keeper(tmp_path / "timings.json", resume)
        date = "2026-11-01T00:00:00+00:00"
        return measure(MANIFEST, CPU, facts, GRID, found, keeper, date=date, **options)

    return go


def test_the_selector_says_who_is_a_candidate() -> None:
    found = candidates()
    assert found.adapters.keys() == {"torch_sdpa_math", "torch_sdpa_flash"}
    assert all(each.keys() == found.adapters.keys() for each in found.batches.values())
    assert found.not_run["flashinfer_fa2"] == "platform cpu; has cuda"
    for shape, batches in found.batches.items():
        batch = batches["torch_sdpa_math"]
        assert (batch.query_lens, batch.seq_lens) == (shape.query_lens, shape.seq_lens)
        assert (batch.num_heads, batch.head_size) == (shape.num_heads, shape.head_size)


def test_what_is_missing_is_said() -> None:
    hopper = Device("cuda", "9.0")
    found = find_candidates(MANIFEST, hopper, FACTS, SHAPES, paged_only=True)
    assert not found.adapters
    assert "flashinfer-python not installed; needs" in found.not_run["flashinfer_fa3"]
    assert found.not_run["torch_sdpa_math"] == "copies K and V out of their pages"
    decodes = [shape for shape in SHAPES if shape.phase is Phase.DECODE]
    said = find_candidates(MANIFEST, hopper, FACTS, decodes).not_run["flashinfer_fa3"]
    assert said == "does not serve decode"


def test_latent_shapes_are_put_to_latent_kernels() -> None:
    facts = Facts({"torch": "2.11.0", "flashinfer-python": "0.7.4", "cuda": "13.0"})
    shapes = read_grid("mla").shapes()
    found = find_candidates(MANIFEST, Device("cuda", "9.0"), facts, shapes)
    assert found.adapters.keys() == {"flashinfer_mla_fa2", "flashinfer_mla_fa3"}
    for batches in found.batches.values():
        for batch in batches.values():
            assert batch.latent
            assert batch.softmax_scale == pytest.approx(192**-0.5)


def test_every_candidate_of_every_shape_has_a_time(run: Run, tmp_path: Path) -> None:
    results = run(candidates())
    assert [one.shape for one in results.measured] == list(SHAPES)
    for one in results.measured:
        assert one.times.keys() == {"torch_sdpa_math", "torch_sdpa_flash"}
        assert min(one.times.values()) > 0
        assert not any(t.disagrees_with or t.fault or t.refused for t in one.timings)
        assert all(t.plan_us and t.repetitions for t in one.timings)
    assert read_results(tmp_path / "timings.json") == results
    assert (results.left, results.runners["torch_sdpa_math"].reads_pages) == (0, False)
    assert not (tmp_path / "timings.json.running").exists()


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("refuses", {"refused": "broken: not today"}),
        ("fails", {"fault": "RuntimeError: an illegal address"}),
    ],
)
def test_a_failure_costs_nobody_else(run: Run, how: str, said: dict[str, str]) -> None:
    for one in run(candidates(how)).measured:
        assert one.timings[0] == Timing(candidate="broken", **said)  # type: ignore[arg-type]
        assert one.times.keys() == {"torch_sdpa_math", "torch_sdpa_flash"}


def test_an_output_of_its_own_is_told(run: Run) -> None:
    for one in run(candidates("lies")).measured:
        said = {timing.candidate: timing.disagrees_with for timing in one.timings}
        assert said["broken"] == ("torch_sdpa_math", "torch_sdpa_flash")
        assert said["torch_sdpa_math"] == said["torch_sdpa_flash"] == ("broken",)


def test_a_run_goes_on_behind_what_ended_it(run: Run, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(candidates("kills"))
    results = run(candidates("kills"), resume=True, limit_s=-1)
    assert results.left == len(SHAPES)
    with pytest.raises(
        KeyboardInterrupt
    ):  # behind the first shape, where it was running, the second
        run(candidates("kills"), resume=True)
    kept = read_results(tmp_path / "timings.json")
    first = kept.measured[0]
    assert first.timings[0] == Timing(candidate="broken", fault=ENDED)
    assert first.times.keys() == {"torch_sdpa_math", "torch_sdpa_flash"}


def test_what_was_measured_is_not_measured_again(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = run(candidates())
    part = whole.measured[:2]
    cut = msgspec.structs.replace(whole, measured=part)
    (tmp_path / "timings.json").write_bytes(msgspec.json.encode(cut))
    timed: list[str] = []
    real = bench._time_shape
    monkeypatch.setattr(
        bench,
        "_time_shape",
        lambda found, shape, *more: timed.append(str(shape)) or real(found, shape, *more),
    )
    again = run(candidates(), resume=True)
    assert timed == [str(SHAPES[2])]
    assert again.measured[:2] == part
    assert [one.shape for one in again.measured] == list(SHAPES)


@pytest.mark.parametrize("begun", ["timings.json", "timings.json.running"])
def test_another_run_does_not_go_on(run: Run, tmp_path: Path, begun: str) -> None:
    if begun == "timings.json":
        run(candidates())
    else:
        with pytest.raises(KeyboardInterrupt):
            run(candidates("kills"))
    kept = (tmp_path / begun).read_bytes()
    with pytest.raises(PartError, match=r"was begun with another seed; leave out --resume"):
        run(candidates(), resume=True, seed=1)
    with pytest.raises(PartError, match="another set of versions"):
        run(candidates(), resume=True, facts=Facts({**FACTS.values, "torch": "2.12.0"}))
    assert (tmp_path / begun).read_bytes() == kept


def test_other_shapes_or_backends_do_not_go_on(run: Run, tmp_path: Path) -> None:
    run(candidates())
    kept = (tmp_path / "timings.json").read_bytes()
    for shapes, backends in ((SHAPES[1:], ()), (SHAPES, ("torch_sdpa_math",))):
        found = find_candidates(MANIFEST, CPU, FACTS, shapes, backends=backends)
        with pytest.raises(PartError, match="another set of shapes or backends"):
            run(found, resume=True)
    assert (tmp_path / "timings.json").read_bytes() == kept


def test_what_runs_may_be_unreadable(run: Run, tmp_path: Path) -> None:
    (tmp_path / "timings.json.running").write_text('{"shape": 1}', "utf-8")
    with pytest.raises(PartError, match=r"timings\.json\.running holds no run: "):
        run(candidates(), resume=True)


def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "."):
        with pytest.raises(OSError, match="timings go to an ordinary file"):
            Keeper(tmp_path / name)


def test_time_is_up(run: Run, tmp_path: Path) -> None:
    results = run(candidates(), limit_s=-1)
    assert (results.measured, results.left) == ((), len(SHAPES))
    assert read_results(tmp_path / "timings.json") == results


def test_a_lost_device_ends_the_run_and_keeps_the_fault(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "_is_alive", lambda _: False)
    with pytest.raises(bench.DeviceLostError, match="the same command with --resume goes on"):
        run(candidates("fails"))
    monkeypatch.setattr(bench, "_is_alive", lambda _: True)
    first = run(candidates("fails"), resume=True).measured[0]
    assert first.timings[0].fault == "RuntimeError: an illegal address"
    assert len(first.times) == 2


def test_a_grid_says_what_the_library_prefers() -> None:
    grid: Grid = read_grid("h200")
    assert grid.defaults.keys() == set(Phase)
    assert all(name in MANIFEST.entries for order in grid.defaults.values() for name in order)
