"""A document as fixes look at it: its lines, its comments and where its values stand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from selector.document import Document, Mapping, Sequence
from selector.lint.lines import lines_of
from selector.lint.suppressing import Comment, comments
from selector.values import Finding, Position

__all__ = ["Page", "Path"]

Path = tuple[str, ...]
"""The keys that lead to a value; places in lists do not count."""


class Page:
    """A document that was read; what costs time is worked out once."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def line(self, finding: Finding) -> str:
        """The line that a finding is about, with its break."""
        return self.lines[finding.line - 1] if finding.line <= len(self.lines) else ""

    def scalar(self, finding: Finding) -> tuple[Path, Any]:
        """The value at a finding's place that is no collection, and the keys that lead there."""
        return self._scalars.get((finding.line, finding.column), ((), None))

    @cached_property
    def lines(self) -> list[str]:
        """The lines, each with its break."""
        return lines_of(self.document.text)

    @cached_property
    def comments(self) -> list[Comment]:
        """The comments about lint."""
        return comments(self.document.file, self.document.text)

    @cached_property
    def _scalars(self) -> dict[tuple[int, int], tuple[Path, Any]]:
        found: dict[tuple[int, int], tuple[Path, Any]] = {}
        pending: list[tuple[Path, Any]] = [((), self.document.tree)]
        seen = set()
        while pending:
            path, node = pending.pop()
            if id(node) in seen:
                continue  # an alias
            seen.add(id(node))
            for step, value, at in _children(node):
                if isinstance(value, Mapping | Sequence):
                    pending.append(((*path, *step), value))
                else:
                    found.setdefault((at.line, at.column), ((*path, *step), value))
        return found


def _children(node: Any) -> Iterator[tuple[Path, Any, Position]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield (key,), value, node.values_at[key]
    elif isinstance(node, Sequence):
        for value, at in zip(node, node.items_at, strict=True):
            yield (), value, at
