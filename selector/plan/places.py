"""Where the lengths of requests lie among the sets that rules hold them against.

Two requests of one layer that lie in the same place are told apart by no rule. A place is a
number, of one request or of whole columns of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from selector.asking import lengths_of, words_of_one
from selector.domains import Domain, Value
from selector.manifest import Manifest, Measure
from selector.plan.computed import Relation
from selector.rules import Question, Test

if TYPE_CHECKING:
    import numpy

    Lengths = numpy.ndarray[Any, numpy.dtype[numpy.int64]]

__all__ = ["LEAST", "LONGEST", "Axis", "Places", "moving", "of_lengths", "sets_of"]

LONGEST = 1 << 31
"""Columns of lengths are below this, in tokens: what is computed from them fits 64 bits."""

Span = tuple[int, int | None]

_LENGTHS = 3  # of the query, of the sequence, of the context; then measures
_FEW_CUTS = 24
_FAR = (1 << 63) - 1
LEAST = {"query_len": 1, "seq_len": 1}
"""The shortest lengths, in tokens; of the others it is 0."""

_CONSTANT = "num_prefills"  # alone in its batch


def moving(manifest: Manifest) -> set[str]:
    """Fields whose value is not the question's own everywhere: derived ones, and coerced ones."""
    return {*manifest.derive}.union(*(entry.coerce for entry in manifest.entries.values()))


def sets_of(
    manifest: Manifest, question: Callable[[], Question], tests: Iterable[Test]
) -> tuple[dict[str, list[Domain]], list[Relation]]:
    """The sets that tests hold lengths against, and the bounds that other fields give them.

    Args:
        manifest: gives the measures.
        question: gives what is known of the layer; called where a bound needs it.
        tests: what can tell requests apart.
    """
    lengths, moves = lengths_of(manifest, 1, 1), moving(manifest)
    sets: dict[str, list[Domain]] = {}
    relations: dict[Test, Relation] = {}
    for test in tests:
        ends = {*test.ends}
        if test.field not in lengths and ends.isdisjoint(lengths):
            continue
        if test.field not in lengths or any(
            end in lengths or end in moves or question().known(end) is None for end in ends
        ):
            relations[test] = Relation(manifest.vocabulary, test)
            continue
        allowed = test.allowed.within(question())[1] if ends else test.allowed.fixed
        if allowed not in sets.setdefault(test.field, []):
            sets[test.field].append(allowed)
    return of_lengths(sets), list(relations.values())


def of_lengths(sets: Mapping[str, list[Domain]]) -> dict[str, list[Domain]]:
    """The same sets, held against lengths and measures of a request alone in its batch."""
    found = {name: [*values] for name, values in sets.items() if name != _CONSTANT}
    if found.pop("has_context", None):
        found.setdefault("context_len", []).append(Domain.between(1, None))
    return found


class Axis:
    """The sets of one length: the cuts where they begin and end, and those that are no ranges."""

    def __init__(self, sets: Iterable[Domain], least: int = 0) -> None:
        spans = [span for values in sets for span in values.spans]
        ends = {s.low for s in spans} | {s.high + 1 for s in spans if s.high is not None}
        self.cuts = sorted(end for end in ends if end is not None and end > least)
        self.odd = [values for values in sets if not all(s.is_interval for s in values.spans)]
        self.size = (len(self.cuts) + 1) << len(self.odd)

    def place(self, value: Value | Domain) -> int:
        """The range and the odd sets that a value lies in, as a number below ``size``."""
        assert isinstance(value, int)
        place = bisect_right(self.cuts, value)
        for values in self.odd:
            place = place * 2 + values.admits(value)
        return place

    def places(self, values: Lengths) -> Lengths:
        """The same of a column."""
        import numpy

        cuts = [min(cut, _FAR) for cut in self.cuts]
        if len(cuts) <= _FEW_CUTS:  # faster than a search, which guesses wrong at each step
            place = numpy.zeros(len(values), numpy.int64)
            counts = numpy.zeros(len(values), numpy.uint8)
            for cut in cuts:
                counts += values >= cut
            place += counts
        else:
            place = numpy.searchsorted(numpy.array(cuts, numpy.int64), values, side="right")
        if self.odd:
            different, which = numpy.unique(values, return_inverse=True)
            for odd in self.odd:
                place = place * 2 + numpy.array([odd.admits(v) for v in different.tolist()])[which]
        return place


