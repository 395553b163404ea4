"""Runs what a manifest claims and says which lines are wrong.

:mod:`backends.cases` makes the cases. A case runs in three steps: the adapter plans and runs the
batch on random inputs; the float64 reference computes what should have come out of the same
inputs; the two are compared by :func:`backends.contract.relative_error` with the tolerance declared
beside the adapter.

===============  ===================  =======================  ========================
the entry says   the kernel refuses   runs and is right        runs and is wrong
===============  ===================  =======================  ========================
accepted         ``OVER_CLAIM``       ``CONFIRMED``            ``WRONG_RESULT``
refused          ``CONFIRMED``        ``UNDER_CLAIM``          ``SILENTLY_WRONG``
refused, with    ``CONFIRMED``        ``DECLINED``             ``SILENTLY_WRONG``
a reason
===============  ===================  =======================  ========================

* ``WRONG_RESULT`` and ``OVER_CLAIM``: the claim is wrong. A user would get garbage, or a crash.
* ``UNDER_CLAIM``: the claim is wrong. A user is kept from a kernel that works. Where the manifest
  gives a ``reason`` for the rule that refuses, it is a decision and no error: ``DECLINED``.
* ``SILENTLY_WRONG``: the claim is right, and all that stands between a user and garbage: the
  kernel takes the request without a word. Reported first, and no reason to fail; correcting the
  manifest could only make it worse.

An error other than a refusal counts as a wrong result: a fault inside a kernel is no refusal. What
could not be judged (no memory, a feature without a definition in the reference) is ``UNJUDGED``.

The **evidence** names everything that a claim of "it was run" rests on: the device, the versions,
the manifest's digest, the date, and for each case the line and column of the claim, the field and
value varied, the shapes, the seed, the error seen and the error allowed. ``untested`` lists the
claims that were not run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import StrEnum
from math import isfinite
from typing import Any

import msgspec

from backends.cases import Case, Untested, find_cases
from backends.contract import Adapter, RefusedError, relative_error
from backends.registry import ADAPTERS, MissingAdapterError, load_adapter
from selector.manifest import Manifest
from selector.values import Device, Facts, Finding, ManifestRef, Position, Severity

__all__ = ["CaseResult", "Certificate", "Judgement", "certify", "run_case"]


class Judgement(StrEnum):
    """What a case says of the claim behind it."""

    CONFIRMED = "confirmed"
    OVER_CLAIM = "over_claim"
    UNDER_CLAIM = "under_claim"
    DECLINED = "declined"
    WRONG_RESULT = "wrong_result"
    SILENTLY_WRONG = "silently_wrong"
    UNJUDGED = "unjudged"


WRONG_CLAIMS = frozenset({Judgement.OVER_CLAIM, Judgement.UNDER_CLAIM, Judgement.WRONG_RESULT})
"""Judgements that make certification fail."""


class CaseResult(msgspec.Struct, frozen=True):
    """What became of a case.

    Attributes:
        case: what was asked, and what the entry says to it.
        judgement: what that means for the claim.
        error: the relative error of the output; ``None`` when there is none to measure.
        tolerance: the error allowed.
        message: why there is none: the refusal, or the fault.
    """

    case: Case
    judgement: Judgement
    error: float | None = None
    tolerance: float | None = None
    message: str = ""


class Certificate(msgspec.Struct, frozen=True):
    """The evidence of one certification.

    Attributes:
        manifest: which manifest, with the digest of its meaning.
        device: what the cases ran on.
        facts: what was installed there; a version that is missing could not be found out.
        date: when, ISO 8601.
        seed: of the random inputs.
        results: every case that ran.
        untested: claims that no case covers.
        skipped: entries that do not run here, and why.
    """

    manifest: ManifestRef
    device: Device
    facts: Facts
    date: str
    seed: int
    results: tuple[CaseResult, ...]
    untested: tuple[Untested, ...]
    skipped: dict[str, str]

    @property
    def id(self) -> str:
        """What an entry's ``verified_on`` calls this evidence."""
        where = self.device.capability or self.device.platform
        return f"{where}-{self.date[:10]}-{self.manifest.digest[:8]}"

    @property
    def passed(self) -> bool:
        """Whether something ran and no claim is wrong."""
        return bool(self.results) and not any(r.judgement in WRONG_CLAIMS for r in self.results)

    def evidence(self) -> dict[str, Any]:
        """The certificate as plain JSON values."""
        return {
            "id": self.id,
            "date": self.date,
            "manifest": msgspec.to_builtins(self.manifest),
            "device": msgspec.to_builtins(self.device),
            "facts": dict(self.facts.values),
            "seed": self.seed,
            "passed": self.passed,
            "cases": [_record(result) for result in self.results],
            "untested": [
                {
                    "backend": left.backend,
                    "phase": left.phase.value,
                    "field": left.field,
                    "line": left.claim.line,
                    "column": left.claim.column,
                    "why": left.why,
                }
                for left in self.untested
            ],
            "skipped": self.skipped,
        }

    def findings(self) -> tuple[Finding, ...]:
        """What is wrong, worst first; one finding for each line and kind of trouble."""
        groups: dict[tuple[Judgement, Position], list[CaseResult]] = {}
        for result in self.results:
            if result.judgement is not Judgement.CONFIRMED:
                groups.setdefault((result.judgement, result.case.claim), []).append(result)
        ordered = sorted(groups.items(), key=lambda g: (_ORDER.index(g[0][0]), g[0][1]))
        return tuple(_finding(kind, claim, results) for (kind, claim), results in ordered)


