"""What follows once the backends are chosen: what a request counts as, and the path it takes.

Few fields matter to a chosen pair. Each is looked at through the sets that the pair's rules hold
it against; questions that are alike in that get the same answer, which the definition gives once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from selector.domains import Domain, Value
from selector.manifest import Manifest
from selector.paths import (
    Path,
    decode_path,
    decode_thresholds,
    phase_of,
    prefill_path,
    taken,
    the_only,
)
from selector.plan.masks import EITHER, Masks
from selector.plan.memo import remember
from selector.plan.shape import Reading, Said, Shape, picker
from selector.plan.terms import (
    Term,
    UndecidedError,
    conditions_of_pair,
    derived_behind,
    term_of,
    tests_behind,
    tests_of_pair,
)
from selector.rules import Answer, Question, Test, When
from selector.values import Layer, Phase, Policy, Request, Resolution

__all__ = ["Pick", "Run", "Tail"]

Values = Mapping[str, Value | Domain]
Used = tuple[tuple[str, Value], ...]
"""Fields, and what a backend makes of them."""

Dense = Callable[[Shape, Said, Layer, Request, "Run"], str | None]
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


class Run:
    """What a sparse prefill backend makes of a layer's values, where it asks for a dense one.

    Attributes:
        used: fields, and the values that the backend uses.
        routes: what tells apart kinds of layers → how to look them up.
    """

    def __init__(self, used: Used) -> None:
        self.used = used
        self.routes: dict[object, Any] = {}


_NEW = Run(())


class Tail:
    """The tail of one pair of backends, for layers of one shape.

    Args:
        manifest: states the backends.
        shape: of the layers.
        pair: the backends of prefill and decode.
        speculative_tokens: draft tokens verified with each decode.
    """

    def __init__(
        self,
        manifest: Manifest,
        shape: Shape,
        pair: tuple[str | None, str | None],
        speculative_tokens: int,
    ) -> None:
        self.shape = shape
        self.pair = pair
        self.speculative_tokens = speculative_tokens
        self.prefill, self.decode = (manifest.entries.get(name or "") for name in pair)
        tests = [*tests_of_pair(self.prefill, self.decode)]
        used = derived_behind(manifest, tests)
        derive = {name: rules for name, rules in manifest.derive.items() if name in used}
        self.manifest = msgspec.structs.replace(manifest, derive=derive)
        entries = [entry for entry in (self.prefill, self.decode) if entry is not None]
        moves = {*derive}.union(*(entry.coerce for entry in entries))
        terms = [*self._terms(moves)]
        tests += tests_behind(manifest, tests)
        self._ends_move = any(  # a bound by another field is of values that move
            test.allowed.bounds and not moves.isdisjoint(test.reads) for test in tests
        )
        paths = self.prefill.prefill_paths if self.prefill else ()
        self._asks_dense = any(rule.by_dense_backend for rule in paths)
        kept = self.prefill.coerce if self.prefill and self._asks_dense else ()
        self._kept = picker(shape.names, [name for name in kept if name in shape.names])
        self._longest: dict[int, int] = {}
        self._decodes: dict[int, Pick] = {}
        self._answers: dict[object, Pick] = {}
        self._runs: dict[object, Run | None] = {}
        everything = (1 << len(terms)) - 1
        holding: dict[str, list[tuple[int, Domain]]] = {}
        for place, term in enumerate(terms):
            for name, values in term.items():
                holding.setdefault(name, []).append((1 << place, values))
        universes = manifest.vocabulary.universes
        tables = {
            name: Masks(everything, universes.get(name, EITHER), (), held, strict=True)
            for name, held in holding.items()
        }
        self._reading = Reading(shape, tables, everything)

    def _terms(self, moves: set[str]) -> Iterator[Term]:
        """Yields what tells requests apart: whether each holds says which rules do.

        Args:
            moves: fields whose values are derived or coerced.
        """
        manifest = self.manifest
        moved: list[Test] = []
        for when in conditions_of_pair(self.prefill, self.decode):
            still = [test for test in when.tests if moves.isdisjoint(test.reads)]
            moved += [test for test in when.tests if test not in still]
            term, _ = term_of(manifest, When((*still,)))
            if term:
                yield term
        for test in dict.fromkeys(tests_behind(manifest, moved)):
            term, _ = term_of(manifest, When((test,)))
            if term:
                yield term
        if self.prefill is not None and self.prefill.sparse:
            yield {"dense_prefill": Domain.of(True)}
        for threshold in self.decode.thresholds if self.decode else ():
            longest = max(threshold, 1 + self.speculative_tokens)
            yield {"query_len": Domain.between(None, longest)}

    def own(self, said: Said, layer: Layer) -> int:
        """What tells layers apart: :meth:`follow` wants it.

        Raises:
            UndecidedError: something that is unknown matters.
        """
        if self._ends_move:
            raise UndecidedError
        return self._reading.own(said, layer)

    def follow(self, own: int, said: Said, layer: Layer, request: Request, dense: Dense) -> Pick:
        """What a request counts as, and its path.

        Args:
            own: of the layer, as :meth:`own` gives it.
            said: the layer's words.
            layer: of this shape.
            request: both its lengths are known.
            dense: gives the backend of the same layer, were it not sparse.

        Raises:
            UndecidedError: something that is unknown matters.
        """
        longest = self._longest.get(own)
        if longest is None:
            longest = remember(self._longest, own, self._longest_decode(layer))
        if (request.query_len or 1) <= longest:
            return self._decodes.get(own) or remember(
                self._decodes, own, self._ask(layer, request, None)
            )
        there: str | None = None
        key: object = own & self._reading.asked(said, layer, request)
        if self._asks_dense:
            key = (key, self._kept(said))
            run = self._runs.get(key, _NEW)
            if run is _NEW:
                run = remember(self._runs, key, self._run(layer, request))
            there = None if run is None else dense(self.shape, said, layer, request, run)
            key = (key, there)
        found = self._answers.get(key)
        if found is None:
            found = remember(self._answers, key, self._ask(layer, request, there))
        return found

    def _longest_decode(self, layer: Layer) -> int:
        """The longest query of a layer that counts as a decode; 0: requests may differ in that."""
        return the_only(self._thresholds(self._question(self.shape.values(layer)))) or 0

    def _question(self, values: Values) -> Question:
        words = self.manifest.vocabulary
        known = {name: value for name, value in values.items() if name in words.fields}
        return Question(words, known).derived(self.manifest.derive)

    def _run(self, layer: Layer, request: Request) -> Run | None:
        """What the prefill backend makes of values; ``None``: no path asks for a dense backend."""
        assert self.prefill is not None
        asked = self._question(self.shape.with_lengths(layer, request))
        if phase_of(self._thresholds(asked), request.query_len) is Phase.DECODE:
            return None
        run = self.prefill.coerced(asked).derived(self.manifest.derive)
        paths = [rule for rule in self.prefill.prefill_paths if rule.by_dense_backend]
        if all(taken(self.prefill, rule, run) is Answer.NO for rule in paths):
            return None
        used = [(name, run.known(name)) for name in self.prefill.coerce]
        if any(value is None for _, value in used):
            raise UndecidedError
        return Run(tuple((name, value) for name, value in used if value is not None))

    def _thresholds(self, asked: Question) -> tuple[int, ...]:
        """The longest queries that can count as a decode, in tokens."""
        if self.decode is None:
            return ()
        return decode_thresholds(self.decode, asked, self.speculative_tokens)

    def _ask(self, layer: Layer, request: Request, there: str | None) -> Pick:
        """Asks the definition; ``there``: the backend of a dense path."""
        values = self.shape.with_lengths(layer, request)
        asked = self._question(values)
        thresholds = self._thresholds(asked)
        phase = phase_of(thresholds, request.query_len)
        path = Path()
        if self.prefill is not None and phase is Phase.DECODE and self.decode is not None:
            path = Path(decode_path(self.decode))
        elif self.prefill is not None:
            runs = (Answer.NO if there is None else Answer.YES, there)
            path = prefill_path(
                self.manifest,
                self.prefill,
                asked,
                asked,
                self.shape.facts,
                Policy(),
                lambda _: runs,
            )
        return Pick(*self.pair, phase, path.path, path.by, the_only(thresholds))
