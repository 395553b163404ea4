"""What certification found: counts of what ran, what did not, and what is wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from selector.report.findings import finding_lines
from selector.report.text import BLANK, Line, Part, bad, faint, good, grid, line, strong
from selector.report.wording import Places, counted, device_words, manifest_words
from selector.values import Device, Finding, ManifestRef, Severity

__all__ = [
    "JUDGEMENT_WORDS",
    "certificate_lines",
    "judge_words",
    "left_words",
    "nothing_ran_words",
    "progress_words",
    "start_words",
]

JUDGEMENT_WORDS = {
    "confirmed": "as claimed",
    "wrong_result": "claimed, and the result is wrong",
    "fault": "claimed, and the kernel fails",
    "over_claim": "claimed, and refused by the kernel",
    "under_claim": "not claimed, and right",
    "declined": "right, and declined on purpose",
    "kept_off": "rightly refused: the kernel takes it and fails",
    "silently_wrong": "rightly refused: the kernel takes it and is wrong",
    "unjudged": "could not be judged",
}
"""What the runs say of a claim."""


def certificate_lines(
    evidence: Mapping[str, Any],
    findings: Sequence[Finding],
    texts: Mapping[str, str],
    places: Places,
) -> list[Line]:
    """What ran, entry by entry, and every finding that is more than a note.

    Args:
        evidence: the certificate as JSON values.
        findings: what is wrong, worst first.
        texts: the manifest's file and its text, to show its lines.
        places: how files are named.
    """
    ref, device = ManifestRef(**evidence["manifest"]), Device(**evidence["device"])
    lines = [
        line(
            strong(device_words(device)),
            f" · {evidence['date']}{_judged_words(evidence)}    ",
            faint(manifest_words(ref, places)),
        ),
        BLANK,
    ]
    lines += grid(list(_entry_rows(evidence)), indent=2, gap=2)
    shown = [f for f in findings if f.severity is not Severity.NOTE]
    if shown:
        lines += [BLANK, *finding_lines(shown, texts, places)]
    lines += _untested_lines(evidence)
    return [*lines, BLANK, _verdict(evidence, findings)]


def _judged_words(evidence: Mapping[str, Any]) -> str:
    """That nothing was run for this, where that is so."""
    judged = evidence.get("judged")
    return f", run with manifest {judged['digest'][:7]}, judged {judged['date']}" if judged else ""


def _untested_lines(evidence: Mapping[str, Any]) -> list[Line]:
    """How many claims of each entry no case covers, and why."""
    counts = Counter((left["backend"], left["why"]) for left in evidence["untested"])
    if not counts:
        return []
    shown: list[list[Part]] = [
        [name, f"{counted(counts[name, why], 'claim')}:", why]
        for name in dict.fromkeys(name for name, _ in counts)
        for of, why in counts
        if of == name
    ]
    return [
        BLANK,
        line("  ", strong("untested"), "  claims that no case covers"),
        *grid(shown, 4, 2),
    ]


def _entry_rows(evidence: Mapping[str, Any]) -> list[list[Part]]:
    """One row for each entry: what its cases showed, or why it was skipped."""
    by_entry: dict[str, Counter[str]] = {}
    for claim in evidence["claims"]:
        counts = by_entry.setdefault(claim["backend"], Counter())
        counts[claim["judgement"]] += claim["cases"]
    left = Counter(claim["backend"] for claim in evidence["untested"])
    rows: list[list[Part]] = []
    for name, counts in by_entry.items():
        said = ", ".join(f"{n:,} {JUDGEMENT_WORDS[kind]}" for kind, n in counts.most_common())
        untested = f"; {counted(left[name], 'claim')} untested" if left[name] else ""
        rows.append([name, counted(sum(counts.values()), "case"), said + untested])
        errors = evidence["errors"].get(name, {})
        worst = [f"{dtype} {seen:.2g} of {bound:.2g}" for dtype, (seen, bound) in errors.items()]
        if worst:
            rows.append(["", "", faint(f"largest error, and allowed: {', '.join(worst)}")])
    rows += [
        [faint(name), "", faint(f"not run: {why}")] for name, why in evidence["skipped"].items()
    ]
    return rows


def _verdict(evidence: Mapping[str, Any], findings: Sequence[Finding]) -> Line:
    wrong = sum(f.severity is Severity.ERROR for f in findings)
    cases = counted(sum(claim["cases"] for claim in evidence["claims"]), "case")
    if evidence["passed"]:
        return line(good("certified"), f": every claim that was run holds ({cases})")
    return line(
        bad("not certified"), f": {counted(wrong, 'claim is', 'claims are')} wrong ({cases})"
    )


def nothing_ran_words(skipped: Mapping[str, str]) -> str:
    """Why there is nothing to certify here: entry → reason."""
    reasons = Counter(skipped.values())
    most = "; ".join(
        f"{why} ({counted(n, 'entry', 'entries')})" for why, n in reasons.most_common(3)
    )
    return f"no entry of this manifest runs here: {most or 'it has none'}"


def start_words(cases: int, entries: int, device: Device, done: int = 0) -> str:
    """What will run: ``running 812 cases of 4 backends on cpu``."""
    already = f", {done:,} of them done" if done else ""
    return f"running {counted(cases, 'case')} of {counted(entries, 'backend')} on {device}{already}"


def left_words(cases: int) -> str:
    """What a run that was cut short leaves."""
    return f"{counted(cases, 'case is', 'cases are')} left; --resume goes on with " + (
        "it" if cases == 1 else "them"
    )


def judge_words(part: str) -> str:
    """What a run that found something wrong leaves."""
    return f"{part} keeps the runs: --judge judges them anew once the manifest is corrected"


def progress_words(done: int, backend: str) -> str:
    """What to show while it runs."""
    return f"{counted(done, 'case')}, {backend}"
