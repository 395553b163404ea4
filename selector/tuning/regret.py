"""Regret: how much longer a choice takes than the best candidate would.

The **regret** of a choice for a shape is the time of the chosen candidate over that of the fastest
one: 1 is the best there is. Over many shapes it is said as geometric mean and worst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import exp, fsum, log
from types import MappingProxyType

import msgspec

from selector.binding import Selector
from selector.fields import BATCH_FIELDS
from selector.tuning.results import Measured, Shape
from selector.tuning.rules import Rule, values_of
from selector.tuning.timings import Timings
from selector.values import Layer, Phase

__all__ = ["Regret", "by_rules", "chosen_by", "first_of", "regret_of", "within"]

Choose = Callable[[Measured], str | None]
"""What is chosen for a shape; ``None``: nothing."""


class Regret(msgspec.Struct, frozen=True):
    """The regret of one way to choose, over some shapes.

    Attributes:
        mean: geometric mean; ``None``: it was not measured for any.
        worst: the largest.
        worst_shape: where that is.
        shapes: how many it is of.
        unserved: shapes for which nothing was chosen, or a candidate without a time.
    """

    mean: float | None
    worst: float | None
    worst_shape: Shape | None
    shapes: int
    unserved: int


def regret_of(choose: Choose, measured: Iterable[Measured]) -> Regret:
    """The regret of a way to choose."""
    found: list[tuple[float, Shape]] = []
    unserved = 0
    for one in measured:
        times = one.times
        name = choose(one)
        if name is None or name not in times:
            unserved += 1
        else:
            found.append((times[name] / min(times.values()), one.shape))
    if not found:
        return Regret(None, None, None, 0, unserved)
    mean = exp(fsum(log(regret) for regret, _ in found) / len(found))
    worst, shape = max(found, key=lambda pair: pair[0])
    return Regret(mean, worst, shape, len(found), unserved)


def first_of(order: Sequence[str]) -> Choose:
    """Always the first in an order that has a time."""

    def choose(one: Measured) -> str | None:
        return next((name for name in order if name in one.times), None)

    return choose


def by_rules(rules: Sequence[Rule]) -> Choose:
    """The first that has a time in the order of the first rule that holds."""

    def choose(one: Measured) -> str | None:
        values = values_of(one.shape)
        orders = (rule.order for rule in rules if rule.holds(values))
        return first_of(next(orders, ()))(one)

    return choose


def chosen_by(selector: Selector, timings: Timings, told: bool = True) -> Choose:
    """What a manifest chooses, asked of the selector itself, on the device that was timed.

    Args:
        selector: whose choice.
        timings: of which device.
        told: whether it is told how many requests run together.
    """
    facts = timings.facts

    def choose(one: Measured) -> str | None:
        shape = one.shape
        layer = shape.layer if told else without_count(shape.layer)
        answer = selector.bind(timings.device, layer, facts).resolve_one(shape.request, brief=True)
        choice = answer.prefill if shape.phase is Phase.PREFILL else answer.decode
        return choice.backend

    return choose


def without_count(layer: Layer) -> Layer:
    """A layer of which nobody says how many requests run together."""
    fields = {name: value for name, value in layer.fields.items() if name not in BATCH_FIELDS}
    return msgspec.structs.replace(layer, fields=MappingProxyType(fields))


def within(measured: Iterable[Measured], names: Iterable[str]) -> tuple[Measured, ...]:
    """The shapes with the times of some candidates only; those that none of them ran are gone."""
    kept = set(names)
    found = (
        Measured(one.shape, tuple(t for t in one.timings if t.candidate in kept))
        for one in measured
    )
    return tuple(one for one in found if one.times)
