"""What a certification found: the evidence as data, and what is wrong as findings.

The **evidence** names everything that a claim of "it was run" rests on: the device, the versions,
the manifest's digest and that of each entry, the date, the seed, how to repeat it; and for each
line of the manifest and each judgement, the values that were tried, the largest error seen and the
error allowed. Of the base, and where all is not as claimed, the shapes of one run are there too.
``untested`` lists the claims that were not run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import msgspec

from backends.cases import Untested
from backends.judging import WRONG_CLAIMS, CaseResult, Judgement
from selector.evidence import ClaimRecord, evidence_id
from selector.values import Device, Facts, Finding, ManifestRef, Position, Severity

__all__ = ["Certificate", "evidence_text"]

_LONGEST_MESSAGE = 240

_FOLDERS = re.compile(r"(?<![\w./])/(?:[^\s/:'\"]+/)+")
"""The folders of an absolute path: what lies where on a machine is nobody else's."""


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
        entries: entry that ran → the digest of what it claims.
        repeat: the command that does it again.
        judged: when a recorded run was judged anew, and the digest of the manifest that it was of.
    """

    manifest: ManifestRef
    device: Device
    facts: Facts
    date: str
    seed: int
    results: tuple[CaseResult, ...]
    untested: tuple[Untested, ...]
    skipped: dict[str, str]
    entries: dict[str, str] = {}
    repeat: str = ""
    judged: dict[str, str] | None = None

    @property
    def id(self) -> str:
        """What an entry's ``verified_on`` calls this evidence."""
        return evidence_id(self.device, self.date, self.manifest.digest)

    @property
    def passed(self) -> bool:
        """Whether something ran and no claim is wrong."""
        return bool(self.results) and not any(r.judgement in WRONG_CLAIMS for r in self.results)

    def evidence(self) -> dict[str, Any]:
        """The certificate as plain JSON values."""
        judged = {} if self.judged is None else {"judged": self.judged}
        ref = msgspec.structs.replace(self.manifest, file=PurePath(self.manifest.file).name)
        return {
            "id": self.id,
            "date": self.date,
            **judged,
            "manifest": msgspec.to_builtins(ref),
            "device": msgspec.to_builtins(self.device),
            "facts": dict(self.facts.values),
            "seed": self.seed,
            "repeat": self.repeat,
            "passed": self.passed,
            "entries": self.entries,
            "errors": self.errors(),
            "claims": [msgspec.to_builtins(record) for record in self.records()],
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

    def records(self) -> list[ClaimRecord]:
        """What was run, one record for each line, judgement and side of the claim."""
        groups: dict[tuple[Any, ...], list[CaseResult]] = {}
        for result in self.results:
            case = result.case
            key = (case.backend, case.phase, case.field, case.claim, case.accepts, result.judgement)
            groups.setdefault(key, []).append(result)
        return [_record(results) for results in groups.values()]

    def errors(self) -> dict[str, dict[str, list[float]]]:
        """Entry → dtype of the queries → the largest error that was allowed to pass, and the bound.

        What a tolerance could be set to: wrong results have no part in it.
        """
        found: dict[str, dict[str, list[float]]] = {}
        for result in self.results:
            if result.error is None or result.tolerance is None:
                continue
            if result.error <= result.tolerance:
                of_entry = found.setdefault(result.case.backend, {})
                seen = of_entry.setdefault(result.case.batch.dtype, [0.0, result.tolerance])
                seen[0] = max(seen[0], float(f"{result.error:.2g}"))
        return found

    def findings(self) -> tuple[Finding, ...]:
        """What is wrong, worst first; one finding for each line and kind of trouble."""
        groups: dict[tuple[Judgement, Position], list[CaseResult]] = {}
        for result in self.results:
            if result.judgement is not Judgement.CONFIRMED:
                groups.setdefault((result.judgement, result.case.claim), []).append(result)
        order = list(Judgement)
        ordered = sorted(groups.items(), key=lambda g: (order.index(g[0][0]), g[0][1]))
        return tuple(_finding(kind, claim, results) for (kind, claim), results in ordered)


def evidence_text(evidence: Mapping[str, Any]) -> str:
    """Evidence as a JSON file, one record a line: small, and its changes can be read."""
    parts = []
    for key, value in evidence.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value:
            records = (json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in value)
            text = "[\n" + ",\n".join(records) + "\n ]"
        parts.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _record(results: list[CaseResult]) -> ClaimRecord:
    measured = [r for r in results if r.error is not None]
    worst = max(measured, key=lambda r: r.error or 0.0, default=results[0])
    told = next((r for r in results if r.message), worst)
    case = worst.case
    plain = worst.judgement is Judgement.CONFIRMED and case.field != "base"
    return ClaimRecord(
        backend=case.backend,
        phase=case.phase.value,
        field=case.field,
        line=case.claim.line,
        column=case.claim.column,
        accepts=case.accepts,
        judgement=worst.judgement.value,
        values=tuple(dict.fromkeys(r.case.value for r in results)),
        cases=len(results),
        error=None if worst.error is None else float(f"{worst.error:.2g}"),
        tolerance=worst.tolerance,
        message=_FOLDERS.sub("", told.message)[:_LONGEST_MESSAGE],
        batch=None if plain else msgspec.to_builtins(worst.case.batch),
    )


_CODES = {
    Judgement.SILENTLY_WRONG: ("CERT001", Severity.WARNING),
    Judgement.WRONG_RESULT: ("CERT002", Severity.ERROR),
    Judgement.OVER_CLAIM: ("CERT003", Severity.ERROR),
    Judgement.UNDER_CLAIM: ("CERT004", Severity.ERROR),
    Judgement.DECLINED: ("CERT005", Severity.NOTE),
    Judgement.UNJUDGED: ("CERT006", Severity.NOTE),
    Judgement.FAULT: ("CERT007", Severity.ERROR),
    Judgement.KEPT_OFF: ("CERT008", Severity.WARNING),
}

_WORDS = {
    Judgement.SILENTLY_WRONG: (
        "is rightly refused: the kernel takes it and is wrong",
        "keep this line: nothing else stops it",
    ),
    Judgement.KEPT_OFF: (
        "is rightly refused: the kernel takes it and fails",
        "keep this line: nothing else stops it",
    ),
    Judgement.WRONG_RESULT: ("is claimed, and the result is wrong", "narrow the claim"),
    Judgement.FAULT: ("is claimed, and the kernel fails", "narrow the claim"),
    Judgement.OVER_CLAIM: ("is claimed, and the kernel refuses it", "narrow the claim"),
    Judgement.UNDER_CLAIM: (
        "is not claimed, and is right",
        "widen the claim, or give the rule a reason",
    ),
    Judgement.DECLINED: ("is right, and declined on purpose", ""),
    Judgement.UNJUDGED: ("could not be judged", ""),
}


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
