"""Findings as text, with the line they are about and a mark under the place, and as JSON."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from selector.report.data import to_json
from selector.report.text import BLANK, Line, Piece, Style, bad, faint, line, strong, visible, warn
from selector.report.wording import Places, counted
from selector.values import Finding, Severity

__all__ = ["finding_lines", "findings_json", "summary_line"]

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
    sources = {file: text.split("\n") for file, text in texts.items() if text}
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
    text = text.rstrip("\r").replace("\t", " ")
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


def summary_line(findings: Sequence[Finding], files: Sequence[str]) -> Line:
    """How many problems there are, and in what: ``Found 2 problems in 3 files.``."""
    where = files[0] if len(files) == 1 else counted(len(files), "file")
    if not findings:
        return line(f"No problems in {where}.")
    errors = sum(f.severity is Severity.ERROR for f in findings)
    others = len(findings) - errors
    words: list[str | Piece] = [bad(counted(errors, "problem"))] if errors else []
    if others:
        words += [" and "] if errors else []
        words.append(warn(counted(others, "remark")))
    return line("Found ", *words, f" in {counted(len(files), 'file')}.")
