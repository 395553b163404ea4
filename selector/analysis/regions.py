"""Where an outcome holds: boxes of classes, cut out of a diagram until nothing else is in them.

A box gives each field a set of its classes. One that holds more than it should is cut along the
field that tells most, as a decision tree is grown; what cannot be within bounds is not counted.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import msgspec

from selector.analysis.diagram import Diagram, Level, Node, Outcome

__all__ = ["Box", "Net", "Side", "Steps", "Work", "merged"]

Side = frozenset[int]
"""Which of a field's classes, by their place."""

Sides = tuple[tuple[int, ...], ...]
"""For each level, which groups of classes are in a box."""

Place = tuple[int, ...]
"""Where each class, or group of classes, leads on the next level; -1: no layer can be so."""

Label = Callable[[Outcome], Hashable]


class Box(msgspec.Struct, frozen=True):
    """Questions that come to one end.

    Attributes:
        sides: field → classes; a field that is not there may have any.
        count: how many questions of the box come to the end.
        holds: how many it holds in all; the same, when the box is exact.
        one: field → the class it has in one of them.
    """

    sides: Mapping[str, Side]
    count: int
    holds: int
    one: Mapping[str, int]

    @property
    def is_exact(self) -> bool:
        """Whether all of its questions come to the end."""
        return self.count == self.holds


class Work:
    """How many steps may still be taken."""

    def __init__(self, left: int) -> None:
        self.left = left


class Net:
    """A diagram in numbers: ends that are called alike are one, and so are places that lead alike.

    Attributes:
        names: the field of each level.
        ends: what the ends are called.
        levels: the places of each level; the last level leads to ends.
        root: the place on the first level.
    """

    def __init__(self, diagram: Diagram, label: Label) -> None:
        self.names = [level.name for level in diagram.order]
        self.widths = [len(level.classes) for level in diagram.order]
        self.ends: list[Hashable] = []
        self.levels: list[list[Place]] = [[] for _ in self.names]
        self._label = label
        known: dict[int, int] = {}
        same: list[dict[Place, int]] = [{} for _ in self.names]
        self.root = self._number(diagram.root, known, same)

    def _number(
        self, node: Node | Outcome | None, known: dict[int, int], same: list[dict[Place, int]]
    ) -> int:
        if node is None:
            return -1
        if not isinstance(node, Node):
            name = self._label(node)
            if name not in self.ends:
                self.ends.append(name)
            return self.ends.index(name)
        place = known.get(id(node))
        if place is None:
            following = tuple(self._number(one, known, same) for one in node.next)
            place = -1
            if any(one >= 0 for one in following):
                place = _place(following, self.levels[node.index], same[node.index])
            known[id(node)] = place
        return place

    @property
    def shape(self) -> Hashable:
        """What nets share that differ in nothing."""
        return (tuple(self.names), self.root, tuple(self.ends), tuple(map(tuple, self.levels)))

    def totals(self) -> Mapping[Hashable, int]:
        """End → how many questions come to it."""
        if self.root < 0:
            return {}
        below = {}
        for index, end in enumerate(self.ends):
            wanted = [int(index == one) for one in range(len(self.ends))]
            below[end] = self._below(wanted)[0][self.root]
        return below

    def _below(self, last: list[int]) -> list[list[int]]:
        """How many questions that count follow each place."""
        rows = [last]
        for places in reversed(self.levels):
            after = [*rows[-1], 0]  # -1 finds the 0
            rows.append([sum([after[one] for one in following]) for following in places])
        return rows[::-1]

    def boxes(
        self, end: Hashable, most: int, work: Work, liked: Mapping[str, Side] = {}
    ) -> list[Box]:
        """Disjoint boxes that hold all that comes to an end.

        Args:
            end: what it is called.
            most: how many boxes there may be.
            work: what may be spent; without any left, boxes are not cut further.
            liked: field → classes that are preferred for the one question of each box.
        """
        return _Target(self, self.ends.index(end), work).boxes(most, liked)

    def drawn(
        self, end: Hashable, number: int, random: Callable[[], float]
    ) -> Iterator[dict[str, int]]:
        """Yields the classes of questions that come to an end, drawn evenly."""
        wanted = [int(end == one) for one in self.ends]
        below = self._below(wanted)
        for _ in range(number):
            found: dict[str, int] = {}
            place = self.root
            for index, name in enumerate(self.names):
                following, after = self.levels[index][place], [*below[index + 1], 0]
                left = random() * below[index][place]
                able = [choice for choice, one in enumerate(following) if after[one]]
                for choice in able:
                    left -= after[following[choice]]
                    if left < 0:
                        break
                if self.widths[index]:
                    found[name] = choice
                place = following[choice]
            yield found


def _place(following: Place, level: list[Place], same: dict[Place, int]) -> int:
    """The number of a place; a new one, when no other leads alike."""
    place = same.setdefault(following, len(level))
    if place == len(level):
        level.append(following)
    return place


