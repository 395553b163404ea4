"""What is safe to mend, for the rules that propose it: edits, or none where more could be meant."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from selector.document import Document, Mapping
from selector.document import Sequence as Items
from selector.fields import BUILTIN
from selector.lint.catalogue import Edit
from selector.lint.lines import lines_of
from selector.lint.suppressing import comments
from selector.schema import load_schema
from selector.values import Finding

__all__ = ["drop_comment", "drop_mark", "drop_repeated", "quote", "say_plainly"]

_YES, _NO = ("yes", "on", "y"), ("no", "off", "n")
_DOTTED = re.compile(r"[0-9]+(\.[0-9]+)+|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}")
_ITEM = re.compile(r"""[\w.-]+|"[\w.-]*"|'[\w.-]*'""")


def drop_mark(finding: Finding, document: Document) -> Sequence[Edit]:
    """Removes a byte order mark."""
    at_start = (finding.line, finding.column) == (1, 1)
    return [Edit(1, 0, 1, "")] if at_start and "byte order mark" in finding.message else ()


def say_plainly(finding: Finding, document: Document) -> Sequence[Edit]:
    """Writes ``true`` or ``false`` in boolean fields; quotes versions and capabilities.

    A %YAML directive, which changes nothing, is removed.
    """
    line = _line(finding, document)
    if line.startswith("%YAML") and finding.column == 1:
        return [Edit(finding.line, 1, len(line) + 1, "")]
    path, value = _found(finding, document)
    if not path or not isinstance(value, str):
        return ()
    if value.lower() in (*_YES, *_NO) and path[-1] in _booleans(document):
        return _instead(finding, line, value, "true" if value.lower() in _YES else "false")
    return quote(finding, document) if _DOTTED.fullmatch(value) else ()


def quote(finding: Finding, document: Document) -> Sequence[Edit]:
    """Quotes a version or capability that is written as a number."""
    path, value = _found(finding, document)
    is_version = path == ("version",) and type(value) in (str, int)
    is_capability = path[-1:] == ("capability",) and isinstance(value, str)
    if not (is_version or is_capability):
        return ()
    return _instead(finding, _line(finding, document), str(value), f'"{value}"')


def drop_repeated(finding: Finding, document: Document) -> Sequence[Edit]:
    """Removes a name from a list that names it before."""
    line = _line(finding, document)
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


def drop_comment(finding: Finding, document: Document) -> Sequence[Edit]:
    """Removes a code from a comment that switches it off, or the comment when it names no other."""
    line = _line(finding, document)
    for comment in comments(document.file, document.text):
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


def _line(finding: Finding, document: Document) -> str:
    lines = lines_of(document.text)
    return lines[finding.line - 1] if finding.line <= len(lines) else ""


def _instead(finding: Finding, line: str, seen: str, text: str) -> Sequence[Edit]:
    """The edit that writes ``text``, where what was seen stands there as it is."""
    begin = finding.column - 1
    end = begin + len(seen)
    behind = line[end : end + 1]
    if line[begin:end] != seen or (behind and behind not in " \t\r\n,]}"):
        return ()
    return [Edit(finding.line, begin + 1, end + 1, text)]


def _found(finding: Finding, document: Document) -> tuple[tuple[str, ...], Any]:
    """The keys that lead to the scalar at a finding's place, and the scalar."""
    if document.tree is None:
        return (), None
    pending: list[tuple[tuple[str, ...], Any]] = [((), document.tree)]
    seen = set()
    while pending:
        path, node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        for step, value, at in _children(node):
            deeper = (*path, *step)
            if isinstance(value, Mapping | Items):
                pending.append((deeper, value))
            elif (at.line, at.column) == (finding.line, finding.column):
                return deeper, value
    return (), None


def _children(node: Mapping | Items) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield (key,), value, node.values_at[key]
    else:
        for value, at in zip(node, node.items_at, strict=True):
            yield (), value, at


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
