"""Capabilities that a backend's class never states, and those that it widens.

A class that says nothing has what an ancestor says. Where that ancestor is a backend itself, its
word is about its own kernels, and the class may run others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from selector.drift.machines import Machines, Pair, machines_for, machines_of, stated_at
from selector.drift.reading import Attribute, Backend, ClassReading, EngineReading
from selector.drift.rules import INHERITED, WIDENED
from selector.drift.saying import (
    answer_on,
    feature_on,
    listed,
    method_fails,
    name_of,
    place_of,
    source_of,
    supplier,
    takes,
    value_of,
)
from selector.fields import parse_capability
from selector.manifest import Entry, Manifest
from selector.values import Finding, Severity

__all__ = ["compare_inheritance"]

_Said = tuple[str, Any, bool | None, bool | None]


class _Claim(msgspec.Struct, frozen=True):
    """A capability of a class: the attribute that answers, and the one that settles the answer."""

    field: str
    answers: Attribute
    settles: Attribute


def compare_inheritance(
    manifest: Manifest, reading: EngineReading, pairs: list[Pair]
) -> Iterator[Finding]:
    """What classes only inherit, and what they accept beyond the backend that they extend.

    What the manifest refuses is left to the comparison of claims; of an entry that names runs or
    reports, nothing is told.

    Args:
        manifest: as claimed.
        reading: of the engine.
        pairs: the entries of that manifest, and the backends that they describe.
    """
    machines = machines_of(manifest, reading)
    listed_classes = {one.cls.path: one for one in reading.backends if one.cls is not None}
    own_words = _computed(pairs)
    for pair in pairs:
        here = machines_for(pair.entry, machines)
        if here and not (pair.entry.evidence or pair.entry.verified_on):
            yield from _inherited(pair, here, listed_classes, own_words)
            yield from _widened(pair, here, listed_classes)


def _computed(pairs: list[Pair]) -> set[tuple[str, str]]:
    """Members of an ancestor that say different things of different heirs.

    They are worked out from what the heir says, so it is no ancestor's word.
    """
    said: defaultdict[tuple[str, str], set[bytes]] = defaultdict(set)
    for pair in pairs:
        for claim in _claims(pair):
            key = claim.settles.name, claim.settles.defined_in
            said[key].add(msgspec.json.encode(claim.settles.answers()))
    return {key for key, answers in said.items() if len(answers) > 1}


def _claims(pair: Pair) -> Iterator[_Claim]:
    words, cls = pair.vocabulary, pair.backend.cls
    names = {"capability": words.capability} | words.values
    names |= {field: name for field, (name, _) in words.features.items()}
    for field, name in names.items():
        answers = cls.attributes.get(name) if cls is not None else None
        if cls is not None and answers is not None and answers.defined_in:
            by = cls.attributes.get(words.lists.get(field, ""))
            yield _Claim(field, answers, supplier(cls, answers, by))


def _inherited(
    pair: Pair, machines: Machines, known: Mapping[str, Backend], computed: set[tuple[str, str]]
) -> Iterator[Finding]:
    entry, cls = pair.entry, pair.backend.cls
    assert cls is not None
    quiet: defaultdict[str, list[_Claim]] = defaultdict(list)
    for claim in _claims(pair):
        by = claim.settles
        if by.defined_in == cls.path or (by.name, by.defined_in) in computed:
            continue
        if _is_named(entry, claim) or not _agreed(pair, claim, machines):
            continue
        other = _other_code(pair.backend, known.get(by.defined_in))
        if other:
            words = (
                f"{entry.name} {claim.field}: {_owner(cls)} does not state {by.name} and inherits "
                f"it from the backend {known[by.defined_in].name} ({source_of(by)}); {other}"
            )
            fix = f"state {by.name} in {name_of(cls.path)}"
            at = stated_at(entry, claim.field)
            yield INHERITED.finding(at, f"{words}; unverified", fix, Severity.WARNING)
        else:
            quiet[by.defined_in].append(claim)
    for ancestor, claims in quiet.items():
        names = ", ".join(
            dict.fromkeys(f"{one.settles.name} ({place_of(one.settles.at)})" for one in claims)
        )
        words = f"{entry.name}: {_owner(cls)} does not state {names} and inherits from "
        words += name_of(ancestor)
        if fails := _fails(pair):
            words = f"{words}; {fails}; unverified"
        yield INHERITED.finding(
            entry.position, words, severity=Severity.WARNING if fails else Severity.NOTE
        )


def _fails(pair: Pair) -> str:
    """What keeps the implementation's inherited work from running; empty: nothing is seen."""
    impl = pair.backend.impl
    said = (
        method_fails(one)
        for name, one in (impl.methods.items() if impl is not None else ())
        if impl is not None and one.defined_in != impl.path and name != pair.vocabulary.dense_method
    )
    return next(filter(None, said), "")


