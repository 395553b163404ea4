"""``attnsel drift``: does the manifest still say what the engine's code says?"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.options import ENGINE, OverlayOption, complete_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from selector.drift.reading import EngineReading
    from selector.manifest import Manifest
    from selector.values import Finding

__all__ = ["drift"]


class DriftFormat(StrEnum):
    """Form of the output."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


def drift(
    source: Annotated[
        str,
        typer.Option(
            metavar="WHEEL|DIR",
            help="The engine: a wheel, its package's folder, or a site-packages folder. Nothing "
            "of it is imported.",
        ),
    ],
    manifest: Annotated[
        str,
        typer.Option(
            metavar="NAME|PATH",
            help="The manifest that describes it.",
            autocompletion=complete_manifest,
        ),
    ] = ENGINE,
    overlay: OverlayOption = None,
    engine: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Whose code it is. Default: the manifest's name."),
    ] = None,
    form: Annotated[
        DriftFormat, typer.Option("--format", help="Form of the output.")
    ] = DriftFormat.TEXT,
) -> None:
    """Compare a manifest with an engine's code, which is read and never imported.

    \b
    Exit codes:
      0  nothing differs, or there are only notes
      1  there are errors or warnings
      2  wrong use, or a source or manifest that cannot be read

    Example: attnsel drift --manifest vllm-0.33.0 --source vllm-0.33.0-cp38-abi3-linux.whl
    """  # noqa: D301 (\b keeps the table as it is)
    from selector.binding import Selector
    from selector.drift.against import CAPABILITIES, compare
    from selector.drift.reader import read_engine
    from selector.drift.suppressing import without_switched_off
    from selector.values import Severity

    stated = Selector.load(manifest, overlays=overlay or []).manifest
    reading = read_engine(engine or stated.ref.name, source, CAPABILITIES)
    found = without_switched_off(
        compare(stated, reading), _texts(stated.ref.file, *overlay or ()), overlaid=bool(overlay)
    )
    _show(found, form, stated, reading, overlay or [])
    if any(finding.severity is not Severity.NOTE for finding in found):
        raise typer.Exit(Exit.FINDINGS)


def _show(
    found: Sequence[Finding],
    form: DriftFormat,
    manifest: Manifest,
    reading: EngineReading,
    overlays: Sequence[str],
) -> None:
    from cli.terminal import places, show_json
    from selector.drift.rules import RULES
    from selector.report.findings import findings_json
    from selector.report.github import workflow_commands

    names = {rule.code: rule.name for rule in RULES}
    if form is DriftFormat.JSON:
        show_json(findings_json(found))
    elif form is DriftFormat.SARIF:
        from importlib.metadata import version

        from selector.report.sarif import sarif_log

        texts = _texts(manifest.ref.file, *overlays)
        show_json(sarif_log(found, texts, RULES, version("attnsel"), (), str(Path.cwd())))
    elif form is DriftFormat.GITHUB:
        where = places(manifest.ref.file, *overlays)
        lines = workflow_commands(found, where, lambda code: names.get(code, ""))
        sys.stdout.writelines(f"{line}\n" for line in lines)
    else:
        _show_text(found, manifest, reading, _texts(manifest.ref.file, *overlays))


def _show_text(
    found: Sequence[Finding],
    manifest: Manifest,
    reading: EngineReading,
    texts: Mapping[str, str],
) -> None:
    """What differs, with its lines; then what was not decided, apart; then how much of each."""
    from cli.terminal import places, show
    from selector.drift.rules import UNDECIDED
    from selector.report.findings import finding_lines, summary_lines
    from selector.report.text import BLANK, line, strong
    from selector.report.wording import counted

    where = places(*texts)
    open_ = [one for one in found if one.code == UNDECIDED.code]
    decided = [one for one in found if one.code != UNDECIDED.code]
    lines = finding_lines(decided, texts, where)
    if open_:
        lines.append(line(strong("Not decided:")))
        for one in open_:
            place = f"{where.file(one.file)}:{one.line}"
            lines.append(line(f"  {place}: {one.message}", hang=4))
        lines.append(BLANK)
    compared = f"{where.file(manifest.ref.file)} and {reading.source}"
    lines += summary_lines(decided, [compared])
    lines.append(line(f"Not decided: {counted(len(open_), 'question')}."))
    show(lines, whole=True)


def _texts(*files: str) -> dict[str, str]:
    from selector.document import read_bytes

    return {file: read_bytes(Path(file)).decode("utf-8", "replace") for file in files}
