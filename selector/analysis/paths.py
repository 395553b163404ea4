"""Questions that keep their backends, counted by the way in which they are computed.

For two backends that both manifests choose, one diagram holds what chooses them and what they make
of a request. Lengths are fields there like others; which of them go together is known exactly.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from math import prod

import msgspec

from selector.analysis.cutting import Cuts, Region
from selector.analysis.diagram import Level, OverBudgetError, order_of
from selector.analysis.growing import Grower
from selector.analysis.lengths import InexactError, Lengths, bounds_of_requests
from selector.analysis.regions import Net
from selector.analysis.space import KindOf, Space, classes_of, representative, sets_in
from selector.analysis.tails import After, Tail, Way, same_dense, same_tail
from selector.analysis.witness import Witness
from selector.domains import Domain
from selector.manifest import Measure
from selector.plan.kind import Agree, Kind, Pair
from selector.plan.terms import Rules, UndecidedError
from selector.values import Phase

__all__ = ["PathChange", "Paths"]

_LENGTHS = ("query_len", "seq_len", "context_len", "has_context", "num_prefills")
_MOST_LENGTHS = 20_000
"""Places at which lengths are held against each other."""

_SAME = "same"

Turn = tuple[Pair, Way, Way]
"""The backends that stay, and the ways before and after."""


class PathChange(msgspec.Struct, frozen=True):
    """Questions that keep their backends and are computed in another way.

    Attributes:
        backends: for prefill and for decode.
        before: the way of the old manifest.
        after: that of the new one.
        count: how many questions change so.
        asked: of how many that keep these backends, of the kinds in which their ways can differ.
        regions: the same, in regions; the largest first.
        witness: one of them, where they were drawn and not counted; then there are no regions,
            and the counts are those of layers that were drawn.
    """

    backends: Pair
    before: Way
    after: Way
    count: int
    asked: int
    regions: tuple[Region, ...] = ()
    witness: Witness | None = None


class Paths:
    """Counts, for pairs of backends, the questions that are computed in another way.

    Args:
        space: the questions to both manifests.
        agrees: of each manifest, whether two backends can work on one KV cache.
        pairs: backends that both choose.
        most: regions of one change in one kind of question.
        work: steps that may be spent on cutting regions, for one kind.

    Attributes:
        able: how many questions were counted.
    """

    def __init__(
        self, space: Space, agrees: tuple[Agree, Agree], pairs: Iterable[Pair], most: int, work: int
    ) -> None:
        self.space = space
        self.able = 0
        self._agrees = agrees
        self._asked: dict[Pair, int] = {}
        self._tails: dict[Pair, tuple[Tail, Tail] | InexactError] = {}
        self._measures = self._all_measures()
        self._requests = (*_LENGTHS, *self._measures)
        shared = [*space.rules]
        for pair in pairs:
            try:
                tails = self._tails[pair] = self._tails_of(pair)
            except InexactError as error:
                self._tails[pair] = error
            else:
                shared += [tail.rules for tail in tails]
        self._relations = {name: test for one in shared for name, test in one.relations.items()}
        self._bounds = bounds_of_requests(self._relations, self._measures)
        self._classes = self._all_classes(shared)
        self._cuts: Cuts[Turn] = Cuts(space, self._classes, most, work)

    # -- classes ----------------------------------------------------------------------------------

    def _tails_of(self, pair: Pair) -> tuple[Tail, Tail]:
        old, new = (Tail(manifest, pair) for manifest in self.space.manifests)
        for rules in (old.rules, new.rules):
            for name, values in sets_in(rules):
                if name in self._requests and not all(s.is_interval for s in values.spans):
                    raise InexactError(f"multiples of {name}")
        return old, new

    def _all_measures(self) -> dict[str, tuple[Measure, ...]]:
        found: dict[str, tuple[Measure, ...]] = {}
        for measure in (one for manifest in self.space.manifests for one in manifest.measures):
            others = found.get(measure.name, ())
            found[measure.name] = others if measure in others else (*others, measure)
        return found

    def _all_classes(self, rules: Sequence[Rules]) -> dict[str, tuple[Domain, ...]]:
        """The classes of all fields; those of lengths are told apart by all pairs of backends."""
        sets: dict[str, list[Domain]] = {}
        away = {*self.space.classes, *(name for one in rules for name in one.derive)}
        away -= {*self._requests, *self._bounds}
        for name, values in (pair for one in rules for pair in sets_in(one)):
            if name not in away:
                sets.setdefault(name, []).append(values)
        classes = {
            name: found
            for name, found in self.space.classes.items()
            if name not in self._requests and name not in self._bounds
        }
        for name, told in sets.items():
            universe = Domain.of(1) if name == "num_prefills" else self.space.universe(name)
            found = classes_of(universe, told)
            if name in self._requests:
                found = tuple(sorted(found, key=representative))
            classes[name] = found
        return classes

    def _last(self, names: Container[str]) -> list[str]:
        """Of some fields, those that make up a request, in the order they are looked at in."""
        bounds = [name for name in self._bounds if name in names]
        ends = dict.fromkeys(end for name in bounds for end in self._bounds[name].ends)
        every = (*ends, *_LENGTHS, *bounds, *self._measures)
        return [name for name in every if name in names]

    def _lengths_of(self, order: Sequence[Level]) -> Lengths:
        """What of the lengths goes together.

        Raises:
            InexactError: they are more than differences of numbers.
        """
        for level in order:
            if len(self._measures.get(level.name, ())) > 1:
                raise InexactError(f"two meanings of {level.name}")
        return Lengths(order, self._bounds, [one[0] for one in self._measures.values()])

    @cached_property
    def _lengths(self) -> Net | InexactError:
        """The lengths that go together."""
        order = [Level(name, self._classes[name]) for name in self._last(self._classes)]
        grower = Grower(KindOf({}, ()), order, _MOST_LENGTHS)
        try:
            return grower.grown(order, [self._lengths_of(order)], lambda _: True)
        except InexactError as error:
            return error
        except OverBudgetError:
            return InexactError("the many lengths that are told apart")

    def _check_ends(self, order: Sequence[Level]) -> None:
        """Refuses bounds of lengths that are bounded themselves.

        Raises:
            InexactError: there is one.
        """
        last = {*self._last(self._classes)}
        for name in (level.name for level in order):
            test = self._relations.get(name)
            if test is not None and name not in last and not last.isdisjoint(test.reads):
                raise InexactError(f"bounds that are bounded themselves, by {name}")

    # -- counting ---------------------------------------------------------------------------------

    def can_differ(self, pair: Pair, kind: KindOf) -> bool:
        """Whether questions of a kind can be computed in another way, these backends staying."""
        old, new = self.space.manifests
        if not same_tail(old, new, pair):
            return True
        entry = old.entries.get(pair[0] or "")
        if entry is None or not any(rule.by_dense_backend for rule in entry.prefill_paths):
            return False
        rules = self.space.rules
        known = {name: representative(values) for name, values in kind.classes.items()}
        return not same_dense((rules[0], rules[1]), known)

    def count(self, pair: Pair, kind: KindOf, budget: int) -> int:
        """Counts the questions of a kind; gives how many steps it took.

        Raises:
            InexactError: they cannot be counted by classes.
            OverBudgetError: there are more places than the budget.
        """
        net, factor, work = self._net(pair, kind, budget)
        totals = net.totals()
        number = factor * sum(totals.values())
        self.able += number
        self._asked[pair] = self._asked.get(pair, 0) + number
        changes: dict[Turn, int] = {
            turn: count for turn, count in totals.items() if isinstance(turn, tuple) and count
        }
        self._cuts.add(kind, net, changes, factor)
        return work

    def _net(self, pair: Pair, kind: KindOf, budget: int) -> tuple[Net, int, int]:
        """Where questions that keep their backends end.

        Returns:
            The net, for how many questions each of it stands, and the steps it took.
        """
        tails, lengths = self._tails[pair], self._lengths
        if isinstance(tails, InexactError):
            raise tails
        if isinstance(lengths, InexactError):
            raise lengths
        known = {name: representative(values) for name, values in kind.classes.items()}
        after = [tail.kind(known) for tail in tails]
        dense = []
        if any(tail.lends for tail in tails):
            both = zip(tails, self.space.rules, strict=True)
            dense = [tail.dense_kind(rules, known) for tail, rules in both]
        kinds = (*kind.kinds, *after, *dense)
        order = order_of(self._classes, kinds, self._last(self._classes))
        self._check_ends(order)
        grower = Grower(kind, order, budget)
        unsure = [_flags(one, t.unsure, Phase.PREFILL) for one, t in zip(after, tails, strict=True)]
        parts = [grower.net(after, partial(_afters, tails, after), unsure=unsure)]
        if dense:
            parts.append(grower.net(dense, partial(_firsts, dense)))
        turns = grower.joined(parts, partial(_turn, pair))
        needed = [
            _flags(one, pair[:1], Phase.PREFILL) | _flags(one, pair[1:], Phase.DECODE)
            for one in kind.kinds
        ]
        chosen = grower.net(kind.kinds, partial(_kept, pair, kind.kinds, self._agrees), needed)
        net = grower.joined([turns, chosen, lengths], lambda turn, *_: turn)
        looked = {*(level.name for level in order), *kind.classes}
        factor = prod(len(c) for name, c in self._classes.items() if name not in looked)
        return net, factor, grower.work

    # -- what was found ---------------------------------------------------------------------------

    def changes(self) -> Iterator[PathChange]:
        """Yields what was counted, the most frequent first."""
        for turn, count in self._cuts.totals.most_common():
            pair, before, after = turn
            regions = [self._shown(one) for one in self._cuts.regions(turn, (pair, pair))]
            regions.sort(key=lambda region: -region.count)
            yield PathChange(pair, before, after, count, self._asked[pair], tuple(regions))

    def _shown(self, region: Region) -> Region:
        """The region, with lengths that one of its questions has."""
        order = [Level(name, (region.one[name],)) for name in self._last(region.one)]
        solved = self._lengths_of(order).solved(region.one) or {}
        kept = {
            name: values
            for name, values in region.one.items()
            if name not in self._requests and name not in self._bounds
        }
        return msgspec.structs.replace(region, one={**kept, **solved})


def _flags(kind: Kind, names: Iterable[str | None], phase: Phase) -> int:
    """The flags of entries in a phase, of those that are among the choices."""
    return sum(kind.flag_of.get((name, phase), 0) for name in names if name is not None)


# -- ends ----------------------------------------------------------------------------------------


def _kept(
    pair: Pair, kinds: Sequence[Kind], agrees: Sequence[Agree], masks: tuple[int, ...]
) -> Hashable:
    """Whether both manifests choose two backends; ``None``: they do not, or nobody knows."""
    for kind, agree, mask in zip(kinds, agrees, masks, strict=True):
        try:
            if kind.choices(mask).pair(mask, agree) != pair:
                return None
        except UndecidedError:
            return None
    return True


def _afters(tails: Sequence[Tail], kinds: Sequence[Kind], masks: tuple[int, ...]) -> Hashable:
    return tuple(
        tail.after(kind, mask) for tail, kind, mask in zip(tails, kinds, masks, strict=True)
    )


def _firsts(kinds: Sequence[Kind], masks: tuple[int, ...]) -> Hashable:
    """The first prefill backend of each manifest."""
    both = zip(kinds, masks, strict=True)
    return tuple(kind.choices(mask).prefill.first(mask) for kind, mask in both)


def _turn(
    pair: Pair, afters: tuple[After, After], by: Sequence[str | None] = (None, None)
) -> Hashable:
    before, after = (one.way(lender) for one, lender in zip(afters, by, strict=True))
    return _SAME if before == after else (pair, before, after)
