"""What would have to change for a backend to run a layer. Asks the resolver; decides nothing.

A change is named only after the resolver, asked again with the change made, has said that it
suffices. The search tries nearest accepted values, cheapest combination first: those that leave the
model as it is, then those with the fewest changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from types import MappingProxyType

import msgspec

from selector.binding import Bound, Selector
from selector.changes.case import (
    USABLE,
    Case,
    Inquiry,
    choice_of,
    verdict_of,
)
from selector.changes.options import FIXED, Kind, Option, immovable, options
from selector.devices import known_capabilities
from selector.errors import AttnselError
from selector.manifest import PhaseSpec
from selector.rules import Answer, Question
from selector.values import (
    Candidate,
    Code,
    Device,
    Phase,
    Policy,
    Position,
    Rejection,
    Resolution,
    Verdict,
)

__all__ = [
    "Change",
    "Kind",
    "Prospect",
    "Remedy",
    "Way",
    "elsewhere",
    "remedy",
    "unforced",
    "ways",
    "within_reach",
]

_MOST_CHANGES = 4
_MOST_TRIES = 80
_MOST_OTHERS = 4
_SOFTWARE = (Kind.INSTALL,)


class Change(msgspec.Struct, frozen=True):
    """One thing to change.

    Attributes:
        kind: what it touches.
        field: the field or fact; ``deny`` for a denial of the caller's.
        before: its value now, as text.
        after: the value to give it, as text.
        others: further values that would do as well.
    """

    kind: Kind
    field: str
    before: str
    after: str
    others: tuple[str, ...] = ()


class Prospect(msgspec.Struct, frozen=True):
    """How far a refused candidate is from running.

    Attributes:
        backend: its name.
        position: where the manifest defines it.
        phases: the phases it runs once ``changes`` are made; none when nothing helps.
        changes: the fewest found, those of the model avoided where possible.
        obstacles: what no change mends, in the phases that stay refused.
    """

    backend: str
    position: Position
    phases: tuple[Phase, ...]
    changes: tuple[Change, ...]
    obstacles: tuple[Rejection, ...]

    @property
    def touches_model(self) -> bool:
        """Whether the model itself would have to be another."""
        return any(change.kind is Kind.MODEL for change in self.changes)

    @property
    def distance(self) -> tuple[bool, bool, int, int]:
        """Sorts the nearest first: possible, leaving the model as it is, then what was asked for.

        Software can be installed without changing what was asked for.
        """
        asked = sum(c.kind not in _SOFTWARE for c in self.changes)
        count = len(self.changes) if self.phases else len(self.obstacles)
        return not self.phases, self.touches_model, asked, count


class Way(msgspec.Struct, frozen=True):
    """A prospect, and the inquiry with its changes made."""

    prospect: Prospect
    inquiry: Inquiry


class Remedy(msgspec.Struct, frozen=True):
    """The smallest change that gives a layer the backends it lacks.

    Attributes:
        changes: what to change.
        backends: phase → what is then chosen, for each phase that had none.
    """

    changes: tuple[Change, ...]
    backends: dict[Phase, str]

    @property
    def touches_model(self) -> bool:
        """Whether the model itself would have to be another."""
        return any(change.kind is Kind.MODEL for change in self.changes)


def ways(case: Case, selector: Selector) -> list[Way]:
    """How far every candidate is that is refused in a phase the layer needs; nearest first."""
    known = _Known(selector)
    found = [
        _Search(case, known, candidate).way()
        for candidate in case.resolution.candidates
        if _refused(case.resolution, candidate)
    ]
    return sorted(found, key=lambda way: way.prospect.distance)


def within_reach(case: Case, selector: Selector) -> Case:
    """The case with every entry as it judges by itself, but for those that no change helps."""
    inquiry = case.inquiry
    bound = inquiry.bind(selector)
    asked = bound.asked(inquiry.request)
    candidates = []
    for entry in selector.manifest.entries.values():
        if all(_never(spec, asked, inquiry) for spec in entry.phases.values()):
            continue
        verdicts = bound.judge(entry.name, inquiry.request)
        prefill, decode = verdicts[Phase.PREFILL], verdicts[Phase.DECODE]
        candidates.append(Candidate(entry.name, entry.position, prefill, decode))
    answer = msgspec.structs.replace(case.resolution, candidates=tuple(candidates))
    return msgspec.structs.replace(case, resolution=answer)


def _never(spec: PhaseSpec, asked: Question, inquiry: Inquiry) -> bool:
    """Whether a set that is the same for all questions refuses what nobody can change."""
    return any(
        _is_same_for_all(spec, name, inquiry)
        and spec.accepts[name].rules[0].result.answer(asked) is Answer.NO
        for name in FIXED
    )


def _is_same_for_all(spec: PhaseSpec, name: str, inquiry: Inquiry) -> bool:
    """Whether one set of a field is accepted, whatever else is asked.

    A field that the layer does not state can follow from others, which can be changed.
    """
    accepted = spec.accepts.get(name)
    if accepted is None or len(accepted.rules) > 1 or accepted.reads != (name,):
        return False
    return name in ("platform", "capability") or name in inquiry.layer.fields


def _refused(resolution: Resolution, candidate: Candidate) -> bool:
    needed = resolution.needed
    verdicts = [verdict_of(candidate, phase) for phase in needed]
    served = [v for v in verdicts if all(r.code != Code.PHASE for r in v.rejections)]
    return not served or any(v.outcome not in USABLE for v in served)


def remedy(case: Case, selector: Selector, found: Sequence[Way]) -> Remedy | None:
    """The nearest way after which every phase that lacked a backend has one, or ``None``.

    Nobody can give a model other heads: a way that would need it is none for a model that was
    named.
    """
    missing = case.resolution.missing
    for way in found:
        if not way.prospect.changes or (case.model and way.prospect.touches_model):
            continue
        try:
            answer = way.inquiry.resolve(selector, brief=True)
        except AttnselError:
            continue
        if answer.missing:
            continue
        backends = {p: str(choice_of(answer, p).backend) for p in missing}
        return Remedy(_sure(way.prospect, backends), backends)
    return None


def unforced(case: Case, selector: Selector) -> dict[Phase, str] | None:
    """What runs each phase once nothing is forced; ``None`` when nothing was or nothing does."""
    policy = case.inquiry.policy
    if policy == Policy(policy.deny) or not case.resolution.missing:
        return None
    free = msgspec.structs.replace(case.inquiry, policy=Policy(policy.deny))
    answer = free.resolve(selector, brief=True)
    if answer.missing:
        return None
    return {phase: str(choice_of(answer, phase).backend) for phase in answer.needed}


def elsewhere(
    case: Case, selector: Selector, archs: Sequence[str] | None = None
) -> tuple[str, ...]:
    """The architectures, all or of those named, on which the same question has an answer."""
    found: list[str] = []
    for arch in (*known_capabilities(), "cpu") if archs is None else archs:
        device = Device("cpu") if arch == "cpu" else Device("cuda", arch)
        there = msgspec.structs.replace(case.inquiry, device=device)
        try:
            answer = there.resolve(selector, brief=True)
        except AttnselError:
            continue
        if not answer.missing:
            found.append(arch)
    return tuple(found)


def _sure(prospect: Prospect, backends: dict[Phase, str]) -> tuple[Change, ...]:
    """The changes; their further values were tried for this prospect's own backend only."""
    if set(backends.values()) == {prospect.backend}:
        return prospect.changes
    return tuple(msgspec.structs.replace(c, others=()) for c in prospect.changes)


