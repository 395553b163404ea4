"""A tree of keys as YAML, with a comment for each thing that is left to do.

YAML that the reader of manifests reads as it is meant: a text that a version of YAML would take
for something else is quoted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple, TypeAlias

from selector.lint.catalogue import Rule
from selector.scalars import read_plain, trap_of
from selector.values import Finding, Position, Severity

__all__ = ["Block", "Node", "Plain", "Rows", "Text", "Todo", "Value", "write"]

WIDTH = 120
_PLAIN = re.compile(r"[A-Za-z_][\w./+-]*", re.ASCII)

Plain = bool | int | str | Sequence["Plain"] | Mapping[str, "Plain"]
"""What stands on one line: a scalar, or a list or mapping of such."""


class Todo(NamedTuple):
    """What is left to do at a place of the draft.

    Attributes:
        rule: of the finding.
        entry: the entry concerned; empty: the whole file.
        field: the field or key concerned.
        words: what, as the rest of a sentence that begins with the field.
        severity: other than the rule's.
    """

    rule: Rule
    entry: str
    field: str
    words: str
    severity: Severity | None = None

    @property
    def message(self) -> str:
        """With the entry."""
        return f"{self.entry} {self.field}: {self.words}".lstrip()


class Text(NamedTuple):
    """A sentence, which may be folded."""

    words: str


class Block(NamedTuple):
    """A mapping, one key under the other."""

    nodes: Sequence[Node]


class Rows(NamedTuple):
    """A list of mappings, one under the other."""

    rows: Sequence[Sequence[Node]]


Value: TypeAlias = "Plain | Text | Block | Rows"


class Node(NamedTuple):
    """A key, its value, and what is left to do there.

    Attributes:
        key: empty: there is nothing but what is left to do.
        value: on one line, or under the key.
        todos: told above the key.
    """

    key: str
    value: Value = ""
    todos: tuple[Todo, ...] = ()


class _Writer:
    """Lines, and where each thing left to do stands."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)
        self.places: list[tuple[int, int, Todo]] = []

    def nodes(self, nodes: Sequence[Node], indent: int) -> None:
        for node in nodes:
            for todo in node.todos:
                self.todo(todo, indent)
            if node.key:
                self.node(node, indent)

    def todo(self, todo: Todo, indent: int) -> None:
        margin = " " * indent
        words = f"TODO {todo.rule.code} {todo.field}: {todo.words}"
        first, *more = _folded(words, WIDTH - indent - 4)
        self.places.append((len(self.lines) + 1, indent + 1, todo))
        self.lines.append(f"{margin}# {first}")
        self.lines += [f"{margin}#   {line}" for line in more]

    def node(self, node: Node, indent: int) -> None:
        head, value = f"{' ' * indent}{node.key}:", node.value
        if isinstance(value, Text):
            self.lines += _text(head, value.words, indent + 2)
        elif isinstance(value, Rows):
            self.lines.append(head)
            for row in value.rows:
                self.row(row, indent + 2)
        elif isinstance(value, Block):
            self.lines.append(head)
            self.nodes(value.nodes, indent + 2)
        else:
            self.lines += _flow(head, value, indent + 2)

    def row(self, row: Sequence[Node], indent: int) -> None:
        """A mapping of a list: on one line where it fits and nothing is left to do in it."""
        for todo in row[0].todos:
            self.todo(todo, indent)
        row = [row[0]._replace(todos=()), *row[1:]]
        values = {one.key: one.value for one in row if one.key}
        if not any(one.todos or isinstance(one.value, (Text, Block, Rows)) for one in row):
            short = f"{' ' * indent}- {_plain(values)}"  # type: ignore[arg-type]
            if len(short) <= WIDTH and len(row) <= _SHORT:
                self.lines.append(short)
                return
        start = len(self.lines)
        self.nodes(row, indent + 2)
        self.lines[start] = f"{' ' * indent}- {self.lines[start][indent + 2 :]}"


_SHORT = 4
"""A mapping with more keys gets a line for each."""


def write(head: Sequence[str], nodes: Sequence[Node], file: str) -> tuple[str, tuple[Finding, ...]]:
    """The text of a draft, and a finding for each thing that is left to do.

    Args:
        head: what it begins with, as sentences of a comment.
        nodes: its keys.
        file: what the findings call it.
    """
    comments = [f"# {_seen(line)}" for one in head for line in (_folded(one, WIDTH - 2) or [""])]
    writer = _Writer([*comments, ""])
    writer.nodes(nodes, 0)
    found = tuple(
        todo.rule.finding(Position(file, line, column), _seen(todo.message), "", todo.severity)
        for line, column, todo in writer.places
    )
    return "\n".join(writer.lines) + "\n", found


def _seen(text: str) -> str:
    """On one line, and every character of it visible: code that is shown may hold any."""
    flat = " ".join(text.split())
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in flat)


def _folded(text: str, width: int) -> list[str]:
    return wrap(_seen(text), width, break_long_words=False, break_on_hyphens=False)


def _text(head: str, words: str, indent: int) -> Iterator[str]:
    """A sentence behind its key, or folded under it."""
    words = _seen(words)
    if len(short := f"{head} {_scalar(words)}") <= WIDTH:
        yield short
        return
    yield f"{head} >-"
    yield from (f"{' ' * indent}{line}" for line in _folded(words, WIDTH - indent))


def _flow(head: str, value: Plain, indent: int) -> Iterator[str]:
    """A value behind its key; a long list goes on under it."""
    if len(short := f"{head} {_plain(value)}") <= WIDTH:
        yield short
        return
    margin = " " * indent
    if not isinstance(value, Sequence) or isinstance(value, str):
        yield head
        yield f"{margin}{_plain(value)}"
        return
    yield head
    lines = wrap(", ".join(map(_plain, value)), WIDTH - indent - 2, break_on_hyphens=False)
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        yield f"{margin}{' ' if number else '['}{line}{']' if last else ''}"


def _plain(value: Plain) -> str:
    if isinstance(value, Mapping):
        pairs = (f"{key}: {_plain(one)}" for key, one in value.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(_plain, value))}]"
    return _scalar(value)


def _scalar(value: bool | int | str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(value)
    text = _seen(value)
    is_name = _PLAIN.fullmatch(text) or re.fullmatch(r"[0-9]{1,2}\.x", text)
    if is_name and read_plain(text) == text and trap_of(text) is None:
        return text
    return json.dumps(text, ensure_ascii=False)
