"""The forms a rule can take, and what they answer when some fields are unknown.

A :class:`Question` maps fields to a value, or to the set of values they can have. A predicate
then answers ``YES`` (for all of them), ``NO`` (for none) or ``MAYBE``; a first match that meets a
maybe collects everything that could follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from functools import lru_cache
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec

from selector.domains import EMPTY, Domain, Span, Value
from selector.fields import Field, Vocabulary, show, show_domain
from selector.values import Condition, Position, Rejection

__all__ = [
    "Allowed",
    "Answer",
    "Bound",
    "Constraint",
    "FirstMatch",
    "Match",
    "Question",
    "Rule",
    "Steps",
    "Test",
    "When",
    "inputs_of",
]

T = TypeVar("T")


class Answer(Enum):
    """Whether a predicate holds for every, some or none of the possible values."""

    NO = 0
    MAYBE = 1
    YES = 2


class Question:
    """What is asked: field → value, or the set of values it can have. Immutable."""

    __slots__ = ("_derive", "_values", "vocabulary")

    def __init__(
        self,
        vocabulary: Vocabulary,
        values: Mapping[str, Value | Domain],
        derive: Mapping[str, FirstMatch[Value]] = MappingProxyType({}),
    ) -> None:
        self.vocabulary = vocabulary
        self._values = dict(values)
        self._derive = derive

    def possible(self, name: str) -> Domain:
        """The values a field can have; everything when nothing is known."""
        value = self._values.get(name)
        if isinstance(value, Domain):
            return value
        if value is None:
            return self.vocabulary.universes[name]
        return Domain.of(value)

    def known(self, name: str) -> Value | None:
        """The field's value when there is only one it can have."""
        value = self._values.get(name)
        return value.only() if isinstance(value, Domain) else value

    def plus(self, values: Mapping[str, Value | Domain]) -> Question:
        """The same question with these fields set."""
        return Question(self.vocabulary, {**self._values, **values}, self._derive)

    def derived(self, rules: Mapping[str, FirstMatch[Value]]) -> Question:
        """The same question with these values computed anew, each from the ones before it."""
        if not rules:
            return self
        question = self.plus({})
        question._derive = (
            {**self._derive, **rules} if rules.keys() - self._derive.keys() else self._derive
        )
        for name, match in rules.items():
            results = [found.rule.result for found in match.matches(question)]
            question._values[name] = results[0] if len(results) == 1 else Domain.of(*results)
        return question

    def undecided(self, name: str) -> frozenset[str]:
        """The unknown fields that a derived value is computed from; of any other field, itself."""
        return frozenset(n for n in inputs_of(name, self._derive) if self.known(n) is None)

    def supposing(self, name: str, value: Value) -> Question:
        """The question with one field known, and what is derived computed anew."""
        return self.plus({name: value}).derived(self._derive)

    def plain(self, names: tuple[str, ...]) -> list[Value | None] | None:
        """The values of some fields, ``None`` for what nobody says; nothing when one is a set."""
        values = [*map(self._values.get, names)]
        return None if Domain in map(type, values) else values  # type: ignore[return-value]

    def items(self) -> Iterator[tuple[str, Value | Domain]]:
        """Every field something is known of, in order of the vocabulary."""
        return ((n, self._values[n]) for n in self.vocabulary.fields if n in self._values)

    def text(self, name: str) -> str:
        """The field's value in words; ``unknown`` when nothing was said."""
        value = self._values.get(name)
        field = self.vocabulary.fields[name]
        if value is None:
            return "unknown"
        return show_domain(field, value) if isinstance(value, Domain) else show(field, value)


def inputs_of(name: str, derive: Mapping[str, FirstMatch[Value]]) -> set[str]:
    """The fields that a derived value is computed from; of any other field, itself."""
    pending, seen, found = [name], {name}, set[str]()
    while pending:
        rules = derive.get(field := pending.pop())
        if rules is None:
            found.add(field)
            continue
        read = {test.field for rule in rules.rules for test in rule.when.tests} - seen
        seen |= read
        pending += read
    return found


