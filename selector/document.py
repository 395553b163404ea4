"""YAML text → a tree that knows where everything stands, and findings.

The tree is made of plain values: ``Mapping`` and ``Sequence`` are ``dict`` and ``list`` with
positions. Plain scalars are read by one small rule set on which all YAML versions agree; where
they disagree (``no``, ``9:0``, ``016``, ``12.10``) the scalar is a finding, never a guess.

Hostile text ends in a finding: the tree is built from the parser's event stream, so size, depth,
number of nodes and alias expansion are bounded while reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from selector.anchors import Anchor, told_once
from selector.scalars import (
    Meaning,
    cut,
    lacks_space,
    meaning_words,
    meanings,
    read_plain,
    trap_of,
)
from selector.texts import HIDDEN, LIKE_A_SPACE, Flaw, decode, syntax_flaw
from selector.values import Finding, Position, Severity

__all__ = [
    "LIMITS",
    "Document",
    "Limits",
    "Mapping",
    "Sequence",
    "read_bytes",
    "read_document",
    "read_text",
]


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on a document: generous for honest files, small for hostile ones."""

    size_bytes: int = 4 << 20
    depth: int = 40
    nodes: int = 200_000
    expanded_nodes: int = 400_000
    findings: int = 200


LIMITS = Limits()


class Mapping(dict[str, Any]):
    """A mapping with positions: of itself, of each key and of each value."""

    __slots__ = ("keys_at", "position", "size", "values_at")

    def __init__(self, position: Position) -> None:
        super().__init__()
        self.position = position
        self.keys_at: dict[str, Position] = {}
        self.values_at: dict[str, Position] = {}
        self.size = 1


class Sequence(list[Any]):
    """A sequence with positions: of itself and of each item."""

    __slots__ = ("items_at", "position", "size")

    def __init__(self, position: Position) -> None:
        super().__init__()
        self.position = position
        self.items_at: list[Position] = []
        self.size = 1