class Steps:
    """Goes through a net again, in an order that has more fields; those lead nowhere else."""

    def __init__(self, net: Net, order: Sequence[Level]) -> None:
        self.start = net.root
        self._widths = [max(1, len(level.classes)) for level in order]
        places = {name: index for index, name in enumerate(net.names)}
        self._levels: list[list[tuple[int | None, ...]] | None] = []
        for level in order:
            index = places.get(level.name)
            following = None if index is None else net.levels[index]
            self._levels.append(
                None
                if following is None
                else [tuple(None if one < 0 else one for one in row) for row in following]
            )

    def next(self, index: int, place: int) -> Sequence[int | None]:
        """The places that a level's classes lead to."""
        level = self._levels[index]
        return (place,) * self._widths[index] if level is None else level[place]


class _Seen(NamedTuple):
    """A box, and what is in it.

    Attributes:
        box: its groups of classes on each level.
        hits: how many questions come to the end.
        able: how many there are.
        counts: for each level and group, how many come to the end.
        ables: for each level and group, how many there are. Of a group outside the box, how many
            there would be, were it inside instead.
    """

    box: Sides
    hits: int
    able: int
    counts: list[list[int]]
    ables: list[list[int]]


class _Target:
    """A net with one end that matters; classes that never matter to it are one group."""

    def __init__(self, net: Net, end: int, work: Work) -> None:
        self.net = net
        self.work = work
        self.levels: list[list[Place]] = []
        self.groups: list[list[tuple[int, ...]]] = []
        number = [int(index == end) for index in range(len(net.ends))]
        for places in reversed(net.levels):
            work.left -= sum(map(len, places[:1])) * len(places)
            number = self._joined(places, [*number, -1])
        self.levels.reverse()
        self.groups.reverse()
        self.weights = [[len(group) for group in groups] for groups in self.groups]
        self.root = number[net.root]

    def _joined(self, places: list[Place], number: list[int]) -> list[int]:
        """Adds a level; gives the new number of each of its places."""
        rows = [tuple(number[one] for one in following) for following in places]
        columns: dict[Place, list[int]] = {}
        for choice, column in enumerate(zip(*rows, strict=True)):
            columns.setdefault(column, []).append(choice)
        self.groups.append([tuple(group) for group in columns.values()])
        level: list[Place] = []
        same: dict[Place, int] = {}
        found = []
        for row in rows:
            able = any(one >= 0 for one in row)
            following = tuple(row[group[0]] for group in columns.values())
            found.append(_place(following, level, same) if able else -1)
        self.levels.append(level)
        return found

    # -- passes -----------------------------------------------------------------------------------

    def _ways(self, box: Sides) -> list[list[int]]:
        """In how many ways each place of each level is come to."""
        rows = [[0] * len(places) for places in (*self.levels, (0, 1))]
        rows[0][self.root] = 1
        for index, places in enumerate(self.levels):
            below, weights = rows[index + 1], self.weights[index]
            for following, ways in zip(places, rows[index], strict=True):
                if ways:
                    for choice in box[index]:
                        if (place := following[choice]) >= 0:
                            below[place] += ways * weights[choice]
        return rows

    def _below(self, box: Sides, last: list[int]) -> list[list[int]]:
        """How many questions that count follow each place."""
        rows = [last]
        for index in range(len(self.levels) - 1, -1, -1):
            after, weights = [*rows[-1], 0], self.weights[index]  # -1 finds the 0
            side = [(choice, weights[choice]) for choice in box[index]]
            rows.append(
                [sum([after[one[c]] * weight for c, weight in side]) for one in self.levels[index]]
            )
        return rows[::-1]

    def _by_group(self, ways: list[list[int]], below: list[list[int]]) -> list[list[int]]:
        """For each group of each level, how many questions that count have it."""
        found = []
        for index, places in enumerate(self.levels):
            after, weights = [*below[index + 1], 0], self.weights[index]
            sums = [0] * len(weights)
            for following, number in zip(places, ways[index], strict=True):
                if number:
                    for choice, place in enumerate(following):
                        sums[choice] += number * after[place]
            found.append([one * weight for one, weight in zip(sums, weights, strict=True)])
        return found

    def _seen(self, box: Sides) -> _Seen:
        steps = sum(
            len(places) * len(w) for places, w in zip(self.levels, self.weights, strict=True)
        )
        self.work.left -= 5 * steps
        ways = self._ways(box)
        counted, able = self._below(box, [0, 1]), self._below(box, [1, 1])
        return _Seen(
            box,
            counted[0][self.root],
            able[0][self.root],
            self._by_group(ways, counted),
            self._by_group(ways, able),
        )

    def _tight(self, box: Sides) -> _Seen:
        """The smallest box around what comes to the end."""
        while True:
            seen = self._seen(box)
            tight = tuple(
                tuple(choice for choice in side if counts[choice])
                for side, counts in zip(box, seen.counts, strict=True)
            )
            if tight == box:
                return seen
            box = tight

    # -- boxes ------------------------------------------------------------------------------------

    def boxes(self, most: int, liked: Mapping[str, Side]) -> list[Box]:
        """Disjoint boxes that hold all that comes to the end."""
        first = self._tight(tuple(tuple(range(len(groups))) for groups in self.groups))
        order = count()
        open_ = [(first.hits - first.able, next(order), first)]
        done: list[_Seen] = []
        while open_:
            _, _, seen = heapq.heappop(open_)
            full = len(done) + len(open_) + 2 > most or self.work.left < 0
            if full or seen.hits == seen.able:
                done.append(seen)
                continue
            for half in _halves(seen):
                part = self._tight(half)
                heapq.heappush(open_, (part.hits - part.able, next(order), part))
        return [self._box(self._freed(seen), liked) for seen in done]

    def _freed(self, seen: _Seen) -> _Seen:
        """The box without sides that only leave out what no layer can be."""
        while True:
            free = [
                index
                for index, (side, ables) in enumerate(zip(seen.box, seen.ables, strict=True))
                if len(side) < len(ables)
                and not any(able for choice, able in enumerate(ables) if choice not in side)
            ]
            if not free:
                return seen
            index = max(free, key=lambda i: (self.net.widths[i], i))
            whole = tuple(range(len(self.groups[index])))
            seen = self._seen((*seen.box[:index], whole, *seen.box[index + 1 :]))

    def _box(self, seen: _Seen, liked: Mapping[str, Side]) -> Box:
        sides = {
            name: frozenset(c for choice in side for c in groups[choice])
            for name, side, groups in zip(self.net.names, seen.box, self.groups, strict=True)
            if len(side) < len(groups)
        }
        return Box(sides, seen.hits, seen.able, self._one(seen.box, liked))

    def _one(self, box: Sides, liked: Mapping[str, Side]) -> dict[str, int]:
        """The classes of one question."""
        counted = self._below(box, [0, 1])
        found: dict[str, int] = {}
        place = self.root
        for index, name in enumerate(self.net.names):
            following, after = self.levels[index][place], [*counted[index + 1], 0]
            able = {
                choice: group
                for group in box[index]
                if after[following[group]]
                for choice in self.groups[index][group]
            }
            choice = next((c for c in sorted(able) if c in liked.get(name, ())), min(able))
            if self.net.widths[index]:
                found[name] = choice
            place = following[able[choice]]
        return found


