"""The forms of findings, and those of ``attnsel drift`` and ``attnsel extract`` in each."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from selector.report.text import Line
    from selector.values import Finding

__all__ = ["FindingsFormat", "rule_name", "show_findings"]


class FindingsFormat(StrEnum):
    """Form of the output."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


def show_findings(
    found: Sequence[Finding],
    form: FindingsFormat,
    texts: Mapping[str, str],
    lines: Callable[[], Iterable[Line]],
) -> None:
    """Prints findings of rules of drift.

    Args:
        found: in order.
        form: how.
        texts: file → its text, of what was checked.
        lines: gives what is printed as text.
    """
    from cli.terminal import places, show, show_json

    if form is FindingsFormat.JSON:
        from selector.report.findings import findings_json

        show_json(findings_json(found))
    elif form is FindingsFormat.SARIF:
        from importlib.metadata import version

        from selector.drift.rules import RULES
        from selector.report.sarif import sarif_log

        show_json(sarif_log(found, texts, RULES, version("attnsel"), (), str(Path.cwd())))
    elif form is FindingsFormat.GITHUB:
        from selector.report.github import workflow_commands

        commands = workflow_commands(found, places(*texts), rule_name)
        sys.stdout.writelines(f"{one}\n" for one in commands)
    else:
        show(lines(), whole=True)


def rule_name(code: str) -> str:
    """The name of a rule of drift; empty where it has none."""
    from selector.drift.rules import RULES

    return next((rule.name for rule in RULES if rule.code == code), "")
