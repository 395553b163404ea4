"""Two manifests, question by question: which are decided otherwise, and what they have in common.

Every question that both can be asked is counted. What is too large to be counted is drawn from
instead, and the answer says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from functools import cached_property
from random import Random
from types import MappingProxyType

import msgspec

from selector.analysis.bounds import upper_bound
from selector.analysis.diagram import Decision, Diagram, Outcome, OverBudgetError
from selector.analysis.regions import Box, Net, Side, Work, merged
from selector.analysis.rerouting import (
    ModelChange,
    PathChange,
    Rerouted,
    models_changed,
    tails_of,
)
from selector.analysis.space import KindOf, Space, representative
from selector.analysis.stating import Stated, stated_changes
from selector.analysis.witness import Witness, _quiet, witness_of
from selector.binding import Selector
from selector.domains import Domain
from selector.errors import AttnselError
from selector.manifest import Manifest
from selector.plan.kind import Kind
from selector.plan.plan import Pick, Plan
from selector.plan.terms import KIND_FIELDS, UndecidedError

__all__ = ["Change", "Comparison", "Drawn", "IncomparableError", "Limits", "Region", "compare"]

Change = tuple[Decision, Decision]
"""The decision of the old manifest, and that of the new one."""

_SAME, _OPEN = "same", "open"
_DEVICE = ("platform", "capability")
_USUAL_END = 2048
"""What bounds lengths, such as the tokens an indexer keeps, is taken to be this."""

_JOINED_FIRST = ("device", "attn_type", "sparse", "mla")


class IncomparableError(AttnselError, ValueError):
    """Two manifests cannot be asked the same questions."""

    code = "INCOMPARABLE"


class Limits(msgspec.Struct, frozen=True):
    """How much is looked at.

    Attributes:
        nodes: places of diagrams in all; kinds of questions beyond are drawn from.
        work: steps that are spent on cutting regions; beyond, they stay as they are.
        boxes: regions of one change in one kind of question.
        draws: questions that are drawn where they cannot be counted.
        layers: layers that are drawn where only paths can differ.
    """

    nodes: int = 400_000
    work: int = 6_000_000
    boxes: int = 12
    draws: int = 20_000
    layers: int = 100


class Region(msgspec.Struct, frozen=True):
    """Questions with one change.

    Attributes:
        change: from what to what.
        count: how many questions of the region change so.
        holds: how many it holds in all; the same where the region is exact.
        sides: field → the values it has there; a field that is not there may have any.
        devices: platforms and capabilities; empty: any.
        one: field → its class in one of the questions.
    """

    change: Change
    count: int
    holds: int
    sides: Mapping[str, Domain]
    devices: tuple[tuple[Domain, Domain], ...]
    one: Mapping[str, Domain]


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
        paths: requests that keep their backends and are computed in another way.
        asked_of_paths: how many requests were drawn to find them.
        models: known models whose layers are decided otherwise.
        stated: what is stated differently, beside.
        left_out: fields of which some values are known to one manifest only.
    """

    space: Space | None = None
    able: int = 0
    totals: Mapping[Change, int] = MappingProxyType({})
    regions: tuple[Region, ...] = ()
    drawn: tuple[Drawn, ...] = ()
    paths: tuple[PathChange, ...] = ()
    asked_of_paths: int = 0
    models: tuple[ModelChange, ...] = ()
    stated: Stated = Stated()
    left_out: tuple[str, ...] = ()

    @property
    def changed(self) -> int:
        """How many questions are decided otherwise, of those that were counted."""
        return sum(self.totals.values())

    @property
    def is_different(self) -> bool:
        """Whether a decision or a path changes, or whether that could not be ruled out."""
        return bool(self.totals or self.drawn or self.paths or self.models)

    def witness(self, one: Mapping[str, Domain], change: Change) -> Witness | None:
        """A question of these classes; ``None``: none that changes so could be made."""
        assert self.space is not None
        witness = witness_of(self.space, one)
        if witness is None:
            return None
        decided = tuple(decision_of(manifest, witness) for manifest in self.space.manifests)
        return witness if decided == change else None


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


class _Kept(msgspec.Struct, frozen=True):
    """The end of questions that keep backends which run them in another way."""

    backends: Decision


