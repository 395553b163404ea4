"""What a manifest leaves without a backend, what is never chosen, and what only order decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from selector.analysis.space import KindOf
from selector.analysis.survey import BUDGET, Part, Region, Survey
from selector.devices import known_capabilities
from selector.domains import Domain
from selector.fields import ABSENT, parse_capability
from selector.manifest import Entry, Manifest
from selector.plan.kind import Kind
from selector.plan.terms import KIND_FIELDS
from selector.values import ManifestRef, Phase, Position

__all__ = [
    "Gap",
    "Gaps",
    "Idle",
    "Overlap",
    "Rivals",
    "Totals",
    "accepted_by",
    "find_gaps",
    "is_named",
    "rivals_of",
]

_PLACE = {Phase.PREFILL: 0, Phase.DECODE: 1}


class Gap(msgspec.Struct, frozen=True):
    """Layers of one kind that no backend runs, on any of some devices.

    Attributes:
        phases: without a backend.
        mla: MLA layers.
        sparse: sparse layers.
        attn_types: what they attend to; all of them when empty.
        devices: capabilities and platforms, oldest first.
        questions: how many there are.
        drawn: seen only among questions that were drawn: it may be no gap.
    """

    phases: tuple[Phase, ...]
    mla: bool
    sparse: bool
    attn_types: tuple[str, ...]
    devices: tuple[str, ...]
    questions: int
    drawn: bool = False


class Rivals(msgspec.Struct, frozen=True):
    """The questions that an entry accepts in a phase, by what is chosen for them.

    Attributes:
        accepted: how many there are.
        chosen: for how many it is chosen itself.
        before: what stands before it in the list that decides, and is chosen → how many.
        aside: what else is chosen → how many; ``None``: nothing. The list that decides does not
            name the entry, or its partner for the other phase cannot be.
        drawn: counted among questions that were drawn.
    """

    accepted: int
    chosen: int
    before: Mapping[str, int]
    aside: Mapping[str | None, int]
    drawn: bool


class Idle(msgspec.Struct, frozen=True):
    """An entry that is never chosen in a phase that it serves.

    Attributes:
        backend: its name.
        position: where it is stated.
        phase: in which it is never chosen.
        named: whether a priority list of that phase names it.
        rivals: what is chosen for the questions that it accepts.
    """

    backend: str
    position: Position
    phase: Phase
    named: bool
    rivals: Rivals


class Overlap(msgspec.Struct, frozen=True):
    """Questions that two entries could run, where only their order decides.

    Attributes:
        phase: in which both could.
        winner: the one that is chosen.
        loser: the one behind it.
        questions: how many.
        drawn: counted among questions that were drawn.
    """

    phase: Phase
    winner: str
    loser: str
    questions: int
    drawn: bool = False


class Totals(msgspec.Struct):
    """What is found in all questions.

    Attributes:
        questions: how many can exist.
        unserved: phase → how many have no backend.
        chosen: phase → backend → how many.
        drawn: how many were drawn, of the kinds beyond the budget; they count in nothing else.
        kinds_drawn: of how many kinds.
        fewest_drawn: of any such kind.
        open: how many only the definition can tell.
    """

    questions: int = 0
    unserved: dict[Phase, int] = {}
    chosen: dict[Phase, Counter[str]] = {}
    drawn: int = 0
    kinds_drawn: int = 0
    fewest_drawn: int = 0
    open: int = 0

    def add(self, part: Part) -> None:
        """Counts the questions of one kind."""
        if part.drawn:
            self.fewest_drawn = min(self.fewest_drawn or part.drawn, part.drawn)
            self.drawn += part.drawn
            self.kinds_drawn += 1
        for (decision,), number in part.total.items():
            counted = 0 if part.drawn else number
            self.questions += counted
            if decision is None:
                self.open += counted
                continue
            for phase, name in zip(Phase, decision, strict=True):
                if name is None:
                    self.unserved[phase] = self.unserved.get(phase, 0) + counted
                else:
                    self.chosen.setdefault(phase, Counter())[name] += counted

    def ever(self, backend: str, phase: Phase) -> bool:
        """Whether a backend is chosen for something in a phase."""
        return backend in self.chosen.get(phase, ())

    @property
    def exact(self) -> bool:
        """Whether all was looked at."""
        return not self.kinds_drawn and not self.open


class Gaps(msgspec.Struct, frozen=True):
    """What is to be known of a manifest's edges."""

    manifest: ManifestRef
    totals: Totals
    gaps: tuple[Gap, ...]
    idle: tuple[Idle, ...]
    overlaps: tuple[Overlap, ...]


