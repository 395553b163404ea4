"""What the page on verdicts shows is what happens; counts change with the manifests."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "verify.md").read_text("utf-8")
SHOWN = re.findall(r"^    \$ attnsel (.+)\n((?:    .+\n|\n(?=    [^$]))+)", PAGE, re.MULTILINE)


def plain(text: str) -> str:
    """Text without long numbers and line numbers."""
    return re.sub(r"\d\.\d × 10\^\d+|\d[\d,]{4,}|:\d+", "N", " ".join(text.split()))


def test_every_command_is_found() -> None:
    assert len(SHOWN) == PAGE.count("$ attnsel ") >= 3


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command[:60] for command, _ in SHOWN])
def test_it_says_what_is_shown(
    command: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(command)) == (1 if "--as-claimed" in command else 0)
    said = plain(capsys.readouterr().out)
    for line in shown.splitlines():
        if line.strip() != "…":
            assert plain(line) in said
