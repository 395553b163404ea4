"""Verdicts on promises: as JSON values, as text, and as commands that show what is claimed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from selector.analysis.examples import Example
from selector.analysis.proving import Hidden, Proof, Verdict
from selector.domains import Value
from selector.fields import capability_text
from selector.manifest import Manifest
from selector.report.asking import resolve_words
from selector.report.data import to_json
from selector.report.gaps import rivals_json, rivals_words, share_words
from selector.report.text import BLANK, GLUE, Line, Part, Piece, Style, faint, grid, line, strong
from selector.report.wording import Places, counted, manifest_words
from selector.values import ManifestRef

__all__ = ["Checked", "command_of", "proof_lines", "proofs_json", "settings_of"]

_STYLES = {
    Verdict.PROVED: Style.GOOD,
    Verdict.REFUTED: Style.BAD,
    Verdict.UNDECIDED: Style.WARN,
}
_WIDTH = max(len(verdict) for verdict in Verdict) + 3


class Checked(msgspec.Struct, frozen=True):
    """One manifest and the verdicts on it.

    Attributes:
        manifest: which one.
        proofs: the verdicts.
        commands: by verdict, the words of a command that shows its example.
        as_claimed: its claims stand in place of the truth.
    """

    manifest: ManifestRef
    proofs: tuple[Proof, ...]
    commands: tuple[tuple[str, ...] | None, ...]
    as_claimed: bool


def settings_of(example: Example, manifest: Manifest) -> list[str]:
    """The layer and the facts of an example, as ``--set`` takes them."""
    fields = manifest.vocabulary.fields
    witness = example.witness
    said = [f"{n}={_word(v, fields[n].type)}" for n, v in witness.layer.fields.items()]  # type: ignore[arg-type]
    facts = witness.facts.values.items()
    return said + [f"{n}={'none' if v is None else _word(v, 'name')}" for n, v in facts]


def _word(value: Value, kind: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return capability_text(value) if kind == "capability" and isinstance(value, int) else str(value)


def command_of(example: Example, manifest: Manifest, chosen: Sequence[str]) -> tuple[str, ...]:
    """The words of a command that asks the example's question.

    Args:
        example: the question.
        manifest: what answers it.
        chosen: the words that choose the manifest: ``("--manifest", "vllm-0.33.0")``.
    """
    witness = example.witness
    settings = settings_of(example, manifest)
    return tuple(resolve_words(chosen, witness.device, settings, witness.request))


# -- JSON ----------------------------------------------------------------------------------------


def proofs_json(checked: Sequence[Checked]) -> dict[str, Any]:
    """Everything, as JSON values."""
    return {"manifests": [_checked_json(one) for one in checked]}


def _checked_json(one: Checked) -> dict[str, Any]:
    pairs = zip(one.proofs, one.commands, strict=True)
    return {
        "manifest": to_json(one.manifest),
        "as_claimed": one.as_claimed,
        "proofs": [_proof_json(proof, command) for proof, command in pairs],
    }


def _proof_json(proof: Proof, command: tuple[str, ...] | None) -> dict[str, Any]:
    without = msgspec.structs.replace(proof, example=None, hidden=())
    plain: dict[str, Any] = to_json(without)
    del plain["example"]
    plain["hidden"] = [
        {"backend": h.backend, "phase": h.phase, "said": h.said, "rivals": rivals_json(h.rivals)}
        for h in proof.hidden
    ]
    plain["witness"] = None
    if proof.example is not None and command is not None:
        answer = proof.example.answer
        chosen = {"prefill": answer.prefill, "decode": answer.decode}
        plain["witness"] = {
            "command": shlex.join(command),
            **{
                phase: {"backend": choice.backend, "path": choice.path}
                for phase, choice in chosen.items()
            },
        }
    return plain


# -- text ----------------------------------------------------------------------------------------


def proof_lines(one: Checked, places: Places) -> Iterator[Line]:
    """Yields the verdicts on one manifest, and how many there are of each."""
    claimed = " · as claimed" if one.as_claimed else ""
    yield line(strong(manifest_words(one.manifest, places)), claimed)
    yield BLANK
    for proof, command in zip(one.proofs, one.commands, strict=True):
        yield from _proof_lines(proof, command, places)
    counts = [(sum(p.verdict is v for p in one.proofs), v) for v in Verdict]
    yield BLANK
    yield line(", ".join(f"{number} {verdict}" for number, verdict in counts if number), ".")


def _proof_lines(proof: Proof, command: tuple[str, ...] | None, places: Places) -> Iterator[Line]:
    head = Piece(f"{proof.verdict:<{_WIDTH}}", _STYLES[proof.verdict])
    at = places.at(proof.position) if proof.position else "asked of every manifest"
    yield line("  ", head, proof.name, "   ", faint(at), hang=_WIDTH + 2)
    pad = " " * (_WIDTH + 2)
    for words in _count_words(proof):
        yield line(pad, words, hang=_WIDTH + 2)
    for hidden in proof.hidden:
        yield line(pad, hidden_words(hidden), hang=_WIDTH + 2)
    if proof.verdict is Verdict.PROVED:
        return
    yield line(pad, faint(proof.reason), hang=_WIDTH + 2)
    if proof.example is not None and command is not None:
        yield line(pad, "for example", hang=_WIDTH + 2)
        yield line(pad, "  ", shlex.join(command).replace(" ", GLUE))  # to be copied as it is
        answer = proof.example.answer
        said = [
            f"{phase} {choice.backend or 'nothing'}{f' ({choice.path})' if choice.path else ''}"
            for phase, choice in (("prefill", answer.prefill), ("decode", answer.decode))
        ]
        yield line(pad, f"gives {', '.join(said)}", hang=_WIDTH + 2)
    rows: list[list[Part]] = [
        [faint(places.at(fault.position)), fault.words] for fault in proof.faults
    ]
    yield from grid(rows, indent=_WIDTH + 2) if rows else ()


def _count_words(proof: Proof) -> Iterator[str]:
    """Yields how many questions, and how many of them break the promise."""
    if proof.hidden and proof.verdict is not Verdict.PROVED:
        yield f"{counted(proof.questions, 'question')}, and none of them chooses"
    elif proof.broken:
        share = share_words(proof.broken, proof.questions)
        yield f"{proof.broken:,} of {counted(proof.questions, 'question')} break it ({share})"
    elif proof.questions or not proof.drawn:
        nothing = "" if proof.questions else ": nothing that can exist is meant"
        yield f"{counted(proof.questions, 'question')}, none breaks it{nothing}"
    if proof.suspected:
        yield f"{proof.suspected:,} of them meet the rule that gives the path"
    if proof.open:
        yield f"{proof.open:,} of them only the definition can tell, one by one"
    if proof.drawn and proof.bound is not None:
        yield (
            f"of other kinds, too many to look at, {counted(proof.drawn, 'question')} were drawn: "
            f"if none of those breaks it, at most {proof.bound:.1%} of any kind do (95 % sure)"
        )


def hidden_words(hidden: Hidden) -> str:
    """Which backends are chosen instead of one, and how often."""
    said = "never, as an invariant says; " if hidden.said else ""
    return f"{hidden.backend}, for {hidden.phase}: {said}{rivals_words(hidden.rivals)}"
