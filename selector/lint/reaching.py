"""What can be chosen, and by which list: shown by a question, or certain that none does it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import product

from selector.lint.questions import Questions
from selector.lint.solving import ALWAYS, Goal, OverBudgetError, Way
from selector.lint.witnesses import Asked, ask, chosen_in, question_of
from selector.manifest import Manifest
from selector.plan.agreeing import agreement
from selector.plan.terms import UndecidedError
from selector.values import Phase

__all__ = ["Reach", "Reaching", "Slot"]

STEPS = 2_000
"""So many branches are looked at for one question."""

Slot = tuple[str, Phase]
"""An entry, and a phase in which it serves."""

_OTHER = {Phase.PREFILL: Phase.DECODE, Phase.DECODE: Phase.PREFILL}


class Reach(Enum):
    """Whether something is ever reached."""

    YES = "yes"
    NO = "no"
    OPEN = "not decided"


_Choosing = tuple[Way, list[str], str | None]
"""When an entry is chosen, the entries that matter then, and the one that is chosen beside it."""


class Reaching:
    """What a manifest's lists reach.

    Args:
        questions: to the manifest.
        steps: so many branches may be looked at for one question.

    Attributes:
        shown: slot → a question for which it is chosen.
    """

    def __init__(self, questions: Questions, steps: int = STEPS) -> None:
        self.questions = questions
        self.manifest: Manifest = questions.manifest
        self.shown: dict[Slot, Asked] = {}
        self._steps = steps
        self._agree = agreement(self.manifest)
        self._chosen: dict[Slot, Reach] = {}
        self._decided: dict[tuple[Phase, int], Reach] = {}
        self._joints = [*self._shares()]
        self._alike = all(
            one.orders.get(Phase.PREFILL) == one.orders.get(Phase.DECODE)
            for one in self.manifest.priorities
        )
        self._open = False

    # -- asking -----------------------------------------------------------------------------------

    def can_be(self, way: Way) -> Reach:
        """Whether all of it can hold at once."""
        try:
            found = self.questions.solver.solve(way, self._steps)
        except OverBudgetError:
            return Reach.OPEN
        return Reach.NO if found is None else Reach.YES

    def left(self, way: Way) -> list[int] | None:
        """The values that are left; ``None``: it cannot be, or that was not decided."""
        try:
            return self.questions.solver.solve(way, self._steps)
        except OverBudgetError:
            self._open = True
            return None

    # -- lists ------------------------------------------------------------------------------------

    def lists_of(self, name: str, phase: Phase) -> list[int]:
        """The lists that name an entry in a phase; those first where it stands first."""
        found = [
            (names.index(name), index)
            for index, one in enumerate(self.manifest.priorities)
            if phase in one.orders
            for names in (self.questions.names(phase, index),)
            if name in names
        ]
        return [index for _, index in sorted(found)]

    def list_reached(self, phase: Phase, index: int) -> Reach:
        """Whether a list is ever the first to hold."""
        key = (phase, index)
        if key not in self._decided:
            self._decided[key] = self.can_be(self.questions.decides(phase, index))
        return self._decided[key]

    # -- entries ----------------------------------------------------------------------------------

    def chosen(self, name: str, phase: Phase) -> Reach:
        """Whether an entry is ever chosen in a phase."""
        slot = (name, phase)
        if slot in self.shown:
            return Reach.YES
        if slot not in self._chosen:
            self._chosen[slot] = self._search(slot)
        return self._chosen[slot]

    def _search(self, slot: Slot) -> Reach:
        self._open = False
        name, phase = slot
        for index in self.lists_of(name, phase):
            alive = self.questions.decides(phase, index) & self.questions.alive(name, phase)
            if self.left(alive) is None:
                continue
            for way, names, partner in self._choosing(slot, index, alive):
                left = self.left(way)
                if left is None:
                    continue
                if self._shows(left, names, slot, partner):
                    return Reach.YES
                self._open = True
        return Reach.OPEN if self._open else Reach.NO

    def _shows(
        self, left: Sequence[int], names: Sequence[str], slot: Slot, partner: str | None
    ) -> bool:
        """Whether the definition chooses an entry for a question of what is left."""
        asked = question_of(self.questions, left)
        answer = ask(self.manifest, {*names, slot[0]}, asked)
        if answer is None or chosen_in(answer, slot[1]) != slot[0]:
            return False
        self.shown[slot] = asked
        other = _OTHER[slot[1]]
        if partner is not None and chosen_in(answer, other) == partner:
            self.shown.setdefault((partner, other), asked)
        return True

    def _choosing(self, slot: Slot, index: int, alive: Way) -> Iterator[_Choosing]:
        """Yields the ways in which a list gives an entry."""
        name, phase = slot
        for _, shares, shared in self._joints:
            way = alive & shares
            if not shared:
                names = self.questions.names(phase, index)
                before = names[: names.index(name)]
                first = tuple(self.questions.refused(one, phase) for one in before)
                yield way & Way((), first), [*before], name if self._alike else None
                continue
            if self.left(way) is None:
                continue
            other = _OTHER[phase]
            for place in (*self._indices(other), None):
                both = way & self.questions.decides(other, place)
                if self.left(both) is not None:
                    decides = (index, place) if phase is Phase.PREFILL else (place, index)
                    for pair, beside, partner in self._pairs(slot, decides, shared):
                        yield both & pair, beside, partner

    def _indices(self, phase: Phase) -> list[int]:
        return [i for i, one in enumerate(self.manifest.priorities) if phase in one.orders]

    def _shares(self) -> Iterator[tuple[frozenset[int], Way, tuple[str, ...]]]:
        """Yields every combination of joint rules that hold, when they do, and what is shared."""
        questions = self.questions
        for holds in product((True, False), repeat=len(self.manifest.joint)):
            way = ALWAYS
            shared: dict[str, None] = {}
            for joint, held in zip(self.manifest.joint, holds, strict=True):
                if held:
                    way &= questions.all_hold(joint.when)
                    shared |= dict.fromkeys(joint.same)
                else:
                    way &= Way((), (questions.some_fail(joint.when),))
            if self.can_be(way) is not Reach.NO:
                yield frozenset(n for n, held in enumerate(holds) if held), way, (*shared,)

    def pairs_meet(self, joint: int) -> tuple[Reach, Reach]:
        """Whether two backends that lists give can share what a rule demands.

        The second answer is whether two backends can run a layer that the rule is about at all.
        """
        questions = self.questions
        self._open = False
        both = Reach.NO
        for held, shares, shared in self._joints:
            if joint not in held:
                continue
            for prefill, decode in product(*map(self._indices, (Phase.PREFILL, Phase.DECODE))):
                way = shares & questions.decides(Phase.PREFILL, prefill)
                way &= questions.decides(Phase.DECODE, decode)
                if self.left(way) is None:
                    continue
                for pair in self._by_likeness(prefill, decode):
                    alive = way & questions.alive(pair[0], Phase.PREFILL)
                    alive &= questions.alive(pair[1], Phase.DECODE)
                    agrees = self._agrees(shared, *pair)
                    if (both is Reach.NO or agrees is not False) and self.left(alive) is not None:
                        both = Reach.YES
                        if agrees is not False:
                            return Reach.YES, both
        return (Reach.OPEN if self._open else Reach.NO), both

    def both_serve(self, joint: int) -> bool:
        """Whether lists give backends of both phases to layers that a rule is about."""
        return all(
            any(
                self.left(shares & decides & self.questions.alive(name, phase)) is not None
                for held, shares, _ in self._joints
                if joint in held
                for index in self._indices(phase)
                for decides in (self.questions.decides(phase, index),)
                for name in self.questions.names(phase, index)
            )
            for phase in Phase
        )

    def pairs_under(self, joint: int) -> Iterator[tuple[Way, Way]]:
        """Yields when any two backends of two lists run a layer that a rule is about.

        Beside it, when two run it that can share what the rule demands.
        """
        questions = self.questions
        for held, shares, shared in self._joints:
            if joint not in held:
                continue
            for prefill, decode in product(*map(self._indices, (Phase.PREFILL, Phase.DECODE))):
                way = shares & questions.decides(Phase.PREFILL, prefill)
                way &= questions.decides(Phase.DECODE, decode)
                if self.left(way) is None:
                    continue
                alive, agreed = [], []
                for pair in self._by_likeness(prefill, decode):
                    runs = questions.alive(pair[0], Phase.PREFILL)
                    runs &= questions.alive(pair[1], Phase.DECODE)
                    alive.append(runs)
                    if self._agrees(shared, *pair) is not False:
                        agreed.append(runs)
                yield way & Way((), (tuple(alive),)), way & Way((), (tuple(agreed),))

    def _by_likeness(self, prefill: int, decode: int) -> Iterator[tuple[str, str]]:
        """Yields the pairs that two lists give, the same backend twice first."""
        prefills = self.questions.names(Phase.PREFILL, prefill)
        decodes = self.questions.names(Phase.DECODE, decode)
        yield from ((name, name) for name in prefills if name in decodes)
        yield from ((one, other) for one, other in product(prefills, decodes) if one != other)

    # -- pairs ------------------------------------------------------------------------------------

    def _pairs(
        self, slot: Slot, decides: tuple[int | None, int | None], shared: tuple[str, ...]
    ) -> Iterator[_Choosing]:
        """Yields the ways in which an entry is chosen beside another one, or alone."""
        questions = self.questions
        prefills = questions.names(Phase.PREFILL, decides[0])
        decodes = questions.names(Phase.DECODE, decides[1])
        name, phase = slot
        partners = decodes if phase is Phase.PREFILL else prefills
        for partner in sorted(partners, key=lambda one: one != name):
            pair = (name, partner) if phase is Phase.PREFILL else (partner, name)
            if self._agrees(shared, *pair) is False:
                continue
            goals = self._first_pair(pair, prefills, decodes, shared)
            way = questions.alive(partner, _OTHER[phase]) & Way((), tuple(goals))
            before = [*decodes[: decodes.index(pair[1])], *prefills[: prefills.index(pair[0])]]
            yield way, [*before, partner], partner
        alone = self._alone(slot, prefills, decodes, shared)
        yield Way((), tuple(alone)), [*prefills, *decodes], None

    def _first_pair(
        self,
        pair: tuple[str, str],
        prefills: Sequence[str],
        decodes: Sequence[str],
        shared: tuple[str, ...],
    ) -> Iterator[Goal]:
        """Yields what makes a pair the first that agrees; decode leads."""
        for decode in decodes[: decodes.index(pair[1])]:
            yield self._unpaired(decode, prefills, shared)
        for prefill in prefills[: prefills.index(pair[0])]:
            if self._agrees(shared, prefill, pair[1]):
                yield self.questions.refused(prefill, Phase.PREFILL)

    def _unpaired(self, decode: str, prefills: Sequence[str], shared: tuple[str, ...]) -> Goal:
        """The ways in which a decode backend has no partner, or is refused itself."""
        refused = self.questions.refused
        partners = [one for one in prefills if self._agrees(shared, one, decode)]
        none = Way((), tuple(refused(one, Phase.PREFILL) for one in partners))
        return (none, *refused(decode, Phase.DECODE))

    def _alone(
        self,
        slot: Slot,
        prefills: Sequence[str],
        decodes: Sequence[str],
        shared: tuple[str, ...],
    ) -> Iterator[Goal]:
        """Yields what makes an entry the choice of its phase when no pair agrees."""
        name, phase = slot
        refused = self.questions.refused
        if phase is Phase.PREFILL:
            yield from (refused(one, Phase.DECODE) for one in decodes)
            before = prefills[: prefills.index(name)]
            yield from (refused(one, Phase.PREFILL) for one in before)
            return
        for decode in decodes:
            yield self._unpaired(decode, prefills, shared)
        yield from (refused(one, Phase.DECODE) for one in decodes[: decodes.index(name)])

    def _agrees(self, shared: tuple[str, ...], prefill: str, decode: str) -> bool | None:
        """Whether two backends can share something; ``None``: only the definition knows."""
        try:
            return self._agree(shared, prefill, decode)
        except UndecidedError:
            return None
