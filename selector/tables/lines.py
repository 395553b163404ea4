"""Rows as lines of JSON: read one by one, and written out beside their answers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from selector.plan.memo import remember
from selector.tables.answers import ANSWER_COLUMNS, failed
from selector.tables.rows import RowReader, kept_of

__all__ = ["BadLine", "Written", "answered", "read_line"]

_MOST_WRITTEN = 1 << 12

Columns = dict[str, Any]


class BadLine(NamedTuple):
    """A line that is no row."""

    number: int
    error: str


def read_line(line: bytes, number: int) -> Columns | BadLine:
    """The row that a line is; ``number`` is its own, from 1."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        return BadLine(number, f"line {number} is not JSON: {_problem(error)}")
    if isinstance(row, dict):
        return row
    return BadLine(number, f"line {number} is not a JSON object")


def _problem(error: Exception) -> str:
    column = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
    words = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return f"{words[:1].lower()}{words[1:80]}{column}"


def answered(reader: RowReader, row: Columns | BadLine) -> tuple[Columns, Columns]:
    """What is kept of a row, and its answer."""
    if isinstance(row, BadLine):
        return {"line": row.number}, failed(row.error)
    return kept_of(row), reader.columns(row)


class Written:
    """Rows as JSON; an answer that many rows have is written out once."""

    def __init__(self) -> None:
        self._ends: dict[int, tuple[Mapping[str, Any], str]] = {}

    def line(self, kept: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
        """A row and its answer as one JSON object; they have no name in common."""
        known = self._ends.get(id(answer))
        if known is None:
            end = json.dumps({name: answer[name] for name in ANSWER_COLUMNS}, default=str)[1:]
            # what is known by its id is kept, so that the id stays its own
            known = remember(self._ends, id(answer), (answer, end), _MOST_WRITTEN)
        begin = json.dumps(kept, default=str)[:-1]
        return f"{begin}{', ' if kept else ''}{known[1]}"