def find_gaps(manifest: Manifest, budget: int = BUDGET) -> Gaps:
    """The gaps, idle entries and overlaps of a manifest.

    Args:
        manifest: what is looked at.
        budget: how many places of diagrams may be looked at; beyond, questions are drawn.
    """
    survey = Survey(manifest, budget=budget)
    totals = Totals()
    unserved: list[tuple[tuple[Phase, ...], KindOf, int, bool]] = []
    for part in survey.parts(Region()):
        totals.add(part)
        if phases := tuple(phase for phase in Phase if _unserved(part, phase)):
            number = 0 if part.drawn else sum(part.total.values())
            unserved.append((phases, part.kind, number, bool(part.drawn)))
    idle: list[Idle] = []
    overlaps: list[Overlap] = []
    for entry in manifest.entries.values():
        for phase, rivals in rivals_of(survey, entry).items():
            if not totals.ever(entry.name, phase) and not rivals.chosen:
                named = is_named(manifest, entry.name, phase)
                idle.append(Idle(entry.name, entry.position, phase, named, rivals))
            overlaps += (
                Overlap(phase, winner, entry.name, number, rivals.drawn)
                for winner, number in rivals.before.items()
            )
    overlaps.sort(key=lambda o: (o.phase, -o.questions, o.winner, o.loser))
    return Gaps(
        manifest.ref, totals, tuple(_grouped(manifest, unserved)), tuple(idle), tuple(overlaps)
    )


def _unserved(part: Part, phase: Phase) -> bool:
    """Whether nothing is chosen in a phase for any question."""
    place = _PLACE[phase]
    return bool(part.total) and all(d is not None and d[place] is None for (d,) in part.total)


def is_named(manifest: Manifest, backend: str, phase: Phase) -> bool:
    """Whether a priority list of a phase names a backend."""
    return any(backend in priority.orders.get(phase, ()) for priority in manifest.priorities)


# -- rivals --------------------------------------------------------------------------------------


def rivals_of(survey: Survey, entry: Entry) -> dict[Phase, Rivals]:
    """What is chosen for the questions that an entry accepts, in each phase that it serves."""
    alike: list[tuple[Region, list[Phase]]] = []
    for phase, spec in entry.phases.items():
        if spec.disabled:
            continue
        region = accepted_by(survey, entry, phase)
        for known, phases in alike:
            if known == region:
                phases.append(phase)
                break
        else:
            alike.append((region, [phase]))
    return {
        phase: rivals
        for region, phases in alike
        for place, rivals in enumerate(_rivals(survey, entry.name, region))
        for phase in phases
        if _PLACE[phase] == place
    }


def _rivals(survey: Survey, name: str, region: Region) -> tuple[Rivals, Rivals]:
    """What is chosen in a region, for prefill and for decode."""

    def choose(kind: Kind, mask: int) -> tuple[str | None, ...]:
        choices = kind.choices(mask)
        orders = (choices.prefill.order, choices.decode.order)
        found: list[str | None] = []
        for winner, order in zip(survey.chosen(kind, mask), orders, strict=True):
            names = [one for _, one in order]
            behind = winner in names and name in names[names.index(winner) + 1 :]
            found += [winner, name if behind else None]
        return tuple(found)

    totals: tuple[Counter[_Seen], Counter[_Seen]] = (Counter(), Counter())
    drawn = False
    for part in survey.few_parts(region, choose):
        drawn = drawn or bool(part.drawn)
        for (decision,), number in part.total.items():
            found: tuple[str | None, ...] = decision or (None,) * 4
            totals[0][found[0], found[1]] += number
            totals[1][found[2], found[3]] += number
    return _rivals_in(name, totals[0], drawn), _rivals_in(name, totals[1], drawn)


