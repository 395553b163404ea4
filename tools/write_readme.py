"""Writes the worked answer into the README: run after changing ``capabilities.yaml``."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(
    r"(^    \$ (attnsel resolve .*)\n)((?:    .*\n|\n(?=    )|<!--.*-->\n)*)", re.MULTILINE
)


def answer(command: str) -> str:
    """What a command prints on a terminal 110 columns wide."""
    run = subprocess.run(
        command.replace("attnsel", str(Path(sys.executable).with_name("attnsel")), 1),
        shell=True,
        check=True,
        cwd=README.parent,
        env={**os.environ, "COLUMNS": "110"},
        capture_output=True,
        text=True,
    )
    return run.stdout


def block(found: re.Match[str]) -> str:
    """The command and its answer, indented."""
    lines = [f"    {line}".rstrip() for line in answer(found[2]).rstrip().splitlines()]
    return found[1] + "\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    README.write_text(BLOCK.sub(block, README.read_text()))
