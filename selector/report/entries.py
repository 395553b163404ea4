"""What a manifest states of its entries: the list of them, and everything about one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Mapping as MappingType
from types import MappingProxyType
from typing import Any

from selector.domains import EMPTY, Domain
from selector.fields import show_domain
from selector.manifest import SPARSE_PATH, Entry, Manifest, PhaseSpec
from selector.report.data import to_json
from selector.report.statements import allowed_words, constraint_words, steps_words, when_words
from selector.report.text import (
    BLANK,
    GLUE,
    Line,
    Part,
    faint,
    grid,
    joined,
    line,
    markdown_table,
    strong,
    warn,
)
from selector.report.wording import (
    Places,
    capabilities_words,
    kind_words,
    listed,
    manifest_words,
    ordinal,
    uncapitalised,
    with_separators,
)
from selector.rules import Constraint, FirstMatch, Test
from selector.values import Phase, Position

__all__ = ["entries_json", "entries_lines", "entry_json", "entry_lines"]


# -- the list ------------------------------------------------------------------------------------


def entries_json(manifest: Manifest) -> dict[str, Any]:
    """The manifest and its entries, in short."""
    return {
        "manifest": to_json(manifest.ref),
        "backends": [_short(e, manifest) for e in manifest.entries.values()],
    }


def _short(entry: Entry, manifest: Manifest) -> dict[str, Any]:
    return {
        "name": entry.name,
        "description": entry.description,
        "mla": entry.mla,
        "sparse": entry.sparse,
        "phases": [phase.value for phase in entry.phases],
        "platform": _every(entry, "platform", manifest),
        "capability": _every(entry, "capability", manifest),
        "requires": {need.fact: need.specifier or "true" for need in entry.requires},
        "runs_here": entry.adapter is not None,
        "position": to_json(entry.position),
    }


def _every(entry: Entry, name: str, manifest: Manifest) -> str:
    """The values accepted in any phase and any case."""
    domain = EMPTY
    for spec in entry.phases.values():
        for rule in spec.accepts[name].rules:
            domain = domain | rule.result.allowed.fixed
    if name == "capability" and domain.spans:  # "absent" is said by the platform
        domain = Domain(domain.spans)
    return show_domain(manifest.vocabulary.fields[name], domain)


_HEAD = ("backend", "layers", "phases", "platforms", "capabilities")


def _rows(manifest: Manifest) -> Iterator[tuple[list[str], str]]:
    """Yields what fits in columns, and what the entry needs."""
    for short in entries_json(manifest)["backends"]:
        cells = [
            short["name"],
            kind_words(short["mla"], short["sparse"]),
            ", ".join(short["phases"]),
            short["platform"],
            capabilities_words(short["capability"]),
        ]
        needs = ", ".join(f"{fact} {wanted}" for fact, wanted in short["requires"].items())
        yield cells, needs


def entries_lines(manifest: Manifest, places: Places, markdown: bool = False) -> list[Line]:
    """One row for each entry, and under it where it runs and what it needs."""
    if markdown:
        table = ([*cells, needs] for cells, needs in _rows(manifest))
        return markdown_table([*_HEAD, "needs"], table)
    rows: list[list[Part]] = [[faint(title) for title in (*_HEAD[:3], "line")]]
    under: list[str] = [""]
    for (cells, needs), entry in zip(_rows(manifest), manifest.entries.values(), strict=True):
        name, kind, phases, platforms, capabilities = cells
        rows.append([strong(name), kind, phases, faint(f":{entry.position.line}")])
        wanted = f" · needs {needs}" if needs else ""
        under.append(f"{platforms} · {capabilities}{wanted}")
    head: list[Part] = [strong(manifest.ref.name), f"  {len(manifest.entries)} backends    "]
    lines = [line(*head, faint(manifest_words(manifest.ref, places))), BLANK]
    indent = 4 + max(len(name) for name in manifest.entries)
    for row, words in zip(grid(rows, indent=2, gap=2), under, strict=True):
        lines.append(row)
        if words:
            lines.append(line(" " * indent, faint(words), hang=indent))
    return lines


# -- one entry -----------------------------------------------------------------------------------


def entry_json(entry: Entry, manifest: Manifest) -> dict[str, Any]:
    """Everything an entry states, with positions; sets and conditions in words."""
    return {
        **_short(entry, manifest),
        "source": entry.source,
        "library": entry.library or None,
        "kv_layout": sorted(entry.kv_layout),
        "dense_prefill": entry.dense_prefill,
        "dense_prefill_at": to_json(entry.dense_prefill_at),
        "dense_prefill_except": [
            {
                "when": when_words(rule.when, manifest.vocabulary),
                "reason": rule.reason,
                "source": rule.source,
                "position": to_json(rule.position),
            }
            for rule in entry.dense_prefill_except
        ],
        "pinned": sorted(entry.pinned),
        "rationale": entry.rationale,
        "evidence": list(entry.evidence),
        "revisit_when": entry.revisit_when,
        "requires_at": {need.fact: to_json(need.position) for need in entry.requires},
        "states": {
            p.value: _phase_json(spec, manifest, entry.sources) for p, spec in entry.phases.items()
        },
        "coerce": {name: _rules_json(rules, manifest) for name, rules in entry.coerce.items()},
        "decode_threshold": (
            _rules_json(entry.decode_threshold, manifest) if entry.decode_threshold else []
        ),
        "uniform_decodes": entry.uniform_decodes,
        "prefill_paths": [_path_json(entry, i, manifest) for i in range(len(entry.prefill_paths))],
        "adapter": entry.adapter,
        "claimed": _claim_json(entry, manifest),
        "verified_on": list(entry.verified_on),
        "ranks": _ranks(entry, manifest),
    }


def _phase_json(
    spec: PhaseSpec, manifest: Manifest, sources: MappingType[str, str]
) -> dict[str, Any]:
    return {
        "disabled": spec.disabled,
        "rationale": spec.rationale,
        "position": to_json(spec.position),
        "accepts": _accepts_json(spec.accepts, manifest, sources),
        "constraints": [_constraint_json(c, manifest) for c in spec.constraints],
    }


def _accepts_json(
    accepts: Any, manifest: Manifest, sources: MappingType[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    stated: dict[str, FirstMatch[Test]] = dict(accepts)
    words = manifest.vocabulary
    return {
        name: [
            {
                "when": when_words(rule.when, words),
                "allow": allowed_words(name, rule.result.allowed, words),
                "reason": rule.reason,
                "source": rule.source or sources.get(name, ""),
                "position": to_json(rule.result.position),
            }
            for rule in rules.rules
        ]
        for name, rules in stated.items()
    }


def _constraint_json(constraint: Constraint, manifest: Manifest) -> dict[str, Any]:
    return {
        "code": constraint.code,
        "rule": constraint_words(constraint, manifest.vocabulary),
        "reason": constraint.reason,
        "source": constraint.source,
        "position": to_json(constraint.position),
    }


def _rules_json(rules: FirstMatch[Any], manifest: Manifest) -> list[dict[str, Any]]:
    return [
        {
            "when": when_words(rule.when, manifest.vocabulary),
            "value": rule.result,
            "reason": rule.reason,
            "source": rule.source or rules.source,
            "position": to_json(rule.position),
        }
        for rule in rules.rules
    ]


def _path_json(entry: Entry, index: int, manifest: Manifest) -> dict[str, Any]:
    rule = entry.prefill_paths[index]
    parts = [when_words(rule.when, manifest.vocabulary)]
    parts += [steps_words(rule.steps)] if rule.steps else []
    return {
        "path": rule.path,
        "off": entry.sparse and rule.path != SPARSE_PATH and entry.dense_prefill is False,
        "when": " and ".join(part for part in parts if part),
        "scope": "batch" if rule.batch else "request",
        "by": "dense_backend" if rule.by_dense_backend else None,
        "reason": rule.reason,
        "source": rule.source,
        "position": to_json(rule.position),
    }


def _claim_json(entry: Entry, manifest: Manifest) -> dict[str, Any] | None:
    claim = entry.claimed
    if claim is None:
        return None
    return {
        "source": claim.source,
        "dense_prefill": claim.dense_prefill,
        "accepts": _accepts_json(claim.accepts, manifest),
        "constraints": [_constraint_json(c, manifest) for c in claim.constraints or ()],
    }


def _ranks(entry: Entry, manifest: Manifest) -> list[dict[str, Any]]:
    """Where the entry stands in the priority lists."""
    return [
        {
            "list": index,
            "phase": phase.value,
            "rank": order.index(entry.name) + 1,
            "of": len(order),
            "reason": priority.reason,
            "position": to_json(priority.position),
        }
        for index, priority in enumerate(manifest.priorities)
        for phase in Phase
        if entry.name in (order := priority.orders.get(phase, ()))
    ]


def entry_lines(entry: Entry, manifest: Manifest, places: Places) -> list[Line]:
    """Everything an entry states, each with its line."""
    data = entry_json(entry, manifest)
    kind = kind_words(entry.mla, entry.sparse)
    at = faint(places.at(entry.position))
    lines = [line(strong(entry.name), f"  {kind}  ", at), line("  ", data["description"]), BLANK]
    lines += grid(list(_facts(data, places)), indent=2)
    shared = _shared(data["states"])
    lines += _statement_lines("accepts", shared, places)
    for phase, stated in data["states"].items():
        if stated["disabled"]:
            at = faint("   " + _place(stated["position"], places))
            lines += [BLANK, line("  ", warn(f"{phase} is switched off"), at)]
            lines.append(line("    ", stated["rationale"] or "", hang=4))
        own = {name: rules for name, rules in stated["accepts"].items() if name not in shared}
        lines += _statement_lines(f"accepts for {phase}", own, places)
    lines += _rule_lines(data["states"], places)
    lines += _path_lines(data, places)
    if data["claimed"]:
        lines += _claim_lines(data["claimed"], places)
    ranks = list(_rank_rows(data["ranks"], places))
    return [
        *lines,
        *([BLANK, line("  ", strong("tried")), *grid(ranks, indent=4)] if ranks else []),
    ]


def _facts(data: dict[str, Any], places: Places) -> Iterator[list[Part]]:
    yield [faint("source"), data["source"]]
    if data["library"]:
        yield [faint("library"), data["library"]]
    for fact, wanted in data["requires"].items():
        at = faint(_place(data["requires_at"][fact], places))
        yield [faint("requires"), line(f"{fact} {wanted}   ", at)]
    yield [faint("phases"), ", ".join(data["phases"])]
    if data["kv_layout"]:
        yield [faint("kv_layout"), ", ".join(data["kv_layout"])]
    yield from _dense(data, places)
    for label in ("decode_threshold", *data["coerce"]):
        rules = data["decode_threshold"] if label == "decode_threshold" else data["coerce"][label]
        title = label if label == "decode_threshold" else f"becomes: {label}"
        for rule in rules:
            when = f" when {rule['when']}" if rule["when"] else ""
            why = f": {rule['reason']}" if rule["reason"] else ""
            at = faint("   " + _place(rule["position"], places))
            value = "unchanged" if rule["value"] == "same" else rule["value"]
            shown = f"{value:,}" if isinstance(value, int) else value
            yield [faint(title), line(f"{shown}{when}{why}", at)]
    yield [faint("adapter"), data["adapter"] or "none: resolved only, not run here"]
    if data["verified_on"]:
        yield [faint("verified on"), ", ".join(data["verified_on"])]


def _dense(data: dict[str, Any], places: Places) -> Iterator[list[Part]]:
    """Whether prefill may be dense; if not, why, the evidence, and what would reopen it."""
    if data["dense_prefill"] is None:
        return
    pinned = " pinned" if "dense_prefill" in data["pinned"] else ""
    value = "true" if data["dense_prefill"] else "false"
    at = faint(f"   {_place(data['dense_prefill_at'], places)}{pinned}")
    yield [faint("dense_prefill"), line(warn(value) if value == "false" else value, at)]
    for text in (data["rationale"], *data["evidence"]):
        if text:
            yield ["", text]
    if data["revisit_when"]:
        yield ["", f"Revisit when {uncapitalised(data['revisit_when'])}"]


def _shared(states: dict[str, Any]) -> dict[str, Any]:
    """What all phases accept alike."""
    first, *others = (stated["accepts"] for stated in states.values())
    return {n: rules for n, rules in first.items() if all(o.get(n) == rules for o in others)}


def _statement_lines(title: str, accepts: dict[str, Any], places: Places) -> list[Line]:
    if not accepts:
        return []
    rows: list[list[Part]] = []
    silent: list[str] = []
    for name, rules in accepts.items():
        if [rule["reason"] for rule in rules] == ["not stated"]:
            silent.append(f"{name}{GLUE}{with_separators(rules[0]['allow'])}")
            continue
        for rule in rules:
            when = f"when {rule['when']}: " if rule["when"] else ""
            otherwise = "else " if not when and len(rules) > 1 else ""
            why = f": {rule['reason']}" if rule["reason"] else ""
            at = faint("   " + _place(rule["position"], places))
            allow = with_separators(rule["allow"])
            if name == "capability":
                allow = capabilities_words(allow)
            rows.append([name, line(f"{with_separators(when)}{otherwise}{allow}{why}", at)])
    if silent:
        rows.append([faint("not stated"), line("so only ", joined(silent, ", "))])
    return [BLANK, line("  ", strong(title)), *grid(rows, indent=4)]


def _rule_lines(states: dict[str, Any], places: Places) -> list[Line]:
    """Constraints; those of all phases once."""
    each = [stated["constraints"] for stated in states.values()]
    shared = [c for c in each[0] if all(c in other for other in each)]
    lines = _constraint_lines("rules", shared, places)
    for phase, stated in states.items():
        own = [c for c in stated["constraints"] if c not in shared]
        lines += _constraint_lines(f"rules for {phase}", own, places)
    return lines


def _constraint_lines(title: str, constraints: Sequence[Any], places: Places) -> list[Line]:
    rows: list[list[Part]] = [
        [c["code"], line(f"{c['rule']}: {c['reason']}   ", faint(_place(c["position"], places)))]
        for c in constraints
    ]
    return [BLANK, line("  ", strong(title)), *grid(rows, indent=4)] if rows else []


def _path_lines(data: dict[str, Any], places: Places) -> list[Line]:
    """The ways to compute prefill, in order; those that are switched off, with why."""
    rows: list[list[Part]] = []
    pinned = " (pinned)" if "dense_prefill" in data["pinned"] else ""
    for path in data["prefill_paths"]:
        when = f"when {path['when']}" if path["when"] else "else" if rows else "always"
        scope = " (of the batch's longest prefill)" if path["scope"] == "batch" else ""
        at = faint("   " + _place(path["position"], places))
        if path["off"]:
            rows.append([path["path"], line(warn(f"off: dense_prefill false{pinned}"), at)])
            rows.append(["", data["rationale"] or ""])
            rows.append(["", faint(f"its rule: {when}{scope}: {path['reason']}")])
        else:
            rows.append([path["path"], line(f"{when}{scope}: {path['reason']}", at)])
    return [BLANK, line("  ", strong("prefill paths")), *grid(rows, indent=4)] if rows else []


def _claim_lines(claim: dict[str, Any], places: Places) -> list[Line]:
    lines = [BLANK, line("  ", strong("claimed otherwise"), f" by {claim['source']}")]
    if claim["dense_prefill"] is not None:
        lines.append(line("    dense_prefill ", "true" if claim["dense_prefill"] else "false"))
    lines += _statement_lines("claims to accept", claim["accepts"], places)
    return [*lines, *_constraint_lines("rules of the claim", claim["constraints"], places)]


def _rank_rows(ranks: Sequence[dict[str, Any]], places: Places) -> Iterator[list[Part]]:
    """Yields a row for each list and place in it; phases that share a place share a row."""
    places_in: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for rank in ranks:
        places_in.setdefault((rank["list"], rank["rank"], rank["of"]), []).append(rank)
    for (index, rank_, length), same in places_in.items():
        where = f"{ordinal(rank_)} of {length} for {listed([r['phase'] for r in same], 'and')}"
        at = faint("   " + _place(same[0]["position"], places))
        yield [f"priorities[{index}]", where, line(same[0]["reason"], at)]


def _place(position: Sequence[Any], places: Places) -> str:
    return places.at(Position(*position))
