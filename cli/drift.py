"""``attnsel drift``: does the manifest, or an older engine, say what the engine's code says?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.asking import UsageError
from cli.exits import Exit
from cli.findings import FindingsFormat, show_findings
from cli.options import ENGINE, OverlayOption, complete_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from selector.drift.reading import EngineReading
    from selector.manifest import Manifest
    from selector.report.text import Line
    from selector.values import Finding

__all__ = ["drift"]

READER = "vllm"
"""Whose code --engine-diff reads, when nothing is said."""


def drift(
    source: Annotated[
        str | None,
        typer.Option(
            metavar="WHEEL|DIR",
            help="The engine: a wheel, its package's folder, or a site-packages folder. Nothing "
            "of it is imported.",
        ),
    ] = None,
    manifest: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|PATH",
            help=f"The manifest that describes it. Default: {ENGINE}.",
            autocompletion=complete_manifest,
        ),
    ] = None,
    overlay: OverlayOption = None,
    engine_diff: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--engine-diff",
            metavar="OLD NEW",
            help="Two versions of an engine, as for --source, to compare with each other instead.",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=f"Whose code it is. Default: the manifest's name; with --engine-diff {READER}.",
        ),
    ] = None,
    form: Annotated[
        FindingsFormat, typer.Option("--format", help="Form of the output.")
    ] = FindingsFormat.TEXT,
) -> None:
    """Compare a manifest with an engine's code, or two versions of that code with each other.

    The code is read and never imported.

    \b
    Exit codes:
      0  nothing differs, or there are only notes
      1  there are errors or warnings
      2  wrong use, or a source or manifest that cannot be read
      4  with --engine-diff: the two versions differ

    \b
    Examples:
      attnsel drift --manifest vllm-0.33.0 --source vllm-0.33.0-cp38-abi3-linux.whl
      attnsel drift --engine-diff vllm-0.28.0-cp38-abi3-linux.whl vllm-0.33.0-cp38-abi3-linux.whl
    """  # noqa: D301 (\b keeps lines as they are)
    if engine_diff is not None:
        _refuse_beside_engine_diff(source, manifest, overlay, form)
        _compare_engines(*engine_diff, engine or READER, form)
    elif source is None:
        raise UsageError(
            "write --source WHEEL|DIR, to compare a manifest with it, or --engine-diff OLD NEW"
        )
    else:
        _compare_manifest(manifest or ENGINE, overlay or [], source, engine, form)


def _refuse_beside_engine_diff(
    source: str | None, manifest: str | None, overlay: list[str] | None, form: FindingsFormat
) -> None:
    """Raises: --engine-diff compares two sources, and needs no manifest."""
    given = {"source": source, "manifest": manifest, "overlay": overlay}
    for name, value in given.items():
        if value:
            raise UsageError(
                f"--{name} does not go with --engine-diff, which compares two versions of the "
                "engine's code with each other"
            )
    if form not in (FindingsFormat.TEXT, FindingsFormat.JSON):
        raise UsageError(f"--engine-diff is written as text or json, not {form}")


def _compare_engines(old: str, new: str, engine: str, form: FindingsFormat) -> None:
    from cli.terminal import show, show_json
    from selector.drift.between.engines import compare_engines
    from selector.drift.reader import read_engine
    from selector.drift.saying import CAPABILITIES
    from selector.report.engines import engines_json, engines_lines

    before, after = (read_engine(engine, source, CAPABILITIES) for source in (old, new))
    found = compare_engines(before, after)
    if form is FindingsFormat.JSON:
        show_json(engines_json(found))
    else:
        show(engines_lines(found), whole=True)
    if not found.is_readable:
        raise typer.Exit(Exit.USAGE)
    if found.is_different:
        raise typer.Exit(Exit.DIFFERENT)


def _compare_manifest(
    manifest: str, overlays: list[str], source: str, engine: str | None, form: FindingsFormat
) -> None:
    from selector.binding import Selector
    from selector.drift.against import compare
    from selector.drift.reader import read_engine
    from selector.drift.saying import CAPABILITIES
    from selector.drift.suppressing import without_switched_off
    from selector.values import Severity

    stated = Selector.load(manifest, overlays=overlays).manifest
    reading = read_engine(engine or stated.ref.name, source, CAPABILITIES)
    texts = _texts(stated.ref.file, *overlays)
    found = without_switched_off(compare(stated, reading), texts, overlaid=bool(overlays))
    show_findings(found, form, texts, lambda: _text_lines(found, stated, reading, texts))
    if any(finding.severity is not Severity.NOTE for finding in found):
        raise typer.Exit(Exit.FINDINGS)


def _text_lines(
    found: Sequence[Finding],
    manifest: Manifest,
    reading: EngineReading,
    texts: Mapping[str, str],
) -> list[Line]:
    """What differs, with its lines; then what was not decided, apart; then how much of each."""
    from cli.terminal import places
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
    return lines


def _texts(*files: str) -> dict[str, str]:
    from selector.document import read_bytes

    return {file: read_bytes(Path(file)).decode("utf-8", "replace") for file in files}
