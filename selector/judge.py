"""Judging: what each entry says to a question in each phase, with every reason.

An entry is judged against everything it states; nothing stops at the first refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Generic, NamedTuple, TypeVar

import msgspec

from selector.domains import Value
from selector.fields import Vocabulary
from selector.manifest import Entry, Manifest, PhaseSpec, Requirement
from selector.rules import Answer, Constraint, FirstMatch, Question, Test
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

__all__ = [
    "Heard", "Judged", "Rule", "Said", "forget", "judge", "judge_all", "said_of", "unmet", "weigh",
]  # fmt: skip

T = TypeVar("T")

Judged = dict[str, dict[Phase, Verdict]]
"""Entry → phase → verdict."""


def judge_all(
    manifest: Manifest,
    asked: Question,
    facts: Facts,
    policy: Policy,
    names: frozenset[str] | None = None,
) -> Judged:
    """The verdict in every phase of every entry, or of those with the names."""
    return {
        entry.name: judge(manifest, entry, asked, facts, policy)
        for entry in manifest.entries.values()
        if names is None or entry.name in names
    }


def judge(
    manifest: Manifest,
    entry: Entry,
    asked: Question,
    facts: Facts,
    policy: Policy,
    listen: Listen | None = None,
) -> dict[Phase, Verdict]:
    """What one entry says to a question in each phase, by itself.

    ``listen`` gives what its phases say, where that is known already.
    """
    conditions: list[Condition] = []
    denied = _denied(manifest, entry, asked, policy, conditions)
    if denied is not None:
        return dict.fromkeys(Phase, denied)
    missing = tuple(unmet(entry.requires, facts, conditions))
    verdicts: dict[Phase, Verdict] = {}
    said: Said | None = None
    for phase in Phase:
        spec = entry.phases.get(phase)
        if spec is None:
            why = f"does not serve {phase}"
            verdicts[phase] = _one(Outcome.UNSUPPORTED, Code.PHASE, entry.position, why)
            continue
        if said is None or not said.spec.says_as_much_as(spec):
            said = (listen or _listen)(manifest, entry, spec, asked)
        verdicts[phase] = _verdict(manifest, spec, said, missing, conditions)
    return verdicts


class Said(msgspec.Struct, frozen=True):
    """What a phase of an entry says to a question: what it refuses, and what it depends on."""

    spec: PhaseSpec
    refused: tuple[Rejection, ...]
    conditions: tuple[Condition, ...]
    blamed: frozenset[str]
    """The fields that are why it refuses."""


Listen = Callable[[Manifest, Entry, PhaseSpec, Question], Said]


def _listen(manifest: Manifest, entry: Entry, spec: PhaseSpec, asked: Question) -> Said:
    heard: list[tuple[int, Heard]] = []
    for part in _parts(_Same(spec), _Same(entry.sources), _Same(manifest.derive)):
        values = asked.plain(part.reads)
        if values is None:
            heard += part.weigh(asked)
        else:
            heard += _remembered(part, asked.vocabulary, *values)
    return said_of(spec, heard)


def said_of(spec: PhaseSpec, heard: list[tuple[int, Heard]]) -> Said:
    """What a phase says, from what its rules say and their places among them."""
    heard.sort(key=_place)
    return Said(
        spec,
        tuple(chain.from_iterable(one.refused for _, one in heard)),
        tuple(chain.from_iterable(one.conditions for _, one in heard)),
        frozenset(chain.from_iterable(one.blamed for _, one in heard)),
    )


def _verdict(
    manifest: Manifest,
    spec: PhaseSpec,
    said: Said,
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


# -- parts of what an entry states ---------------------------------------------------------------


class Heard(NamedTuple):
    """What one rule says to a question."""

    refused: tuple[Rejection, ...] = ()
    conditions: tuple[Condition, ...] = ()
    blamed: frozenset[str] = frozenset()


_NOTHING = Heard()
Rule = FirstMatch[Test] | Constraint
_DEVICE = frozenset({"platform", "capability"})


def _place(heard: tuple[int, Heard]) -> int:
    return heard[0]


class _Part:
    """Rules of a phase with their places: those that read the device, the layer, or both.

    One looks elsewhere with the same layer, and changes a layer on the same device; what a part
    says to the same values is then remembered.
    """

    def __init__(self, rules: Sequence[tuple[int, Rule, str]]) -> None:
        self._rules = rules
        self.reads = tuple(dict.fromkeys(n for _, rule, _ in rules for n in rule.reads))

    def weigh(self, asked: Question) -> tuple[tuple[int, Heard], ...]:
        """What the rules say that say anything, with their places."""
        heard = ((place, weigh(rule, source, asked)) for place, rule, source in self._rules)
        return tuple((place, one) for place, one in heard if one is not _NOTHING)


class _Same(Generic[T]):
    """One thing, told from others that are equal to it."""

    __slots__ = ("thing",)

    def __init__(self, thing: T) -> None:
        self.thing = thing

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing

    def __hash__(self) -> int:
        return id(self.thing)


@lru_cache(1 << 12)
def _parts(
    spec: _Same[PhaseSpec],
    sources: _Same[Mapping[str, str]],
    derive: _Same[Mapping[str, FirstMatch[Value]]],
) -> tuple[_Part, ...]:
    named = [(rule, sources.thing.get(name, "")) for name, rule in spec.thing.accepts.items()]
    found: dict[tuple[bool, bool], list[tuple[int, Rule, str]]] = {}
    stated: list[tuple[Rule, str]] = [*named, *((c, "") for c in spec.thing.constraints)]
    moving = _DEVICE | derive.thing.keys()
    for place, (rule, source) in enumerate(stated):
        of_device = not moving.isdisjoint(rule.reads)
        of_layer = not _DEVICE.issuperset(rule.reads)
        found.setdefault((of_device, of_layer), []).append((place, rule, source))
    return tuple(map(_Part, found.values()))


@lru_cache(1 << 14, typed=True)  # every question asks the same of every entry
def _remembered(
    part: _Part, vocabulary: Vocabulary, *values: Value | None
) -> tuple[tuple[int, Heard], ...]:
    said = zip(part.reads, values, strict=True)
    known = {name: value for name, value in said if value is not None}
    return part.weigh(Question(vocabulary, known))


def forget() -> None:
    """Drops what is remembered of manifests, so that one that nobody uses any more can go."""
    for memory in (_parts, _remembered, _weigh_value):
        memory.cache_clear()


def weigh(rule: Rule, source: str, asked: Question) -> Heard:
    """What one rule says to a question."""
    if isinstance(rule, Constraint):
        return _weigh_constraint(rule, asked)
    only = rule.rules[0]
    if len(rule.rules) == 1 and not only.when.tests and not only.result.allowed.bounds:
        values = asked.plain((only.result.field,))
        if values is not None:
            return _weigh_value(rule, source, asked.vocabulary, values[0])
    return _weigh_field(rule, source, asked)


@lru_cache(1 << 15, typed=True)  # layers differ in few fields
def _weigh_value(
    accepted: FirstMatch[Test], source: str, vocabulary: Vocabulary, value: Value | None
) -> Heard:
    """What a set says that is the same for all questions."""
    known = {} if value is None else {accepted.rules[0].result.field: value}
    return _weigh_field(accepted, source, Question(vocabulary, known))


def _weigh_constraint(rule: Constraint, asked: Question) -> Heard:
    answer = rule.violated(asked)
    if answer is Answer.NO:
        return _NOTHING
    if answer is Answer.MAYBE:
        return Heard(conditions=rule.conditions(asked))
    return Heard(rule.rejections(asked), (), frozenset(rule.blamed(asked)))


def _weigh_field(accepted: FirstMatch[Test], source: str, asked: Question) -> Heard:
    """What one field's accepted set says: nothing, a rejection, or conditions."""
    matches = accepted.matches(asked)
    answers = [match.rule.result.answer(asked) for match in matches]
    if all(a is Answer.NO for a in answers):
        first = matches[0].rule
        no = first.result.rejection(asked, None, first.reason, first.source or source)
        return Heard((no,), (), frozenset({no.field or ""}))
    conditions: list[Condition] = []
    refused_at_last = answers[-1] is Answer.NO
    for match, answer in zip(matches, answers, strict=True):
        if answer is Answer.MAYBE:
            conditions.append(match.rule.result.condition(asked))
        elif answer is Answer.NO:
            conditions += [doubt.counter(asked) for doubt in match.doubts]
        elif refused_at_last:
            conditions += [doubt.condition(asked) for doubt in match.doubts]
    return Heard((), tuple(conditions)) if conditions else _NOTHING


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
