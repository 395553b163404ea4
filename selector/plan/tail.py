"""What follows once the backends are chosen: what a request counts as, and the path it takes.

Few fields matter to a chosen pair. Each is looked at through the sets that the pair's rules hold
it against; questions that are alike in that get the same answer, which the definition gives once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from selector.domains import Domain, Value
from selector.manifest import Manifest
from selector.paths import Path, decode_path, decode_thresholds, phase_of, prefill_path, the_only
from selector.plan.memo import remember
from selector.plan.shape import Reading, Shape
from selector.plan.terms import UndecidedError, relation_name, tests_after
from selector.rules import Answer, Question
from selector.values import Layer, Phase, Policy, Request, Resolution

__all__ = ["Dense", "Pick", "Tail", "Used"]

_MOST = 1 << 16
"""So many answers are kept; then a pair begins anew."""

Values = Mapping[str, Value | Domain]
Used = tuple[tuple[str, Value], ...]
"""Fields, and what a backend makes of them."""

Dense = Callable[[Shape, Layer, Request, Used], str | None]
"""Gives the prefill backend of a layer, were it not sparse and its values the ones used."""


class Pick(msgspec.Struct, frozen=True):
    """The plain choice for a request: a resolution without its reasons.

    Attributes:
        prefill: the backend that runs prefill, or ``None`` when nothing fits.
        decode: the backend that runs decode, or ``None``.
        phase: what the request counts as; ``None`` where that is unknown.
        path: how its prefill is computed; ``None`` where that is unknown.
        by: the backend that computes a dense path of a sparse layer, where that is another one.
        decode_threshold: the longest query that counts as a decode, in tokens.
    """

    prefill: str | None
    decode: str | None
    phase: Phase | None = None
    path: str | None = None
    by: str | None = None
    decode_threshold: int | None = None

    @classmethod
    def of(cls, answer: Resolution) -> Pick:
        """The plain choice of a resolution."""
        prefill, decode = answer.prefill, answer.decode
        return cls(
            prefill.backend,
            decode.backend,
            answer.phase,
            prefill.path,
            prefill.by,
            decode.decode_threshold,
        )


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
        self.pair = (prefill, decode)
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
        tables = {name: Signature(found) for name, found in sets.items()}
        self.reading = Reading(shape, tables, tuple)
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
        self._answers: dict[object, Pick] = {}
        self._used: dict[object, Used | None] = {}

    def follow(self, layer: Layer, request: Request, dense: Dense) -> Pick:
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
            longest = threshold if threshold > speculative else 1 + speculative
            parts.append(query_len <= longest)
        for name, signature in reading.given:
            parts.append(signature[fields[name]])
        if reading.computes:
            parts += reading.computed(layer)
        if reading.asked:
            parts += reading.said(layer, request)
        if self._asks_dense:
            used = self._as_run(tuple(parts), layer, request)
            if used is not None:
                parts.append(dense(self.shape, layer, request, used))
        key = tuple(parts)
        found = self._answers.get(key)
        if found is None:
            found = remember(self._answers, key, self._ask(layer, request))
        return found

    def _question(self, values: Values) -> Question:
        words = self.manifest.vocabulary
        known = {name: value for name, value in values.items() if name in words.fields}
        return Question(words, known).derived(self.manifest.derive)

    def _as_run(self, key: object, layer: Layer, request: Request) -> Used | None:
        """What the prefill backend makes of values; ``None``: no path asks for a dense backend."""
        if key not in self._used:
            self._used[key] = self._used_by(layer, request)
        return self._used[key]

    def _used_by(self, layer: Layer, request: Request) -> Used | None:
        assert self.prefill is not None
        values = {**self.shape.values(layer), **self.shape.with_lengths(layer, request)}
        run = self.prefill.coerced(self._question(values)).derived(self.manifest.derive)
        paths = [rule for rule in self.prefill.prefill_paths if rule.by_dense_backend]
        if all(rule.when.answer(run) is Answer.NO for rule in paths):
            return None
        used = [(name, run.known(name)) for name in self.prefill.coerce]
        if any(value is None for _, value in used):
            raise UndecidedError
        return tuple((name, value) for name, value in used if value is not None)

    def _ask(self, layer: Layer, request: Request) -> Pick:
        """Asks the definition."""
        values = {**self.shape.values(layer), **self.shape.with_lengths(layer, request)}
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
        return Pick(*self.pair, phase, path.path, path.by, the_only(thresholds))
