"""Layers that say the same fields: where each value that is looked at comes from.

Of such layers most values are the same for all: what nobody says, what the device is, what is
installed. Some are the layer's own words. A few are computed from others; those are computed once
for every combination of what they are computed from. So few values are left to look up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from selector.asking import (
    CHECKED,
    COMPUTED_FROM,
    check_layer,
    lengths_of,
    values_of,
)
from selector.binding import closed_facts
from selector.domains import Domain, Value
from selector.fields import REQUEST_FIELDS
from selector.manifest import Manifest
from selector.plan.computed import Need, Relation
from selector.plan.masks import Masks
from selector.plan.memo import remember
from selector.plan.places import Places, of_lengths
from selector.plan.terms import KIND_FIELDS
from selector.values import Device, Facts, Layer, Request

__all__ = ["Reading", "Said", "Shape", "picker"]

Values = Mapping[str, Value | Domain]
Said = tuple[Value | Domain, ...]
"""What a layer says, in the order of its shape's names."""

Known = tuple[Value | Domain | None, ...]
Holds = Sequence[bool | None]


def _row_of(names: tuple[str, ...], wanted: tuple[str, ...]) -> Callable[[Known], Known]:
    """Gives the wanted ones of values that have these names."""
    first, *others = map(names.index, wanted)
    return itemgetter(first, *others) if others else lambda values: (values[first],)


def picker(names: tuple[str, ...], wanted: Iterable[str]) -> Callable[[Said], object]:
    """Gives the wanted ones of values that have these names: one itself, several as a tuple."""
    places = [names.index(name) for name in wanted]
    return itemgetter(*places) if places else _nothing


def _nothing(_: Said) -> object:
    return None


class Shape:
    """Layers that say the same fields, on one device with the same software.

    Attributes:
        names: the fields, in the order in which the layers say them.
        of_request: fields that requests say, and bounds that follow from those.
        froms: computed field → the fields of the layers that it is computed from.
        checked: those fields that may contradict each other.
        kind_of: gives what tells apart layers of different kinds.
    """

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
        if closed_world:
            facts = closed_facts(manifest, facts)
        self.manifest = manifest
        self.device, self.facts, self.closed_world = device, facts, closed_world
        self.names = tuple(layer.fields)
        self.relations = relations
        lengths = {*REQUEST_FIELDS, *(m.name for m in manifest.measures)}
        self.of_request = lengths | {
            n for n, r in relations.items() if not lengths.isdisjoint(r.names)
        }
        self._direct = self._computed_from()
        self.froms = {
            name: found
            for name in self._direct
            if (found := frozenset(self._said_by(name, {name})))
        }
        self.checked = frozenset(n for name in CHECKED for n in self._said_by(name, set()))
        kinds = {n for name in KIND_FIELDS for n in self._said_by(name, set())}
        self.kind_of = picker(self.names, kinds)
        self.routes: dict[object, Any] = {}
        self.layers: dict[tuple[Said, int], Any] = {}
        self.tails: dict[object, Any] = {}
        met = {name: need.of(facts) for name, need in needs.items()}
        self._met = {name: said for name, said in met.items() if said is not None}
        self._first = self.values(layer)

    def _computed_from(self) -> dict[str, set[str]]:
        """Every field that is computed, and what it looks at."""
        found = {n: set(names) for n, names in COMPUTED_FROM.items() if n not in self.names}
        for name, default in self.manifest.defaults.items():
            if default.field is not None and name not in self.names:
                found.setdefault(name, set()).add(default.field)
        for name, relation in self.relations.items():
            if name not in self.of_request:
                found[name] = {*relation.names}
        return found

    def _said_by(self, name: str, seen: set[str]) -> set[str]:
        """The fields of the layers that a field follows from."""
        if name in self.names:
            return {name}
        found = set()
        for other in self._direct.get(name, ()):
            if other not in seen:
                seen.add(other)
                found |= self._said_by(other, seen)
        return found

    def constant(self, name: str) -> Value | Domain | None:
        """The value of a field that is the same for all; ``None`` for an unknown one."""
        return self._first.get(name)

    def values(self, layer: Layer) -> dict[str, Value | Domain]:
        """Everything that is known of a layer.

        Raises:
            ContradictionError: no such layer can exist.
        """
        values = values_of(self.manifest, self.device, layer, self.facts, self.closed_world)
        values |= self._met
        for name, relation in self.relations.items():
            if name not in self.of_request and (holds := relation.of(values)) is not None:
                values[name] = holds
        return values

    def with_lengths(self, layer: Layer, request: Request) -> dict[str, Value | Domain]:
        """Everything that is known of a layer and a request of which both lengths are known."""
        assert request.query_len is not None
        assert request.seq_len is not None
        values = self.values(layer)
        values |= lengths_of(self.manifest, request.query_len, request.seq_len)
        for name, relation in self.relations.items():
            if name in self.of_request and (holds := relation.of(values)) is not None:
                values[name] = holds
        return values


