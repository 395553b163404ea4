"""A manifest compiled: which backends run a request, in microseconds.

The definition is :mod:`selector.resolve`. A plan gives the same answers faster, without reasons and
for callers without a policy; where something unknown decides it asks the definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from selector.asking import check_facts
from selector.binding import Selector
from selector.domains import Domain, Value
from selector.manifest import Manifest
from selector.plan.agreeing import agreement
from selector.plan.cells import Cells
from selector.plan.computed import Need, Relation
from selector.plan.kind import Kind, Pair, narrowed
from selector.plan.memo import remember
from selector.plan.shape import Reading, Said, Shape
from selector.plan.tail import Pick, Run, Tail
from selector.plan.terms import KIND_FIELDS, Rules, UndecidedError, rules_of
from selector.stored import fetch, keep, key_of
from selector.values import Device, Facts, Layer, Request

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Pick", "Plan"]

Values = Mapping[str, Value | Domain]

_MOST_BOUND = 1 << 10
_MOST_KINDS = 1 << 10
_MOST_SHAPES = 1 << 12
_MOST_TAILS = 1 << 6


class _Route(NamedTuple):
    """How layers of one shape and one kind are looked up."""

    kind: Kind
    reading: Reading

    @classmethod
    def of(cls, shape: Shape, kind: Kind, used: Values = MappingProxyType({})) -> _Route:
        """The route of layers; ``used``: values that stand for their own."""
        mask = kind.everything
        for name, value in used.items():
            if name in kind.tables:
                mask &= kind.tables[name][value]
        left = {name: masks for name, masks in kind.tables.items() if name not in used}
        return cls(kind, Reading(shape, left, mask, checks=True))


_Own = tuple[Tail, int]
"""What follows once the backends of a layer are chosen, and what that makes of the layer."""

_Tails = dict[Pair, _Own]
_NO_TAILS: _Tails = {}

_Layer = tuple[Kind, Reading, int, _Own | None, _Tails]
"""What is the same for all requests of a layer: how it is looked up, its masks, and what follows;
``None``: its backends depend on the request, and what follows is kept for each pair."""


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
        fields = {*words.fields, *self.rules.relations, *self.rules.requirements}
        self._certain = msgspec.structs.replace(self.rules, strict=frozenset(fields))
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
        key = (id(layer), id(device), id(facts), request, closed_world)
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
                return self._fast(device, layer, facts, request, closed_world)
            except UndecidedError:
                pass
        cells = self._cells(device, layer, facts, closed_world)
        return cells.resolve(request.query_len, request.seq_len, request.speculative_tokens)

    def _fast(
        self, device: Device, layer: Layer, facts: Facts, request: Request, closed_world: bool
    ) -> Pick:
        """The plain choice.

        Raises:
            UndecidedError: something unknown decides, or no such layer can exist.
        """
        fields = layer.fields
        known = self._shapes.get((id(device), id(facts), closed_world, *fields))
        shape = known[0] if known else self._shape(device, layer, facts, closed_world)
        said = tuple(fields.values())
        alike = (said, request.speculative_tokens)
        asked: _Layer = shape.layers.get(alike) or self._layer(shape, alike, layer)
        kind, reading, mask, tail, tails = asked
        if tail is None:
            pair = self._pair(kind, mask & reading.asked(said, layer, request))
            tail = tails.get(pair) or self._tail(shape, pair, alike, layer, tails)
        rules, own = tail
        return rules.follow(own, said, layer, request, self._dense)

    def _layer(self, shape: Shape, alike: tuple[Said, int], layer: Layer) -> _Layer:
        """What is the same for all requests of a layer with so many draft tokens."""
        said = alike[0]
        kind_of = shape.kind_of(said)
        route: _Route | None = shape.routes.get(kind_of)
        if route is None:
            route = _Route.of(shape, self._kind(shape.values(layer)))
            remember(shape.routes, kind_of, route)
        mask = route.reading.own(said, layer)
        tail, tails = None, _NO_TAILS
        if route.reading.waits:
            tails = {}
        else:
            tail = self._tail(shape, self._pair(route.kind, mask), alike, layer)
        found: _Layer = (route.kind, route.reading, mask, tail, tails)
        remember(shape.layers, alike, found)
        return found

    def _pair(self, kind: Kind, mask: int) -> Pair:
        mask = kind.settled(mask)
        if mask & kind.impossible:
            raise UndecidedError
        return kind.pair(mask, self.agree)

    def _tail(
        self,
        shape: Shape,
        pair: Pair,
        alike: tuple[Said, int],
        layer: Layer,
        known: _Tails | None = None,
    ) -> _Own:
        """The tail of a pair, and what it makes of a layer; kept in ``known``."""
        said, speculative_tokens = alike
        tail = shape.tails.get((pair, speculative_tokens))
        if tail is None:
            tail = Tail(self.manifest, shape, pair, speculative_tokens)
            remember(shape.tails, (pair, speculative_tokens), tail)
        own = (tail, tail.own(said, layer))
        return own if known is None else remember(known, pair, own, _MOST_TAILS)

    def _shape(self, device: Device, layer: Layer, facts: Facts, closed_world: bool) -> Shape:
        check_facts(self.manifest, facts)  # before the memo: 1 is refused, and equal to true
        key = (device, facts, closed_world, *layer.fields)
        shape = self._equal_shapes.get(key)
        if shape is None:
            shape = Shape(
                self.manifest, device, layer, facts, closed_world, self._relations, self._needs
            )
            remember(self._equal_shapes, key, shape, _MOST_SHAPES)
        # what is known by its id is kept, so that the id stays its own
        by_id = (id(device), id(facts), closed_world, *layer.fields)
        remember(self._shapes, by_id, (shape, device, facts), _MOST_SHAPES)
        return shape

    def _kind(self, values: Values, certain: bool = False) -> Kind:
        """The kind of a layer; ``certain``: nothing that some rule looks at may be unknown."""
        said = tuple(map(values.get, KIND_FIELDS))
        kind = self._kinds.get((said, certain))
        if kind is None:
            known = {
                name: value
                for name, value in zip(KIND_FIELDS, said, strict=True)
                if value is not None and not isinstance(value, Domain)
            }
            rules = narrowed(self._certain if certain else self.rules, known)
            kind = Kind(rules, self.manifest.vocabulary.universes)
            remember(self._kinds, (said, certain), kind, _MOST_KINDS)
        return kind

    def _dense(
        self, shape: Shape, said: Said, layer: Layer, request: Request, run: Run
    ) -> str | None:
        """The prefill backend of a layer, were it not sparse and its values the ones used.

        Raises:
            UndecidedError: it depends on something unknown.
        """
        key = shape.kind_of(said)
        route: _Route | None = run.routes.get(key)
        if route is None:
            used = {**dict(run.used), "sparse": False}
            kind = self._kind({**shape.values(layer), **used}, certain=True)
            route = remember(run.routes, key, _Route.of(shape, kind, used))
        mask = route.reading.own(said, layer) & route.reading.asked(said, layer, request)
        mask = route.kind.settled(mask)
        return route.kind.choices(mask).prefill.first(mask)

    def _cells(self, device: Device, layer: Layer, facts: Facts, closed_world: bool) -> Cells:
        """The definition's answers for a layer of which something unknown decides."""
        check_facts(self.manifest, facts)
        key = (device, layer, facts, closed_world)
        cells = self._bound.get(key)
        if cells is None:
            bound = self._selector.bind(device, layer, facts, closed_world=closed_world)
            cells = remember(self._bound, key, Cells(bound), _MOST_BOUND)
        return cells
