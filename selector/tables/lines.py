"""Rows as lines of JSON: read one by one, and written out beside their answers.

Most lines of a table differ in nothing but their lengths. What such lines share is read once, and
their lengths are put between the same pieces of text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from selector.errors import AttnselError
from selector.plan.memo import remember
from selector.tables.answers import ANSWER_COLUMNS, failed
from selector.tables.asked import Asked
from selector.tables.compiled import Form
from selector.tables.rows import RowReader, kept_of, requests_of

__all__ = ["BadLine", "Lines", "Written", "answered", "read_line", "shape_of"]

_MOST_WRITTEN = 1 << 12
_MOST_ALIKE = 1 << 12
_LONGEST_ALIKE = 1 << 12

_LENGTHS = re.compile(rb'"(query_len|seq_len)": ?([1-9]\d{0,8})(?=[,}])')
"""A length as most lines have it; between quotes, with a colon after them, stands a name."""

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
        begin = json.dumps(kept, default=str)[:-1]
        return f"{begin}{', ' if kept else ''}{self.end(answer)}"

    def end(self, answer: Mapping[str, Any]) -> str:
        """The answer as a JSON object, without its beginning."""
        known = self._ends.get(id(answer))
        if known is None:
            end = json.dumps({name: answer[name] for name in ANSWER_COLUMNS}, default=str)[1:]
            # what is known by its id is kept, so that the id stays its own
            known = remember(self._ends, id(answer), (answer, end), _MOST_WRITTEN)
        return known[1]


def shape_of(line: bytes) -> bytes:
    """A line without the digits of its lengths."""
    return _LENGTHS.sub(rb'"\1":', line)


class _Alike(NamedTuple):
    """Lines of one text but for their two lengths.

    Attributes:
        asked: what they say beside them.
        form: of their requests.
        query_first: whether the query's length stands first.
        pieces: of what is kept of them, written out; the lengths stand between.
    """

    asked: Asked
    form: Form
    query_first: bool
    pieces: tuple[str, str, str]


class Lines:
    """Lines as lines with their answers."""

    def __init__(
        self, reader: RowReader, read: Callable[[bytes, int], Columns | BadLine] = read_line
    ) -> None:
        """Takes what answers rows.

        Args:
            reader: answers them.
            read: makes a row of a line and its number; not asked for lines like others before.
        """
        self._reader = reader
        self._read = read
        self._written = Written()
        self._alike: dict[tuple[bytes, ...], _Alike] = {}

    def answer(self, line: bytes, number: int) -> tuple[str, Columns]:
        """A line with its answer, and the answer alone; ``number`` is the line's own, from 1."""
        cut = _LENGTHS.split(line)
        key = (*cut[0:2], *cut[3:5], *cut[6:])
        alike = self._alike.get(key)
        if alike is not None:
            first, second = cut[2], cut[5]
            query, seq = int(first), int(second)
            if not alike.query_first:
                query, seq = seq, query
            if query <= seq:
                answer = alike.asked.of_lengths(alike.form, query, seq)
                begin, between, end = alike.pieces
                kept = f"{begin}{first.decode()}{between}{second.decode()}{end}"
                return f"{kept}, {self._written.end(answer)}", answer
        row = self._read(line, number)
        kept_columns, answer = answered(self._reader, row)
        if len(cut) == 7 and len(line) <= _LONGEST_ALIKE and isinstance(row, dict):
            self._remember(key, cut, row, kept_columns)
        return self._written.line(kept_columns, answer), answer

    def _remember(
        self, key: tuple[bytes, ...], cut: list[bytes], row: Columns, kept: Columns
    ) -> None:
        """Remembers what lines like this one share, if they can be told by their text."""
        rest = b"".join((cut[0], cut[3], cut[6]))
        if b"\\" in rest or b'"query_len"' in rest or b'"seq_len"' in rest or cut[1] == cut[4]:
            return
        said = {name: row.get(name.decode()) for name in (cut[1], cut[4])}
        if said != {cut[1]: int(cut[2]), cut[4]: int(cut[5])}:
            return  # they stand deeper
        try:
            asked = self._reader.ask(row)
            requests = requests_of(row)
        except AttnselError:
            return
        asked = asked.together(len(requests))
        pieces = _LENGTHS.split(f"{json.dumps(kept, default=str)[:-1]},".encode("ascii"))
        if asked.refused is None and len(pieces) == 7:
            names = [f'"{name.decode()}": ' for name in (cut[1], cut[4])]
            begin, between, end = (pieces[place].decode() for place in (0, 3, 6))
            texts = (begin + names[0], between + names[1], end[:-1])
            form = Form.of(requests[0], len(requests))
            remember(
                self._alike, key, _Alike(asked, form, cut[1] == b"query_len", texts), _MOST_ALIKE
            )
