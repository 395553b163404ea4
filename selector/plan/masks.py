"""One field's values as bit masks: what each value decides against."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, reduce
from operator import or_

from selector.domains import Domain, Value
from selector.plan.places import Axis
from selector.plan.terms import UndecidedError

__all__ = ["EITHER", "Masks"]

EITHER = Domain.of(True, False)
"""What a field can be that no question has, such as a bound that another field gives."""

_MOST_VALUES = 4096
"""Masks are kept for this many values; beyond, they are found again."""

_LEAST = -(1 << 63)

Held = Sequence[tuple[int, Domain]]
"""Bits, and the set that a value is held against for each."""


class Masks(dict[object, int]):
    """A field's value → its mask; found when a value is first asked for.

    Args:
        everything: all bits.
        universe: what the field can be.
        refusing: bits that a value in the set decides against.
        holding: bits that a value outside the set decides against.
        strict: whether an unknown value that may do either raises :class:`UndecidedError`.
    """

    def __init__(
        self, everything: int, universe: Domain, refusing: Held, holding: Held, strict: bool
    ) -> None:
        super().__init__()
        self.everything = everything
        self.universe = universe
        self.refusing = refusing
        self.holding = holding
        self.strict = strict
        self._by_place: dict[int, int] = {}

    @property
    def bits(self) -> int:
        """The bits that some value decides against."""
        return reduce(or_, (bit for bit, _ in (*self.refusing, *self.holding)), 0)

    @property
    def sets(self) -> tuple[Domain, ...]:
        """The sets that a value is held against."""
        return tuple(values for _, values in (*self.refusing, *self.holding))

    @cached_property
    def _axis(self) -> Axis:
        """The numbers that no set tells apart."""
        return Axis(dict.fromkeys(self.sets), _LEAST)

    def __missing__(self, value: Value | Domain | None) -> int:
        if value is None or isinstance(value, Domain):
            mask = self._of_set(self.universe if value is None else value)
        elif type(value) is int:
            mask = self._of_number(value)
        else:
            mask = self._of_value(value)
        if len(self) < _MOST_VALUES:
            self[value] = mask
        return mask

    def _of_number(self, value: int) -> int:
        place = self._axis.place(value)
        mask = self._by_place.get(place)
        if mask is None:
            mask = self._of_value(value)
            if len(self._by_place) < _MOST_VALUES:
                self._by_place[place] = mask
        return mask

    def _of_value(self, value: Value) -> int:
        mask = self.everything
        for bit, values in self.refusing:
            if values.admits(value):
                mask &= ~bit
        for bit, values in self.holding:
            if not values.admits(value):
                mask &= ~bit
        return mask

    def _of_set(self, possible: Domain) -> int:
        """Of a value that is not known: what it decides against for certain.

        Raises:
            UndecidedError: it decides which rule is the first to hold.
        """
        mask = self.everything
        for bit, values in self.refusing:
            if possible <= values:
                mask &= ~bit
            elif self.strict and not (possible & values).is_empty():
                raise UndecidedError
        for bit, values in self.holding:
            if not possible <= values:
                mask &= ~bit
                if self.strict and not (possible & values).is_empty():
                    raise UndecidedError
        return mask
