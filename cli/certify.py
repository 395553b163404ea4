"""``attnsel certify``: run what the manifest claims on this machine's device."""

from __future__ import annotations

import shlex
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
    from collections.abc import Callable, Sequence

    from backends.certificate import Certificate
    from backends.judging import CaseResult
    from selector.manifest import Manifest
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
    field: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Vary only this field. Repeatable."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Evidence file. Default: evidence-<id>.json, here."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with FILE.part, which a run cut short leaves.")
    ] = False,
    judge: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.part",
            help="Run nothing: judge the run recorded there under the manifest as it is now.",
        ),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(metavar="N", min=1, max=64, help="Processes that run cases at a time."),
    ] = 1,
    limit_s: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=1, help="Stop after this long; say what is left."),
    ] = None,
    case_limit_s: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=1, help="A case that takes longer hangs."),
    ] = 120,
    build_limit_s: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=1, help="For building kernels before the first case."),
    ] = 1800,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the random inputs.")] = 0,
    form: FormatOption = Format.TABLE,
) -> None:
    """Run what a manifest claims, just inside and outside each limit, and write evidence.

    Example: attnsel certify --device cuda --workers 4 --out evidence/h200.json
    """
    from datetime import UTC, datetime

    from backends import certify as certifying
    from backends.part import Head, Part
    from backends.probe import find_missing_tools, probe_facts
    from backends.workers import Workers
    from cli.terminal import complain, note
    from selector.binding import Selector
    from selector.report.certificate import (
        judge_words,
        left_words,
        nothing_ran_words,
        start_words,
    )

    # Nothing here hands an array to NumPy, so torch need not say that it found none.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    stated = Selector.load(manifest, overlays=overlay or ()).manifest
    if judge is not None:
        certificate = _judge(stated, judge, manifest, backend, field)
        file = out or _default_file(certificate.device, certificate.date, stated.ref.digest)
        _write(certificate, file)
        _show(certificate, stated, file, form)
        return
    where_to, facts = _device(device), probe_facts()
    runs = certifying.find_runs(
        stated, where_to, facts, backend or (), field or (), find_missing_tools(facts)
    )
    count = sum(len(cases) for cases in runs.cases.values())
    if not count:
        complain(nothing_ran_words(runs.skipped))
        raise typer.Exit(Exit.USAGE)
    head = Head(
        stated.ref.digest,
        where_to,
        dict(facts.values),
        seed,
        datetime.now(UTC).date().isoformat(),
    )
    file = out or _default_file(where_to, head.date, head.digest)
    part = Part(file.with_name(f"{file.name}.part"), head, resume)
    note(start_words(count, len(runs.cases), where_to, len(part.results)))
    shown = _progress()

    def keep(result: CaseResult) -> None:
        part.add(result)
        shown(result)

    with part:
        certificate = certifying.certify(
            stated,
            where_to,
            facts,
            date=part.head.date,
            runs=runs,
            done=part.results,
            seed=seed,
            workers=Workers(certifying.torch_device(where_to), workers),
            limits=certifying.Limits(case_limit_s, build_limit_s, limit_s),
            repeat=_repeat(where_to, manifest, backend, field, seed),
            on_note=note,
            on_result=keep,
        )
        _write(certificate, file)
    left = count - len(certificate.results)
    if left:
        note(left_words(left))
    elif not certificate.passed:
        note(judge_words(part.path.name))
    else:
        part.remove()
    _show(certificate, stated, file, form)


def _judge(
    stated: Manifest,
    part: Path,
    manifest: str | None,
    backends: Sequence[str] | None,
    fields: Sequence[str] | None,
) -> Certificate:
    """A recorded run, judged under the manifest as it is now."""
    from datetime import UTC, datetime

    from backends.certify import find_runs, judge_runs
    from backends.part import read_part
    from cli.terminal import complain
    from selector.values import Facts

    head, recorded = read_part(part)
    certificate = judge_runs(
        stated,
        head,
        recorded,
        find_runs(stated, head.device, Facts(head.facts), backends or (), fields or ()),
        today=datetime.now(UTC).date().isoformat(),
        repeat=_repeat(head.device, manifest, backends, fields, head.seed),
    )
    if not certificate.results:
        complain(f"{part} records no run of a case of this manifest")
        raise typer.Exit(Exit.USAGE)
    return certificate


def _default_file(device: Device, date: str, digest: str) -> Path:
    from selector.evidence import evidence_id

    return Path(f"evidence-{evidence_id(device, date, digest)}.json")


def _write(certificate: Certificate, file: Path) -> None:
    from backends.certificate import evidence_text

    file.write_text(evidence_text(certificate.evidence()), "utf-8")


def _show(certificate: Certificate, stated: Manifest, file: Path, form: Format) -> None:
    """Shows the evidence, and fails where a claim is wrong."""
    from cli.terminal import places, show, show_json
    from selector.report.certificate import certificate_lines
    from selector.report.text import line

    evidence, name = certificate.evidence(), stated.ref.file
    if form is Format.JSON:
        show_json(evidence)
    else:
        texts = {name: Path(name).read_text("utf-8")}
        show(certificate_lines(evidence, certificate.findings(), texts, places(name)))
        show([line(f"evidence is in {file}")])
    if not certificate.passed:
        raise typer.Exit(Exit.FINDINGS)


def _repeat(
    device: Device,
    manifest: str | None,
    backends: Sequence[str] | None,
    fields: Sequence[str] | None,
    seed: int,
) -> str:
    """The command that runs the same again."""
    words = ["attnsel", "certify", "--device", "cpu" if device.platform == "cpu" else "cuda"]
    words += ["--manifest", manifest] if manifest else []
    for name in backends or ():
        words += ["--backend", name]
    for name in fields or ():
        words += ["--field", name]
    return shlex.join([*words, "--seed", str(seed)])


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
