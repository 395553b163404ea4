"""Judging: what each entry says to a question in each phase, with every reason.

An entry is judged against everything it states; nothing stops at the first refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import msgspec

from selector.domains import Value
from selector.fields import Vocabulary
from selector.manifest import Entry, Manifest, PhaseSpec, Requirement
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

__all__ = ["Judged", "judge", "judge_all", "unmet"]

Judged = dict[str, dict[Phase, Verdict]]
"""Entry → phase → verdict."""


def judge_all(manifest: Manifest, asked: Question, facts: Facts, policy: Policy) -> Judged:
    """Every entry's verdict in every phase."""
    return {
        entry.name: judge(manifest, entry, asked, facts, policy)
        for entry in manifest.entries.values()
    }


def judge(
    manifest: Manifest, entry: Entry, asked: Question, facts: Facts, policy: Policy
) -> dict[Phase, Verdict]:
    """What one entry says to a question in each phase, by itself."""
    conditions: list[Condition] = []
    denied = _denied(manifest, entry, asked, policy, conditions)
    if denied is not None:
        return dict.fromkeys(Phase, denied)
    missing = tuple(unmet(entry.requires, facts, conditions))
    verdicts: dict[Phase, Verdict] = {}
    said: _Said | None = None
    for phase in Phase:
        spec = entry.phases.get(phase)
        if spec is None:
            why = f"does not serve {phase}"
            verdicts[phase] = _one(Outcome.UNSUPPORTED, Code.PHASE, entry.position, why)
            continue
        if said is None or not said.spec.says_as_much_as(spec):
            said = _listen(entry, spec, asked)
        verdicts[phase] = _verdict(manifest, spec, said, missing, conditions)
    return verdicts


class _Said(msgspec.Struct, frozen=True):
    """What a phase of an entry says to a question: what it refuses, and what it depends on."""

    spec: PhaseSpec
    refused: tuple[Rejection, ...]
    conditions: tuple[Condition, ...]
    blamed: frozenset[str]
    """The fields that are why it refuses."""


def _listen(entry: Entry, spec: PhaseSpec, asked: Question) -> _Said:
    refused: list[Rejection] = []
    conditions: list[Condition] = []
    words, sources = asked.vocabulary, entry.sources
    for name, accepted in spec.accepts.items():
        value, source = asked.known(name), sources.get(name, "")
        said = None if value is None else _says(accepted, value, source, words)
        if said is None:
            _judge_field(accepted, source, asked, refused, conditions)
        elif said:
            refused += said
    blamed = {rejection.field or "" for rejection in refused}
    for constraint in spec.constraints:
        answer = constraint.violated(asked)
        if answer is Answer.YES:
            refused += constraint.rejections(asked)
            blamed |= constraint.blamed(asked)
        elif answer is Answer.MAYBE:
            conditions += constraint.conditions(asked)
    return _Said(spec, tuple(refused), tuple(conditions), frozenset(blamed))


def _verdict(
    manifest: Manifest,
    spec: PhaseSpec,
    said: _Said,
    missing: tuple[Rejection, ...],
    conditions: list[Condition],
) -> Verdict:
    if not said.blamed <= manifest.facts.keys():
        return Verdict(Outcome.UNSUPPORTED, (*said.refused, *missing))
    if spec.disabled:
        return _one(Outcome.PINNED, Code.PINNED, spec.position, spec.rationale or "")
    if said.refused or missing:  # nothing but facts: what is not installed may be
        return Verdict(Outcome.UNAVAILABLE, (*said.refused, *missing))
    needed = tuple(dict.fromkeys((*conditions, *said.conditions)))
    return Verdict(Outcome.CONDITIONAL if needed else Outcome.ELIGIBLE, (), needed)


def _denied(
    manifest: Manifest,
    entry: Entry,
    asked: Question,
    policy: Policy,
    conditions: list[Condition],
) -> Verdict | None:
    """That policy never tries the entry; adds what this depends on to the conditions."""
    if entry.name in policy.deny:
        return _one(Outcome.DENIED, Code.DENIED, entry.position, policy.deny[entry.name])
    for denial in manifest.deny:
        if denial.backend == entry.name:
            answer = denial.when.answer(asked)
            if answer is Answer.YES:
                why = (denial.position, denial.reason, denial.source)
                return _one(Outcome.DENIED, Code.DENIED, *why)
            if answer is Answer.MAYBE:
                conditions += [test.counter(asked) for test in denial.when.doubtful(asked)]
    return None


def _one(outcome: Outcome, code: str, position: Position, reason: str, source: str = "") -> Verdict:
    rejection = Rejection(code=code, position=position, reason=reason, source=source or None)
    return Verdict(outcome, (rejection,))


def _judge_field(
    accepted: FirstMatch[Test],
    source: str,
    asked: Question,
    refused: list[Rejection],
    conditions: list[Condition],
) -> None:
    """Adds what one field's accepted set says: nothing, a rejection, or conditions."""
    matches = accepted.matches(asked)
    answers = [match.rule.result.answer(asked) for match in matches]
    if all(a is Answer.NO for a in answers):
        first = matches[0].rule
        refused.append(first.result.rejection(asked, None, first.reason, first.source or source))
        return
    refused_at_last = answers[-1] is Answer.NO
    for match, answer in zip(matches, answers, strict=True):
        if answer is Answer.MAYBE:
            conditions.append(match.rule.result.condition(asked))
        elif answer is Answer.NO:
            conditions += [doubt.counter(asked) for doubt in match.doubts]
        elif refused_at_last:
            conditions += [doubt.condition(asked) for doubt in match.doubts]


@lru_cache(1 << 16, typed=True)  # every row of a table asks it of every entry
def _says(
    accepted: FirstMatch[Test], value: Value, source: str, vocabulary: Vocabulary
) -> tuple[Rejection, ...] | None:
    """What one set, the same for all questions, says to a value; ``None``: it depends on more."""
    rule = accepted.rules[0]
    if len(accepted.rules) > 1 or rule.result.allowed.bounds:
        return None
    if rule.result.allowed.fixed.admits(value):
        return ()
    asked = Question(vocabulary, {rule.result.field: value})
    return (rule.result.rejection(asked, None, rule.reason, source),)


def unmet(
    needs: Iterable[Requirement], facts: Facts, conditions: list[Condition]
) -> Iterator[Rejection]:
    """Yields a rejection for each requirement that is not met; adds a condition if unknown."""
    from packaging.specifiers import SpecifierSet

    for need in needs:
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
