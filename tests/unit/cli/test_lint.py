from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from selector.schema import load_schema

from .conftest import SMALL, Run

WRONG = """\
attnsel: 1
name: wrong
version: 2.10
backends:
\t- name: x
"""


@pytest.fixture
def wrong(tmp_path: Path) -> Path:
    file = tmp_path / "wrong.yaml"
    file.write_text(
        SMALL.read_text("utf-8").replace('version: "1"', "version: 2.10\nnom: x"), "utf-8"
    )
    return file


def test_a_clean_manifest(run: Run) -> None:
    ran = run("lint", SMALL)
    assert ran.code == 0
    assert ran.out == "No problems in small.yaml.\n"


def test_the_shipped_manifest_is_the_default_and_is_named(run: Run) -> None:
    ran = run("lint")
    assert ran.code == 0
    assert "capabilities.yaml" in ran.out


def test_findings_show_their_line_and_mark_the_place(run: Run, wrong: Path) -> None:
    ran = run("lint", wrong)
    assert ran.code == 1
    assert ran.out == (
        f"{wrong}:4:10: CAP005 2.10 is read as the number 2.1\n"
        "      |\n"
        "    4 | version: 2.10\n"
        "      |          ^\n"
        '      = write "2.10"\n'
        "\n"
        f'{wrong}:5:1: CAP003 unknown key "nom"\n'
        "      |\n"
        "    5 | nom: x\n"
        "      | ^\n"
        "      = did you mean name?\n"
        "\n"
        "Found 2 errors in 1 file.\n"
    )


def test_several_files_one_of_them_unreadable(run: Run, wrong: Path, tmp_path: Path) -> None:
    ran = run("lint", SMALL, wrong, tmp_path / "missing.yaml")
    assert ran.code == 2
    assert "missing.yaml: no such file or directory" in ran.complaint
    assert "Found 2 errors in 2 files." in ran.out


def test_json_is_what_the_schema_says(run: Run, wrong: Path) -> None:
    ran = run("lint", wrong, "--format", "json")
    assert ran.code == 1
    Draft202012Validator(load_schema("finding")).validate(ran.json)
    assert [(f["line"], f["code"]) for f in ran.json] == [(4, "CAP005"), (5, "CAP003")]
    for finding in ran.json:
        Draft202012Validator(load_schema("finding")).validate(finding)
    assert run("lint", SMALL, "--format", "json").json == []


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"", "CAP001"),
        (bytes(range(256)), "CAP007"),
        (b"\xef\xbb\xbfattnsel: 1\n", "CAP007"),
        (b"a: \x00\n", "CAP007"),
        (WRONG.encode(), "CAP001"),
        (b"a: &a [*a]\n", "CAP006"),
        (b"[" * 5000, "CAP006"),
    ],
)
def test_whatever_is_in_the_file(run: Run, tmp_path: Path, content: bytes, code: str) -> None:
    file = tmp_path / "odd.yaml"
    file.write_bytes(content)
    ran = run("lint", file)
    assert ran.code == 1
    assert ran.err == ""
    assert f" {code} " in ran.out
    assert max(len(line) for line in ran.out.splitlines()) < 300


def test_stdin(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(WRONG.encode())))
    ran = run("lint", "-")
    assert ran.code == 1
    assert ran.out.startswith("<stdin>:")


def test_the_mark_stands_under_its_place_in_long_and_wide_lines(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    start = SMALL.read_text("utf-8")
    file.write_text(f'{start}description: {{"漢字": {"x" * 300}, "y": 012}}\n', "utf-8")
    ran = run("lint", file)
    lines = ran.out.splitlines()
    at = next(i for i, line in enumerate(lines) if "CAP005 012" in line)
    shown, mark = lines[at + 2], lines[at + 3]
    assert "…" in shown
    assert shown[mark.index("^") :].startswith("012")
