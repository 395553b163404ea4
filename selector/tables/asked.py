"""What many rows ask alike: bound when a reason is asked for, and answered once for each cell.

A cell is found in two steps. Some rules tell requests apart whatever is chosen; lengths that they
do not tell apart get the same backends, for the same reasons. The rules of the chosen pair then
tell which path a request takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from selector.binding import Bound, Selector, closed_facts
from selector.domains import Domain
from selector.errors import TooManyTermsError
from selector.manifest import Entry
from selector.plan.places import Places, sets_of
from selector.plan.plan import Plan
from selector.plan.terms import tests_of_choice, tests_of_pair
from selector.rules import Test
from selector.tables.answers import answer_to, pick_columns
from selector.tables.judged import Judge
from selector.values import Device, Facts, Layer, Policy, Request

__all__ = ["Asked", "Cell", "Compiled"]

_MOST_ANSWERS = 1 << 16
_MOST_PLACES = 1 << 40
_FREE = Policy()

Columns = dict[str, Any]


class Compiled:
    """A manifest laid out for many rows.

    Args:
        selector: gives every answer that has reasons.
        closed_world: take what is unknown not to be there.
    """

    def __init__(self, selector: Selector, closed_world: bool = False) -> None:
        self.selector = selector
        self.manifest = selector.manifest
        self.closed_world = closed_world
        self.answers = 0
        self.emptied = 0
        self._seen: dict[tuple[str, ...], Columns] = {}
        self._facts: dict[Facts, Facts] = {}
        self._places: dict[object, Places | None] = {}
        self._equal: dict[object, Places] = {}
        self._ends: dict[object, tuple[str, ...]] = {}

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
        if len(self._facts) >= _MOST_ANSWERS:
            self._facts.clear()
        if said not in self._facts:
            closed = closed_facts(self.manifest, said) if self.closed_world else said
            self._facts[said] = closed
        return self._facts[said]

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

    def places_of_choice(self, asked: Asked) -> Places | None:
        """Where lengths lie for the rules that decide which backends are chosen."""
        return self._places_of(asked, "choice", lambda: self._tests_of_choice, 0)

    def places_of_pair(
        self, asked: Asked, names: tuple[str, ...], speculative: int
    ) -> Places | None:
        """Where lengths lie for the rules of chosen backends."""

        def tests() -> list[Test]:
            entries = map(self.manifest.entry, dict.fromkeys(names))
            return [test for entry in entries for test in tests_of_pair(entry, entry)]

        return self._places_of(asked, (speculative, *names), tests, speculative, names)

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

    def _places_of(
        self,
        asked: Asked,
        key: object,
        tests: Callable[[], list[Test]],
        speculative: int,
        names: Sequence[str] = (),
    ) -> Places | None:
        if key not in self._ends:
            self._ends[key] = tuple(sorted(self._ends_of(tests())))
        ends = self._ends[key]
        known = (key, *(asked.bound.question.known(end) for end in ends)) if ends else key
        if known not in self._places:
            entries = [self.manifest.entries[name] for name in dict.fromkeys(names)]
            self._places[known] = self._find(asked, tests(), speculative, entries)
        return self._places[known]

    def _ends_of(self, tests: Sequence[Test]) -> set[str]:
        return {end for test in tests for bound in test.allowed.bounds for end in bound.ends}

    def _find(
        self, asked: Asked, tests: Sequence[Test], speculative: int, entries: Sequence[Entry]
    ) -> Places | None:
        """The places; ``None``: the lengths alone do not tell."""
        sets, relations = sets_of(self.manifest, lambda: asked.bound.question, tests)
        if relations:
            return None
        longest = [
            Domain.between(None, max(rule.result, 1 + speculative))
            for entry in entries
            for rule in (entry.decode_threshold.rules if entry.decode_threshold else ())
        ]
        if longest:
            sets["query_len"] = [*sets.get("query_len", ()), *longest]
        places = Places(self.manifest, sets)
        if places.size > _MOST_PLACES:
            return None
        return self._equal.setdefault(places.key, places)


class Cell:
    """Requests that get the same backends for the same reasons, and the paths they take.

    Attributes:
        first: the request by which it was found.
        answer: the columns for it.
        names: the backends whose rules decide the path.
        paths: draft tokens and place → the columns.
    """

    def __init__(self, first: Request, answer: Columns, names: tuple[str, ...]) -> None:
        self.first = first
        self.answer = answer
        self.names = names
        self.paths: dict[tuple[int, int], Columns] = {}


class Asked:
    """Everything that a row says, but for its lengths.

    Args:
        compiled: the manifest.
        device: where it runs.
        layer: what the model needs.
        facts: what the row says is installed.
        policy: what the row denies or forces.
        dense: a dense prefill is supposed.
        given: the layer is given to the backend that is forced.
    """

    def __init__(
        self,
        compiled: Compiled,
        device: Device,
        layer: Layer,
        facts: Facts,
        policy: Policy = _FREE,
        *,
        dense: bool = False,
        given: bool = False,
    ) -> None:
        self.compiled = compiled
        self.device = device
        self.layer = layer
        self.facts = facts
        self.policy = policy
        self.dense = dense
        self.given = given
        self._free = policy == _FREE
        self._emptied = compiled.emptied
        self._cells: dict[tuple[int, bool], Cell] = {}
        self._alike: dict[tuple[int, Request], Columns] = {}

    @cached_property
    def bound(self) -> Bound:
        """All of it bound to the manifest.

        Raises:
            AttnselError: no such layer can exist, or its facts are none.
        """
        compiled = self.compiled
        return compiled.selector.bind(
            self.device,
            self.layer,
            self.facts,
            self.policy,
            closed_world=compiled.closed_world,
        )

    def answer(self, requests: Sequence[Request]) -> Columns:
        """The definition's answer to requests that run together, as columns.

        Raises:
            AttnselError: they have no answer.
        """
        return answer_to(
            self.bound,
            requests,
            resolve=lambda request: self.compiled.judge.resolve(self.bound, request),
            dense=self.dense,
            given=self.given,
        )

    def answer_alike(self, request: Request, count: int = 1) -> Columns:
        """The same for equal requests, which are asked for once."""
        self._forget()
        found = self._alike.get((count, request))
        if found is None:
            found = self._alike[count, request] = self.answer([request] * count)
            self.compiled.count()
        return found

    def choose(self, request: Request) -> Columns:
        """The columns of the plain choice, at least; both lengths are known.

        Raises:
            AttnselError: it has no answer.
        """
        plan = self.compiled.plan
        if plan is None or not self._free:
            return self.answer([request])
        pick = plan.resolve(
            self.device,
            self.layer,
            self.compiled.facts(self.facts),
            request,
            closed_world=self.compiled.closed_world,
        )
        return pick_columns(pick)

    # -- cells ------------------------------------------------------------------------------------

    def answer_at(self, request: Request) -> Columns:
        """The same answer as the definition's; both lengths are known.

        Raises:
            AttnselError: it has no answer.
        """
        query_len, seq_len = request.query_len or 1, request.seq_len or 1
        choice = self.places()
        if choice is not None:
            cell = self.cell(choice.place(query_len, seq_len), request)
            places = self.places_in(cell, request.speculative_tokens)
            if places is not None:
                return self.path_in(cell, places.place(query_len, seq_len), request)
        return self.answer_alike(request)

    def places(self) -> Places | None:
        """The places whose requests get the same backends; ``None``: lengths alone do not tell."""
        return self.compiled.places_of_choice(self)

    def known_cell(self, place: int, reasons: bool) -> Cell | None:
        """The cell of a place, if it was asked for before."""
        self._forget()
        return self._cells.get((place, reasons))

    def cell(self, place: int, request: Request, reasons: bool = True) -> Cell:
        """The cell of a place.

        Args:
            place: of :meth:`places`.
            request: lies there.
            reasons: whether its columns must say why.

        Raises:
            AttnselError: it has no answer.
        """
        cell = self.known_cell(place, reasons)
        if cell is None:
            answer = self.answer([request]) if reasons else self.choose(request)
            cell = self._cells[place, reasons] = Cell(request, answer, tuple(self._names(answer)))
            self.compiled.count()
        return cell

    def places_in(self, cell: Cell, speculative_tokens: int) -> Places | None:
        """The places in a cell whose requests take the same path."""
        return self.compiled.places_of_pair(self, cell.names, speculative_tokens)

    def path_in(self, cell: Cell, place: int, request: Request) -> Columns:
        """The columns of a place in a cell.

        Args:
            cell: of a request's backends.
            place: of :meth:`places_in`.
            request: lies there.

        Raises:
            AttnselError: it has no answer.
        """
        key = (request.speculative_tokens, place)
        found = cell.paths.get(key)
        if found is None:
            found = cell.answer
            if request is not cell.first:
                found = {**found, **self.choose(request)}
            found = cell.paths[key] = self.compiled.same(found)
            self.compiled.count()
        return found

    def _names(self, answer: Columns) -> Iterator[str]:
        forced = self.policy.backend if self.given else None
        for name in (answer["prefill_backend"], answer["decode_backend"], forced):
            if name is not None:
                yield name

    def _forget(self) -> None:
        if self._emptied != self.compiled.emptied:
            self._emptied = self.compiled.emptied
            self._cells.clear()
            self._alike.clear()
