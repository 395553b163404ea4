"""All questions of one kind at once: a decision diagram over classes of values.

The masks of a :class:`~selector.plan.kind.Kind` are joined field by field, for every class of
values; questions that have come to the same mask go on together. What is settled is forgotten as
early as possible: terms of an entry that is refused, lists behind one that holds, entries behind
one that is sure to be chosen. So few different masks are left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod
from typing import NamedTuple, Protocol

import msgspec

from selector.analysis.sides import Sides
from selector.analysis.space import KindOf, Space, representative
from selector.domains import Domain
from selector.plan.kind import Kind
from selector.values import Phase

__all__ = [
    "Decision",
    "Diagram",
    "Level",
    "Node",
    "Outcome",
    "OverBudgetError",
    "Walk",
    "Walks",
    "order_of",
]

Decision = tuple[str | None, str | None]
"""The prefill and the decode backend."""

Outcome = tuple[Decision | None, ...]
"""The decision of each manifest; ``None`` where it is not decided here."""

Decide = Callable[[int, Kind, int], Decision | None]
"""Manifest, kind and settled mask → the decision."""

_BITS = 512
"""So many bits of a state take about as long as all else that is done at a place."""

End = Callable[[tuple[int, ...]], Outcome | None]
"""The last state of each walk → the outcome; ``None``: it is none that matters."""


class OverBudgetError(Exception):
    """There is more to look at than may be."""


class Level(NamedTuple):
    """One field of a diagram.

    Attributes:
        name: the field, or a derived value.
        classes: sets of values that nothing tells apart; none for a derived value.
    """

    name: str
    classes: tuple[Domain, ...]


class Walks(Protocol):
    """What goes through the fields in order, from state to state."""

    start: int

    def next(self, index: int, mask: int, /) -> Sequence[int | None]:
        """The states that a level's classes lead to; ``None`` for what no layer can be."""


