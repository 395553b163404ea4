"""Classes of values → a question that can be asked, so that what is claimed can be seen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from selector.analysis.holding import ways_of
from selector.analysis.space import Space, needs_by_fact, representative, versions_about
from selector.domains import Domain, Value
from selector.fields import ABSENT, REQUEST_FIELDS, UNSET, capability_text
from selector.rules import Test
from selector.values import Device, Facts, Layer, Request

__all__ = ["Witness", "quiet_value", "witness_of"]


class Witness(msgspec.Struct, frozen=True):
    """A question: everything that some rule looks at is known."""

    device: Device
    layer: Layer
    facts: Facts
    request: Request


def witness_of(space: Space, classes: Mapping[str, Domain]) -> Witness | None:
    """A question of these classes; of other fields, one that asks for nothing.

    ``None``: none could be made (several bounds of one field at once, for example).
    """
    values = {name: _usual(found) for name, found in classes.items()}
    for name, found in space.classes.items():
        if name not in values:
            values[name] = quiet_value(space, name, found)
    for tests in _together(space, classes):
        ends = {field: space.universe(field) for test in tests.values() for field in test.reads}
        ends |= {n: classes.get(n, Domain.of(values[n])) for n in ends if n in values}
        wanted = tuple(bool(values[name]) for name in tests)
        ways = ways_of([*tests.values()], ends)
        solved = next((found for holds, found in ways if holds == wanted), None)
        if solved is None:
            return None
        values |= solved
    platform, capability = str(values["platform"]), values["capability"]
    code = capability_text(capability) if isinstance(capability, int) else None
    facts = _facts(space, values)
    if facts is None:
        return None
    said = {
        *facts,
        *(name for rules in space.rules for name in (*rules.relations, *rules.requirements)),
    }
    said |= {"platform", "capability", *REQUEST_FIELDS}
    layer = {name: value for name, value in values.items() if name not in said}
    query = values.get("query_len", 1)
    seq = values.get("seq_len", query)
    if not isinstance(query, int) or not isinstance(seq, int):
        return None
    request = Request(min(query, seq), seq)
    return Witness(Device(platform, code), Layer(MappingProxyType(layer)), Facts(facts), request)


def _together(space: Space, classes: Mapping[str, Domain]) -> Iterator[dict[str, Test]]:
    """Yields the bounds by other fields that a question speaks of, those that share one at once."""
    groups: list[dict[str, Test]] = []
    for name, test in (pair for rules in space.rules for pair in rules.relations.items()):
        if name not in classes:
            continue
        own = {name: test}
        apart = []
        for group in groups:
            read = {field for one in group.values() for field in one.reads}
            if read.isdisjoint(test.reads):
                apart.append(group)
            else:
                own |= group
        groups = [*apart, own]
    yield from groups


def _usual(values: Domain) -> Value:
    """A member of a class, one that models have where there is one."""
    for number in (1, 16, 64, 128, 256, 512, 576, 2048):
        if values.admits(number):
            return number
    return representative(values)


def quiet_value(space: Space, name: str, classes: tuple[Domain, ...]) -> Value:
    """What a field is when it asks for nothing."""
    for manifest in space.manifests:
        off = manifest.vocabulary.off.get(name)
        if off is not None:
            return off
        default = manifest.defaults.get(name)
        if default is not None and default.value is not None:
            return default.value
    for symbol in (UNSET, ABSENT):
        if any(values.admits(symbol) for values in classes):
            return symbol
    return _usual(classes[0])


def _facts(space: Space, values: Mapping[str, Value]) -> dict[str, str | bool | None] | None:
    """What is installed, so that requirements are met as they are said to be."""
    found: dict[str, str | bool | None] = {}
    for manifest in space.manifests:
        for name, kind in manifest.facts.items():
            if kind == "boolean" and name in values:
                found[name] = bool(values[name])
    for fact, needs in needs_by_fact(space.rules).items():
        tried = (
            [found[fact]]
            if fact in found
            else versions_about(need.requirement.specifier for need in needs.values())
        )
        wanted = [bool(values.get(name, True)) for name in needs]
        for version in tried:
            met = [need.of(Facts({fact: version})) is True for need in needs.values()]
            if met == wanted:
                found[fact] = version
                break
        else:
            return None
    return found
