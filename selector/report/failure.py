"""The last line when no backend runs a layer: what is lacking, and the nearest change."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from selector.binding import Selector
from selector.changes.case import Case, candidate_of, usable_in, verdict_of
from selector.changes.search import Change, Kind, Remedy, elsewhere, remedy, unforced, ways
from selector.manifest import Manifest
from selector.report.layers import group_words
from selector.report.refusals import no_platform
from selector.report.wording import Places, capabilities_words, listed, reasons, with_separators
from selector.values import Code, Phase

__all__ = [
    "change_words",
    "failure_words",
    "help_words",
    "makes_words",
    "others_words",
    "remedy_words",
    "runs_words",
]

_SHOWN = 3
"""Further values of a change that are named."""


def failure_words(cases: Sequence[Case], selector: Selector, places: Places) -> str | None:
    """One line on the layers that lack a backend; ``None`` when all have one."""
    failing = [case for case in cases if case.resolution.missing]
    if not failing:
        return None
    first = failing[0]
    found = remedy(first, selector, ways(first, selector))
    said = [_lacking(failing, selector.manifest, places), *first.resolution.notes]
    return "; ".join([*said, *help_words(first, selector, found, elsewhere(first, selector))])


def help_words(
    case: Case, selector: Selector, found: Remedy | None, archs: Sequence[str]
) -> list[str]:
    """What would help: the nearest change, and where the layer runs as it is.

    Args:
        case: what was asked and answered.
        selector: gives the answers.
        found: the smallest change, if there is one.
        archs: architectures that run the layer.
    """
    free = unforced(case, selector)
    if found is not None:
        words = [f"nearest: {remedy_words(found, case.assumed)}"]
    elif no_platform(case) or free is not None:
        words = []
    else:
        words = ["no setting that was tried helps"]
    if free is not None:
        words.append(f"not forced, {runs_words(free)}")
    if archs and (found is None or found.touches_model):
        words.append(f"as it is, it runs on {capabilities_words(', '.join(archs))}")
    return words


def runs_words(backends: Mapping[Phase, str]) -> str:
    """``fa3 runs prefill and fa2 decode``, ``fa2 runs prefill and decode``."""
    names = list(dict.fromkeys(backends.values()))
    if len(names) == 1:
        return f"{names[0]} runs {listed(list(backends), 'and')}"
    (first, one), *rest = backends.items()
    return f"{one} runs {first}" + "".join(f" and {name} {phase}" for phase, name in rest)


def _lacking(failing: Sequence[Case], manifest: Manifest, places: Places) -> str:
    first = failing[0]
    missing = first.resolution.missing
    alike = [c for c in failing if c.resolution.missing == missing]
    groups = listed([group_words(c) for c in alike], "and")
    device = first.resolution.device
    where = device.capability or device.platform
    forced = {manifest.forced(first.inquiry.policy, phase) for phase in missing}
    name = next(iter(forced))
    if len(forced) == 1 and name is not None:
        return _forced_words(first, name, f"of {groups} on {where}", manifest, places)
    what = f"no backend for {listed(missing, 'and')} of {groups} on {where}"
    if nowhere := no_platform(first):
        return f"{what}: {nowhere}"
    usable = dict.fromkeys(name for p in missing for name in usable_in(first.resolution, p))
    if usable and None in forced:
        return f"{what}: no priority list names what fits; eligible: {', '.join(usable)}"
    return what


def _forced_words(case: Case, name: str, of: str, manifest: Manifest, places: Places) -> str:
    """That the forced backend cannot run the phases that are lacking, and why."""
    missing = case.resolution.missing
    said = verdict_of(candidate_of(case.resolution, name), missing[0]).rejections
    if any(r.code == Code.PHASE for r in said):
        served = listed(list(manifest.entries[name].phases), "and")
        return f"{name} is forced and serves {served} only: no {listed(missing, 'and')} {of}"
    denied = case.inquiry.policy.deny.values()
    why = " · ".join(
        text if text.removeprefix("denied: ") in denied else f"{text} [{places.at(at)}]"
        for text, at in reasons(said, case.assumed)
    )
    return f"{name} is forced and cannot run {listed(missing, 'and')} {of}: {why}"


def change_words(change: Change, assumed: Collection[str] = ()) -> str:
    """``block_size 128 → 64 (or 16, 32)``, ``flashinfer-python not installed → >=0.6.14``."""
    if change.kind is Kind.POLICY:
        return f"dropping --deny {change.before}"
    own = " (the layer's own)" if change.kind is Kind.MODEL else ""
    others = others_words(change.others)
    before = "unknown" if change.field in assumed else change.before
    return with_separators(f"{change.field} {before} → {change.after}{others}{own}")


def others_words(values: Sequence[str]) -> str:
    """`` (or 16, 32)``; ``…`` stands for values that are left out."""
    if not values:
        return ""
    more = ", …" if len(values) > _SHOWN else ""
    return f" (or {', '.join(values[:_SHOWN])}{more})"


def remedy_words(found: Remedy, assumed: Collection[str] = ()) -> str:
    """The changes, and what is then chosen."""
    made = " and ".join(change_words(c, assumed) for c in found.changes)
    return f"{made} {makes_words(found)}"


def makes_words(found: Remedy) -> str:
    """What the changes do: ``makes fa2 the choice``."""
    verb = "makes" if len(found.changes) == 1 else "make"
    names = tuple(dict.fromkeys(found.backends.values()))
    if len(names) == 1:
        return f"{verb} {names[0]} the choice"
    (first, one), *rest = found.backends.items()
    others = "".join(f" and {name} for {phase}" for phase, name in rest)
    return f"{verb} {one} the choice for {first}{others}"
