"""Findings as SARIF 2.1.0, which code scanning reads."""

from __future__ import annotations

import ntpath
import os
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import quote

from selector.lint.catalogue import Rule
from selector.lint.lines import lines_of
from selector.report.catalogue import summary
from selector.values import Finding

__all__ = ["address", "sarif_log"]

_SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def sarif_log(
    findings: Sequence[Finding],
    texts: Mapping[str, str],
    rules: Sequence[Rule],
    version: str,
    unreadable: Iterable[str] = (),
    folder: str = "",
) -> dict[str, Any]:
    """A SARIF log of one run.

    Args:
        findings: in order.
        texts: file → its text, where it could be read.
        rules: all that were looked at.
        version: of attnsel.
        unreadable: what is wrong with files that could not be read.
        folder: where the files are seen from.
    """
    sources = {file: _Source(text) for file, text in texts.items()}
    places = {rule.code: number for number, rule in enumerate(rules)}
    complaints = [{"level": "error", "message": {"text": words}} for words in unreadable]
    invocation: dict[str, Any] = {"executionSuccessful": not complaints}
    if complaints:
        invocation["toolExecutionNotifications"] = complaints
    driver = {"name": "attnsel", "version": version, "rules": [_rule(rule) for rule in rules]}
    results = []
    for finding in findings:
        source = sources.get(finding.file, _Source(""))
        result: dict[str, Any] = {
            "ruleId": finding.code,
            "level": finding.severity.value,
            "message": {"text": _sentence(finding)},
            "locations": [{"physicalLocation": _location(finding, source, folder)}],
        }
        if finding.code in places:
            result["ruleIndex"] = places[finding.code]
        results.append(result)
    run = {
        "tool": {"driver": driver},
        "invocations": [invocation],
        "columnKind": "utf16CodeUnits",
        "newlineSequences": ["\r\n", "\n", "\r"],
        "results": results,
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


class _Source:
    """A text by lines, which are only made when a finding asks for one."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def lines(self) -> list[str]:
        return lines_of(self.text)

    def before(self, line: int, column: int) -> str:
        """What stands in a line before a column."""
        return self.lines[line - 1][: column - 1] if line <= len(self.lines) else ""


def _sentence(finding: Finding) -> str:
    return f"{finding.message}; {finding.fix}" if finding.fix else finding.message


def _rule(rule: Rule) -> dict[str, Any]:
    words = "".join(part.capitalize() for part in rule.name.split("-"))
    bad, good = rule.bad.strip(), rule.good.strip()
    text = f"{rule.what}\n\n{rule.why}\n\nBad:\n\n{bad}\n\nGood:\n\n{good}"
    fenced = f"Bad:\n\n```yaml\n{bad}\n```\n\nGood:\n\n```yaml\n{good}\n```"
    return {
        "id": rule.code,
        "name": words,
        "shortDescription": {"text": f"{summary(rule)}."},
        "fullDescription": {"text": f"{rule.what} {rule.why}"},
        "help": {"text": text, "markdown": f"{rule.what}\n\n{rule.why}\n\n{fenced}"},
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _location(finding: Finding, source: _Source, folder: str) -> dict[str, Any]:
    before = source.before(finding.line, finding.column)
    beyond = sum(character > "\uffff" for character in before)
    return {
        "artifactLocation": {"uri": address(finding.file, folder)},
        "region": {"startLine": finding.line, "startColumn": finding.column + beyond},
    }


def address(file: str, folder: str = "", kind: type[PurePath] | None = None) -> str:
    """The URI of a file: relative to a folder where it lies below that, else absolute.

    Args:
        file: its path.
        folder: an absolute path.
        kind: how paths are written; by default as on this machine.
    """
    kind = kind or (PureWindowsPath if os.name == "nt" else PurePosixPath)
    plain = ntpath.normpath if kind is PureWindowsPath else posixpath.normpath
    path, here = kind(plain(file)), kind(folder)
    if path.is_absolute() and here.is_absolute() and path.is_relative_to(here):
        path = path.relative_to(here)
    drive, _, rest = path.as_posix().rpartition(":") if path.drive[1:] == ":" else ("", "", "")
    if drive:
        return f"file:///{drive}:{_quoted(rest)}"
    if path.is_absolute():
        network = kind is PureWindowsPath
        return f"file:{_quoted(path.as_posix())}" if network else f"file://{_quoted(str(path))}"
    return _quoted(path.as_posix())


def _quoted(path: str) -> str:
    return quote(path.encode("utf-8", "surrogateescape"), safe="/")
