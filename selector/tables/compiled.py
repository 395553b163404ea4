"""A manifest laid out for many rows: where the lengths of requests lie among its rules.

What the places of lengths depend on is the same for many layers, so they are found once for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from selector.binding import Selector, closed_facts
from selector.domains import Domain
from selector.errors import TooManyTermsError
from selector.plan.memo import remember
from selector.plan.places import Places, sets_of
from selector.plan.plan import Plan
from selector.plan.terms import tests_of_choice, tests_of_pair
from selector.rules import Question, Test
from selector.tables.judged import Judge
from selector.values import Facts, Request

__all__ = ["Compiled", "Form"]

_MOST_ANSWERS = 1 << 16
_MOST_PLACES = 1 << 40
_LENGTHS = ("query_len", "seq_len")

Columns = dict[str, Any]
Sets = dict[str, list[Domain]]
Asking = Callable[[], Question]


class Form(NamedTuple):
    """What a row says of its requests, but for their lengths.

    Attributes:
        together: how many requests of these lengths run together.
        speculative: draft tokens.
        unknown: which lengths nobody knows: 1 for the query's, 2 for the sequence's, 3 for both.
    """

    together: int = 1
    speculative: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, request: Request, count: int = 1) -> Form:
        """The form of equal requests."""
        unknown = (request.query_len is None) + 2 * (request.seq_len is None)
        return cls(count, request.speculative_tokens, unknown)

    def requests(self, query_len: int, seq_len: int) -> list[Request]:
        """Requests of this form; of a length that is unknown, the number says nothing."""
        query = None if self.unknown & 1 else query_len
        seq = None if self.unknown & 2 else seq_len
        return [Request(query, seq, self.speculative)] * self.together


class Compiled:
    """A manifest laid out for many rows.

    Args:
        selector: gives every answer that has reasons.
        closed_world: take what is unknown not to be there.

    Attributes:
        measures: the names of what a batch's lengths add up to.
    """

    def __init__(self, selector: Selector, closed_world: bool = False) -> None:
        self.selector = selector
        self.manifest = selector.manifest
        self.closed_world = closed_world
        self.measures = frozenset(measure.name for measure in self.manifest.measures)
        self.anywhere = Places(self.manifest, {})
        self.answers = 0
        self.emptied = 0
        self._seen: dict[tuple[str, ...], Columns] = {}
        self._facts: dict[Facts, Facts] = {}
        self._places: dict[object, Places | None] = {}
        self._equal: dict[object, Places] = {}
        self._ends: dict[object, tuple[str, ...]] = {}
        self._counts: dict[tuple[str, ...], bool] = {}

    @cached_property
    def plan(self) -> Plan | None:
        """The manifest compiled; ``None``: it is too large for that."""
        try:
            return Plan(self.manifest)
        except TooManyTermsError:
            return None

    @cached_property
    def judge(self) -> Judge:
        """Judges its entries."""
        return Judge(self.manifest)

    def facts(self, said: Facts) -> Facts:
        """What is taken to be installed; equal facts are one."""
        found = self._facts.get(said)
        if found is None:
            closed = closed_facts(self.manifest, said) if self.closed_world else said
            found = remember(self._facts, said, closed, _MOST_ANSWERS)
        return found

    def count(self) -> None:
        """Counts an answer that is kept; when there are too many, none is."""
        self.answers += 1
        if self.answers > _MOST_ANSWERS:
            self.answers = 0
            self.emptied += 1
            self._places.clear()
            self._equal.clear()
            self._seen.clear()

    def same(self, columns: Columns) -> Columns:
        """The columns, as they were first seen."""
        key = tuple(map(repr, columns.values()))
        return self._seen.setdefault(key, columns)

    # -- places -----------------------------------------------------------------------------------

    def places_of_choice(self, asked: Asking) -> Places | None:
        """Where lengths lie for the rules that decide which backends are chosen."""
        return self._places_of(asked, "choice", lambda: self._tests_of_choice, dict)

    def places_of_pair(self, asked: Asking, names: tuple[str, ...], form: Form) -> Places | None:
        """Where lengths lie for the rules of chosen backends."""

        def adapt(sets: Sets) -> Sets | None:
            return self._times(self._with_thresholds(sets, names, form), form.together)

        tests = self._tests_of if form.together == 1 else self._all_tests
        return self._places_of(asked, (form, *names), lambda: tests(names), adapt)

    def places_of_known(self, asked: Asking, names: tuple[str, ...], form: Form) -> Places | None:
        """Where one length lies for all rules that matter, when the other is unknown.

        Args:
            asked: gives the question.
            names: every backend that can be chosen.
            form: of the requests.

        Returns:
            The places of requests that have the known length as both lengths. An unknown sequence
            is as long as the query or longer, an unknown query as long as the sequence or shorter:
            for ranges, the place of the known length tells.
        """

        def adapt(sets: Sets) -> Sets | None:
            found = self._with_thresholds(sets, names, form)
            found = {name: found[name] for name in _LENGTHS if name in found}
            return found if all(map(_are_ranges, found.values())) else None

        key = (form._replace(together=0), *names)
        return self._places_of(asked, key, lambda: self._all_tests(names), adapt)

    def adds_up(self, places: Places) -> bool:
        """Whether the places of requests tell where the longest lengths of a batch lie."""
        return not any(odd or name in self.measures for name, _, odd in places.key)

    def counts(self, names: tuple[str, ...]) -> bool:
        """Whether rules that matter to backends look at how many requests run together."""
        if names not in self._counts:
            counted = self.measures | {"num_prefills"}
            tests = self._all_tests(names)
            self._counts[names] = any(not counted.isdisjoint(test.reads) for test in tests)
        return self._counts[names]

    @cached_property
    def _tests_of_choice(self) -> list[Test]:
        coerced = (
            test
            for entry in self.manifest.entries.values()
            for match in entry.coerce.values()
            for rule in match.rules
            for test in rule.when.tests
        )
        return [*tests_of_choice(self.manifest), *coerced]

    def _tests_of(self, names: Sequence[str]) -> list[Test]:
        entries = map(self.manifest.entry, dict.fromkeys(names))
        return [test for entry in entries for test in tests_of_pair(entry, entry)]

    def _all_tests(self, names: Sequence[str]) -> list[Test]:
        return [*self._tests_of_choice, *self._tests_of(names)]

    def _places_of(
        self,
        asked: Asking,
        key: object,
        tests: Callable[[], list[Test]],
        adapt: Callable[[Sets], Sets | None],
    ) -> Places | None:
        """The places that tests make; ``None``: the lengths alone do not tell."""
        if key not in self._ends:
            self._ends[key] = tuple(sorted({end for test in tests() for end in test.ends}))
        ends = self._ends[key]
        known = (key, *(asked().known(end) for end in ends)) if ends else key
        if known not in self._places:
            self._places[known] = self._find(asked, tests(), adapt)
        return self._places[known]

    def _find(
        self, asked: Asking, tests: Sequence[Test], adapt: Callable[[Sets], Sets | None]
    ) -> Places | None:
        found, relations = sets_of(self.manifest, asked, tests)
        sets = None if relations else adapt(found)
        if sets is None:
            return None
        places = Places(self.manifest, sets)
        if places.size > _MOST_PLACES:
            return None
        return self._equal.setdefault(places.key, places)

    def _with_thresholds(self, sets: Sets, names: Sequence[str], form: Form) -> Sets:
        """The sets, and those of queries that count as decodes for some backends."""
        entries = [self.manifest.entries[name] for name in dict.fromkeys(names)]
        longest = [
            Domain.between(None, max(threshold, 1 + form.speculative))
            for entry in entries
            for threshold in entry.thresholds
        ]
        return {**sets, "query_len": [*sets.get("query_len", ()), *longest]}

    def _times(self, sets: Sets, count: int) -> Sets | None:
        """The sets that also tell requests apart whose measures are added up so many times."""
        if count == 1:
            return sets
        found = dict(sets)
        for name in self.measures & sets.keys():
            if not _are_ranges(sets[name]):
                return None
            ends = [end for values in sets[name] for end in _last_ones(values)]
            found[name] = [*sets[name], *(Domain.between(None, end // count) for end in ends)]
        return found


def _are_ranges(sets: Sequence[Domain]) -> bool:
    return all(span.is_interval for values in sets for span in values.spans)


def _last_ones(values: Domain) -> Iterator[int]:
    """The last number before each range of a set, and the last one of it."""
    for span in values.spans:
        if span.low is not None:
            yield span.low - 1
        if span.high is not None:
            yield span.high
