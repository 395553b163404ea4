"""What follows once the backends are chosen: what a request counts as, and the path it takes.

Few fields matter to a chosen pair. Each is looked at through the sets that the pair's rules hold
it against; questions that are alike in that get the same answer, which the definition gives once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from selector.domains import Domain, Value
from selector.manifest import Manifest
from selector.paths import Path, decode_path, decode_thresholds, phase_of, prefill_path, the_only
from selector.plan.shape import Reading, Shape
from selector.plan.terms import UndecidedError, relation_name, tests_after
from selector.rules import Question
from selector.values import Layer, Phase, Policy, Request

__all__ = ["Followed", "Tail"]

_MOST = 1 << 16
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

    def __missing__(self, value: Value | Domain | None) -> int:
        if value is None or isinstance(value, Domain):
            raise UndecidedError
        found = sum(1 << bit for bit, values in enumerate(self.sets) if values.admits(value))
        if len(self) < _MOST:
            self[value] = found
        return found


class Tail:
    """The tail of one pair of backends, for layers of one shape."""

    def __init__(
        self, manifest: Manifest, shape: Shape, prefill: str | None, decode: str | None
    ) -> None:
        self.manifest = manifest
        self.shape = shape
        self.prefill = manifest.entries.get(prefill or "")
        self.decode = manifest.entries.get(decode or "")
        sets: dict[str, list[Domain]] = {}
        for test in tests_after(manifest, self.prefill, self.decode):
            name, values = test.field, test.allowed.fixed
            if test.allowed.bounds:
                name, values = relation_name(test), Domain.of(True)
            if values not in sets.setdefault(name, []):
                sets[name].append(values)
        if self.prefill is not None and self.prefill.sparse:
            sets.setdefault("dense_prefill", []).append(Domain.of(True))
        self.reading = Reading(shape, {name: Signature(found) for name, found in sets.items()})
        coerced = {n for e in (self.prefill, self.decode) if e for n in e.coerce}
        self._ends_move = any(
            not coerced.isdisjoint(relation.names)
            for name, relation in shape.relations.items()
            if name in sets
        )
        paths = self.prefill.prefill_paths if self.prefill else ()
        self._asks_dense = any(rule.by_dense_backend for rule in paths)
        rules = self.decode.decode_threshold if self.decode else None
        self._thresholds = tuple({rule.result for rule in rules.rules}) if rules else ()
        self._answers: dict[object, Followed] = {}
        self._used: dict[object, Values] = {}

    def follow(
        self, layer: Layer, request: Request, dense: Callable[[Shape, Values], str | None]
    ) -> Followed:
        """What a request counts as, and its path.

        Args:
            layer: of this shape.
            request: both its lengths are known.
            dense: gives the backend of the same layer, were it not sparse.

        Raises:
            UndecidedError: something that is unknown matters.
        """
        if self._ends_move:
            raise UndecidedError
        query_len, speculative = request.query_len or 1, request.speculative_tokens
        reading, fields = self.reading, layer.fields
        parts: list[object] = [speculative]
        for threshold in self._thresholds:
            parts.append(query_len <= max(threshold, 1 + speculative))
        for name, signature in reading.given:
            parts.append(signature[fields[name]])
        if reading.computes:
            parts += reading.computed(layer)
        values: Values | None = None
        if reading.asked:
            values = self.shape.with_lengths({}, request)
            parts += [signature[values.get(name)] for name, signature in reading.asked]
        if self._asks_dense:
            values = self.shape.with_lengths(self.shape.values(layer), request)
            parts.append(dense(self.shape, self._as_run(tuple(parts), values)))
        key = tuple(parts)
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= _MOST:
                self._answers.clear()
            found = self._answers[key] = self._ask(layer, request)
        return found

    def _question(self, values: Values) -> Question:
        words = self.manifest.vocabulary
        known = {name: value for name, value in values.items() if name in words.fields}
        return Question(words, known).derived(self.manifest.derive)

    def _as_run(self, key: object, values: Values) -> Values:
        """The values as the prefill backend sees them once it runs."""
        assert self.prefill is not None
        if not self.prefill.coerce:
            return values
        used = self._used.get(key)
        if used is None:
            run = self.prefill.coerced(self._question(values))
            known = {name: run.known(name) for name in self.prefill.coerce}
            if None in known.values():
                raise UndecidedError
            used = self._used[key] = {n: v for n, v in known.items() if v is not None}
        return {**values, **used}

    def _ask(self, layer: Layer, request: Request) -> Followed:
        """Asks the definition."""
        values = self.shape.with_lengths(self.shape.values(layer), request)
        asked = self._question(values)
        thresholds: tuple[int, ...] = ()
        if self.decode is not None:
            thresholds = decode_thresholds(self.decode, asked, request.speculative_tokens)
        phase = phase_of(thresholds, request.query_len)
        path = Path()
        if self.prefill is not None and phase is Phase.DECODE and self.decode is not None:
            path = Path(decode_path(self.decode))
        elif self.prefill is not None:
            facts = self.shape.facts
            path = prefill_path(self.manifest, self.prefill, asked, asked, facts, Policy())
        return Followed(phase, path.path, path.by, the_only(thresholds))
