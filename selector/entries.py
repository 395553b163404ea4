"""One entry of a manifest: tree → what the backend can do."""

from __future__ import annotations

import itertools
from collections.abc import Mapping as MappingType
from types import MappingProxyType

from selector.document import Document, Mapping
from selector.domains import Value
from selector.fields import close_matches
from selector.manifest import (
    SPARSE_PATH,
    Claim,
    Entry,
    PathRule,
    PhaseSpec,
    Requirement,
)
from selector.parsing import KINDS, Parser
from selector.rules import Constraint, FirstMatch, Rule, Steps, Test, When
from selector.scalars import cut
from selector.values import Phase

__all__ = ["EntryReader"]

_NEVER_COERCED = frozenset({"platform", "capability", "dense_prefill", *KINDS})
"""What the request is: to change it would be to answer another one, and to step around the pin."""


class EntryReader:
    """Turns trees of entries into entries, reporting what the schema cannot see."""

    def __init__(self, document: Document, parser: Parser) -> None:
        assert document.tree is not None
        self.document = document
        self.tree = document.tree
        self.parser = parser
        self.words = parser.words
        declared = (self.tree.get(key, {}) for key in ("facts", "derive"))
        self.fixed = _NEVER_COERCED.union(parser.of_request, *declared)

    def entry(self, raw: Mapping) -> Entry:
        """The entry that a tree states."""
        parse = self.parser
        accepts = MappingProxyType(self._accepts(raw, None))
        constraints = tuple(parse.constraint(c) for c in raw.get("constraints", ()))
        phases = {
            Phase(name): self._phase(raw, spec, accepts, constraints)
            for name, spec in raw["phases"].items()
        }
        return Entry(
            name=raw["name"],
            position=raw.position,
            description=raw.get("description", ""),
            source=raw["source"],
            sources=MappingProxyType(self._sources(raw)),
            library=raw.get("library", ""),
            mla=raw["mla"],
            sparse=raw["sparse"],
            dense_prefill=raw.get("dense_prefill"),
            dense_prefill_at=raw.keys_at.get("dense_prefill"),
            dense_prefill_except=self._exceptions(raw),
            rationale=raw.get("rationale"),
            evidence=tuple(raw.get("evidence", ())),
            revisit_when=raw.get("revisit_when"),
            pinned=frozenset(raw.get("pinned", ())),
            requires=self._requires(raw),
            kv_layout=frozenset(raw.get("kv_layout", ())),
            accepts=accepts,
            phases=MappingProxyType(phases),
            coerce=MappingProxyType(self._coerce(raw)),
            decode_threshold=self._threshold(raw),
            uniform_decodes=raw.get("uniform_decodes", False),
            prefill_paths=self._paths(raw),
            adapter=raw.get("adapter"),
            claimed=self._claim(raw.get("claimed"), parse),
            verified_on=tuple(raw.get("verified_on", ())),
        )

    def _phase(
        self,
        raw: Mapping,
        spec: Mapping,
        accepts: MappingType[str, FirstMatch[Test]],
        constraints: tuple[Constraint, ...],
    ) -> PhaseSpec:
        """What a phase says: what the entry says, and its own."""
        if "accepts" in spec:
            accepts = MappingProxyType(self._accepts(raw, spec))
        if "constraints" in spec:
            constraints += tuple(self.parser.constraint(c) for c in spec["constraints"])
        stated = (raw["accepts"], spec.get("accepts", {}))
        for field in self.words.fields.values():
            if field.role == "core" and field.name not in accepts:
                if self.parser.misspells(field.name, stated):
                    continue  # which is told already
                self.document.report(
                    "CAP025",
                    raw.keys_at["accepts"],
                    f"entry {raw['name']} does not state `{field.name}`",
                    "list the values it accepts, or `any`",
                )
        return PhaseSpec(
            accepts=accepts,
            constraints=constraints,
            position=spec.position,
            disabled=spec.get("disabled", False),
            rationale=spec.get("rationale"),
        )

    def _exceptions(self, raw: Mapping) -> tuple[Rule[bool], ...]:
        """When an entry that may compute prefill densely may not."""
        rules = raw.get("dense_prefill_except", ())
        for rule in rules:
            if not raw.get("dense_prefill") or not raw["sparse"]:
                message = "an exception, and the entry has no dense prefill to except from"
                self.document.report("CAP016", rule.position, message, "remove it")
            elif not rule["when"]:
                message = "this exception always holds, so no prefill is dense"
                fix = "say `dense_prefill: false` and why in `rationale`"
                self.document.report("CAP016", rule.position, message, fix)
        return tuple(
            Rule(self.parser.when(r), False, r.position, r["reason"], r.get("source", ""))
            for r in rules
        )

    def _sources(self, raw: Mapping) -> dict[str, str]:
        sources = raw.get("sources", {})
        return {
            name: source
            for name, source in sources.items()
            if self.parser.knows(name, sources.keys_at[name])
        }

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
            if name not in facts:
                near = close_matches(name, facts)
                fix = f"did you mean {near[0]}?" if near else "declare it there"
                message = f'"{cut(name)}" is not declared under `facts`'
                self.document.report("CAP013", requires.keys_at[name], message, fix)
                continue
            at = requires.values_at[name]
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
        return self.parser.first_match(stated["cases"], "value", stated.get("source", ""))

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
            elif i == len(rules) and "by" in rule:
                self.document.report(
                    "CAP016",
                    rule.position,
                    "the last path needs another backend, so some requests have no path",
                    "end with sparse_mqa",
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
                by_dense_backend=r.get("by") == "dense_backend",
                source=r.get("source", ""),
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