class Walk:
    """Goes through the fields of one kind; a state is what the masks so far leave open.

    Args:
        kind: what is asked.
        order: the fields.
        needed: flags without which a state is of no interest: it ends there.
        unsure: flags of entries that may yet be refused by something that no mask holds.
        sides: tells which classes lie in which sets, where that is known.
    """

    def __init__(
        self,
        kind: Kind,
        order: Sequence[Level],
        needed: int = 0,
        unsure: int = 0,
        sides: Sides | None = None,
    ) -> None:
        self.kind = kind
        self.order = order
        self.start = kind.everything
        self._needed = needed
        touched = [self._bits(level.name) for level in order]
        self._pending = [0] * len(order)
        later = unsure
        for index in range(len(order) - 1, -1, -1):
            self._pending[index] = later
            later |= touched[index]
        self._derived = {derived.name: derived for derived in kind.derived}
        places = {level.name: index for index, level in enumerate(order)}
        self._spent = [
            sum(d.bits for d in kind.derived if places[d.name] <= index)
            for index in range(len(order))
        ]
        self._open = [
            [d for d in kind.derived if places[d.name] > index] for index in range(len(order))
        ]
        self._open_bits = [sum(d.bits for d in several) for several in self._open]
        self._firsts: dict[tuple[int, int], int] = {}
        self._dead: dict[int, int] = {}
        self._cuts: dict[tuple[int, int, int], int] = {}
        self._lists: dict[tuple[int, int], int] = {}
        self._steps = [
            sides.masks(kind, level.name) if sides and level.classes else self._masks(level)
            for level in order
        ]

    def _bits(self, name: str) -> int:
        masks = self.kind.masks.get(name)
        return masks.bits if masks is not None else 0

    def _masks(self, level: Level) -> tuple[int, ...]:
        masks = self.kind.masks.get(level.name)
        if masks is None:
            return (self.kind.everything,) * max(1, len(level.classes))
        return tuple(masks[representative(values)] for values in level.classes)

    def next(self, index: int, mask: int) -> Sequence[int | None]:
        """The states that a level's classes lead to; ``None`` for what no layer can be."""
        derived = self._derived.get(self.order[index].name)
        if derived is not None:
            low = mask & derived.bits
            return (self._settle(index, mask, mask & derived.follows[low & -low]),)
        steps = self._steps[index]
        found: dict[int, int | None] = {}
        for step in steps:
            joined = mask & step
            if joined not in found:
                found[joined] = self._settle(index, mask, joined)
        return [found[mask & step] for step in steps]

    def _settle(self, index: int, before: int, mask: int) -> int | None:
        """Forgets what can make no difference any more.

        Args:
            index: the level that was looked at.
            before: the state that led here.
            mask: what the level's class leaves of it.
        """
        kind, sure = self.kind, ~self._pending[index]
        if mask & kind.impossible & sure:
            return None
        complete = mask & kind.terms & sure
        if complete:
            mask &= ~((complete + kind.carry) & kind.flags)
        mask &= self._holding_lists(index, mask)
        if self._needed & ~mask:
            return None
        mask &= self._without(before & kind.flags & ~mask) & ~self._spent[index]
        if self._open[index]:
            mask &= self._first_rules(index, mask)
        return self._dominated(mask, sure)

    def _holding_lists(self, index: int, mask: int) -> int:
        """What is left when lists behind one that holds, and their entries, are taken out."""
        bits = self.kind.list_bits
        key = (index, mask & bits)
        found = self._lists.get(key)
        if found is None:
            keep, sure = 0, ~self._pending[index]
            for phase in Phase:
                for bit, names in self.kind.lists[phase]:
                    if mask & bit:
                        keep |= bit
                        for name in names:
                            keep |= self.kind.flag_of.get((name, phase), 0)
                        if bit & sure:
                            break
            found = self._lists[key] = keep | ~(bits | self.kind.flags)
        return found

    def _dominated(self, mask: int, sure: int) -> int:
        """Takes out entries behind one that is sure to be chosen."""
        kind = self.kind
        lists = [mask & bits for bits in kind.lists_of]
        if any(bits & (bits - 1) or not bits & sure for bits in lists):
            return mask  # several lists are possible
        joint = mask & kind.joint
        if joint and joint & ~sure:
            return mask
        open_ = ((mask & kind.terms) + kind.carry) & kind.flags  # a term may yet refuse these
        alive = mask & kind.flags & sure & ~open_
        if not alive:
            return mask
        choices = kind.choices(mask)
        if not choices.shared:
            for order in (choices.prefill, choices.decode):
                mask &= self._kept(order.order, alive)
        elif choices.same:
            mask &= self._kept(choices.decode.order, alive, choices.prefill.flag_of)
        return mask

    def _kept(
        self,
        order: Sequence[tuple[int, str]],
        alive: int,
        partners: Mapping[str, int] | None = None,
    ) -> int:
        """All but what stands behind the first entry that is sure, alone or with its partner."""
        key = (id(order), id(partners), alive)  # a kind keeps its orders
        found = self._cuts.get(key)
        if found is None:
            gone, cut = 0, False
            for flag, name in order:
                other = flag if partners is None else partners.get(name, 0)
                if cut:
                    gone |= flag | other
                elif alive & flag and alive & other:
                    cut = True
            found = self._cuts[key] = ~gone & self._without(gone)
        return found

    def _without(self, dead: int) -> int:
        """All but the terms of entries that are refused."""
        kept = self._dead.get(dead)
        if kept is None:
            gone, left = 0, dead
            while left:
                low = left & -left
                gone |= self.kind.terms_of[low]
                left ^= low
            kept = self._dead[dead] = ~gone
        return kept

    def _first_rules(self, index: int, mask: int) -> int:
        """All but the rules of derived values behind one that holds."""
        key = (index, mask & self._open_bits[index])
        kept = self._firsts.get(key)
        if kept is None:
            gone, sure = 0, ~self._pending[index]
            for derived in self._open[index]:
                held = key[1] & derived.bits & sure
                gone |= key[1] & derived.bits & ~(((held & -held) << 1) - 1) if held else 0
            kept = self._firsts[key] = ~gone
        return kept


class Node(msgspec.Struct, frozen=True, eq=False):
    """A place in a diagram: where each class of the level's field leads.

    ``next`` holds nodes, outcomes at the end, and ``None`` for what no layer can be. A derived
    value has one successor.
    """

    index: int
    next: tuple[Node | Outcome | None, ...]


