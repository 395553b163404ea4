"""What many rows ask alike: bound when a reason is asked for, and answered once for each cell.

A cell is found in two steps. Some rules tell requests apart whatever is chosen; lengths that they
do not tell apart get the same backends, for the same reasons. The rules of the chosen pair then
tell which path a request takes. Where a length is unknown, one step takes all rules together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Any

from selector.binding import Bound
from selector.errors import AttnselError
from selector.fields import BATCH_FIELDS
from selector.plan.memo import remember
from selector.plan.places import Places
from selector.rules import Question
from selector.tables.answers import answer_to, failed, pick_columns
from selector.tables.compiled import Compiled, Form
from selector.values import Device, Facts, Layer, Policy, Request

__all__ = ["Asked", "Cell"]

_MOST_TOGETHER = 512
_FREE = Policy()
_PLAIN = Form()

Columns = dict[str, Any]


class Cell:
    """Requests that get the same backends for the same reasons, and the paths they take.

    Attributes:
        answer: the columns for the request by which it was found.
        names: the backends whose rules decide the path; ``None``: nothing is left to decide.
        apart: its answers' words name the length, so each request has its own.
        paths: form and place → the columns.
    """

    def __init__(
        self, answer: Columns, names: tuple[str, ...] | None = None, apart: bool = False
    ) -> None:
        self.answer = answer
        self.names = names
        self.apart = apart
        self.paths: dict[tuple[Form, int], Columns] = {}


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
        self._again = False
        self._emptied = compiled.emptied
        self._cells: dict[tuple[Form, int, bool], Cell] = {}
        self._alike: dict[object, Columns] = {}
        self._together: dict[int, Asked] = {}

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

    @cached_property
    def refused(self) -> Columns | None:
        """The columns of all its rows, where it cannot be bound."""
        try:
            self.bound  # noqa: B018  what cannot be is refused here
        except AttnselError as error:
            return failed(str(error))
        return None

    def together(self, count: int) -> Asked:
        """The same of so many requests: another one where rules read how many run together."""
        if (
            count < 2
            or BATCH_FIELDS.isdisjoint(self.compiled.manifest.names)
            or not BATCH_FIELDS.isdisjoint(self.layer.fields)
            or self.refused is not None
        ):
            return self
        found = self._together.get(count)
        if found is None:
            found = Asked(
                self.compiled,
                self.device,
                Layer(MappingProxyType({**self.layer.fields, "num_reqs": count})),
                self.facts,
                self.policy,
                dense=self.dense,
                given=self.given,
            )
            remember(self._together, count, found, _MOST_TOGETHER)
        return found

    def columns(self, requests: Sequence[Request], reasons: bool = True) -> Columns:
        """The columns for requests that run together; where they have no answer, with the error.

        Args:
            requests: at least one.
            reasons: whether the columns must say why.
        """
        counted = self.together(len(requests))
        if counted is not self:
            return counted.columns(requests, reasons)
        first = requests[0]
        form = Form.of(first, len(requests))
        if not reasons and form.together == 1 and not form.unknown:
            return self._tried(requests, reasons)
        if self.refused is not None:
            return self.refused
        if any(request != first for request in requests):
            return self._mixed(requests)
        known = first.query_len or first.seq_len or 1
        lengths = (first.query_len or known, first.seq_len or known)
        if form.unknown and not self._again:
            self._again = True  # to find places costs an answer, which one length does not repay
            return self._once((form, lengths), requests)
        return self.of_lengths(form, *lengths, reasons)

    def of_lengths(self, form: Form, query_len: int, seq_len: int, reasons: bool = True) -> Columns:
        """The columns for requests of one form that are alike, of a layer that can be bound.

        Args:
            form: what they say but for their lengths; as many as rules see together.
            query_len: in tokens; some number where it is unknown.
            seq_len: the same; not less than ``query_len``.
            reasons: whether the columns must say why.
        """
        choice = self.places(form)
        if choice is not None:
            cell = self.cell(form, choice.place(query_len, seq_len), query_len, seq_len, reasons)
            places = self.places_in(cell, form)
            if places is not None:
                place = places.place(query_len, seq_len)
                return self.path_in(cell, form, place, query_len, seq_len)
        return self._once((form, (query_len, seq_len)), form.requests(query_len, seq_len))

    def _mixed(self, requests: Sequence[Request]) -> Columns:
        """The columns of different requests; those that lie in the same places are asked once."""
        lie = self._lie(requests)
        return self._once(tuple(requests) if lie is None else lie, requests)

    def _lie(self, requests: Sequence[Request]) -> tuple[object, ...] | None:
        """Where requests lie; ``None``: that does not tell what they add up to."""
        choice, form = self.places(_PLAIN), Form.of(requests[0])
        if choice is None or not self.compiled.adds_up(choice):
            return None
        seen: dict[int, Places] = {}
        found: list[object] = [form.speculative]
        for request in requests:
            query_len, seq_len = request.query_len, request.seq_len
            if query_len is None or seq_len is None:
                return None
            place = choice.place(query_len, seq_len)
            places = seen.get(place)
            if places is None:
                places = self.places_in(self.cell(form, place, query_len, seq_len, False), form)
                if places is None or not self.compiled.adds_up(places):
                    return None
                seen[place] = places
            as_long = query_len == requests[0].query_len  # matters to uniform decodes
            found.append((place, places.place(query_len, seq_len), as_long))
        return tuple(found)

    def _once(self, key: object, requests: Sequence[Request]) -> Columns:
        """The definition's answer, asked for once."""
        self._forget()
        found = self._alike.get(key)
        if found is None:
            found = self._alike[key] = self.compiled.same(self._tried(requests, True))
            self.compiled.count()
        return found

    def _tried(self, requests: Sequence[Request], reasons: bool) -> Columns:
        try:
            if not reasons:
                return self.choose(requests[0])
            return self.answer(requests)
        except AttnselError as error:
            return failed(str(error))

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

    def choose(self, request: Request) -> Columns:
        """The columns of the plain choice, at least; both lengths are known.

        Raises:
            AttnselError: it has no answer.
        """
        plan = self.compiled.plan
        if plan is None or not self._free:
            return self.answer([request])
        try:
            pick = plan.resolve(
                self.device,
                self.layer,
                self.compiled.facts(self.facts),
                request,
                closed_world=self.compiled.closed_world,
            )
        except AttnselError:
            return self.answer([request])  # in the definition's words
        return pick_columns(pick)

    # -- cells ------------------------------------------------------------------------------------

    def places(self, form: Form) -> Places | None:
        """The places whose requests get the same backends; ``None``: lengths alone do not tell.

        Raises:
            AttnselError: it cannot be bound.
        """
        if not form.unknown:
            return self.compiled.places_of_choice(self._question)
        if form.unknown == 3:
            return self.compiled.anywhere
        return self.compiled.places_of_known(self._question, self._possible, form)

    def cell(self, form: Form, place: int, query_len: int, seq_len: int, reasons: bool) -> Cell:
        """The cell of a place.

        Args:
            form: of the requests.
            place: of :meth:`places`.
            query_len: of a request there, in tokens.
            seq_len: the same.
            reasons: whether its columns must say why.
        """
        self._forget()
        key = (form if form.unknown else _PLAIN, place, reasons)
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = self._new_cell(form, query_len, seq_len, reasons)
            self.compiled.count()
        return cell

    def _new_cell(self, form: Form, query_len: int, seq_len: int, reasons: bool) -> Cell:
        if form.unknown:
            answer = self._tried(form.requests(query_len, seq_len), True)
            return Cell(self.compiled.same(answer), apart=reasons and _names_a_length(answer))
        alone = form._replace(together=1)
        answer = self._tried(alone.requests(query_len, seq_len), reasons)
        if answer["error"] is not None:
            return Cell(self.compiled.same(answer))
        cell = Cell(answer, tuple(self._names(answer)))
        places = self.places_in(cell, alone)
        if places is not None:
            place = places.place(query_len, seq_len)
            cell.paths[alone, place] = self.compiled.same(answer)
        return cell

    def places_in(self, cell: Cell, form: Form) -> Places | None:
        """The places in a cell whose requests take the same path."""
        if cell.apart:
            return None
        if cell.names is None:
            return self.compiled.anywhere
        return self.compiled.places_of_pair(self._question, cell.names, form)

    def path_in(self, cell: Cell, form: Form, place: int, query_len: int, seq_len: int) -> Columns:
        """The columns of a place in a cell.

        Args:
            cell: of the requests' backends.
            form: of the requests.
            place: of :meth:`places_in`.
            query_len: of a request there, in tokens.
            seq_len: the same.
        """
        found = cell.paths.get((form, place))
        if found is None:
            found = self._path(cell, form, query_len, seq_len)
            cell.paths[form, place] = found
            self.compiled.count()
        return found

    def _path(self, cell: Cell, form: Form, query_len: int, seq_len: int) -> Columns:
        if cell.names is None:
            return cell.answer
        requests = form.requests(query_len, seq_len)
        if form.together == 1:
            return self.compiled.same({**cell.answer, **self.choose(requests[0])})
        if self.compiled.counts(cell.names):
            return self.compiled.same(self._tried(requests, True))
        alone = form._replace(together=1)  # no rule sees the others
        places = self.places_in(cell, alone)
        assert places is not None
        found = self.path_in(cell, alone, places.place(query_len, seq_len), query_len, seq_len)
        decodes = found["num_decodes"] and form.together
        return self.compiled.same({**found, "num_decodes": decodes})

    def _question(self) -> Question:
        return self.bound.question

    @cached_property
    def _possible(self) -> tuple[str, ...]:
        """Every backend that can be chosen, whatever the lengths are."""
        try:
            answer = self.compiled.judge.resolve(self.bound, Request())
        except AttnselError:
            return ()  # nothing can be: each answer is that error
        forced = (self.policy.backend,) if self.given and self.policy.backend else ()
        return tuple(dict.fromkeys((*answer.prefill.possible, *answer.decode.possible, *forced)))

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


def _names_a_length(columns: Columns) -> bool:
    """Whether a condition says what an unknown length must be, which depends on the known one."""
    said = columns["conditions"] or ()
    return any(one.startswith(("query_len ", "seq_len ")) for one in said)
