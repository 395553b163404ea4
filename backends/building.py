"""Which kernels batches need, and building them before anything runs, each in a process's care.

Adapters whose kernels are compiled on first use say which batches share one
(``adapter.kernel(batch)``, the smallest batch for which the same kernel is compiled). Each kernel
is built once, those first that most batches need; what a compiler refuses is refused for every
batch that needs it, without asking again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol, TypeGuard

import msgspec

from backends.contract import Adapter, Batch
from backends.judging import CaseResult
from backends.registry import MissingAdapterError
from backends.workers import Build, Built, Job, Loss, Workers, count_cores
from selector.errors import AttnselError

__all__ = ["Builds", "Kernel", "build_kernels", "check_tools", "compiles", "find_kernel"]

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


def check_tools(adapter: Adapter, missing: Collection[str]) -> None:
    """Holds that what compiles an adapter's kernels is here.

    Args:
        adapter: any.
        missing: tools that this machine lacks (:func:`backends.probe.find_missing_tools`).

    Raises:
        MissingAdapterError: it cannot compile here, so it is as good as not there.
    """
    if missing and compiles(adapter):
        tools = " and ".join(missing)
        raise MissingAdapterError(f"no {tools} here, and its kernels are compiled on first use")


def find_kernel(path: str, adapter: Adapter, batch: Batch) -> Kernel | None:
    """The kernel that a batch needs, if it is one that is compiled on first use.

    Args:
        path: where the adapter is imported from.
        adapter: what runs the batch.
        batch: any.
    """
    if not compiles(adapter):
        return None
    cache = _SPELLINGS.get(batch.cache_dtype, batch.cache_dtype)
    same = "auto" if cache == batch.dtype else cache
    try:
        return path, adapter.kernel(msgspec.structs.replace(batch, kv_dtype=same))
    except AttnselError:  # such a batch cannot exist, which running it will say
        return None


class Builds(NamedTuple):
    """What did not become a kernel.

    Attributes:
        refused: what a compiler refused, with its words.
        lost: what a process died of, with how.
        left: what there was no time for.
    """

    refused: dict[Kernel, str]
    lost: dict[Kernel, str]
    left: set[Kernel]


def build_kernels(
    needed: Iterable[Kernel],
    workers: Workers,
    limit_s: float,
    on_note: Callable[[str], object],
    until: float | None = None,
) -> Builds:
    """Builds kernels, as many side by side as half the cores can.

    Args:
        needed: each as often as something needs it.
        workers: say on which device, and how a process is started.
        limit_s: how long one kernel may take.
        on_note: told in a line what takes long and what went wrong.
        until: when building ends, by ``time.monotonic``.
    """
    kernels = [kernel for kernel, _ in Counter(needed).most_common()]
    builds = Builds({}, {}, set())
    if not kernels:
        return builds
    jobs: dict[Job, Kernel] = {Build(path, (b,), workers.device): (path, b) for path, b in kernels}

    def hear(job: Job, became: CaseResult | Built | Loss) -> None:
        if isinstance(became, Loss):
            builds.lost[jobs[job]] = str(became)
            on_note(f"building for {job.adapter}: {became}")
        elif isinstance(became, Built) and became.refused:
            builds.refused[jobs[job]] = became.refused
        elif isinstance(became, Built) and became.failed:
            on_note(f"building for {job.adapter}: {became.failed}")

    builders = Workers(workers.device, max(1, count_cores() // 2), workers.command)
    on_note(f"building {len(kernels)} kernels, {builders.count} at a time, where not yet built")
    builds.left.update(jobs[job] for job in builders.answer(jobs, limit_s, hear, until))
    if builds.left:
        on_note(f"{len(builds.left)} of {len(kernels)} kernels are not built: the time was over")
    return builds