class _Step(msgspec.Struct, frozen=True):
    """A change made, and the others that might mend the same rejection."""

    option: Option
    siblings: tuple[Option, ...]


_Queued = tuple[int, int, int, int, tuple[_Step, ...], Inquiry]


class _Known:
    """What inquiries are about, each worked out once: candidates are offered the same changes."""

    def __init__(self, selector: Selector) -> None:
        self.manifest = selector.manifest
        self._selector = selector
        self._bound: dict[object, Bound | None] = {}

    def bound(self, inquiry: Inquiry) -> Bound | None:
        """What an inquiry is about, without its policy; ``None``: no such layer can exist."""
        values = (*inquiry.layer.fields.items(), *inquiry.facts.values.items())
        key = frozenset((name, type(value), value) for name, value in values)
        if key not in self._bound:
            free = msgspec.structs.replace(inquiry, policy=Policy())
            try:
                self._bound[key] = free.bind(self._selector)
            except AttnselError:
                self._bound[key] = None
        return self._bound[key]


class _Search:
    """Looks for the fewest changes that make one candidate usable."""

    def __init__(self, case: Case, known: _Known, candidate: Candidate) -> None:
        self.case = case
        self.known = known
        self.candidate = candidate
        self.entry = known.manifest.entries[candidate.backend]
        self.needed = case.resolution.needed
        self.start = self._own(case.inquiry)

    def way(self) -> Way:
        """The prospect in all phases it serves, else in one of them, else what is in the way."""
        served = tuple(p for p in self.needed if p in self.entry.phases)
        goals = [served, *((p,) for p in served)] if len(served) > 1 else [served] * bool(served)
        for goal in goals:
            steps = self._search(goal)
            if steps is not None:
                return self._way(steps, goal, tuple(p for p in served if p not in goal))
        return self._way((), (), self.needed)

    def _own(self, inquiry: Inquiry) -> Inquiry:
        """The inquiry about this entry alone; denials of others do not concern it."""
        deny = {n: why for n, why in inquiry.policy.deny.items() if n == self.entry.name}
        return msgspec.structs.replace(inquiry, policy=Policy(deny=MappingProxyType(deny)))

    def _way(
        self, steps: tuple[_Step, ...], goal: tuple[Phase, ...], refused: tuple[Phase, ...]
    ) -> Way:
        inquiry = self.case.inquiry
        for step in steps:
            inquiry = step.option.apply(inquiry)
        prospect = Prospect(
            backend=self.entry.name,
            position=self.candidate.position,
            phases=goal,
            changes=tuple(self._change(steps, i, goal) for i in range(len(steps))),
            obstacles=self._obstacles(refused),
        )
        return Way(prospect, inquiry)

    def _obstacles(self, phases: Sequence[Phase]) -> tuple[Rejection, ...]:
        """Why these phases stay refused: what cannot be changed, else all there is."""
        said = [
            rejection
            for phase in phases
            for rejection in verdict_of(self.candidate, phase).rejections
        ]
        fixed = [r for r in said if immovable(r, self.known.manifest, self.case.inquiry)]
        return tuple(dict.fromkeys(fixed or said))

    def _search(self, goal: tuple[Phase, ...]) -> tuple[_Step, ...] | None:
        """The cheapest steps: those that keep the model, then the question as it is; the fewest."""
        queue: list[_Queued] = [(0, 0, 0, 0, (), self.start)]
        seen: set[frozenset[tuple[str, str]]] = set()
        for _ in range(_MOST_TRIES):
            if not queue:
                break
            *_, steps, inquiry = heappop(queue)
            refused = self._refusal(inquiry, goal)
            if refused == []:
                return steps
            if not steps and any(self._is_final(*one) for one in refused or []):
                return None
            if len(steps) == _MOST_CHANGES:
                continue
            for step in self._steps(inquiry, refused or []):
                longer = (*steps, step)
                made = frozenset(_key(s.option) for s in longer)
                repeated = any(s.option.field == step.option.field for s in steps)
                if made not in seen and not repeated:
                    seen.add(made)
                    kinds = [s.option.kind for s in longer]
                    own, asked = kinds.count(Kind.MODEL), sum(k not in _SOFTWARE for k in kinds)
                    cost = own, asked, len(longer), len(seen)
                    heappush(queue, (*cost, longer, step.option.apply(inquiry)))
        return None

    def _is_final(self, phase: Phase, rejection: Rejection) -> bool:
        """Whether a set that is the same for all questions refuses what nobody can change."""
        name = rejection.field or ""
        if rejection.code != name.upper():
            return False
        same = _is_same_for_all(self.entry.phases[phase], name, self.start)
        return same and immovable(rejection, self.known.manifest, self.start)

    def _steps(
        self, inquiry: Inquiry, refused: Sequence[tuple[Phase, Rejection]]
    ) -> Iterator[_Step]:
        """Yields the ways to mend the first rejection: in the end, all must be mended.

        Rejections by one constraint may be alternatives, so each of them is tried.
        """
        bound = self.known.bound(inquiry)
        if bound is None:
            return
        for phase, rejection in refused:
            first = refused[0][1]
            if (rejection.code, rejection.reason) == (first.code, first.reason):
                offered = options(bound, inquiry, self.entry, phase, rejection, self.case.shard)
                yield from (_Step(option, offered) for option in offered)

    def _refusal(
        self, inquiry: Inquiry, goal: Sequence[Phase]
    ) -> list[tuple[Phase, Rejection]] | None:
        """What still refuses the entry in these phases; ``None`` when no such layer can exist."""
        verdicts = self._verdicts(inquiry)
        if verdicts is None:
            return None
        return [
            (phase, rejection)
            for phase in goal
            if verdicts[phase].outcome not in USABLE
            for rejection in verdicts[phase].rejections
        ]

    def _verdicts(self, inquiry: Inquiry) -> Mapping[Phase, Verdict] | None:
        """What the entry says by itself; before any change, the answer says it already."""
        if inquiry is self.start:
            said = {phase: verdict_of(self.candidate, phase) for phase in Phase}
            if all(r.code != Code.JOINT for v in said.values() for r in v.rejections):
                return said
        bound = self.known.bound(inquiry)
        if bound is None:
            return None
        return bound.judge(self.entry.name, inquiry.request, inquiry.policy)

    def _change(self, steps: Sequence[_Step], index: int, goal: Sequence[Phase]) -> Change:
        """One step, with the other values that were found to do as well."""
        made = steps[index].option
        others = (
            option.after
            for option in steps[index].siblings
            if option.field == made.field
            and option.after != made.after
            and self._suffices(
                [option if i == index else s.option for i, s in enumerate(steps)], goal
            )
        )
        first = tuple(after for after, _ in zip(others, range(_MOST_OTHERS), strict=False))
        return Change(made.kind, made.field, made.before, made.after, first)

    def _suffices(self, made: Sequence[Option], goal: Sequence[Phase]) -> bool:
        inquiry = self.start
        for option in made:
            inquiry = option.apply(inquiry)
        return self._refusal(inquiry, goal) == []


def _key(option: Option) -> tuple[str, str]:
    return option.field, option.after
