"""``attnsel batch``: every row of a table gets its answer."""

from __future__ import annotations

import itertools
import json
import os
import sys
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Protocol, TextIO

import typer

from cli.exits import Exit
from cli.options import Arch, AsClaimed, ClosedWorld, Gpu, ManifestOption, OverlayOption
from cli.progress import Progress
from selector.errors import AttnselError

if TYPE_CHECKING:
    from selector.tables.batch import Answers
    from selector.tables.lines import BadLine
    from selector.tables.rows import RowReader
    from selector.values import Model

_CHUNK_ROWS = 4096
_BATCH_ROWS = 1 << 15
_LONGEST_LINE = 4 << 20
_OTHER_TABLES = (".csv", ".tsv", ".xlsx", ".xls", ".feather", ".arrow", ".orc", ".avro", ".gz")


class UnreadableFileError(AttnselError, ValueError):
    """A table cannot be read or written as a whole."""

    code = "UNREADABLE"


def batch(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="JSONL or Parquet, one question a row; - reads JSONL from stdin."
        ),
    ],
    manifest: ManifestOption = None,
    overlay: OverlayOption = None,
    arch: Arch = None,
    gpu: Gpu = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="JSONL or Parquet. Default: JSONL on stdout."),
    ] = None,
    as_claimed: AsClaimed = False,
    closed_world: ClosedWorld = False,
) -> None:
    """Answer every row of a file; a row that cannot be read gets its error, and exit code 1.

    Example: attnsel batch rows.jsonl --arch sm90 --out answers.jsonl
    """
    from cli.asking import named_device
    from selector.binding import Selector
    from selector.tables.rows import RowReader

    _check_kind(file)
    selector = Selector.load(manifest, overlays=overlay or (), as_claimed=as_claimed)
    reader = RowReader(selector, named_device(arch, gpu), closed_world=closed_world, load=_load)
    counts = Counts()
    with Progress() as progress:
        table = ParquetTable if file.endswith(".parquet") else JsonTable
        _write(table(reader, file, counts, progress), out)
    _summarise(reader, counts)
    if counts.errors:
        raise typer.Exit(Exit.FINDINGS)


def _check_kind(file: str) -> None:
    """Refuses tables of a kind that is not read, by their name.

    Raises:
        UnreadableFileError: it is one.
    """
    kind = Path(file).suffix.lower()
    if kind in _OTHER_TABLES:
        raise UnreadableFileError(
            f"{file} is {kind}; a batch is read from JSON lines (.jsonl, one object a row) or "
            "Parquet (.parquet): convert it"
        )


@dataclass
class Counts:
    """How many rows there were, with an error, and without a backend."""

    rows: int = 0
    errors: int = 0
    none: int = 0

    def add(self, answer: Mapping[str, Any], rows: int = 1) -> None:
        """Counts rows that have this answer."""
        self.rows += rows
        if answer.get("error"):
            self.errors += rows
        elif answer.get("missing"):
            self.none += rows


class Table(Protocol):
    """Answered rows, as lines or as columns; each can be read once."""

    def lines(self) -> Iterator[str]:
        """Yields every row as a JSON object."""

    def batches(self) -> Iterator[Any]:
        """Yields all rows as Arrow record batches of one schema."""


def _load(reference: str) -> Model:
    """The model a row names: a preset or a file, never standard input, where rows may come from."""
    from selector.models import load_model

    if reference == "-":
        raise UnreadableFileError('a row\'s model cannot be "-"; name a preset or a file')
    return load_model(reference)


def _summarise(reader: RowReader, counts: Counts) -> None:
    from selector.fields import close_matches
    from selector.report.text import visible
    from selector.report.wording import counted

    print(
        f"attnsel: {counted(counts.rows, 'row')}, {counts.none:,} without a backend, "
        f"{counts.errors:,} with an error",
        file=sys.stderr,
    )
    known = reader.selector.manifest.vocabulary.spellings
    said = []
    for name in sorted(reader.ignored):
        near = close_matches(name, known, 0.85)
        said.append(f"{name} (did you mean {near[0]}?)" if near else name)
    if said:
        print(
            f"attnsel: columns passed through unread: {visible(', '.join(said))}", file=sys.stderr
        )


