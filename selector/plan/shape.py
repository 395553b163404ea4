"""Layers that say the same fields: where each value that is looked at comes from.

Of such layers most values are the same for all: what nobody says, what the device is, what is
installed. Some are the layer's own words. A few are computed from others; those are computed once
for every combination of what they are computed from. So few values are left to look up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, TypeVar

from selector.asking import COMPUTED, COMPUTED_FROM, check_facts, check_layer, lengths_of, values_of
from selector.domains import Domain, Value
from selector.fields import REQUEST_FIELDS
from selector.manifest import Manifest
from selector.plan.computed import Need, Relation
from selector.plan.memo import remember
from selector.plan.terms import KIND_FIELDS
from selector.values import Device, Facts, Layer, Request

__all__ = ["Reading", "Shape"]

Values = Mapping[str, Value | Domain]

T = TypeVar("T")


class Table(Protocol):
    """Value → what is found for it; ``None`` stands for an unknown value."""

    def __getitem__(self, value: Value | Domain | None, /) -> int: ...


class Shape:
    """Layers that say the same fields, on one device with the same software."""

    def __init__(
        self,
        manifest: Manifest,
        device: Device,
        layer: Layer,
        facts: Facts,
        closed_world: bool,
        relations: Mapping[str, Relation],
        needs: Mapping[str, Need],
    ) -> None:
        check_layer(manifest, layer)
        check_facts(manifest, facts)
        self.manifest = manifest
        self.device, self.facts, self.closed_world = device, facts, closed_world
        self.names = frozenset(layer.fields)
        self.relations = relations
        lengths = {*REQUEST_FIELDS, *(m.name for m in manifest.measures)}
        self.of_request = lengths | {
            n for n, r in relations.items() if not lengths.isdisjoint(r.names)
        }
        self._asked_relations = [n for n in relations if n in self.of_request]
        follows = {n for n in COMPUTED if n not in self.names}
        froms = {*COMPUTED_FROM}
        for name, default in manifest.defaults.items():
            if default.field is not None and name not in self.names:
                follows.add(name)
                froms.add(default.field)
        for name, relation in relations.items():
            if name not in self.of_request:
                follows.add(name)
                froms.update(relation.names)
        self.computed = frozenset(follows)
        self.inputs = tuple(name for name in layer.fields if name in froms)
        asked_of = {n for name in self._asked_relations for n in relations[name].names}
        computes = not asked_of.isdisjoint(follows)
        self.asked_inputs = tuple(
            name for name in layer.fields if name in asked_of or (computes and name in froms)
        )
        said = tuple(n for n in KIND_FIELDS if n in self.names)
        self.kind_inputs = said if self.computed.isdisjoint(KIND_FIELDS) else (*said, *self.inputs)
        self.routes: dict[tuple[object, ...], Any] = {}
        self.tails: dict[tuple[str | None, str | None], Any] = {}
        met = {name: need.of(facts) for name, need in needs.items()}
        self._met = {name: said for name, said in met.items() if said is not None}
        self._first = self.values(layer)

    def constant(self, name: str) -> Value | Domain | None:
        """The value of a field that is the same for all; ``None`` for an unknown one."""
        return self._first.get(name)

    def values(self, layer: Layer) -> dict[str, Value | Domain]:
        """Everything that is known of a layer."""
        values = values_of(self.manifest, self.device, layer, self.facts, self.closed_world)
        values |= self._met
        for name, relation in self.relations.items():
            if name not in self.of_request and (holds := relation.of(values)) is not None:
                values[name] = holds
        return values

    def with_lengths(self, layer: Layer, request: Request) -> dict[str, Value | Domain]:
        """What a request says of which both lengths are known, alone or beside the layer."""
        assert request.query_len is not None
        assert request.seq_len is not None
        found = lengths_of(self.manifest, request.query_len, request.seq_len)
        for name in self._asked_relations:
            relation = self.relations[name]
            known = {n: v for n in relation.names if (v := self._own(n, layer)) is not None}
            if (holds := relation.of({**known, **found})) is not None:
                found[name] = holds
        return found

    def _own(self, name: str, layer: Layer) -> Value | Domain | None:
        if name in self.computed:
            return self.values(layer).get(name)
        return layer.fields.get(name, self._first.get(name))


class Reading(Generic[T]):
    """Tables of some fields, as the layers of one shape look values up in them.

    Args:
        shape: of the layers.
        tables: field → its table.
        join: makes one thing of what is found for several fields; that is kept.

    Attributes:
        constant: what is found for fields that are the same for all.
        given: fields that layers say, and their tables.
        asked: fields that a request says, and theirs.
    """

    def __init__(
        self, shape: Shape, tables: Mapping[str, Table], join: Callable[[Iterable[int]], T]
    ) -> None:
        own = {name: table for name, table in tables.items() if name not in shape.of_request}
        self.shape = shape
        self.given = tuple((n, t) for n, t in own.items() if n in shape.names)
        self.asked = tuple((n, t) for n, t in tables.items() if n in shape.of_request)
        self._computed = tuple((n, t) for n, t in own.items() if n in shape.computed)
        self.computes = bool(self._computed)
        others = [n for n in own if n not in shape.names and n not in shape.computed]
        self.constant = tuple(own[name][shape.constant(name)] for name in others)
        self._join = join
        self._memo: dict[tuple[Value | Domain | None, ...], T] = {}
        self._said: dict[tuple[Value | Domain | None, ...], T] = {}

    def said(self, layer: Layer, request: Request) -> T:
        """What is found for fields that a request says."""
        inputs = self.shape.asked_inputs
        key = (request.query_len, request.seq_len, *map(layer.fields.get, inputs))
        found = self._said.get(key)
        if found is None:
            values = self.shape.with_lengths(layer, request)
            joined = self._join(table[values.get(name)] for name, table in self.asked)
            found = remember(self._said, key, joined)
        return found

    def computed(self, layer: Layer) -> T:
        """What is found for fields that follow from what a layer says."""
        key = tuple(map(layer.fields.get, self.shape.inputs))
        found = self._memo.get(key)
        if found is None:
            values = self.shape.values(layer)
            joined = self._join(table[values.get(name)] for name, table in self._computed)
            found = remember(self._memo, key, joined)
        return found
