"""What the page for operators shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "operators.md").read_text("utf-8")
SHOWN = re.findall(r"^    \$ attnsel (.+)\n((?:    .*\n|\n(?=    [^$]))+)", PAGE, re.MULTILINE)


def test_every_command_is_found() -> None:
    assert len(SHOWN) == PAGE.count("$ attnsel ") >= 5
    assert all(command.startswith("preflight ") for command, _ in SHOWN)


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command[:60] for command, _ in SHOWN])
def test_it_says_what_is_shown(
    command: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in re.findall(r"```text (\S+)\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "110"})
    first = [line.removeprefix("    ") for line in shown.rstrip("\n").split("\n")]
    assert ran.stdout.split("\n")[: len(first)] == first
    starts = "will not start" not in shown and command.count("--print") == 0
    assert ran.exit_code in ((0,) if starts and "json" not in command else (0, 3))
