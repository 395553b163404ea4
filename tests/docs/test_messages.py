"""What the page on messages shows is among what the command says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from cli.main import main

PAGE = (Path(__file__).parents[2] / "docs" / "messages.md").read_text("utf-8")
SHOWN = re.findall(r"^    \$ attnsel (.+)\n((?:    .+\n)+)", PAGE, re.MULTILINE)
WISHES = dict(re.findall(r"^\| (E\d\d) .*\| (met|partly|no) \|$", PAGE, re.MULTILINE))


def test_each_wish_has_its_part() -> None:
    parts = dict(re.findall(r"^## (E\d\d): .*\n\n((?:(?!^## ).*\n)*)", PAGE, re.MULTILINE))
    assert parts.keys() == WISHES.keys()
    for wish, answer in WISHES.items():
        assert parts[wish].startswith("No: ") is (answer == "no"), wish
        assert answer == "no" or "$ attnsel" in parts[wish], wish
    assert len(SHOWN) == PAGE.count("$ attnsel ")


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command[:40] for command, _ in SHOWN])
def test_the_command_says_so(
    command: str, shown: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert main(shlex.split(command)) in (0, 2, 3)
    said = " ".join("".join(capsys.readouterr()).split())
    for line in shown.splitlines():
        assert " ".join(line.split()) in said
