"""Tables of questions: a JSON array, JSON lines or an Arrow stream, answered in the same form.

The whole table is read before the first answer goes out, so that a table which is refused is
refused as a whole; answers then go out piece by piece, in the order of the rows.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from selector.devices import find_device
from selector.live import Snapshot
from selector.service.bodies import is_deeper, read_body
from selector.service.calls import JSON, Call
from selector.service.limits import Limits
from selector.service.problems import Problem
from selector.tables.lines import BadLine, Written, answered, read_line
from selector.tables.rows import RowReader, kept_name

__all__ = ["ARROW", "FORMS", "LINES", "Batch", "read_batch", "reader_of"]

LINES = "application/jsonl"
ARROW = "application/vnd.apache.arrow.stream"
FORMS = (JSON, LINES, "application/x-ndjson", ARROW)

_ROWS_AT_ONCE = 1024
_ARROW_ROWS = 1 << 15


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


def reader_of(snapshot: Snapshot, query: dict[str, str]) -> RowReader:
    """What reads rows; a row's model is a preset, never a path.

    Raises:
        UnknownDeviceError: the device of rows that name none is not known.
        Problem: a flag is neither true nor false.
    """
    device = query.get("device")
    default = None if device is None else find_device(device)
    selector = snapshot.claimed if _flag(query, "as_claimed") else snapshot.selector
    return RowReader(selector, default, closed_world=_flag(query, "closed_world"))


def _flag(query: dict[str, str], name: str) -> bool:
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
        rows = read_body(data, list[dict[str, Any]], limits.depth)
        _check_rows(len(rows), limits)
        return Batch(len(rows), JSON, _array(rows, reader))
    if data.count(b"\n") > 2 * limits.batch_rows:  # before as many objects are made
        _check_rows(data.count(b"\n"), limits)
    lines = [(n, line) for n, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    _check_rows(len(lines), limits)
    return Batch(len(lines), call.media, _lines(lines, reader, limits))


def _check_rows(count: int, limits: Limits) -> None:
    if count > limits.batch_rows:
        raise Problem(413, "TOO_MANY_ROWS", f"the table has more than {limits.batch_rows:,} rows")


def _array(rows: Sequence[dict[str, Any]], reader: RowReader) -> Iterator[bytes]:
    written, before = Written(), "["
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        pairs = (answered(reader, row) for row in rows[start : start + _ROWS_AT_ONCE])
        yield (before + ",\n".join(written.line(*pair) for pair in pairs)).encode("ascii")
        before = ",\n"
    yield b"]\n" if rows else b"[]\n"


def _lines(lines: list[tuple[int, bytes]], reader: RowReader, limits: Limits) -> Iterator[bytes]:
    written = Written()
    for start in range(0, len(lines), _ROWS_AT_ONCE):
        rows = (_row(line, n, limits) for n, line in lines[start : start + _ROWS_AT_ONCE])
        pairs = (answered(reader, row) for row in rows)
        yield "".join(f"{written.line(*pair)}\n" for pair in pairs).encode("ascii")


def _row(line: bytes, number: int, limits: Limits) -> dict[str, Any] | BadLine:
    if is_deeper(line, limits.depth):
        return BadLine(number, f"line {number} is nested more than {limits.depth} deep")
    return read_line(line, number)


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
    return Batch(rows, ARROW, _tables(pyarrow, batches, reader))


def _tables(arrow: Any, batches: list[Any], reader: RowReader) -> Iterator[bytes]:
    """Yields an Arrow stream: the rows' own columns, and beside them those of their answers.

    The text of answers is encoded as a dictionary.
    """
    from selector.tables.answers import ANSWER_COLUMNS
    from selector.tables.batch import TableReader

    table, sink, writer = TableReader(reader), io.BytesIO(), None
    for batch in batches:
        for start in range(0, batch.num_rows, _ARROW_ROWS):
            for piece in table.answer(batch.slice(start, _ARROW_ROWS)):
                own = piece.rows.schema.names
                names = [*(kept_name(name, own) for name in own), *ANSWER_COLUMNS]
                columns = [*piece.rows.columns, *map(piece.encoded, ANSWER_COLUMNS)]
                rows = arrow.RecordBatch.from_arrays(columns, names=names)
                if writer is None:
                    writer = arrow.ipc.new_stream(sink, rows.schema)
                writer.write_batch(rows)
                yield _drained(sink)
    if writer is not None:
        writer.close()
        yield _drained(sink)


def _drained(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
