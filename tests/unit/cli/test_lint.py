from __future__ import annotations

import io
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from selector.schema import load_schema

from .conftest import Run

SMALLEST = Path(__file__).parents[2] / "manifests" / "good" / "smallest.yaml"
GOOD = SMALLEST.read_text("utf-8")

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
    file.write_text(GOOD.replace('version: "1"', "version: 2.10\nnom: x"), "utf-8")
    return file


def test_a_clean_manifest(run: Run) -> None:
    ran = run("lint", SMALLEST)
    assert ran.code == 0
    assert ran.out == f"No problems in {SMALLEST}.\n"


def test_the_shipped_manifest_is_the_default_and_is_named(run: Run) -> None:
    ran = run("lint")
    assert ran.code == 0
    assert "capabilities.yaml" in ran.out


def test_findings_show_their_line_and_mark_the_place(run: Run, wrong: Path) -> None:
    ran = run("lint", wrong)
    assert ran.code == 1
    assert ran.out == (
        f"{wrong}:3:10: CAP005 2.10 is read as the number 2.1\n"
        "      |\n"
        "    3 | version: 2.10\n"
        "      |          ^\n"
        '      = write "2.10"\n'
        "\n"
        f'{wrong}:4:1: CAP003 unknown key "nom"\n'
        "      |\n"
        "    4 | nom: x\n"
        "      | ^\n"
        "      = did you mean name?\n"
        "\n"
        "Found 2 errors in 1 file.\n"
        "1 finding can be mended with --fix.\n"
    )


def test_several_files_one_of_them_unreadable(run: Run, wrong: Path, tmp_path: Path) -> None:
    ran = run("lint", SMALLEST, wrong, tmp_path / "missing.yaml")
    assert ran.code == 2
    assert "missing.yaml: no such file or directory" in ran.complaint
    assert "Found 2 errors in 2 files." in ran.out


def test_json_is_what_the_schema_says(run: Run, wrong: Path) -> None:
    ran = run("lint", wrong, "--format", "json")
    assert ran.code == 1
    Draft202012Validator(load_schema("finding")).validate(ran.json)
    assert [(f["line"], f["code"]) for f in ran.json] == [(3, "CAP005"), (4, "CAP003")]
    for finding in ran.json:
        Draft202012Validator(load_schema("finding")).validate(finding)
    assert run("lint", SMALLEST, "--format", "json").json == []


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
    start = GOOD
    file.write_text(f'{start}description: {{"漢字": {"x" * 300}, "y": 012}}\n', "utf-8")
    ran = run("lint", file)
    lines = ran.out.splitlines()
    at = next(i for i, line in enumerate(lines) if "CAP005 012" in line)
    shown, mark = lines[at + 2], lines[at + 3]
    assert "…" in shown
    assert shown[mark.index("^") :].startswith("012")


# -- exit codes ----------------------------------------------------------------------------------


NOTED = f"%YAML 1.1\n---\n{GOOD}"


@pytest.fixture
def folder(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with a clean manifest."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD, "utf-8")
    return tmp_path


def test_errors_and_warnings_are_exit_1_and_notes_alone_are_0(run: Run, folder: Path) -> None:
    assert run("lint", "good.yaml").code == 0
    (folder / "noted.yaml").write_text(NOTED, "utf-8")
    ran = run("lint", "noted.yaml")
    assert ran.code == 0
    assert "Found 1 note in 1 file.\n" in ran.out
    (folder / "warned.yaml").write_text(f"{GOOD}# attnsel: ignore\n", "utf-8")
    ran = run("lint", "warned.yaml", "noted.yaml")
    assert ran.code == 1
    assert "Found 1 warning and 1 note in 2 files.\n" in ran.out
    assert run("lint", "warned.yaml", "--ignore", "CAP9").code == 0
    assert run("lint", "warned.yaml", "--select", "CAP901, CAP1").code == 0


def test_the_help_says_the_exit_codes(run: Run) -> None:
    shown = run("lint", "--help").out
    assert "0  nothing is wrong, or there are only notes\n" in shown
    assert "1  there are errors or warnings" in shown
    assert "2  wrong use, a file that cannot be read, or no file at all\n" in shown


@pytest.mark.parametrize("what", ["empty", "nothing*.yaml", "*/"])
@pytest.mark.parametrize("form", ["text", "json", "github", "sarif"])
def test_nothing_to_check_is_never_taken_for_nothing_wrong(
    run: Run, folder: Path, what: str, form: str
) -> None:
    (folder / "empty").mkdir()
    ran = run("lint", what, "--format", form)
    assert ran.code == 2
    assert ran.complaint == f"0 files checked: {what}: no manifest is there"
    assert "No problems" not in ran.out


def test_an_empty_name_is_not_the_working_folder(run: Run, folder: Path) -> None:
    ran = run("lint", "")
    assert ran.code == 2
    assert ran.complaint == "0 files checked: an empty name: no manifest is there"


def test_a_folder_is_checked_and_a_part_that_is_empty_is_told(run: Run, folder: Path) -> None:
    ran = run("lint", ".")
    assert (ran.code, ran.out) == (0, "No problems in good.yaml.\n")
    ran = run("lint", ".", "none*")
    assert ran.code == 2
    assert ran.complaint == "none*: no manifest is there"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--select", "CAP991"], 'code that begins with "CAP991"; did you mean CAP901?'),
        (["--ignore", "CAP901,CAP9x"], 'no rule has a code that begins with "CAP9x"'),
        (["--select", ""], "--select names no code"),
        (["--select", " , "], "--select names no code"),
        (["--format", "xml"], '"xml"'),
        (["--statistics", "--format", "sarif"], "written as text or json, not sarif"),
        (["--overlay", "none.yaml"], "none.yaml: no such file or directory"),
    ],
)
def test_wrong_use(run: Run, folder: Path, arguments: list[str], said: str) -> None:
    ran = run("lint", "good.yaml", *arguments)
    assert ran.code == 2
    assert said in ran.complaint


