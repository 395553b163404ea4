"""The regret of a tuned policy beside that of the others one could have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from selector.binding import Selector
from selector.errors import AttnselError
from selector.tuning.policy import Tuned, tune
from selector.tuning.regret import Choose, Regret, by_rules, chosen_by, first_of, regret_of, within
from selector.tuning.results import Measured, Results
from selector.tuning.rules import REQUESTS
from selector.tuning.search import Aims, find_rules
from selector.values import Phase

__all__ = ["Compared", "NothingToTuneError", "PhaseTimings", "compare", "timings_of", "tuned_from"]


class NothingToTuneError(AttnselError, ValueError):
    """The timings leave nothing to choose from."""

    code = "NOTHING_TO_TUNE"


class PhaseTimings(msgspec.Struct, frozen=True):
    """The timings of one phase, for the candidates that a policy may choose.

    Attributes:
        phase: which.
        candidates: from which to choose.
        left_out: candidates that were timed and that the policy may not choose, and why.
        seen: the shapes to tune on.
        held_out: those to judge by.
    """

    phase: Phase
    candidates: tuple[str, ...]
    left_out: dict[str, str]
    seen: tuple[Measured, ...]
    held_out: tuple[Measured, ...]


class Compared(msgspec.Struct, frozen=True):
    """One way to choose, and its regret.

    Attributes:
        name: ``tuned``, ``manifest``, ``library``, ``beyond`` (rules that also see how many
            requests run together, which no manifest's do), or a candidate that is always chosen.
        seen: over the shapes that were tuned on.
        held_out: over those that were not.
    """

    name: str
    seen: Regret
    held_out: Regret


def timings_of(
    results: Results,
    phase: Phase,
    paged_only: bool,
    others: Results | None = None,
) -> PhaseTimings:
    """The timings of a phase.

    Args:
        results: what was timed.
        phase: which.
        paged_only: leave out candidates that copy K and V out of their pages.
        others: timings to judge by; ``None``: the shapes that the grid held out.

    Raises:
        NothingToTuneError: no candidate is left, or no shape.
    """
    mine = [one for one in results.measured if one.shape.phase is phase]
    ran = sorted({name for one in mine for name in one.times})
    left_out = {
        name: "copies K and V out of their pages, which an engine with paged caches cannot use"
        for name in ran
        if paged_only and not results.runners[name].reads_pages
    }
    candidates = tuple(name for name in ran if name not in left_out)
    if not candidates:
        why = "; ".join(dict.fromkeys(left_out.values())) or "nothing ran"
        raise NothingToTuneError(f"{results.id}: no {phase} candidate to choose: {why}")
    seen = [one for one in mine if others is not None or not one.shape.held_out]
    held_out = [one for one in mine if one.shape.held_out]
    if others is not None:
        held_out = [one for one in others.measured if one.shape.phase is phase]
    kept = within(seen, candidates)
    if not kept:
        raise NothingToTuneError(f"{results.id}: no {phase} shape to tune on")
    return PhaseTimings(phase, candidates, left_out, kept, within(held_out, candidates))


def tuned_from(results: Results, timings: PhaseTimings, aims: Aims, selector: Selector) -> Tuned:
    """The lists for a phase; behind the candidates stands what the manifest lists there now."""
    facts = results.facts_known()
    rest: dict[str, None] = {}
    for one in timings.seen:
        bound = selector.bind(results.device, one.shape.layer, facts)
        answer = bound.resolve_one(one.shape.request, brief=True)
        choice = answer.prefill if timings.phase is Phase.PREFILL else answer.decode
        rest |= dict.fromkeys(choice.tried or ())
    return tune(results, timings.phase, timings.seen, aims, tuple(rest))


def compare(
    results: Results, timings: PhaseTimings, before: Selector, after: Selector, aims: Aims
) -> tuple[Compared, ...]:
    """The regret of every way to choose.

    Args:
        results: where the timings are from.
        timings: of one phase.
        before: the manifest as it is.
        after: the same with the tuned lists; both are asked for every shape.
        aims: how long a list may be, and what it is worth.
    """
    ways: dict[str, Choose] = {
        "tuned": chosen_by(after, results),
        "manifest": chosen_by(before, results),
    }
    default = results.defaults.get(timings.phase, ())
    if default:
        ways["library"] = first_of(default)
    beyond = msgspec.structs.replace(aims, fields=(*aims.fields, REQUESTS))
    ways["beyond"] = by_rules(find_rules(timings.seen, beyond))
    ways |= {f"always {name}": first_of((name,)) for name in timings.candidates}
    return _compared(ways, timings.seen, timings.held_out)


def _compared(
    ways: Mapping[str, Choose], seen: Sequence[Measured], held_out: Sequence[Measured]
) -> tuple[Compared, ...]:
    return tuple(
        Compared(name, regret_of(way, seen), regret_of(way, held_out)) for name, way in ways.items()
    )
