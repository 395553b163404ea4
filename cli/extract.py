"""``attnsel extract``: a draft of a manifest from an engine's code."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.findings import FindingsFormat, rule_name, show_findings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from selector.report.text import Line
    from selector.values import Finding

__all__ = ["extract"]

STDOUT = "<stdout>"
"""What findings call a draft that is not written to a file."""


def extract(
    source: Annotated[
        str,
        typer.Option(
            metavar="WHEEL|DIR",
            help="The engine: a wheel, its package's folder, or a site-packages folder. Nothing "
            "of it is imported.",
        ),
    ],
    engine: Annotated[str, typer.Option(metavar="NAME", help="Whose code it is.")] = "vllm",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the draft goes. Default: stdout."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file that --out names.")] = (
        False
    ),
    form: Annotated[
        FindingsFormat,
        typer.Option(
            "--format",
            help="Form of the findings. They go to stderr where the draft is on stdout.",
        ),
    ] = FindingsFormat.TEXT,
) -> None:
    """Draft a manifest from an engine's code, which is read and never imported.

    What is not known, only tried, or has no form in the language is a TODO in the draft and a
    finding.

    \b
    Exit codes:
      0  nothing is left to do
      1  there is something left to do, or a file of the engine could not be read
      2  wrong use, or a source that cannot be read or has no backend to draft

    Example: attnsel extract --source vllm-0.33.0-cp38-abi3-linux.whl --out draft.yaml
    """  # noqa: D301 (\b keeps the table as it is)
    if out is not None and out.exists() and not force:
        raise typer.BadParameter(f"--out {out} exists; give another name, or --force to replace it")
    from cli.terminal import complain
    from selector.drift.drafting import draft_manifest
    from selector.drift.reader import read_engine
    from selector.drift.saying import CAPABILITIES
    from selector.values import Severity

    file = STDOUT if out is None else str(out)
    draft = draft_manifest(read_engine(engine, source, CAPABILITIES), file)
    if out is not None and draft.entries:
        out.write_text(draft.text, "utf-8", newline="\n")
    elif draft.entries:
        sys.stdout.write(draft.text)
        sys.stdout.flush()
    with redirect_stdout(sys.stderr if out is None else sys.stdout):
        found, texts = draft.findings, {file: draft.text}
        show_findings(found, form, texts, lambda: _text_lines(found, file, draft.entries))
        sys.stdout.flush()
    if not draft.entries:
        complain(f"{source}: no backend of {engine} can be drafted; nothing is written")
        raise typer.Exit(Exit.USAGE)
    if any(finding.severity is not Severity.NOTE for finding in draft.findings):
        raise typer.Exit(Exit.FINDINGS)


def _text_lines(found: Sequence[Finding], file: str, entries: int) -> list[Line]:
    """A line for each finding; the line of the draft that it is about says the same."""
    from cli.terminal import places
    from selector.report.findings import counts_lines, summary_lines
    from selector.report.text import BLANK, line
    from selector.report.wording import counted

    where = places(file)
    lines = [
        line(f"{where.file(one.file)}:{one.line}: {one.code} {one.severity}: {one.message}", hang=4)
        for one in found
    ]
    if found:
        lines += [BLANK, *counts_lines(found, rule_name)]
    lines += summary_lines(found, [where.file(file)])
    lines.append(line(f"Drafted {counted(entries, 'entry', 'entries')}."))
    return lines
