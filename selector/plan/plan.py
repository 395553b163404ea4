"""A manifest compiled: which backends run a request, in microseconds; reasons on demand.

The definition is :mod:`selector.resolve`. A plan gives the same answers faster, and asks the
definition where something unknown decides, where a policy is given, and for reasons.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from selector.asking import ask, check_facts, check_space
from selector.domains import Domain, Value
from selector.manifest import Manifest
from selector.plan.computed import Need, Relation
from selector.plan.kind import Kind, Options, narrowed
from selector.plan.shape import Reading, Shape
from selector.plan.tail import Tail
from selector.plan.terms import KIND_FIELDS, UndecidedError, rules_of
from selector.resolve import resolve
from selector.values import Device, Facts, Layer, Phase, Policy, Request, Resolution

__all__ = ["Pick", "Plan"]

Values = Mapping[str, Value | Domain]

_FREE = Policy()
_OF_LAYER = ("mla", "sparse", "attn_type")


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


class _Route:
    """The layers of one shape and one kind: which fields are left to look up."""

    def __init__(self, shape: Shape, kind: Kind) -> None:
        self.kind = kind
        self.reading = Reading(shape, kind.tables)
        self.base = kind.everything
        for mask in self.reading.constant:
            self.base &= mask


class Plan:
    """A manifest compiled. What it keeps grows with what it is asked; answers never change."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.rules = rules_of(manifest)
        words = manifest.vocabulary
        self._relations = {n: Relation(words, t) for n, t in self.rules.relations.items()}
        self._needs = {n: Need(r) for n, r in self.rules.requirements.items()}
        self._kinds: dict[tuple[object, ...], Kind] = {}
        self._shapes: dict[tuple[object, ...], Shape] = {}
        self._routes: dict[tuple[object, ...], _Route | None] = {}
        self._tails: dict[tuple[object, ...], Tail] = {}
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
        if request.query_len is not None and request.seq_len is not None:
            try:
                pick = self._fast(device, layer, facts, request, closed_world)
            except UndecidedError:
                pick = None
            if pick is not None:
                return pick
        return Pick.of(self._defined(device, layer, facts, request, closed_world))

    def _fast(
        self, device: Device, layer: Layer, facts: Facts, request: Request, closed_world: bool
    ) -> Pick | None:
        """The plain choice; ``None``: only the definition knows."""
        shape = self._shape(device, layer, facts, closed_world)
        route = self._route(shape, layer)
        reading, fields, kind = route.reading, layer.fields, route.kind
        mask = route.base
        for name, masks in reading.given:
            mask &= masks[fields[name]]
        if reading.computes:
            for found in reading.computed(layer):
                mask &= found
        if reading.asked:
            values = shape.with_lengths(shape.values(layer) if self._relations else {}, request)
            for name, masks in reading.asked:
                mask &= masks[values.get(name)]
        mask = kind.settled(mask)
        if mask & kind.impossible:
            return None  # it is refused, with words
        pair = self._pair(kind, mask)
        if pair is None:
            return None
        prefill, decode = pair
        tail = self._tails.get((shape, *pair))
        if tail is None:
            tail = self._tails[shape, prefill, decode] = Tail(self.manifest, shape, prefill, decode)
        followed = tail.follow(layer, request, self._dense)
        pick = self._picks.get((prefill, decode, followed))
        if pick is None:
            pick = self._picks[prefill, decode, followed] = Pick(prefill, decode, *followed)
        return pick

    def _shape(self, device: Device, layer: Layer, facts: Facts, closed_world: bool) -> Shape:
        key = (device, facts, closed_world, *layer.fields)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = Shape(
                self.manifest, device, layer, facts, closed_world, self._relations, self._needs
            )
        return shape

    def _route(self, shape: Shape, layer: Layer) -> _Route:
        fields = layer.fields
        said = tuple(map(fields.get, _OF_LAYER))
        if not shape.kind_inputs:
            key: tuple[object, ...] = (shape, said)
        else:
            key = (shape, said, *map(fields.get, shape.kind_inputs))
        route = self._routes.get(key)
        if route is None:
            kind = self._kind(shape.values(layer))
            route = self._routes[key] = _Route(shape, kind)
        return route

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

    def _pair(self, kind: Kind, mask: int) -> tuple[str | None, str | None] | None:
        """The backends of prefill and decode; ``None``: only the definition knows."""
        options = kind.options(mask)
        for decode in options.decode:
            for prefill in options.prefill:
                agree = self._agree(options, prefill, decode)
                if agree is None:
                    return None
                if agree:
                    return prefill, decode
        if options.decode:
            return None, options.decode[0]
        return (options.prefill[0] if options.prefill else None), None

    def _agree(self, options: Options, prefill: str, decode: str) -> bool | None:
        """Whether two backends can share a KV cache; ``None``: only the definition knows."""
        if prefill == decode or not options.shared:
            return True
        here, there = self.manifest.entries[prefill], self.manifest.entries[decode]
        for shared in options.shared:
            if shared == "backend":
                return False
            if shared == "kv_layout":
                if here.kv_layout and there.kv_layout:
                    if here.kv_layout.isdisjoint(there.kv_layout):
                        return False
            elif shared in here.coerce or shared in there.coerce:
                return None
        return True

    def _dense(self, shape: Shape, values: Values) -> str | None:
        """The prefill backend of the same layer, were it not sparse."""
        dense = {**values, "sparse": False}
        kind = self._kind(dense)
        mask = kind.everything
        for name, masks in kind.tables.items():
            mask &= masks[dense.get(name)]
        return next(iter(kind.options(kind.settled(mask)).prefill), None)

    def _defined(
        self, device: Device, layer: Layer, facts: Facts, request: Request, closed_world: bool
    ) -> Resolution:
        check_facts(self.manifest, facts)
        question = ask(self.manifest, device, layer, facts, closed_world)
        check_space(self.manifest, question)
        return resolve(self.manifest, device, question, facts, request, _FREE)
