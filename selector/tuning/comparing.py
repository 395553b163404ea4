"""The regret of a tuned policy beside that of the others one could have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from selector.binding import Selector
from selector.errors import AttnselError
from selector.tuning.policy import Tuned, tune
from selector.tuning.regret import Choose, Regret, by_rules, chosen_by, first_of, regret_of, within
from selector.tuning.results import Measured
from selector.tuning.search import Aims, find_rules
from selector.tuning.timings import MixedTimingsError, Timings, check_alike
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
        unrun: shapes that no candidate ran.
    """

    phase: Phase
    candidates: tuple[str, ...]
    left_out: dict[str, str]
    seen: tuple[Measured, ...]
    held_out: tuple[Measured, ...]
    unrun: int


class Compared(msgspec.Struct, frozen=True):
    """One way to choose, and its regret.

    Attributes:
        name: ``tuned``; ``tuned, not told`` (how many requests run together); ``manifest``;
            ``library``; ``one list`` (the best order for all shapes); ``always`` and a candidate.
        seen: over the shapes that were tuned on.
        held_out: over those that were not.
    """

    name: str
    seen: Regret
    held_out: Regret


def timings_of(
    timings: Timings,
    phase: Phase,
    paged_only: bool,
    others: Timings | None = None,
) -> PhaseTimings:
    """The timings of a phase.

    Args:
        timings: what was timed.
        phase: which.
        paged_only: leave out candidates that copy K and V out of their pages.
        others: timings to judge by; ``None``: the shapes that the grid held out.

    Raises:
        NothingToTuneError: no candidate is left, or no shape.
        MixedTimingsError: files differ in candidates, or the timings to judge by are of another
            device or of other versions.
    """
    left_out = {
        name: "copies K and V out of their pages, which an engine with paged caches cannot use"
        for name in _timed(timings.measured, phase)
        if paged_only and not timings.runners[name].reads_pages
    }
    _check_candidates(timings, phase, left_out)
    mine = [one for one in timings.measured if one.shape.phase is phase]
    candidates = tuple(sorted({name for one in mine for name in one.times} - left_out.keys()))
    if not candidates:
        why = "; ".join(dict.fromkeys(left_out.values())) or "nothing ran"
        raise NothingToTuneError(f"{timings.names}: no {phase} candidate to choose: {why}")
    seen = [one for one in mine if others is not None or not one.shape.held_out]
    held_out = [one for one in mine if one.shape.held_out]
    if others is not None:
        check_alike(timings, others)
        held_out = [one for one in others.measured if one.shape.phase is phase]
    kept, judged = within(seen, candidates), within(held_out, candidates)
    if not kept:
        raise NothingToTuneError(f"{timings.names}: no {phase} shape to tune on")
    unrun = len(seen) + len(held_out) - len(kept) - len(judged)
    return PhaseTimings(phase, candidates, left_out, kept, judged, unrun)


def _timed(measured: Sequence[Measured], phase: Phase) -> list[str]:
    """Every candidate of a phase, whether it ran or not."""
    mine = (one for one in measured if one.shape.phase is phase)
    return sorted({timing.candidate for one in mine for timing in one.timings})


def _check_candidates(timings: Timings, phase: Phase, left_out: Collection[str]) -> None:
    """Holds that the files that speak of a phase have the same candidates."""
    sets: dict[str, str] = {}
    for name, results in timings.files.items():
        said = ", ".join(one for one in _timed(results.measured, phase) if one not in left_out)
        if said:
            sets.setdefault(said, name)
    if len(sets) > 1:
        said = "; ".join(f"{name} has {names}" for names, name in sets.items())
        raise MixedTimingsError(f"{phase} candidates differ: {said}: a list needs the times of all")


def tuned_from(timings: Timings, mine: PhaseTimings, aims: Aims, selector: Selector) -> Tuned:
    """The lists for a phase; behind the candidates stands what the manifest lists there now."""
    facts = timings.facts
    rest: dict[str, None] = {}
    for one in mine.seen:
        bound = selector.bind(timings.device, one.shape.layer, facts)
        answer = bound.resolve_one(one.shape.request, brief=True)
        choice = answer.prefill if mine.phase is Phase.PREFILL else answer.decode
        rest |= dict.fromkeys(choice.tried or ())
    return tune(timings, mine.phase, mine.seen, aims, tuple(rest))


def compare(
    timings: Timings, mine: PhaseTimings, before: Selector, after: Selector, aims: Aims
) -> tuple[Compared, ...]:
    """The regret of every way to choose.

    Args:
        timings: what was timed.
        mine: that of one phase.
        before: the manifest as it is.
        after: the same with the tuned lists; both are asked for every shape.
        aims: what a list is worth.
    """
    ways: dict[str, Choose] = {
        "tuned": chosen_by(after, timings),
        "tuned, not told": chosen_by(after, timings, told=False),
        "manifest": chosen_by(before, timings),
    }
    default = timings.defaults.get(mine.phase, ())
    if default:
        ways["library"] = first_of(default)
    ways["one list"] = by_rules(find_rules(mine.seen, msgspec.structs.replace(aims, fields=())))
    ways |= {f"always {name}": first_of((name,)) for name in mine.candidates}
    return _compared(ways, mine.seen, mine.held_out)


def _compared(
    ways: Mapping[str, Choose], seen: Sequence[Measured], held_out: Sequence[Measured]
) -> tuple[Compared, ...]:
    return tuple(
        Compared(name, regret_of(way, seen), regret_of(way, held_out)) for name, way in ways.items()
    )
