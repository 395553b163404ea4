"""Every question that manifests can tell apart: the fields they look at, in classes of values.

A class holds the values of one field that no rule tells apart, so that one of them stands for
all. Counts are counts of combinations of classes, never of single values, of which some fields
have no end. Devices are the known architectures and the platforms without a capability.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

import msgspec

from selector.devices import known_capabilities
from selector.domains import Domain, Value
from selector.fields import ABSENT, parse_capability
from selector.manifest import Manifest
from selector.plan.kind import Kind, narrowed
from selector.plan.terms import KIND_FIELDS, Rules, rules_of

__all__ = ["KindOf", "Space", "classes_of", "representative"]

_DEVICE = ("platform", "capability")
_EITHER = Domain.of(True, False)


class KindOf(msgspec.Struct, frozen=True):
    """Questions with the same device and kind of layer.

    Attributes:
        classes: field → the class of its values, for each of the kind's fields.
        kinds: what each manifest's rules come to for them.
    """

    classes: Mapping[str, Domain]
    kinds: tuple[Kind, ...]


class Space:
    """The questions to one manifest, or to several at once."""

    def __init__(self, manifests: Sequence[Manifest]) -> None:
        self.manifests = tuple(manifests)
        self.rules = tuple(rules_of(manifest) for manifest in manifests)
        sets: dict[str, list[Domain]] = {}
        for rules in self.rules:
            for name, values in _sets(rules):
                sets.setdefault(name, []).append(values)
        derived = {name for rules in self.rules for name in rules.derive}
        self.classes = {
            name: classes_of(self._universe(name), found)
            for name, found in sets.items()
            if name not in derived
        }
        for name in KIND_FIELDS:
            self.classes.setdefault(name, (self._universe(name),))

    def _universe(self, name: str) -> Domain:
        if name == "capability":
            known = (parse_capability(text) for text in known_capabilities())
            return Domain.of(*known, ABSENT)
        for manifest in self.manifests:
            if name in manifest.vocabulary.universes:
                return manifest.vocabulary.universes[name]
        return _EITHER  # a relation or a requirement

    @property
    def size(self) -> int:
        """How many combinations of classes there are, those that cannot be included."""
        others = (len(c) for name, c in self.classes.items() if name not in _DEVICE)
        return len(self.devices) * prod(others)

    @property
    def devices(self) -> tuple[tuple[Domain, Domain], ...]:
        """The classes of platform and capability that go together."""
        absent = Domain.of(ABSENT)
        cuda = Domain.of("cuda")
        return tuple(
            (platform, capability)
            for platform, capability in product(*(self.classes[name] for name in _DEVICE))
            for has in (not (platform & cuda).is_empty(),)
            if (has and not (capability - absent).is_empty())
            or (not (platform - cuda).is_empty() and not (capability & absent).is_empty())
        )

    def kinds(self, known: Mapping[str, Domain] = {}) -> Iterator[KindOf]:
        """Yields every kind of question; of fields that are known, only those that can be."""
        others = [self.classes[name] for name in KIND_FIELDS[2:]]
        for device in self.devices:
            for combination in product([device], *others):
                classes = dict(zip(KIND_FIELDS, (*device, *combination[1:]), strict=True))
                if any((values & known[n]).is_empty() for n, values in classes.items() if n in known):
                    continue
                values = {name: representative(found) for name, found in classes.items()}
                yield KindOf(classes, tuple(self._kind(i, values) for i in range(len(self.rules))))

    def _kind(self, index: int, values: Mapping[str, Value]) -> Kind:
        universes = self.manifests[index].vocabulary.universes
        return Kind(narrowed(self.rules[index], values), universes)


def _sets(rules: Rules) -> Iterator[tuple[str, Domain]]:
    """Yields every set that a field is held against."""
    for slot in rules.slots:
        yield from slot.alone
        for term in slot.terms:
            yield from term.items()
    firsts = (*rules.lists.values(), *rules.derive.values(), rules.joint)
    for term in (*(term for first in firsts for term, _ in first), *rules.impossible):
        yield from term.items()


def classes_of(universe: Domain, sets: Sequence[Domain]) -> tuple[Domain, ...]:
    """The coarsest partition of a universe that every set is a union of."""
    parts = [universe]
    for values in dict.fromkeys(sets):
        split = []
        for part in parts:
            inside = part & values
            if inside.is_empty():
                split.append(part)
                continue
            outside = part - values
            split += [inside] if outside.is_empty() else [inside, outside]
        parts = split
    return tuple(parts)


def representative(values: Domain) -> Value:
    """A member of a class: the smallest number of at least 1, else the first name."""
    number = values.nearest(1)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    if values.all_names_but:
        name = "other"
        while name in values.names:
            name += "_"
        return name
    return min(values.names, key=str)
