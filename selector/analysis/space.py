"""Every question that manifests can tell apart: the fields they look at, in classes of values.

A class holds the values of one field that no rule tells apart, so that one of them stands for
all. Counts are counts of combinations of classes, never of single values, of which some fields
have no end. Devices are the known architectures, one for each condition that speaks of others
only, and the platforms without a capability.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from itertools import product
from math import prod
from operator import and_
from types import MappingProxyType

import msgspec

from selector.analysis.excluding import excluded
from selector.analysis.holding import classes_of, groups_of, impossible_in, representative
from selector.analysis.sides import Sides
from selector.devices import known_capabilities
from selector.domains import Domain, Value
from selector.fields import ABSENT, parse_capability
from selector.manifest import Manifest
from selector.plan.computed import Need
from selector.plan.kind import Kind, narrowed
from selector.plan.terms import KIND_FIELDS, Rules, Term, rules_of, term_of
from selector.rules import When
from selector.values import Facts

__all__ = [
    "KindOf",
    "Space",
    "classes_of",
    "needs_by_fact",
    "representative",
    "sets_in",
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
        self.sides = Sides(self.classes)
        first, *others = self.rules
        never = {tuple(sorted(term.items())): term for term in self._excluded()}
        impossible = (*first.impossible, *never.values())
        self.rules = (msgspec.structs.replace(first, impossible=impossible), *others)

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

    def _excluded(self) -> Iterator[Term]:
        """Yields what of fields that stand for something does not agree with what they stand for.

        All manifests are looked at together: a version meets one's requirement and not another's.
        """
        known = {name: test for one in self.rules for name, test in one.relations.items()}
        derived = {name for one in self.rules for name in one.derive}
        tests = {
            name: test
            for name, test in known.items()
            if name in self.classes and derived.isdisjoint(test.reads)
        }
        read = dict.fromkeys(field for test in tests.values() for field in test.reads)
        classes = {field: self.classes.get(field, (self.universe(field),)) for field in read}
        for group in groups_of(tests):
            yield from impossible_in(group, classes)
        yield from _impossible_versions(self.rules)

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


def needs_by_fact(rules: Iterable[Rules]) -> dict[str, dict[str, Need]]:
    """Fact → the requirements that are made of it, by the field that stands for each."""
    found: dict[str, dict[str, Need]] = {}
    for one in rules:
        for name, requirement in one.requirements.items():
            found.setdefault(requirement.fact, {})[name] = Need(requirement)
    return found


def _impossible_versions(rules: Iterable[Rules]) -> Iterator[Term]:
    """Yields what no version of a package makes of its requirements, in all manifests at once."""
    for fact, needs in needs_by_fact(rules).items():
        can = {
            tuple(int(need.of(Facts({fact: version})) is True) for need in needs.values())
            for version in versions_about(need.requirement.specifier for need in needs.values())
        }
        names = [*needs]
        for told in excluded(can, [2] * len(names)):
            yield {names[n]: Domain.of(*map(bool, side)) for n, side in told.items()}


def versions_about(specifiers: Iterable[str | None]) -> list[str | bool | None]:
    """Versions at, just below and just above every one that specifiers name, and none at all."""
    from packaging.specifiers import SpecifierSet  # imports slowly
    from packaging.version import InvalidVersion, Version

    found: dict[str | bool | None, None] = {None: None, True: None}
    for specifier in specifiers:
        for one in SpecifierSet(specifier or ""):
            said = one.version.removesuffix(".*")
            with suppress(InvalidVersion):  # "===" takes any text, and nothing is installed as such
                if Version(said).is_prerelease and ".dev" not in said:
                    found[f"{said}.dev0"] = None
                found[said] = None
        for text in re.findall(r"[0-9]+(?:\.[0-9]+)*", specifier or ""):
            parts = [int(part) for part in text.split(".")]
            found[text] = None
            found[".".join(map(str, [*parts, 1]))] = None
            found[".".join(map(str, [*parts[:-1], parts[-1] + 1]))] = None
            found[f"{text}.dev0"] = None
            found[f"{parts[0] + 1}.0"] = None
            found[f"{text}.0.1"] = None
            found["0.0.1"] = found["0"] = None
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
