"""Sets of values as numbers, with a bit for each class: held against each other at once."""

from __future__ import annotations

from collections.abc import Mapping

from selector.analysis.holding import representative
from selector.domains import Domain
from selector.plan.kind import Kind

__all__ = ["Sides"]


class Sides:
    """What classes lie within sets; each set is looked at once, whatever kinds it is in.

    Args:
        classes: of every field that no other decides.
    """

    def __init__(self, classes: Mapping[str, tuple[Domain, ...]]) -> None:
        self._members = {name: [*map(representative, found)] for name, found in classes.items()}
        self._known: dict[tuple[str, int], tuple[Domain, int]] = {}

    def within(self, name: str, values: Domain, others: Domain) -> bool:
        """Whether a set is part of another, as far as classes tell."""
        if name not in self._members:
            return values <= others
        return not self._bits(name, values) & ~self._bits(name, others)

    def masks(self, kind: Kind, name: str) -> tuple[int, ...]:
        """The masks of a field's classes, in order."""
        masks = kind.masks.get(name)
        members = self._members[name]
        if masks is None:
            return (kind.everything,) * len(members)
        every = (1 << len(members)) - 1
        away: dict[int, int] = {}  # classes → what they decide against
        for bit, values in masks.refusing:
            side = self._bits(name, values)
            away[side] = away.get(side, 0) | bit
        for bit, values in masks.holding:
            side = every & ~self._bits(name, values)
            away[side] = away.get(side, 0) | bit
        found = []
        for place in range(len(members)):
            gone = 0
            for side, bits in away.items():
                if side >> place & 1:
                    gone |= bits
            found.append(kind.everything & ~gone)
        return tuple(found)

    def _bits(self, name: str, values: Domain) -> int:
        found = self._known.get((name, id(values)))
        if found is None:
            bits = sum(1 << n for n, one in enumerate(self._members[name]) if values.admits(one))
            found = self._known[name, id(values)] = values, bits  # with it, for its id to stay its
        return found[1]
