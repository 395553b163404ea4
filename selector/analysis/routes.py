"""Which rules of an entry could give a path that must never be taken, and for which questions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from selector.analysis.survey import Region
from selector.domains import Domain
from selector.manifest import SPARSE_PATH, Entry, Invariant, Manifest, PathRule
from selector.plan.terms import Term
from selector.rules import Allowed, Test, When, inputs_of
from selector.values import Phase

__all__ = ["Suspicion", "suspicions_of"]

_LENGTHS = ("query_len", "seq_len", "context_len")
_FAR = (1, 2, 16, 17, 129, 2049, 8193)
_MOST = 400


class Suspicion(msgspec.Struct, frozen=True):
    """A rule that gives a forbidden path, of an entry that could take it.

    Attributes:
        entry: the prefill backend.
        rule: gives the path.
        holds: what holds when it is taken, as far as that is said of the question itself.
        fails: what does not hold then.
    """

    entry: Entry
    rule: PathRule
    holds: When
    fails: tuple[When, ...]

    @property
    def whens(self) -> tuple[When, ...]:
        """All of these conditions."""
        return (self.holds, *self.fails)

    def region(self, term: Term | None, terms: Sequence[Term | None]) -> Region | None:
        """The questions within a promise that could take the path; ``None``: there are none.

        Args:
            term: what the promise is about.
            terms: the conditions of ``whens``, as terms.
        """
        holds, *fails = terms
        if term is None or holds is None:
            return None
        return Region((term, holds), tuple(one for one in fails if one is not None))

    def lengths(self, manifest: Manifest) -> list[tuple[int, int]]:
        """Lengths of requests at the edges of what the rules of the entry tell apart."""
        found: dict[int, None] = dict.fromkeys(_FAR)
        rows = [row for rule in self.entry.prefill_paths for row in _rows(rule)]
        for test in (t for when in (*self.whens, *rows) for t in when.tests):
            if test.field in _LENGTHS:
                found.update(dict.fromkeys(_edges(test.allowed.fixed)))
        for entry in manifest.entries.values():
            found.update((threshold + 1, None) for threshold in entry.thresholds)
        numbers = sorted(found)
        return [(q, s) for q, s in product(numbers, numbers) if q <= s][:_MOST]


def suspicions_of(manifest: Manifest, promise: Invariant) -> Iterator[Suspicion]:
    """Yields the rules that could give a path which a promise excludes."""
    if not promise.never_paths:
        return
    for entry in manifest.entries.values():
        if Phase.PREFILL not in entry.phases:
            continue
        for index, rule in enumerate(entry.prefill_paths):
            gated = entry.sparse and rule.path != SPARSE_PATH
            if rule.path not in promise.never_paths or (gated and entry.dense_prefill is not True):
                continue
            yield _suspicion(manifest, entry, index, gated)


def _suspicion(manifest: Manifest, entry: Entry, index: int, gated: bool) -> Suspicion:
    rule = entry.prefill_paths[index]
    tests = [test for test in rule.when.tests if _is_asked(manifest, entry, test)]
    fails: list[When] = []
    if gated:
        tests.append(Test("dense_prefill", Allowed(Domain.of(True)), rule.position))
        fails += (rule.when for rule in entry.dense_prefill_except)
    for earlier in entry.prefill_paths[:index]:
        sure = earlier.steps is None and not earlier.by_dense_backend
        same = earlier.batch == rule.batch
        free = not entry.sparse or earlier.path == SPARSE_PATH or (gated and not fails)
        if sure and same and free and earlier.when.tests:
            fails.append(earlier.when)
    asked = tuple(
        when for when in fails if all(_is_asked(manifest, entry, test) for test in when.tests)
    )
    return Suspicion(entry, rule, When(tuple(tests)), asked)


def _is_asked(manifest: Manifest, entry: Entry, test: Test) -> bool:
    """Whether a test sees what was asked, not what the entry makes of it."""
    read = {field for name in test.reads for field in inputs_of(name, manifest.derive)}
    measures = {measure.name for measure in manifest.measures}
    return not read & {*entry.coerce, *measures}


def _rows(rule: PathRule) -> Iterator[When]:
    yield rule.when
    if rule.steps is not None:
        yield from rule.steps.tests()


def _edges(values: Domain) -> Iterator[int]:
    for span in values.spans:
        for end in (span.low, span.high):
            if end is not None:
                yield from (n for n in (end, end + 1) if n >= 1)
