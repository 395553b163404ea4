"""Runs what a manifest claims and says which lines are wrong.

:mod:`backends.cases` makes the cases, :mod:`backends.judging` runs one and says what it means,
:mod:`backends.workers` runs them in processes of their own, :mod:`backends.certificate` is what
comes out. What a kernel did depends on no manifest, so a recorded run can be judged anew under
another (:func:`judge_runs`).

With workers, everything that the cases need is built first, side by side
(:meth:`backends.contract.Adapter.prepare`). A kernel that crashes or hangs ends its worker only:
the case is judged as a fault, and the next worker goes on with the next case.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from backends.building import Kernel, build_kernels, check_tools, find_kernel
from backends.cases import Case, Untested, find_cases
from backends.certificate import Certificate
from backends.judging import CaseResult, failed, judge_again, refusal, run_case
from backends.part import Head
from backends.registry import MissingAdapterError, adapter_path, load_adapter
from backends.workers import Built, Job, Loss, Run, Workers
from selector.evidence import NO_TIME, NOT_RUN, entry_digest
from selector.manifest import Manifest
from selector.values import Device, Facts

__all__ = ["Limits", "Runs", "certify", "find_runs", "judge_runs"]


class Limits(msgspec.Struct, frozen=True):
    """How long things may take, in seconds.

    Attributes:
        case_s: one case; longer, and it hangs.
        build_s: building all that the cases need; what needs more is untested.
        total_s: everything; what is left then is untested. ``None``: as long as it takes.
    """

    case_s: float = 120.0
    build_s: float = 1800.0
    total_s: float | None = None


class Runs(NamedTuple):
    """What is to be run.

    Attributes:
        cases: adapter path → the cases for it.
        untested: claims that no case covers.
        skipped: entries that do not run here, and why.
    """

    cases: dict[str, tuple[Case, ...]]
    untested: tuple[Untested, ...]
    skipped: dict[str, str]


def find_runs(
    manifest: Manifest,
    device: Device,
    facts: Facts,
    backends: Collection[str] = (),
    fields: Collection[str] = (),
    missing: Collection[str] = (),
) -> Runs:
    """The cases of every entry that has an adapter and is meant for this device.

    Args:
        manifest: whose claims.
        device: this machine's device (:func:`backends.probe.probe_device`), or its CPU.
        facts: what is installed (:func:`backends.probe.probe_facts`).
        backends: names of the entries; all when empty.
        fields: the fields varied, and codes of constraints; all when empty.
        missing: tools that kernels are compiled with and this machine lacks
            (:func:`backends.probe.find_missing_tools`).

    Raises:
        UnknownBackendError: a name is not in the manifest.
        UntrustedAdapterError: an entry's adapter is outside the trusted package.
    """
    for name in backends:
        manifest.entry(name)
    cases: dict[str, tuple[Case, ...]] = {}
    untested: list[Untested] = []
    skipped: dict[str, str] = {}
    for name in backends or manifest.entries:
        entry = manifest.entries[name]
        path = adapter_path(entry)
        if path is None:
            skipped[name] = "no adapter runs it"
            continue
        found = find_cases(manifest, entry, device, facts)
        if found.skipped:
            skipped[name] = found.skipped
            continue
        try:
            check_tools(load_adapter(path), missing)
        except MissingAdapterError as error:
            skipped[name] = str(error)
            continue
        wanted = tuple(case for case in found.cases if not fields or case.field in fields)
        untested += (left for left in found.untested if not fields or left.field in fields)
        if wanted:
            cases[path] = cases.get(path, ()) + wanted
        else:
            skipped[name] = "no case of it is asked for"
    return Runs(cases, tuple(untested), skipped)


def certify(
    manifest: Manifest,
    device: Device,
    facts: Facts,
    *,
    date: str,
    runs: Runs | None = None,
    done: Sequence[CaseResult] = (),
    seed: int = 0,
    workers: Workers | None = None,
    limits: Limits | None = None,
    repeat: str = "",
    on_note: Callable[[str], object] = lambda _: None,
    on_result: Callable[[CaseResult], object] = lambda _: None,
) -> Certificate:
    """Runs the claims of a manifest's entries.

    Args:
        manifest: whose claims.
        device: what they run on.
        facts: what is installed there.
        date: today, ISO 8601.
        runs: what to run; by default everything that :func:`find_runs` gives.
        done: results of an earlier run with the same manifest, device, facts and seed.
        seed: of the random inputs.
        workers: that run the cases; ``None``: this process does, and dies of a crash.
        limits: of time; by default those of :class:`Limits`. Without workers only the total holds.
        repeat: the command that does it again, for the evidence.
        on_note: told in a line what else happens.
        on_result: called after each case.

    Raises:
        WorkersError: no worker can be started.
        UnknownBackendError: see :func:`find_runs`, as below.
        UntrustedAdapterError: an entry's adapter is outside the trusted package.
    """
    limits = Limits() if limits is None else limits
    runs = find_runs(manifest, device, facts) if runs is None else runs
    known = {_key(result.case): result for result in done}
    jobs: list[Run] = []
    results: list[CaseResult] = []
    for path, cases in runs.cases.items():
        for case in cases:
            was = known.get(_key(case))
            if was is None:
                jobs.append(Run(path, case, torch_device(device), seed))
            else:
                results.append(msgspec.structs.replace(was, case=case))

    def keep(result: CaseResult) -> None:
        results.append(result)
        on_result(result)

    left = _run(jobs, workers, limits, keep, on_note)
    return Certificate(
        manifest=manifest.ref,
        device=device,
        facts=facts,
        date=date,
        seed=seed,
        results=_ordered(results, runs),
        untested=(*runs.untested, *_left_out((job.case for job in left), NO_TIME)),
        skipped=runs.skipped,
        entries=_digests(manifest, results),
        repeat=repeat,
    )


def judge_runs(
    manifest: Manifest,
    head: Head,
    recorded: Iterable[CaseResult],
    runs: Runs,
    *,
    today: str,
    repeat: str = "",
) -> Certificate:
    """Judges a recorded run under a manifest, running nothing.

    Args:
        manifest: whose claims.
        head: what was run: device, facts, seed and date are those of the evidence.
        recorded: what became of each case then; an entry's name and a batch are looked up.
        runs: the cases of the manifest on that device, with those facts.
        today: when this is done, ISO 8601.
        repeat: the command that runs it again.
    """
    known = {(ran.case.backend, ran.case.batch): ran for ran in recorded}
    results: list[CaseResult] = []
    left: list[Case] = []
    for path, cases in runs.cases.items():
        adapter = load_adapter(path)
        for case in cases:
            ran = known.get((case.backend, case.batch))
            if ran is None:
                left.append(case)
            else:
                results.append(judge_again(case, ran, adapter.tolerance(case.batch.dtype)))
    return Certificate(
        manifest=manifest.ref,
        device=head.device,
        facts=Facts(MappingProxyType(head.facts)),
        date=head.date,
        seed=head.seed,
        results=tuple(results),
        untested=(*runs.untested, *_left_out(left, NOT_RUN)),
        skipped=runs.skipped,
        entries=_digests(manifest, results),
        repeat=repeat,
        judged={"date": today, "digest": head.digest},
    )


def _left_out(cases: Iterable[Case], why: str) -> list[Untested]:
    """The claims behind cases that were not run."""
    left = (Untested(case.backend, case.phase, case.field, case.claim, why) for case in cases)
    return sorted(dict.fromkeys(left), key=lambda one: (one.claim, one.phase))


def _digests(manifest: Manifest, results: Iterable[CaseResult]) -> dict[str, str]:
    ran = dict.fromkeys(result.case.backend for result in results)
    return {name: entry_digest(manifest.entries[name]) for name in ran}


def torch_device(device: Device) -> str:
    """The device in torch's words, in which ROCm is a kind of CUDA."""
    return {"rocm": "cuda"}.get(device.platform, device.platform)