class Bound(msgspec.Struct, frozen=True):
    """Whole numbers bounded by another field: ``{max: {field: index_topk}}``."""

    low: int | str | None = None
    high: int | str | None = None
    multiple_of: int = 1

    @property
    def ends(self) -> tuple[str, ...]:
        """The fields that bound it."""
        return tuple(end for end in (self.low, self.high) if isinstance(end, str))

    def within(self, question: Question) -> tuple[Domain, Domain]:
        """The values admitted for certain, and those that may be admitted."""
        low, low_sure = _end(self.low, question)
        high, high_sure = _end(self.high, question)
        if (self.low is not None and low is None and low_sure) or (
            self.high is not None and high is None and high_sure
        ):
            return EMPTY, EMPTY  # the bound is a symbol: nothing is within it
        domain = Domain.between(low, high, self.multiple_of)
        return (domain, domain) if low_sure and high_sure else (EMPTY, domain)


def _end(end: int | str | None, question: Question) -> tuple[int | None, bool]:
    if not isinstance(end, str):
        return end, True
    value = question.known(end)
    if value is None:
        return None, False
    return (value, True) if isinstance(value, int) and not isinstance(value, bool) else (None, True)


class Allowed(msgspec.Struct, frozen=True):
    """A set of values: fixed, or with bounds taken from fields of the layer."""

    fixed: Domain
    bounds: tuple[Bound, ...] = ()

    def within(self, question: Question) -> tuple[Domain, Domain]:
        """The values admitted for certain, and those that may be admitted."""
        sure = possible = self.fixed
        for bound in self.bounds:
            certain, maybe = bound.within(question)
            sure, possible = sure | certain, possible | maybe
        return sure, possible


class Test(msgspec.Struct, frozen=True):
    """One field must lie within one set."""

    field: str
    allowed: Allowed
    position: Position

    __test__ = False  # not a test case, whatever pytest thinks

    @property
    def reads(self) -> tuple[str, ...]:
        """The field, and the fields that bound its set."""
        return (self.field, *self.ends)

    @property
    def ends(self) -> tuple[str, ...]:
        """The fields that bound its set."""
        return tuple(end for bound in self.allowed.bounds for end in bound.ends)

    def answer(self, question: Question) -> Answer:
        """Whether the field lies within the set."""
        value = question.known(self.field)
        if value is not None and not self.allowed.bounds:
            return Answer.YES if self.allowed.fixed.admits(value) else Answer.NO
        sure, possible = self.allowed.within(question)
        if value is not None:
            if sure.admits(value):
                return Answer.YES
            return Answer.MAYBE if possible.admits(value) else Answer.NO
        values = question.possible(self.field)
        if values <= sure:
            return Answer.YES
        return Answer.NO if (values & possible).is_empty() else Answer.MAYBE

    def rejection(
        self, question: Question, code: str | None = None, reason: str = "", source: str = ""
    ) -> Rejection:
        """Why the field is refused: what was seen, what is allowed, what is nearest."""
        field = question.vocabulary.fields[self.field]
        _, allowed = self.allowed.within(question)
        value = question.known(self.field)
        return Rejection(
            code=code or self.field.upper(),
            position=self.position,
            field=self.field,
            observed=question.text(self.field),
            allowed=show_domain(field, allowed),
            nearest=None if value is None else _nearest(field, allowed, value),
            reason=reason or None,
            source=source or None,
        )

    def condition(self, question: Question) -> Condition:
        """What the field must be for the answer to be yes.

        Of a derived value that one unknown field decides, what that field must be.
        """
        field = question.vocabulary.fields[self.field]
        undecided = question.undecided(self.field)
        if undecided != {self.field} and len(undecided) == 1:
            (name,) = undecided
            source = question.vocabulary.fields[name]
            kept = [v for v in source.names() if self._holds_if(question, name, v)]
            if kept:
                return Condition(name, show_domain(source, Domain.of(*kept)), self.position)
        _, allowed = self.allowed.within(question)
        wanted = allowed & question.possible(self.field)
        return Condition(self.field, show_domain(field, wanted), self.position)

    def _holds_if(self, question: Question, name: str, value: Value) -> bool:
        possible = question.possible(name).admits(value)
        return possible and self.answer(question.supposing(name, value)) is Answer.YES

    def counter(self, question: Question) -> Condition:
        """What the field must not be for the answer to be no."""
        condition = self.condition(question)
        return Condition(self.field, f"not {condition.allowed}", self.position)


