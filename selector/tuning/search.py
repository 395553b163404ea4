"""Finding a short list of rules with little regret.

The cost of a choice for a shape is the logarithm of its regret, and more where it is beyond a bound
on the worst; the cost of a list is the sum over the shapes, so a mean of costs of 0 is a geometric
mean of 1. A list starts as one order for all; each candidate is tried as its first. Then the change
that saves most is made, until none saves anything: a rule is put in anywhere, put in another's
place, or dropped, or another candidate is tried first for all others. A rule has a price, so those
that save little are not made. Nothing here is drawn at random: the same timings give the same list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import fsum, log

import msgspec
import numpy
from numpy.typing import NDArray

from selector.tuning.results import Measured
from selector.tuning.rules import FIELDS, Conditions, Rule, conditions_over, values_of

__all__ = ["PRICES", "Aims", "find_rules"]

PRICES = (0.001, 0.002, 0.004)
"""Mean costs that a rule may have to save for each of its bounds."""

_PARTS = 10

_ALIKE = 1.1
"""How much slower, at one shape, a candidate may be that stands in for another."""

_NOTHING = 10.0
"""The regret of a choice that cannot run."""

_Floats = NDArray[numpy.float64]
_Rows = NDArray[numpy.bool_]


class Aims(msgspec.Struct, frozen=True):
    """What a list of rules should reach.

    Attributes:
        rules: the most rules, the last one for all included.
        worst: regret beyond which a choice costs more.
        weight: how much more, per unit of its logarithm.
        shapes: the fewest shapes a rule is about, and that each of its bounds shuts out.
        fields: what a rule may test.
    """

    rules: int = 12
    worst: float = 1.1
    weight: float = 4.0
    shapes: int = 5
    fields: tuple[str, ...] = FIELDS


def find_rules(measured: Sequence[Measured], aims: Aims) -> tuple[Rule, ...]:
    """A list of rules for these shapes; the last one holds for all.

    What a rule must save is chosen first: each of :data:`PRICES` is tried on ten parts of the
    shapes, the rules found on the other nine, and the one with the least regret there is taken.
    Bounds on the worst are left out of that: a few shapes would decide.

    Args:
        measured: shapes and times; a candidate without a time cannot run that shape.
        aims: how long the list may be, and what it is worth.
    """
    table = _Table(measured, aims)
    every = numpy.ones(len(measured), bool)
    price = PRICES[-1]
    if len(measured) >= 2 * _PARTS * aims.shapes:
        price = _price(table)
    return table.rules(_found(table, every, price))


def _price(table: _Table) -> float:
    """The price whose lists have the least regret over shapes that they were not found on."""
    parts = numpy.arange(table.count) % _PARTS

    def unseen(price: float) -> float:
        regrets = numpy.zeros(table.count)
        for part in range(_PARTS):
            found = _found(table, parts != part, price)
            regrets[parts == part] = table.chosen(table.regrets, found)[parts == part]
        return float(regrets.sum())

    return min(PRICES, key=lambda price: (round(unseen(price), 9), -price))


def _log_regret(one: Measured, order: Sequence[str]) -> float:
    """The logarithm of an order's regret for one shape."""
    times = one.times
    name = next((name for name in order if name in times), None)
    return log(_NOTHING if name is None else times[name] / min(times.values()))


def _cost(one: Measured, order: Sequence[str], aims: Aims) -> float:
    """What an order costs for one shape: more than its regret where that is beyond the bound."""
    regret = _log_regret(one, order)
    return regret + aims.weight * max(0.0, regret - log(aims.worst))


def _without_doubles(measured: Sequence[Measured], names: Sequence[str]) -> list[str]:
    """The candidates without those for which another one does as well.

    The other one runs wherever they run, is as fast in the mean, and nowhere much slower.
    """
    kept = [*names]
    for name in names:
        if any(_stands_in(measured, other, name) for other in kept if other != name):
            kept.remove(name)
    return kept


def _stands_in(measured: Sequence[Measured], other: str, name: str) -> bool:
    ratios = []
    for times in (one.times for one in measured):
        if name in times:
            if other not in times:
                return False
            ratios.append(times[other] / times[name])
    return max(ratios) <= _ALIKE and fsum(map(log, ratios)) <= 0


class _List(msgspec.Struct, frozen=True):
    """Rules as ``(condition, candidate)``, and the candidate for all others; all are indices."""

    rules: tuple[tuple[int, int], ...]
    last: int