_Seen = tuple[str | None, str | None]
"""What is chosen, and the entry that it stands before."""


def _rivals_in(name: str, totals: Counter[_Seen], drawn: bool) -> Rivals:
    before: dict[str, int] = {}
    aside: dict[str | None, int] = {}
    for (winner, behind), number in sorted(totals.items(), key=lambda p: (-p[1], str(p[0]))):
        if behind is not None:
            before[str(winner)] = number
        elif winner != name:
            aside[winner] = number
    return Rivals(totals.total(), totals[name, None], before, aside, drawn)


def accepted_by(survey: Survey, entry: Entry, phase: Phase) -> Region:
    """The questions for which nothing refuses an entry by itself."""
    (rules,) = survey.space.rules
    (slot,) = (s for s in rules.slots if (s.backend, s.phase) == (entry.name, phase))
    accepts = entry.phases[phase].accepts
    within = {}
    for name in KIND_FIELDS:
        first = accepts[name].rules[0] if name in accepts else None
        if first is not None and not first.when.tests and not first.result.allowed.bounds:
            within[name] = first.result.allowed.fixed
    refused = (*({name: values} for name, values in slot.alone), *slot.terms)
    return Region((within,), refused)


# -- gaps in groups ------------------------------------------------------------------------------


class _Group(NamedTuple):
    """What gaps have in common that are said together."""

    phases: tuple[Phase, ...]
    mla: bool
    sparse: bool
    drawn: bool


def _grouped(
    manifest: Manifest, unserved: Iterable[tuple[tuple[Phase, ...], KindOf, int, bool]]
) -> Iterator[Gap]:
    """Yields kinds without a backend: devices with the same gaps together, then attention types."""
    types = manifest.vocabulary.fields["attn_type"].values
    by_type: dict[tuple[_Group, tuple[str, ...]], list[tuple[KindOf, int]]] = {}
    for phases, kind, number, drawn in unserved:
        mla, sparse = (kind.classes[name].admits(True) for name in ("mla", "sparse"))
        names = tuple(name for name in types if kind.classes["attn_type"].admits(name))
        by_type.setdefault((_Group(phases, mla, sparse, drawn), names), []).append((kind, number))
    by_devices: dict[tuple[_Group, tuple[str, ...]], list[tuple[tuple[str, ...], int]]] = {}
    for (group, names), kinds in by_type.items():
        devices = tuple(_devices_of([kind.classes for kind, _ in kinds], manifest))
        number = sum(number for _, number in kinds)
        by_devices.setdefault((group, devices), []).append((names, number))
    for (group, devices), found in by_devices.items():
        said = tuple(name for name in types if any(name in names for names, _ in found))
        yield Gap(
            phases=group.phases,
            mla=group.mla,
            sparse=group.sparse,
            attn_types=() if said == tuple(types) else said,
            devices=devices,
            questions=sum(number for _, number in found),
            drawn=group.drawn,
        )


def _devices_of(kinds: Iterable[Mapping[str, Domain]], manifest: Manifest) -> Iterator[str]:
    """Yields the capabilities and the platforms of kinds, oldest first."""
    kinds = list(kinds)
    for text in known_capabilities():
        code = parse_capability(text)
        if any(k["platform"].admits("cuda") and k["capability"].admits(code) for k in kinds):
            yield text
    for platform in manifest.vocabulary.fields["platform"].values:
        if platform != "cuda" and any(
            k["platform"].admits(platform) and k["capability"].admits(ABSENT) for k in kinds
        ):
            yield platform
