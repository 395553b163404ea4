"""Requests of one layer: lengths that no rule tells apart are one cell, answered once.

A cell's answer is the definition's for the first request in it. Cells are found by the places
where some rule changes its mind, so a lookup or three and an index are all that a request costs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from selector.asking import lengths_of
from selector.binding import Bound
from selector.domains import Domain
from selector.plan.memo import remember
from selector.plan.places import LEAST, Axis, Places, moving, sets_of
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
        query, seq, seqs, context, contexts, cells = table.lookup
        cell = bisect_right(query, query_len)
        if seq:
            cell = cell * seqs + bisect_right(seq, seq_len)
        if context:
            cell = cell * contexts + bisect_right(context, seq_len - query_len)
        return cells.get(cell) or table.pick(cell, query_len, seq_len)

    def explain(
        self, query_len: int | None = None, seq_len: int | None = None, speculative_tokens: int = 0
    ) -> Resolution:
        """The same with every reason: the definition's own answer."""
        return self.bound.resolve(query_len, seq_len, speculative_tokens=speculative_tokens)

    def place(
        self, query_len: int | None, seq_len: int | None, speculative_tokens: int = 0
    ) -> object:
        """What requests have in common that no rule tells apart; ``None``: nothing is known.

        Their answers differ in their lengths alone, wherever those are shown.
        """
        if query_len is None or seq_len is None or not 0 < query_len <= seq_len:
            return None
        return self._table(speculative_tokens).place_of(query_len, seq_len)

    def _table(self, speculative_tokens: int) -> _Table:
        table = self._tables.get(speculative_tokens)
        if table is None:
            table = _Table(self.bound, self._whatever, speculative_tokens)
            remember(self._tables, speculative_tokens, table, 64)
        return table


class _Table:
    """The cells for one number of draft tokens.

    Attributes:
        lookup: where the query's length changes something, in tokens; the same of the sequence, and
            how many places that makes; the same of the context; and the place of a request → its
            pick, where that alone decides.
    """

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
        others = {n: sets[n] for n, axis in axes.items() if n not in _AXES or axis.odd}
        self._places = Places(bound.manifest, others)
        self._relations = relations
        query, seq, context = (axes[name].cuts if name in axes else [] for name in _AXES)
        self._cells: dict[int, Pick] = {}
        self.lookup = (query, seq, len(seq) + 1, context, len(context) + 1, self._cells)
        self._finer: dict[object, Pick] = {}

    def place_of(self, query_len: int, seq_len: int) -> object:
        """The cell of a request, or its place within a cell that is not all alike."""
        query, seq, seqs, context, contexts, cells = self.lookup
        cell = bisect_right(query, query_len) * seqs + bisect_right(seq, seq_len)
        cell = cell * contexts + bisect_right(context, seq_len - query_len)
        if cell not in cells:
            self.pick(cell, query_len, seq_len)
        if cell in cells:
            return self.speculative_tokens, cell
        if not self._cells_hold:
            return None
        finer = self._places.place(query_len, seq_len)
        return self.speculative_tokens, cell, finer, *self._holds(query_len, seq_len)

    def pick(self, cell: int, query_len: int, seq_len: int) -> Pick:
        """The plain choice for a request of a cell that was not asked for, or is not all alike."""
        if not self._relations and self._alike(query_len, seq_len):
            return remember(self._cells, cell, self._ask(query_len, seq_len), _MOST)
        key = (cell, self._places.place(query_len, seq_len), *self._holds(query_len, seq_len))
        found = self._finer.get(key)
        if found is None:
            found = self._ask(query_len, seq_len)
            if self._cells_hold:
                remember(self._finer, key, found, _MOST)
        return found

    def _ask(self, query_len: int, seq_len: int) -> Pick:
        request = Request(query_len, seq_len, self.speculative_tokens)
        return Pick.of(self.bound.resolve_one(request))

    def _alike(self, query_len: int, seq_len: int) -> bool:
        """Whether all requests of a cell lie in one place of what else is looked at."""
        query, seq, _, context, _, _ = self.lookup
        return self._places.spans(
            _around(query, query_len, 1),
            _around(seq, seq_len, 1),
            _around(context, seq_len - query_len, 0),
        )

    def _holds(self, query_len: int, seq_len: int) -> Iterator[bool | None]:
        """Whether bounds between fields hold."""
        if self._relations:
            lengths = lengths_of(self.bound.manifest, query_len, seq_len)
            known = {**dict(self.bound.question.items()), **lengths}
            yield from (relation.of(known) for relation in self._relations)


def _around(cuts: Sequence[int], length: int, least: int) -> tuple[int, int | None]:
    """The shortest and the longest length between the cuts around one, in tokens."""
    place = bisect_right(cuts, length)
    low = cuts[place - 1] if place else least
    return low, cuts[place] - 1 if place < len(cuts) else None


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
        yield from bound.manifest.entries[name].thresholds