def _record(result: CaseResult) -> dict[str, Any]:
    case = result.case
    record: dict[str, Any] = {
        "backend": case.backend,
        "phase": case.phase.value,
        "field": case.field,
        "value": case.value,
        "line": case.claim.line,
        "column": case.claim.column,
        "accepts": case.accepts,
        "judgement": result.judgement.value,
        "batch": msgspec.to_builtins(case.batch),
    }
    if result.error is not None:
        record["error"] = result.error
    if result.tolerance is not None:
        record["tolerance"] = result.tolerance
    if result.message:
        record["message"] = result.message
    return record


_ORDER = (
    Judgement.SILENTLY_WRONG,
    Judgement.WRONG_RESULT,
    Judgement.OVER_CLAIM,
    Judgement.UNDER_CLAIM,
    Judgement.DECLINED,
    Judgement.UNJUDGED,
)

_CODES = {
    Judgement.SILENTLY_WRONG: ("CERT001", Severity.WARNING),
    Judgement.WRONG_RESULT: ("CERT002", Severity.ERROR),
    Judgement.OVER_CLAIM: ("CERT003", Severity.ERROR),
    Judgement.UNDER_CLAIM: ("CERT004", Severity.ERROR),
    Judgement.DECLINED: ("CERT005", Severity.NOTE),
    Judgement.UNJUDGED: ("CERT006", Severity.NOTE),
}


def certify(
    manifest: Manifest,
    device: Device,
    facts: Facts,
    *,
    date: str,
    backends: Collection[str] = (),
    seed: int = 0,
    on_start: Callable[[int, int], object] = lambda cases, entries: None,
    on_result: Callable[[CaseResult], object] = lambda _: None,
) -> Certificate:
    """Runs the claims of the entries that have an adapter and are meant for this device.

    Args:
        manifest: whose claims.
        device: this machine's device (:func:`backends.probe.probe_device`), or its CPU.
        facts: what is installed (:func:`backends.probe.probe_facts`).
        date: today, ISO 8601.
        backends: names of the entries to certify; all when empty.
        seed: of the random inputs.
        on_start: called once, with how many cases of how many entries will run.
        on_result: called after each case, for progress.

    Raises:
        UnknownBackendError: a name is not in the manifest.
        UntrustedAdapterError: an entry's adapter is outside the trusted package.
    """
    for name in backends:
        manifest.entry(name)
    where = {"rocm": "cuda"}.get(device.platform, device.platform)  # torch's word for both
    runs: list[tuple[Adapter, tuple[Case, ...]]] = []
    untested: list[Untested] = []
    skipped: dict[str, str] = {}
    for name in backends or manifest.entries:
        entry = manifest.entries[name]
        path = entry.adapter or ADAPTERS.get(name)
        if path is None:
            skipped[name] = "no adapter runs it"
            continue
        found = find_cases(manifest, entry, device, facts)
        if found.skipped:
            skipped[name] = found.skipped
            continue
        try:
            adapter = load_adapter(path)
        except MissingAdapterError as error:
            skipped[name] = str(error)
            continue
        untested += found.untested
        runs.append((adapter, found.cases))
    if runs:
        on_start(sum(len(cases) for _, cases in runs), len(runs))
    results: list[CaseResult] = []
    for adapter, cases in runs:
        for case in cases:
            result = run_case(adapter, case, where, seed)
            results.append(result)
            on_result(result)
    return Certificate(
        manifest.ref, device, facts, date, seed, tuple(results), tuple(untested), skipped
    )