class _Comparer:
    """Goes through the kinds of questions; alike ones are cut into regions once."""

    def __init__(self, old: Manifest, new: Manifest, limits: Limits) -> None:
        self.stated = stated_changes(old, new)
        self._watched = {*self.stated.paths, *_lending(old), *_lending(new)}
        watched = sorted(self._watched)
        self.space = Space((old, new), (*tails_of(old, watched), *tails_of(new, watched)))
        self.limits = limits
        self._plans = (Plan(old), Plan(new))
        self._left = limits.nodes
        self._devices = {pair: index for index, pair in enumerate(self.space.devices)}
        self._cut: dict[object, dict[Change, list[Box]]] = {}
        self._spare = 0
        self._able = 0
        self._totals: Counter[Change] = Counter()
        self._boxes: dict[Change, list[Box]] = {}
        self._open: list[tuple[KindOf, Net, int]] = []
        self._kept: dict[Decision, list[tuple[KindOf, Net, int]]] = {}

    def compare(self) -> Comparison:
        kinds = [*self.space.kinds()]
        share = self.limits.work // max(1, len(kinds))
        beyond = []
        for kind in kinds:
            self._spare += share
            try:
                diagram = Diagram(self.space, kind, self._decide, self._left)
            except OverBudgetError:
                self._left //= 2  # another kind may be smaller
                beyond.append(kind)
                continue
            self._left -= diagram.nodes
            self._count(kind, Net(diagram, self._label), diagram.factor)
        regions = [region for change in self._boxes for region in self._regions(change)]
        regions.sort(key=lambda region: -region.count)
        drawn = [*self._drawn_open(), *self._drawn_beyond(beyond)]
        rerouted = self._rerouted()
        return Comparison(
            space=self.space,
            able=self._able,
            totals=dict(self._totals.most_common()),
            regions=tuple(regions),
            drawn=tuple(drawn),
            paths=rerouted.changes(),
            asked_of_paths=rerouted.asked,
            models=models_changed(self._plans),
            stated=self.stated,
            left_out=tuple(self._left_out()),
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

    # -- counting ---------------------------------------------------------------------------------

    def _count(self, kind: KindOf, net: Net, factor: int) -> None:
        totals = net.totals()
        self._able += factor * sum(number for end, number in totals.items() if end != _OPEN)
        if number := totals.get(_OPEN, 0):
            self._open.append((kind, net, number * factor))
        for end, number in totals.items():
            if isinstance(end, _Kept):
                self._kept.setdefault(end.backends, []).append((kind, net, number * factor))
        changes = {end: number for end, number in totals.items() if type(end) is tuple}
        if not changes:
            return
        shape = net.shape
        cut = self._cut.get(shape)
        if cut is None:
            cut = self._cut[shape] = self._boxes_of(net, changes)
        own = self._sides_of(kind)
        for change, boxes in cut.items():
            self._totals[change] += changes[change] * factor
            self._boxes.setdefault(change, []).extend(
                Box(
                    {**own.sides, **box.sides},
                    box.count * factor,
                    box.holds * factor,
                    {**own.one, **box.one},
                )
                for box in boxes
            )

    def _boxes_of(self, net: Net, changes: Mapping[Change, int]) -> dict[Change, list[Box]]:
        """The boxes of each change; what is left of the work is shared, the largest first."""
        found = {}
        ranked = sorted(changes, key=lambda change: -changes[change])
        for index, change in enumerate(ranked):
            work = Work(self._spare // (len(ranked) - index))
            before = work.left
            found[change] = net.boxes(change, self.limits.boxes, work, self._liked)
            self._spare -= before - work.left
        return found

    @cached_property
    def _liked(self) -> Mapping[str, Side]:
        """Field → the class of the value that asks for nothing."""
        found = {}
        for name, classes in self.space.classes.items():
            quiet = _quiet(self.space, name, classes)
            found[name] = frozenset(i for i, c in enumerate(classes) if c.admits(quiet))
        return found

    def _sides_of(self, kind: KindOf) -> Box:
        """The kind itself, as a box."""
        sides: dict[str, Side] = {}
        one = {}
        device = self._devices[kind.classes["platform"], kind.classes["capability"]]
        places = {"device": (device, len(self._devices))}
        for name in KIND_FIELDS[2:]:
            classes = self.space.classes[name]
            places[name] = (classes.index(kind.classes[name]), len(classes))
        for name, (place, width) in places.items():
            one[name] = place
            if width > 1:
                sides[name] = frozenset({place})
        return Box(sides, 0, 0, one)

    # -- regions ----------------------------------------------------------------------------------

    @cached_property
    def _widths(self) -> Mapping[str, int]:
        widths = {name: len(classes) for name, classes in self.space.classes.items()}
        return {**widths, "device": len(self._devices)}

    def _regions(self, change: Change) -> Iterator[Region]:
        for box in merged(self._boxes[change], self._widths, _JOINED_FIRST):
            devices = [*self._devices]
            yield Region(
                change,
                box.count,
                box.holds,
                {
                    name: Domain.union(self.space.classes[name][i] for i in side)
                    for name, side in box.sides.items()
                    if name != "device"
                },
                tuple(devices[i] for i in sorted(box.sides.get("device", ()))),
                self._classes(box.one),
            )

    def _classes(self, one: Mapping[str, int]) -> Mapping[str, Domain]:
        found = {n: self.space.classes[n][place] for n, place in one.items() if n != "device"}
        return {**dict(zip(_DEVICE, [*self._devices][one["device"]], strict=True)), **found}

    # -- drawing ----------------------------------------------------------------------------------

    def _rerouted(self) -> Rerouted:
        """Draws layers that keep backends which run them in another way."""
        old, new = self.space.manifests
        found = Rerouted(old, new, self._plans)
        random = Random(0)
        most = self.limits.layers if self.stated.paths else self.limits.layers // 10
        each = most // max(1, len(self._kept))
        for backends, places in self._kept.items():
            weights = [number for *_, number in places]
            for kind, net, _ in random.choices(places, weights, k=1 + each):
                own = self._sides_of(kind).one
                for one in net.drawn(_Kept(backends), 1, random.random):
                    free = {
                        name: int(random.random() * len(classes))
                        for name, classes in self.space.classes.items()
                        if name not in _DEVICE
                    }
                    classes = dict(self._classes({**free, **own, **one}))
                    for name in found.ends(backends):
                        if name in classes and classes[name].admits(_USUAL_END):
                            classes[name] = Domain.of(_USUAL_END)
                    asked = witness_of(self.space, classes)
                    if asked is not None:
                        found.look(backends, asked)
        return found

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
            own = self._sides_of(kind).one
            for one in net.drawn(_OPEN, max(1, most * share // total), random.random):
                classes = self._classes({**own, **one})
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
        yield Drawn(total, "only the definition can decide them", number, changes, ones)

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
        of = self.space.size * len(kinds) // max(1, sum(1 for _ in self.space.kinds()))
        yield Drawn(of, "there are too many to count", number, changes, ones)

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


def _lending(manifest: Manifest) -> Iterator[str]:
    """Yields the entries of which other backends compute some paths."""
    for entry in manifest.entries.values():
        if any(rule.by_dense_backend for rule in entry.prefill_paths):
            yield entry.name
