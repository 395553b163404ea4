"""YAML text → a tree that knows where everything stands, and findings.

The tree is made of plain values: ``Mapping`` and ``Sequence`` are ``dict`` and ``list`` with
positions. Plain scalars are read by one small rule set on which all YAML versions agree; where
they disagree (``no``, ``9:0``, ``016``, ``12.10``) the scalar is a finding, never a guess.

Hostile text ends in a finding: the tree is built from the parser's event stream, so size, depth,
number of nodes and alias expansion are bounded while reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

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

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x84\x86-\x9f\u202a-\u202e\u2066-\u2069]")
"""What a quoted escape can hide in text: it would steer the terminal that shows it."""


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
        _report_syntax(document, error, text)
    document.findings.sort()
    return document


def _decode(document: Document, raw: bytes, limits: Limits) -> str | None:
    start = Position(document.file, 1, 1)
    if len(raw) > limits.size_bytes:
        document.report(
            "CAP006",
            start,
            f"file is larger than {limits.size_bytes:,} bytes",
            "split it",
        )
        return None
    if raw.startswith(b"\xef\xbb\xbf"):
        document.report(
            "CAP007", start, "file starts with a byte order mark", "save it as UTF-8 without BOM"
        )
        raw = raw[3:]
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode("utf-8", "replace")
        at = _place(document.file, before)
        seen = f"byte 0x{raw[error.start]:02x}"
        document.report("CAP007", at, f"{seen} is not UTF-8", "save the file as UTF-8")
        return None
    if bad := re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]", text):
        at = _place(document.file, text[: bad.start()])
        message = f"control character U+{ord(bad[0]):04X} is not text"
        document.report("CAP007", at, message, "remove it")
        return None
    return text


def _place(file: str, before: str) -> Position:
    lines = before.split("\n")
    return Position(file, len(lines), len(lines[-1]) + 1)


def _report_syntax(document: Document, error: yaml.YAMLError, text: str) -> None:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or error).splitlines()[0]
    fix = "correct the YAML here"
    if getattr(error, "context", None) == "while scanning a simple key":
        mark = error.context_mark  # type: ignore[attr-defined]  # the problem shows lines later
        problem, fix = "key without a colon and a space", "write `key: value`"
    line, column = (mark.line, mark.column) if mark else (0, 0)
    lines = text.split("\n")
    seen = lines[line] if line < len(lines) else ""
    indent = seen[: len(seen) - len(seen.lstrip(" \t"))]
    if "\t" in indent or seen[column : column + 1] == "\t" or re.search(r"\btab\b", problem):
        column = indent.find("\t") if "\t" in indent else column
        problem, fix = "tab used for indentation", "indent with spaces"
    code = "CAP006" if "nesting depth" in problem else "CAP001"
    document.report(code, Position(document.file, line + 1, column + 1), problem, fix)


class _StopReadingError(Exception):
    """A bound was passed; the finding is already reported."""


@dataclass(slots=True)
class _Open:
    """A collection whose end has not been read yet."""

    node: Mapping | Sequence
    anchor: str | None
    key: str | None = None
    key_at: Position | None = None
    merges: list[tuple[Any, Position]] = field(default_factory=list)


class _Builder:
    """Builds the tree from events, with a stack instead of recursion."""

    def __init__(self, document: Document, limits: Limits) -> None:
        self.document = document
        self.limits = limits
        self.stack: list[_Open] = []
        self.anchors: dict[str, Any] = {}
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
            self.document.report(
                "CAP004", start, "the document is not a mapping", "start with `attnsel: 1`"
            )
            return None
        return self.root

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
            self._close()
        elif isinstance(event, yaml.ScalarEvent):
            self._count(event, 1)
            value = self._scalar(event)
            if event.anchor:
                self.anchors[event.anchor] = value
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

    def _close(self) -> None:
        done = self.stack.pop()
        if isinstance(done.node, Mapping):
            for source, at in done.merges:
                self._merge(done.node, source, at)
        done.node.size += sum(_size(c) for c in _children(done.node))
        if done.anchor:
            self.anchors[done.anchor] = done.node
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
        node = self.anchors[event.anchor]
        self._count(event, _size(node))
        where = node.position if isinstance(node, Mapping | Sequence) else at
        self._place_value(node, where)

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

    def _key(self, value: Any, at: Position) -> str | None:
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
        if key == "<<":
            top.merges.append((value, at))
            return
        if key in node:
            first = node.keys_at[key].line
            self.document.report(
                "CAP002", key_at, f'key "{_cut(key)}" is already given on line {first}', "keep one"
            )
            return
        if value is None and ":" in key and " " not in key:
            self.document.report(
                "CAP001", key_at, f'key "{_cut(key)}" has no value', "put a space after the colon"
            )
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
                "CAP001", self._at(event), f"tag {_cut(tag)} is not read", "remove the tag"
            )

    def _scalar(self, event: Any) -> Any:
        self._refuse_tag(event)
        text: str = event.value
        if event.style:  # quoted or block text
            if unseen := _UNSEEN.search(text):
                message = f"control character U+{ord(unseen[0]):04X} is not text"
                self.document.report("CAP007", self._at(event), message, "remove it")
                return _UNSEEN.sub("?", text)
            return text
        if text in ("", "~") or text.lower() == "null":
            return None
        if text.lower() in ("true", "false"):
            return text.lower() == "true"
        if _WHOLE.fullmatch(text):
            return int(text)
        if trap := _trap(text):
            message, fix = trap
            self.document.report("CAP005", self._at(event), message, fix)
        return text


def _size(node: Any) -> int:
    """How many nodes a value counts for when it is repeated; long text counts for more."""
    if isinstance(node, Mapping | Sequence):
        return node.size
    return 1 + len(node) // 100 if isinstance(node, str) else 1


def _children(node: Mapping | Sequence) -> Iterator[Any]:
    return iter(node.values() if isinstance(node, Mapping) else node)


_WHOLE = re.compile(r"[-+]?(0|[1-9][0-9]{0,17})")
_SWITCHES = ("yes", "no", "on", "off", "y", "n")


def _trap(text: str) -> tuple[str, str] | None:
    """What is wrong with a plain scalar that YAML versions read differently, if anything."""
    if text[0] not in "-+.0123456789" and text.lower() not in _SWITCHES:
        return None  # nearly all of a manifest
    shown = _cut(text)
    quoted = f'write "{shown}"'
    if text.lower() in _SWITCHES:
        meant = "true" if text.lower() in ("yes", "on", "y") else "false"
        return f"{shown} is a boolean in YAML 1.1 and text in 1.2", f'write {meant} or "{shown}"'
    if re.fullmatch(r"[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9]*)?", text):
        dotted = f'write "{text.replace(":", ".")}" or "{shown}"'
        return f"{shown} is a base-60 number in YAML 1.1 and text in 1.2", dotted
    if re.fullmatch(r"[-+]?0[0-9]{1,17}", text):
        octal = int(text, 8) if re.fullmatch(r"[-+]?[0-7]+", text) else "text"
        return f"{shown} is {octal} in YAML 1.1 and {int(text)} in 1.2", "drop the zero"
    if re.fullmatch(r"[-+]?0[xob][0-9a-fA-F_]+", text) or re.fullmatch(
        r"[-+]?[0-9][0-9_]*_[0-9_]*", text
    ):
        return f"{shown} is a number in some YAML versions only", "write it in plain decimal"
    if re.fullmatch(r"[-+]?[0-9]{19,}", text):
        return f"{shown} is too large a number", "no field is that large"
    if re.fullmatch(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)([eE][-+]?[0-9]+)?", text):
        number = float(text)
        as_read = f"the number {number:g}" if abs(number) < 1e15 else "a number"
        return f"{shown} is read as {as_read}", quoted
    if re.fullmatch(r"[-+]?\.(inf|nan)", text, re.IGNORECASE):
        return f"{shown} is read as a number", quoted
    if re.fullmatch(r"[0-9]{4}-[0-9][0-9]?-[0-9][0-9]?([Tt ].*)?", text):
        return f"{shown} is a date in YAML 1.1 and text in 1.2", quoted
    return None


def _plain(value: Any) -> str:
    return {True: "true", False: "false", None: "null"}.get(value, _cut(str(value)))


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 60 else flat[:57] + "…"
