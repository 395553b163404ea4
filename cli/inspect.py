"""``attnsel inspect``: what the manifest states, and what that means for each architecture."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.asking import UsageError, named_device
from cli.options import (
    Arch,
    Gpu,
    ManifestOption,
    ModelOption,
    OverlayOption,
    Settings,
    complete_backend,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from selector.binding import Selector
    from selector.manifest import Manifest
    from selector.values import Device

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
            help="Layers that no list gives a backend, backends that are never chosen, and pairs "
            "that only their order decides; of one device with --gpu or --arch.",
        ),
    ] = False,
    arch: Arch = None,
    gpu: Gpu = None,
    model: ModelOption = None,
    settings: Settings = None,
    form: Annotated[
        InspectFormat, typer.Option("--format", help="Form of the output.")
    ] = InspectFormat.TABLE,
) -> None:
    """Show all backends, one backend, a support matrix, or gaps.

    Example: attnsel inspect --matrix
    """
    from selector.binding import Selector

    _check_together(gaps, matrix, {"--arch": arch, "--gpu": gpu}, model, settings)
    if gaps:
        _show_gaps(manifest or name, overlay or [], named_device(arch, gpu), form)
        return
    selector = Selector.load(manifest, overlays=overlay or ())
    if matrix:
        _show_matrices(selector, model, settings or [], form)
    else:
        _show_stated(selector.manifest, name, form)


def _check_together(
    gaps: bool,
    matrix: bool,
    devices: Mapping[str, str | None],
    model: str | None,
    settings: list[str] | None,
) -> None:
    """Refuses options that say nothing to what is shown.

    Raises:
        UsageError: there is one.
    """
    said = [option for option, value in devices.items() if value is not None]
    if gaps and matrix:
        raise UsageError("--gaps and --matrix do not go together: give one of them")
    if gaps and (model is not None or settings):
        option = "--model" if model is not None else "--set"
        raise UsageError(
            f"{option} does not go with --gaps, which looks at all layers; --matrix takes it"
        )
    if said and not gaps:
        raise UsageError(
            f"{said[0]} goes with --gaps; --matrix shows every architecture, `attnsel resolve` one"
        )


def _show_stated(manifest: Manifest, name: str | None, form: InspectFormat) -> None:
    """All backends, or all that is stated of one."""
    from cli.terminal import places, show, show_json
    from selector.evidence import find_evidence
    from selector.report import entries, text
    from selector.report.verified import backend_json, verified_lines

    where = places(manifest.ref.file)
    markdown = form is InspectFormat.MARKDOWN
    entry = None if name is None else manifest.entry(name)
    if form is InspectFormat.JSON and entry is None:
        show_json(entries.entries_json(manifest))
    elif form is InspectFormat.JSON and entry is not None:
        show_json(backend_json(entry, manifest))
    elif entry is None:
        show(entries.entries_lines(manifest, where, markdown), whole=markdown)
    else:
        lines = entries.entry_lines(entry, manifest, where)
        lines += verified_lines(entry, find_evidence(manifest.ref.file) or {})
        show(text.fenced(lines) if markdown else lines, whole=markdown)


def _show_gaps(
    manifest: str | None, overlays: list[str], device: Device | None, form: InspectFormat
) -> None:
    """What no list gives a backend, what is never chosen, and what only order decides."""
    from cli.terminal import places, show, show_json
    from selector.analysis.gaps import find_gaps
    from selector.analysis.narrowing import only_on
    from selector.binding import Selector
    from selector.report.gaps import gaps_json, gaps_lines
    from selector.report.text import fenced

    stated = Selector.load(manifest, overlays=overlays).manifest
    found = find_gaps(stated if device is None else only_on(stated, device))
    if form is InspectFormat.JSON:
        show_json(gaps_json(found, device))
        return
    lines = list(gaps_lines(found, places(stated.ref.file), device))
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
