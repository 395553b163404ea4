"""What follows once the backends are chosen: what a request counts as, and the path it takes.

Few fields matter to a chosen pair. Each is looked at through the sets that the pair's rules hold
it against; questions that are alike in that get the same answer, which the definition gives once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from selector.domains import Domain, Value
from selector.manifest import Entry, Manifest
from selector.paths import Path, decode_path, decode_thresholds, phase_of, prefill_path, the_only
from selector.plan.computed import Relation
from selector.rules import FirstMatch, Question, Test
from selector.values import Facts, Phase, Policy, Request

__all__ = ["Followed", "Tail"]

MOST_CELLS = 1 << 16
"""So many answers are kept; then a pair begins anew."""

Values = Mapping[str, Value | Domain]


class Followed(NamedTuple):
    """What a request counts as, and how it is computed."""

    phase: Phase | None
    path: str | None
    by: str | None
    decode_threshold: int | None


class Signature(dict[object, int]):
    """A field's value → in which of some sets it lies, a bit for each."""

    def __init__(self, sets: list[Domain]) -> None:
        super().__init__()
        self.sets = sets

    def __missing__(self, value: Value) -> int:
        found = sum(1 << bit for bit, values in enumerate(self.sets) if values.admits(value))
        if len(self) < MOST_CELLS:
            self[value] = found
        return found


class Tail:
    """The tail of one pair of backends."""

    def __init__(self, manifest: Manifest, prefill: str | None, decode: str | None) -> None:
        self.manifest = manifest
        self.prefill = manifest.entries.get(prefill or "")
        self.decode = manifest.entries.get(decode or "")
        sets: dict[str, list[Domain]] = {}
        self.relations: list[Relation] = []
        for test in self._tests():
            if test.allowed.bounds:
                self.relations.append(Relation(manifest.vocabulary, test))
            elif test.allowed.fixed not in sets.setdefault(test.field, []):
                sets[test.field].append(test.allowed.fixed)
        if self.prefill is not None and self.prefill.sparse:
            sets.setdefault("dense_prefill", []).append(Domain.of(True))
        self.fields = tuple((name, Signature(found)) for name, found in sets.items())
        self.coercing = self._coercing()
        self.asks_dense = self.prefill is not None and any(
            rule.by_dense_backend for rule in self.prefill.prefill_paths
        )
        rules = self.decode.decode_threshold if self.decode else None
        self.thresholds = tuple({rule.result for rule in rules.rules}) if rules else ()
        self._answers: dict[object, Followed] = {}
        self._used: dict[object, dict[str, Value | None]] = {}

    def _tests(self) -> Iterator[Test]:
        """Yields every test that a rule of the pair can look at."""
        pending = [*self._own_tests()]
        seen: set[str] = set()
        while pending:
            test = pending.pop()
            derived = self.manifest.derive.get(test.field)
            if derived is None:
                yield test
            elif test.field not in seen:
                seen.add(test.field)
                pending += [t for rule in derived.rules for t in rule.when.tests]

    def _own_tests(self) -> Iterator[Test]:
        for entry in (self.prefill, self.decode):
            for coercion in entry.coerce.values() if entry else ():
                yield from _tests_in(coercion)
        if self.decode is not None and self.decode.decode_threshold is not None:
            yield from _tests_in(self.decode.decode_threshold)
        if self.prefill is not None:
            for rule in self.prefill.prefill_paths:
                yield from rule.when.tests
                for row in rule.steps.tests() if rule.steps else ():
                    yield from row.tests
            for exception in self.prefill.dense_prefill_except:
                yield from exception.when.tests

    def _coercing(self) -> bool:
        """Whether a value that is coerced bounds another: then only the definition knows."""
        coerced = {n for e in (self.prefill, self.decode) if e for n in e.coerce}
        return any(not coerced.isdisjoint(relation.names) for relation in self.relations)

    def follow(
        self,
        values: Values,
        facts: Facts,
        request: Request,
        dense: Callable[[Values], str | None],
    ) -> Followed | None:
        """What a request counts as, and its path; ``None``: only the definition knows.

        Args:
            values: what is known, with the request's lengths.
            facts: versions, for ``requires``.
            request: both its lengths are known.
            dense: gives the backend of the same layer, were it not sparse.
        """
        if self.coercing:
            return None
        query_len, speculative_tokens = request.query_len or 1, request.speculative_tokens
        parts: list[object] = [speculative_tokens]
        for name, signature in self.fields:
            value = values.get(name)
            if value is None or isinstance(value, Domain):
                return None
            parts.append(signature[value])
        for relation in self.relations:
            holds = relation.of(values)
            if holds is None:
                return None
            parts.append(holds)
        for threshold in self.thresholds:
            parts.append(query_len <= max(threshold, 1 + speculative_tokens))
        if self.asks_dense:
            parts.append(dense(self._as_run(tuple(parts), values)))
        key = tuple(parts)
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= MOST_CELLS:
                self._answers.clear()
            found = self._answers[key] = self._ask(values, facts, request)
        return found

    def _question(self, values: Values) -> Question:
        known = {n: v for n, v in values.items() if n in self.manifest.vocabulary.fields}
        return Question(self.manifest.vocabulary, known).derived(self.manifest.derive)

    def _as_run(self, key: object, values: Values) -> Values:
        """The values as the prefill backend sees them once it runs."""
        assert self.prefill is not None
        if not self.prefill.coerce:
            return values
        used = self._used.get(key)
        if used is None:
            run = self.prefill.coerced(self._question(values))
            used = self._used[key] = {name: run.possible(name).only() for name in self.prefill.coerce}
        return {**values, **used}

    def _ask(self, values: Values, facts: Facts, request: Request) -> Followed:
        asked = self._question(values)
        thresholds: tuple[int, ...] = ()
        if self.decode is not None:
            thresholds = decode_thresholds(self.decode, asked, request.speculative_tokens)
        phase = phase_of(thresholds, request.query_len)
        path = Path()
        if self.prefill is not None and phase is Phase.DECODE and self.decode is not None:
            path = Path(decode_path(self.decode))
        elif self.prefill is not None:
            path = prefill_path(self.manifest, self.prefill, asked, asked, facts, Policy())
        return Followed(phase, path.path, path.by, the_only(thresholds))


def _tests_in(match: FirstMatch[Any]) -> Iterator[Test]:
    for rule in match.rules:
        yield from rule.when.tests
