"""Text → positioned tree → schema → typed manifest, or every finding on the way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from selector import schema
from selector.document import Document, Mapping, read_bytes, read_text
from selector.domains import Value
from selector.entries import EntryReader
from selector.errors import ManifestError, UnknownManifestError
from selector.fields import close_matches
from selector.manifest import (
    BATCH_COLUMNS,
    DEVICE_COLUMNS,
    MODEL_COLUMNS,
    POLICY_COLUMNS,
    REQUEST_COLUMNS,
    Column,
    Default,
    Denial,
    Entry,
    Invariant,
    Joint,
    Manifest,
    Measure,
    Priority,
)
from selector.overlay import apply_overlay
from selector.parsing import UNKNOWN, Parser, locate, vocabulary_of
from selector.resources import manifest_names
from selector.rules import FirstMatch
from selector.stored import fetch, keep, key_of
from selector.values import ManifestRef, Phase, Position

__all__ = ["load", "load_sources", "loads", "not_found", "read"]


def load(path: str | Path, overlays: Iterable[str | Path] = ()) -> Manifest:
    """Reads a manifest file and applies overlays to it, in order; what was read before is kept.

    Raises:
        ManifestError: it has findings of severity error; all are listed.
        OSError: the file cannot be opened.
    """
    return load_sources([(str(file), read_bytes(Path(file))) for file in (path, *overlays)])


def load_sources(sources: Sequence[tuple[str, bytes]]) -> Manifest:
    """The same from files that are already at hand: their names and bytes, the manifest first.

    Raises:
        ManifestError: it has findings of severity error; all are listed.
    """
    key = key_of(sources)
    kept = fetch(key, Manifest)
    if kept is not None:
        return kept
    document, *others = (read_text(data, name) for name, data in sources)
    for overlay in others:
        document = apply_overlay(document, overlay)
    manifest = _require(*read(document))
    keep(key, manifest)
    return manifest


def not_found(reference: str) -> UnknownManifestError:
    """The error for a reference that is no file: which names ship, and which one is meant."""
    name, shipped = reference.removesuffix(".yaml"), manifest_names()
    hint = ""
    if "/" not in reference and (name == reference or name in shipped):
        near = close_matches(name, shipped)
        none = f", and no manifest that ships is called so ({', '.join(shipped)})"
        hint = f"; did you mean {near[0]}?" if near else none
    return UnknownManifestError(f"{reference}: no such file or directory{hint}")


def loads(text: str | bytes, file: str = "manifest.yaml") -> Manifest:
    """Reads a manifest from text; ``file`` names it in findings.

    Raises:
        ManifestError: it has findings of severity error; all are listed.
    """
    return _require(*read(read_text(text, file)))


def read(document: Document) -> tuple[Manifest | None, Document]:
    """The manifest, when the document has no errors, and the document with its findings."""
    if document.tree is None:
        return None, document.settled()
    for fault in schema.check(document.tree, "manifest"):
        at = locate(document.tree, fault.path, fault.at_key)
        document.report(fault.code, at, fault.message, fault.fix)
        if document.full:  # faults are found one by one: looking for more costs time
            break
    manifest = None if document.broken else _Builder(document).manifest()
    return (None if document.broken else manifest), document.settled()


def _require(manifest: Manifest | None, document: Document) -> Manifest:
    if manifest is None:
        raise ManifestError(tuple(document.findings))
    return manifest


def digest(tree: Mapping) -> str:
    """SHA-256 of what the manifest means: comments, key order and anchors do not count."""
    meaning = {key: value for key, value in tree.items() if key != "definitions"}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


_OWN_COLUMNS = frozenset(
    (*DEVICE_COLUMNS, *REQUEST_COLUMNS, *BATCH_COLUMNS, *POLICY_COLUMNS, *MODEL_COLUMNS)
) - {"model", "backend"}
"""What no manifest reads otherwise; a table may call other things a model or a backend."""


class _Builder:
    """Turns a tree that passed the schema into a manifest, reporting what the schema cannot see."""

    def __init__(self, document: Document) -> None:
        assert document.tree is not None
        self.document = document
        self.tree = document.tree
        self.words = vocabulary_of(document)
        self.parser = Parser(document, self.words)

    def manifest(self) -> Manifest:
        tree = self.tree
        entries = self._entries()
        derive = self._derive()
        changing = _changing(derive, self.parser.changing)
        parse = self.parser
        manifest = Manifest(
            ref=ManifestRef(tree["name"], tree["version"], self.document.file, digest(tree)),
            vocabulary=self.words,
            description=tree.get("description", ""),
            entries=MappingProxyType(entries),
            facts=MappingProxyType({n: f["type"] for n, f in tree.get("facts", {}).items()}),
            derive=MappingProxyType(derive),
            changing=MappingProxyType({n: m for n, m in derive.items() if n in changing}),
            standard=frozenset(n for n, f in tree.get("facts", {}).items() if "standard" in f),
            fact_words=MappingProxyType(
                {n: f["description"] for n, f in tree.get("facts", {}).items()}
            ),
            defaults=MappingProxyType(self._defaults()),
            columns=MappingProxyType(self._columns()),
            space=tuple(parse.constraint(r, "CONTRADICTION") for r in tree.get("space", ())),
            joint=tuple(
                Joint(parse.when(r), tuple(r["same"]), r["reason"], r.position, r.get("source", ""))
                for r in tree.get("joint", ())
            ),
            priorities=tuple(self._priority(r, entries) for r in tree.get("priorities", ())),
            deny=tuple(self._denial(r, entries) for r in tree.get("deny", ())),
            measures=tuple(
                Measure(n, m["small_tile"], m["large_tile"], m["word_align"])
                for n, m in tree.get("measures", {}).items()
            ),
            invariants=tuple(self._invariant(r, entries) for r in tree.get("invariants", ())),
            names=frozenset(parse.names),  # the last: all else has been read
        )
        parse.refuse_bounds(changing)
        return manifest

    def _entries(self) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        reader = EntryReader(self.document, self.parser)
        for raw in self.tree["backends"]:
            entry = reader.entry(raw)
            if entry.name in entries:
                at = raw.values_at["name"]
                first = entries[entry.name].position.line
                self.document.report(
                    "CAP015", at, f'"{entry.name}" is already defined on line {first}', "rename one"
                )
            entries[entry.name] = entry
        return entries

    def _derive(self) -> dict[str, FirstMatch[Value]]:
        """Derived values, each after the ones it reads."""
        stated = self.tree.get("derive", {})
        rules = {n: self._derivation(n, d) for n, d in stated.items()}
        reads = {n: _fields_of(m) & rules.keys() for n, m in rules.items()}
        ordered: dict[str, FirstMatch[Value]] = {}
        while len(ordered) < len(rules):
            ready = [n for n in rules if n not in ordered and reads[n] <= ordered.keys()]
            if not ready:
                self._report_cycle(stated, {n: reads[n] - ordered.keys() for n in rules})
                return ordered
            ordered.update((n, rules[n]) for n in ready)
        return ordered

    def _derivation(self, name: str, stated: Mapping) -> FirstMatch[Value]:
        raw = stated["first_match"]
        values = [rule["value"] for rule in raw]
        flags = {isinstance(v, bool) for v in values}
        numbers = {str(v) for v in values if not isinstance(v, str)}
        if len(flags) > 1 or numbers.intersection(v for v in values if isinstance(v, str)):
            self.document.report(
                "CAP011",
                raw.position,
                f"{name} has values of two types",
                "write only true and false, or only numbers and names that are none",
            )
        return self.parser.first_match(raw, "value", stated.get("source", ""))

    def _defaults(self) -> dict[str, Default]:
        stated = self.tree.get("defaults", {})
        found: dict[str, Default] = {}
        for name, raw in stated.items():
            if not self.parser.knows(name, stated.keys_at[name]):
                continue
            self._check_default(name, stated.keys_at[name], raw)
            found[name] = Default(
                raw.get("value"), raw.get("field"), raw.position, raw.get("source", "")
            )
        return found

    def _check_default(self, name: str, at: Position, raw: Mapping) -> None:
        """Reports a default of what the request, the machine or silence says, and a wrong value."""
        mine = self.words.fields[name]
        if (
            name in self.parser.of_request
            or mine.role == "feature"
            or name in self.tree.get("facts", ())
        ):
            self.document.report(
                "CAP010",
                at,
                f"{name} needs no default: the request, the machine or silence says it",
                "give a default to a field of the layer or the deployment",
            )
        if "field" not in raw:
            self.parser.check_value(name, raw["value"], raw.values_at["value"])
        elif self.parser.knows(raw["field"], raw.values_at["field"]):
            other = self.words.fields[raw["field"]]
            if other.name in self.parser.of_request or other.name == name:
                message = f"{other.name} cannot stand in for {name}"
                self.document.report(
                    "CAP010", raw.values_at["field"], message, "take a field of the layer"
                )
            elif other.type != mine.type and not {other.type, mine.type} <= {"boolean", "presence"}:
                message = f"{other.name} is no {mine.type}, as {name} is"
                self.document.report(
                    "CAP011", raw.values_at["field"], message, "take a field of the same type"
                )

    def _columns(self) -> dict[str, Column]:
        found: dict[str, Column] = {}
        stated = self.tree.get("columns", {})
        for name, raw in stated.items():
            if name in self.words.spellings or name in _OWN_COLUMNS:
                message = f'"{name}" is a column of its own meaning'
                fix = "let the table call it otherwise"
                self.document.report("CAP015", stated.keys_at[name], message, fix)
            if "field" in raw and self.parser.knows(raw["field"], raw.values_at["field"]):
                self._check_column(raw["field"], raw.values_at["field"])
            values = {
                value: MappingProxyType(self._said(fields))
                for value, fields in raw.get("values", {}).items()
            }
            found[name] = Column(
                field=raw.get("field"),
                values=MappingProxyType(values),
                dense=raw.get("suppose") == "dense_prefill",
                given=raw.get("given", False),
            )
        return found

    def _check_column(self, name: str, at: Position, unknown: bool = False) -> None:
        """Reports a field that tables hold under its own name only, and a device nobody knows."""
        if name in self.parser.of_request or (unknown and name in ("platform", "capability")):
            message = f"a column cannot say this of {name}"
            fix = "lengths stand under their own names, and every row needs its device"
            self.document.report("CAP010", at, message, fix)

    def _said(self, raw: Mapping) -> dict[str, Value | None]:
        """What one value of a column says: field → value, or ``None`` for unknown."""
        said: dict[str, Value | None] = {}
        for name, value in raw.items():
            if self.parser.knows(name, raw.keys_at[name]):
                self._check_column(name, raw.keys_at[name], value == UNKNOWN)
                said[name] = None if value == UNKNOWN else value
                if value != UNKNOWN:
                    self.parser.check_value(name, value, raw.values_at[name])
        return said

    def _report_cycle(self, stated: Mapping, reads: dict[str, set[str]]) -> None:
        stuck = {n: needed for n, needed in reads.items() if needed}
        while rest := {n for n in stuck if not any(n in needed for needed in stuck.values())}:
            stuck = {n: needed for n, needed in stuck.items() if n not in rest}  # only read others
        names = list(stuck)
        if len(names) > 6:
            names = [*names[:5], f"{len(names) - 5} more"]
        said = " and ".join(names) + (" need each other" if len(names) > 1 else " needs itself")
        self.document.report("CAP014", stated.keys_at[names[0]], said, "break the cycle")

    def _priority(self, raw: Mapping, entries: dict[str, Entry]) -> Priority:
        orders: dict[Phase, tuple[str, ...]] = {}
        for phase in Phase:
            own = phase.value in raw
            key = phase.value if own else "order"
            if key not in raw:
                continue  # this list says nothing of the phase: the ones after it do
            names = raw[key]
            self._check_names(raw, key, entries)
            orders[phase] = tuple(n for n in names if n in entries and phase in entries[n].phases)
            for name, at in zip(names, getattr(names, "items_at", ()), strict=True):
                if own and name in entries and phase not in entries[name].phases:
                    self.document.report(
                        "CAP013", at, f"{name} does not serve {phase}", "remove it from this list"
                    )
        if not orders:
            self.document.report(
                "CAP008", raw.position, "a list without an order", "give `order`, or one of a phase"
            )
        return Priority(
            when=self.parser.when(raw),
            orders=MappingProxyType(orders),
            reason=raw["reason"],
            position=raw.position,
            source=raw.get("source", ""),
        )

    def _check_names(self, raw: Mapping, key: str, entries: dict[str, Entry]) -> None:
        names = raw.get(key, ())
        seen: set[str] = set()
        for name, at in zip(names, getattr(names, "items_at", ()), strict=True):
            self.parser.knows_backend(name, entries, at)
            if name in seen:
                self.document.report("CAP015", at, f"{name} is listed twice", "keep the first")
            seen.add(name)

    def _denial(self, raw: Mapping, entries: dict[str, Entry]) -> Denial:
        self.parser.knows_backend(raw["backend"], entries, raw.values_at["backend"])
        return Denial(
            backend=raw["backend"],
            when=self.parser.when(raw),
            reason=raw["reason"],
            position=raw.position,
            source=raw.get("source", ""),
        )

    def _invariant(self, raw: Mapping, entries: dict[str, Entry]) -> Invariant:
        never = raw["never"]
        backends = never.get("backend", ())
        if backends == "any":
            backends = entries
        else:
            self._check_names(never, "backend", entries)
        return Invariant(
            name=raw["name"],
            when=self.parser.when(raw),
            never_paths=frozenset(never.get("path", ())),
            never_backends=frozenset(backends),
            reason=raw["reason"],
            position=raw.position,
        )


def _changing(derive: dict[str, FirstMatch[Value]], fields: frozenset[str]) -> set[str]:
    """Fields that change with each request, and the derived values that follow from them."""
    changing = set(fields)
    for name, match in derive.items():  # in order: what is read comes first
        if _fields_of(match) & changing:
            changing.add(name)
    return changing


def _fields_of(match: FirstMatch[Any]) -> set[str]:
    """The fields that rules read: those they test, and those they take bounds from."""
    tests = [test for rule in match.rules for test in rule.when.tests]
    ends = (end for test in tests for bound in test.allowed.bounds for end in bound.ends)
    return {test.field for test in tests}.union(ends)
