"""The answer to ``resolve``: what runs, why, on what that depends, and why not the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from selector.changes.case import (
    Case,
    candidate_of,
    choice_of,
    list_of,
    usable_in,
    verdict_of,
)
from selector.manifest import Manifest
from selector.report.layers import group_words, heading, layer_words
from selector.report.refusals import Refusals, no_platform
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
    reasons,
    uncapitalised,
)
from selector.values import Choice, Code, Outcome, PathOff, Phase, Resolution

__all__ = ["answer_lines", "choice_lines", "condition_lines", "lacking_words", "source_lines"]

_LABEL = 9
_WIDE = 48
"""Longest text that other rows of a table are aligned with."""


def answer_lines(cases: Sequence[Case], manifest: Manifest, places: Places) -> list[Line]:
    """One block for each group of layers, under one heading.

    What is said of an entry for every group alike stands once, at the end.
    """
    first = cases[0]
    lines = [line(heading(first), "    ", faint(manifest_words(manifest.ref, places)))]
    if first.model is not None:
        lines += [line(faint("note "), note, hang=5) for note in first.model.notes]
    lines += [line(warn("note "), words, hang=5) for words in _fallback_words(cases)]
    refusals = Refusals(manifest, places)
    if nowhere := no_platform(first):
        for case in cases:
            lines += [BLANK, *_block(case, manifest, places)]
        return [*lines, BLANK, _labelled("not here", nowhere)]
    rows = [refusals.rows(case) for case in cases]
    shared = [r for r in rows[0] if all(r in other for other in rows)] if len(rows) > 1 else []
    for case, own in zip(cases, rows, strict=True):
        lines += [BLANK, *_block(case, manifest, places)]
        lines += refusals.lines([row for row in own if row not in shared])
    kinds = "both kinds" if len(cases) == 2 else f"all {len(cases)} kinds"
    return [*lines, *refusals.lines(shared, f", for {kinds}")]


def _fallback_words(cases: Sequence[Case]) -> list[str]:
    """That a local manifest answered, where a server was asked and could not."""
    found = dict.fromkeys(case.resolution.fallback for case in cases)
    return [f"the local manifest answers, not the server: {one.reason}" for one in found if one]


def _block(case: Case, manifest: Manifest, places: Places) -> list[Line]:
    lines = [line(strong(group_words(case)), "  ", layer_words(case, manifest), hang=4), BLANK]
    lines += choice_lines(case, manifest, places)
    lines += condition_lines(case, manifest, places)
    for off in case.resolution.off:
        lines += [BLANK, *_off(off, places)]
    for note in (*case.resolution.notes, *_free_phases(case, manifest)):
        lines += [BLANK, _labelled("note", note)]
    return lines


def condition_lines(case: Case, manifest: Manifest, places: Places) -> list[Line]:
    """On what the choice depends, what is chosen otherwise, and what the backend changes."""
    facts = [*_conditions(case, manifest), *_otherwise(case), *_coercions(case, places)]
    return [BLANK, *grid(facts, indent=2)] if facts else []


def _free_phases(case: Case, manifest: Manifest) -> Iterator[str]:
    """Yields that a forced backend serves one phase only, so that the other is not forced."""
    name = case.inquiry.policy.backend
    if name is None:
        return
    for phase in case.resolution.needed:
        serves = phase in manifest.entries[name].phases
        if not serves and manifest.forced(case.inquiry.policy, phase) is None:
            served = listed(list(manifest.entries[name].phases), "and")
            yield f"{name} serves {served} only; {phase} is chosen freely"


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
            why = lacking_words(case, manifest, phase)
            rows.append([_label(phase), bad("no backend"), "", why])
            continue
        rule = _rule(choice, before, manifest, places)
        name = good(choice.backend) if not choice.conditions else warn(choice.backend)
        rows.append([_label(phase), name, listed(choice.paths), rule])
        before = choice
    rows += _path_reasons(case, manifest, places)
    rows += _counts_as(case.resolution)
    return grid(rows, indent=2)


def source_lines(case: Case) -> list[Line]:
    """What the lists that decided were made from, where the manifest says it."""
    needed = case.resolution.needed
    sources = {phase: choice_of(case.resolution, phase).source for phase in needed}
    said = dict.fromkeys(source for source in sources.values() if source)
    lines = []
    for label, source in zip(("source", *[""] * len(said)), said, strict=False):
        where = [phase for phase in needed if sources[phase] == source]
        only = f" (for {where[0]})" if len(where) < len(needed) else ""
        lines.append(_labelled(label, source, faint(only)))
    return lines


def lacking_words(case: Case, manifest: Manifest, phase: Phase) -> str:
    """Why a phase has no backend: the forced one cannot, no list names one, or none fits."""
    forced = manifest.forced(case.inquiry.policy, phase)
    if forced is not None:
        said = verdict_of(candidate_of(case.resolution, forced), phase).rejections
        if any(r.code == Code.PHASE for r in said):
            served = listed(list(manifest.entries[forced].phases), "and")
            return f"{forced} is forced and serves {served} only"
        why = [text for text, _ in reasons(said, case.assumed)]
        return f"{forced} is forced and cannot run {phase}: {' · '.join(why)}"
    usable = usable_in(case.resolution, phase)
    if usable:
        return f"no priority list names what fits; eligible: {', '.join(usable)}"
    return "no entry fits; why is said below"


def _rule(choice: Choice, before: Choice | None, manifest: Manifest, places: Places) -> Line:
    """The list that decided, its reason if that was not just said, and the place in it."""
    if choice.rank == 0 or choice.rule is None:
        return line(choice.reason or "")
    place = f"{ordinal(choice.rank)} of {choice.of}"
    if before is not None and before.rule == choice.rule and before.rank:
        same = (before.rank, before.of) == (choice.rank, choice.of)
        return line(faint("same")) if same else line(faint("same list, "), place)
    found = list_of(choice, manifest)
    where = f"priorities[{manifest.priorities.index(found)}]" if found else "priorities"
    reason = (choice.reason or "").rstrip(".")
    return line(f'{where} "{reason}", {place}   ', faint(places.at(choice.rule)))


def _path_reasons(case: Case, manifest: Manifest, places: Places) -> Iterator[list[Part]]:
    """Yields why prefill takes its path, where the manifest has more than one for this entry."""
    prefill = case.resolution.prefill
    if prefill.backend is None or case.resolution.phase is Phase.DECODE:
        return
    rules = manifest.entries[prefill.backend].prefill_paths
    if len(rules) < 2:
        return
    label = "path"
    by_place = {rule.position: rule for rule in rules}
    for path, at in zip(prefill.paths, prefill.path_rules, strict=False):
        rule = by_place[at]
        by = f"computed by {prefill.by}" if prefill.by else ""
        yield [_label(label), by, path, line(f"{rule.reason}   ", faint(places.at(at)))]
        label = ""


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
        said = line(words, faint(only))
        if said.width > _WIDE:  # its reason follows it; the column stays narrow
            yield [_label(label), line(said, "   ", why)]
        else:
            yield [_label(label), said, why]
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
    how = "pinned" if off.outcome is Outcome.PINNED else "off"
    what = line(warn(off.path), f" prefill of {off.backend}")
    lines = [_labelled("off", what, "   ", faint(f"{places.at(off.position)} {how}"))]
    said = [off.rationale, *off.evidence]
    if off.revisit_when:
        said.append(f"Revisit when {uncapitalised(off.revisit_when)}")
    return [*lines, *(_labelled("", text) for text in said if text)]