class Reading:
    """The masks of some fields, as the layers of one shape look values up in them.

    Args:
        shape: of the layers.
        tables: field → its masks.
        everything: all their bits.
        checks: whether sizes that contradict each other are looked for.

    Attributes:
        waits: whether requests say something that is looked at.
    """

    def __init__(
        self, shape: Shape, tables: Mapping[str, Masks], everything: int, checks: bool = False
    ) -> None:
        self.shape = shape
        self._tables = tables
        own = [name for name in tables if name not in shape.of_request]
        names = shape.names
        self._base = everything
        for name in own:
            if name not in names and name not in shape.froms:
                self._base &= tables[name][shape.constant(name)]
        self._everything = everything
        computed = [n for n in own if n in shape.froms]
        groups: dict[frozenset[str], list[str]] = {shape.froms[name]: [] for name in computed}
        if checks and shape.checked:
            groups.setdefault(shape.checked, [])
        wide = [key for key in groups if not any(key < other for other in groups)]
        for name in computed:
            groups[next(key for key in wide if shape.froms[name] <= key)].append(name)
        self._computed: list[tuple[Callable[[Said], object], dict[object, int], list[str]]] = []
        for key in wide:
            groups[key] += [name for name in own if name in key]
            self._computed.append((picker(names, sorted(key)), {}, groups[key]))
        alone = [n for n in own if n in names and not any(n in key for key in wide)]
        self._given = tuple((names.index(name), tables[name]) for name in alone)
        self._asked = [name for name in tables if name in shape.of_request]
        lengths = {name: tables[name] for name in self._asked}
        self._at = _At(shape, lengths) if lengths else None
        self.waits = self._at is not None
        self._lengths: dict[int, int] = {}

    def own(self, said: Said, layer: Layer) -> int:
        """The masks of all fields but those that a request says, joined.

        Args:
            said: the layer's words.
            layer: of this shape.

        Raises:
            UndecidedError: something unknown decides which rule is the first to hold.
            ContradictionError: no such layer can exist.
        """
        mask = self._base
        for place, masks in self._given:
            mask &= masks[said[place]]
        for pick, known, names in self._computed:
            key = pick(said)
            found = known.get(key)
            if found is None:
                found = remember(known, key, self._join(names, self.shape.values(layer)))
            mask &= found
        return mask

    def asked(self, said: Said, layer: Layer, request: Request) -> int:
        """The masks of the fields that a request says, joined.

        Args:
            said: the layer's words.
            layer: of this shape.
            request: both its lengths are known.

        Raises:
            UndecidedError: something unknown decides which rule is the first to hold.
        """
        if self._at is None:
            return self._everything
        at, holds = self._at.of(said, layer, request)
        found = self._lengths.get(at)
        if found is None:
            values = self._at.values(request, holds)
            found = remember(self._lengths, at, self._join(self._asked, values))
        return found

    def _join(self, names: Iterable[str], values: Values) -> int:
        mask = self._everything
        for name in names:
            mask &= self._tables[name][values.get(name)]
        return mask


class _At:
    """Where requests lie among the sets that masks hold lengths against.

    Args:
        shape: of the layers.
        tables: field that a request says → its masks.
    """

    def __init__(self, shape: Shape, tables: Mapping[str, Masks]) -> None:
        self.shape = shape
        sets = {
            name: [*masks.sets] for name, masks in tables.items() if name not in shape.relations
        }
        self._places = Places(shape.manifest, of_lengths(sets))
        bounds = {name: shape.relations[name] for name in tables if name in shape.relations}
        names = (*shape.names, "query_len", "seq_len")
        others = {n for one in bounds.values() for n in one.names if n not in names}
        self._follows = not others.isdisjoint({*shape.of_request, *shape.froms})
        self._constants = tuple(map(shape.constant, others))
        names += (*others,)
        self._bounds = tuple(bounds)
        self._relations = [(one, _row_of(names, one.names)) for one in bounds.values()]

    def of(self, said: Said, layer: Layer, request: Request) -> tuple[int, Holds]:
        """Where a request lies of which both lengths are known, and which bounds hold.

        The number is the same for requests that the masks do not tell apart.
        """
        query_len, seq_len = request.query_len, request.seq_len
        assert query_len is not None
        assert seq_len is not None
        place = self._places.place(query_len, seq_len)
        if not self._relations:
            return place, ()
        if self._follows:
            values = self.shape.with_lengths(layer, request)
            holds = [one.of(values) for one, _ in self._relations]
        else:
            known = (*said, query_len, seq_len, *self._constants)
            holds = [one.holds(row_of(known)) for one, row_of in self._relations]
        for answer in holds:
            place = place * 3 + (2 if answer is None else answer)
        return place, holds

    def values(self, request: Request, holds: Holds) -> Values:
        """What a request says, and which bounds hold."""
        assert request.query_len is not None
        assert request.seq_len is not None
        values = lengths_of(self.shape.manifest, request.query_len, request.seq_len)
        answers = zip(self._bounds, holds, strict=True)
        return values | {name: answer for name, answer in answers if answer is not None}
