"""How long a planned batch takes on a device.

On CUDA a time is that between two events around :meth:`backends.contract.Plan.run`. Before each run
a buffer larger than the L2 cache is overwritten, so inputs come from memory, as they do in a model
whose other layers ran in between; it is overwritten as often as it takes for all launches of the
run to be queued meanwhile, so no time of the CPU is in the figure. On a CPU a time is
``perf_counter`` around the run, and caches are left as they are.

Making a batch ready (``plan``) is timed apart, on the CPU's clock, since an engine does it once for
all layers of a step.
"""

from __future__ import annotations

import math
from statistics import quantiles
from time import perf_counter
from typing import TYPE_CHECKING

import msgspec

from backends.contract import Adapter, Batch, PagedKV, Plan, torch_dtype
from backends.inputs import Inputs

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

__all__ = ["METHOD", "Times", "draw_inputs", "sample_rows", "time_plan", "time_run"]

FLUSH_BYTES = 256 * 2**20
"""Overwritten before each run; no GPU has an L2 cache of this size."""

LEAST, FEWEST, MOST = 10, 3, 100
"""Runs timed: at least ten, or three where the time is up; then until stable."""

STABLE = 0.05
"""Times are stable when a tenth and nine tenths of them are this close, relative to the median."""

METHOD = {
    "cuda": (
        "Median of times between CUDA events around Plan.run alone; before each run a buffer of "
        "256 MiB is overwritten, and all launches are queued behind it. plan_us: Plan made ready, "
        "median of 3, on the CPU's clock."
    ),
    "cpu": (
        "Median of perf_counter around Plan.run; caches are left as they are. plan_us: Plan made "
        "ready, median of 3."
    ),
}
"""Kind of device → how a time is taken there."""


class Times(msgspec.Struct, frozen=True):
    """Times of one run, in microseconds, and how many runs they are of."""

    median_us: float
    p10_us: float
    p90_us: float
    repetitions: int


