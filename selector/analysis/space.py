"""Every question that manifests can tell apart: the fields they look at, in classes of values.

A class holds the values of one field that no rule tells apart, so that one of them stands for
all. Counts are counts of combinations of classes, never of single values, of which some fields
have no end. Devices are the known architectures, one for each condition that speaks of others
only, and the platforms without a capability.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from math import prod
from operator import and_
from types import MappingProxyType

import msgspec

from selector.devices import known_capabilities
from selector.domains import Domain, Value
from selector.fields import ABSENT, parse_capability
from selector.manifest import Manifest
from selector.plan.computed import Need, Relation
from selector.plan.kind import Kind, narrowed
from selector.plan.terms import KIND_FIELDS, Rules, Term, rules_of, term_of
from selector.rules import Test, When
from selector.values import Facts

__all__ = [
    "KindOf",
    "Space",
    "classes_of",
    "needs_by_fact",
    "representative",
    "sets_in",
    "values_within",
    "versions_about",
]

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
    """The questions to one manifest, or to several at once.

    Args:
        manifests: what is asked.
        whens: conditions that no rule states, and that are to be told apart all the same.
        rules: of each manifest, where they are known.
    """

    def __init__(
        self,
        manifests: Sequence[Manifest],
        whens: Sequence[When] = (),
        rules: Sequence[Rules] | None = None,
    ) -> None:
        self.manifests = tuple(manifests)
        self.rules = (*map(rules_of, manifests),) if rules is None else tuple(rules)
        told = [term_of(self.manifests[0], when) for when in whens]
        self.terms = tuple(term for term, _ in told)
        more = {name: test for _, relations in told for name, test in relations.items()}
        if more:
            self.rules = tuple(
                msgspec.structs.replace(one, relations={**one.relations, **more})
                for one in self.rules
            )
        sets: dict[str, list[Domain]] = {}
        for one in self.rules:
            for name, values in sets_in(one):
                sets.setdefault(name, []).append(values)
        for name, values in (pair for term in self.terms for pair in (term or {}).items()):
            sets.setdefault(name, []).append(values)
        derived = {name for one in self.rules for name in one.derive}
        self.classes = {
            name: classes_of(self.universe(name), found)
            for name, found in sets.items()
            if name not in derived
        }
        for name in KIND_FIELDS:
            self.classes.setdefault(name, (self.universe(name),))
        self.rules = tuple(map(self._consistent, self.rules))

    def universe(self, name: str) -> Domain:
        """The values of a field that all manifests know."""
        if name == "capability":
            known = Domain.of(*map(parse_capability, known_capabilities()))
            told = (term[name] for term in self.terms if term and name in term)
            new = (values.nearest(1) for values in told if (values & known).is_empty())
            return known | Domain.of(ABSENT, *(one for one in new if one is not None))
        words = (manifest.vocabulary.universes for manifest in self.manifests)
        found = [universes[name] for universes in words if name in universes]
        return reduce(and_, found) if found else _EITHER  # a relation or a requirement

    def _consistent(self, rules: Rules) -> Rules:
        """The rules, and that fields which stand for something agree with what they stand for."""
        never = [*self._impossible_relations(rules), *_impossible_versions(rules)]
        return msgspec.structs.replace(rules, impossible=(*rules.impossible, *never))

    def _impossible_relations(self, rules: Rules) -> Iterator[Term]:
        """Yields classes of a field and of its bounds that leave a bound no choice."""
        for name, test in rules.relations.items():
            if name not in self.classes:
                continue
            fields = Relation(self.manifests[0].vocabulary, test).names
            if not all(field in self.classes for field in fields):
                continue  # derived: whatever it is
            for chosen in product(*(self.classes[field] for field in fields)):
                for holds in (True, False):
                    if not can_be(test, dict(zip(fields, chosen, strict=True)), holds):
                        yield {**dict(zip(fields, chosen, strict=True)), name: Domain.of(holds)}

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

    def kinds(self, known: Mapping[str, Domain] = MappingProxyType({})) -> Iterator[KindOf]:
        """Yields every kind of question; of fields that are known, only those that can be."""
        others = [self.classes[name] for name in KIND_FIELDS[2:]]
        for device in self.devices:
            for combination in product(*others):
                classes = dict(zip(KIND_FIELDS, (*device, *combination), strict=True))
                if any(
                    (values & known[n]).is_empty() for n, values in classes.items() if n in known
                ):
                    continue
                values = {name: representative(found) for name, found in classes.items()}
                yield KindOf(classes, tuple(self._kind(i, values) for i in range(len(self.rules))))

    def _kind(self, index: int, values: Mapping[str, Value]) -> Kind:
        universes = self.manifests[index].vocabulary.universes
        return Kind(narrowed(self.rules[index], values), universes)


def can_be(test: Test, classes: Mapping[str, Domain], holds: bool) -> bool:
    """Whether a field can lie within (or outside) bounds that fields of these classes give."""
    return next(values_within(test, classes, holds), None) is not None


def values_within(
    test: Test, classes: Mapping[str, Domain], holds: bool
) -> Iterator[dict[str, Value]]:
    """Yields values of the classes for which the test holds, or for which it does not."""
    own = classes[test.field]
    ends = {end: classes[end] for bound in test.allowed.bounds for end in bound.ends}
    for chosen in product(*(_telling(values, own) for values in ends.values())):
        known = dict(zip(ends, chosen, strict=True))
        allowed = _allowed(test, known)
        left = own & allowed if holds else own - allowed
        if not left.is_empty():
            yield {**known, test.field: representative(left)}


def _allowed(test: Test, known: Mapping[str, Value]) -> Domain:
    allowed = test.allowed.fixed
    for bound in test.allowed.bounds:
        low, high = (known[end] if isinstance(end, str) else end for end in (bound.low, bound.high))
        if isinstance(low, str) or isinstance(high, str):
            continue  # a symbol bounds nothing
        allowed = allowed | Domain.between(low, high, bound.multiple_of)
    return allowed


def _telling(values: Domain, other: Domain) -> list[Value]:
    """Members of a class that tell most when another field is held against them."""
    found: dict[Value, None] = dict.fromkeys(values.names) if not values.all_names_but else {}
    both = values & other
    for one in (values, both):
        for span in one.spans:
            for end in (span.low, span.high):
                if end is not None:
                    found[end] = None
            low = span.low or 0
            if (more := span.first_from(low + 1)) is not None:
                found[more] = None
            if span.high is None and (far := span.first_from(low + (1 << 20))) is not None:
                found[far] = None
    return list(found) or [representative(values)]


def needs_by_fact(rules: Iterable[Rules]) -> dict[str, dict[str, Need]]:
    """Fact → the requirements that are made of it, by the field that stands for each."""
    found: dict[str, dict[str, Need]] = {}
    for one in rules:
        for name, requirement in one.requirements.items():
            found.setdefault(requirement.fact, {})[name] = Need(requirement)
    return found


def _impossible_versions(rules: Rules) -> Iterator[Term]:
    """Yields what no version of a package makes of its requirements."""
    for fact, needs in needs_by_fact([rules]).items():
        can = {
            tuple(need.of(Facts({fact: version})) is True for need in needs.values())
            for version in versions_about(need.requirement.specifier for need in needs.values())
        }
        for said in product((True, False), repeat=len(needs)):
            if said not in can:
                yield {name: Domain.of(one) for name, one in zip(needs, said, strict=True)}


def versions_about(specifiers: Iterable[str | None]) -> list[str | bool | None]:
    """Versions at, just below and just above every one that specifiers name, and none at all."""
    found: dict[str | bool | None, None] = {None: None, True: None}
    for specifier in specifiers:
        for text in re.findall(r"[0-9]+(?:\.[0-9]+)*", specifier or ""):
            parts = [int(part) for part in text.split(".")]
            found[text] = None
            found[".".join(map(str, [*parts, 1]))] = None
            found[".".join(map(str, [*parts[:-1], parts[-1] + 1]))] = None
            found[f"{text}.dev0"] = None
            found[f"{parts[0] + 1}.0"] = None
            found["0.0.1"] = None
    return list(found)


def sets_in(rules: Rules) -> Iterator[tuple[str, Domain]]:
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
