"""Finding a short list of rules with little regret.

Kernels depend on how many requests run together, and not everybody who asks says so: a shape of
several requests counts twice, asked with and without their number.

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
from selector.tuning.rules import FIELDS, Conditions, Rule, conditions_over, questions_of, values_of

__all__ = ["PRICE", "Aims", "find_rules"]

PRICE = 0.4
"""What a rule has to save for each of its bounds, over all questions: a bound that is put where it
fits some shapes by chance saves about as much, however many shapes there are."""

_ALIKE = 1.1
"""How much slower, at one shape, a candidate may be that stands in for another."""

_NOTHING = 10.0
"""The regret of a choice that cannot run."""

_Floats = NDArray[numpy.float64]


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

    Args:
        measured: shapes and times; a candidate without a time cannot run that shape.
        aims: how long the list may be, and what it is worth.
    """
    table = _Table(measured, aims)
    return table.rules(_found(table))


def _cost(one: Measured, order: Sequence[str], aims: Aims) -> float:
    """What an order costs for one shape: more than its regret where that is beyond the bound."""
    times = one.times
    name = next((name for name in order if name in times), None)
    regret = log(_NOTHING if name is None else times[name] / min(times.values()))
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
    """What every candidate costs for every question, and for which every condition holds.

    The questions are the shapes, and once more those of several requests, asked as whoever does not
    say how many run together asks them.
    """

    def __init__(self, measured: Sequence[Measured], aims: Aims) -> None:
        self.aims = aims
        questions = [*questions_of(measured)]
        names = sorted({name for one in measured for name in one.times})
        firsts = _without_doubles(measured, names)

        def rank(name: str) -> tuple[float, str]:
            return fsum(_cost(one, (name,), aims) for one in measured), name

        ranked = sorted(names, key=rank)
        self.orders = [(name, *(other for other in ranked if other != name)) for name in firsts]
        self.costs: _Floats = numpy.array(
            [[_cost(one, order, aims) for order in self.orders] for one, _ in questions]
        )
        values = [values_of(one.shape, told) for one, told in questions]
        self.conditions: Conditions = conditions_over(values, aims.fields, aims.shapes)
        self.wide = self.conditions.holds.astype(numpy.float32)

    def costs_of(self, found: _List) -> _Floats:
        """What a list costs for every question."""
        costs = self.costs[:, found.last].copy()
        for condition, first in reversed(found.rules):
            holds = self.conditions.holds[condition]
            costs[holds] = self.costs[holds, first]
        return costs

    def rules(self, found: _List) -> tuple[Rule, ...]:
        """A list in words, each with who follows its first candidate where that cannot run."""
        whens = self.conditions.whens
        return (
            *(Rule(whens[condition], self.orders[first]) for condition, first in found.rules),
            Rule((), self.orders[found.last]),
        )


def _found(table: _Table) -> _List:
    """The cheapest of the lists that start from each candidate."""
    search = _Search(table)
    found = [search.run(_List((), last)) for last in range(len(table.orders))]
    return min(found, key=lambda one: (search.value(one), len(one.rules)))


class _Search:
    """Lists over a table, at a price."""

    def __init__(self, table: _Table) -> None:
        self.table = table
        self.prices = PRICE * table.conditions.bounds

    def value(self, found: _List) -> float:
        """What a list costs over all questions, its own price included."""
        price = sum(self.prices[condition] for condition, _ in found.rules)
        return round(float(self.table.costs_of(found).sum() + price), 9)

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
        open_, rest = [numpy.ones(len(self.table.costs), bool)], [self.table.costs[:, found.last]]
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
