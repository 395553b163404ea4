"""``attnsel lint``: what is wrong with manifests, where, and what to write instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.findings import FindingsFormat
from cli.options import OverlayOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.linting import Found
    from selector.lint.running import Selection

__all__ = ["lint"]


Codes = Annotated[
    list[str] | None,
    typer.Option(
        "--select",
        metavar="CODE",
        help="Only rules with this code, or whose code begins so (CAP1). Repeat, or separate by "
        "commas. Errors of reading are always told.",
    ),
]
Ignored = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="CODE", help="Leave these rules out. As with --select."),
]
Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="NAME|PATH",
        help="Manifests, folders of manifests (*.yaml and *.yml with the key attnsel) or quoted "
        "patterns; - reads one from stdin. Default: the shipped one.",
    ),
]


def lint(
    paths: Paths = None,
    overlay: OverlayOption = None,
    select: Codes = None,
    ignore: Ignored = None,
    form: Annotated[
        FindingsFormat, typer.Option("--format", help="Form of the output.")
    ] = FindingsFormat.TEXT,
    fix: Annotated[
        bool, typer.Option("--fix", help="Mend what is safe to mend; stdin is written to stdout.")
    ] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show what --fix would change, and write nothing.")
    ] = False,
    statistics: Annotated[
        bool, typer.Option("--statistics", help="Count the findings of each rule instead.")
    ] = False,
    stdin_filename: Annotated[
        str | None,
        typer.Option("--stdin-filename", metavar="PATH", help="What to call a manifest on stdin."),
    ] = None,
) -> None:
    """Check manifests and show what to correct.

    `attnsel rule CODE` says what a rule means, and how to switch it off in a comment.

    \b
    Exit codes:
      0  nothing is wrong, or there are only notes
      1  there are errors or warnings, or --diff would change something
      2  wrong use, a file that cannot be read, or no file at all

    Example: attnsel lint capabilities.yaml manifests --fix
    """  # noqa: D301 (\b keeps the table as it is)
    if statistics and form not in (FindingsFormat.TEXT, FindingsFormat.JSON):
        raise typer.BadParameter(f"--statistics is written as text or json, not {form}")
    from cli.linting import Lint, Stdin, checked_files, mended_files, rare_collection, show_all

    stdin = "-" in (paths or ()) or (stdin_filename is not None and not paths)
    asked = Lint(
        [path for path in paths or () if path != "-"],
        Stdin(stdin_filename or "<stdin>") if stdin else None,
        overlay or [],
        _selection(select or (), ignore or ()),
    )
    mend = fix or diff
    with rare_collection():
        found = mended_files(asked, write=not diff) if mend else checked_files(asked)
    show_all(
        found,
        form.value,
        statistics=statistics,
        to_stderr=diff or (mend and stdin),
        written=not diff,
    )
    raise typer.Exit(_exit_code(found, diff))


def _selection(select: Sequence[str], ignore: Sequence[str]) -> Selection:
    """The rules that are looked at.

    Raises:
        UnknownRuleError: no rule has a code that begins so.
        typer.BadParameter: ``select`` holds no code.
    """
    from selector.lint.catalogue import selected
    from selector.lint.running import Selection

    chosen, left_out = (
        [code.strip() for said in one for code in said.split(",") if code.strip()]
        for one in (select, ignore)
    )
    if select and not chosen:  # a variable that is not set, and not "no rule at all"
        raise typer.BadParameter("--select names no code; write one such as CAP1, or leave it out")
    return Selection(selected(chosen) if select else None, selected(left_out))


def _exit_code(found: Found, diff: bool) -> Exit:
    from selector.values import Severity

    if found.troubles:
        return Exit.USAGE
    findings = (finding for one in found.checked for finding in one.findings)
    if any(finding.severity is not Severity.NOTE for finding in findings):
        return Exit.FINDINGS
    return Exit.FINDINGS if diff and any(one.fixed for one in found.checked) else Exit.FINE
