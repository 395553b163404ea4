"""Text → positioned tree → schema → typed manifest, or every finding on the way."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any

from selector import schema
from selector.document import Document, Mapping, Sequence, read_document, read_text
from selector.domains import Value
from selector.errors import ManifestError
from selector.manifest import (
    SPARSE_PATH,
    Claim,
    Denial,
    Entry,
    Invariant,
    Joint,
    Manifest,
    Measure,
    PathRule,
    PhaseSpec,
    Priority,
    Requirement,
)
from selector.overlay import apply_overlay
from selector.parsing import KINDS, Parser, locate, vocabulary_of
from selector.rules import FirstMatch, Rule, Steps, Test, When
from selector.values import ManifestRef, Phase

__all__ = ["load", "loads", "read"]


def load(path: str | Path, overlays: Iterable[str | Path] = ()) -> Manifest:
    """Reads a manifest file and applies overlays to it, in order.

    Raises:
        ManifestError: it has findings of severity error; all are listed.
        OSError: the file cannot be opened.
    """
    document = read_document(Path(path))
    for overlay in overlays:
        document = apply_overlay(document, read_document(Path(overlay)))
    return _require(*read(document))


def loads(text: str | bytes, file: str = "manifest.yaml") -> Manifest:
    """Reads a manifest from text; ``file`` names it in findings.

    Raises:
        ManifestError: it has findings of severity error; all are listed.
    """
    return _require(*read(read_text(text, file)))


def read(document: Document) -> tuple[Manifest | None, Document]:
    """The manifest, when the document has no errors, and the document with its findings."""
    if document.tree is None:
        return None, document
    for fault in schema.check(document.tree, "manifest"):
        at = locate(document.tree, fault.path, fault.at_key)
        document.report(fault.code, at, fault.message, fault.fix)
        if document.full:  # faults are found one by one: looking for more costs time
            break
    manifest = None if document.broken else _Builder(document).manifest()
    document.findings.sort()
    return (None if document.broken else manifest), document


def _require(manifest: Manifest | None, document: Document) -> Manifest:
    if manifest is None:
        raise ManifestError(tuple(document.findings))
    return manifest


def digest(tree: Mapping) -> str:
    """SHA-256 of what the manifest means: comments, key order and anchors do not count."""
    meaning = {key: value for key, value in tree.items() if key != "definitions"}
    return hashlib.sha256(json.dumps(meaning, sort_keys=True).encode()).hexdigest()


_NEVER_COERCED = frozenset({"platform", "capability", "dense_prefill", *KINDS})
"""What the request is: to change it would be to answer another one, and to step around the pin."""


class _Builder:
    """Turns a tree that passed the schema into a manifest, reporting what the schema cannot see."""

    def __init__(self, document: Document) -> None:
        assert document.tree is not None
        self.document = document
        self.tree = document.tree
        self.words = vocabulary_of(document)
        self.parser = Parser(document, self.words)
        declared = (self.tree.get(key, {}) for key in ("facts", "derive"))
        self.fixed = _NEVER_COERCED.union(self.parser.changing, *declared)

    def manifest(self) -> Manifest:
        tree = self.tree
        entries = self._entries()
        derive = self._derive()
        parse = self.parser
        manifest = Manifest(
            ref=ManifestRef(tree["name"], tree["version"], self.document.file, digest(tree)),
            vocabulary=self.words,
            description=tree.get("description", ""),
            entries=MappingProxyType(entries),
            facts=MappingProxyType({n: f["type"] for n, f in tree.get("facts", {}).items()}),
            derive=MappingProxyType(derive),
            space=tuple(parse.constraint(r, "CONTRADICTION") for r in tree.get("space", ())),
            joint=tuple(
                Joint(parse.when(r), tuple(r["same"]), r["reason"], r.position)
                for r in tree.get("joint", ())
            ),
            priorities=tuple(self._priority(r, entries) for r in tree.get("priorities", ())),
            deny=tuple(self._denial(r, entries) for r in tree.get("deny", ())),
            measures=tuple(
                Measure(n, m["small_tile"], m["large_tile"], m["word_align"])
                for n, m in tree.get("measures", {}).items()
            ),
            invariants=tuple(self._invariant(r, entries) for r in tree.get("invariants", ())),
        )
        parse.refuse_bounds(_changing(derive, parse.changing))
        return manifest

    def _entries(self) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for raw in self.tree["backends"]:
            entry = self._entry(raw)
            if entry.name in entries:
                at = raw.values_at["name"]
                first = entries[entry.name].position.line
                self.document.report(
                    "CAP015", at, f'"{entry.name}" is already defined on line {first}', "rename one"
                )
            entries[entry.name] = entry
        return entries

    def _entry(self, raw: Mapping) -> Entry:
        parse = self.parser
        phases = {Phase(p): self._phase(raw, spec) for p, spec in raw["phases"].items()}
        return Entry(
            name=raw["name"],
            position=raw.position,
            description=raw.get("description", ""),
            source=raw["source"],
            library=raw.get("library", ""),
            mla=raw["mla"],
            sparse=raw["sparse"],
            dense_prefill=raw.get("dense_prefill"),
            dense_prefill_at=raw.keys_at.get("dense_prefill"),
            rationale=raw.get("rationale"),
            evidence=tuple(raw.get("evidence", ())),
            revisit_when=raw.get("revisit_when"),
            pinned=frozenset(raw.get("pinned", ())),
            requires=self._requires(raw),
            kv_layout=frozenset(raw.get("kv_layout", ())),
            accepts=MappingProxyType(self._accepts(raw, None)),
            phases=MappingProxyType(phases),
            coerce=MappingProxyType(self._coerce(raw)),
            decode_threshold=self._threshold(raw),
            uniform_decodes=raw.get("uniform_decodes", False),
            prefill_paths=self._paths(raw),
            adapter=raw.get("adapter"),
            claimed=self._claim(raw.get("claimed"), parse),
            verified_on=tuple(raw.get("verified_on", ())),
        )

    def _phase(self, raw: Mapping, spec: Mapping) -> PhaseSpec:
        accepts = self._accepts(raw, spec)
        for field in self.words.fields.values():
            if field.role == "core" and field.name not in accepts:
                self.document.report(
                    "CAP025",
                    raw.keys_at["accepts"],
                    f"entry {raw['name']} does not state `{field.name}`",
                    "list the values it accepts, or `any`",
                )
        constraints = [*raw.get("constraints", ()), *spec.get("constraints", ())]
        return PhaseSpec(
            accepts=MappingProxyType(accepts),
            constraints=tuple(self.parser.constraint(c) for c in constraints),
            position=spec.position,
            disabled=spec.get("disabled", False),
            rationale=spec.get("rationale"),
        )

    def _accepts(self, raw: Mapping, spec: Mapping | None) -> dict[str, FirstMatch[Test]]:
        """What an entry accepts, for every field it restricts, in order of the vocabulary."""
        common = self.parser.accepts(raw["accepts"])
        own = self.parser.accepts(spec["accepts"]) if spec and "accepts" in spec else {}
        accepts: dict[str, FirstMatch[Test]] = {}
        for field in self.words.fields.values():
            if field.name in KINDS:
                at = raw.keys_at[field.name]
                accepts[field.name] = self.parser.exactly(field.name, raw[field.name], at)
            elif field.name in own or field.name in common:
                accepts[field.name] = own.get(field.name) or common[field.name]
            elif field.role == "feature":
                at = raw.keys_at["accepts"]
                accepts[field.name] = self.parser.exactly(field.name, field.off, at, "not stated")
        return accepts

    def _requires(self, raw: Mapping) -> tuple[Requirement, ...]:
        found: list[Requirement] = []
        facts = self.tree.get("facts", {})
        requires = raw.get("requires", {})
        for name, wanted in requires.items():
            at = requires.values_at[name]
            if name not in facts:
                self.document.report(
                    "CAP013", at, f'"{name}" is not declared under `facts`', "declare it there"
                )
                continue
            kind = facts[name]["type"]
            if kind == "boolean" and wanted is not True:
                self.document.report("CAP011", at, f"{name} is a probe", "write true")
            elif kind == "version" and not self.parser.is_specifier(wanted):
                shown = "true" if wanted is True else f'"{wanted}"'
                self.document.report(
                    "CAP011", at, f"{shown} is no version specifier", 'write one such as ">=1.2"'
                )
            found.append(Requirement(name, None if wanted is True else str(wanted), at))
        return tuple(found)

    def _coerce(self, raw: Mapping) -> dict[str, FirstMatch[Value]]:
        coerce = raw.get("coerce", {})
        found: dict[str, FirstMatch[Value]] = {}
        for name, rules in coerce.items():
            at = coerce.keys_at[name]
            if not self.parser.knows(name, at):
                continue
            if name in self.fixed:
                self.document.report(
                    "CAP028",
                    at,
                    f"no backend changes {name}",
                    "coerce what it chooses itself, such as kv_cache_dtype or block_size",
                )
            matches = self.parser.first_match(rules, "value")
            for rule in matches.rules:
                if rule.result != "same":
                    self.parser.check_value(name, rule.result, rule.position)
            found[name] = matches
        return found

    def _threshold(self, raw: Mapping) -> FirstMatch[int] | None:
        stated = raw.get("decode_threshold")
        if stated is None:
            return None
        if isinstance(stated, int):
            return FirstMatch((Rule(When(), stated, raw.values_at["decode_threshold"]),))
        return self.parser.first_match(stated["cases"], "value")

    def _paths(self, raw: Mapping) -> tuple[PathRule, ...]:
        rules = raw.get("prefill_paths", ())
        for i, rule in enumerate(rules, 1):
            conditional = rule.get("when") or "steps" in rule
            gated = raw["sparse"] and rule["path"] != SPARSE_PATH
            if i < len(rules) and not conditional and not gated:
                self.document.report(
                    "CAP016",
                    rule.position,
                    "this path is always taken, so those after it never are",
                    "move it to the end or give it a `when`",
                )
            elif i == len(rules) and conditional:
                self.document.report(
                    "CAP016",
                    rule.position,
                    "the last path has a condition, so some requests have no path",
                    "end with a path that has no `when`",
                )
            elif i == len(rules) and gated and not raw["dense_prefill"]:
                self.document.report(
                    "CAP016",
                    rule.position,
                    "the last path is dense and `dense_prefill` is false, so requests have no path",
                    "end with sparse_mqa",
                )
        return tuple(
            PathRule(
                path=r["path"],
                when=self.parser.when(r),
                steps=self._steps(r),
                batch=r.get("scope") == "batch",
                reason=r["reason"],
                position=r.position,
            )
            for r in rules
        )

    def _steps(self, rule: Mapping) -> Steps | None:
        steps = rule.get("steps")
        if steps is None:
            return None
        for key in ("over", "least"):
            self.parser.knows(steps[key], steps.values_at[key])
        table = tuple((row["max"], row["min"]) for row in steps["table"])
        if any(b <= a for (a, _), (b, _) in itertools.pairwise(table)):
            at = steps.keys_at["table"]
            self.document.report("CAP011", at, "`max` does not ascend", "sort the rows by `max`")
        return Steps(steps["over"], steps["least"], table, steps.position)

    def _claim(self, raw: Mapping | None, parse: Parser) -> Claim | None:
        if raw is None:
            return None
        constraints = raw.get("constraints")
        return Claim(
            source=raw["source"],
            accepts=MappingProxyType(parse.accepts(raw.get("accepts", {}))),
            dense_prefill=raw.get("dense_prefill"),
            constraints=(
                None if constraints is None else tuple(parse.constraint(c) for c in constraints)
            ),
        )

    def _derive(self) -> dict[str, FirstMatch[Value]]:
        """Derived values, each after the ones it reads."""
        stated = self.tree.get("derive", {})
        rules = {n: self._derivation(n, d["first_match"]) for n, d in stated.items()}
        reads = {n: _fields_of(m) & rules.keys() for n, m in rules.items()}
        ordered: dict[str, FirstMatch[Value]] = {}
        while len(ordered) < len(rules):
            ready = [n for n in rules if n not in ordered and reads[n] <= ordered.keys()]
            if not ready:
                self._report_cycle(stated, {n: reads[n] - ordered.keys() for n in rules})
                return ordered
            ordered.update((n, rules[n]) for n in ready)
        return ordered

    def _derivation(self, name: str, raw: Sequence) -> FirstMatch[Value]:
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
        return self.parser.first_match(raw, "value")

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
            names = raw.get(key, ())
            self._check_names(raw, key, entries)
            orders[phase] = tuple(n for n in names if n in entries and phase in entries[n].phases)
            for name, at in zip(names, getattr(names, "items_at", ()), strict=True):
                if own and name in entries and phase not in entries[name].phases:
                    self.document.report(
                        "CAP013", at, f"{name} does not serve {phase}", "remove it from this list"
                    )
        if "order" not in raw and not ("prefill" in raw and "decode" in raw):
            self.document.report(
                "CAP008", raw.position, "no order for one phase", "give `order`, or both phases"
            )
        return Priority(
            self.parser.when(raw), MappingProxyType(orders), raw["reason"], raw.position
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
        return Denial(raw["backend"], self.parser.when(raw), raw["reason"], raw.position)

    def _invariant(self, raw: Mapping, entries: dict[str, Entry]) -> Invariant:
        never = raw["never"]
        self._check_names(never, "backend", entries)
        return Invariant(
            name=raw["name"],
            when=self.parser.when(raw),
            never_paths=frozenset(never.get("path", ())),
            never_backends=frozenset(never.get("backend", ())),
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
