"""Why two manifests answer one question differently: the rules that the difference comes from."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from selector.changes.case import candidate_of, choice_of, verdict_of
from selector.manifest import Manifest
from selector.rules import Answer, Question
from selector.values import Choice, Phase, Position, Rejection, Resolution

__all__ = ["Answered", "Cause", "Reason", "reasons_of"]


class Cause(StrEnum):
    """What moved an answer."""

    REFUSED = "refused"
    ALLOWED = "allowed"
    REMOVED = "removed"
    ADDED = "added"
    UNLISTED = "unlisted"
    LISTED = "listed"
    ORDER = "order"


class Reason(msgspec.Struct, frozen=True):
    """Why the backend of a phase is another one.

    Attributes:
        phases: in which; both, where they have it in common.
        cause: ``refused``: the new manifest refuses what the old one chose. ``allowed``: the old
            one refused what the new one chooses. ``removed``, ``added``: only one has the backend.
            ``unlisted``, ``listed``: only one names it in the list that decides. ``order``: the
            lists name both, in another order.
        backend: which one that is about: the old one, or the new one.
        other: the one that takes its place; ``None``: none.
        old: the line of the old manifest; ``None``: it has none.
        new: that of the new one; one of them at least is there.
        rejections: what refuses it, in the one that does.
    """

    phases: tuple[Phase, ...]
    cause: Cause
    backend: str
    other: str | None
    old: Position | None
    new: Position | None
    rejections: tuple[Rejection, ...] = ()


class Answered(msgspec.Struct, frozen=True):
    """A manifest, a question as its rules see it, and its answer."""

    manifest: Manifest
    asked: Question
    answer: Resolution

    def choice(self, phase: Phase) -> Choice:
        """What it chooses in a phase."""
        return choice_of(self.answer, phase)

    def rejections(self, backend: str, phase: Phase) -> tuple[Rejection, ...]:
        """What refuses one of its backends in a phase."""
        return verdict_of(candidate_of(self.answer, backend), phase).rejections

    def deciding(self, phase: Phase) -> tuple[tuple[str, ...], Position] | None:
        """The list that decides a phase, and where it stands; ``None``: unknown, or none does."""
        rule = self.choice(phase).rule
        for priority in self.manifest.priorities:
            if phase not in priority.orders:
                continue
            holds = priority.when.answer(self.asked)
            if priority.position == rule or (rule is None and holds is Answer.YES):
                return priority.orders[phase], priority.position
            if rule is None and holds is Answer.MAYBE:
                return None
        return None


def reasons_of(old: Answered, new: Answered) -> tuple[Reason, ...]:
    """Why the choices of two answers to one question differ, each reason once.

    A phase whose choice follows from that of the other phase, or whose list depends on something
    unknown, has none.
    """
    found: dict[Reason, list[Phase]] = {}
    for phase in Phase:
        reason = next(_causes(old, new, phase), None)
        if reason is not None:
            found.setdefault(reason, []).append(phase)
    return tuple(msgspec.structs.replace(r, phases=tuple(p)) for r, p in found.items())


def _causes(old: Answered, new: Answered, phase: Phase) -> Iterator[Reason]:
    """Yields what the change of a phase comes from, the plainest first; no phases in it yet."""
    before, after = old.choice(phase).backend, new.choice(phase).backend
    if before == after:
        return
    if before is not None:
        yield from _lost(before, after, new, phase, old)
    if after is not None:
        yield from _gained(before, after, old, phase, new)
    former, present = old.deciding(phase), new.deciding(phase)
    if before is None or after is None or former is None or present is None:
        return
    (was, was_at), (now, now_at) = former, present
    if was.index(before) < was.index(after) and now.index(after) < now.index(before):
        yield Reason((), Cause.ORDER, before, after, was_at, now_at)


def _lost(
    before: str, after: str | None, new: Answered, phase: Phase, old: Answered
) -> Iterator[Reason]:
    """Yields what keeps the new manifest from choosing what the old one chose."""
    if before not in new.manifest.entries:
        at = old.manifest.entries[before].position
        yield Reason((), Cause.REMOVED, before, after, at, None)
        return
    if refused := new.rejections(before, phase):
        at = refused[0].position
        yield Reason((), Cause.REFUSED, before, after, None, at, refused)
    deciding = new.deciding(phase)
    if deciding is not None and before not in deciding[0]:
        yield Reason((), Cause.UNLISTED, before, after, None, deciding[1])


def _gained(
    before: str | None, after: str, old: Answered, phase: Phase, new: Answered
) -> Iterator[Reason]:
    """Yields what kept the old manifest from choosing what the new one chooses."""
    if after not in old.manifest.entries:
        at = new.manifest.entries[after].position
        yield Reason((), Cause.ADDED, after, before, None, at)
        return
    if refused := old.rejections(after, phase):
        yield Reason((), Cause.ALLOWED, after, before, refused[0].position, None, refused)
    deciding = old.deciding(phase)
    if deciding is not None and after not in deciding[0]:
        yield Reason((), Cause.LISTED, after, before, deciding[1], None)
