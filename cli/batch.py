"""``attnsel batch``: every row of a table gets its answer."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple, TextIO

import typer

from cli.exits import Exit
from cli.options import Arch, AsClaimed, ClosedWorld, ManifestOption, OverlayOption
from selector.errors import AttnselError

if TYPE_CHECKING:
    from selector.rows import RowReader
    from selector.values import Model

_CHUNK_ROWS = 4096
_LONGEST_LINE = 4 << 20


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
    from selector.binding import Selector
    from selector.devices import find_device
    from selector.rows import RowReader

    selector = Selector.load(manifest, overlays=overlay or (), as_claimed=as_claimed)
    default = find_device(arch) if arch else None
    reader = RowReader(selector, default, closed_world=closed_world, load=_load)
    counts = {"rows": 0, "errors": 0, "none": 0}
    answers = _counted(_answers(reader, _read(file)), counts)
    _write(answers, out)
    _summarise(reader, counts)
    if counts["errors"]:
        raise typer.Exit(Exit.FINDINGS)


class BadLine(NamedTuple):
    """A line that is no row."""

    number: int
    error: str


def _load(reference: str) -> Model:
    """The model a row names: a preset or a file, never standard input, where rows may come from."""
    from selector.models import load_model

    if reference == "-":
        raise UnreadableFileError('a row\'s model cannot be "-"; name a preset or a file')
    return load_model(reference)


def _answers(
    reader: RowReader, rows: Iterable[dict[str, Any] | BadLine]
) -> Iterator[dict[str, Any]]:
    from selector.rows import ANSWER_COLUMNS

    for row in rows:
        if isinstance(row, BadLine):
            yield {"line": row.number} | dict.fromkeys(ANSWER_COLUMNS) | {"error": row.error}
        else:
            yield reader.answer(row)


def _counted(rows: Iterable[dict[str, Any]], counts: dict[str, int]) -> Iterator[dict[str, Any]]:
    for row in rows:
        counts["rows"] += 1
        if row.get("error"):
            counts["errors"] += 1
        elif row.get("missing"):
            counts["none"] += 1
        yield row


def _summarise(reader: RowReader, counts: dict[str, int]) -> None:
    from selector.report.text import visible

    print(
        f"attnsel: {counts['rows']:,} rows, {counts['none']:,} without a backend, "
        f"{counts['errors']:,} with an error",
        file=sys.stderr,
    )
    if reader.ignored:
        names = visible(", ".join(sorted(reader.ignored)))
        print(f"attnsel: columns passed through unread: {names}", file=sys.stderr)


def _read(file: str) -> Iterator[dict[str, Any] | BadLine]:
    if file == "-":
        if sys.stdin is not None:
            yield from _read_jsonl(sys.stdin.buffer)
        return
    path = Path(file)
    if path.suffix == ".parquet":
        yield from _read_parquet(path)
        return
    with path.open("rb") as stream:
        yield from _read_jsonl(stream)


def _read_jsonl(stream: BinaryIO) -> Iterator[dict[str, Any] | BadLine]:
    for number in itertools.count(1):
        line = stream.readline(_LONGEST_LINE + 1)
        if not line:
            return
        if len(line) > _LONGEST_LINE:
            while line and not line.endswith(b"\n"):
                line = stream.readline(_LONGEST_LINE)
            yield BadLine(number, f"line {number} is longer than {_LONGEST_LINE:,} bytes")
            continue
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield BadLine(number, f"line {number} is not JSON: {_problem(error)}")
            continue
        if isinstance(row, dict):
            yield row
        else:
            yield BadLine(number, f"line {number} is not a JSON object")


def _problem(error: Exception) -> str:
    column = f" at column {error.colno}" if isinstance(error, json.JSONDecodeError) else ""
    words = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
    return f"{words[:1].lower()}{words[1:80]}{column}"


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UnreadableFileError(
            "Parquet needs pyarrow, which is not installed; run: pip install 'attnsel[parquet]'"
        ) from None
    return pyarrow


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    arrow = _arrow()
    with path.open("rb"):
        pass  # an OSError names the file better than Arrow does
    try:
        with arrow.parquet.ParquetFile(path) as table:
            for batch_ in table.iter_batches(_CHUNK_ROWS):
                yield from batch_.to_pylist()
    except (arrow.ArrowException, ValueError) as error:  # values that Python does not hold
        first = str(error).splitlines()[0]
        raise UnreadableFileError(f"{path} is not readable Parquet: {first[:80]}") from None


def _write(rows: Iterable[dict[str, Any]], out: Path | None) -> None:
    """Writes the answers; a file is put in place when it is whole, so input may be output."""
    if out is None:
        _write_jsonl(rows, sys.stdout)
        return
    if out.exists() and not out.is_file():  # a device or a pipe has no place to be put
        with out.open("w", encoding="ascii") as stream:
            _write_jsonl(rows, stream)
        return
    if out.suffix not in (".jsonl", ".ndjson", ".json", ".parquet"):
        raise UnreadableFileError(f"--out {out} is neither .jsonl nor .parquet")
    part = out.with_name(f".{out.name}.{os.getpid()}.part")
    try:
        if out.suffix == ".parquet":
            _write_parquet(rows, part, out)
        else:
            with part.open("w", encoding="ascii") as stream:
                _write_jsonl(rows, stream)
        os.replace(part, out)
    finally:
        part.unlink(missing_ok=True)


def _write_jsonl(rows: Iterable[dict[str, Any]], stream: TextIO) -> None:
    for row in rows:
        stream.write(json.dumps(row, default=str) + "\n")


def _write_parquet(rows: Iterable[dict[str, Any]], part: Path, out: Path) -> None:
    arrow = _arrow()
    writer: Any = None
    schema: Any = None
    try:
        for chunk in _chunks(rows):
            if writer is None:
                schema = _schema(arrow, chunk)
                writer = arrow.parquet.ParquetWriter(part, schema)
            late = sorted({name for row in chunk for name in row} - {*schema.names})
            if late:
                raise TypeError(f"column {late[0]} first appears after row {_CHUNK_ROWS:,}")
            writer.write_table(arrow.Table.from_pylist(chunk, schema=schema))
        if writer is None:
            raise TypeError("there are no rows")
    except (arrow.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        raise UnreadableFileError(
            f"{out} cannot hold these rows as columns: {str(error)[:80]}; write .jsonl instead"
        ) from None
    finally:
        if writer is not None:
            writer.close()


def _schema(arrow: Any, chunk: list[dict[str, Any]]) -> Any:
    """The columns of the first chunk; answers have fixed types, whatever the chunk holds."""
    from selector.rows import ANSWER_COLUMNS

    lists = dict.fromkeys(("candidates", "missing", "conditions"), arrow.list_(arrow.string()))
    numbers = dict.fromkeys(("num_decodes", "decode_threshold"), arrow.int64())
    fixed = {**dict.fromkeys(ANSWER_COLUMNS, arrow.string()), **lists, **numbers}
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
