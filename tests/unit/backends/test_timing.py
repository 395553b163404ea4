"""Timing: enough runs, in the right unit, on inputs that are what the contract says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

from backends import timing
from backends.contract import Batch, MlaShape, relative_error
from backends.reference import attend
from backends.timing import FEWEST, LEAST, MOST, draw_inputs, sample_rows, time_plan, time_run
from backends.torch_sdpa import math

torch = pytest.importorskip("torch")


def clock(monkeypatch: pytest.MonkeyPatch, step_s: Callable[[int], float]) -> None:
    """A clock that moves on by a step whenever it is read."""

    def read() -> Iterator[float]:
        now = 0.0
        for turn in count():
            now += step_s(turn)
            yield now

    ticks = read()
    monkeypatch.setattr(timing, "perf_counter", lambda: next(ticks))


def test_steady_times_end_after_ten_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, lambda _: 1e-6)
    ran: list[int] = []
    found = time_run(lambda: ran.append(1), "cpu", budget_s=1)
    assert found.median_us == pytest.approx(1.0)
    assert found.p10_us == pytest.approx(1.0)
    assert LEAST <= found.repetitions <= LEAST + FEWEST
    assert len(ran) == found.repetitions + 2  # to warm up


def test_a_slow_run_is_timed_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, lambda _: 1.0)
    assert time_run(lambda: None, "cpu", budget_s=0.5).repetitions == FEWEST


def test_unsteady_times_are_taken_until_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    clock(monkeypatch, lambda turn: 1e-6 * (1 + turn // 2 % 2))
    found = time_run(lambda: None, "cpu", budget_s=1)
    assert MOST <= found.repetitions < MOST + LEAST
    assert found.p10_us < found.p90_us


def test_planning_is_timed_apart_and_not_the_first_time(
    make_batch: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock(monkeypatch, lambda _: 1e-3)
    plan, plan_us = time_plan(math, make_batch(), "cpu")
    assert plan.batch == make_batch()
    assert plan_us == pytest.approx(1000)


def test_drawn_inputs_are_a_cache(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch()
    given = draw_inputs(batch, "cpu", seed=3)
    pages = [-(-seq_len // batch.page_size) for seq_len in batch.seq_lens]
    named = [
        int(page) for row, n in zip(given.kv.page_table, pages, strict=True) for page in row[:n]
    ]
    assert sorted(named) == [*range(sum(pages))]  # each page once
    assert named != sorted(named)
    out = math.plan(batch, "cpu").run(given.q, given.kv, None)
    assert relative_error(out, attend(batch, given.q, given.kv, None)) < 1e-5
    again = draw_inputs(batch, "cpu", seed=3)
    assert torch.equal(again.q, given.q)
    assert not torch.equal(draw_inputs(batch, "cpu", seed=4).q, given.q)


LATENT: dict[str, Any] = {
    "num_heads": 4,
    "num_kv_heads": 1,
    "head_size": 24,
    "v_head_size": 16,
    "mla": MlaShape(16, 8, 8, 8),
    "path": "mqa",
}


def test_values_of_a_latent_are_its_keys(make_batch: Callable[..., Batch]) -> None:
    given = draw_inputs(make_batch(**LATENT), "cpu")
    assert given.kv.v_pages.data_ptr() == given.kv.k_pages.data_ptr()
    assert given.kv.v_pages.shape[-1] == 16


def test_listed_positions_are_seen_once_each(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch(**LATENT, topk=8)
    indices = draw_inputs(batch, "cpu").indices
    assert indices is not None
    assert indices.dtype == torch.int32
    for rows, seq_len in zip(batch.query_rows(), batch.seq_lens, strict=True):
        for row in range(rows.start, rows.stop):
            seen = seq_len - (rows.stop - 1 - row)
            listed = [int(at) for at in indices[row] if at >= 0]
            assert len(set(listed)) == len(listed) == min(seen, 8)
            assert 0 <= min(listed) <= max(listed) < seen


def test_rows_are_spread_over_all_and_copied(make_batch: Callable[..., Batch]) -> None:
    out = torch.arange(1000.0).reshape(1000, 1, 1)
    rows = sample_rows(out, 5)
    assert rows.flatten().tolist() == [0, 250, 500, 749, 999]
    out.zero_()
    assert rows[-1] == 999
    assert len(sample_rows(out[:3], 5)) == 3


def test_a_method_is_said_for_each_kind_of_device() -> None:
    assert timing.METHOD.keys() == {"cpu", "cuda"}
    assert msgspec.json.encode(timing.METHOD)
