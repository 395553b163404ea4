"""Lines of a log without what others put around them: colours, envelopes, prefixes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

import msgspec

__all__ = ["LONGEST_LINE", "Line", "clean_line", "number_lines"]

LONGEST_LINE = 1 << 20
"""What is beyond so many characters of a line is not read."""

_COLOUR = re.compile(
    r"\x1b(?:\[[0-?]{0,40}[ -/]{0,4}[@-~]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?|[@-Z\\-_])"
    r"|(?:\^\[|\\x1b|\\u001b|\\033|\\e|#033)\[[0-9;]{0,40}[mK]"
)
_TIME = r"[T\ ]\d\d:\d\d(?::\d\d)?(?:[.,]\d{1,9})?"
_STAMP = rf"\d{{4}}-\d\d-\d\d(?:{_TIME})?(?:Z|\ ?[+-]\d\d:?\d\d|\ UTC)?"
_PREFIX = re.compile(
    rf"""
      \s+
    | \((?P<tag>[A-Za-z][\w.:/-]{{0,60}}\ pid=\d{{1,12}})[^()\n]{{0,80}}\):?
    | \[?(?P<rank>rank\d{{1,5}})\]?:
    | \[\d{{1,5}},\d{{1,5}}\]<std(?:err|out)>:
    | \[?{_STAMP}\]?(?=\s|$)
    | \[?\d\d[-/]\d\d\ \d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?\]?
    | \[?\d\d:\d\d:\d\d(?:[.,]\d{{1,9}})?\]?(?=\s|$)
    | (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\ {{1,2}}\d{{1,2}}\ \d\d:\d\d:\d\d
      \ [\w.-]{{1,100}}\ [\w./@-]{{1,100}}(?:\[\d{{1,12}}\])?:
    | std(?:out|err)\ (?P<part>[FP])(?=\s|$)
    | \[?(?P<level>DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|TRACE)\]?:?(?=[\s\[]|$)
    | \[[\w./<>-]{{1,120}}:\d{{1,7}}\]:?
    | [\w./-]{{1,120}}\.py:\d{{1,7}}\]
    | \[(?:pod|container)/[^\]\s]{{1,200}}\]
    | [\w.-]{{1,64}}\ {{0,20}}\|(?=\s|$)
    | [│┃|>](?=\s|$)
    | E(?=\s{{2}})
    """,
    re.VERBOSE,
)
_MOST_PREFIXES = 16
_EDGES = ("│", "┃")
_MESSAGES = ("log", "message", "msg", "MESSAGE", "text", "textPayload", "body", "line", "event")


class Line(NamedTuple):
    """One line of a log, cleaned.

    Attributes:
        number: the line it was read at, from 1.
        text: what was written, without prefix and colours.
        tag: the process that wrote it, ``EngineCore_0 pid=123`` or ``rank3``; empty: not said.
        level: its level, in capitals; empty: not said.
        partial: whether a shipper says that the next line goes on in the middle of a word.
        before: whether a blank may stand before the text, beyond the prefix.
        after: whether a blank stands behind it.
    """

    number: int
    text: str
    tag: str = ""
    level: str = ""
    partial: bool = False
    before: bool = False
    after: bool = False


_MOST_PARTS = 4096
"""So many lines can be written into one; the rest is one."""


def number_lines(text: str | Iterable[str]) -> Iterator[tuple[int, str]]:
    """Each line with its number, from 1, without its end; long ones are cut.

    Args:
        text: a whole log, or its lines, which may keep their ends; one may hold several.
    """
    number = blank = 0
    for chunk in (text,) if isinstance(text, str) else text:
        start, size = 0, len(chunk)
        while start < size:
            end = chunk.find("\n", start)
            end = size if end < 0 else end
            number += 1
            blank = blank + 1 if end - start < 2 else 0
            if blank < 4:  # of more blank lines in a row, three are enough
                yield number, chunk[start : min(end, start + LONGEST_LINE)]
            start = end + 1
        if not size:
            number += 1


@lru_cache(4)  # a line is looked at again with the next two
def clean_line(number: int, raw: str) -> list[Line]:
    """The lines that a line of a log holds: a JSON envelope can hold several."""
    found: list[Line] = []
    text, partial = _open_envelope(_COLOUR.sub("", raw).rstrip("\r"))
    parts = re.split(r"[\r\n]+|\\n", text.rstrip("\r\n"), maxsplit=_MOST_PARTS)
    for place, part in enumerate(parts):
        found.append(_strip(number, part, partial and place == len(parts) - 1))
    return found


def _strip(number: int, text: str, partial: bool) -> Line:
    """One line without its prefix."""
    at, tag, level = 0, "", ""
    for _ in range(_MOST_PREFIXES):
        found = _PREFIX.match(text, at)
        if not found:
            break
        at = found.end()
        tag = found["tag"] or found["rank"] or tag
        level = found["level"] or level
        partial = partial or found["part"] == "P"
    bare = text[at:]
    if bare.rstrip().endswith(_EDGES):
        bare = bare.rstrip()[:-1].rstrip()
    stripped = text[:at].rstrip()
    return Line(
        number,
        bare.rstrip(),
        tag,
        "WARNING" if level == "WARN" else level,
        partial,
        before=at - len(stripped) > bool(stripped),
        after=bare != bare.rstrip(),
    )


def _open_envelope(text: str) -> tuple[str, bool]:
    """The message in a JSON object, which may have a time before it; else the text as it is."""
    start = text.find("{", 0, 120)
    if start < 0 or not text.rstrip().endswith("}") or not _before_json(text[:start]):
        return text, False
    try:
        held = msgspec.json.decode(text[start:].encode("utf-8", "replace"))
    except (msgspec.DecodeError, ValueError, RecursionError):
        return text, False
    message = _message_of(held)
    if message is None:
        return text, False
    docker = isinstance(held, dict) and "log" in held and "stream" in held
    return _COLOUR.sub("", message), docker and not message.endswith("\n")


def _before_json(text: str) -> bool:
    """Whether nothing but prefixes stands there."""
    at = 0
    while found := _PREFIX.match(text, at):
        at = found.end()
    return at == len(text)


def _message_of(held: object, depth: int = 2) -> str | None:
    if not isinstance(held, dict):
        return None
    for name in _MESSAGES:
        if isinstance(held.get(name), str):
            return str(held[name])
    if depth:
        for value in held.values():
            if (found := _message_of(value, depth - 1)) is not None:
                return found
    return None
