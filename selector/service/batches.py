"""Tables of questions: a JSON array, JSON lines or an Arrow stream, answered in the same form.

The whole table is read before the first answer goes out, so that a table which is refused is
refused as a whole; answers then go out piece by piece, in the order of the rows.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from selector.devices import find_device
from selector.live import Snapshot
from selector.service.bodies import is_deeper, read_body, said_twice
from selector.service.calls import JSON, Call
from selector.service.limits import Limits
from selector.service.problems import Problem
from selector.tables.lines import BadLine, Lines, read_line, shape_of
from selector.tables.rows import RowReader, kept_name

__all__ = ["ARROW", "FORMS", "LINES", "Batch", "Readers", "read_batch"]

LINES = "application/jsonl"
ARROW = "application/vnd.apache.arrow.stream"
FORMS = (JSON, LINES, "application/x-ndjson", ARROW)

_ROWS_AT_ONCE = 1024
_ARROW_ROWS = 1 << 15
_MOST_SHAPES = 1 << 12
_MOST_IDLE = 4
_MOST_COLUMNS = 1 << 10

Query = dict[str, str]


class Batch:
    """A table that was read, and answers to it.

    Attributes:
        rows: how many.
        media: the type of the answers.
    """

    def __init__(self, rows: int, media: str, pieces: Iterator[bytes]) -> None:
        self.rows = rows
        self.media = media
        self._pieces = pieces

    async def stream(self) -> AsyncIterator[bytes]:
        """Yields the answers; each piece is made on another thread."""
        while (piece := await asyncio.to_thread(next, self._pieces, None)) is not None:
            yield piece


class Readers:
    """What reads rows of one snapshot, one table at a time; what was read before is known."""

    def __init__(self) -> None:
        self._idle: list[tuple[Query, RowReader]] = []

    def take(self, snapshot: Snapshot, query: Query) -> RowReader:
        """What reads rows as the parameters want it; a row's model is a preset, never a path.

        Raises:
            UnknownDeviceError: the device of rows that name none is not known.
            Problem: a flag is neither true nor false.
        """
        for place, (said, reader) in enumerate(self._idle):
            if said == query:
                del self._idle[place]
                return reader
        device = query.get("device")
        default = None if device is None else find_device(device)
        selector = snapshot.claimed if _flag(query, "as_claimed") else snapshot.selector
        closed_world = _flag(query, "closed_world")
        return RowReader(selector, default, closed_world=closed_world, refuse_misspelt=True)

    def give_back(self, query: Query, reader: RowReader) -> None:
        """Keeps what has read a table for the next one like it; the oldest makes room.

        One that has seen very many columns is not kept: it remembers each of them.
        """
        if len(reader.ignored) <= _MOST_COLUMNS:
            self._idle.append((query, reader))
            del self._idle[:-_MOST_IDLE]


def _flag(query: Query, name: str) -> bool:
    value = query.get(name, "false")
    if value not in ("true", "false"):
        raise Problem(422, "PARAMETER", f'{name} "{value[:60]}" is not true or false')
    return value == "true"


def read_batch(call: Call, data: bytes, reader: RowReader, limits: Limits) -> Batch:
    """The table in a body.

    Raises:
        Problem: it cannot be read, or has too many rows.
    """
    if call.media == ARROW:
        return _read_arrow(data, reader, limits)
    if call.media in (JSON, ""):
        rows = _read_array(data, limits)
        return Batch(len(rows), JSON, _array(rows, reader))
    if data.count(b"\n") > 2 * limits.batch_rows:  # before as many objects are made
        _check_rows(data.count(b"\n"), limits)
    lines = [(n, line) for n, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    _check_rows(len(lines), limits)
    return Batch(len(lines), call.media, _lines(lines, reader, limits))


def _read_array(data: bytes, limits: Limits) -> list[bytes]:
    """The rows of an array; those of one shape are read strictly once.

    Raises:
        Problem: it is no array of objects, or has too many.
    """
    try:
        rows = [bytes(row) for row in msgspec.json.decode(data, type=list[msgspec.Raw])]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        read_body(data, list[dict[str, Any]], limits.depth)  # says what is wrong
        raise
    _check_rows(len(rows), limits)
    seen: set[bytes] = set()
    for number, row in enumerate(rows, 1):
        shape = shape_of(row)
        if shape not in seen:
            try:
                read_body(row, dict[str, Any], limits.depth - 1)
            except Problem as problem:
                detail = f"row {number}: {problem.detail}"
                raise Problem(problem.status, problem.code, detail) from None
            if len(seen) < _MOST_SHAPES:
                seen.add(shape)
    return rows


def _check_rows(count: int, limits: Limits) -> None:
    if count > limits.batch_rows:
        raise Problem(413, "TOO_MANY_ROWS", f"the table has more than {limits.batch_rows:,} rows")


def _array(rows: Sequence[bytes], reader: RowReader) -> Iterator[bytes]:
    lines, before = Lines(reader), "["
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = enumerate(rows[start : start + _ROWS_AT_ONCE], start + 1)
        texts = [lines.answer(row, number)[0] for number, row in some]
        yield (before + ",\n".join(texts)).encode("ascii")
        before = ",\n"
    yield b"]\n" if rows else b"[]\n"


def _lines(rows: list[tuple[int, bytes]], reader: RowReader, limits: Limits) -> Iterator[bytes]:
    lines = Lines(reader, partial(_row, limits))
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        texts = [lines.answer(line, number)[0] for number, line in some]
        yield ("\n".join(texts) + "\n").encode("ascii")


def _row(limits: Limits, line: bytes, number: int) -> dict[str, Any] | BadLine:
    if is_deeper(line, limits.depth):
        return BadLine(number, f"line {number} is nested more than {limits.depth} deep")
    row = read_line(line, number)
    if isinstance(row, dict) and (twice := said_twice(line)) is not None:
        return BadLine(number, f'line {number} says "{twice}" twice in one object')
    return row


# -- Arrow ---------------------------------------------------------------------------------------


def _read_arrow(data: bytes, reader: RowReader, limits: Limits) -> Batch:
    """The table in an Arrow stream.

    Raises:
        Problem: it is none, or pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        detail = "Arrow streams are not read here: pip install 'attnsel[parquet]'"
        raise Problem(415, "MEDIA_TYPE", detail) from None
    try:
        with pyarrow.ipc.open_stream(pyarrow.BufferReader(data)) as stream:
            batches, rows = [], 0
            for batch in stream:
                batch.validate(full=True)  # offsets that point elsewhere crash what reads them
                rows += batch.num_rows
                _check_rows(rows, limits)
                batches.append(batch)
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        first = str(error).splitlines()[0][:120] if str(error) else type(error).__name__
        raise Problem(400, "NOT_ARROW", f"the body is no Arrow stream: {first}") from None
    return Batch(rows, ARROW, _tables(pyarrow, stream.schema, batches, reader))


def _tables(arrow: Any, schema: Any, batches: list[Any], reader: RowReader) -> Iterator[bytes]:
    """Yields an Arrow stream: the rows' own columns, and beside them those of their answers.

    The text of answers is encoded as a dictionary.
    """
    from selector.tables.answers import ANSWER_COLUMNS
    from selector.tables.batch import TableReader, encoded_types

    own = schema.names
    names = [*(kept_name(name, own) for name in own), *ANSWER_COLUMNS]
    types = [*schema.types, *encoded_types().values()]
    answered = arrow.schema(zip(names, types, strict=True))
    table, sink = TableReader(reader), io.BytesIO()
    writer = arrow.ipc.new_stream(sink, answered)
    for batch in batches:
        for start in range(0, batch.num_rows, _ARROW_ROWS):
            for piece in table.answer(batch.slice(start, _ARROW_ROWS)):
                columns = [*piece.rows.columns, *map(piece.encoded, ANSWER_COLUMNS)]
                writer.write_batch(arrow.RecordBatch.from_arrays(columns, schema=answered))
                yield _drained(sink)
    writer.close()
    yield _drained(sink)


def _drained(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
