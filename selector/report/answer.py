"""The answer to ``resolve``: what runs, why, on what that depends, and why not the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from selector.changes.case import Case, candidate_of, choice_of, list_of, verdict_of
from selector.manifest import Manifest
from selector.report.layers import group_words, heading, layer_words
from selector.report.refusals import Refusals
from selector.report.text import (
    BLANK,
    Line,
    Part,
    bad,
    faint,
    good,
    grid,
    line,
    strong,
    warn,
)
from selector.report.wording import (
    Places,
    coercion_words,
    conditions_words,
    counted,
    listed,
    manifest_words,
    ordinal,
)
from selector.values import (
    Choice,
    Outcome,
    PathOff,
    Phase,
    Resolution,
)

__all__ = ["answer_lines", "choice_lines"]

_LABEL = 9


def answer_lines(cases: Sequence[Case], manifest: Manifest, places: Places) -> list[Line]:
    """One block for each group of layers, under one heading."""
    first = cases[0]
    lines = [line(heading(first), "    ", faint(manifest_words(manifest.ref, places)))]
    if first.model is not None:
        lines += [line(faint("note "), note, hang=5) for note in first.model.notes]
    for case in cases:
        lines += [BLANK, *_block(case, manifest, places)]
    return lines


def _block(case: Case, manifest: Manifest, places: Places) -> list[Line]:
    lines = [line(strong(group_words(case)), "  ", layer_words(case, manifest), hang=4), BLANK]
    lines += choice_lines(case, manifest, places)
    facts = [*_conditions(case, manifest), *_otherwise(case), *_coercions(case, places)]
    if facts:
        lines += [BLANK, *grid(facts, indent=2)]
    for off in case.resolution.off:
        lines += [BLANK, *_off(off, places)]
    for note in case.resolution.notes:
        lines += [BLANK, _labelled("note", note)]
    return [*lines, *Refusals(manifest, places).lines(case)]


def _label(text: str) -> Part:
    return faint(f"{text:<{_LABEL}}")


def _labelled(text: str, *parts: Part) -> Line:
    return line("  ", _label(text), "   ", *parts, hang=_LABEL + 5)


# -- what was chosen -----------------------------------------------------------------------------


def choice_lines(case: Case, manifest: Manifest, places: Places) -> list[Line]:
    """The decision for each phase, and what this request counts as."""
    rows: list[list[Part]] = []
    before: Choice | None = None
    for phase in case.resolution.needed:
        choice = choice_of(case.resolution, phase)
        if choice.backend is None:
            rows.append([_label(phase), bad("no backend"), "", "no entry fits; why is said below"])
            continue
        rule = _rule(choice, manifest, places)
        if before is not None and _decided(before) == _decided(choice):
            rule = line(faint("same"))
        name = good(choice.backend) if not choice.conditions else warn(choice.backend)
        rows.append([_label(phase), name, listed(choice.paths), rule])
        before = choice
    rows += _counts_as(case.resolution)
    return grid(rows, indent=2)


def _decided(choice: Choice) -> tuple[object, ...]:
    return choice.rule, choice.reason, choice.rank, choice.of


def _rule(choice: Choice, manifest: Manifest, places: Places) -> Line:
    """The list that decided, its reason, and the place in it."""
    if choice.rank == 0 or choice.rule is None:
        return line(choice.reason or "")
    found = list_of(choice, manifest)
    where = f"priorities[{manifest.priorities.index(found)}]" if found else "priorities"
    reason = (choice.reason or "").rstrip(".")
    place = f", {ordinal(choice.rank)} of {choice.of}   "
    return line(f'{where} "{reason}"', place, faint(places.at(choice.rule)))


def _counts_as(resolution: Resolution) -> Iterator[list[Part]]:
    """What the request is for the decode backend, and the threshold that says so."""
    threshold = resolution.decode.decode_threshold
    if len(resolution.needed) < 2 or resolution.decode.backend is None:
        return
    limit = "an unknown number of tokens" if threshold is None else counted(threshold, "new token")
    rule = faint(f"a decode has at most {limit}")
    if resolution.phase is not None:
        yield [_label("counts as"), resolution.phase, "", rule]
    elif resolution.request.query_len is None:
        yield [_label("counts as"), "prefill or decode", "", rule]


# -- on what it depends --------------------------------------------------------------------------


def _conditions(case: Case, manifest: Manifest) -> Iterator[list[Part]]:
    phases: dict[tuple[str, str], list[Phase]] = {}
    needed = case.resolution.needed
    for phase in needed:
        conditions = choice_of(case.resolution, phase).conditions
        for field in dict.fromkeys(c.field for c in conditions):
            for words in conditions_words([c for c in conditions if c.field == field]):
                phases.setdefault((field, words), []).append(phase)
    label = "if"
    for (field, words), where in phases.items():
        only = f" (for {where[0]})" if len(where) < len(needed) else ""
        why = faint(why_unknown(field, manifest, case.planning))
        yield [_label(label), line(words, faint(only)), why]
        label = ""


def why_unknown(field: str, manifest: Manifest, planning: bool) -> str:
    """Why a field is not known, and what would tell."""
    if field in manifest.facts:
        return "unknown here: planning for another machine" if planning else "unknown here"
    if field == "query_len":
        return "not given: --query-len says it"
    if field in ("seq_len", "context_len", "has_context"):
        return "not given: --query-len and --seq-len say it"
    if field in manifest.derive:
        return "follows from what is unknown"
    return f"not given: --set {field}=… says it"


def _otherwise(case: Case) -> Iterator[list[Part]]:
    """What is chosen when a condition does not hold."""
    rest = {
        phase: _fallbacks(case.resolution, phase)
        for phase in case.resolution.needed
        if choice_of(case.resolution, phase).conditions
    }
    label = "else"
    for names in dict.fromkeys(rest.values()):
        phases = [p for p in rest if rest[p] == names]
        only = "" if len(phases) == 2 or len(rest) == 1 else f" (for {phases[0]})"
        yield [_label(label), line(", then ".join(names), faint(only))]
        label = ""


def _fallbacks(resolution: Resolution, phase: Phase) -> tuple[str, ...]:
    possible = choice_of(resolution, phase).possible
    if not possible:
        return ()
    last = verdict_of(candidate_of(resolution, possible[-1]), phase)
    return (*possible[1:], *(("no backend",) if last.conditions else ()))


def _coercions(case: Case, places: Places) -> Iterator[list[Part]]:
    seen = (*case.resolution.prefill.coercions, *case.resolution.decode.coercions)
    for coercion in dict.fromkeys(seen):
        why = f"{coercion.reason}   " if coercion.reason else ""
        at = line(why, faint(places.at(coercion.position)))
        yield [_label("becomes"), coercion_words(coercion), at]


def _off(off: PathOff, places: Places) -> list[Line]:
    """A path that is switched off: where, why, the evidence, and what would reopen it."""
    how = "pinned" if off.outcome is Outcome.PINNED else "off for this layer"
    what = line(warn(off.path), f" prefill of {off.backend}")
    lines = [_labelled("off", what, "   ", faint(f"{places.at(off.position)} {how}"))]
    said = [off.rationale, *off.evidence]
    if off.revisit_when:
        said.append(f"Revisit when {_uncapitalised(off.revisit_when)}")
    return [*lines, *(_labelled("", text) for text in said if text)]


def _uncapitalised(text: str) -> str:
    """``When X ships.`` → ``X ships.``; names keep their capitals."""
    return text[5:] if text.lower().startswith("when ") else text