def _key(case: Case) -> tuple[object, ...]:
    return case.backend, case.phase, case.field, case.value, case.accepts, case.batch


def _ordered(results: list[CaseResult], runs: Runs) -> tuple[CaseResult, ...]:
    """Results in order of their cases, whichever worker was first."""
    every = (case for cases in runs.cases.values() for case in cases)
    place = {_key(case): index for index, case in enumerate(every)}
    return tuple(sorted(results, key=lambda result: place[_key(result.case)]))


def _run(
    cases: list[Run],
    workers: Workers | None,
    limits: Limits,
    keep: Callable[[CaseResult], object],
    on_note: Callable[[str], object],
) -> list[Run]:
    """Runs cases; gives those that were not run."""
    until = None if limits.total_s is None else time.monotonic() + limits.total_s
    if workers is None:
        for index, job in enumerate(cases):
            if until is not None and time.monotonic() >= until:
                return cases[index:]
            keep(run_case(load_adapter(job.adapter), job.case, job.device, job.seed))
        return []

    def hear(job: Job, became: CaseResult | Built | Loss) -> None:
        if isinstance(job, Run) and isinstance(became, CaseResult):
            keep(became)
        elif isinstance(job, Run):
            keep(failed(job.case, str(became)))

    found = {j: find_kernel(j.adapter, load_adapter(j.adapter), j.case.batch) for j in cases}
    needed = {job: kernel for job, kernel in found.items() if kernel is not None}
    ready: set[Kernel] = set()
    refused: dict[Kernel, str] = {}
    build_until = time.monotonic() + limits.build_s
    left: list[Job] = []
    for accepted in (True, False):  # what is claimed first, with its kernels
        asked = [job for job in cases if job.case.accepts is accepted]
        kernels = [needed[job] for job in asked if job in needed and needed[job] not in ready]
        end = build_until if until is None else min(build_until, until)
        builds = build_kernels(kernels, workers, max(1.0, end - time.monotonic()), on_note, end)
        unbuilt = builds.left
        refused |= builds.refused
        ready |= {*kernels} - unbuilt
        for job in asked:
            if needed.get(job) in refused:
                keep(refusal(job.case, refused[needed[job]]))
        # a compiler within a case would look like a kernel that hangs
        left += [job for job in asked if needed.get(job) in unbuilt]
        asked = [job for job in asked if needed.get(job) not in unbuilt | refused.keys()]
        left += workers.answer(asked, limits.case_s, hear, until)
    return [job for job in left if isinstance(job, Run)]
