"""The answer to ``explain``: how far every refused entry is from running, nearest first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from selector.binding import Selector
from selector.changes.case import Case, candidate_of, usable_in, verdict_of
from selector.changes.search import Prospect, Remedy, elsewhere, remedy, ways
from selector.report.answer import choice_lines, condition_lines, source_lines
from selector.report.data import case_json, to_json
from selector.report.failure import change_words, help_words
from selector.report.layers import group_words, heading, layer_words
from selector.report.refusals import Refusals, no_platform
from selector.report.text import (
    BLANK,
    GLUE,
    Line,
    Part,
    bad,
    faint,
    good,
    grid,
    joined,
    line,
    strong,
    warn,
)
from selector.report.wording import Places, counted, listed, manifest_words
from selector.values import Code, Phase, Rejection

__all__ = ["Explanation", "explain", "explanation_json", "explanation_lines"]

_KIND = "other kind of layer"
_NEVER = (
    ("capability", "never on {}"),
    ("platform", "never on {}"),
    ("mla", _KIND),
    ("sparse", _KIND),
    ("attn_type", "never for {}"),
    (Code.PINNED, "switched off"),
    (Code.DENIED, "denied"),
    (Code.PHASE, "other phase"),
    (Code.JOINT, "other KV cache"),
)


class Explanation(msgspec.Struct, frozen=True):
    """A case, how far each refused candidate is, and what would give the layer a backend.

    Attributes:
        case: what was asked and answered.
        prospects: refused candidates, nearest first.
        remedy: the smallest change after which nothing is lacking; ``None`` when nothing is, or
            when no change tried helps.
        elsewhere: the architectures on which the layer runs as it is, when it does not here.
    """

    case: Case
    prospects: tuple[Prospect, ...]
    remedy: Remedy | None
    elsewhere: tuple[str, ...] = ()


def explain(case: Case, selector: Selector) -> Explanation:
    """Looks for the changes that would let each refused candidate run."""
    found = ways(case, selector)
    lacking = case.resolution.missing
    mended = remedy(case, selector, found) if lacking else None
    others = elsewhere(case, selector) if lacking else ()
    return Explanation(case, tuple(way.prospect for way in found), mended, others)


def explanation_json(explanations: Sequence[Explanation]) -> dict[str, Any]:
    """An explanation as JSON values; for several groups of layers, ``{"layers": [...]}``."""
    plain = [
        {
            "resolution": case_json(e.case),
            "prospects": to_json(e.prospects),
            "remedy": to_json(e.remedy),
            "elsewhere": list(e.elsewhere),
        }
        for e in explanations
    ]
    return plain[0] if len(plain) == 1 else {"layers": plain}


def explanation_lines(
    explanations: Sequence[Explanation], selector: Selector, places: Places
) -> list[Line]:
    """One block for each group of layers, under one heading."""
    manifest = selector.manifest
    first = explanations[0].case
    lines = [line(heading(first), "    ", faint(manifest_words(manifest.ref, places)))]
    for explanation in explanations:
        lines += [BLANK, *_block(explanation, selector, places)]
    return lines


def _block(explanation: Explanation, selector: Selector, places: Places) -> list[Line]:
    case, manifest = explanation.case, selector.manifest
    refusals = Refusals(manifest, places)
    lines = [line(strong(group_words(case)), "  ", layer_words(case, manifest), hang=4), BLANK]
    lines += choice_lines(case, manifest, places)
    lines += source_lines(case)
    lines += condition_lines(case, manifest, places)
    if case.resolution.missing:
        lines += [BLANK, *_nearest(explanation, selector)]
    wanted = _wanted(explanation)
    if asked := [p for p in explanation.prospects if p.backend in wanted]:
        rows = [row for p in asked for row in _prospect(p, case, refusals)]
        lines += [BLANK, line("  ", strong("asked for"), "  ", refusals.legend)]
        lines += grid(rows, indent=4, gap=2)
    if eligible := _eligible(explanation, refusals):
        lines += [BLANK, line("  ", strong("could run too")), *grid(eligible, indent=4, gap=2)]
    if rest := [p for p in explanation.prospects if p.backend not in wanted]:
        lines += [BLANK, line("  ", strong("refused"), ", nearest first  ", refusals.legend)]
        rows = [row for p in rest for row in _prospect(p, case, refusals)]
        lines += grid(rows, indent=4, gap=2)
    return lines


def _wanted(explanation: Explanation) -> set[str]:
    """The backends that the caller forces."""
    policy = explanation.case.inquiry.policy
    return {
        name
        for name in (policy.backend, policy.prefill_backend, policy.decode_backend)
        if name is not None
    }


def _nearest(explanation: Explanation, selector: Selector) -> list[Line]:
    """What is lacking, and what would help."""
    case, manifest = explanation.case, selector.manifest
    words = help_words(case, selector, explanation.remedy, explanation.elsewhere)
    if nowhere := no_platform(case):
        words.insert(0, nowhere)
    missing = case.resolution.missing
    usable = any(usable_in(case.resolution, phase) for phase in missing)
    forced = any(manifest.forced(case.inquiry.policy, phase) for phase in missing)
    title = "nothing is chosen" if usable or forced else "nothing fits"
    return [line("  ", bad(title), "   ", "; ".join(words), hang=len(title) + 5)]


def _eligible(explanation: Explanation, refusals: Refusals) -> list[list[Part]]:
    """Candidates that were not chosen although nothing refuses them."""
    resolution = explanation.case.resolution
    refused = {p.backend for p in explanation.prospects}
    chosen = {resolution.prefill.backend, resolution.decode.backend}
    return [
        [c.backend, refusals.words(explanation.case, c, resolution.needed)]
        for c in resolution.candidates
        if c.backend not in refused | chosen
    ]


def _prospect(prospect: Prospect, case: Case, refusals: Refusals) -> list[list[Part]]:
    """The change that would do, and the reasons that it does not already say."""
    candidate = candidate_of(case.resolution, prospect.backend)
    reasons = refusals.words(case, candidate, case.resolution.needed)
    if not prospect.phases:
        never = warn(_never(prospect.obstacles))
        return [[prospect.backend, never, reasons]]
    if prospect.touches_model:
        whose = "model" if case.model else "layer"
        return [[prospect.backend, warn(f"never for this {whose}"), reasons]]
    only = _only(prospect.phases, case.resolution.needed)
    if not prospect.changes:
        return [[prospect.backend, good(f"runs{only}"), reasons]]
    distance = good(f"{counted(len(prospect.changes), 'change')} away{only}")
    changes = listed([change_words(c, case.assumed) for c in prospect.changes], "and")
    said, left = _covered(prospect, case)
    why = dict.fromkeys(r.reason or "" for r in said if r.reason not in ("", "not stated"))
    places = " ".join(dict.fromkeys(refusals.place(r.position) for r in said))
    told = "".join(f"{': ' if i == 0 else ' '}{text}" for i, text in enumerate(filter(None, why)))
    first = line(changes, told, GLUE if places else "", faint(places))
    rest = [*refusals.reasons(case, left)]
    others = [r for r in prospect.obstacles if r not in said and r not in left]
    other = next((p for p in case.resolution.needed if p not in prospect.phases), "")
    rest += [line(faint(f"{other}: "), words) for words in refusals.reasons(case, others)]
    rows: list[list[Part]] = [[prospect.backend, distance, first]]
    return [*rows, ["", "", joined(rest)]] if rest else rows


def _covered(prospect: Prospect, case: Case) -> tuple[list[Rejection], list[Rejection]]:
    """The rejections that the changes say again, and those that say more."""
    candidate = candidate_of(case.resolution, prospect.backend)
    verdicts = [verdict_of(candidate, phase) for phase in prospect.phases]
    changed = {change.field for change in prospect.changes}
    said: list[Rejection] = []
    left: list[Rejection] = []
    for rejection in dict.fromkeys(r for v in verdicts for r in v.rejections):
        if rejection.code == Code.DENIED and "deny" in changed:
            continue
        (said if rejection.field in changed else left).append(rejection)
    return said, left


def _only(phases: Sequence[Phase], needed: Sequence[Phase]) -> str:
    return "" if len(phases) == len(needed) else f", {phases[0]} only"


def _never(obstacles: Sequence[Rejection]) -> str:
    """What stands in the way whatever is changed, in a word or two."""
    for key, words in _NEVER:
        for obstacle in obstacles:
            if key in (obstacle.field, obstacle.code):
                return words.format(obstacle.observed)
    return "no change found"