@dataclass(slots=True)
class Document:
    """What was read: the tree (``None`` when unreadable), its text and the findings."""

    file: str
    tree: Mapping | None = None
    text: str = ""
    findings: list[Finding] = field(default_factory=list)
    anchors: list[Anchor] = field(default_factory=list)

    def report(
        self,
        code: str,
        at: Position,
        message: str,
        fix: str = "",
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Adds a finding, once for each place and code; those beyond the limit are only noted."""
        if self.full:
            return
        finding = Finding(at.file, at.line, at.column, code, severity, message, fix)
        if any(_key(known) == _key(finding) for known in self.findings):
            return
        if code == "CAP004" and self._is_trap(at):
            return  # a scalar that YAML versions read differently is one mistake, not two
        if len(self.findings) == LIMITS.findings:
            message = f"only the first {LIMITS.findings} findings are shown"
            fix = "correct these and look again"
            finding = Finding(at.file, at.line, at.column, "CAP006", Severity.NOTE, message, fix)
        self.findings.append(finding)

    def report_flaw(self, flaw: Flaw) -> None:
        """Adds what is wrong with the text itself."""
        at = Position(self.file, flaw.line, flaw.column)
        self.report(flaw.code, at, flaw.message, flaw.fix, flaw.severity)

    def settled(self) -> Document:
        """The same with its findings in order, each told once though aliases repeat it."""
        return replace(self, findings=sorted(told_once(self.findings, self.anchors)))

    def _is_trap(self, at: Position) -> bool:
        traps = (f for f in self.findings if f.code == "CAP005")
        return any((f.file, f.line, f.column) == tuple(at) for f in traps)

    @property
    def full(self) -> bool:
        """Whether no more findings are taken."""
        return len(self.findings) > LIMITS.findings

    @property
    def broken(self) -> bool:
        """Whether any finding is an error."""
        return any(f.severity is Severity.ERROR for f in self.findings)


def _key(f: Finding) -> tuple[str, int, int, str, str]:
    return f.file, f.line, f.column, f.code, f.message


def read_document(path: Path, limits: Limits = LIMITS) -> Document:
    """Reads a file.

    Raises:
        OSError: the file cannot be opened (missing, a directory, no permission).
    """
    return read_text(read_bytes(path, limits), str(path), limits)


def read_bytes(path: Path, limits: Limits = LIMITS) -> bytes:
    """The bytes of a file, of one that is too large a few more than are allowed.

    Raises:
        OSError: the file cannot be opened (missing, a directory, no permission).
    """
    with path.open("rb") as stream:
        return stream.read(limits.size_bytes + 1)


def read_text(data: bytes | str, file: str, limits: Limits = LIMITS) -> Document:
    """Reads text that is already at hand; ``file`` names it in findings."""
    document = Document(file)
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    text = _decode(document, raw, limits)
    if text is None:
        return document
    document.text = text
    builder = _Builder(document, limits)
    try:
        document.tree = builder.build(text)
    except _StopReadingError:
        document.tree = None
    except yaml.YAMLError as error:
        document.report_flaw(syntax_flaw(error, text))
    document.findings.sort()
    return document


def _decode(document: Document, raw: bytes, limits: Limits) -> str | None:
    if len(raw) > limits.size_bytes:
        message = f"file is larger than {limits.size_bytes:,} bytes"
        document.report("CAP006", Position(document.file, 1, 1), message, "split it")
        return None
    text, flaws = decode(raw)
    for flaw in flaws:
        document.report_flaw(flaw)
    return text


_LOST, _MERGE = object(), object()
"""In place of a key that would take another one's place, and of a merge key."""


class _StopReadingError(Exception):
    """A bound was passed; the finding is already reported."""


@dataclass(slots=True)
class _Open:
    """A collection whose end has not been read yet."""

    node: Mapping | Sequence
    anchor: str | None
    key: Any = None
    key_at: Position | None = None
    meant: dict[Meaning, tuple[str, Position]] = field(default_factory=dict)
    merges: list[tuple[Any, Position]] = field(default_factory=list)

    @property
    def awaits_key(self) -> bool:
        """Whether the next scalar is a key."""
        return isinstance(self.node, Mapping) and self.key_at is None


class _Builder:
    """Builds the tree from events, with a stack instead of recursion."""

    def __init__(self, document: Document, limits: Limits) -> None:
        self.document = document
        self.limits = limits
        self.stack: list[_Open] = []
        self.anchors: dict[str, Anchor] = {}
        self.nodes = 0
        self.expanded = 0
        self.root: Any = None
        self.documents = 0

    def build(self, text: str) -> Mapping | None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        for event in yaml.parse(text, loader):
            self._take(event)
        start = Position(self.document.file, 1, 1)
        if self.documents == 0 or (self.root is None and not self.document.findings):
            self.document.report("CAP001", start, "file is empty", "write a manifest")
            return None
        if not isinstance(self.root, Mapping):
            self._report_root(start)
            return None
        return self.root

    def _report_root(self, start: Position) -> None:
        if isinstance(self.root, str) and lacks_space(self.root):
            message, fix = "key without a colon and a space", "write `key: value`"
            self.document.report("CAP001", start, message, fix)
        else:
            message, fix = "the document is not a mapping", "start with `attnsel: 1`"
            self.document.report("CAP004", start, message, fix)

    def _at(self, event: Any) -> Position:
        mark = event.start_mark
        return Position(self.document.file, mark.line + 1, mark.column + 1)

    def _stop(self, event: Any, message: str, fix: str) -> None:
        self.document.report("CAP006", self._at(event), message, fix)
        raise _StopReadingError

    def _take(self, event: Any) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._start_document(event)
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._open(event)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._close(event)
        elif isinstance(event, yaml.ScalarEvent):
            self._count(event, 1)
            value = self._scalar(event)
            if event.anchor:
                known = event.value if value in (_LOST, _MERGE) else value
                self._name(event.anchor, known, self._at(event), event)
            self._place_value(value, self._at(event))
        elif isinstance(event, yaml.AliasEvent):
            self._alias(event)

    def _start_document(self, event: Any) -> None:
        self.documents += 1
        if self.documents > 1:
            self.document.report(
                "CAP001", self._at(event), "a second document starts here", "keep one in a file"
            )
            raise _StopReadingError
        if event.version:
            self.document.report(
                "CAP005",
                self._at(event),
                "the %YAML directive changes nothing: scalars are read the same in every version",
                "remove it",
                Severity.NOTE,
            )

    def _count(self, event: Any, expanded: int) -> None:
        self.nodes += 1
        self.expanded += expanded
        if self.nodes > self.limits.nodes:
            self._stop(event, f"more than {self.limits.nodes:,} nodes", "split the file")
        if self.expanded > self.limits.expanded_nodes:
            self._stop(
                event,
                f"aliases expand to more than {self.limits.expanded_nodes:,} nodes",
                "repeat less",
            )

    def _open(self, event: Any) -> None:
        self._count(event, 1)
        if len(self.stack) >= self.limits.depth:
            self._stop(event, f"nested deeper than {self.limits.depth} levels", "flatten it")
        self._refuse_tag(event)
        at = self._at(event)
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        self.stack.append(_Open(Mapping(at) if is_mapping else Sequence(at), event.anchor))

    def _name(self, name: str, value: Any, start: Position, event: Any) -> None:
        """Keeps what an anchor stands for; ``event`` is the one that ends it."""
        end = (event.end_mark.line + 1, event.end_mark.column + 1)
        whole = isinstance(value, Mapping | Sequence)
        self.anchors[name] = Anchor(name, value, start, end, whole)
        self.document.anchors.append(self.anchors[name])

    def _close(self, event: Any) -> None:
        done = self.stack.pop()
        if isinstance(done.node, Mapping):
            for source, at in done.merges:
                self._merge(done.node, source, at)
        done.node.size += sum(_size(c) for c in _children(done.node))
        if done.anchor:
            self._name(done.anchor, done.node, done.node.position, event)
        self._place_value(done.node, done.node.position)

    def _alias(self, event: Any) -> None:
        at = self._at(event)
        if any(o.anchor == event.anchor for o in self.stack):
            self.document.report("CAP006", at, f"*{event.anchor} contains itself", "spell it out")
            raise _StopReadingError
        if event.anchor not in self.anchors:
            self.document.report(
                "CAP001", at, f"no anchor &{event.anchor} before this alias", "define it above"
            )
            raise _StopReadingError
        anchor = self.anchors[event.anchor]
        anchor.uses.append(at)
        node = anchor.value
        self._count(event, _size(node))
        self._place_value(node, node.position if anchor.whole else at)

    def _place_value(self, value: Any, at: Position) -> None:
        if not self.stack:
            self.root = value
            return
        top = self.stack[-1]
        if isinstance(top.node, Sequence):
            top.node.append(value)
            top.node.items_at.append(at)
        elif top.key_at is None:
            top.key, top.key_at = self._key(value, at), at
        else:
            self._put(top, value, at)
            top.key = top.key_at = None

    def _key(self, value: Any, at: Position) -> Any:
        if value is _MERGE:
            return value
        if value is _LOST:
            return None
        if isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        shown = "a collection" if isinstance(value, dict | list) else _plain(value)
        self.document.report("CAP004", at, f"key {shown} is not text", "quote it")
        return None

    def _put(self, top: _Open, value: Any, at: Position) -> None:
        node, key, key_at = top.node, top.key, top.key_at
        assert isinstance(node, Mapping)
        assert key_at is not None
        if key is None:
            return
        if key is _MERGE:
            top.merges.append((value, at))
            return
        if key in node:
            first = node.keys_at[key].line
            self.document.report(
                "CAP002", key_at, f'key "{cut(key)}" is already given on line {first}', "keep one"
            )
            return
        if value is None and ":" in key and " " not in key:
            self.document.report(
                "CAP001", key_at, f'key "{cut(key)}" has no value', "put a space after the colon"
            )
            key, _, said = key.partition(":")  # as meant: nothing is missing then
            value = read_plain(said.strip("\"'"))
            if key in node or said.startswith("//"):
                return
        node[key] = value
        node.keys_at[key], node.values_at[key] = key_at, at

    def _merge(self, node: Mapping, source: Any, at: Position) -> None:
        sources = source if isinstance(source, Sequence) else [source]
        for one in sources:
            if not isinstance(one, Mapping):
                self.document.report("CAP004", at, "<< merges only mappings", "name an anchor")
                continue
            self.expanded += one.size
            for key, value in one.items():
                if key not in node:
                    node[key] = value
                    node.keys_at[key] = one.keys_at[key]
                    node.values_at[key] = one.values_at[key]

    def _refuse_tag(self, event: Any) -> None:
        if event.tag and event.tag != "!":
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self.document.report(
                "CAP001", self._at(event), f"tag {cut(tag)} is not read", "remove the tag"
            )

    def _scalar(self, event: Any) -> Any:
        self._refuse_tag(event)
        text: str = event.value
        if unseen := HIDDEN.search(text):
            message = f"control character U+{ord(unseen[0]):04X} is not text"
            self.document.report("CAP007", self._at(event), message, "remove it")
            return HIDDEN.sub("?", text)
        if " " not in text and (odd := LIKE_A_SPACE.search(text)):
            message = f"U+{ord(odd[0]):04X} looks like a space and is none"
            self.document.report("CAP007", self._at(event), message, "remove it")
        if event.style:  # quoted or block text
            return text
        as_key = bool(self.stack) and self.stack[-1].awaits_key
        if as_key and text == "<<":
            return _MERGE
        if as_key and self._meets(text, self._at(event)):
            return _LOST
        if trap := trap_of(text):
            fix = f'write "{cut(text)}"' if as_key else trap.fix
            self.document.report("CAP005", self._at(event), trap.seen, fix)
        return read_plain(text)

    def _meets(self, text: str, at: Position) -> bool:
        """Reports a key that some YAML version takes for another one of the same mapping."""
        known = self.stack[-1].meant
        for meaning in meanings(text):
            other, place = known.setdefault(meaning, (text, at))
            if other == text:
                continue
            one, two = cut(other), cut(text)
            message = (
                f"keys {one} (line {place.line}) and {two} can both be read as "
                f"{meaning_words(meaning)}, so one is lost"
            )
            self.document.report("CAP002", at, message, f'write "{one}" and "{two}"')
            return True
        return False


def _size(node: Any) -> int:
    """How many nodes a value counts for when it is repeated; long text counts for more."""
    if isinstance(node, Mapping | Sequence):
        return node.size
    return 1 + len(node) // 100 if isinstance(node, str) else 1


def _children(node: Mapping | Sequence) -> Iterator[Any]:
    return iter(node.values() if isinstance(node, Mapping) else node)


def _plain(value: Any) -> str:
    return {True: "true", False: "false", None: "null"}.get(value, cut(str(value)))
