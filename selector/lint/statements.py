"""What a manifest states, one by one and with positions: predicates, rules, sources."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from enum import Enum
from functools import cache, lru_cache
from typing import Any, NamedTuple

import msgspec

from selector.devices import known_capabilities
from selector.document import Mapping, Sequence
from selector.domains import Domain
from selector.fields import parse_capability
from selector.lint.context import Context
from selector.manifest import Entry
from selector.rules import FirstMatch, Test, When
from selector.values import Position

__all__ = [
    "Place",
    "RuleList",
    "Said",
    "Stated",
    "accepted",
    "atoms",
    "entries",
    "known_in",
    "meaning",
    "points_somewhere",
    "predicates",
    "rule_lists",
    "sources",
    "union_of",
]


class Place(Enum):
    """What a predicate does where it stands."""

    ACCEPTS = "what an entry accepts"
    CLAIMED = "what an engine's own code claims"
    REQUIRE = "what a constraint requires"
    WHEN = "when a rule of an entry holds"
    CONSTRAINT = "when a constraint applies"
    DERIVE = "when a derived value has a value"
    PRIORITY = "when a priority list holds"
    REFUSAL = "when something is refused or demanded by policy, space or invariants"


class Stated(NamedTuple):
    """A predicate on a field.

    Attributes:
        field: the field.
        value: as the document has it.
        at: where the value stands.
        place: what it does there.
        owner: the tree of the entry, derived value or list that holds it.
        name: of that entry or derived value; blank: a list.
        beside: the condition that it is part of; empty for what an entry accepts.
        decides: the field whose set, value or path the condition decides; blank: none.
        result: what it decides for: the tree of the set, or the value.
    """

    field: str
    value: Any
    at: Position
    place: Place
    owner: Mapping
    name: str = ""
    beside: Mapping | None = None
    decides: str = ""
    result: Any = None


class RuleList(NamedTuple):
    """Rules of which the first that holds decides.

    Attributes:
        decides: what they decide, in words.
        rules: the trees of the rules, in order.
        key: where a rule has its result.
        takes: the capabilities of the entry that holds them; ``None``: they are for all.
    """

    decides: str
    rules: Sequence
    key: str
    takes: Domain | None = None


class Said(NamedTuple):
    """A text, and where it stands."""

    text: str
    at: Position


def entries(context: Context) -> Iterator[tuple[Mapping, Entry]]:
    """Every entry: its tree, and what it means."""
    for raw in context.tree["backends"]:
        yield raw, context.manifest.entries[raw["name"]]


def atoms(value: Any, at: Position) -> Iterator[tuple[Any, Position]]:
    """The parts of a predicate: the items of a list, else the predicate itself."""
    if isinstance(value, Sequence):
        yield from zip(value, value.items_at, strict=True)
    else:
        yield value, at


@lru_cache(1)  # several rules walk through the same manifest, one after the other
def predicates(context: Context) -> tuple[Stated, ...]:
    """Every predicate of a manifest, in order of the sections."""
    return tuple(_predicates(context.tree))


def _predicates(tree: Mapping) -> Iterator[Stated]:
    for raw in tree["backends"]:
        yield from _of_entry(raw)
    for name, raw in tree.get("derive", {}).items():
        for rule in raw["first_match"]:
            yield from _when(rule, Place.DERIVE, raw, name, decides=name, result=rule["value"])
    for rule in tree.get("priorities", ()):
        yield from _when(rule, Place.PRIORITY, rule)
    for section in ("space", "joint", "deny", "invariants"):
        for rule in tree.get(section, ()):
            yield from _when(rule, Place.REFUSAL, rule)
            yield from _required(rule, Place.REFUSAL, rule)


def _of_entry(raw: Mapping) -> Iterator[Stated]:
    name = raw["name"]
    phases = raw["phases"].values()
    for said in (raw, *phases):
        yield from _accepted(said.get("accepts", {}), Place.ACCEPTS, raw)
        for rule in said.get("constraints", ()):
            yield from _when(rule, Place.CONSTRAINT, raw, name)
            yield from _required(rule, Place.REQUIRE, raw, name)
    claimed = raw.get("claimed", {})
    yield from _accepted(claimed.get("accepts", {}), Place.CLAIMED, raw)
    for rule in claimed.get("constraints", ()):
        yield from _when(rule, Place.CLAIMED, raw, name)
        yield from _required(rule, Place.CLAIMED, raw, name)
    for rule in raw.get("dense_prefill_except", ()):
        yield from _when(rule, Place.CONSTRAINT, raw, name)
    for field, rules in raw.get("coerce", {}).items():
        for rule in rules:
            yield from _when(rule, Place.WHEN, raw, name, decides=field, result=rule["value"])
    threshold = raw.get("decode_threshold")
    for rule in threshold["cases"] if isinstance(threshold, Mapping) else ():
        yield from _when(rule, Place.WHEN, raw, name)
    for rule in raw.get("prefill_paths", ()):
        yield from _when(rule, Place.WHEN, raw, name)


def _accepted(accepts: Mapping, place: Place, raw: Mapping) -> Iterator[Stated]:
    name = raw["name"]
    for field, stated in accepts.items():
        if not (isinstance(stated, Mapping) and "cases" in stated):
            yield Stated(field, stated, accepts.values_at[field], place, raw, name)
            continue
        for case in stated["cases"]:
            where = Place.WHEN if place is Place.ACCEPTS else place
            yield from _when(case, where, raw, name, decides=field, result=case["allow"])
            at = case.values_at["allow"]
            yield Stated(field, case["allow"], at, place, raw, name, case.get("when"))


def _when(
    rule: Mapping,
    place: Place,
    owner: Mapping,
    name: str = "",
    key: str = "when",
    decides: str = "",
    result: Any = None,
) -> Iterator[Stated]:
    """The tests of a condition."""
    raw = rule.get(key, {})
    for field, value in raw.items():
        if field != "any_of":
            at = raw.values_at[field]
            yield Stated(field, value, at, place, owner, name, raw, decides, result)


def _required(rule: Mapping, place: Place, owner: Mapping, name: str = "") -> Iterator[Stated]:
    yield from _when(rule, place, owner, name, "require")
    for way in rule.get("require", {}).get("any_of", ()):
        for field, value in way.items():
            yield Stated(field, value, way.values_at[field], place, owner, name, way)


def rule_lists(context: Context) -> Iterator[RuleList]:
    """Every first match of a manifest; one that entries share, once for each of them."""
    for name, raw in context.tree.get("derive", {}).items():
        yield RuleList(name, raw["first_match"], "value")
    for raw, entry in entries(context):
        takes = accepted(entry, "capability")
        for said in (raw, *raw["phases"].values()):
            for field, stated in said.get("accepts", {}).items():
                if isinstance(stated, Mapping) and "cases" in stated:
                    yield RuleList(field, stated["cases"], "allow", takes)
        for field, rules in raw.get("coerce", {}).items():
            yield RuleList(field, rules, "value", takes)


def accepted(entry: Entry, name: str) -> Domain | None:
    """Every value of a field that an entry accepts in some phase and case.

    ``None``: it depends on another field of the layer, or nothing is said of it.
    """
    specs = [spec for spec in entry.phases.values() if not spec.disabled]
    matches = [spec.accepts[name] for spec in specs if name in spec.accepts]
    return union_of(matches) if matches else None


def union_of(matches: Iterable[FirstMatch[Test]]) -> Domain | None:
    """Every value that one of the rules admits; ``None``: it depends on another field."""
    allowed = [rule.result.allowed for match in matches for rule in match.rules]
    return None if any(a.bounds for a in allowed) else Domain.union(a.fixed for a in allowed)


def meaning(when: When) -> frozenset[Test]:
    """The tests of a condition, wherever it stands."""
    nowhere = Position("", 0, 0)
    return frozenset(msgspec.structs.replace(test, position=nowhere) for test in when.tests)


def known_in(capabilities: Domain) -> list[str]:
    """The known architectures in a set, oldest first."""
    return [text for text, code in _known() if capabilities.admits(code)]


@cache
def _known() -> tuple[tuple[str, int], ...]:
    return tuple((text, parse_capability(text)) for text in known_capabilities())


def sources(context: Context) -> Iterator[Said]:
    """Every source that a manifest names, wherever; what an anchor repeats is there once."""
    seen: set[tuple[str, Position]] = set()
    pending: list[Any] = [context.tree]
    while pending:
        node = pending.pop()
        if isinstance(node, Sequence):
            pending.extend(node)
        if not isinstance(node, Mapping):
            continue
        pending.extend(node.values())
        said = [(node["source"], node.values_at["source"])] if "source" in node else []
        named = node.get("sources")
        if isinstance(named, Mapping):
            said += [(text, named.values_at[field]) for field, text in named.items()]
        for text, at in said:
            if isinstance(text, str) and (text, at) not in seen:
                seen.add((text, at))
                yield Said(text, at)


_PLACE = re.compile(
    r"""https?://\S+
    | \#\s?[0-9]{2,}                              # a pull request
    | \b(?:PR|pull|issue|commit)s?\W{0,3}[0-9a-f]{2,}
    | \b(?=[0-9a-f]*[0-9])[0-9a-f]{7,40}\b        # a commit
    | \bv?[0-9]+\.[0-9]+\.[0-9]+                  # a release
    | \w\.(?:py|pyi|c|cc|cpp|cu|cuh|h|hpp|md|rst|json|yaml|yml|toml|txt)\b
    | \b[^\WA-Za-z_]*+[A-Za-z_]\w*+\.[A-Za-z_]\w+ # a module, class or method
    | \b[a-z]++_[a-z0-9_]+                        # a function
    | \b[A-Z][^\Wa-z]*+[a-z][^\WA-Z]*+[A-Z]\w*    # a class
    | \b[A-Z]{2,}[a-z]{3,}\w*                     # one that begins with capitals
    """,
    re.VERBOSE,
)
"""Words are begun at their begin and never read twice: a text may be long and hostile."""

_PRODUCTS = """
FlashInfer FlashAttention FlashMLA FlexAttention PyTorch TensorRT DeepSeek MiniMax GeForce OpenAI
DeepGEMM DeepSpeed HuggingFace SGLang
"""
"""Names that look like those of classes."""


def points_somewhere(text: str, words: Container[str] = ()) -> bool:
    """Whether a text names what can be looked up: a link, file, release, class or function.

    Args:
        text: in words.
        words: those of the language, such as ``dense_prefill``, which are no names of functions.
    """
    products = _PRODUCTS.split()
    found = (match[0] for match in _PLACE.finditer(text))
    return any(word not in products and word not in words for word in found)
