"""``attnsel batch``: every row of a table gets its answer."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cli.exits import Exit
from cli.options import Arch, AsClaimed, ClosedWorld, ManifestOption, OverlayOption
from selector.errors import AttnselError

if TYPE_CHECKING:
    from selector.rows import RowReader
    from selector.values import Model

_CHUNK_ROWS = 4096


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
    print(
        f"attnsel: {counts['rows']:,} rows, {counts['none']:,} without a backend, "
        f"{counts['errors']:,} with an error",
        file=sys.stderr,
    )
    if reader.ignored:
        names = ", ".join(sorted(reader.ignored))
        print(f"attnsel: columns passed through unread: {names}", file=sys.stderr)


def _read(file: str) -> Iterator[dict[str, Any] | BadLine]:
    if file == "-":
        yield from _read_jsonl(sys.stdin.buffer)
        return
    path = Path(file)
    if path.suffix == ".parquet":
        yield from _read_parquet(path)
        return
    with path.open("rb") as stream:
        yield from _read_jsonl(stream)


def _read_jsonl(stream: Iterable[bytes]) -> Iterator[dict[str, Any] | BadLine]:
    for number, line in enumerate(stream, 1):
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
    except arrow.ArrowException as error:
        first = str(error).splitlines()[0]
        raise UnreadableFileError(f"{path} is not readable Parquet: {first[:80]}") from None


def _write(rows: Iterable[dict[str, Any]], out: Path | None) -> None:
    if out is not None and out.suffix == ".parquet":
        _write_parquet(rows, out)
        return
    with contextlib.ExitStack() as stack:
        stream = sys.stdout if out is None else stack.enter_context(out.open("w", encoding="utf-8"))
        for row in rows:
            stream.write(json.dumps(row, ensure_ascii=False, default=str) + "\n")


def _write_parquet(rows: Iterable[dict[str, Any]], out: Path) -> None:
    arrow = _arrow()
    writer: Any = None
    schema: Any = None
    try:
        for chunk in _chunks(rows):
            table = arrow.Table.from_pylist(chunk, schema=schema or _schema(arrow, chunk))
            if writer is None:
                schema = table.schema
                writer = arrow.parquet.ParquetWriter(out, schema)
            writer.write_table(table)
    except (arrow.ArrowException, TypeError) as error:
        raise UnreadableFileError(
            f"{out} cannot hold these rows, whose columns differ in type: {str(error)[:80]}; "
            "write .jsonl instead"
        ) from None
    finally:
        if writer is not None:
            writer.close()


def _schema(arrow: Any, chunk: list[dict[str, Any]]) -> Any:
    """The columns of the first chunk; answers have fixed types, whatever the chunk holds."""
    text = dict.fromkeys(
        ("decode_backend", "prefill_backend", "prefill_path", "phase", "rejections", "error"),
        arrow.string(),
    )
    lists = dict.fromkeys(("missing", "conditions"), arrow.list_(arrow.string()))
    fixed = {**text, **lists}
    columns = dict.fromkeys(k for row in chunk for k in row)
    inferred = arrow.Table.from_pylist([{k: r.get(k) for k in columns} for r in chunk]).schema
    return arrow.schema([arrow.field(k, fixed.get(k, inferred.field(k).type)) for k in columns])


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
