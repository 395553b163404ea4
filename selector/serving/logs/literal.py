"""Python-like text of a log: pairs, lists and strings, as far as they can be read.

Nothing is evaluated; what is cut off or not understood is left out, and nothing raises.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

__all__ = [
    "one_blank",
    "read_data",
    "read_pairs",
    "read_plain",
    "read_strings",
    "split_outside",
    "until_closed",
]

_BRACKET = re.compile(r"[\[\](){}]")
_OPEN = "([{"
_STRING = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""", re.DOTALL)
_PAIR = re.compile(r"""[\s.…]*['"]?(-{0,2}[A-Za-z_][\w.-]{0,80})['"]?\s*[=:]\s*(?![=:])""")
_ENUM = re.compile(r"<([\w.]{1,120}):\s*(.{1,200}?)>$", re.DOTALL)
_NESTED = re.compile(r"(?!DeviceCap)[\w.]{0,80}\((?=\s*[A-Za-z_]\w{0,80}\s*=)")

_CALL = re.compile(r"\w{1,80}Config\((?=.{0,65536}\)$)", re.DOTALL)
_NAMED = re.compile(r"(?:\w{1,80}\.){0,6}\w{0,60}Backend\w{0,20}\.(\w{1,80})|torch\.(\w{1,40})")

_LONGEST_DATA = 65_536
_MOST_PAIRS = 400
_DEEPEST = 3


def one_blank(text: str) -> str:
    """The text on one line, with one blank wherever there were several."""
    return " ".join(text.split())


def until_closed(text: str) -> tuple[str, int | None]:
    """What stands before the bracket that closes ``text``, and where that bracket is.

    The text begins inside the bracket. The place is ``None`` when nothing closes it.
    """
    depth = 0
    for found in _BRACKET.finditer(text):
        if found[0] in _OPEN:
            depth += 1
        elif depth == 0:
            return text[: found.start()], found.start()
        else:
            depth -= 1
    return text, None


def split_outside(text: str, separator: str) -> Iterator[str]:
    """The parts of a text between separators that are in no bracket and in no string."""
    depth, start, quote = 0, 0, ""
    pattern = re.compile(rf"""[\[\](){{}}'"\\{re.escape(separator)}]""")
    skip = -1
    for found in pattern.finditer(text):
        mark, at = found[0], found.start()
        if at == skip:
            continue
        if mark == "\\":
            skip = at + 1
        elif quote:
            quote = "" if mark == quote else quote
        elif mark in "'\"":
            before = text[at - 1 : at] if at else ""
            quote = "" if before.isalnum() else mark  # FlashInfer's
        elif mark in _OPEN:
            depth += 1
        elif mark in ")]}":
            depth = max(depth - 1, 0)
        elif depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]


def read_strings(text: str) -> list[str]:
    """The strings of a list such as ``'a', "b's"``; one that is cut off is the last."""
    plain = text.replace("\\'", "'").replace('\\"', '"')
    found: list[str] = []
    end = 0
    for match in _STRING.finditer(plain):
        found.append(match[1] if match[1] is not None else match[2])
        end = match.end()
    rest = plain[end:].lstrip(" \t\n,")
    if rest[:1] in ("'", '"'):
        found.append(rest[1:])
    return found


def read_pairs(text: str, deepest: int = _DEEPEST) -> dict[str, str]:
    """Names and the text of their values, from ``a=1, b=None`` or ``'a': 1, b: None``.

    A value that is a call with names of its own, ``Dims(a=1)``, gives those names too. Of a name
    that stands twice the first is kept.
    """
    pairs: dict[str, str] = {}
    for part in split_outside(text, ","):
        found = _PAIR.match(part)
        if not found:
            continue
        value = part[found.end() :].strip()
        if value in ("", "...", "…"):
            continue
        nested = _NESTED.match(value)
        if nested and deepest:
            inner, _ = until_closed(value[nested.end() :])
            for name, told in read_pairs(inner, deepest - 1).items():
                pairs.setdefault(name, told)
        pairs.setdefault(found[1], value)
        if len(pairs) >= _MOST_PAIRS:
            break
    return pairs


def read_plain(text: str) -> str | int | bool | None:
    """The value a text stands for: quotes and enum wrappings gone, ``None`` and numbers read."""
    told = text.strip()
    enum = _ENUM.match(told)
    if enum:
        quoted = enum[2].strip()[:1] in ("'", '"') and "." not in enum[2]  # a name, not a class
        told = enum[2].strip() if quoted else enum[1]
    if len(told) > 1 and told[0] in "'\"" and told[-1] == told[0]:
        return told[1:-1]
    if told in ("True", "False"):
        return told == "True"
    if told == "None":
        return None
    return int(told) if re.fullmatch(r"-?[0-9]{1,18}", told) else told


def read_data(text: str) -> Any:
    """The value a text stands for, lists and mappings too: ``{'a': 1}``, ``Config(a=1, b=None)``.

    What an object holds that is ``None`` is left out; an enum of backends is its name.
    """
    told = text.strip()
    call = _CALL.match(told)
    if call:
        return _read_mapping(told[call.end() : -1])
    if told[:1] in ("{", "["):
        try:
            return ast.literal_eval(told[:_LONGEST_DATA])
        except (ValueError, SyntaxError, RecursionError, MemoryError, TypeError):
            return _read_mapping(told[1:-1]) if told[0] == "{" else None
    value = read_plain(told)
    if isinstance(value, str) and (named := _NAMED.fullmatch(value)):
        return named[1] or named[2]
    return value


def _read_mapping(text: str) -> dict[str, Any]:
    held = {name: read_data(told) for name, told in read_pairs(text, deepest=0).items()}
    return {name: value for name, value in held.items() if value is not None}
