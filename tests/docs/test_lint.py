"""What the page about lint shows is what comes out."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from selector.lint import rules

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "lint.md").read_text("utf-8")
GOOD = (ROOT / "tests/manifests/good/smallest.yaml").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def run(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str]:
    from cli.main import main

    words = shlex.split(line, comments=True)
    assert words[0] == "attnsel"
    capsys.readouterr()
    code = main(words[1:])
    said = capsys.readouterr()
    assert code != 2, said.err
    return code, said.out


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("capabilities.yaml", "manifests/a.yaml", "engines/b/c.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(GOOD, "utf-8")
    return tmp_path


def test_the_first_example(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = GOOD.replace('version: "1"', "version: 2.10").replace("mla: false", "mla: no")
    (folder / "ours.yaml").write_text(wrong, "utf-8")
    code, out = run(capsys, "attnsel lint ours.yaml")
    assert code == 1
    shown = PAGE.split("    $ attnsel lint ours.yaml\n")[1].split("\n\n[`rules.md`]")[0]
    assert [line.removeprefix("    ") for line in shown.splitlines()] == out.splitlines()


def test_the_commands_run(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay = "attnsel: 1\noverlay: ours\n"
    lines = re.findall(r"^    (attnsel lint .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 7
    for line in lines:
        (folder / "ours.yaml").write_text(overlay if "--overlay" in line else GOOD, "utf-8")
        if " - " in line:
            import io
            import sys

            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(GOOD.encode())))
        run(capsys, line)


def test_the_rules_that_mend_are_listed() -> None:
    table = PAGE.split("| is mended by |")[1].split("\n\n")[0]
    assert {*re.findall(r"CAP\d+", table)} == {rule.code for rule in rules() if rule.fix}


def test_the_hook_and_the_action_are_as_they_are_called() -> None:
    hook = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))[0]
    action = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
    texts = [yaml.safe_load(text) for text in blocks("yaml")[:2]]
    assert texts[0]["repos"][0]["hooks"] == [{"id": hook["id"]}]
    step = texts[1]["jobs"]["manifests"]["steps"][1]
    assert step["with"].keys() <= action["inputs"].keys()
    for name in ("paths", "args", "format", "upload", "version", "exit-code"):
        assert f"`{name}" in PAGE
        assert name in {**action["inputs"], **action["outputs"]}


def test_the_schemas_that_editors_are_told_are_there() -> None:
    [settings] = map(json.loads, blocks("json"))
    for schema in settings["yaml.schemas"]:
        assert (ROOT / schema).is_file()


def test_the_library_is_used_as_shown(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "capabilities.yaml").write_text(f"{GOOD}nom: x\n", "utf-8")
    [code] = blocks("python")
    exec(compile(code, "page", "exec"), {})
    assert ": CAP003 " in capsys.readouterr().out


def test_the_rooms_are_there() -> None:
    table = PAGE.split("## Rooms")[1]
    for name in re.findall(
        r"`((?:selector|cli)/[\w/]+\.py)`",
        table.replace("capNNN_name", "cap901_unused_suppression"),
    ):
        assert (ROOT / name).is_file(), name
