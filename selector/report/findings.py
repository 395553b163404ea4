"""Findings as text, with the line they are about and a mark under the place, and as JSON."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from selector.lint.lines import lines_of
from selector.report.data import to_json
from selector.report.text import BLANK, Line, Piece, Style, faint, good, line, strong, visible
from selector.report.wording import Places, counted
from selector.values import Finding, Severity

__all__ = ["counts_json", "counts_lines", "finding_lines", "findings_json", "summary_lines"]

_WIDEST = 100
_STYLES = {Severity.ERROR: Style.BAD, Severity.WARNING: Style.WARN, Severity.NOTE: Style.FAINT}


def findings_json(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as JSON values."""
    plain: list[dict[str, Any]] = to_json(list(findings))
    return plain


def finding_lines(
    findings: Sequence[Finding], texts: Mapping[str, str], places: Places
) -> list[Line]:
    """Every finding with its source line.

    Args:
        findings: in order.
        texts: file → its text, where it could be read.
        places: how files are named.
    """
    sources = {file: lines_of(text) for file, text in texts.items() if text}
    lines: list[Line] = []
    for finding in findings:
        lines += [*_finding(finding, sources.get(finding.file, []), places), BLANK]
    return lines


def _finding(finding: Finding, source: Sequence[str], places: Places) -> list[Line]:
    where = f"{places.file(finding.file)}:{finding.line}:{finding.column}"
    style = _STYLES[finding.severity]
    kind = "" if finding.severity is Severity.ERROR else f" {finding.severity}:"
    head = line(
        strong(where), ": ", Piece(finding.code, style), f"{kind} {finding.message}", hang=4
    )
    lines = [head]
    margin = " " * len(str(finding.line))
    if 1 <= finding.line <= len(source):
        shown, mark = _excerpt(source[finding.line - 1], finding.column)
        lines += [
            line("    ", faint(f"{margin} |")),
            line("    ", faint(f"{finding.line} | "), shown),
            line("    ", faint(f"{margin} | "), " " * mark, Piece("^", style)),
        ]
    if finding.fix:
        lines.append(line("    ", faint(f"{margin} = "), finding.fix, hang=len(margin) + 7))
    return lines


def _excerpt(text: str, column: int) -> tuple[str, int]:
    """The part of a line around a column, and the width of what stands before that column."""
    text = text.rstrip("\r\n").replace("\t", " ")
    at = min(max(column - 1, 0), len(text))
    start = 0 if at < _WIDEST - 20 else at - _WIDEST // 2
    before, after = visible(text[start:at]), visible(text[at : start + _WIDEST])
    lead = "…" if start else ""
    tail = "…" if start + _WIDEST < len(text) else ""
    return f"{lead}{before}{after}{tail}", len(lead) + _columns(before)


def _columns(text: str) -> int:
    """Terminal columns; wide characters take two, combining ones none."""
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def summary_lines(
    findings: Sequence[Finding],
    files: Sequence[str],
    fixable: int = 0,
    fixed: int = 0,
    written: bool = True,
) -> list[Line]:
    """How many findings there are, and in what: ``Found 2 errors and 1 note in 3 files.``.

    Args:
        findings: all.
        files: that were checked.
        fixable: how many of the findings have a safe fix.
        fixed: how many others are mended.
        written: whether what is mended was written.
    """
    did = "Mended" if written else "Would mend"
    lines = [line(f"{did} ", good(counted(fixed, "finding")), ".")] if fixed else []
    if not findings:
        where = files[0] if len(files) == 1 else counted(len(files), "file")
        return [*lines, line(f"No problems in {where}.")]
    words: list[str | Piece] = []
    kinds = [s for s in Severity if any(f.severity is s for f in findings)]
    for number, severity in enumerate(kinds):
        words.append(("", " and " if number == len(kinds) - 1 else ", ")[number > 0])
        count = sum(f.severity is severity for f in findings)
        words.append(Piece(counted(count, severity), _STYLES[severity]))
    lines.append(line("Found ", *words, f" in {counted(len(files), 'file')}."))
    if fixable:
        lines.append(line(f"{counted(fixable, 'finding')} can be mended with --fix."))
    return lines


def counts_json(findings: Sequence[Finding], name_of: Callable[[str], str]) -> list[dict[str, Any]]:
    """How many findings each rule has, the most first."""
    found = Counter(finding.code for finding in findings)
    ordered = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    return [{"code": code, "count": count, "name": name_of(code)} for code, count in ordered]


def counts_lines(findings: Sequence[Finding], name_of: Callable[[str], str]) -> list[Line]:
    """How many findings each rule has, as a table."""
    counted_ = counts_json(findings, name_of)
    wide = max((len(f"{row['count']:,}") for row in counted_), default=0)
    return [
        line(f"{row['count']:>{wide},}  ", strong(row["code"]), f"  {row['name']}")
        for row in counted_
    ]
