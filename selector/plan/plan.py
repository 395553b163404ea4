"""A manifest compiled: which backends run a request, in microseconds; reasons on demand.

The definition is :mod:`selector.resolve`. A plan gives the same answers faster, and asks the
definition where something unknown decides, where a policy is given, and for reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from operator import and_
from types import MappingProxyType
from typing import TYPE_CHECKING

from selector.binding import Selector
from selector.domains import Domain, Value
from selector.manifest import Manifest
from selector.plan.agreeing import agreement
from selector.plan.cells import Cells
from selector.plan.computed import Need, Relation
from selector.plan.kind import Kind, narrowed
from selector.plan.memo import remember
from selector.plan.shape import Reading, Shape
from selector.plan.tail import Pick, Tail, Used
from selector.plan.terms import KIND_FIELDS, Rules, UndecidedError, rules_of
from selector.stored import fetch, keep, key_of
from selector.values import Device, Facts, Layer, Request

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Pick", "Plan"]

Values = Mapping[str, Value | Domain]

_MOST_BOUND = 1 << 10


class _Route:
    """The layers of one shape and one kind: which fields are left to look up."""

    def __init__(self, shape: Shape, kind: Kind, used: Values = MappingProxyType({})) -> None:
        self.kind = kind
        left = {name: masks for name, masks in kind.tables.items() if name not in used}
        self.reading = Reading(shape, left, partial(reduce, and_))
        self.base = kind.everything
        for mask in self.reading.constant:
            self.base &= mask
        for name, value in used.items():
            if name in kind.tables:
                self.base &= kind.tables[name][value]

    def mask(self, layer: Layer, request: Request) -> int:
        """The settled mask of a layer and a request.

        Raises:
            UndecidedError: something unknown decides which rule is the first to hold.
        """
        mask, reading, fields = self.base, self.reading, layer.fields
        for name, masks in reading.given:
            mask &= masks[fields[name]]
        if reading.computes:
            mask &= reading.computed(layer)
        if reading.asked:
            mask &= reading.said(layer, request)
        return self.kind.settled(mask)


class Plan:
    """A manifest compiled. What it keeps grows with what it is asked; answers never change.

    Attributes:
        manifest: what was compiled.
        rules: its rules as terms.
        agree: whether two backends can work on one KV cache.
    """

    def __init__(self, manifest: Manifest, rules: Rules | None = None) -> None:
        self.manifest = manifest
        self.rules = rules_of(manifest) if rules is None else rules
        words = manifest.vocabulary
        self._relations = {n: Relation(words, t) for n, t in self.rules.relations.items()}
        self._needs = {n: Need(r) for n, r in self.rules.requirements.items()}
        self.agree = agreement(manifest)
        self._kinds: dict[tuple[object, ...], Kind] = {}
        self._shapes: dict[tuple[object, ...], tuple[Shape, Device, Facts]] = {}
        self._seen: dict[tuple[object, ...], tuple[Pick, Device, Layer, Facts]] = {}
        self._selector = Selector(manifest)
        self._bound: dict[tuple[object, ...], Cells] = {}
        self._equal_shapes: dict[tuple[object, ...], Shape] = {}

    @classmethod
    def load(
        cls,
        path: str | Path | None = None,
        *,
        overlays: Sequence[str | Path] = (),
        as_claimed: bool = False,
    ) -> Plan:
        """A plan for a manifest, as :meth:`selector.Selector.load` finds it; kept on disk.

        Raises:
            ManifestError: the manifest has errors; all are listed.
            OSError: the file cannot be opened.
            TooManyTermsError: a rule is too much to write out.
        """
        manifest = Selector.load(path, overlays=overlays, as_claimed=as_claimed).manifest
        key = key_of([(manifest.ref.digest, b"")])
        rules = fetch(key, Rules)
        if rules is None:
            rules = rules_of(manifest)
            keep(key, rules)
        return cls(manifest, rules)

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
        # what is known by its id is kept beside the answer, so that the id stays its own
        query_len, seq_len = request.query_len, request.seq_len
        speculative = request.speculative_tokens
        key = (id(layer), query_len, seq_len, id(device), id(facts), speculative, closed_world)
        seen = self._seen.get(key)
        if seen is not None:
            return seen[0]
        pick = self._new(device, layer, facts, request, closed_world)
        remember(self._seen, key, (pick, device, layer, facts))
        return pick

    def _new(
        self, device: Device, layer: Layer, facts: Facts, request: Request, closed_world: bool
    ) -> Pick:
        """The plain choice for a request that was not seen before."""
        if request.query_len is not None and request.seq_len is not None:
            try:
                pick = self._fast(device, layer, facts, request, closed_world)
            except UndecidedError:
                pick = None
            if pick is not None:
                return pick
        cells = self._cells(device, layer, facts, closed_world)
        return cells.resolve(request.query_len, request.seq_len, request.speculative_tokens)

    def _fast(
        self, device: Device, layer: Layer, facts: Facts, request: Request, closed_world: bool
    ) -> Pick | None:
        """The plain choice; ``None``: it is refused, and the definition says why.

        Raises:
            UndecidedError: something unknown decides.
        """
        fields = layer.fields
        known = self._shapes.get((id(device), id(facts), closed_world, *fields))
        shape = known[0] if known else self._shape(device, layer, facts, closed_world)
        route = shape.routes.get(tuple(map(fields.get, shape.kind_inputs)))
        if route is None:
            route = self._route(shape, layer)
        kind, mask = route.kind, route.mask(layer, request)
        if mask & kind.impossible:
            return None
        pair = kind.pair(mask, self.agree)
        tail = shape.tails.get(pair)
        if tail is None:
            tail = shape.tails[pair] = Tail(self.manifest, shape, *pair)
        return tail.follow(layer, request, self._dense)

    def _shape(self, device: Device, layer: Layer, facts: Facts, closed_world: bool) -> Shape:
        key = (device, facts, closed_world, *layer.fields)
        shape = self._equal_shapes.get(key)
        if shape is None:
            shape = self._equal_shapes[key] = Shape(
                self.manifest, device, layer, facts, closed_world, self._relations, self._needs
            )
        # what is known by its id is kept, so that the id stays its own
        by_id = (id(device), id(facts), closed_world, *layer.fields)
        remember(self._shapes, by_id, (shape, device, facts))
        return shape

    def _route(self, shape: Shape, layer: Layer) -> _Route:
        route = _Route(shape, self._kind(shape.values(layer)))
        shape.routes[tuple(map(layer.fields.get, shape.kind_inputs))] = route
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

    def _dense(self, shape: Shape, layer: Layer, request: Request, used: Used) -> str | None:
        """The prefill backend of a layer, were it not sparse and its values the ones used."""
        key = (used, *map(layer.fields.get, shape.kind_inputs))
        route = shape.routes.get(key)
        if route is None:
            values = {**dict(used), "sparse": False}
            kind = self._kind({**shape.values(layer), **values})
            route = shape.routes[key] = _Route(shape, kind, values)
        mask = route.mask(layer, request)
        return route.kind.choices(mask).prefill.first(mask)

    def _cells(self, device: Device, layer: Layer, facts: Facts, closed_world: bool) -> Cells:
        """The definition's answers for a layer of which something unknown decides."""
        key = (device, layer, facts, closed_world)
        cells = self._bound.get(key)
        if cells is None:
            bound = self._selector.bind(device, layer, facts, closed_world=closed_world)
            cells = remember(self._bound, key, Cells(bound), _MOST_BOUND)
        return cells
