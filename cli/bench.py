"""``attnsel bench``: time every candidate of a manifest on this machine's device."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.machine import BackendsOption, DeviceOption, SeedOption, command_text, find_device
from cli.options import Format, FormatOption, ManifestOption, OverlayOption
from cli.progress import Ticker

if TYPE_CHECKING:
    from backends.shapes import Grid
    from selector.tuning.results import Shape

__all__ = ["PhaseName", "bench"]


class PhaseName(StrEnum):
    """Which phase a command is about."""

    PREFILL = "prefill"
    DECODE = "decode"


def complete_grid(incomplete: str) -> list[str]:
    """Grids that ship with attnsel."""
    from backends.shapes import grid_names

    return [name for name in grid_names() if name.startswith(incomplete)]


def bench(
    manifest: ManifestOption = None,
    overlay: OverlayOption = None,
    device: DeviceOption = None,
    grid: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Which shapes: a grid by name, or a YAML file. "
            "Default: h200 on a GPU, small on a CPU.",
            autocompletion=complete_grid,
        ),
    ] = None,
    backend: BackendsOption = None,
    phase: Annotated[PhaseName | None, typer.Option(help="Time only this phase.")] = None,
    paged_only: Annotated[
        bool,
        typer.Option("--paged-only", help="Leave out what copies K and V out of their pages."),
    ] = False,
    limit_s: Annotated[
        float | None,
        typer.Option(metavar="N", min=0, help="After N seconds, begin no other shape."),
    ] = None,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Results file. Default: timings-<grid>.json, here."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where the results file ends.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Time every backend that accepts a shape, over a grid of shapes, and write the timings.

    Example: attnsel bench --grid h200 --out timings.json
    """
    from datetime import UTC, datetime

    from backends.bench import DeviceLostError, find_candidates, measure
    from backends.keeper import Keeper
    from backends.probe import find_missing_tools, probe_facts
    from backends.shapes import read_grid
    from cli.terminal import complain, note, show, show_json
    from selector.binding import Selector
    from selector.report.data import to_json
    from selector.report.timings import bench_lines, nothing_timed_words, timing_words

    where, facts = find_device(device), probe_facts()
    stated = Selector.load(manifest, overlays=overlay or ()).manifest
    shapes_of = read_grid(grid or ("small" if where.platform == "cpu" else "h200"))
    shapes = _shapes(shapes_of, phase)
    file = out or Path(f"timings-{shapes_of.grid}.json")
    keeper = Keeper(file, resume)
    found = find_candidates(
        stated,
        where,
        facts,
        shapes,
        backends=backend or (),
        paged_only=paged_only,
        missing=find_missing_tools(facts),
    )
    if not found.adapters:
        complain(nothing_timed_words(found.not_run))
        raise typer.Exit(Exit.USAGE)
    note(timing_words(len(shapes), len(found.adapters), where))
    try:
        with Ticker() as ticker:
            results = measure(
                stated,
                where,
                facts,
                shapes_of,
                found,
                keeper,
                date=datetime.now(UTC).isoformat(timespec="seconds"),
                command=command_text(
                    "bench",
                    grid=grid or shapes_of.grid,
                    seed=seed,
                    manifest=manifest,
                    overlay=overlay,
                    phase=phase,
                    backend=backend,
                    paged_only=paged_only,
                ),
                seed=seed,
                limit_s=limit_s,
                on_note=note,
                on_shape=lambda done, shape: ticker.show(f"{done:,} of {len(shapes):,}: {shape}"),
            )
    except DeviceLostError as error:
        complain(str(error))
        raise typer.Exit(Exit.FINDINGS) from None
    if form is Format.JSON:
        show_json(to_json(results))
    else:
        show(bench_lines(results, str(file)))
    if any(t.fault or t.disagrees_with for one in results.measured for t in one.timings):
        raise typer.Exit(Exit.FINDINGS)


def _shapes(grid: Grid, phase: PhaseName | None) -> list[Shape]:
    return [s for s in grid.shapes() if phase is None or s.phase.value == phase.value]
