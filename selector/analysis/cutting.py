"""Ends of diagrams, counted over kinds of questions and cut into regions that a person can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Generic, TypeVar

import msgspec

from selector.analysis.diagram import Decision
from selector.analysis.regions import Box, Net, Side, Work, merged
from selector.analysis.space import KindOf, Space
from selector.analysis.witness import quiet_value
from selector.domains import Domain
from selector.plan.terms import DEVICE_FIELDS, KIND_FIELDS

__all__ = ["Change", "Cuts", "Region"]

E = TypeVar("E", bound=Hashable)

Change = tuple[Decision, Decision]
"""The decision of the old manifest, and that of the new one."""

_JOINED_FIRST = ("device", "attn_type", "sparse", "mla")


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


class Cuts(Generic[E]):
    """Collects what comes to some ends; nets that are alike are cut into boxes once.

    Args:
        space: of the questions.
        classes: field → its classes, for every field of the nets.
        most: boxes of one end in one net.
        work: steps that may be spent on cutting, for one net.

    Attributes:
        totals: end → how many questions come to it.
    """

    def __init__(
        self, space: Space, classes: Mapping[str, Sequence[Domain]], most: int, work: int
    ) -> None:
        self.space = space
        self.classes = classes
        self.totals: Counter[E] = Counter()
        self._most = most
        self._work = work
        self._spare = 0
        self._devices = {pair: index for index, pair in enumerate(space.devices)}
        self._cut: dict[object, dict[E, list[Box]]] = {}
        self._boxes: dict[E, list[Box]] = {}

    def add(self, kind: KindOf, net: Net, numbers: Mapping[E, int], factor: int) -> None:
        """Adds the ends of a kind of question.

        Args:
            kind: the questions.
            net: where they come to.
            numbers: how many come to each end that matters.
            factor: how many questions each of them stands for.
        """
        self._spare += self._work
        if not numbers:
            return
        shape = net.shape
        cut = self._cut.get(shape)
        if cut is None:
            cut = self._cut[shape] = self._boxes_of(net, numbers)
        own = self.of_kind(kind)
        for end, boxes in cut.items():
            self.totals[end] += numbers[end] * factor
            self._boxes.setdefault(end, []).extend(
                Box(
                    {**own.sides, **box.sides},
                    box.count * factor,
                    box.holds * factor,
                    {**own.one, **box.one},
                )
                for box in boxes
            )

    def _boxes_of(self, net: Net, numbers: Mapping[E, int]) -> dict[E, list[Box]]:
        """The boxes of each end; what is left of the work is shared, the largest first."""
        found = {}
        ranked = sorted(numbers, key=lambda end: -numbers[end])
        for index, end in enumerate(ranked):
            work = Work(self._spare // (len(ranked) - index))
            before = work.left
            found[end] = net.boxes(end, self._most, work, self._liked)
            self._spare -= before - work.left
        return found

    @cached_property
    def _liked(self) -> Mapping[str, Side]:
        """Field → the class of the value that asks for nothing."""
        found = {}
        for name, classes in self.classes.items():
            quiet = quiet_value(self.space, name, tuple(classes))
            found[name] = frozenset(i for i, c in enumerate(classes) if c.admits(quiet))
        return found

    def of_kind(self, kind: KindOf) -> Box:
        """A kind itself, as a box."""
        sides: dict[str, Side] = {}
        one = {}
        device = self._devices[kind.classes["platform"], kind.classes["capability"]]
        places = {"device": (device, len(self._devices))}
        for name in KIND_FIELDS[2:]:
            classes = self.classes[name]
            places[name] = (classes.index(kind.classes[name]), len(classes))
        for name, (place, width) in places.items():
            one[name] = place
            if width > 1:
                sides[name] = frozenset({place})
        return Box(sides, 0, 0, one)

    @cached_property
    def _widths(self) -> Mapping[str, int]:
        widths = {name: len(classes) for name, classes in self.classes.items()}
        return {**widths, "device": len(self._devices)}

    def regions(self, end: E, change: Change) -> Iterator[Region]:
        """Yields what comes to an end, in regions."""
        devices = [*self._devices]
        for box in merged(self._boxes[end], self._widths, _JOINED_FIRST):
            yield Region(
                change,
                box.count,
                box.holds,
                {
                    name: Domain.union(self.classes[name][i] for i in side)
                    for name, side in box.sides.items()
                    if name != "device"
                },
                tuple(devices[i] for i in sorted(box.sides.get("device", ()))),
                self.classes_of(box.one),
            )

    def classes_of(self, one: Mapping[str, int]) -> Mapping[str, Domain]:
        """The classes of a question, by their places."""
        found = {n: self.classes[n][place] for n, place in one.items() if n != "device"}
        return {**dict(zip(DEVICE_FIELDS, [*self._devices][one["device"]], strict=True)), **found}
