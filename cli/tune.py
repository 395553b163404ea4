"""``attnsel tune``: priority lists from timings, and what each choice costs."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.bench import PhaseName
from cli.options import ManifestOption, OverlayOption

if TYPE_CHECKING:
    from collections.abc import Sequence

    from selector.binding import Selector
    from selector.tuning.policy import Tuned
    from selector.tuning.timings import Timings

__all__ = ["tune"]


class TuneFormat(StrEnum):
    """Form of the output; ``yaml`` is the lists alone, ready to paste."""

    TABLE = "table"
    YAML = "yaml"
    JSON = "json"


def tune(
    results: Annotated[
        list[Path],
        typer.Argument(
            metavar="RESULTS...",
            help="Timings that `attnsel bench` wrote, of one device and the same libraries; "
            "of a shape in several files, the newest count.",
        ),
    ],
    manifest: ManifestOption = None,
    overlay: OverlayOption = None,
    phase: Annotated[PhaseName | None, typer.Option(help="Tune only this phase.")] = None,
    rules: Annotated[
        int, typer.Option(metavar="N", min=1, max=12, help="At most N lists for each phase.")
    ] = 12,
    holdout: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Judge by these timings, and tune on all of RESULTS. "
            "Default: the half of the shapes that the grid holds out.",
        ),
    ] = None,
    paged_only: Annotated[
        bool | None,
        typer.Option(
            "--paged-only/--any-kv",
            help="Choose only from candidates that read pages in place. "
            "Default: so, where there are any.",
        ),
    ] = None,
    form: Annotated[
        TuneFormat, typer.Option("--format", help="Form of the output.")
    ] = TuneFormat.TABLE,
) -> None:
    """Derive priority lists from timings, and say how much slower than the best each choice is.

    Example: attnsel tune timings-h200.json --format yaml
    """
    _check_numpy()
    from cli.terminal import show, show_json
    from selector.binding import Selector
    from selector.report.tuning import tuning_json, tuning_lines
    from selector.tuning.comparing import NothingToTuneError, compare, timings_of, tuned_from
    from selector.tuning.policy import priorities_text
    from selector.tuning.search import Aims
    from selector.tuning.timings import read_timings
    from selector.values import Phase

    timed = read_timings(results)
    others = None if holdout is None else read_timings([holdout])
    before = Selector.load(manifest, overlays=overlay or ())
    there = {one.shape.phase for one in timed.measured}
    if not there:
        raise NothingToTuneError(f"{timed.names}: no shape was timed")
    phases = [p for p in Phase if p in there] if phase is None else [Phase(phase.value)]
    if paged_only is None:
        paged_only = any(runner.reads_pages for runner in timed.runners.values())
    aims = Aims(rules=rules)
    timings = [timings_of(timed, one, paged_only, others) for one in phases]
    for name in dict.fromkeys(name for one in timings for name in one.candidates):
        before.manifest.entry(name)  # what a list names must be there
    tuned = [tuned_from(timed, one, aims, before) for one in timings]
    if form is TuneFormat.YAML:
        typer.echo(priorities_text(timed, tuned), nl=False)
        return
    after = _with_lists(manifest, overlay or (), timed, tuned)
    answers = [
        (one, lists, compare(timed, one, before, after, aims))
        for one, lists in zip(timings, tuned, strict=True)
    ]
    if form is TuneFormat.JSON:
        show_json(tuning_json(timed, answers))
    else:
        show(tuning_lines(timed, answers), whole=True)


def _check_numpy() -> None:
    from importlib.util import find_spec

    from cli.asking import UsageError

    if find_spec("numpy") is None:
        raise UsageError(
            "tuning needs numpy, which is not installed; run: pip install 'attnsel[tune]'"
        )


def _with_lists(
    manifest: str | None, overlays: Sequence[str], timed: Timings, tuned: Sequence[Tuned]
) -> Selector:
    """The manifest with the tuned lists before its own."""
    from tempfile import TemporaryDirectory

    from selector.binding import Selector
    from selector.tuning.policy import overlay_text

    with TemporaryDirectory() as folder:
        file = Path(folder) / "tuned.yaml"
        file.write_text(overlay_text(timed, tuned), "utf-8")
        return Selector.load(manifest, overlays=[*overlays, file])
