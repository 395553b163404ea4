"""What is safe to mend, for the rules that propose it: edits, or none where more could be meant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from selector.document import Document, Mapping
from selector.fields import BUILTIN
from selector.lint.catalogue import Edit
from selector.lint.page import Page
from selector.schema import load_schema
from selector.values import Finding

__all__ = ["drop_comment", "drop_mark", "drop_repeated", "quote", "say_plainly"]

_YES, _NO = ("yes", "on", "y"), ("no", "off", "n")
_DOTTED = re.compile(r"[0-9]+(\.[0-9]+)+|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
_ITEM = re.compile(r"""[\w.-]+|"[\w.-]*"|'[\w.-]*'""")


def drop_mark(finding: Finding, page: Page) -> Sequence[Edit]:
    """Removes a byte order mark."""
    at_start = (finding.line, finding.column) == (1, 1)
    return [Edit(1, 0, 1, "")] if at_start and "byte order mark" in finding.message else ()


def say_plainly(finding: Finding, page: Page) -> Sequence[Edit]:
    """Writes ``true`` or ``false`` in boolean fields; quotes versions and capabilities.

    A %YAML directive, which changes nothing, is removed.
    """
    line = page.line(finding)
    if line.startswith("%YAML") and finding.column == 1:
        return [Edit(finding.line, 1, len(line) + 1, "")]
    path, value = page.scalar(finding)
    if not path or not isinstance(value, str):
        return ()
    if value.lower() in (*_YES, *_NO) and path[-1] in _booleans(page.document):
        return _instead(finding, line, value, "true" if value.lower() in _YES else "false")
    return quote(finding, page) if _DOTTED.fullmatch(value) else ()


def quote(finding: Finding, page: Page) -> Sequence[Edit]:
    """Quotes a version or capability that is written as a number."""
    path, value = page.scalar(finding)
    is_version = path == ("version",) and type(value) in (str, int)
    is_capability = path[-1:] == ("capability",) and isinstance(value, str)
    if not (is_version or is_capability):
        return ()
    return _instead(finding, page.line(finding), str(value), f'"{value}"')


def drop_repeated(finding: Finding, page: Page) -> Sequence[Edit]:
    """Removes a name from a list that names it before."""
    line = page.line(finding)
    begin = finding.column - 1
    item = _ITEM.match(line, begin)
    if not finding.message.endswith(" is listed twice") or item is None:
        return ()
    if re.fullmatch(r"[ \t]*-[ \t]+", line[:begin]) and not line[item.end() :].strip():
        return [Edit(finding.line, 1, len(line) + 1, "")]
    comma = re.search(r",[ \t]*$", line[:begin])
    if comma is None or not re.match(r"[ \t]*[,\]]", line[item.end() :]):
        return ()
    return [Edit(finding.line, comma.start() + 1, item.end() + 1, "")]


def drop_comment(finding: Finding, page: Page) -> Sequence[Edit]:
    """Removes a code from a comment that switches it off, or the comment when it names no other."""
    line = page.line(finding)
    for comment in page.comments:
        places = [column for _, column in comment.named]
        if comment.at.line == finding.line and finding.column in places:
            break
    else:
        return ()
    if len(places) > 1:
        which = places.index(finding.column)
        end = finding.column + len(comment.named[which][0])
        if which + 1 < len(places):
            return [Edit(finding.line, finding.column, places[which + 1], "")]
        before = places[which - 1] + len(comment.named[which - 1][0])
        return [Edit(finding.line, before, end, "")]
    begin, end = comment.at.column, comment.end
    if not line[: begin - 1].strip() and not line[end - 1 :].strip():
        return [Edit(finding.line, 1, len(line) + 1, "")]
    if not line[end - 1 :].strip():
        begin = len(line[: begin - 1].rstrip(" \t")) + 1
    return [Edit(finding.line, begin, end, "")]


def _instead(finding: Finding, line: str, seen: str, text: str) -> Sequence[Edit]:
    """The edit that writes ``text``, where what was seen stands there as it is."""
    begin = finding.column - 1
    end = begin + len(seen)
    return [Edit(finding.line, begin + 1, end + 1, text)] if line[begin:end] == seen else ()


def _booleans(document: Document) -> set[str]:
    """Keys and fields that are true or false."""
    found = {field.name for field in BUILTIN if field.type in ("boolean", "presence")}
    found |= {alias for f in BUILTIN if f.type in ("boolean", "presence") for alias in f.aliases}
    for section in ("fields", "facts"):
        declared = document.tree.get(section) if document.tree else None
        if isinstance(declared, Mapping):
            stated = ((n, raw) for n, raw in declared.items() if isinstance(raw, Mapping))
            found |= {n for n, raw in stated if raw.get("type") in ("boolean", "presence")}
    return found | _boolean_keys()


@cache
def _boolean_keys() -> frozenset[str]:
    """Keys of the language that the schema takes booleans for, and nothing else."""
    kinds: dict[str, set[str]] = {}
    pending: list[Any] = [load_schema("manifest")]
    while pending:
        node = pending.pop()
        if isinstance(node, list):
            pending.extend(node)
        elif isinstance(node, dict):
            pending.extend(node.values())
            for key, said in node.get("properties", {}).items():
                if isinstance(said, dict) and "type" in said:
                    kinds.setdefault(key, set()).add(str(said["type"]))
    return frozenset(key for key, found in kinds.items() if found == {"boolean"})