def draw_inputs(batch: Batch, device: str, seed: int = 0) -> Inputs:
    """Inputs drawn on the device itself: gigabytes of cache in milliseconds.

    Unlike those of :func:`backends.inputs.make_inputs`, their values depend on the device, and
    slots past a request's last token hold ordinary values.
    """
    import torch

    draw = torch.Generator(device).manual_seed(seed)

    def normal(*shape: int, dtype: str) -> torch.Tensor:
        kind = torch_dtype(dtype)
        drawn = kind if kind.itemsize > 1 else torch.float16
        return torch.randn(*shape, generator=draw, device=device, dtype=drawn).to(kind)

    counts = [-(-seq_len // batch.page_size) for seq_len in batch.seq_lens]
    order = torch.randperm(sum(counts), generator=draw, device=device).to(torch.int32)
    table = torch.zeros(len(counts), max(counts), dtype=torch.int32, device=device)
    at = 0
    for request, count in enumerate(counts):
        table[request, :count] = order[at : at + count]
        at += count
    slots = (sum(counts), batch.page_size, batch.num_kv_heads)
    k_pages = normal(*slots, batch.head_size, dtype=batch.cache_dtype)
    v_pages = (
        k_pages[..., : batch.v_head_size]
        if batch.latent
        else normal(*slots, batch.v_head_size, dtype=batch.cache_dtype)
    )
    q = normal(sum(batch.query_lens), batch.num_heads, batch.head_size, dtype=batch.dtype)
    sinks = normal(batch.num_heads, dtype="float32") if batch.sinks else None
    lengths = torch.tensor(batch.seq_lens, dtype=torch.int32, device=device)
    indices = None if batch.topk is None else _draw_indices(batch, batch.topk, draw)
    return Inputs(q, PagedKV(k_pages, v_pages, table, lengths), sinks, indices)


def _draw_indices(batch: Batch, topk: int, draw: torch.Generator) -> torch.Tensor:
    """For each query, positions at equal distances over all that it may see, ``topk`` of them.

    A query that may see no more than ``topk`` gets all of them, then -1.
    """
    import torch

    rows = []
    where = torch.arange(topk, device=draw.device)
    for query_len, seq_len in zip(batch.query_lens, batch.seq_lens, strict=True):
        seen = torch.arange(seq_len - query_len + 1, seq_len + 1, device=draw.device)[:, None]
        shift = torch.rand(query_len, 1, generator=draw, device=draw.device, dtype=torch.float64)
        spread = ((where + shift) * (seen / topk)).long().clamp(max=seq_len - 1)
        spread = torch.minimum(spread, seen - 1)
        all_seen = torch.where(where < seen, where, -1)
        rows.append(torch.where(seen > topk, spread, all_seen).to(torch.int32))
    return torch.cat(rows)


def sample_rows(out: torch.Tensor, most: int = 128) -> torch.Tensor:
    """Rows of an output, evenly spread, first and last among them; a copy."""
    import torch

    rows = torch.linspace(0, len(out) - 1, min(most, len(out)), device=out.device).round().long()
    return out[rows].clone()


def time_plan(adapter: Adapter, batch: Batch, device: str) -> tuple[Plan, float]:
    """A batch made ready, and the median time of that in microseconds.

    The first time is left out: it compiles, loads, and allocates.
    """
    plan = adapter.plan(batch, device)
    times = []
    for _ in range(3):
        _wait(device)
        begin = perf_counter()
        plan = adapter.plan(batch, device)
        _wait(device)
        times.append(1e6 * (perf_counter() - begin))
    return plan, sorted(times)[1]


def time_run(run: Callable[[], object], device: str, budget_s: float = 0.15) -> Times:
    """The times of a run that has been made once already, after two more to warm up.

    Args:
        run: what to time.
        device: ``cpu``, or a CUDA device.
        budget_s: after this long no more runs are begun than the fewest.
    """
    for _ in range(2):
        run()
    _wait(device)
    timed = _timed_on_cpu if device == "cpu" else _timed_on_cuda(run, device)
    end = perf_counter() + budget_s
    times: list[float] = []
    while len(times) < MOST:
        times += timed(run, 1 if len(times) < FEWEST else LEAST)
        enough = len(times) >= LEAST and _spread(times) < STABLE
        if enough or (len(times) >= FEWEST and perf_counter() > end):
            break
    p10, median, p90 = _tenths(times)
    return Times(median, p10, p90, len(times))


def _tenths(times: list[float]) -> tuple[float, float, float]:
    """The first, the middle and the last tenth."""
    tenths = quantiles(times, n=10, method="inclusive")
    return tenths[0], tenths[4], tenths[8]


def _spread(times: list[float]) -> float:
    p10, median, p90 = _tenths(times)
    return (p90 - p10) / median


def _timed_on_cpu(run: Callable[[], object], count: int) -> list[float]:
    times = []
    for _ in range(count):
        begin = perf_counter()
        run()
        times.append(1e6 * (perf_counter() - begin))
    return times


def _timed_on_cuda(
    run: Callable[[], object], device: str
) -> Callable[[Callable[[], object], int], list[float]]:
    """Times runs between events, behind as much other work as hides the launches of this one."""
    import torch

    buffer = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    overwrite_us = min(_enqueue_and_run(buffer.zero_, device)[1] for _ in range(3))
    launch_us = max(_enqueue_and_run(run, device)[0] for _ in range(2))
    overwrites = min(2000, math.ceil(1.5 * launch_us / overwrite_us) + 1)

    def timed(run: Callable[[], object], count: int) -> list[float]:
        pairs = []
        for _ in range(count):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(overwrites):
                buffer.zero_()
            begin.record()
            run()
            end.record()
            pairs.append((begin, end))
        torch.cuda.synchronize(device)
        return [1e3 * begin.elapsed_time(end) for begin, end in pairs]

    return timed


def _enqueue_and_run(call: Callable[[], object], device: str) -> tuple[float, float]:
    """The time of a call on the CPU, and that until the device is done, in microseconds."""
    _wait(device)
    begin = perf_counter()
    call()
    called = perf_counter()
    _wait(device)
    return 1e6 * (called - begin), 1e6 * (perf_counter() - begin)


def _wait(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize(device)
