"""``attnsel verify``: what a manifest promises, proved over all questions or refuted by one."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.options import AsClaimed, OverlayOption, complete_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.asking import Flags
    from selector.analysis.proving import Proof
    from selector.manifest import Manifest
    from selector.report.verify import Checked

__all__ = ["verify"]


class VerifyFormat(StrEnum):
    """Form of the output."""

    TEXT = "text"
    JSON = "json"


def verify(
    manifests: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MANIFEST",
            help="Names or paths. Default: the shipped one.",
            autocompletion=complete_manifest,
        ),
    ] = None,
    overlay: OverlayOption = None,
    as_claimed: AsClaimed = False,
    budget: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=0,
            help="Steps of the analysis to look at; beyond, questions are drawn, and nothing is "
            "proved of their kinds.",
        ),
    ] = None,
    form: Annotated[
        VerifyFormat, typer.Option("--format", help="Form of the output.")
    ] = VerifyFormat.TEXT,
) -> None:
    """Prove what a manifest promises, or show a question that breaks it.

    Example: attnsel verify vllm-0.33.0 --as-claimed
    """
    from cli.terminal import places, show, show_json
    from selector.analysis.proving import Verdict
    from selector.report.text import BLANK
    from selector.report.verify import proof_lines, proofs_json

    asked = [*(manifests or ()), *(() if manifests else (None,))]
    checked = [_checked(one, overlay or [], as_claimed, budget) for one in asked]
    if form is VerifyFormat.JSON:
        show_json(proofs_json(checked))
    else:
        where = places(*(one.manifest.file for one in checked))
        for index, one in enumerate(checked):
            show([*([BLANK] if index else []), *proof_lines(one, where)])
    if any(proof.verdict is not Verdict.PROVED for one in checked for proof in one.proofs):
        raise typer.Exit(Exit.FINDINGS)


def _checked(
    reference: str | None, overlays: Sequence[str], as_claimed: bool, budget: int | None
) -> Checked:
    """The verdicts on one manifest, each example asked again as its command says it."""
    from cli.asking import Flags
    from selector.analysis.known import with_known_example
    from selector.analysis.proving import prove_all
    from selector.analysis.survey import BUDGET
    from selector.binding import Selector
    from selector.report.verify import Checked

    selector = Selector.load(reference, overlays=overlays, as_claimed=as_claimed)
    found = prove_all(selector.manifest, BUDGET if budget is None else budget)
    proofs = tuple(with_known_example(selector.manifest, proof) for proof in found)
    flags = Flags(manifest=reference, overlay=list(overlays), as_claimed=as_claimed)
    told = [_command(proof, selector.manifest, flags) for proof in proofs]
    return Checked(selector.manifest.ref, proofs, tuple(told), as_claimed)


def _command(proof: Proof, manifest: Manifest, flags: Flags) -> tuple[str, ...] | None:
    """The command that shows an example; it is asked before it is said.

    ``None``: there is no example, or none that a command can ask.

    Args:
        proof: the verdict.
        manifest: what it is on.
        flags: what chooses the manifest.

    Raises:
        AssertionError: the command gives another answer than the example.
    """
    from dataclasses import replace

    from cli.asking import ask_all
    from selector.report.asking import chosen_words, resolve_words, settings_of
    from selector.values import Device

    if proof.example is None:
        return None
    witness, answer = proof.example.witness, proof.example.answer
    device, request = witness.device, witness.request
    if alone := device.platform != "cuda" and device.capability is not None:
        device = Device(device.platform)  # what the manifest's space allows and no machine is
    settings = settings_of(witness, manifest)
    asked = replace(
        flags,
        arch=device.capability or device.platform,
        settings=settings,
        query_len=request.query_len,
        seq_len=request.seq_len,
    )
    said = ask_all(asked).cases[0].resolution
    if (said.prefill, said.decode, said.notes) != (answer.prefill, answer.decode, answer.notes):
        if alone:
            return None
        raise AssertionError(f'the example of "{proof.name}" is answered in another way')
    chosen = chosen_words(flags.manifest, flags.overlay, flags.as_claimed)
    return tuple(resolve_words(chosen, device, settings, request))
