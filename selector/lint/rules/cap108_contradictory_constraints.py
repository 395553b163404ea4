"""CAP108: two constraints that cannot both be met."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import NamedTuple

from selector.domains import Domain
from selector.fields import Vocabulary, show_domain
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import meaning, union_of
from selector.manifest import PhaseSpec
from selector.rules import Constraint, Test
from selector.values import Finding, Position, Severity


class _Demand(NamedTuple):
    """What a constraint demands of one field, where the tests of ``when`` hold."""

    when: frozenset[Test]
    field: str
    allowed: Domain
    at: Position


def _check(context: Context) -> Iterator[Finding]:
    words = context.manifest.vocabulary
    for entry in context.manifest.entries.values():
        for spec in entry.phases.values():
            if not spec.disabled and len(spec.constraints) > 1:
                yield from _of_phase(spec, words)


def _of_phase(spec: PhaseSpec, words: Vocabulary) -> Iterator[Finding]:
    accepted = {name: union_of([rules]) for name, rules in spec.accepts.items()}
    takes = {
        name: domain & words.universes[name]
        for name, domain in accepted.items()
        if domain is not None
    }
    demands = [one for c in spec.constraints for one in _demands(c, takes, words)]
    for first, second in combinations(demands, 2):
        when = max(first.when, second.when, key=len)
        if first.field != second.field or first.when | second.when != when:
            continue
        possible = takes.get(first.field, words.universes[first.field])
        left, right = possible & first.allowed, possible & second.allowed
        if left.is_empty() or right.is_empty() or not (left & right).is_empty():
            continue
        field = words.fields[first.field]
        where = f"line {first.at.line}"
        every = _named(when, words) if when else "everything that the entry accepts"
        yield RULE.finding(
            second.at,
            f"{field.name} must be {show_domain(field, right)} here and "
            f"{show_domain(field, left)} by {where}: together they refuse {every}",
            "correct one, or say in `accepts` that it is refused",
            Severity.WARNING if when else Severity.ERROR,
        )


def _demands(
    constraint: Constraint, takes: Mapping[str, Domain], words: Vocabulary
) -> Iterator[_Demand]:
    """What a constraint demands of single fields; what it says of several at once is left out."""
    tests = [t for t in constraint.when.tests if not _always(t, takes, words)]
    if any(test.allowed.bounds for test in (*tests, *constraint.require.tests)):
        return
    if constraint.any_of:
        return
    if not constraint.require.tests:
        if len(tests) == 1:  # never so: it must be another
            yield _Demand(frozenset(), tests[0].field, ~tests[0].allowed.fixed, constraint.position)
        return
    when = meaning(constraint.when) if tests else frozenset()
    for test in constraint.require.tests:
        allowed = test.allowed.fixed
        if len(tests) == 1 and tests[0].field == test.field:
            allowed |= ~tests[0].allowed.fixed
            yield _Demand(frozenset(), test.field, allowed, constraint.position)
        else:
            yield _Demand(when, test.field, allowed, constraint.position)


def _always(test: Test, takes: Mapping[str, Domain], words: Vocabulary) -> bool:
    """Whether a test holds for everything that an entry accepts."""
    possible = takes.get(test.field, words.universes[test.field])
    return not test.allowed.bounds and possible <= test.allowed.fixed


def _named(when: frozenset[Test], words: Vocabulary) -> str:
    tests = sorted(when, key=lambda test: test.field)
    said = (f"{t.field} {show_domain(words.fields[t.field], t.allowed.fixed)}" for t in tests)
    return "every layer with " + ", ".join(said)


RULE = Rule(
    code="CAP108",
    name="contradictory-constraints",
    severity=Severity.WARNING,
    what=(
        "Two constraints of an entry that cannot both be met: of one field they demand sets that "
        "have nothing in common. Where they apply to everything that the entry accepts, it can "
        "never be chosen (an error); where they apply under one condition, or one of them under "
        "all that the other needs and more, nothing under it is served. What a constraint forbids "
        "counts as a demand for the rest. Demands on several fields at once (`any_of`, `when` on "
        "several fields without `require`) and conditions apart from each other are not compared."
    ),
    why=(
        "The entry reads as if it served something, and every answer refuses it with two reasons "
        "that no layer can mend."
    ),
    bad="""constraints:
  - {require: {block_size: 16}, code: PAGE, reason: Small pages only.}
  - {require: {block_size: {multiple_of: 64}}, code: LONG_PAGE, reason: Whole lines only.}
""",
    good="""constraints:
  - {require: {block_size: {multiple_of: 16}}, code: PAGE, reason: Pages of whole tiles only.}
  - {require: {block_size: {multiple_of: 64}}, code: LONG_PAGE, reason: Whole lines only.}
""",
    check=_check,
)
