"""Judging: what each entry says to a question in each phase, with every reason.

An entry is judged against everything it states; nothing stops at the first refusal.
"""

from __future__ import annotations

from collections.abc import Iterator

from selector.domains import Domain, Value
from selector.manifest import Entry, Manifest
from selector.rules import Answer, FirstMatch, Question, Test
from selector.values import (
    Code,
    Condition,
    Facts,
    Outcome,
    Phase,
    Policy,
    Position,
    Rejection,
    Verdict,
)

__all__ = ["Judged", "coerced", "judge_all"]

Judged = dict[str, dict[Phase, Verdict]]
"""Entry → phase → verdict."""


def judge_all(manifest: Manifest, asked: Question, facts: Facts, policy: Policy) -> Judged:
    """Every entry's verdict in every phase."""
    judged: Judged = {}
    for entry in manifest.entries.values():
        effective = coerced(entry, asked)
        judged[entry.name] = {
            phase: _judge(manifest, entry, phase, asked, effective, facts, policy)
            for phase in Phase
        }
    return judged


def coerced(entry: Entry, asked: Question) -> Question:
    """The question as the entry sees it, after its coercions."""
    changed: dict[str, Value | Domain] = {}
    for name, rules in entry.coerce.items():
        results = Domain()
        for match in rules.matches(asked):
            same = match.rule.result == "same"
            results |= asked.possible(name) if same else Domain.of(match.rule.result)
        only = results.only()
        changed[name] = results if only is None else only
    return asked.plus(changed)


def _judge(
    manifest: Manifest,
    entry: Entry,
    phase: Phase,
    asked: Question,
    effective: Question,
    facts: Facts,
    policy: Policy,
) -> Verdict:
    """What an entry says to a question in a phase, by itself."""
    if entry.name in policy.deny:
        return _one(Outcome.DENIED, Code.DENIED, entry.position, policy.deny[entry.name])
    conditions: list[Condition] = []
    for denial in manifest.deny:
        if denial.backend == entry.name:
            answer = denial.when.answer(asked)
            if answer is Answer.YES:
                return _one(Outcome.DENIED, Code.DENIED, denial.position, denial.reason)
            if answer is Answer.MAYBE:
                conditions += [test.counter(asked) for test in denial.when.doubtful(asked)]
    spec = entry.phases.get(phase)
    if spec is None:
        return _one(Outcome.UNSUPPORTED, Code.PHASE, entry.position, f"does not serve {phase}")
    refused: list[Rejection] = []
    for accepted in spec.accepts.values():
        _judge_field(accepted, effective, refused, conditions)
    for constraint in spec.constraints:
        answer = constraint.violated(effective)
        if answer is Answer.YES:
            refused += constraint.rejections(effective)
        elif answer is Answer.MAYBE:
            conditions += constraint.conditions(effective)
    missing = list(_missing(entry, facts, conditions))
    if refused:
        return Verdict(Outcome.UNSUPPORTED, (*refused, *missing))
    if spec.disabled:
        return _one(Outcome.PINNED, Code.PINNED, spec.position, spec.rationale or "")
    if missing:
        return Verdict(Outcome.UNAVAILABLE, tuple(missing))
    outcome = Outcome.CONDITIONAL if conditions else Outcome.ELIGIBLE
    return Verdict(outcome, (), tuple(dict.fromkeys(conditions)))


def _one(outcome: Outcome, code: str, position: Position, reason: str) -> Verdict:
    return Verdict(outcome, (Rejection(code=code, position=position, reason=reason),))


def _judge_field(
    accepted: FirstMatch[Test],
    effective: Question,
    refused: list[Rejection],
    conditions: list[Condition],
) -> None:
    """Adds what one field's accepted set says: nothing, a rejection, or conditions."""
    matches = accepted.matches(effective)
    answers = [match.rule.result.answer(effective) for match in matches]
    if all(a is Answer.NO for a in answers):
        first = matches[0].rule
        refused.append(first.result.rejection(effective, reason=first.reason))
        return
    refused_at_last = answers[-1] is Answer.NO
    for match, answer in zip(matches, answers, strict=True):
        if answer is Answer.MAYBE:
            conditions.append(match.rule.result.condition(effective))
        elif answer is Answer.NO:
            conditions += [doubt.counter(effective) for doubt in match.doubts]
        elif refused_at_last:
            conditions += [doubt.condition(effective) for doubt in match.doubts]


def _missing(entry: Entry, facts: Facts, conditions: list[Condition]) -> Iterator[Rejection]:
    """Yields a rejection for each requirement that is not met; adds a condition if unknown."""
    from packaging.specifiers import SpecifierSet

    for need in entry.requires:
        wanted = need.specifier or "true"
        if need.fact not in facts.values:
            conditions.append(Condition(need.fact, wanted, need.position))
            continue
        seen = facts.values[need.fact]
        if seen is None or seen is False:
            yield Rejection(
                code=Code.NOT_INSTALLED,
                position=need.position,
                field=need.fact,
                observed="not installed" if seen is None else "false",
                allowed=wanted,
            )
        elif need.specifier and not SpecifierSet(need.specifier).contains(str(seen), True):
            yield Rejection(
                code=Code.VERSION,
                position=need.position,
                field=need.fact,
                observed=str(seen),
                allowed=wanted,
            )
