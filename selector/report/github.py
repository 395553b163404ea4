"""Findings as commands that GitHub Actions shows beside the lines they are about."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from selector.report.wording import Places
from selector.values import Finding, Severity

__all__ = ["workflow_commands"]

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "notice"}


def workflow_commands(
    findings: Sequence[Finding], places: Places, name_of: Callable[[str], str]
) -> Iterator[str]:
    """Yields one command a finding.

    Args:
        findings: in order.
        places: how files are named.
        name_of: code → the rule's name.
    """
    for f in findings:
        said = {
            "file": places.file(f.file).replace(os.sep, "/"),
            "line": str(f.line),
            "col": str(f.column),
            "title": f"{f.code} {name_of(f.code)}".strip(),
        }
        properties = ",".join(f"{key}={_property(value)}" for key, value in said.items())
        tail = f"; {f.fix}" if f.fix else ""
        yield f"::{_LEVELS[f.severity]} {properties}::{_data(f.message + tail)}"


def _data(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # half of a surrogate pair is no text
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
