"""What broke once, and must not again: lost data, crashes and hangs on odd input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli.main import app

ROW = {
    "arch": "9.0",
    "head_size": 128,
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "attn_type": "decoder",
}


def run(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=stdin)


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_input_may_be_output(tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", ROW, ROW)
    assert run("batch", str(path), "--out", str(path)).exit_code == 0
    assert [json.loads(line)["error"] for line in path.read_text().splitlines()] == [None, None]
    assert [p.name for p in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_missing_input_leaves_the_output_alone(tmp_path: Path) -> None:
    out = lines(tmp_path / "kept.jsonl", {"kept": True})
    assert run("batch", str(tmp_path / "none.jsonl"), "--out", str(out)).exit_code != 0
    assert json.loads(out.read_text()) == {"kept": True}


def test_parquet_loses_no_column_and_leaves_no_part(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    rows = lines(tmp_path / "rows.jsonl", *[ROW] * 4096, {**ROW, "late": 1})
    ran = run("batch", str(rows), "--out", str(tmp_path / "o.parquet"))
    assert ran.exit_code != 0
    assert "late" in str(ran.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("value", ["\ud800", "é\u009b", 10**30], ids=ascii)
def test_odd_values_stop_no_batch(value: object, tmp_path: Path) -> None:
    rows = lines(tmp_path / "rows.jsonl", {**ROW, "note": value}, ROW)
    ran = run("batch", str(rows))
    assert ran.exit_code == 0
    first, second = (json.loads(line) for line in ran.stdout.splitlines())
    assert first["note"] == value
    assert second["error"] is None


def test_a_line_without_end_is_an_error_of_its_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("x" * (5 << 20) + "\n" + json.dumps(ROW) + "\n")
    ran = run("batch", str(path))
    first, second = (json.loads(line) for line in ran.stdout.splitlines())
    assert first["error"] == "line 1 is longer than 4,194,304 bytes"
    assert second["error"] is None


def test_names_of_columns_do_not_steer_a_terminal(tmp_path: Path) -> None:
    ran = run("batch", str(lines(tmp_path / "rows.jsonl", {**ROW, "\x1b[31mred\nline": 1})))
    assert "\x1b" not in ran.stderr
    assert "line" in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["resolve", "--arch", "12.0", "--set", "head_size=128", "--backend", ""],
        ["resolve", "--arch", "12.0", "--set", "torch=" + "1" * 5000],
        ["resolve", " " * 60_000 + "x"],
        ["lint", "--overlay", "/nonexistent.yaml"],
    ],
    ids=["empty-backend", "endless-version", "endless-blanks", "no-overlay"],
)
def test_odd_arguments_end_in_one_line(arguments: list[str]) -> None:
    command = [sys.executable, "-c", "import sys, cli.main; sys.exit(cli.main.main())", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1
    assert "Traceback" not in ran.stderr


def test_the_file_that_is_missing_is_the_file_that_is_named() -> None:
    assert "/nonexistent.yaml: no such file" in run("lint", "--overlay", "/nonexistent.yaml").stderr


def test_long_text_is_not_multiplied_by_aliases(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    aliases = ", ".join(["*s"] * 1000)
    path.write_text(
        f'attnsel: 1\nname: x\nversion: "1"\ndefinitions: {{s: &s "{"A" * 1_000_000}"}}\n'
    )
    with path.open("a") as stream:
        stream.write(f"backends: [{{evidence: [{aliases}]}}]\n")
    assert "CAP006 aliases expand to more than" in run("lint", str(path)).stdout
