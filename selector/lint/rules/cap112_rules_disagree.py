"""CAP112: two rules for one result that disagree on architectures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from selector.document import Mapping
from selector.domains import Domain
from selector.fields import parse_capability_set
from selector.lint.catalogue import Rule
from selector.lint.context import Context
from selector.lint.statements import RuleList, atoms, known_in, rule_lists
from selector.values import Finding, Position, Severity
from selector.words import listed_and


class _Case(NamedTuple):
    """A rule that asks for the architecture.

    Attributes:
        result: what it gives, in a form that can be compared.
        takes: the capabilities that it takes.
        beside: what else it asks.
        at: where it says the capability.
    """

    result: Any
    takes: Domain
    beside: frozenset[Any]
    at: Position


def _check(context: Context) -> Iterator[Finding]:
    done: set[Position] = set()
    for rules in rule_lists(context):
        cases = [case for rule in rules.rules for case in _case(rule, rules.key)]
        for case in cases:
            if case.at not in done:
                found = list(_disagreeing(case, cases, rules))
                done.update(case.at for _ in found)
                yield from found


def _disagreeing(case: _Case, cases: list[_Case], rules: RuleList) -> Iterator[Finding]:
    """A rule that gives its result on more than those do which ask less for it."""
    wider = [one for one in cases if one.result == case.result and one.beside < case.beside]
    asked = case.takes if rules.takes is None else case.takes & rules.takes
    meeting = [one for one in wider if known_in(one.takes & asked)]
    if not meeting:
        return
    more = known_in(asked - Domain.union(one.takes for one in wider))
    if more:
        other = meeting[0]
        shared = known_in(asked & other.takes)
        is_open = any(span.high is None for span in case.takes.spans)
        yield RULE.finding(
            case.at,
            f"{rules.decides} is the same here as by line {other.at.line} on {listed_and(shared)}; "
            f"here it is so on {listed_and(more)} too, there it is not",
            "make both the same, or say in a comment why they differ",
            Severity.WARNING if is_open else Severity.NOTE,
        )


def _case(rule: Mapping, key: str) -> Iterator[_Case]:
    when = rule.get("when", {})
    if "capability" not in when:
        return
    takes = _capabilities(when["capability"], when.values_at["capability"])
    if takes is None:
        return
    beside = frozenset((f, _set(value)) for f, value in when.items() if f != "capability")
    yield _Case(_set(rule[key]), takes, beside, when.values_at["capability"])


def _capabilities(value: Any, at: Position) -> Domain | None:
    """The capabilities of a predicate; ``None`` where it is about having one at all."""
    texts = [text for text, _ in atoms(value, at)]
    if any(text in ("any", "absent", "unset") for text in texts):
        return None
    return Domain.union(parse_capability_set(text) for text in texts)


def _set(value: Any) -> Any:
    """A predicate in a form that can be compared: a value is the list of it."""
    return _plain(value if isinstance(value, list) else [value])


def _plain(value: Any) -> Any:
    """A predicate or value in a form that can be compared: order and position left out."""
    if isinstance(value, list):
        return frozenset(map(_plain, value))
    if isinstance(value, dict):
        return frozenset((key, _plain(inner)) for key, inner in value.items())
    return type(value).__name__, value


RULE = Rule(
    code="CAP112",
    name="rules-disagree",
    severity=Severity.WARNING,
    what=(
        "In one list of rules (a derived value, the cases of what is accepted, a coercion), a rule "
        "gives a result on architectures on which the rule that asks less for the same result does "
        "not give it, although both have architectures in common; in an entry, those count that "
        "it accepts. A warning where the wider one has no upper end, else a note: it may be meant, "
        "and then a comment says why."
    ),
    why=(
        "Two tests for one feature were written by two people. FlashAttention 4 was the default "
        "on 10.x, and also what a wish for 3 became on `major >= 10`: RTX PRO 6000 got a kernel "
        "that is not built for it (vLLM PR #46002)."
    ),
    bad="""first_match:
  - {when: {wanted: 3, capability: ">=10.0"}, value: 4}
  - {when: {capability: 10.x}, value: 4}
  - {value: 2}
""",
    good="""first_match:
  - {when: {wanted: 3, capability: 10.x}, value: 4}
  - {when: {capability: 10.x}, value: 4}
  - {value: 2}
""",
    check=_check,
)
