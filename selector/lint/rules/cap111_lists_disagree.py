"""CAP111: one list of sizes stated twice, with different members."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any, NamedTuple

from selector.document import Mapping
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import accepted, entries, known_in
from selector.values import Finding, Position, Severity

_Sizes = tuple[int, ...]


class _Listed(NamedTuple):
    """A list of combinations of sizes.

    Attributes:
        kind: what holds it: a derived value, the paths or a constraint of an entry.
        owner: the entry or derived value.
        at: its first member.
        fields: the fields that are combined.
        members: a value of each field, in their order.
        library: whose kernels it is of; blank: not said.
        runs_on: the known architectures that it can be for.
    """

    kind: str
    owner: str
    at: Position
    fields: tuple[str, ...]
    members: frozenset[_Sizes]
    library: str
    runs_on: frozenset[str]


def _check(context: Context) -> Iterator[Finding]:
    seen: dict[Position, _Listed] = {}
    for one in _lists(context):
        seen.setdefault(one.at, one)
    for first, second in combinations(seen.values(), 2):
        twins = any(
            (one.kind == second.kind and _are_twins(one, first))
            or (one.kind == first.kind and _are_twins(one, second))
            for one in seen.values()
        )
        if _are_one(first, second) and not twins:
            less, more = sorted((first, second), key=lambda one: (len(one.members), one.at))
            left = min(more.members - less.members)
            shown = ", ".join(map("{} {}".format, less.fields, left))
            yield RULE.finding(
                less.at,
                f"{less.owner} lists {len(less.members)} combinations of sizes, "
                f"{len(less.members & more.members)} of which {more.owner} lists too "
                f"({more.at.file}:{more.at.line}), which also has {shown}",
                "add it here, take it out there, or share one list by an alias",
            )


def _are_one(first: _Listed, second: _Listed) -> bool:
    """Whether two lists seem to be one, of which one copy was changed."""
    return (
        (first.kind != second.kind or first.kind == "derived")
        and first.owner != second.owner
        and first.fields == second.fields
        and first.members != second.members
        and len(first.members & second.members) > 1
        and (not first.library or not second.library or first.library == second.library)
        and not first.runs_on.isdisjoint(second.runs_on)
    )


def _are_twins(first: _Listed, second: _Listed) -> bool:
    """Whether two lists of different owners agree: then others are lists of their own."""
    return first.owner != second.owner and first[3:5] == second[3:5]


def _lists(context: Context) -> Iterator[_Listed]:
    every = frozenset(str(known["capability"]) for known in context.architectures)
    for name, raw in context.tree.get("derive", {}).items():
        rules = [(rule.get("when", {}), rule.position) for rule in raw["first_match"]]
        yield from _grouped("derived", name, rules, "", every)
    for raw, entry in entries(context):
        takes = accepted(entry, "capability")
        runs_on = every if takes is None else frozenset(known_in(takes))
        for kind, rules in _of_entry(raw):
            yield from _grouped(kind, entry.name, rules, entry.library, runs_on)


def _of_entry(raw: Mapping) -> Iterator[tuple[str, list[tuple[Mapping, Position]]]]:
    """What an entry requires of sizes, each constraint by itself, and its paths by their names."""
    for said in (raw, *raw["phases"].values()):
        for rule in said.get("constraints", ()):
            ways = rule.get("require", {}).get("any_of", ())
            yield "constraint", [(way, way.position) for way in ways]
    paths = defaultdict(list)
    for rule in raw.get("prefill_paths", ()):
        paths[rule["path"]].append((rule.get("when", {}), rule.position))
    for rules in paths.values():
        yield "paths", rules


def _grouped(
    kind: str,
    owner: str,
    rules: Iterable[tuple[Any, Position]],
    library: str,
    runs_on: frozenset[str],
) -> Iterator[_Listed]:
    """The lists that some conditions are: those that fix the same fields to exact sizes."""
    groups: dict[tuple[str, ...], list[tuple[_Sizes, Position]]] = defaultdict(list)
    for when, at in rules:
        exact = sorted((f, v) for f, v in when.items() if type(v) is int)
        if len(exact) > 1:
            fields = tuple(field for field, _ in exact)
            groups[fields].append((tuple(value for _, value in exact), at))
    for fields, members in groups.items():
        if len(members) > 1:
            sizes = frozenset(size for size, _ in members)
            yield _Listed(kind, owner, members[0][1], fields, sizes, library, runs_on)


RULE = Rule(
    code="CAP111",
    name="lists-disagree",
    severity=Severity.NOTE,
    what=(
        "Two lists that combine exact sizes of the same fields (the `any_of` of a constraint, the "
        "rules of one prefill path, the rules of a derived value) have two or more combinations in "
        "common and are not the same. Compared are lists of paths and derived values with those "
        "of the constraints behind them, and derived values with each other, where both can be for "
        "the same architectures and library; backends that are alternatives have lists of their "
        "own. It is a note: lists may differ rightly, and then a comment says why."
    ),
    why=(
        "An allow-list that is written down twice is extended once. A model with heads of "
        "(256, 0, 256) was added to one of two such lists in vLLM only later: until then all of "
        "its prefill silently took a path eight times slower (vLLM PR #55738)."
    ),
    bad="""derive:
  dense_shape:
    source: "vLLM 0.33.0, sparse_mla_attention.py"
    first_match:
      - {when: {qk_nope_head_dim: 128, v_head_dim: 128}, value: true}
      - {when: {qk_nope_head_dim: 192, v_head_dim: 256}, value: true}
      - {value: false}
backends:
  - name: mla_prefill
    constraints:
      - require:
          any_of:
            - {qk_nope_head_dim: 128, v_head_dim: 128}
            - {qk_nope_head_dim: 192, v_head_dim: 256}
            - {qk_nope_head_dim: 256, v_head_dim: 256}
""",
    good="""derive:
  dense_shape:
    source: "vLLM 0.33.0, sparse_mla_attention.py"
    first_match:
      - {when: {qk_nope_head_dim: 128, v_head_dim: 128}, value: true}
      - {when: {qk_nope_head_dim: 192, v_head_dim: 256}, value: true}
      - {when: {qk_nope_head_dim: 256, v_head_dim: 256}, value: true}
      - {value: false}
""",
    check=_check,
)
