"""``attnsel certify``: run what the manifest claims on this machine's device."""

from __future__ import annotations

import json
import sys
import time
import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.options import Format, FormatOption, ManifestOption, OverlayOption, complete_backend

if TYPE_CHECKING:
    from collections.abc import Callable

    from backends.certify import CaseResult
    from selector.values import Device

__all__ = ["certify"]


_SHOWN_EVERY_S = 0.2


class Where(StrEnum):
    """Which of this machine's devices to run on."""

    CPU = "cpu"
    CUDA = "cuda"


def certify(
    manifest: ManifestOption = None,
    overlay: OverlayOption = None,
    device: Annotated[
        Where | None, typer.Option(help="Where to run. Default: the GPU, else the CPU.")
    ] = None,
    backend: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Certify only this backend. Repeatable.",
            autocompletion=complete_backend,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Evidence file. Default: evidence-<id>.json, here."),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the random inputs.")] = 0,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run what a manifest claims, just inside and outside each limit, and write evidence.

    Example: attnsel certify --device cpu --out evidence.json
    """
    from datetime import UTC, datetime

    from backends.certify import certify as run_claims
    from backends.probe import probe_facts
    from cli.terminal import complain, note, places, show, show_json
    from selector.binding import Selector
    from selector.report.certificate import certificate_lines, nothing_ran_words, start_words
    from selector.report.text import line

    # Nothing here hands an array to NumPy, so torch need not say that it found none.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    stated = Selector.load(manifest, overlays=overlay or ()).manifest
    where_to = _device(device)
    date = datetime.now(UTC).date().isoformat()
    if out is not None:
        out.open("a").close()  # an error now, not after minutes
    certificate = run_claims(
        stated,
        where_to,
        probe_facts(),
        date=date,
        backends=backend or (),
        seed=seed,
        on_start=lambda cases, entries: note(start_words(cases, entries, where_to)),
        on_result=_progress(),
    )
    evidence = certificate.evidence()
    if not evidence["cases"]:
        complain(nothing_ran_words(evidence))
        raise typer.Exit(Exit.USAGE)
    file = out or Path(f"evidence-{certificate.id}.json")
    file.write_text(json.dumps(evidence, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if form is Format.JSON:
        show_json(evidence)
    else:
        text = Path(stated.ref.file).read_text("utf-8")
        where = places(stated.ref.file)
        show(certificate_lines(evidence, certificate.findings(), text, where))
        show([line(f"evidence is in {file}")])
    if not certificate.passed:
        raise typer.Exit(Exit.FINDINGS)


def _device(wanted: Where | None) -> Device:
    """This machine's device.

    Raises:
        UnknownDeviceError: there is no such device.
    """
    from backends.probe import probe_device
    from selector.errors import UnknownDeviceError
    from selector.values import Device

    if wanted is Where.CPU:
        return Device("cpu")
    found = probe_device()
    if wanted is Where.CUDA and found.platform != "cuda":
        raise UnknownDeviceError("no CUDA device is seen on this machine; --device cpu runs here")
    return found


def _progress() -> Callable[[CaseResult], object]:
    """Shows a running count on a terminal, and nothing elsewhere."""
    if not sys.stderr.isatty():
        return lambda _: None
    from selector.report.certificate import progress_words

    done = 0
    shown_at = 0.0

    def show(result: CaseResult) -> None:
        nonlocal done, shown_at
        done += 1
        if time.monotonic() - shown_at < _SHOWN_EVERY_S:
            return
        shown_at = time.monotonic()
        sys.stderr.write(f"\r\x1b[K{progress_words(done, result.case.backend)}\r")
        sys.stderr.flush()

    return show
