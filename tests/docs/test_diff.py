"""What the page on `diff` shows is what happens; line numbers change with the manifests."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "diff.md").read_text("utf-8")
SHOWN = re.findall(r"^    \$ attnsel (.+)\n((?:    .*\n|\n(?=    [^$]))+)", PAGE, re.MULTILINE)


def plain(text: str) -> str:
    """Text without line numbers."""
    return re.sub(r":\d+", ":N", " ".join(text.split()))


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_it_says_what_is_shown(command: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    ran = CliRunner().invoke(app, shlex.split(command), env={"COLUMNS": "110"})
    begun, cut, _ = shown.partition("\n    …\n")
    said = plain(ran.stdout)
    assert said.startswith(plain(begun)) if cut else said == plain(begun)
    assert ran.exit_code == (4 if "--as-claimed" in command else 0)


def test_every_command_is_found() -> None:
    assert len(SHOWN) == PAGE.count("$ attnsel ") == 2
