"""``attnsel batch`` on Parquet: the lines that JSON gives, types kept, a bar on terminals only."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from cli.progress import Progress
from selector.tables.answers import ANSWER_COLUMNS

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

LAYER: dict[str, Any] = {"arch": "9.0", "mla": False, "dtype": "bfloat16", "phase": "warm-up"}


def rows(number: int) -> list[dict[str, Any]]:
    """Rows of a few layers, some of them with an error, each with its number."""
    archs = ("9.0", "12.0", "x", "8.0")
    return [
        LAYER | {"id": n, "arch": archs[n % 4], "head_size": 64 * (1 + n % 5)} | lengths(n)
        for n in range(number)
    ]


def lengths(n: int) -> dict[str, Any]:
    return {"query_len": None if n % 7 == 0 else 1 + n % 9, "seq_len": 5 + n % 11}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """200 rows in row groups of 30, with small types and a column of nothing."""
    table = arrow.Table.from_pylist(rows(200))
    table = table.set_column(0, "arch", table["arch"].dictionary_encode())
    table = table.append_column("little", arrow.array([n % 3 for n in range(200)], arrow.int8()))
    table = table.append_column("nothing", arrow.nulls(200))
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=30)
    return tmp_path / "rows.parquet"


def test_parquet_and_json_lines_give_the_same_lines(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = tmp_path / "rows.jsonl"
    read = parquet.read_table(file).to_pylist()
    lines.write_text("".join(json.dumps(row) + "\n" for row in read), "utf-8")
    assert main(["batch", str(lines)]) == 1
    wanted = capsys.readouterr()
    assert main(["batch", str(file)]) == 1
    found = capsys.readouterr()
    assert found.out == wanted.out
    assert found.err == wanted.err
    assert [json.loads(line)["id"] for line in found.out.splitlines()] == [*range(200)]
    assert "200 rows" in found.err
    assert "63 with an error" in found.err


def test_parquet_keeps_the_types_of_its_columns(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.parquet"
    assert main(["batch", str(file), "--out", str(out)]) == 1
    capsys.readouterr()
    assert main(["batch", str(file)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    table = parquet.read_table(out)
    assert table.schema.field("little").type == arrow.int8()
    assert table.schema.field("nothing").type == arrow.string()
    assert table.schema.field("input_phase").type == arrow.string()
    assert table.schema.field("conditions").type == arrow.list_(arrow.string())
    assert {table.schema.field(n).type for n in ("rejections", "phase")} == {arrow.string()}
    assert table.schema.names == [*lines[0]]
    for row, line in zip(table.to_pylist(), lines, strict=True):
        flat = line["rejections"]
        assert row == line | {"rejections": None if flat is None else json.dumps(flat)}


@pytest.mark.parametrize("size", [7, 30, 50, 200])
def test_row_groups_are_read_some_at_a_time(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    asked: list[list[int]] = []
    iter_batches = parquet.ParquetFile.iter_batches

    def counted(self: Any, rows: int, row_groups: list[int]) -> Any:
        asked.append(row_groups)
        return iter_batches(self, rows, row_groups=row_groups)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", counted)
    monkeypatch.setattr("cli.batch._BATCH_ROWS", size)
    out = tmp_path / "out.parquet"
    assert main(["batch", str(file), "--out", str(out)]) == 1
    assert parquet.read_table(out)["id"].to_pylist() == [*range(200)]
    assert [group for groups in asked for group in groups] == [*range(7)]
    assert max(map(len, asked)) == -(-size // 30)


def test_text_is_encoded_for_readers_only_where_the_input_encodes_it(tmp_path: Path) -> None:
    columns = {name: arrow.array([LAYER[name]] * 9) for name in ("arch", "mla", "dtype")}
    columns["dtype"] = columns["dtype"].dictionary_encode()
    file = tmp_path / "rows.parquet"
    parquet.write_table(arrow.table(columns), file)
    assert main(["batch", str(file), "--out", str(file)]) == 0
    schema = parquet.read_schema(file)
    assert schema.field("dtype").type == columns["dtype"].type
    assert {schema.field(n).type for n in ("arch", "rejections", "error")} == {arrow.string()}


def test_a_column_that_begins_with_nulls_is_no_obstacle(tmp_path: Path) -> None:
    """Its type is that of the file, not of its first rows."""
    number = 5000
    ids = arrow.array([None] * (number - 1) + [7])
    columns = {name: arrow.array([LAYER[name]] * number) for name in ("arch", "mla", "dtype")}
    parquet.write_table(arrow.table({**columns, "late": ids}), tmp_path / "rows.parquet")
    out = tmp_path / "out.parquet"
    assert main(["batch", str(tmp_path / "rows.parquet"), "--out", str(out)]) == 0
    assert parquet.read_table(out)["late"].to_pylist()[-1] == 7


def test_rows_without_columns_are_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parquet.write_table(arrow.table({"id": [1, 2]}), tmp_path / "rows.parquet")
    assert main(["batch", str(tmp_path / "rows.parquet"), "--arch", "sm90"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["id"], second["id"]) == (1, 2)
    assert [*first] == ["id", *ANSWER_COLUMNS]


# -- the bar -------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    """Text that is shown to somebody."""

    def isatty(self) -> bool:
        return True


def shown_on_a_terminal(*arguments: str) -> str:
    """What the command shows on stderr."""
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stderr", terminal)
        patch.setattr("cli.progress._EVERY_S", 0)
        main(["batch", *arguments])
    return terminal.getvalue()


def test_a_terminal_sees_rows_their_share_and_their_speed(file: Path) -> None:
    shown = shown_on_a_terminal(str(file), "--out", str(file.with_name("out.parquet")))
    *steps, end = shown.split("\r\x1b[K")
    assert [*filter(None, steps)]
    for step in filter(None, steps):
        assert re.fullmatch(r"\[[# ]{30}\] +\d+%  [\d,]+ rows, [\d,]+ rows/s", step)
    assert "[##############################] 100%  200 rows" in steps[-1]
    assert end.startswith("attnsel: 200 rows, ")


def test_where_the_number_of_rows_is_unknown_no_share_is_shown(
    tmp_path: Path,
) -> None:
    lines = tmp_path / "rows.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows(9)), "utf-8")
    shown = shown_on_a_terminal(str(lines), "--out", str(tmp_path / "out.jsonl"))
    *steps, _ = shown.split("\r\x1b[K")
    assert all(re.fullmatch(r"[\d,]+ rows, [\d,]+ rows/s", step) for step in steps if step)
    assert any(steps)


def test_the_bar_is_not_redrawn_for_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setattr("cli.progress._EVERY_S", 3600)
    with Progress() as progress:
        for number in range(1000):
            progress.show(number)
    assert terminal.getvalue() == "\r\x1b[K"


def test_elsewhere_nothing_is_shown(capsys: pytest.CaptureFixture[str], file: Path) -> None:
    main(["batch", str(file), "--out", str(file.with_name("out.parquet"))])
    assert capsys.readouterr().err.startswith("attnsel: 200 rows, ")
