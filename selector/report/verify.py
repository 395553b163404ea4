"""Verdicts on promises: as JSON values, as text, and as commands that show what is claimed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from selector.analysis.proving import REACHABLE, Proof, Verdict
from selector.report.counts import number_words, question_line, questions_words, share_words
from selector.report.data import to_json
from selector.report.gaps import rivals_json, rivals_words
from selector.report.text import BLANK, GLUE, Line, Part, Piece, Style, faint, grid, line, strong
from selector.report.wording import Places, counted, manifest_words
from selector.values import ManifestRef

__all__ = ["Checked", "proof_lines", "proofs_json"]

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
    yield question_line()
    yield BLANK
    for proof, command in zip(one.proofs, one.commands, strict=True):
        yield from _proof_lines(proof, command, places)
    counts = [(sum(p.verdict is v for p in one.proofs), v) for v in Verdict]
    yield BLANK
    yield line(", ".join(f"{number} {verdict}" for number, verdict in counts if number), ".")


def _proof_lines(proof: Proof, command: tuple[str, ...] | None, places: Places) -> Iterator[Line]:
    head = Piece(f"{proof.verdict:<{_WIDTH}}", _STYLES[proof.verdict])
    at = places.at(proof.position) if proof.position else "asked of every manifest"
    yield line("  ", head, _name_of(proof), "   ", faint(at), hang=_WIDTH + 2)
    pad = " " * (_WIDTH + 2)
    for words in (*_count_words(proof), *_hidden_words(proof)):
        yield line(pad, words, hang=_WIDTH + 2)
    if proof.verdict is Verdict.PROVED:
        return
    yield line(pad, faint(proof.reason), hang=_WIDTH + 2)
    yield from _example_lines(proof, command)
    rows: list[list[Part]] = [
        [faint(places.at(fault.position)), fault.words] for fault in proof.faults
    ]
    yield from grid(rows, indent=_WIDTH + 2) if rows else ()


def _example_lines(proof: Proof, command: tuple[str, ...] | None) -> Iterator[Line]:
    """Yields a question that breaks the promise, and the answer to it."""
    if proof.example is None:
        return
    pad = " " * (_WIDTH + 2)
    answer = proof.example.answer
    if command is not None:
        yield line(pad, "for example", hang=_WIDTH + 2)
        yield line(pad, "  ", shlex.join(command).replace(" ", GLUE))  # to be copied as it is
    else:
        device = answer.device
        where = f"{device.platform} with compute capability {device.capability}"
        yield line(pad, f"for example on {where}: no machine is that; let `space` say so")
    said = [
        f"{phase} {choice.backend or 'nothing'}{f' ({choice.path})' if choice.path else ''}"
        for phase, choice in (("prefill", answer.prefill), ("decode", answer.decode))
    ]
    yield line(pad, f"gives {', '.join(said)}", hang=_WIDTH + 2)


def _name_of(proof: Proof) -> str:
    """What is promised; of what lists name, without what an invariant excludes."""
    said = {hidden.backend for hidden in proof.hidden if hidden.said}
    if proof.name != REACHABLE or not said:
        return proof.name
    return f"{proof.name}, but for {len(said)} that an invariant excludes"


def _hidden_words(proof: Proof) -> Iterator[str]:
    """Yields the backends that are never chosen, those that no invariant excludes first."""
    for said, title in ((False, "never chosen"), (True, "excluded by an invariant")):
        for hidden in proof.hidden:
            if hidden.said is said:
                rivals = rivals_words(hidden.rivals)
                yield f"{title}: {hidden.backend}, for {hidden.phase}: {rivals}"


def _count_words(proof: Proof) -> Iterator[str]:
    """Yields how many questions, and how many of them break the promise."""
    if proof.name == REACHABLE:
        if proof.questions:
            yield f"{questions_words(proof.questions)} looked at"
    elif proof.broken:
        share = share_words(proof.broken, proof.questions)
        broken = number_words(proof.broken)
        yield f"{share} break it: {broken} of {questions_words(proof.questions)}"
    elif proof.suspected:
        yield (
            f"lengths decide: {number_words(proof.suspected)} of "
            f"{questions_words(proof.questions)} meet the rule that gives the path"
        )
    elif not proof.questions:
        if not proof.drawn:
            yield "nothing that can exist is meant: 0 questions"
    else:
        yield f"none of {questions_words(proof.questions)} breaks it"
    if proof.broken and proof.suspected:
        yield f"{number_words(proof.suspected)} of them meet the rule that gives the path"
    if proof.open:
        yield f"{number_words(proof.open)} of them only the definition can tell, one by one"
    if proof.drawn and proof.bound is not None:
        yield (
            f"of other kinds, too many to look at, {counted(proof.drawn, 'question')} were drawn: "
            f"if none of those breaks it, at most {proof.bound:.1%} of any kind do (95 % sure)"
        )