# -- forms ---------------------------------------------------------------------------------------


def test_every_form_tells_the_same_findings(run: Run, wrong: Path) -> None:
    assert [f["code"] for f in run("lint", wrong, "--format", "json").json] == ["CAP005", "CAP003"]
    log = run("lint", wrong, "--format", "sarif").json["runs"][0]
    assert [result["ruleId"] for result in log["results"]] == ["CAP005", "CAP003"]
    lines = run("lint", wrong, "--format", "github").out.splitlines()
    assert [line.split("title=")[1][:6] for line in lines[:2]] == ["CAP005", "CAP003"]
    assert lines[2:] == ["Found 2 errors in 1 file.", "1 finding can be mended with --fix."]


def test_addresses_are_relative_to_the_working_folder(run: Run, folder: Path) -> None:
    (folder / "a b.yaml").write_text(f"{GOOD}nom: x\n", "utf-8")
    log = run("lint", folder / "a b.yaml", "--format", "sarif").json["runs"][0]
    place = log["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "a%20b.yaml"}
    line = run("lint", folder / "a b.yaml", "--format", "github").out
    assert line.startswith("::error file=a b.yaml,line=")


def test_statistics(run: Run, wrong: Path) -> None:
    shown = run("lint", wrong, "--statistics").out.splitlines()
    assert [line.split()[:2] for line in shown[:2]] == [["1", "CAP003"], ["1", "CAP005"]]
    assert shown[2] == "Found 2 errors in 1 file."
    counted = run("lint", wrong, "--statistics", "--format", "json").json
    assert [(row["code"], row["count"]) for row in counted] == [("CAP003", 1), ("CAP005", 1)]
    assert all(row["name"] for row in counted)


def test_files_come_in_one_order_whatever_the_order_of_arguments(run: Run, folder: Path) -> None:
    for name in ("c.yaml", "a.yaml", "b.yaml"):
        (folder / name).write_text(f"{GOOD}nom: x\n", "utf-8")
    ran = run("lint", "c.yaml", "a.yaml", "b.yaml", "a.yaml")
    assert ran.out == run("lint", "a.yaml", "b.yaml", "c.yaml").out
    assert [line[:6] for line in ran.out.splitlines() if "CAP003" in line] == [
        *("a.yaml", "b.yaml", "c.yaml")
    ]


# -- mending -------------------------------------------------------------------------------------


WRONG_TWICE = GOOD.replace('version: "1"', "version: 1.0").replace("mla: false", "mla: no")
MENDED = GOOD.replace('version: "1"', 'version: "1.0"')


def given(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_fix_mends_in_place(run: Run, folder: Path) -> None:
    file = folder / "a.yaml"
    file.write_text(WRONG_TWICE, "utf-8")
    file.chmod(0o640)
    ran = run("lint", "a.yaml", "good.yaml", "--fix")
    assert ran.code == 0
    assert ran.out == "Mended 2 findings.\nNo problems in 2 files.\n"
    assert file.read_text("utf-8") == MENDED
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert sorted(path.name for path in folder.iterdir()) == ["a.yaml", "good.yaml"]


def test_fix_tells_what_is_left(run: Run, folder: Path) -> None:
    (folder / "a.yaml").write_text(f"{WRONG_TWICE}nom: x\n", "utf-8")
    ran = run("lint", "a.yaml", "--fix")
    assert ran.code == 1
    assert "CAP003" in ran.out
    assert "Mended 2 findings.\nFound 1 error in 1 file.\n" in ran.out
    assert (folder / "a.yaml").read_text("utf-8") == f"{MENDED}nom: x\n"


def test_fix_leaves_right_files_and_links_alone(run: Run, folder: Path) -> None:
    (folder / "a.yaml").write_text(WRONG_TWICE, "utf-8")
    (folder / "link.yaml").symlink_to("a.yaml")
    before = (folder / "good.yaml").stat()
    assert run("lint", "link.yaml", "good.yaml", "--fix").code == 0
    assert (folder / "link.yaml").is_symlink()
    assert (folder / "a.yaml").read_text("utf-8") == MENDED
    after = (folder / "good.yaml").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)


def test_fix_that_cannot_write_loses_nothing(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.yaml").write_text(WRONG_TWICE, "utf-8")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device", "a.yaml")

    monkeypatch.setattr("os.replace", refuse)
    ran = run("lint", "a.yaml", "--fix")
    assert ran.code == 2
    assert ran.complaint == "a.yaml: no space left on device"
    assert (folder / "a.yaml").read_text("utf-8") == WRONG_TWICE
    assert sorted(path.name for path in folder.iterdir()) == ["a.yaml", "good.yaml"]


def test_fix_leaves_alone_what_is_read_only(run: Run, folder: Path) -> None:
    file = folder / "a.yaml"
    file.write_text(WRONG_TWICE, "utf-8")
    file.chmod(0o444)
    ran = run("lint", "a.yaml", "--fix")
    assert ran.code == 2
    assert ran.complaint == "a.yaml: cannot be mended, as it is read-only"
    assert file.read_text("utf-8") == WRONG_TWICE


def test_fix_names_the_file_where_its_folder_cannot_be_written(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "a.yaml").write_text(WRONG_TWICE, "utf-8")

    def refuse(path: Path, _: bytes) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "write_bytes", refuse)
    ran = run("lint", "a.yaml", "--fix")
    assert ran.code == 2
    assert ran.complaint == "a.yaml: permission denied"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="root only gives away")
