"""Finding a short list of rules with little regret.

The cost of a choice for a shape is the logarithm of its regret, and more where it is beyond a bound
on the worst; the cost of a list is the sum over the shapes, so a mean of costs of 0 is a geometric
mean of 1. A list starts as one order for all; each candidate is tried as its first. The rule that
saves most is put in at the place where it saves most, until none saves enough; after each, every
rule is looked for again with the others fixed. At last, rules whose loss costs too little are
dropped. Nothing here is drawn at random: the same timings give the same list.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, log
from statistics import fmean, stdev

import msgspec

from selector.tuning.results import Measured
from selector.tuning.rules import FIELDS, Condition, Rule, conditions_over, values_of

__all__ = ["Aims", "find_rules"]

PRICES = (0.001, 0.002, 0.004, 0.008, 0.016)
"""Mean costs that a rule may have to save for each of its bounds; one that is not round is two."""

_PARTS = 5
_CHUNK = 8
_ROUNDS = 3
_ALIKE = 1.1
"""How much slower, at one shape, a candidate may be that stands in for another."""

_NOTHING = 10.0
"""The regret of a choice that cannot run."""


class Aims(msgspec.Struct, frozen=True):
    """What a list of rules should reach.

    Attributes:
        rules: the most rules, the last one for all included.
        worst: regret beyond which a choice costs more.
        weight: how much more, per unit of its logarithm.
        shapes: the fewest shapes a rule is about.
        fields: what a rule may test.
    """

    rules: int = 12
    worst: float = 1.1
    weight: float = 4.0
    shapes: int = 3
    fields: tuple[str, ...] = FIELDS


def find_rules(measured: Sequence[Measured], aims: Aims) -> tuple[Rule, ...]:
    """A list of rules for these shapes; the last one holds for all.

    What a rule must save is chosen first: each of :data:`PRICES` is tried on five parts of the
    shapes, the rules found on the other four; of those that do not differ from the best by more
    than its standard error, the highest is taken, which gives the shortest list.

    Args:
        measured: shapes and times; a candidate without a time cannot run that shape.
        aims: how long the list may be, and what it is worth.
    """
    if len(measured) < 2 * _PARTS * aims.shapes:
        return _found(measured, aims, PRICES[-1])
    tried = [(*_unseen_cost(measured, aims, price), price) for price in PRICES]
    cost, error, _ = min(tried)
    price = max(price for mean, _, price in tried if mean <= cost + error)
    return _found(measured, aims, price)


def _cost_of(one: Measured, rules: Sequence[Rule], aims: Aims) -> float:
    """What a list costs for one shape."""
    values = values_of(one.shape)
    rule = next(rule for rule in rules if rule.holds(values))
    return _cost(one, rule.order, aims)


def _unseen_cost(measured: Sequence[Measured], aims: Aims, price: float) -> tuple[float, float]:
    """The mean cost over shapes that the rules were not found on, and its standard error."""
    costs = []
    for part in range(_PARTS):
        seen = [one for index, one in enumerate(measured) if index % _PARTS != part]
        rules = _found(seen, aims, price)
        costs += [_cost_of(one, rules, aims) for one in measured[part::_PARTS]]
    return fmean(costs), stdev(costs) / len(costs) ** 0.5


def _found(measured: Sequence[Measured], aims: Aims, price: float) -> tuple[Rule, ...]:
    """The cheapest of the lists that start from each candidate."""
    search = _Search(measured, aims, price)
    search.run()
    return search.rules()


def _cost(one: Measured, order: Sequence[str], aims: Aims) -> float:
    """What an order costs for one shape: more than its regret where that is beyond the bound."""
    times = one.times
    name = next((name for name in order if name in times), None)
    regret = _NOTHING if name is None else times[name] / min(times.values())
    return log(regret) + aims.weight * max(0.0, log(regret / aims.worst))


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


class _Picked(msgspec.Struct, frozen=True):
    """A condition as bits over the shapes, and the candidate tried first there."""

    bits: int
    first: str


class _Search:
    """A list of rules that grows; the candidate for all others stands apart."""

    def __init__(self, measured: Sequence[Measured], aims: Aims, price: float) -> None:
        self.measured, self.aims = measured, aims
        self.count = len(measured)
        self.all = (1 << self.count) - 1
        self.conditions = conditions_over([values_of(one.shape) for one in measured], aims.fields)
        self.unit = price * len(measured)
        self.prices = {bits: self.unit * _bounds(when) for bits, when in self.conditions.items()}
        names = sorted({name for one in measured for name in one.times})
        self.orders = self._orders(names)
        firsts = _without_doubles(measured, names)
        self.costs = {
            name: [_cost(one, self.orders[name], aims) for one in measured] for name in firsts
        }
        self.list: list[_Picked] = []
        self.last = firsts[0]

    def _orders(self, names: list[str]) -> dict[str, tuple[str, ...]]:
        """For each candidate tried first, who follows: the widest and cheapest next."""

        def rank(name: str) -> tuple[float, str]:
            return fsum(_cost(one, (name,), self.aims) for one in self.measured), name

        ranked = sorted(names, key=rank)
        return {name: (name, *(other for other in ranked if other != name)) for name in names}

    def run(self) -> None:
        """Finds a list from each candidate alone, and keeps the cheapest."""
        found = []
        for name in self.costs:
            self.list, self.last = [], name
            self._grow()
            self._prune()
            found.append((self._value(), len(self.list), name, self.list, self.last))
        *_, self.list, self.last = min(found, key=lambda one: one[:3])

    # -- growing -----------------------------------------------------------------------------

    def _grow(self) -> None:
        """Adds rules, the most saving first, until none is worth it or the list is full."""
        while len(self.list) + 1 < self.aims.rules:
            places = range(len(self.list) + 1)
            found = [(*self._best(place, self.list[place:]), place) for place in places]
            _, rule, place = max(found, key=lambda one: (one[0], one[2]))
            if rule is None:
                return
            self.list.insert(place, rule)
            self._refine()

    def _refine(self) -> None:
        """Looks for each rule again, the others fixed, while that saves something."""
        for _ in range(_ROUNDS):
            before = self._value()
            for place, old in enumerate(self.list):
                value = self._value()
                _, rule = self._best(place, self.list[place + 1 :])
                if rule is not None:
                    self.list[place] = rule
                if self._value() >= value:
                    self.list[place] = old
            self.last = min(sorted(self.costs), key=self._value_with)
            if self._value() >= before:
                return

    def _value(self) -> float:
        """What the list costs over all shapes, its own price included."""
        price = fsum(self.prices[rule.bits] for rule in self.list)
        return round(fsum(self._chosen_costs(self.list)) + price, 9)

    def _value_with(self, last: str) -> float:
        before, self.last = self.last, last
        value = self._value()
        self.last = before
        return value

    def _best(self, place: int, rest: Sequence[_Picked]) -> tuple[float, _Picked | None]:
        """The rule that saves most at a place, before the rest; what it saves beyond its price."""
        active = self.all
        for earlier in self.list[:place]:
            active &= ~earlier.bits
        without = self._chosen_costs(rest)
        best: tuple[float, _Picked | None] = (0.0, None)
        for name, costs in self.costs.items():
            gains = [a - b for a, b in zip(without, costs, strict=True)]
            most = fsum(gain for i, gain in enumerate(gains) if gain > 0 and active >> i & 1)
            if most - self.unit <= best[0]:
                continue
            tables = _tables(gains)
            for bits, price in self.prices.items():
                about = bits & active
                if about.bit_count() < self.aims.shapes:
                    continue
                saved = _sum_of(tables, about) - price
                if saved > best[0] + 1e-9:
                    best = saved, _Picked(bits, name)
        return best

    def _chosen_costs(self, rules: Sequence[_Picked]) -> list[float]:
        """What each shape costs under some rules and the last one."""
        costs = [*self.costs[self.last]]
        for rule in reversed(rules):
            theirs = self.costs[rule.first]
            for index in range(self.count):
                if rule.bits >> index & 1:
                    costs[index] = theirs[index]
        return costs

    # -- ending ------------------------------------------------------------------------------

    def _prune(self) -> None:
        """Drops rules, the least saving first, that save less than their price."""
        while self.list:
            value, whole = self._value(), self.list
            left = []
            for place in range(len(whole)):
                self.list = [*whole[:place], *whole[place + 1 :]]
                left.append((self._value(), place))
            self.list = whole
            least, place = min(left)
            if least > value:
                return
            del self.list[place]

    def rules(self) -> tuple[Rule, ...]:
        """The list, each with who follows its first candidate where that cannot run."""
        return (
            *(Rule(self.conditions[one.bits], self.orders[one.first]) for one in self.list),
            Rule((), self.orders[self.last]),
        )


def _bounds(condition: Condition) -> int:
    """How many bounds a condition has; those that are not round count twice."""
    bounds = sum((test.least is not None) + (test.most is not None) for test in condition)
    return bounds + sum(not test.is_round for test in condition)


_Tables = list[list[float]]


def _tables(gains: Sequence[float]) -> _Tables:
    """Sums over every subset of each run of eight shapes, so that a sum takes few steps."""
    tables = []
    for start in range(0, len(gains), _CHUNK):
        chunk = gains[start : start + _CHUNK]
        sums = [0.0]
        for gain in chunk:
            sums += [gain + before for before in sums]
        tables.append(sums)
    return tables


def _sum_of(tables: _Tables, bits: int) -> float:
    total = 0.0
    for table in tables:
        total += table[bits & 255]
        bits >>= _CHUNK
    return total