class Places:
    """The places that some sets make of pairs of lengths.

    Attributes:
        size: how many there are.
        key: the same for sets that make the same places.
    """

    def __init__(self, manifest: Manifest, sets: Mapping[str, list[Domain]]) -> None:
        found = {name: Axis(held, LEAST.get(name, 0)) for name, held in sets.items()}
        axes = [(name, axis) for name, axis in found.items() if axis.size > 1]
        axes.sort(key=lambda named: bool(named[1].odd))  # those that cost more come last
        self.key = tuple((name, tuple(axis.cuts), tuple(axis.odd)) for name, axis in axes)
        self._measures = [m for m in manifest.measures if m.name in dict(axes)]
        order = ["query_len", "seq_len", "context_len", *(m.name for m in self._measures)]
        self._axes = [(order.index(name), axis) for name, axis in axes]
        self._plain = [(at, axis.size, axis.cuts) for at, axis in self._axes if not axis.odd]
        self._odd = [(at, axis) for at, axis in self._axes if axis.odd]
        self.size = 1
        for _, axis in self._axes:
            self.size *= axis.size

    def place(self, query_len: int, seq_len: int) -> int:
        """The place of a request, below ``size``; lengths are in tokens, 1 ≤ query ≤ sequence."""
        lengths = [query_len, seq_len, seq_len - query_len]
        for measure in self._measures:
            lengths.append(words_of_one(measure, query_len, seq_len - query_len))
        place = 0
        for at, size, cuts in self._plain:
            place = place * size + bisect_right(cuts, lengths[at])
        for at, axis in self._odd:
            place = place * axis.size + axis.place(lengths[at])
        return place

    def spans(self, query_len: Span, seq_len: Span, context_len: Span) -> bool:
        """Whether all requests whose lengths lie in these ranges lie in one place.

        Args:
            query_len: the shortest and the longest, in tokens; ``None``: as long as may be.
            seq_len: likewise.
            context_len: likewise.
        """
        if not self._axes:
            return True
        if self._odd or any(at < _LENGTHS for at, _, _ in self._plain):
            return False
        longest = context_len[1]
        if seq_len[1] is not None:
            room = max(seq_len[1] - query_len[0], 0)
            longest = room if longest is None else min(longest, room)
            query_len = (query_len[0], min(query_len[1] or seq_len[1], seq_len[1]))
        for at, _, cuts in self._plain:
            measure = self._measures[at - _LENGTHS]
            low = words_of_one(measure, query_len[0], context_len[0])
            place = bisect_right(cuts, low)
            if query_len[1] is None or longest is None:
                if place < len(cuts):
                    return False
            elif place < bisect_right(cuts, words_of_one(measure, query_len[1], longest)):
                return False
        return True

    def places(self, query_len: Lengths, seq_len: Lengths) -> Lengths:
        """The place of each of many requests; their lengths are below :data:`LONGEST`."""
        import numpy

        context = seq_len - query_len
        lengths = [query_len, seq_len, context]
        lengths += [_mask_words(measure, query_len, context) for measure in self._measures]
        place: Lengths = numpy.zeros(len(query_len), numpy.int64)
        for at, axis in self._axes:
            place *= axis.size
            place += axis.places(lengths[at])
        return place


def _mask_words(measure: Measure, query_len: Lengths, context_len: Lengths) -> Lengths:
    """:func:`selector.asking.words_of_one` of columns of requests."""
    import numpy

    small = query_len <= measure.small_tile
    tile = numpy.where(small, measure.small_tile, measure.large_tile)
    columns = -(-numpy.maximum(query_len, context_len) // 32)
    words = -(-columns // measure.word_align) * measure.word_align
    found: Lengths = -(-query_len // tile) * tile * words
    return found