def _nearest(field: Field, allowed: Domain, value: Value) -> str | None:
    return _near(field, allowed.spans, allowed.names, allowed.all_names_but, value)


@lru_cache(1 << 14, typed=True)  # a manifest has few sets, and every rejection looks into one
def _near(
    field: Field,
    spans: tuple[Span, ...],
    names: frozenset[bool | str],
    all_names_but: bool,
    value: Value,
) -> str | None:
    """The accepted value closest to ``value``; a symbol where no value is comparable."""
    allowed = Domain(spans, names, all_names_but)
    near = allowed.nearest(value)
    if isinstance(near, int) and not isinstance(near, bool) and near < field.low:
        near = (allowed & Domain.between(field.low, None)).nearest(value)
    if near is None and not allowed.all_names_but:
        near = min((n for n in allowed.names if isinstance(n, str)), default=None)
    return None if near is None else show(field, near)


class When(msgspec.Struct, frozen=True):
    """A conjunction of tests; empty, it always holds."""

    tests: tuple[Test, ...] = ()

    @property
    def reads(self) -> Iterator[str]:
        """The fields that it asks about."""
        for test in self.tests:
            yield from test.reads

    def answer(self, question: Question) -> Answer:
        """Whether all tests hold."""
        answer = Answer.YES
        for test in self.tests:
            said = test.answer(question)
            if said is Answer.NO:
                return said
            if said is Answer.MAYBE:
                answer = said
        return answer

    def doubtful(self, question: Question) -> tuple[Test, ...]:
        """The tests that answer maybe."""
        return tuple(t for t in self.tests if t.answer(question) is Answer.MAYBE)


def _value(answer: Answer) -> int:
    return answer.value


class Rule(msgspec.Struct, Generic[T], frozen=True):
    """A result that follows when a condition holds."""

    when: When
    result: T
    position: Position
    reason: str = ""
    source: str = ""


class Match(msgspec.Struct, Generic[T], frozen=True):
    """A rule that can be the first match, and the tests that this depends on."""

    rule: Rule[T]
    doubts: tuple[Test, ...] = ()