def _numbered(stream: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yields the lines that say something, with their numbers; of one that is too long, a part."""
    for number in itertools.count(1):
        line = stream.readline(_LONGEST_LINE + 1)
        if not line:
            return
        rest = line
        while len(rest) >= _LONGEST_LINE and not rest.endswith(b"\n"):
            rest = stream.readline(_LONGEST_LINE)
        if line.strip():
            yield line if len(line) > _LONGEST_LINE else line.rstrip(b"\r\n"), number


def _row(line: bytes, number: int) -> dict[str, Any] | BadLine:
    from selector.tables.lines import BadLine, read_line

    if len(line) > _LONGEST_LINE:
        return BadLine(number, f"line {number} is longer than {_LONGEST_LINE:,} bytes")
    return read_line(line, number)


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UnreadableFileError(
            "Parquet needs pyarrow, which is not installed; run: pip install 'attnsel[parquet]'"
        ) from None
    return pyarrow


class JsonTable:
    """The rows of a file of JSON lines, answered one by one."""

    def __init__(self, reader: RowReader, file: str, counts: Counts, progress: Progress) -> None:
        self.reader = reader
        self.file = file
        self.counts = counts
        self.progress = progress

    def lines(self) -> Iterator[str]:
        """Yields every row as a JSON object."""
        from selector.tables.lines import Lines

        lines = Lines(self.reader, _row)
        for line, number in self._read():
            text, answer = lines.answer(line, number)
            self._count(answer)
            yield text

    def batches(self) -> Iterator[Any]:
        """Yields all rows as Arrow record batches, with the columns of the first one."""
        arrow = _arrow()
        schema: Any = None
        for chunk in _chunks(self._rows()):
            schema = schema or _schema(arrow, chunk)
            late = sorted({name for row in chunk for name in row} - {*schema.names})
            if late:
                raise TypeError(f"column {late[0]} first appears after row {_CHUNK_ROWS:,}")
            yield arrow.RecordBatch.from_pylist(chunk, schema=schema)

    def _rows(self) -> Iterator[dict[str, Any]]:
        """Yields each row with its answer."""
        from selector.tables.lines import answered

        for line, number in self._read():
            kept, answer = answered(self.reader, _row(line, number))
            self._count(answer)
            yield kept | answer

    def _count(self, answer: Mapping[str, Any]) -> None:
        self.counts.add(answer)
        self.progress.show(self.counts.rows)

    def _read(self) -> Iterator[tuple[bytes, int]]:
        if self.file == "-":
            if sys.stdin is not None:
                yield from _numbered(sys.stdin.buffer)
            return
        with Path(self.file).open("rb") as stream:
            yield from _numbered(stream)


class ParquetTable:
    """The rows of a Parquet file, answered column by column."""

    def __init__(self, reader: RowReader, file: str, counts: Counts, progress: Progress) -> None:
        self.reader = reader
        self.path = Path(file)
        self.counts = counts
        self.progress = progress

    def lines(self) -> Iterator[str]:
        """Yields every row as a JSON object."""
        from selector.tables.lines import Written

        written = Written()
        for piece in self._pieces():
            rows = self._kept(piece).to_pylist()
            for kept, which in zip(rows, piece.which.tolist(), strict=True):
                yield written.line(kept, piece.different[which])

    def batches(self) -> Iterator[Any]:
        """Yields all rows as Arrow record batches; their own columns keep their types.

        The text of answers is encoded as a dictionary.
        """
        from selector.tables.answers import ANSWER_COLUMNS

        arrow = _arrow()
        for piece in self._pieces():
            kept = self._kept(piece)
            own = [c.cast(arrow.string()) if c.type == arrow.null() else c for c in kept.columns]
            answers = [piece.encoded(name) for name in ANSWER_COLUMNS]
            names = [*kept.schema.names, *ANSWER_COLUMNS]
            yield arrow.RecordBatch.from_arrays([*own, *answers], names=names)

    def _kept(self, piece: Answers) -> Any:
        from selector.tables.rows import kept_name

        names = piece.rows.schema.names
        return piece.rows.rename_columns([kept_name(name, names) for name in names])

    def _pieces(self) -> Iterator[Answers]:
        arrow = _arrow()
        from selector.tables.batch import TableReader

        table = TableReader(self.reader)
        with self.path.open("rb"):
            pass  # an OSError names the file better than Arrow does
        try:
            with arrow.parquet.ParquetFile(self.path) as file:
                self.progress.total = file.metadata.num_rows
                for rows in _batches_of(file):
                    for piece in table.answer(rows):
                        for answer, count in piece.counted():
                            self.counts.add(answer, count)
                        self.progress.show(self.counts.rows)
                        yield piece
        except (arrow.ArrowException, ValueError) as error:  # values that Python does not hold
            first = str(error).splitlines()[0]
            raise UnreadableFileError(
                f"{self.path} is not readable Parquet: {first[:80]}"
            ) from None


def _batches_of(file: Any) -> Iterator[Any]:
    """Yields the rows of a Parquet file; Arrow keeps what it reads until a call is read through."""
    groups: list[int] = []
    rows = 0
    for number in range(file.metadata.num_row_groups):
        groups.append(number)
        rows += file.metadata.row_group(number).num_rows
        if rows >= _BATCH_ROWS:
            yield from file.iter_batches(_BATCH_ROWS, row_groups=groups)
            groups, rows = [], 0
    yield from file.iter_batches(_BATCH_ROWS, row_groups=groups)


def _write(table: Table, out: Path | None) -> None:
    """Writes the answers; a file is put in place when it is whole, so input may be output."""
    if out is None:
        _write_lines(table, sys.stdout)
        return
    if out.exists() and not out.is_file():  # a device or a pipe has no place to be put
        with out.open("w", encoding="ascii") as stream:
            _write_lines(table, stream)
        return
    if out.suffix not in (".jsonl", ".ndjson", ".json", ".parquet"):
        raise UnreadableFileError(f"--out {out} is neither .jsonl nor .parquet")
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        if out.suffix == ".parquet":
            _write_parquet(table, part, out)
        else:
            with part.open("w", encoding="ascii") as stream:
                _write_lines(table, stream)
        os.replace(part, out)
    finally:
        part.unlink(missing_ok=True)


def _write_lines(table: Table, stream: TextIO) -> None:
    for line in table.lines():
        stream.write(line + "\n")


def _write_parquet(table: Table, part: Path, out: Path) -> None:
    arrow = _arrow()
    writer: Any = None
    try:
        for rows in table.batches():
            if writer is None:
                writer = arrow.parquet.ParquetWriter(part, rows.schema, store_schema=False)
                writer.add_key_value_metadata(_as_read(arrow, rows.schema))
            writer.write_batch(rows)
        if writer is None:
            raise TypeError("there are no rows")
    except (arrow.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        raise UnreadableFileError(
            f"{out} cannot hold these rows as columns: {str(error)[:80]}; write .jsonl instead"
        ) from None
    finally:
        if writer is not None:
            writer.close()


def _as_read(arrow: Any, schema: Any) -> dict[bytes, bytes]:
    """What tells a reader the types of the columns; text is text, however it is encoded here."""
    from selector.tables.batch import answer_types

    for name, kind in answer_types().items():
        schema = schema.set(schema.get_field_index(name), arrow.field(name, kind))
    return {**(schema.metadata or {}), b"ARROW:schema": b64encode(schema.serialize())}


def _schema(arrow: Any, chunk: list[dict[str, Any]]) -> Any:
    """The columns of the first chunk; answers have fixed types, whatever the chunk holds."""
    from selector.tables.batch import answer_types

    fixed = answer_types()
    columns = dict.fromkeys(k for row in chunk for k in row)
    inferred = arrow.Table.from_pylist([{k: r.get(k) for k in columns} for r in chunk]).schema
    types = {k: fixed.get(k, inferred.field(k).type) for k in columns}
    nothing = (k for k, kind in types.items() if arrow.types.is_null(kind))
    types |= dict.fromkeys(nothing, arrow.string())  # a column of nulls so far
    return arrow.schema(list(types.items()))


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    chunk: list[dict[str, Any]] = []
    for row in rows:
        flat = dict(row)
        if not isinstance(flat.get("rejections"), str | None):
            flat["rejections"] = json.dumps(flat["rejections"])
        chunk.append(flat)
        if len(chunk) == _CHUNK_ROWS:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
