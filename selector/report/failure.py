"""The last line when no backend runs a layer: what is lacking, and the nearest change."""

from __future__ import annotations

from collections.abc import Sequence

from selector.binding import Selector
from selector.changes.case import Case, candidate_of, verdict_of
from selector.changes.search import Change, Kind, Remedy, elsewhere, remedy, ways
from selector.report.layers import group_words
from selector.report.wording import Places, listed, reasons

__all__ = ["change_words", "failure_words", "help_words", "remedy_words"]


def failure_words(cases: Sequence[Case], selector: Selector, places: Places) -> str | None:
    """One line on the layers that lack a backend; ``None`` when all have one."""
    failing = [case for case in cases if case.resolution.missing]
    if not failing:
        return None
    first = failing[0]
    found = remedy(first, selector, ways(first, selector))
    said = [f"{_lacking(failing, places)} (exit 3)", *first.resolution.notes]
    return "; ".join([*said, *help_words(found, elsewhere(first, selector))])


def help_words(found: Remedy | None, archs: Sequence[str]) -> list[str]:
    """What would help: the nearest change, and where the layer runs as it is.

    Args:
        found: the smallest change, if there is one.
        archs: architectures that run the layer.
    """
    words = [f"nearest: {remedy_words(found)}" if found else "no setting that was tried helps"]
    if archs and (found is None or found.touches_model):
        words.append(f"as it is, it runs on {', '.join(archs)}")
    return words


def _lacking(failing: Sequence[Case], places: Places) -> str:
    first = failing[0]
    missing = first.resolution.missing
    alike = [c for c in failing if c.resolution.missing == missing]
    what = f"{listed(missing, 'and')} of {listed([group_words(c) for c in alike], 'and')}"
    device = first.resolution.device
    where = device.capability or device.platform
    forced = first.inquiry.policy.backend
    if forced is not None:
        said = verdict_of(candidate_of(first.resolution, forced), missing[0]).rejections
        why = " · ".join(f"{text} [{places.at(at)}]" for text, at in reasons(said))
        if all(r.code != "PHASE" for r in said):
            return f"{forced} is forced and cannot run {what} on {where}: {why}"
    return f"no backend for {what} on {where}"


def change_words(change: Change) -> str:
    """``block_size 128 → 64 (or 16, 32)``, ``flashinfer-python not installed → >=0.6.14``."""
    if change.kind is Kind.POLICY:
        return f"drop --deny {change.before}"
    own = " (the model's own)" if change.kind is Kind.MODEL else ""
    others = f" (or {', '.join(change.others)})" if change.others else ""
    return f"{change.field} {change.before} → {change.after}{others}{own}"


def remedy_words(found: Remedy) -> str:
    """The changes, and what they make possible."""
    made = " and ".join(change_words(c) for c in found.changes)
    verb = "makes" if len(found.changes) == 1 else "make"
    names = tuple(dict.fromkeys(found.backends.values()))
    if len(names) == 1:
        return f"{made} {verb} {names[0]} eligible"
    given = listed([f"{name} for {phase}" for phase, name in found.backends.items()], "and")
    return f"{made} {verb} {given} eligible"