class FirstMatch(msgspec.Struct, Generic[T], frozen=True):
    """Rules in order; the first that holds decides."""

    rules: tuple[Rule[T], ...]
    source: str = ""

    def __hash__(self) -> int:  # cheap: where it stands tells it from others
        return hash(self.rules[0].position)

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields that it asks about, those of results that are tests too."""
        tests = (rule.result for rule in self.rules if isinstance(rule.result, Test))
        asked: tuple[When | Test, ...] = (*(rule.when for rule in self.rules), *tests)
        return tuple(name for one in asked for name in one.reads)

    def matches(self, question: Question) -> tuple[Match[T], ...]:
        """Every rule that can be the first match: one, when all it asks about is known."""
        found: list[Match[T]] = []
        for rule in self.rules:
            if not rule.when.tests:
                found.append(Match(rule))
                break
            answer = rule.when.answer(question)
            if answer is Answer.NO:
                continue
            found.append(Match(rule, rule.when.doubtful(question)))
            if answer is Answer.YES:
                break
        return tuple(found)


class Constraint(msgspec.Struct, frozen=True):
    """When ``when`` holds, ``require`` and one of ``any_of`` must hold; with neither, never."""

    when: When
    require: When
    any_of: tuple[When, ...]
    code: str
    reason: str
    position: Position
    source: str = ""

    @property
    def reads(self) -> tuple[str, ...]:
        """The fields that it asks about."""
        return tuple(n for when in (self.when, self.require, *self.any_of) for n in when.reads)

    def violated(self, question: Question) -> Answer:
        """Whether the constraint is broken."""
        applies = self.when.answer(question)
        if applies is Answer.NO:
            return Answer.NO
        holds = self._holds(question)
        if holds is Answer.YES:
            return Answer.NO
        certain = applies is Answer.YES and holds is Answer.NO
        return Answer.YES if certain else Answer.MAYBE

    def _holds(self, question: Question) -> Answer:
        if not self.require.tests and not self.any_of:
            return Answer.NO
        base = self.require.answer(question)
        either = max((w.answer(question) for w in self.any_of), key=_value, default=Answer.YES)
        return min(base, either, key=_value)

    def _tests(self, question: Question, answer: Answer) -> tuple[Test, ...]:
        """The tests that answer so and decide: those of ``require``, else those of ``any_of``."""
        required = tuple(t for t in self.require.tests if t.answer(question) is answer)
        if required:
            return required
        open_ways = [w for w in self.any_of if w.answer(question) is answer]
        return tuple(t for w in open_ways for t in w.tests if t.answer(question) is answer)

    def rejections(self, question: Question) -> tuple[Rejection, ...]:
        """One rejection for each failing test; for "never", one that names what it forbids."""
        failing = self._tests(question, Answer.NO)
        if failing:
            by_field: dict[str, Test] = {}
            for test in failing:  # any_of: alternatives of one field are one set
                seen = by_field.get(test.field)
                by_field[test.field] = _either(seen, test) if seen else test
            return tuple(
                t.rejection(question, self.code, self.reason, self.source)
                for t in by_field.values()
            )
        seen_text = ", ".join(f"{t.field} {question.text(t.field)}" for t in self.when.tests)
        return (
            Rejection(
                code=self.code,
                position=self.position,
                observed=seen_text or None,
                allowed="never together" if len(self.when.tests) > 1 else "never",
                reason=self.reason or None,
                source=self.source or None,
            ),
        )

    def blamed(self, question: Question) -> set[str]:
        """The fields that break it: those that fail; for "never", all that it is about."""
        return {t.field for t in self._tests(question, Answer.NO) or self.when.tests}

    def conditions(self, question: Question) -> tuple[Condition, ...]:
        """What is unknown and decides whether the constraint is broken."""
        if self._holds(question) is Answer.MAYBE:
            return tuple(t.condition(question) for t in self._tests(question, Answer.MAYBE))
        return tuple(t.counter(question) for t in self.when.doubtful(question))


def _either(a: Test, b: Test) -> Test:
    fixed = a.allowed.fixed | b.allowed.fixed
    return Test(a.field, Allowed(fixed, a.allowed.bounds + b.allowed.bounds), a.position)


class Steps(msgspec.Struct, frozen=True):
    """A threshold table: the first row whose ``max`` is at least ``over`` decides.

    Then ``least`` must be at least that row's ``min``. Beyond the last row it never holds.
    """

    over: str
    least: str
    table: tuple[tuple[int, int], ...]
    position: Position

    def tests(self) -> tuple[When, ...]:
        """The same table as one conjunction a row."""
        rows: list[When] = []
        low = 0
        for high, minimum in self.table:
            over = Test(self.over, Allowed(Domain.between(low, high)), self.position)
            least = Test(self.least, Allowed(Domain.between(minimum, None)), self.position)
            rows.append(When((over, least)))
            low = high + 1
        return tuple(rows)

    def answer(self, question: Question) -> Answer:
        """Whether the row that decides is met."""
        over, least = question.known(self.over), question.known(self.least)
        if type(over) is int and type(least) is int:
            lowest = next((low for high, low in self.table if over <= high), None)
            holds = lowest is not None and over >= 0 and least >= lowest
            return Answer.YES if holds else Answer.NO
        return max((w.answer(question) for w in self.tests()), key=_value, default=Answer.NO)