def _halves(seen: _Seen) -> Iterator[Sides]:
    """Yields the two parts of a box that are most unlike each other."""
    best: tuple[float, int, tuple[int, ...]] = (-1.0, 0, ())
    for index, side in enumerate(seen.box):
        counts, ables = seen.counts[index], seen.ables[index]
        ranked = sorted(side, key=lambda c, of=ables, some=counts: some[c] / of[c])  # type: ignore[misc]
        part = part_able = 0
        for place, choice in enumerate(ranked[:-1], 1):
            part, part_able = part + counts[choice], part_able + ables[choice]
            rest, rest_able = seen.hits - part, seen.able - part_able
            score = part / seen.hits * (part / part_able)
            score += rest / seen.hits * (rest / rest_able)
            if score > best[0] + 1e-12:
                best = (score, index, tuple(ranked[:place]))
    _, index, low = best
    side = seen.box[index]
    for half in (tuple(c for c in side if c in low), tuple(c for c in side if c not in low)):
        yield (*seen.box[:index], half, *seen.box[index + 1 :])


def merged(boxes: Sequence[Box], widths: Mapping[str, int], first: Sequence[str] = ()) -> list[Box]:
    """The same questions in fewer boxes: those that differ in one field only become one.

    Args:
        boxes: disjoint, with the same end.
        widths: field → how many classes it has.
        first: fields along which boxes are joined before others.
    """
    left = list(boxes)
    names = list(dict.fromkeys((*first, *(name for box in boxes for name in box.sides))))
    while True:
        before = len(left)
        for name in names:
            left = _merged_along(left, name, widths[name])
        if len(left) == before:
            return left


def _merged_along(boxes: Sequence[Box], name: str, width: int) -> list[Box]:
    alike: dict[Hashable, list[Box]] = {}
    kept: list[Box] = []
    for box in boxes:
        if name not in box.sides:
            kept.append(box)
            continue
        others = frozenset(item for item in box.sides.items() if item[0] != name)
        alike.setdefault((others, box.is_exact), []).append(box)
    for group in alike.values():
        if len(group) == 1:
            kept.append(group[0])
            continue
        largest = max(group, key=lambda box: box.count)
        side = frozenset[int]().union(*(box.sides[name] for box in group))
        sides = {n: s for n, s in largest.sides.items() if n != name}
        if len(side) < width:
            sides[name] = side
        kept.append(
            Box(sides, sum(b.count for b in group), sum(b.holds for b in group), largest.one)
        )
    return kept
