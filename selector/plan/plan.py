"""A manifest compiled: which backends run a request, in microseconds; reasons on demand.

The definition is :mod:`selector.resolve`. A plan gives the same answers faster, and asks the
definition where something unknown decides, where a policy is given, and for reasons.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from selector.asking import ask, check_facts, check_layer, check_space, lengths_of, values_of
from selector.domains import Domain, Value
from selector.manifest import Manifest
from selector.plan.computed import Need, Relation
from selector.plan.kind import KIND_FIELDS, Kind, Options, UndecidedError, narrowed
from selector.plan.tail import Tail
from selector.plan.terms import rules_of
from selector.resolve import resolve
from selector.values import Device, Facts, Layer, Phase, Policy, Request, Resolution

__all__ = ["Pick", "Plan"]

Values = Mapping[str, Value | Domain]

_FREE = Policy()


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


class Plan:
    """A manifest compiled. What it knows grows with what it is asked; answers never change."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.rules = rules_of(manifest)
        words = manifest.vocabulary
        self._relations = {n: Relation(words, t) for n, t in self.rules.relations.items()}
        self._needs = {n: Need(r) for n, r in self.rules.requirements.items()}
        self._kinds: dict[tuple[object, ...], Kind] = {}
        self._tails: dict[tuple[str | None, str | None], Tail] = {}
        self._picks: dict[tuple[str | None, str | None, object], Pick] = {}

    def resolve(
        self,
        device: Device,
        layer: Layer,
        facts: Facts,
        request: Request,
        *,
        closed_world: bool = False,
    ) -> Pick:
        """The plain choice for a request.

        Args:
            device: where it runs.
            layer: what the model needs, for one tensor-parallel rank.
            facts: what is installed.
            request: the lengths.
            closed_world: take what is unknown not to be there.

        Raises:
            ContradictionError: no such layer can exist.
            ValueRefusedError: a fact is no version, or the layer says what something else says.
        """
        pick = self._fast(device, layer, facts, request, closed_world)
        return pick or Pick.of(self._defined(device, layer, facts, request, closed_world))

    def _fast(
        self, device: Device, layer: Layer, facts: Facts, request: Request, closed_world: bool
    ) -> Pick | None:
        """The plain choice; ``None``: only the definition knows."""
        query_len, seq_len = request.query_len, request.seq_len
        if query_len is None or seq_len is None:
            return None
        check_layer(self.manifest, layer)
        values = values_of(self.manifest, device, layer, facts, closed_world)
        values |= lengths_of(self.manifest, query_len, seq_len)
        for name, relation in self._relations.items():
            holds = relation.of(values)
            if holds is not None:
                values[name] = holds
        for name, need in self._needs.items():
            met = need.of(facts)
            if met is not None:
                values[name] = met
        try:
            pair = self._pair(values)
            if pair is None:
                return None
            prefill, decode = pair
            tail = self._tails.get(pair)
            if tail is None:
                tail = self._tails[pair] = Tail(self.manifest, prefill, decode)
            followed = tail.follow(values, facts, request, self._dense)
        except UndecidedError:
            return None
        if followed is None:
            return None
        key = (prefill, decode, followed)
        pick = self._picks.get(key)
        if pick is None:
            pick = self._picks[key] = Pick(prefill, decode, *followed)
        return pick

    def _kind(self, values: Values) -> Kind:
        key = tuple(map(values.get, KIND_FIELDS))
        kind = self._kinds.get(key)
        if kind is None:
            known = {
                name: value
                for name, value in zip(KIND_FIELDS, key, strict=True)
                if value is not None and not isinstance(value, Domain)
            }
            rules = narrowed(self.rules, known)
            kind = self._kinds[key] = Kind(rules, self.manifest.vocabulary.universes)
        return kind

    def _pair(self, values: Values) -> tuple[str | None, str | None] | None:
        """The backends of prefill and decode; ``None``: only the definition knows."""
        kind = self._kind(values)
        mask = kind.joined(values)
        if mask & kind.impossible:
            return None  # it is refused, with words
        options = kind.options(mask)
        for decode in options.decode:
            for prefill in options.prefill:
                agree = self._agree(options, prefill, decode)
                if agree is None:
                    return None
                if agree:
                    return prefill, decode
        decode = next(iter(options.decode), None)
        return (next(iter(options.prefill), None) if decode is None else None), decode

    def _agree(self, options: Options, prefill: str, decode: str) -> bool | None:
        """Whether two backends can share a KV cache; ``None``: only the definition knows."""
        if prefill == decode:
            return True
        here, there = self.manifest.entries[prefill], self.manifest.entries[decode]
        for shared in options.shared:
            if shared == "backend":
                return False
            if shared == "kv_layout":
                if here.kv_layout and there.kv_layout and here.kv_layout.isdisjoint(there.kv_layout):
                    return False
            elif shared in here.coerce or shared in there.coerce:
                return None
        return True

    def _dense(self, values: Values) -> str | None:
        """The prefill backend of the same layer, were it not sparse."""
        dense = {**values, "sparse": False}
        kind = self._kind(dense)
        return next(iter(kind.options(kind.joined(dense)).prefill), None)

    def _defined(
        self, device: Device, layer: Layer, facts: Facts, request: Request, closed_world: bool
    ) -> Resolution:
        check_facts(self.manifest, facts)
        question = ask(self.manifest, device, layer, facts, closed_world)
        check_space(self.manifest, question)
        return resolve(self.manifest, device, question, facts, request, _FREE)