def test_fix_keeps_the_owner(run: Run, folder: Path) -> None:
    file = folder / "a.yaml"
    file.write_text(WRONG_TWICE, "utf-8")
    os.chown(file, 65534, 65533)
    assert run("lint", "a.yaml", "--fix").code == 0
    assert (file.stat().st_uid, file.stat().st_gid) == (65534, 65533)


def test_fix_leaves_pipes_alone(run: Run, folder: Path) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=(WRONG_TWICE,))
    writer.start()
    ran = run("lint", pipe, "--fix")
    writer.join()
    assert ran.code == 2
    assert ran.complaint.endswith("pipe: cannot be mended, as it is no ordinary file")


def test_diff_shows_what_fix_would_do(run: Run, folder: Path) -> None:
    file = folder / "a.yaml"
    file.write_text(WRONG_TWICE.rstrip("\n"), "utf-8")
    ran = run("lint", "a.yaml", "good.yaml", "--diff")
    assert ran.code == 1
    assert '\n-version: 1.0\n+version: "1.0"\n' in ran.out
    assert ran.err == "Mended 2 findings.\nNo problems in 2 files.\n".replace(
        "Mended", "Would mend"
    )
    assert file.read_text("utf-8") == WRONG_TWICE.rstrip("\n")
    subprocess.run(["patch", "-p0", "-s"], input=ran.out, text=True, cwd=folder, check=True)
    assert file.read_text("utf-8") == MENDED.rstrip("\n")
    ran = run("lint", "a.yaml", "--diff")
    assert (ran.code, ran.out, ran.err) == (0, "", "No problems in a.yaml.\n")


def test_stdin_is_mended_to_stdout(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(f"{WRONG_TWICE}nom: x\n", monkeypatch)
    ran = run("lint", "-", "--fix", "--stdin-filename", "manifests/ours.yaml")
    assert ran.code == 1
    assert ran.out == f"{MENDED}nom: x\n"
    assert ran.err.startswith("manifests/ours.yaml:")
    assert "CAP003" in ran.err
    given(GOOD, monkeypatch)
    assert run("lint", "-", "--fix").out == GOOD
    given("\x00 not a manifest", monkeypatch)
    ran = run("lint", "-", "--fix")
    assert (ran.code, ran.out) == (1, "\x00 not a manifest")


def test_stdin_has_a_name(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given(f"{GOOD}nom: x\n", monkeypatch)
    ran = run("lint", "--stdin-filename", "x/y.yaml")
    assert ran.code == 1
    assert ran.out.startswith("x/y.yaml:")
    given(f"{GOOD}nom: x\n", monkeypatch)
    ran = run("lint", "-", "good.yaml")
    assert "Found 1 error in 2 files." in ran.out


def test_overlays_are_mended_where_there_is_one_manifest(run: Run, folder: Path) -> None:
    overlay = folder / "ours.yml"
    text = "attnsel: 1\noverlay: ours  # attnsel: ignore[CAP102] why\n"
    overlay.write_text(text, "utf-8")
    (folder / "b.yaml").write_text(GOOD, "utf-8")
    ran = run("lint", "good.yaml", "b.yaml", "--overlay", "ours.yml", "--fix")
    assert ran.code == 1
    assert "Found 1 warning in 2 files.\n" in ran.out
    assert overlay.read_text("utf-8") == text
    assert run("lint", "good.yaml", "--overlay", "ours.yml", "--fix").code == 0
    assert overlay.read_text("utf-8") == "attnsel: 1\noverlay: ours\n"
