"""Bytes → text, and what is wrong with what is no text or no YAML: where, and in plain words."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

import yaml

from selector.scalars import cut, lacks_space
from selector.values import Severity

__all__ = ["HIDDEN", "LIKE_A_SPACE", "Flaw", "decode", "syntax_flaw"]

HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")
"""What a quoted escape can hide in text: it would steer the terminal that shows it."""

LIKE_A_SPACE = re.compile("[\xa0\u1680\u2000-\u200b\u202f\u205f\u2060\u3000\ufeff]")
"""What looks like a space, or like nothing, and is neither for YAML."""

_NO_TEXT = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]"
)
_NO_LINE_END = re.compile("\r(?!\n)|[\x85\u2028\u2029]")


class Flaw(NamedTuple):
    """What is wrong with a text, and where: line and column count from 1."""

    code: str
    line: int
    column: int
    message: str
    fix: str
    severity: Severity = Severity.ERROR


def decode(raw: bytes) -> tuple[str | None, list[Flaw]]:
    """The text of a file with line feeds at the ends of lines, or ``None``, and what is wrong."""
    flaws: list[Flaw] = []
    if name := _other_encoding(raw):
        return None, [Flaw("CAP007", 1, 1, f"file is {name}", "save it as UTF-8")]
    if raw.startswith(b"\xef\xbb\xbf"):
        message, fix = "file starts with a byte order mark", "save it as UTF-8 without BOM"
        flaws.append(Flaw("CAP007", 1, 1, message, fix))
        raw = raw[3:]
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        seen = f"byte 0x{raw[error.start]:02x} is not UTF-8"
        before = raw[: error.start].decode("utf-8", "replace")
        return None, [*flaws, _flaw(before, seen, "save the file as UTF-8")]
    if bad := _NO_TEXT.search(text):
        seen = f"control character U+{ord(bad[0]):04X} is not text"
        if bad[0] == "\ufeff":
            seen = "byte order mark inside the text"
        return None, [*flaws, _flaw(text[: bad.start()], seen, "remove it")]
    if "\r" in text and "\n" not in text:
        text = text.replace("\r", "\n")
        seen = "lines end with carriage returns only, which few tools take for line ends"
        at = text.index("\n") + 1
        flaws.append(Flaw("CAP007", 1, at, seen, "save it with line feeds", Severity.WARNING))
    if bad := _NO_LINE_END.search(text):
        seen = f"U+{ord(bad[0]):04X} ends a line for some YAML versions and tools only"
        return None, [*flaws, _flaw(text[: bad.start()], seen, "end lines with line feeds")]
    return text, flaws


def _other_encoding(raw: bytes) -> str:
    """The name of another encoding of Unicode that bytes are in, if they are."""
    if raw.startswith((b"\xff\xfe\x00\x00", b"\x00\x00\xfe\xff")):
        return "UTF-32"
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "UTF-16"
    start = raw[:64]
    halves = [start[0::2].count(0), start[1::2].count(0)]
    return "UTF-16" if min(halves) == 0 and max(halves) * 4 > len(start) else ""


def _flaw(before: str, message: str, fix: str) -> Flaw:
    """A flaw of the character behind some text."""
    lines = before.split("\n")
    return Flaw("CAP007", len(lines), len(lines[-1]) + 1, message, fix)


# -- what is no YAML -----------------------------------------------------------------------------


class _Failure(NamedTuple):
    """Where and why the parser stopped: lines and columns from 0.

    Attributes:
        problem: the parser's words.
        context: what it was doing.
        at: where it stopped.
        since: where that began, if anywhere.
        lines: of the text.
        quote: where a quoted text began that goes over lines and ends in the line of ``at``.
    """

    problem: str
    context: str
    at: tuple[int, int]
    since: tuple[int, int] | None
    lines: list[str]
    quote: tuple[int, int] | None = None

    @property
    def seen(self) -> str:
        """The line where it stopped."""
        return self.lines[self.at[0]] if self.at[0] < len(self.lines) else ""

    def flaw(self, place: tuple[int, int], message: str, fix: str, code: str = "CAP001") -> Flaw:
        """A flaw at a line and column that count from 0."""
        return Flaw(code, place[0] + 1, place[1] + 1, message, fix)


def syntax_flaw(error: yaml.YAMLError, text: str) -> Flaw:
    """The parser's complaint, at the place that is wrong and in words that say what to write."""
    failure = _failure(error, text)
    for look in _LOOKS:
        if flaw := look(failure):
            return flaw
    code = "CAP006" if "nesting depth" in failure.problem else "CAP001"
    return failure.flaw(failure.at, failure.problem, "correct the YAML here", code)


def _failure(error: yaml.YAMLError, text: str) -> _Failure:
    mark, since = (getattr(error, f"{kind}_mark", None) for kind in ("problem", "context"))
    problem = str(getattr(error, "problem", None) or error).splitlines()[0]
    context = getattr(error, "context", None) or ""
    if context == "while scanning a simple key":
        mark = since  # the problem shows lines later
    mark = mark or since
    return _Failure(
        problem,
        context,
        (mark.line, mark.column) if mark else (0, 0),
        (since.line, since.column) if since else None,
        text.split("\n"),
        _long_quote(text, mark.line) if mark else None,
    )