def _owner(cls: ClassReading) -> str:
    return f"{name_of(cls.path)} ({place_of(cls.at)})"


def _is_named(entry: Entry, claim: _Claim) -> bool:
    """Whether the manifest says that it is the ancestor's word."""
    said = entry.sources.get(claim.field, "")
    return any(name_of(one.defined_in) in said for one in (claim.answers, claim.settles))


def _other_code(backend: Backend, parent: Backend | None) -> str:
    """Where the implementation computes a path by other code than the parent's; empty: nowhere."""
    if parent is None or backend.impl is None or parent.impl is None:
        return ""
    for name, method in backend.impl.methods.items():
        theirs = parent.impl.methods.get(name)
        if theirs is not None and theirs.at != method.at:
            return (
                f"its {name} is {name_of(method.defined_in)}'s ({place_of(method.at)}), "
                f"not {name_of(theirs.defined_in)}'s"
            )
    return ""


def _agreed(pair: Pair, claim: _Claim, machines: Machines) -> bool:
    """Whether class and manifest both accept something of it, and differ in nothing."""
    said = [(stated, code) for _, _, stated, code in _said(pair, claim, machines)]
    if any(None not in one and one[0] is not one[1] for one in said):
        return False
    return any(stated is not False and code for stated, code in said)


def _said(pair: Pair, claim: _Claim, machines: Machines) -> Iterator[_Said]:
    """Capability, value (``True``: the feature), what the manifest says, what the class says."""
    words, field, entry = pair.vocabulary, claim.field, pair.entry
    for one, on in machines.items():
        if field in words.values and field in on.fields:
            for raw in claim.answers.asked:
                code = takes(answer_on(claim.answers, one), raw)
                yield one, raw, on.accepts(entry, field, value_of(raw)), code
        elif field in on.fields:
            asked = words.features[field][1] if field in words.features else parse_capability(one)
            yield one, True, on.accepts(entry, field, asked), feature_on(claim.answers, one)


def _widened(pair: Pair, machines: Machines, known: Mapping[str, Backend]) -> Iterator[Finding]:
    """What the class itself accepts, and the backend that it extends certainly refuses."""
    cls = pair.backend.cls
    assert cls is not None
    parent = next((known[one] for one in cls.mro[1:] if one in known), None)
    if parent is None or parent.cls is None:
        return
    for claim in _claims(pair):
        theirs = parent.cls.attributes.get(claim.answers.name)
        if claim.settles.defined_in != cls.path or theirs is None:
            continue
        refuses = _refuses(theirs, claim.field in pair.vocabulary.values)
        more = dict.fromkeys(
            value
            for one, value, stated, code in _said(pair, claim, machines)
            if stated is not False and code and refuses(one, value)
        )
        if more:
            what = "it" if True in more else listed([value_of(one) for one in more])
            words = (
                f"{pair.entry.name} {claim.field}: {source_of(claim.settles)} accepts {what}, and "
                f"the backend {parent.name} that it extends refuses it ({place_of(theirs.at)})"
            )
            if other := _other_code(pair.backend, parent):
                words += f"; {other}"
            yield WIDENED.finding(stated_at(pair.entry, claim.field), f"{words}; unverified")


def _refuses(attribute: Attribute, by_value: bool) -> Callable[[str, Any], bool]:
    if by_value:
        return lambda capability, raw: takes(answer_on(attribute, capability), raw) is False
    return lambda capability, _: feature_on(attribute, capability) is False
