"""What a manifest and the code say of values, and in which of them they differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

__all__ = ["Differences", "Said", "Table", "find_differences"]

Said = tuple[bool | None, bool | None]
"""What the manifest says, and what the code says."""
Table = Mapping[Any, Mapping[str, Said]]
"""Value (``""``: the field has none) → compute capability → what is said of it there."""


class Differences(NamedTuple):
    """Where both differ, and where nobody knows.

    Attributes:
        differ: what the manifest says and the code denies, and where → the values.
        undecided: the values of which one side is not known somewhere.
        undecided_on: the architectures on which that is so.
    """

    differ: Mapping[tuple[bool, tuple[str, ...]], list[Any]]
    undecided: list[Any]
    undecided_on: list[str]


def find_differences(said: Table) -> Differences:
    """The values that differ on the same architectures together, and those that are undecided."""
    differ: defaultdict[tuple[bool, tuple[str, ...]], list[Any]] = defaultdict(list)
    open_: dict[str, None] = {}
    values = []
    for value, by_capability in said.items():
        for stated in (True, False):
            where = tuple(c for c, one in by_capability.items() if one == (stated, not stated))
            if where:
                differ[stated, where].append(value)
        unknown = [c for c, one in by_capability.items() if None in one]
        if unknown:
            values.append(value)
            open_ |= dict.fromkeys(unknown)
    return Differences(differ, values, [*open_])
