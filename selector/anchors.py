"""Anchors: what an alias repeats has one place, and a mistake there is told once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from selector.values import Finding, Position

__all__ = ["Anchor", "gathered", "told_once"]

_MOST_LINES = 3
"""How many uses a message lists."""


@dataclass(slots=True)
class Anchor:
    """A value with a name, and where aliases repeat it.

    Attributes:
        name: without the ``&``.
        value: what it stands for.
        start: where it begins.
        end: line and column behind it.
        whole: whether it is a mapping or a list: what is inside has its own places.
        uses: where it is repeated.
    """

    name: str
    value: Any
    start: Position
    end: tuple[int, int]
    whole: bool
    uses: list[Position] = field(default_factory=list)

    def covers(self, at: Position) -> bool:
        """Whether a place lies in what is anchored."""
        here = (at.line, at.column)
        return at.file == self.start.file and self.start[1:] <= here < self.end


def told_once(findings: Iterable[Finding], anchors: Sequence[Anchor]) -> list[Finding]:
    """The findings with one at the anchor where aliases only repeat it, which says the uses."""
    used = [anchor for anchor in anchors if anchor.uses]
    if not used:
        return list(findings)
    return [_with_uses(finding, used) for finding in gathered(findings, used)]


def gathered(findings: Iterable[Finding], anchors: Sequence[Anchor]) -> list[Finding]:
    """What several uses of one scalar are told becomes one finding at its anchor."""
    owners = {
        place: anchor
        for anchor in anchors
        if anchor.uses and not anchor.whole
        for place in (anchor.start, *anchor.uses)
    }
    groups: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        owner = owners.get(_place(finding))
        alike = (id(owner), finding.code, finding.message)
        groups.setdefault(alike if owner else (finding,), []).append(finding)
    told = []
    for first, *others in groups.values():
        if others and (owner := owners.get(_place(first))):
            start = owner.start
            first = msgspec.structs.replace(first, line=start.line, column=start.column)
        told.append(first)
    return told


def _with_uses(finding: Finding, used: Sequence[Anchor]) -> Finding:
    """A finding with where the anchored value it is about is used, or was given."""
    at = _place(finding)
    around = [anchor for anchor in used if anchor.covers(at)]
    if around:
        inmost = max(around, key=lambda anchor: anchor.start)
        return _noting(finding, f"&{inmost.name}, used on {_lines(inmost.uses)}")
    for anchor in used:
        if at in anchor.uses and not anchor.whole:
            return _noting(finding, f"&{anchor.name} of line {anchor.start.line}")
    return finding


def _noting(finding: Finding, words: str) -> Finding:
    if finding.code == "CAP006":  # about the whole text
        return finding
    return msgspec.structs.replace(finding, message=f"{finding.message} ({words})")


def _place(finding: Finding) -> Position:
    return Position(finding.file, finding.line, finding.column)


def _lines(uses: Iterable[Position]) -> str:
    lines = [str(line) for line in sorted({use.line for use in uses})]
    if len(lines) == 1:
        return f"line {lines[0]}"
    if len(lines) > _MOST_LINES:
        more = len(lines) - _MOST_LINES + 1
        lines = [*lines[: _MOST_LINES - 1], f"{more} more"]
    return f"lines {', '.join(lines[:-1])} and {lines[-1]}"
