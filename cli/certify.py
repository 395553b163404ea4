"""``attnsel certify``: run what the manifest claims on this machine's device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.machine import BackendsOption, DeviceOption, SeedOption, command_text, find_device
from cli.options import Format, FormatOption, ManifestOption, OverlayOption
from cli.progress import Ticker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backends.certificate import Certificate
    from backends.judging import CaseResult
    from selector.manifest import Manifest
    from selector.values import Device

__all__ = ["certify"]


def certify(
    manifest: ManifestOption = None,
    overlay: OverlayOption = None,
    device: DeviceOption = None,
    backend: BackendsOption = None,
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
    seed: SeedOption = 0,
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
        progress_words,
        start_words,
    )

    stated = Selector.load(manifest, overlays=overlay or ()).manifest
    if judge is not None:
        certificate = _judge(stated, judge, manifest, overlay, backend, field)
        file = out or _default_file(certificate.device, certificate.date, stated.ref.digest)
        _write(certificate, file)
        _show(certificate, stated, file, form)
        return
    where_to, facts = find_device(device), probe_facts()
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
    ran = 0

    def keep(result: CaseResult) -> None:
        nonlocal ran
        part.add(result)
        ran += 1
        ticker.show(progress_words(ran, result.case.backend))

    with part, Ticker() as ticker:
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
            repeat=_repeat(where_to, manifest, overlay, backend, field, seed),
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
    overlay: Sequence[str] | None,
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
        repeat=_repeat(head.device, manifest, overlay, backends, fields, head.seed),
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
    overlay: Sequence[str] | None,
    backend: Sequence[str] | None,
    field: Sequence[str] | None,
    seed: int,
) -> str:
    """The command that runs the same again."""
    return command_text(
        "certify",
        device="cpu" if device.platform == "cpu" else "cuda",
        manifest=manifest,
        overlay=overlay,
        backend=backend,
        field=field,
        seed=seed,
    )
