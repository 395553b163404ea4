"""Two manifests, question by question: which are decided otherwise, and what they have in common.

Every question that both can be asked is counted. What is too large to be counted is drawn from
instead, and the answer says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Set
from random import Random
from types import MappingProxyType

import msgspec

from selector.analysis.aside import Aside, asides_of
from selector.analysis.bounds import upper_bound
from selector.analysis.cutting import Change, Cuts, Region
from selector.analysis.diagram import Decision, Diagram, Outcome, OverBudgetError
from selector.analysis.lengths import InexactError
from selector.analysis.paths import PathChange, Paths
from selector.analysis.regions import Net
from selector.analysis.rerouting import DrawnPaths, ModelChange, Rerouted, models_changed, way_of
from selector.analysis.space import KindOf, Space, representative
from selector.analysis.stating import Stated, stated_changes
from selector.analysis.tails import tests_of_tails
from selector.analysis.witness import Witness, witness_of
from selector.binding import Selector
from selector.domains import Domain
from selector.errors import AttnselError
from selector.manifest import Manifest
from selector.plan.kind import Kind, Pair
from selector.plan.plan import Pick, Plan
from selector.plan.terms import DEVICE_FIELDS, UndecidedError

__all__ = [
    "Change",
    "Comparison",
    "Drawn",
    "IncomparableError",
    "Limits",
    "Region",
    "compare",
    "decision_of",
    "pick_of",
]

_SAME, _OPEN = "same", "open"
_MANY = "there are too many to count"
_DEFINED = "only the definition can decide them"
_MOST_ALIKE = 50
"""Questions of which only the definition knows, and that are asked for paths as well."""


class IncomparableError(AttnselError, ValueError):
    """Two manifests cannot be asked the same questions."""

    code = "INCOMPARABLE"


class Limits(msgspec.Struct, frozen=True):
    """How much is looked at.

    Attributes:
        steps: what diagrams may take in all; kinds of questions beyond are drawn from.
        work: steps that are spent on cutting regions; beyond, they stay as they are.
        boxes: regions of one change in one kind of question.
        draws: questions that are drawn where they cannot be counted.
        layers: layers that are drawn where paths cannot be counted.
    """

    steps: int = 2_000_000
    work: int = 6_000_000
    boxes: int = 12
    draws: int = 20_000
    layers: int = 300


class Drawn(msgspec.Struct, frozen=True):
    """Questions that were drawn because they could not be counted.

    Attributes:
        of: how many questions they stand for.
        why: what kept them from being counted.
        number: how many were drawn.
        changes: the changes that were seen among them.
        ones: for each of these, field → its class in one of them.
    """

    of: int
    why: str
    number: int
    changes: Mapping[Change, int]
    ones: Mapping[Change, Mapping[str, Domain]]

    @property
    def seen(self) -> int:
        """How many of them change."""
        return sum(self.changes.values())

    @property
    def at_most(self) -> float:
        """The share that changes is at most this, with 95 % confidence."""
        return upper_bound(self.seen, self.number)


class Comparison(msgspec.Struct, frozen=True):
    """What two manifests decide differently.

    Attributes:
        space: the questions; ``None``: the manifests mean the same, so nothing was asked.
        able: how many of them can exist, of those that were counted.
        totals: change → how many questions change so, the most frequent first.
        regions: the same, in regions; the largest first.
        drawn: what was drawn instead of counted.
        paths: questions that keep their backends and are computed in another way.
        able_of_paths: how many questions were counted where that could be.
        drawn_paths: what was drawn of such questions instead of counted.
        models: known models whose layers are decided otherwise.
        stated: what is stated differently, beside.
        left_out: fields of which some values are known to one manifest only.
        asides: what is stated otherwise of questions that are not counted.
    """

    space: Space | None = None
    able: int = 0
    totals: Mapping[Change, int] = MappingProxyType({})
    regions: tuple[Region, ...] = ()
    drawn: tuple[Drawn, ...] = ()
    paths: tuple[PathChange, ...] = ()
    able_of_paths: int = 0
    drawn_paths: tuple[DrawnPaths, ...] = ()
    models: tuple[ModelChange, ...] = ()
    stated: Stated = Stated()
    left_out: tuple[str, ...] = ()
    asides: tuple[Aside, ...] = ()

    @property
    def changed(self) -> int:
        """How many questions are decided otherwise, of those that were counted."""
        return sum(self.totals.values())

    @property
    def is_different(self) -> bool:
        """Whether a decision or a path changes, or whether that could not be ruled out."""
        drawn = self.drawn or self.drawn_paths
        beside = self.asides or self.stated.defaults
        return bool(self.totals or drawn or self.paths or self.models or beside)

    def witness(self, one: Mapping[str, Domain], change: Change) -> Witness | None:
        """A question of these classes; ``None``: none that changes so could be made."""
        assert self.space is not None
        witness = witness_of(self.space, one)
        if witness is None:
            return None
        decided = tuple(decision_of(manifest, witness) for manifest in self.space.manifests)
        return witness if decided == change else None

    def path_witness(self, change: PathChange, region: Region | None = None) -> Witness | None:
        """A question of a region that is computed in another way; without one, the one drawn.

        ``None``: none that changes so could be made.
        """
        assert self.space is not None
        asked = change.witness if region is None else witness_of(self.space, region.one)
        if asked is None:
            return None
        picks = [pick_of(manifest, asked) for manifest in self.space.manifests]
        if any(pick is None or (pick.prefill, pick.decode) != change.backends for pick in picks):
            return None
        ways = [pick and way_of(pick) for pick in picks]
        return asked if ways == [change.before, change.after] else None


def pick_of(manifest: Manifest, asked: Witness) -> Pick | None:
    """What the definition picks; ``None``: the question cannot be asked."""
    try:
        bound = Selector(manifest).bind(asked.device, asked.layer, asked.facts)
        return Pick.of(bound.resolve_one(asked.request))
    except AttnselError:
        return None


def decision_of(manifest: Manifest, asked: Witness) -> Decision | None:
    """What the definition decides; ``None``: the question cannot be asked."""
    pick = pick_of(manifest, asked)
    return None if pick is None else (pick.prefill, pick.decode)


def compare(old: Manifest, new: Manifest, limits: Limits | None = None) -> Comparison:
    """Which questions two manifests decide differently.

    Args:
        old: the one that is compared with.
        new: the other.
        limits: how much is looked at.

    Raises:
        IncomparableError: they cannot be asked the same questions.
        TooManyTermsError: a rule cannot be written out.
    """
    if old.ref.digest == new.ref.digest:
        return Comparison()
    _check_names(old, new)
    return _Comparer(old, new, limits or Limits()).compare()


def _check_names(old: Manifest, new: Manifest) -> None:
    """Refuses manifests that derive what the other is told.

    Raises:
        IncomparableError: a field of one follows from others in the other.
    """
    for one, other in ((old, new), (new, old)):
        for name in one.derive:
            if name in other.vocabulary.fields and name not in other.derive:
                raise IncomparableError(
                    f"{one.ref.file}: {name} follows from other fields, and {other.ref.file} takes "
                    "it as given, so that they cannot be asked the same; call one of them otherwise"
                )


_Place = tuple[KindOf, Net, int]
"""Questions of a kind, where they end, and how many they are."""


class _Kept(msgspec.Struct, frozen=True):
    """The end of questions that keep backends which run them in another way."""

    backends: Decision


class _Comparer:
    """Goes through the kinds of questions; alike ones are cut into regions once."""

    def __init__(self, old: Manifest, new: Manifest, limits: Limits) -> None:
        self.stated = stated_changes(old, new)
        self._watched = {*self.stated.paths, *_lending(old), *_lending(new)}
        self._plans = (Plan(old), Plan(new))
        told = (tests_of_tails(one, _beside(one, self._watched)) for one in (old, new))
        whens = [when for whens in told for when in whens]
        self.space = Space((old, new), whens, [plan.rules for plan in self._plans])
        self.limits = limits
        self._left = limits.steps
        self._kinds = [*self.space.kinds()]
        self._share = limits.work // max(1, len(self._kinds))
        self._cuts: Cuts[Change] = Cuts(self.space, self.space.classes, limits.boxes, self._share)
        self._able = 0
        self._open: list[_Place] = []
        self._alike: list[tuple[Decision, Witness]] = []
        self._kept: dict[Pair, list[_Place]] = {}

    def compare(self) -> Comparison:
        beyond = []
        for kind in self._kinds:
            try:
                diagram = Diagram.of(self.space, kind, self._decide, self._left // 2)
            except OverBudgetError:
                self._left -= self._left // 2  # another kind may be smaller
                beyond.append(kind)
                continue
            self._left -= diagram.work
            self._count(kind, Net(diagram, self._label), diagram.factor)
        totals = dict(self._cuts.totals.most_common())
        regions = [r for change in totals for r in self._cuts.regions(change, change)]
        regions.sort(key=lambda region: -region.count)
        drawn = [*self._drawn_open(), *self._drawn_beyond(beyond)]
        counted, left = self._counted_paths()
        rerouted = Rerouted(self._plans)
        drawn_paths = [*self._drawn_paths(rerouted, left)]
        return Comparison(
            space=self.space,
            able=self._able,
            totals=totals,
            regions=tuple(regions),
            drawn=tuple(drawn),
            paths=(*counted.changes(), *rerouted.changes()),
            able_of_paths=counted.able,
            drawn_paths=tuple(drawn_paths),
            models=models_changed(self._plans),
            stated=self.stated,
            left_out=tuple(self._left_out()),
            asides=asides_of(self._plans),
        )

    def _left_out(self) -> Iterator[str]:
        old, new = (manifest.vocabulary.universes for manifest in self.space.manifests)
        for name in self.space.classes:
            if name in old and name in new and old[name] != new[name]:
                yield name

    def _decide(self, index: int, kind: Kind, mask: int) -> Decision | None:
        try:
            return kind.choices(mask).pair(mask, self._plans[index].agree)
        except UndecidedError:
            return None

    def _label(self, outcome: Outcome) -> Hashable:
        """What an outcome is called: the change, open, or the same (and what, where it matters)."""
        before, after = outcome
        if before is None or after is None:
            return _OPEN
        if before != after:
            return before, after
        return _Kept(before) if self._watched.intersection(before) else _SAME

    def _count(self, kind: KindOf, net: Net, factor: int) -> None:
        totals = net.totals()
        self._able += factor * sum(number for end, number in totals.items() if end != _OPEN)
        if number := totals.get(_OPEN, 0):
            self._open.append((kind, net, number * factor))
        for end, number in totals.items():
            if isinstance(end, _Kept):
                self._kept.setdefault(end.backends, []).append((kind, net, number * factor))
        changes = {end: n for end, n in totals.items() if isinstance(end, tuple) and n}
        self._cuts.add(kind, net, changes, factor)

    def _counted_paths(self) -> tuple[Paths, dict[tuple[Pair, str], list[_Place]]]:
        """Counts the ways of questions that keep their backends; and what could not be counted.

        The latter is by the backends, and why.
        """
        agrees = self._plans[0].agree, self._plans[1].agree
        counted = Paths(self.space, agrees, self._kept, self.limits.boxes, self._share)
        left: dict[tuple[Pair, str], list[_Place]] = {}
        for backends, places in self._kept.items():
            for place in places:
                if not counted.can_differ(backends, place[0]):
                    continue
                try:
                    self._left -= counted.count(backends, place[0], self._left // 2)
                except OverBudgetError:
                    self._left -= self._left // 2
                    left.setdefault((backends, _MANY), []).append(place)
                except InexactError as error:
                    left.setdefault((backends, str(error)), []).append(place)
        return counted, left

    # -- drawing ----------------------------------------------------------------------------------

    def _drawn_paths(
        self, found: Rerouted, left: Mapping[tuple[Pair, str], list[_Place]]
    ) -> Iterator[DrawnPaths]:
        """Draws layers that keep backends which may run them in another way."""
        if self._alike:
            said = [found.look(backends, asked) for backends, asked in self._alike]
            of = sum(number for *_, number in self._open)
            yield DrawnPaths(of, _DEFINED, len(said) - said.count(None), said.count(True))
        random = Random(0)
        each = self.limits.layers // max(1, len(left))
        for (backends, why), places in left.items():
            weights = [number for *_, number in places]
            said = []
            for kind, net, _ in random.choices(places, weights, k=1 + each):
                for one in net.drawn(_Kept(backends), 1, random.random):
                    asked = witness_of(self.space, self._drawn_classes(kind, one, random))
                    said.append(None if asked is None else found.look(backends, asked))
            yield DrawnPaths(sum(weights), why, len(said) - said.count(None), said.count(True))

    def _drawn_classes(
        self, kind: KindOf, one: Mapping[str, int], random: Random
    ) -> Mapping[str, Domain]:
        """The classes of a question, with those that the diagram left free drawn too."""
        free = {
            name: int(random.random() * len(classes))
            for name, classes in self.space.classes.items()
            if name not in DEVICE_FIELDS
        }
        return self._cuts.classes_of({**free, **self._cuts.of_kind(kind).one, **one})

    def _drawn_open(self) -> Iterator[Drawn]:
        """Yields what is drawn from the questions that only the definition can decide."""
        total = sum(number for *_, number in self._open)
        if not total:
            return
        random = Random(0)
        changes: Counter[Change] = Counter()
        ones: dict[Change, Mapping[str, Domain]] = {}
        number = 0
        most = max(1, self.limits.draws // 100)  # the definition is slow
        for kind, net, share in self._open:
            own = self._cuts.of_kind(kind).one
            for one in net.drawn(_OPEN, max(1, most * share // total), random.random):
                classes = self._cuts.classes_of({**own, **one})
                asked = witness_of(self.space, classes)
                if asked is None:
                    continue
                before, after = (decision_of(m, asked) for m in self.space.manifests)
                if before is None or after is None:
                    continue
                number += 1
                if before != after:
                    changes[before, after] += 1
                    ones.setdefault((before, after), classes)
                elif self._watched.intersection(before) and len(self._alike) < _MOST_ALIKE:
                    self._alike.append((before, asked))
        yield Drawn(total, _DEFINED, number, changes, ones)

    def _drawn_beyond(self, kinds: list[KindOf]) -> Iterator[Drawn]:
        """Yields what is drawn from the kinds of questions that are beyond the limit."""
        if not kinds:
            return
        random = Random(0)
        changes: Counter[Change] = Counter()
        ones: dict[Change, Mapping[str, Domain]] = {}
        number = 0
        each = -(-self.limits.draws // len(kinds))
        for kind in kinds:
            fields = sorted({name for one in kind.kinds for name in one.tables})
            for _ in range(each):
                classes = {n: random.choice(self.space.classes[n]) for n in fields}
                outcome = self._outcome(kind, classes)
                if outcome is None or None in outcome:
                    continue
                number += 1
                before, after = outcome
                if before is not None and after is not None and before != after:
                    changes[before, after] += 1
                    ones.setdefault((before, after), {**classes, **kind.classes})
        of = self.space.size * len(kinds) // max(1, len(self._kinds))
        yield Drawn(of, _MANY, number, changes, ones)

    def _outcome(self, kind: KindOf, classes: Mapping[str, Domain]) -> Outcome | None:
        found = []
        for index, one in enumerate(kind.kinds):
            mask = one.everything
            for name, masks in one.tables.items():
                mask &= masks[representative(classes[name])]
            mask = one.settled(mask)
            if mask & one.impossible:
                return None
            found.append(self._decide(index, one, mask))
        return tuple(found)


def _beside(manifest: Manifest, names: Set[str]) -> list[str]:
    """Entries, and those that may run one phase of a layer while they run the other."""
    entries = manifest.entries
    kinds = {(entries[name].mla, entries[name].sparse) for name in names if name in entries}
    return [name for name, entry in entries.items() if (entry.mla, entry.sparse) in kinds]


def _lending(manifest: Manifest) -> Iterator[str]:
    """Yields the entries of which other backends compute some paths."""
    for entry in manifest.entries.values():
        if any(rule.by_dense_backend for rule in entry.prefill_paths):
            yield entry.name
