"""The terminal: what to print where, in colour or not, and how wide."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TextIO

from selector.report.text import Line, paint, visible
from selector.report.wording import Places

__all__ = ["complain", "note", "places", "show", "show_json", "width"]

_NARROWEST = 60
_PIPED = 110


def show(lines: Iterable[Line], *, whole: bool = False) -> None:
    """Prints lines, wrapped; in colour on a terminal.

    Args:
        lines: what to print.
        whole: other programs read it: wrap only on a terminal.
    """
    _forgive(sys.stdout)
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    limit = None if whole and piped else width()
    sys.stdout.write(paint(lines, width=limit, color=_colored(sys.stdout)))


def _here() -> Path:
    """The working directory; the root where it no longer exists."""
    try:
        return Path.cwd()
    except OSError:
        return Path(os.sep)


def show_json(value: Any) -> None:
    """Prints one JSON document."""
    from selector.report.data import json_text

    sys.stdout.write(json_text(value, ascii_only=not _is_unicode(sys.stdout)))


def complain(words: str) -> None:
    """Says what is wrong, on one line of stderr."""
    _forgive(sys.stderr)
    here = f"{_here()}{os.sep}"
    sys.stderr.write(f"attnsel: {visible(words).strip().replace(here, '')}\n")


def note(words: str) -> None:
    """Says what is going on, on one line of stderr."""
    _forgive(sys.stderr)
    sys.stderr.write(f"{visible(words).strip()}\n")


def places(*files: str) -> Places:
    """How files are named: as seen from the working folder, where that is shorter."""
    return Places({file: _short(file) for file in files})


def _short(file: str) -> str:
    path = Path(file)
    if not path.is_absolute():
        return file
    try:
        return str(path.relative_to(_here()))
    except (ValueError, OSError):
        return file


def _colored(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def width() -> int:
    """The terminal's width, or what ``COLUMNS`` says; that of a wide terminal when piped."""
    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return _PIPED if piped else max(_NARROWEST, shutil.get_terminal_size().columns)


def _is_unicode(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "").startswith("utf")


def _forgive(stream: TextIO) -> None:
    """A terminal that cannot show a character shows a question mark instead of a traceback."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
