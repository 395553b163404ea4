"""Combinations that can be → the smallest ones that cannot."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

__all__ = ["excluded"]

Row = tuple[int, ...]
"""For each variable, which of its values."""

Side = frozenset[int]


def excluded(rows: Collection[Row], widths: Sequence[int]) -> Iterator[Mapping[int, Side]]:
    """Yields what no row is: variable → values, such that together they exclude every other row.

    Each is as small as it can be: without one of its variables, it would hold a row.

    Args:
        rows: the combinations that can be.
        widths: how many values each variable has.
    """
    of = [[0] * width for width in widths]
    for place, row in enumerate(rows):
        for name, value in enumerate(row):
            of[name][value] |= 1 << place
    found: dict[tuple[tuple[int, int], ...], None] = {}
    for place, width in enumerate(widths):
        begun = {row[: place + 1] for row in rows}
        for before in sorted({row[:place] for row in rows}):
            for value in range(width):
                if (*before, value) not in begun:
                    found[_smallest((*before, value), of)] = None
    yield from _joined([{n: frozenset({v}) for n, v in one} for one in found], widths)


def _smallest(row: Row, of: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """The fewest values of the beginning of a row that no row has together, rather late ones."""
    behind = [-1]
    for name in range(len(row) - 1, -1, -1):
        behind.append(behind[-1] & of[name][row[name]])
    kept, ahead = [], -1
    for name, value in enumerate(row):
        if ahead & behind[len(row) - 1 - name]:  # without it, some row would be meant
            kept.append((name, value))
            ahead &= of[name][value]
    return tuple(kept)


def _joined(sides: list[Mapping[int, Side]], widths: Sequence[int]) -> list[Mapping[int, Side]]:
    """The same in fewer: those that differ in one variable only become one."""
    while True:
        before = len(sides)
        for name, width in enumerate(widths):
            alike: dict[frozenset[tuple[int, Side]], Side] = {}
            kept = []
            for one in sides:
                if name not in one:
                    kept.append(one)
                    continue
                rest = frozenset(item for item in one.items() if item[0] != name)
                alike[rest] = alike.get(rest, frozenset()) | one[name]
            for rest, side in alike.items():
                whole = len(side) == width
                kept.append(dict(rest) if whole else {**dict(rest), name: side})
            sides = kept
        if len(sides) == before:
            return sides