def _long_quote(text: str, line: int) -> tuple[int, int] | None:
    """Where the last quoted text before a failure began, if it goes over lines up to this one."""
    found = None
    try:
        for token in yaml.scan(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if token.start_mark.line > line:
                break
            if isinstance(token, yaml.ScalarToken) and token.style in ("'", '"'):
                long = token.start_mark.line < token.end_mark.line == line
                found = (token.start_mark.line, token.start_mark.column) if long else None
    except yaml.YAMLError:
        pass  # what is looked at
    return found


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _tab(failure: _Failure) -> Flaw | None:
    (line, column), seen = failure.at, failure.seen
    indent = _indent(seen)
    at_tab = "\t" in indent or seen[column : column + 1] == "\t"
    if not at_tab and not re.search(r"\btab\b", failure.problem):
        return None
    column = indent.find("\t") if "\t" in indent else column
    return failure.flaw((line, column), "tab used for indentation", "indent with spaces")


def _space(failure: _Failure) -> Flaw | None:
    found = LIKE_A_SPACE.search(failure.seen)
    if found is None:
        return None
    message = f"U+{ord(found[0]):04X} looks like a space and is none"
    return failure.flaw((failure.at[0], found.start()), message, "write a space", "CAP007")


def _no_space(failure: _Failure) -> Flaw | None:
    """A key whose colon has no space behind it: YAML stumbles over what follows."""
    if "':'" in failure.problem and failure.context != "while scanning a simple key":
        return failure.flaw(failure.at, "colon without a space", "put a space after the colon")
    if failure.context != "while scanning a simple key" and failure.problem not in (
        "mapping values are not allowed in this context",
        "did not find expected key",
        "did not find expected '-' indicator",
    ):
        return None
    line = failure.at[0]
    for number in (line, _line_before(failure.lines, line)):
        text = failure.lines[number] if 0 <= number < len(failure.lines) else ""
        said = re.sub(r"^\s*(- +)*", "", text)
        place = (number, len(text) - len(said))
        sign = lacks_space(said)
        if sign == "colon":
            message = "key without a colon and a space"
            return failure.flaw(place, message, "write `key: value`")
        if sign == "dash":
            return failure.flaw(place, "dash without a space", "write `- item`")
    if failure.context == "while scanning a simple key":
        return failure.flaw(failure.at, "key without a colon and a space", "write `key: value`")
    return None


def _line_before(lines: list[str], line: int) -> int:
    """The last line above one that says something."""
    for number in range(min(line, len(lines)) - 1, -1, -1):
        if lines[number].strip() and not lines[number].lstrip().startswith("#"):
            return number
    return -1


def _run_on(failure: _Failure) -> Flaw | None:
    """A quote that is not closed ends at the next one, and what was quoted there is no YAML."""
    if failure.quote is None:
        return None
    line, column = failure.quote
    message = f"quote {failure.lines[line][column]} is not closed before line {failure.at[0] + 1}"
    return failure.flaw(failure.quote, message, "close it")


def _unclosed(failure: _Failure) -> Flaw | None:
    if failure.since is None:
        return None
    line, column = failure.since
    opening = failure.lines[line][column : column + 1] if line < len(failure.lines) else ""
    if failure.context == "while scanning a quoted scalar" and "unexpected" in failure.problem:
        return failure.flaw(failure.since, f"quote {opening} is not closed", "close it")
    closing = {"[": "]", "{": "}"}.get(opening)
    if closing is None or not failure.context.startswith("while parsing a flow"):
        return None
    outside = len(_indent(failure.seen)) <= len(_indent(failure.lines[line]))
    if failure.at[0] > line and outside:
        return failure.flaw(failure.since, f"{opening} is not closed", f"close it with {closing}")
    if failure.problem.startswith("did not find expected ','"):
        message = f"`,` or `{closing}` is missing before this"
        return failure.flaw(failure.at, message, f"the {opening} is on line {line + 1}")
    return None


def _second_colon(failure: _Failure) -> Flaw | None:
    if failure.problem != "mapping values are not allowed in this context":
        return None
    begun = len(_indent(failure.seen))
    if re.search(r":\s", failure.seen[: failure.at[1]]):
        fix = "quote the value, or give the second key its own line"
        return failure.flaw(failure.at, "second colon on one line", fix)
    message = "this is indented below a value that is text"
    return failure.flaw((failure.at[0], begun), message, "indent it as the key above")


def _order(failure: _Failure) -> Flaw | None:
    """What stands where a key or an item is expected."""
    column, seen = failure.at[1], failure.seen
    if failure.problem == "did not find expected key":
        if seen[column : column + 1] == ":":
            message, fix = "no key before the colon", "write `key: value`"
        elif column == len(_indent(seen)):
            message, fix = "this is not indented as the keys above", "indent keys alike"
        else:
            message, fix = "text behind a value", "quote the whole value"
    elif failure.problem == "did not find expected '-' indicator":
        message, fix = "this is not indented as the items above", "indent items alike"
    else:
        return None
    return failure.flaw(failure.at, message, fix)


_WORDS = {
    "found character that cannot start any token": (
        "{} cannot begin a value",
        "quote the value",
    ),
    "did not find expected alphabetic or numeric character": (
        "`*` and `&` begin names of anchors",
        "quote the value",
    ),
    "block sequence entries are not allowed in this context": (
        "a list cannot begin behind a key",
        "begin it on the next line",
    ),
    "did not find expected node content": ("a value is missing before this", "write one"),
    "found unknown escape character": (
        "unknown escape character",
        "write the backslash twice, or use single quotes",
    ),
    "found incompatible YAML document": ("this version of YAML is not read", "remove the line"),
    "did not find expected <document start>": (
        "text behind the end of the document",
        "keep one in a file",
    ),
}


def _worded(failure: _Failure) -> Flaw | None:
    if failure.problem not in _WORDS:
        return None
    message, fix = _WORDS[failure.problem]
    seen = cut(failure.seen[failure.at[1] :][:1])
    return failure.flaw(failure.at, message.format(seen), fix)


_LOOKS: tuple[Callable[[_Failure], Flaw | None], ...] = (
    _tab,
    _space,
    _run_on,
    _unclosed,
    _no_space,
    _second_colon,
    _order,
    _worded,
)
