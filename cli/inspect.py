"""``attnsel inspect``: what the manifest states, and what that means for each architecture."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import ManifestOption, ModelOption, OverlayOption, Settings, complete_backend

if TYPE_CHECKING:
    from selector.binding import Selector

__all__ = ["inspect"]


class InspectFormat(StrEnum):
    """Form of the output."""

    TABLE = "table"
    MARKDOWN = "markdown"
    JSON = "json"


def inspect(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="A backend: show all that is stated of it. With --gaps, a manifest.",
            autocompletion=complete_backend,
        ),
    ] = None,
    manifest: ManifestOption = None,
    overlay: OverlayOption = None,
    matrix: Annotated[
        bool, typer.Option("--matrix", help="Every backend on every architecture.")
    ] = False,
    gaps: Annotated[
        bool,
        typer.Option(
            "--gaps",
            help="Layers that no backend runs, entries that are never chosen, and pairs that only "
            "their order decides.",
        ),
    ] = False,
    model: ModelOption = None,
    settings: Settings = None,
    form: Annotated[
        InspectFormat, typer.Option("--format", help="Form of the output.")
    ] = InspectFormat.TABLE,
) -> None:
    """Show all backends, one backend, a support matrix, or gaps.

    Example: attnsel inspect --matrix
    """
    from cli.terminal import places, show, show_json
    from selector.binding import Selector
    from selector.report import entries, text

    if gaps:
        _show_gaps(manifest or name, overlay or [], form)
        return
    selector = Selector.load(manifest, overlays=overlay or ())
    stated = selector.manifest
    where = places(stated.ref.file)
    markdown = form is InspectFormat.MARKDOWN
    if matrix:
        _show_matrices(selector, model, settings or [], form)
    elif name is None:
        if form is InspectFormat.JSON:
            show_json(entries.entries_json(stated))
        else:
            show(entries.entries_lines(stated, where, markdown), whole=markdown)
    else:
        entry = stated.entry(name)
        if form is InspectFormat.JSON:
            show_json(entries.entry_json(entry, stated))
        else:
            lines = entries.entry_lines(entry, stated, where)
            show(text.fenced(lines) if markdown else lines, whole=markdown)


def _show_gaps(manifest: str | None, overlays: list[str], form: InspectFormat) -> None:
    """What is left without a backend, what is never chosen, and what only order decides."""
    from cli.terminal import places, show, show_json
    from selector.analysis.gaps import find_gaps
    from selector.binding import Selector
    from selector.report.gaps import gaps_json, gaps_lines
    from selector.report.text import fenced

    stated = Selector.load(manifest, overlays=overlays).manifest
    found = find_gaps(stated)
    if form is InspectFormat.JSON:
        show_json(gaps_json(found))
        return
    lines = list(gaps_lines(found, places(stated.ref.file)))
    markdown = form is InspectFormat.MARKDOWN
    show(fenced(lines) if markdown else lines, whole=markdown)


def _show_matrices(
    selector: Selector, model: str | None, settings: list[str], form: InspectFormat
) -> None:
    """One matrix; with a model, one for each of its groups of layers."""
    from cli.asking import layers_of, read_settings
    from cli.terminal import places, show, show_json, width
    from selector.report.matrix import matrix_json, matrix_lines, support_matrix
    from selector.report.text import BLANK
    from selector.values import Facts

    said = read_settings(selector.manifest, settings)
    facts = Facts(said.facts)
    if model is None and not said.fields:
        matrices = [support_matrix(selector, facts=facts)]
    else:
        matrices = [
            support_matrix(
                selector,
                layer,
                facts,
                f"{of.name}, {group.name} layers" if of and group else "this layer",
            )
            for of, group, layer, _ in layers_of(model, said.fields)
        ]
    if form is InspectFormat.JSON:
        show_json(matrix_json(matrices, selector))
        return
    where = places(selector.manifest.ref.file)
    for index, matrix in enumerate(matrices):
        markdown = form is InspectFormat.MARKDOWN
        lines = matrix_lines(matrix, selector, where, markdown, width())
        show([*([BLANK] if index else []), *lines], whole=markdown)