class Diagram:
    """Where all questions of one kind end.

    Attributes:
        kind: the questions.
        order: the fields, in the order in which they are looked at.
        root: the first node, or the only outcome; ``None`` when no such layer can be.
        work: how many steps it took: a place of a large kind is several.
        factor: how many combinations of classes of other fields each path stands for.
    """

    def __init__(
        self,
        kind: KindOf,
        order: Sequence[Level],
        walks: Sequence[Walks],
        end: End,
        budget: int,
        factor: int = 1,
    ) -> None:
        self.kind = kind
        self.order = order
        self.factor = factor
        self._walks = walks
        self._end = end
        bits = sum(walk.start.bit_length() for walk in walks)
        self._each = 1 + bits // _BITS
        self._most = (budget - bits) // self._each
        self._memo: dict[tuple[int, tuple[int, ...]], Node | Outcome | None] = {}
        self._same: dict[tuple[object, ...], Node] = {}
        self.root = self._from(0, tuple(walk.start for walk in self._walks))
        self.work = bits + self._each * len(self._memo)
        self._memo.clear()
        self._same.clear()

    @classmethod
    def of(cls, space: Space, kind: KindOf, decide: Decide, budget: int) -> Diagram:
        """The decisions of one or more manifests for all questions of one kind.

        Raises:
            OverBudgetError: it would take more steps than the budget.
        """
        order = order_of(space.classes, kind.kinds)
        walks = [Walk(one, order, sides=space.sides) for one in kind.kinds]
        looked = {*(level.name for level in order), *kind.classes}
        factor = prod(len(c) for name, c in space.classes.items() if name not in looked)

        def end(masks: tuple[int, ...]) -> Outcome:
            return tuple(map(decide, range(len(masks)), kind.kinds, masks))

        return cls(kind, order, walks, end, budget, factor)

    def _from(self, index: int, masks: tuple[int, ...]) -> Node | Outcome | None:
        if index == len(self.order):
            return self._end(masks)
        key = (index, masks)
        if key in self._memo:
            return self._memo[key]
        if len(self._memo) >= self._most:
            raise OverBudgetError
        steps = [walk.next(index, mask) for walk, mask in zip(self._walks, masks, strict=True)]
        widest = max(map(len, steps))
        steps = [step if len(step) == widest else [*step] * widest for step in steps]
        followed = []
        for following in zip(*steps, strict=True):
            known = [mask for mask in following if mask is not None]
            all_can = len(known) == len(following)
            followed.append(self._from(index + 1, tuple(known)) if all_can else None)
        one = (index, *map(id, followed))
        node = self._same.get(one)
        if node is None:
            node = self._same[one] = Node(index, tuple(followed))
        self._memo[key] = node
        return node


def order_of(
    classes: Mapping[str, tuple[Domain, ...]], kinds: Sequence[Kind], last: Collection[str] = ()
) -> tuple[Level, ...]:
    """The fields of a kind: what lists and derived values look at first, then what tells most.

    Args:
        classes: of each field.
        kinds: what looks at them.
        last: fields that come at the end in this order, and what is derived from them behind.
    """
    derived: dict[str, set[str]] = {}
    for d in (d for one in kinds for d in one.derived):
        derived.setdefault(d.name, set()).update(d.inputs)
    weight: dict[str, int] = {}
    for one in kinds:
        for name, masks in one.masks.items():
            weight[name] = weight.get(name, 0) + masks.bits.bit_count()
    order: dict[str, None] = {}
    late = dict.fromkeys(last)

    def place(name: str) -> None:
        if name in order or name not in weight or name in last:
            return
        if name in derived:
            for field in sorted(derived[name], key=lambda n: (-weight.get(n, 0), n)):
                place(field)
            if not late.keys().isdisjoint(derived[name]):
                late[name] = None
        if name not in late:
            order[name] = None

    for name in derived:
        place(name)
    for name in sorted(weight, key=lambda n: (-weight[n], n)):
        place(name)
    return tuple(Level(n, () if n in derived else classes[n]) for n in (*order, *late))
