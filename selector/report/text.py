"""Lines of styled text, aligned and wrapped; colour is added last, and only when asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import NamedTuple

__all__ = [
    "BLANK",
    "GLUE",
    "Line",
    "Piece",
    "Style",
    "bad",
    "faint",
    "fenced",
    "good",
    "grid",
    "joined",
    "line",
    "markdown_table",
    "paint",
    "strong",
    "visible",
    "warn",
]


class Style(StrEnum):
    """What a piece of text means; the value is its ANSI code."""

    PLAIN = ""
    STRONG = "1"
    FAINT = "2"
    BAD = "31"
    GOOD = "32"
    WARN = "33"


class Piece(NamedTuple):
    """Text in one style."""

    text: str
    style: Style = Style.PLAIN


class Line(NamedTuple):
    """Pieces on one line; when it must be wrapped, what follows starts at column ``hang``.

    Where that leaves too little room, it starts at ``margin``.
    """

    pieces: tuple[Piece, ...] = ()
    hang: int = 0
    margin: int = 4

    @property
    def width(self) -> int:
        """Characters on the line, before wrapping."""
        return sum(len(p.text) for p in self.pieces)


BLANK = Line()

GLUE = "\u00a0"
"""A space at which no line is broken; it is printed as a plain one."""

Part = str | Piece | Line


def strong(text: object) -> Piece:
    """What the eye should find first."""
    return Piece(str(text), Style.STRONG)


def faint(text: object) -> Piece:
    """What is there for those who look for it."""
    return Piece(str(text), Style.FAINT)


def good(text: object) -> Piece:
    """What works."""
    return Piece(str(text), Style.GOOD)


def bad(text: object) -> Piece:
    """What does not."""
    return Piece(str(text), Style.BAD)


def warn(text: object) -> Piece:
    """What depends on something, or is switched off."""
    return Piece(str(text), Style.WARN)


def line(*parts: Part, hang: int = 0, margin: int = 4) -> Line:
    """One line from text, pieces and other lines."""
    return Line(tuple(_pieces(parts)), hang, margin)


def _pieces(parts: Iterable[Part]) -> Iterator[Piece]:
    for part in parts:
        if isinstance(part, Line):
            yield from part.pieces
        elif isinstance(part, Piece):
            yield part
        else:
            yield Piece(part)


def joined(parts: Iterable[Part], between: str = " · ") -> Line:
    """Parts with a separator between them."""
    pieces: list[Part] = []
    for part in parts:
        pieces += [between, part] if pieces else [part]
    return line(*pieces)


def grid(rows: Sequence[Sequence[Part]], indent: int = 0, gap: int = 3) -> list[Line]:
    """Rows with their columns aligned; the last column is not padded, and wraps under itself."""
    cells = [[line(part) for part in row] for row in rows]
    columns = zip_longest(*(row[:-1] for row in cells), fillvalue=BLANK)
    widths = [max(cell.width for cell in column) for column in columns]
    return [_row(row, widths, indent, gap) for row in cells]


def _row(cells: Sequence[Line], widths: Sequence[int], indent: int, gap: int) -> Line:
    parts: list[Part] = [" " * indent]
    start = indent
    second = indent + widths[0] + gap if len(cells) > 2 else 4
    for cell, width in zip(cells[:-1], widths, strict=False):
        parts += [cell, " " * (width + gap - cell.width)]
        start += width + gap
    return line(*parts, cells[-1], hang=start, margin=second)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[Line]:
    """A table that renders on any forge."""
    body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    lines = [line("| ", " | ".join(head), " |"), line("| ", " | ".join("---" for _ in head), " |")]
    return [*lines, *(line("| ", " | ".join(row), " |") for row in body)]


def fenced(lines: Iterable[Line]) -> list[Line]:
    """Lines as a block that markdown shows as they are."""
    return [line("```text"), *lines, line("```")]


# Terminals act on control characters, and readers are misled by text that changes direction:
# neither may come out of a document.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def visible(text: str) -> str:
    """The text on one line, with everything that a terminal would act on spelled out."""
    lines = re.split(r"[\r\n]+", text) if "\n" in text or "\r" in text else [text]
    flat = (" ".join(part.strip() for part in lines) if len(lines) > 1 else text).replace("\t", " ")
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", flat)


def paint(lines: Iterable[Line], *, width: int | None = None, color: bool = False) -> str:
    """The lines as one text, ending in a newline.

    Args:
        lines: what to show.
        width: longest line, in characters; words are never broken, nor what :data:`GLUE` joins.
            ``None``: one line each.
        color: mark styles with ANSI codes.
    """
    shown: list[str] = []
    for one in lines:
        cleaned = [Piece(visible(p.text), p.style) for p in one.pieces]
        rows = [cleaned] if width is None else _wrapped(cleaned, one, width)
        shown += [_painted(row, color).replace(GLUE, " ").rstrip() for row in rows]
    return "".join(f"{row}\n" for row in shown)


def _painted(row: Iterable[Piece], color: bool) -> str:
    """The pieces as text; neighbours of one style share their codes."""
    runs: list[Piece] = []
    for piece in row:
        if runs and (runs[-1].style is piece.style or not piece.text.strip()):
            runs[-1] = Piece(runs[-1].text + piece.text, runs[-1].style)
        else:
            runs.append(piece)
    if not color:
        return "".join(run.text for run in runs)
    return "".join(_coded(run) for run in runs)


def _coded(run: Piece) -> str:
    text = run.text.rstrip()
    if run.style is Style.PLAIN or not text:
        return run.text
    return f"\x1b[{run.style}m{text}\x1b[0m{run.text[len(text) :]}"


def _wrapped(pieces: Iterable[Piece], whole: Line, width: int) -> list[list[Piece]]:
    """Rows of pieces, broken at spaces only; a word longer than the width stands alone."""
    most = width * 2 // 3
    narrow = min(whole.margin, whole.hang) if whole.margin <= most else min(4, whole.hang)
    hang = whole.hang if whole.hang <= most else narrow
    rows: list[list[Piece]] = [[]]
    used, filled = 0, False
    for word in _words(pieces):
        length = sum(len(p.text) for p in word)
        blank = not word[0].text.strip()
        if used + length > width and filled and not blank:
            margin = hang if hang + length <= width else narrow
            rows.append([Piece(" " * margin)])
            used, filled = margin, False
        rows[-1] += word
        used, filled = used + length, filled or not blank
    return rows


def _words(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    """Runs of pieces between which a line may be broken."""
    word: list[Piece] = []
    for piece in pieces:
        for part in re.findall(r" +|[^ ]+", piece.text):
            space = part.startswith(" ")
            if word and space != word[0].text.startswith(" "):
                yield word
                word = []
            word.append(Piece(part, piece.style))
    if word:
        yield word
