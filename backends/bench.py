"""Times every candidate of a manifest over the shapes of a grid.

Which entries are candidates for a shape is asked of the selector: each is judged alone, without
policy. All candidates of a shape run on the same inputs, one after another; their outputs are
compared with each other, which is no proof that they are right (that is what certification is for)
but shows when a time is that of some other computation.

What was measured is kept as it comes (:mod:`backends.keeper`), so a kernel that takes the process
with it loses nothing but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from backends.batches import make_batch
from backends.building import Kernel, build_kernels, check_tools, find_kernel
from backends.certify import torch_device
from backends.contract import (
    Adapter,
    Batch,
    RefusedError,
    first_line,
    named_line,
    relative_error,
)
from backends.inputs import run_plan
from backends.keeper import Keeper
from backends.part import Head
from backends.registry import MissingAdapterError, adapter_path, load_adapter
from backends.shapes import Grid
from backends.timing import METHOD, draw_inputs, sample_rows, time_plan, time_run
from backends.workers import Workers
from selector.binding import Bound, Selector
from selector.errors import AttnselError
from selector.manifest import Manifest
from selector.report.wording import rejection_words
from selector.tuning.results import VERSION, Measured, Results, Runner, Shape, Timing
from selector.values import Device, Facts, Outcome, Phase

if TYPE_CHECKING:
    import torch

    from backends.inputs import Inputs

__all__ = ["Candidates", "DeviceLostError", "find_candidates", "measure"]

AGREE = 3e-2
"""Relative error up to which two outputs are the same."""

BUILD_S = 600.0
"""How long one kernel may take to compile."""


class DeviceLostError(AttnselError, RuntimeError):
    """A fault left the device unusable for this process. What was measured is kept."""

    code = "DEVICE_LOST"


class Candidates(msgspec.Struct, frozen=True):
    """What runs which shape.

    Attributes:
        adapters: candidate → what runs it.
        paths: candidate → where its adapter is imported from.
        batches: shape → candidate → what is asked of its kernel.
        not_run: entry → why it is no candidate for any shape.
    """

    adapters: Mapping[str, Adapter]
    paths: Mapping[str, str]
    batches: Mapping[Shape, Mapping[str, Batch]]
    not_run: dict[str, str]


def find_candidates(
    manifest: Manifest,
    device: Device,
    facts: Facts,
    shapes: Sequence[Shape],
    *,
    backends: Collection[str] = (),
    paged_only: bool = False,
    missing: Collection[str] = (),
) -> Candidates:
    """The entries that accept a shape and have an adapter.

    Args:
        manifest: whose entries.
        device: where they would run.
        facts: what is installed.
        shapes: what they would run.
        backends: names to choose from; all when empty.
        paged_only: leave out what copies K and V out of their pages.
        missing: tools that kernels are compiled with and this machine lacks
            (:func:`backends.probe.find_missing_tools`).

    Raises:
        UnknownBackendError: a name is not in the manifest.
        UntrustedAdapterError: an entry's adapter is outside the trusted package.
    """
    for name in backends:
        manifest.entry(name)
    selector = Selector(msgspec.structs.replace(manifest, deny=()))
    bounds = {shape: selector.bind(device, shape.layer, facts) for shape in shapes}
    adapters: dict[str, Adapter] = {}
    paths: dict[str, str] = {}
    batches: dict[Shape, dict[str, Batch]] = {shape: {} for shape in shapes}
    not_run: dict[str, str] = {}
    for name in backends or manifest.entries:
        asked, not_run[name] = _accepted(bounds, name)
        if not asked:
            continue
        path = adapter_path(manifest.entry(name))
        if path is None:
            not_run[name] = "no adapter runs it"
            continue
        try:
            adapter = load_adapter(path)
            check_tools(adapter, missing)
        except MissingAdapterError as error:
            not_run[name] = str(error)
            continue
        if paged_only and not adapter.reads_pages:
            not_run[name] = "copies K and V out of their pages"
            continue
        del not_run[name]
        adapters[name], paths[name] = adapter, path
        for shape, batch in asked.items():
            batches[shape][name] = batch
    return Candidates(adapters, paths, batches, not_run)


def _accepted(bounds: Mapping[Shape, Bound], name: str) -> tuple[dict[Shape, Batch], str]:
    """The shapes that an entry accepts; else why it refused one, of a phase it serves if any."""
    found: dict[Shape, Batch] = {}
    said: dict[bool, str] = {}
    for shape, bound in bounds.items():
        verdict = bound.judge(name, shape.request)[shape.phase]
        if verdict.outcome in (Outcome.ELIGIBLE, Outcome.CONDITIONAL):
            found[shape] = _batch(bound, name, shape)
        else:
            serves = shape.phase in bound.manifest.entry(name).phases
            said.setdefault(serves, rejection_words(verdict.rejections[0]))
    return found, said.get(True) or said.get(False) or "the grid has no shapes"


def _batch(bound: Bound, name: str, shape: Shape) -> Batch:
    """What an entry makes of a shape."""
    request = shape.request
    path = "" if shape.mla is None else "mqa"
    if shape.mla is not None and shape.phase is Phase.PREFILL:
        path = bound.routes([request], name)[0].path.path or path
    asked = bound.manifest.entry(name).coerced(bound.asked(request))
    return make_batch(asked, [*zip(shape.query_lens, shape.seq_lens, strict=True)], path)


def measure(
    manifest: Manifest,
    device: Device,
    facts: Facts,
    grid: Grid,
    candidates: Candidates,
    keeper: Keeper,
    *,
    date: str,
    command: str = "",
    seed: int = 0,
    limit_s: float | None = None,
    on_note: Callable[[str], object] = lambda words: None,
    on_shape: Callable[[int, Shape], object] = lambda done, shape: None,
) -> Results:
    """Times the candidates of every shape.

    Args:
        manifest: who was asked for candidates.
        device: this machine's.
        facts: what is installed.
        grid: where the shapes come from.
        candidates: what to time.
        keeper: keeps what was measured, and what a run before this one did.
        date: now, ISO 8601.
        command: how to repeat.
        seed: of the inputs.
        limit_s: after this long no other shape is begun.
        on_note: told in a line what takes long.
        on_shape: called before each shape, for progress.

    Raises:
        DeviceLostError: a fault left the device unusable; the fault is kept.
        PartError: the run before this one was another.
    """
    where = torch_device(device)
    head = Head(manifest.ref.digest, device, dict(facts.values), seed, date[:10])
    known = keeper.take_up(head, candidates.batches)
    wanted = [shape for shape, batches in candidates.batches.items() if batches]
    open_ = [shape for shape in wanted if shape not in known]
    results = Results(
        version=VERSION,
        date=date,
        device=device,
        facts=dict(facts.values),
        manifest=msgspec.structs.replace(manifest.ref, file=Path(manifest.ref.file).name),
        grid=grid.grid,
        seed=seed,
        command=command,
        method=METHOD["cpu" if where == "cpu" else "cuda"],
        runners={name: Runner(a.reads_pages) for name, a in candidates.adapters.items()},
        not_run=candidates.not_run,
        defaults=grid.defaults,
        measured=tuple(known[shape] for shape in wanted if shape in known),
        left=len(open_),
    )
    unbuilt = _build(candidates, open_, where, on_note)
    end = None if limit_s is None else monotonic() + limit_s
    for done, shape in enumerate(open_):
        if end is not None and monotonic() > end:
            break
        on_shape(done, shape)
        timings = _time_shape(candidates, shape, where, seed, keeper, unbuilt)
        measured = (*results.measured, Measured(shape, timings))
        results = msgspec.structs.replace(results, measured=measured, left=len(open_) - done - 1)
        keeper.keep(results)
    if not results.measured:
        keeper.keep(results)  # a file that says so
    return results


def _build(
    candidates: Candidates,
    shapes: Sequence[Shape],
    device: str,
    on_note: Callable[[str], object],
) -> dict[Batch, dict[str, str]]:
    """Compiles what the shapes need.

    Returns:
        Batch → candidate → why its kernel cannot be built, for those that cannot.
    """
    needed: list[tuple[Kernel, str, Batch]] = []
    for shape in shapes:
        for name, batch in candidates.batches[shape].items():
            kernel = find_kernel(candidates.paths[name], candidates.adapters[name], batch)
            if kernel is not None:
                needed.append((kernel, name, batch))
    builds = build_kernels((kernel for kernel, *_ in needed), Workers(device), BUILD_S, on_note)
    why = builds.refused | builds.lost
    failed: dict[Batch, dict[str, str]] = {}
    for kernel, name, batch in needed:
        if kernel in why:
            failed.setdefault(batch, {})[name] = f"its kernel is not built: {why[kernel]}"
    return failed


def _time_shape(
    candidates: Candidates,
    shape: Shape,
    device: str,
    seed: int,
    keeper: Keeper,
    unbuilt: Mapping[Batch, Mapping[str, str]],
) -> tuple[Timing, ...]:
    """The time of every candidate for a shape."""
    timings = keeper.begun(shape)
    outputs: dict[str, tuple[Batch, torch.Tensor]] = {}
    drawn: tuple[Batch, Inputs] | None = None
    done = {timing.candidate for timing in timings}
    for name, batch in candidates.batches[shape].items():
        if name in done:
            continue
        if why := unbuilt.get(batch, {}).get(name):
            timings = (*timings, Timing(candidate=name, refused=why))
            continue
        keeper.note(shape, timings, name)
        try:
            if drawn is None or drawn[0] != batch:
                drawn = None  # frees the memory first
                drawn = (batch, draw_inputs(batch, device, seed))
            timing, rows = _time_one(name, candidates.adapters[name], batch, drawn[1], device)
            outputs[name] = (batch, rows)
        except RefusedError as error:
            timing = Timing(candidate=name, refused=_short(first_line(error)))
        except Exception as error:  # whatever a kernel does is no reason to lose the others
            timing = Timing(candidate=name, fault=_short(named_line(error)))
            drawn = None
        timings = (*timings, timing)
        if timing.fault and not _is_alive(device):
            keeper.note(shape, timings, "")
            raise DeviceLostError(
                f"the device is lost after {name}, {shape}: {timing.fault}; "
                "the same command with --resume goes on behind it"
            )
    return _compared(timings, outputs)


def _time_one(
    name: str, adapter: Adapter, batch: Batch, inputs: Inputs, device: str
) -> tuple[Timing, torch.Tensor]:
    """The time of one candidate, and some rows of its first output."""
    plan, plan_us = time_plan(adapter, batch, device)
    rows = sample_rows(run_plan(plan, inputs))
    times = time_run(lambda: run_plan(plan, inputs), device)
    return Timing(
        candidate=name,
        median_us=round(times.median_us, 2),
        p10_us=round(times.p10_us, 2),
        p90_us=round(times.p90_us, 2),
        repetitions=times.repetitions,
        plan_us=round(plan_us, 1),
    ), rows


def _compared(
    timings: tuple[Timing, ...], outputs: Mapping[str, tuple[Batch, torch.Tensor]]
) -> tuple[Timing, ...]:
    """The timings, each with the candidates whose output is another one."""

    def others(name: str) -> tuple[str, ...]:
        if name not in outputs:
            return ()
        batch, rows = outputs[name]
        return tuple(
            other
            for other, (asked, theirs) in outputs.items()
            if other != name and asked == batch and relative_error(theirs, rows) > AGREE
        )

    return tuple(msgspec.structs.replace(t, disagrees_with=others(t.candidate)) for t in timings)


def _is_alive(device: str) -> bool:
    """Whether the device still works for this process; frees what the fault left behind."""
    if device == "cpu":
        return True
    import torch

    try:
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
        torch.zeros(1, device=device).item()
    except Exception:
        return False
    return True


def _short(words: str) -> str:
    return " ".join(words.split())[:300]