class _Table:
    """What every candidate costs for every shape, and for which every condition holds."""

    def __init__(self, measured: Sequence[Measured], aims: Aims) -> None:
        self.aims = aims
        self.count = len(measured)
        names = sorted({name for one in measured for name in one.times})
        firsts = _without_doubles(measured, names)

        def rank(name: str) -> tuple[float, str]:
            return fsum(_cost(one, (name,), aims) for one in measured), name

        ranked = sorted(names, key=rank)
        self.orders = [(name, *(other for other in ranked if other != name)) for name in firsts]
        self.costs: _Floats = numpy.array(
            [[_cost(one, order, aims) for order in self.orders] for one in measured]
        )
        self.regrets: _Floats = numpy.array(
            [[_log_regret(one, order) for order in self.orders] for one in measured]
        )
        values = [values_of(one.shape) for one in measured]
        self.conditions: Conditions = conditions_over(values, aims.fields, aims.shapes)
        self.wide = self.conditions.holds.astype(numpy.float32)

    def costs_of(self, found: _List) -> _Floats:
        """What a list costs for every shape."""
        return self.chosen(self.costs, found)

    def chosen(self, values: _Floats, found: _List) -> _Floats:
        """Of values by shape and candidate, those of the candidates that a list chooses."""
        mine = values[:, found.last].copy()
        for condition, first in reversed(found.rules):
            holds = self.conditions.holds[condition]
            mine[holds] = values[holds, first]
        return mine

    def rules(self, found: _List) -> tuple[Rule, ...]:
        """A list in words, each with who follows its first candidate where that cannot run."""
        whens = self.conditions.whens
        return (
            *(Rule(whens[condition], self.orders[first]) for condition, first in found.rules),
            Rule((), self.orders[found.last]),
        )


def _found(table: _Table, seen: _Rows, price: float) -> _List:
    """The cheapest of the lists that start from each candidate."""
    search = _Search(table, seen, price)
    found = [search.run(_List((), last)) for last in range(len(table.orders))]
    return min(found, key=lambda one: (search.value(one), len(one.rules)))


class _Search:
    """Lists for some of the shapes, at a price."""

    def __init__(self, table: _Table, seen: _Rows, price: float) -> None:
        self.table, self.seen = table, seen
        self.prices = price * seen.sum() * table.conditions.bounds

    def value(self, found: _List) -> float:
        """What a list costs over the shapes seen, its own price included."""
        price = sum(self.prices[condition] for condition, _ in found.rules)
        return round(float(self.table.costs_of(found)[self.seen].sum() + price), 9)

    def run(self, found: _List) -> _List:
        """The list after the changes that save most, one after the other."""
        value = self.value(found)
        while True:
            after = [(self.value(one), place, one) for place, one in enumerate(self.changed(found))]
            best, _, one = min(after, key=lambda each: each[:2])
            if best >= value:
                return found
            found, value = one, best

    def changed(self, found: _List) -> Iterator[_List]:
        """Yields the list with one change: of each kind and place, the best."""
        rules = found.rules
        for last in range(len(self.table.orders)):
            yield _List(rules, last)
        for place in range(len(rules)):
            yield _List((*rules[:place], *rules[place + 1 :]), found.last)
        open_, rest = self._around(found)
        spots = [(place, place + 1) for place in range(len(rules))]
        if len(rules) + 1 < self.table.aims.rules:
            spots += [(place, place) for place in range(len(rules) + 1)]
        for (place, behind), rule in zip(spots, self._best(open_, rest, spots), strict=True):
            if rule is not None:
                yield _List((*rules[:place], rule, *rules[behind:]), found.last)

    def _around(self, found: _List) -> tuple[_Floats, _Floats]:
        """For each place, which shapes no rule before it holds for, and what those behind cost."""
        rules, holds = found.rules, self.table.conditions.holds
        open_, rest = [self.seen], [self.table.costs[:, found.last]]
        for condition, _ in rules:
            open_.append(open_[-1] & ~holds[condition])
        for condition, first in reversed(rules):
            rest.insert(0, numpy.where(holds[condition], self.table.costs[:, first], rest[0]))
        return numpy.array(open_, float), numpy.array(rest)

    def _best(
        self, open_: _Floats, rest: _Floats, spots: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[int, int] | None]:
        """Yields, for each spot, the rule that saves most there, if any is about enough shapes."""
        table = self.table
        places = [place for place, _ in spots]
        behind = rest[[behind for _, behind in spots]]
        gains = open_[places][:, :, None] * (behind[:, :, None] - table.costs)
        columns = numpy.concatenate([open_.T, *gains], axis=1).astype(numpy.float32)
        sums = table.wide @ columns
        few = sums[:, : len(open_)] < table.aims.shapes
        firsts = table.costs.shape[1]
        for index, place in enumerate(places):
            start = len(open_) + index * firsts
            saved = sums[:, start : start + firsts] - self.prices[:, None]
            saved[few[:, place]] = -numpy.inf
            most = saved.max(initial=-numpy.inf)
            if most == -numpy.inf:
                yield None
                continue
            at = int(numpy.argmax(saved >= most - 1e-4))
            yield at // firsts, at % firsts
