"""Requests of one layer: lengths that no rule tells apart are one cell, answered once.

A cell's answer is the definition's for the first request in it. Cells are found by the places
where some rule changes its mind, so a lookup or three and an index are all that a request costs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from selector.asking import lengths_of
from selector.binding import Bound
from selector.domains import Domain
from selector.plan.memo import remember
from selector.plan.places import LEAST, Axis, moving, sets_of
from selector.plan.tail import Pick
from selector.plan.terms import tests_of_choice, tests_of_pair
from selector.rules import Test
from selector.values import Request, Resolution

__all__ = ["Cells"]

_MOST = 1 << 20
"""So many cells are kept; then they are asked for anew."""

_AXES = ("query_len", "seq_len", "context_len")


class Cells:
    """The plain choices for requests of one bound layer."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self._whatever = bound.resolve()
        self._tables: dict[int, _Table] = {}
        self._plain = self._table(0)

    def resolve(
        self, query_len: int | None = None, seq_len: int | None = None, speculative_tokens: int = 0
    ) -> Pick:
        """The plain choice for a request.

        Args:
            query_len: new tokens; unknown when ``None``.
            seq_len: new plus cached tokens; unknown when ``None``.
            speculative_tokens: draft tokens verified with each decode.

        Raises:
            ContradictionError: a length is below 1, or the query is longer than the sequence.
        """
        if query_len is None or seq_len is None or not 0 < query_len <= seq_len:
            return Pick.of(self.explain(query_len, seq_len, speculative_tokens))
        table = self._table(speculative_tokens) if speculative_tokens else self._plain
        return table.pick(query_len, seq_len)

    def explain(
        self, query_len: int | None = None, seq_len: int | None = None, speculative_tokens: int = 0
    ) -> Resolution:
        """The same with every reason: the definition's own answer."""
        return self.bound.resolve(query_len, seq_len, speculative_tokens=speculative_tokens)

    def _table(self, speculative_tokens: int) -> _Table:
        table = self._tables.get(speculative_tokens)
        if table is None:
            table = _Table(self.bound, self._whatever, speculative_tokens)
            remember(self._tables, speculative_tokens, table, 64)
        return table


class _Table:
    """The cells for one number of draft tokens."""

    def __init__(self, bound: Bound, whatever: Resolution, speculative_tokens: int) -> None:
        self.bound = bound
        self.speculative_tokens = speculative_tokens
        sets, relations = sets_of(bound.manifest, lambda: bound.question, _tests(bound, whatever))
        moves = moving(bound.manifest)
        self._cells_hold = all(moves.isdisjoint(relation.names) for relation in relations)
        sets.setdefault("query_len", []).extend(
            Domain.between(None, max(longest, 1 + speculative_tokens))
            for longest in _thresholds(bound, whatever)
        )
        axes = {name: Axis(found, LEAST.get(name, 0)) for name, found in sets.items()}
        self._others = [(n, a) for n, a in axes.items() if n not in _AXES or a.odd]
        self._relations = relations
        self._query, self._seq, self._context = (
            axes[name].cuts if name in axes else [] for name in _AXES
        )
        self._columns = len(self._seq) + 1
        self._layers = len(self._context) + 1
        self._simple = not self._others and not self._relations
        self._cells: dict[object, Pick] = {}

    def pick(self, query_len: int, seq_len: int) -> Pick:
        """The plain choice; the query is no longer than the sequence, in tokens."""
        cell: object = bisect_right(self._query, query_len)
        if self._seq:
            cell = cell * self._columns + bisect_right(self._seq, seq_len)  # type: ignore[operator]
        if self._context:
            context = bisect_right(self._context, seq_len - query_len)
            cell = cell * self._layers + context  # type: ignore[operator]
        if not self._simple:
            cell = (cell, *self._more(query_len, seq_len))
        found = self._cells.get(cell)
        return self._ask(cell, query_len, seq_len) if found is None else found

    def _ask(self, cell: object, query_len: int, seq_len: int) -> Pick:
        request = Request(query_len, seq_len, self.speculative_tokens)
        pick = Pick.of(self.bound.resolve_one(request))
        if self._cells_hold:
            remember(self._cells, cell, pick, _MOST)
        return pick

    def _more(self, query_len: int, seq_len: int) -> Iterator[object]:
        """What measures and bounds between fields say of a request."""
        values = lengths_of(self.bound.manifest, query_len, seq_len)
        for name, axis in self._others:
            yield axis.place(values[name])
        known = {**dict(self.bound.question.items()), **values}
        for relation in self._relations:
            yield relation.of(known)


def _tests(bound: Bound, whatever: Resolution) -> Iterator[Test]:
    """Yields every test that can tell requests apart; ``whatever`` answers unknown lengths."""
    manifest = bound.manifest
    yield from tests_of_choice(manifest)
    for name in whatever.prefill.possible:
        yield from tests_of_pair(manifest.entries[name], None)
    for name in whatever.decode.possible:
        yield from tests_of_pair(None, manifest.entries[name])


def _thresholds(bound: Bound, whatever: Resolution) -> Iterator[int]:
    """Yields the longest queries that can count as a decode, in tokens."""
    for name in whatever.decode.possible:
        rules = bound.manifest.entries[name].decode_threshold
        yield from (rule.result for rule in rules.rules) if rules else ()