def run_case(adapter: Adapter, case: Case, device: str = "cpu", seed: int = 0) -> CaseResult:
    """Runs a case and judges the claim behind it.

    Args:
        adapter: the kernel.
        case: what to ask of it.
        device: where, in torch's words.
        seed: of the inputs.
    """
    import torch

    from backends.inputs import make_inputs
    from backends.reference import attend

    try:
        plan = adapter.plan(case.batch, device)
        inputs = make_inputs(case.batch, device, seed)
        out = plan.run(inputs.q, inputs.kv, inputs.sinks)
    except RefusedError as error:
        kind = Judgement.OVER_CLAIM if case.accepts else Judgement.CONFIRMED
        return CaseResult(case, kind, message=str(error))
    except (MemoryError, torch.OutOfMemoryError) as error:
        return CaseResult(case, Judgement.UNJUDGED, message=_one_line(error))
    except Exception as error:  # a fault in a kernel or an adapter is what is looked for
        kind = Judgement.WRONG_RESULT if case.accepts else Judgement.SILENTLY_WRONG
        return CaseResult(case, kind, message=_one_line(error))
    try:
        expected = attend(case.batch, inputs.q, inputs.kv, inputs.sinks)
    except RefusedError as error:
        return CaseResult(case, Judgement.UNJUDGED, message=str(error))
    off, tolerance = relative_error(out, expected), adapter.tolerance(case.batch.dtype)
    if off <= tolerance:
        kind = Judgement.DECLINED if case.reason else Judgement.UNDER_CLAIM
        if case.accepts:
            kind = Judgement.CONFIRMED
    else:
        kind = Judgement.WRONG_RESULT if case.accepts else Judgement.SILENTLY_WRONG
    if not isfinite(off):
        return CaseResult(case, kind, None, tolerance, "the output is not finite, or misshapen")
    return CaseResult(case, kind, off, tolerance)


def _one_line(error: BaseException) -> str:
    text = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {text}"


def _finding(kind: Judgement, claim: Position, results: list[CaseResult]) -> Finding:
    first = results[0]
    phases = " and ".join(sorted({r.case.phase.value for r in results}))
    code, severity = _CODES[kind]
    seen = first.message
    if not seen and first.error is not None and kind is not Judgement.DECLINED:
        seen = f"error {first.error:.2g}, {first.tolerance:.2g} is allowed"
    said, fix = _WORDS[kind]
    message = f"{first.case.backend} {phases}: {_values(results)} {said}"
    if seen:
        message += f" ({seen})"
    if kind is Judgement.DECLINED:
        message += f": {first.case.reason}"
    return Finding(claim.file, claim.line, claim.column, code, severity, message, fix)


_WORDS = {
    Judgement.SILENTLY_WRONG: (
        "is rightly refused: the kernel takes it and is wrong",
        "keep this line: nothing else stops it",
    ),
    Judgement.WRONG_RESULT: ("is claimed, and the result is wrong", "narrow the claim"),
    Judgement.OVER_CLAIM: ("is claimed, and the kernel refuses it", "narrow the claim"),
    Judgement.UNDER_CLAIM: (
        "is not claimed, and is right",
        "widen the claim, or give the rule a reason",
    ),
    Judgement.DECLINED: ("is right, and declined on purpose", ""),
    Judgement.UNJUDGED: ("could not be judged", ""),
}


def _values(results: list[CaseResult]) -> str:
    """The fields varied, each with its first values: ``head_size 7, 257 (and 3 more)``."""
    by_field: dict[str, list[str]] = {}
    for result in results:
        values = by_field.setdefault(result.case.field, [])
        if result.case.value not in values:
            values.append(result.case.value)
    parts = []
    for field, values in by_field.items():
        more = f" (and {len(values) - 6} more)" if len(values) > 6 else ""
        parts.append(f"{field} {', '.join(values[:6])}{more}".strip())
    return "; ".join(parts)
