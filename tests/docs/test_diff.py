"""What the page on `diff` shows is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app

PAGE = (Path(__file__).parents[2] / "docs" / "diff.md").read_text("utf-8")
SHOWN = re.findall(r"^    \$ attnsel (.+)\n((?:    .*\n|\n(?=    [^$]))+)", PAGE, re.MULTILINE)


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_it_says_what_is_shown(command: str, shown: str) -> None:
    ran = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "110"})
    first = [line.removeprefix("    ") for line in shown.rstrip("\n").split("\n")]
    assert ran.stdout.split("\n")[: len(first)] == first
    assert ran.exit_code == 0


def test_every_command_is_found() -> None:
    assert len(SHOWN) == PAGE.count("$ attnsel ") == 1
