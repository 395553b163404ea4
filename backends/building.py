"""Which kernels cases need, and building them before the first case, each in a process's care.

Adapters whose kernels are compiled on first use say which batches share one
(``adapter.kernel(batch)``, the smallest batch for which the same kernel is compiled). Each kernel
is built once, those first that most cases need; what a compiler refuses is refused for every case
that needs it, without asking again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol, TypeGuard

import msgspec

from backends.contract import Adapter, Batch
from backends.judging import CaseResult
from backends.registry import load_adapter
from backends.workers import Build, Built, Job, Loss, Run, Workers, count_cores
from selector.errors import AttnselError

__all__ = ["Kernel", "build_kernels", "compiles", "find_kernels"]

Kernel = tuple[str, Batch]
"""An adapter's path, and the smallest batch that needs what is compiled."""

_SPELLINGS = {"fp8": "fp8_e4m3"}
"""Names of one cache dtype."""


class Compiled(Adapter, Protocol):
    """An adapter whose kernels are compiled on first use."""

    def kernel(self, batch: Batch) -> Batch:
        """The smallest batch for which the same kernel is compiled."""
        ...


def compiles(adapter: Adapter) -> TypeGuard[Compiled]:
    """Whether an adapter's kernels are compiled on first use."""
    return callable(getattr(adapter, "kernel", None))


def find_kernels(runs: Iterable[Run]) -> dict[Run, Kernel]:
    """The kernel that each run needs, of adapters that compile theirs."""
    found: dict[Run, Kernel] = {}
    for run in runs:
        adapter = load_adapter(run.adapter)
        if not compiles(adapter):
            continue
        batch = run.case.batch
        cache = _SPELLINGS.get(batch.cache_dtype, batch.cache_dtype)
        same = "auto" if cache == batch.dtype else cache
        try:
            found[run] = run.adapter, adapter.kernel(msgspec.structs.replace(batch, kv_dtype=same))
        except AttnselError:  # such a batch cannot exist, which running it will say
            continue
    return found


def build_kernels(
    needed: dict[Run, Kernel],
    workers: Workers,
    build_until: float,
    until: float | None,
    on_note: Callable[[str], object],
) -> tuple[dict[Kernel, str], set[Kernel]]:
    """Builds kernels, as many side by side as half the cores can.

    Args:
        needed: by which runs.
        workers: say on which device, and how a process is started.
        build_until: when building ends, by ``time.monotonic``.
        until: when the whole run does.
        on_note: told in a line what went wrong.

    Returns:
        What a compiler refused, with its words; and what there was no time for.
    """
    kernels = [kernel for kernel, _ in Counter(needed.values()).most_common()]
    refused: dict[Kernel, str] = {}
    if not kernels:
        return refused, set()
    jobs = {Build(path, (batch,), workers.device): (path, batch) for path, batch in kernels}

    def hear(job: Job, became: CaseResult | Built | Loss) -> None:
        if not isinstance(job, Build):
            return
        if isinstance(became, Built) and became.refused:
            refused[jobs[job]] = became.refused
        elif isinstance(became, Built) and became.failed:
            on_note(f"building for {job.adapter}: {became.failed}")
        elif isinstance(became, Loss):
            on_note(f"building for {job.adapter}: {became}")

    builders = Workers(workers.device, max(1, count_cores() // 2), workers.command)
    on_note(f"building {len(kernels)} kernels, {builders.count} at a time")
    end = build_until if until is None else min(build_until, until)
    left = builders.answer(jobs, max(1.0, end - time.monotonic()), hear, end)
    if left:
        on_note(f"{len(left)} of {len(kernels)} kernels are not built: the time was over")
    return refused, {jobs[job] for job in left if isinstance(job, Build)}
