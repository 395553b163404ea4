"""Two manifests, statement by statement: what was added, removed, pinned, reworded.

Positions never count: where something is written changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import msgspec

from selector.manifest import Entry, Manifest
from selector.plan.terms import tests_of_pair
from selector.values import Position

__all__ = ["Stated", "path_statements", "stated_changes"]

_SAID = ("source", "sources", "reason", "fact_words")
"""Words about a rule, which decide nothing."""

_OF_PATHS = (
    *("dense_prefill", "dense_prefill_except", "prefill_paths"),
    *("coerce", "decode_threshold", "uniform_decodes"),
)
"""What an entry says of requests that it already runs."""

_OF_ENTRIES = (
    *("source", "sources", "description", "library", "rationale", "evidence", "revisit_when"),
    *("adapter", "claimed", "verified_on"),
)
"""What an entry says that decides nothing."""

_OF_MANIFESTS = ("columns", "fact_words", "invariants", "description")


class Stated(msgspec.Struct, frozen=True):
    """What is stated differently.

    Attributes:
        added: backends that only the new manifest has.
        removed: backends that only the old one has.
        pinned: backend, and what is switched off for it or fixed in the new manifest only.
        unpinned: the same, in the old one only.
        paths: backends that say otherwise how they run what they are given.
        worded: where, and which statements differ that decide nothing.
        defaults: fields and facts that are taken to be something else when nobody says them.
        space: the rules of what can exist differ: only what both allow is compared.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    pinned: tuple[tuple[str, str], ...] = ()
    unpinned: tuple[tuple[str, str], ...] = ()
    paths: tuple[str, ...] = ()
    worded: tuple[tuple[str, tuple[str, ...]], ...] = ()
    defaults: tuple[str, ...] = ()
    space: bool = False


def stated_changes(old: Manifest, new: Manifest) -> Stated:
    """What two manifests state differently, beside what they decide."""
    both = [name for name in old.entries if name in new.entries]
    before, after = _pins(old), _pins(new)
    return Stated(
        added=tuple(name for name in new.entries if name not in old.entries),
        removed=tuple(name for name in old.entries if name not in new.entries),
        pinned=tuple(sorted(after - before)),
        unpinned=tuple(sorted(before - after)),
        paths=tuple(n for n in both if path_statements(old, n) != path_statements(new, n)),
        worded=tuple(_worded(old, new, both)),
        defaults=tuple(
            name
            for name in dict.fromkeys((*old.defaults, *new.defaults))
            if plain(old.defaults.get(name)) != plain(new.defaults.get(name))
        )
        + tuple(sorted(old.standard ^ new.standard)),
        space=plain(old.space) != plain(new.space),
    )


def _pins(manifest: Manifest) -> Set[tuple[str, str]]:
    found = {(entry.name, name) for entry in manifest.entries.values() for name in entry.pinned}
    for entry in manifest.entries.values():
        found |= {(entry.name, str(phase)) for phase, spec in entry.phases.items() if spec.disabled}
    return found


def path_statements(manifest: Manifest, name: str) -> Any:
    """What decides how an entry runs what it is given."""
    entry = manifest.entries[name]
    read = {name for test in tests_of_pair(entry, entry) for name in test.reads}
    pending = [*read]
    while pending:
        rules = manifest.derive.get(pending.pop())
        more = {*rules.reads} - read if rules is not None else set()
        read |= more
        pending += more
    derived = {name: rules for name, rules in manifest.derive.items() if name in read}
    measures = [measure for measure in manifest.measures if measure.name in read]
    return plain([[getattr(entry, one) for one in _OF_PATHS], derived, measures])


def _worded(
    old: Manifest, new: Manifest, both: Iterable[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for name in both:
        found = _reworded(old.entries[name], new.entries[name])
        if found:
            yield name, tuple(found)
    sections = [
        one for one in _OF_MANIFESTS if plain(getattr(old, one), ()) != plain(getattr(new, one), ())
    ]
    if (old.ref.name, old.ref.version) != (new.ref.name, new.ref.version):
        sections.append("name and version")
    for one in ("priorities", "deny", "derive", "joint", "space", "defaults"):
        here, there = getattr(old, one), getattr(new, one)
        if plain(here) == plain(there) and plain(here, ()) != plain(there, ()):
            sections.append(f"reasons of {one}")
    if sections:
        yield "manifest", tuple(sections)


def _reworded(here: Entry, there: Entry) -> list[str]:
    """The statements of an entry that differ and decide nothing."""
    found = [
        one
        for one in _OF_ENTRIES
        if plain(getattr(here, one), ()) != plain(getattr(there, one), ())
    ]
    claimed = {name for entry in (here, there) if entry.claimed for name in entry.claimed.accepts}
    if all(here.sources.get(n) == there.sources.get(n) for n in _sourced(here, there) - claimed):
        found = [one for one in found if one != "sources"]
    rest = [one for one in here.__struct_fields__ if one not in _OF_ENTRIES]
    for one in rest:
        mine, other = getattr(here, one), getattr(there, one)
        if plain(mine) == plain(other) and plain(mine, ()) != plain(other, ()):
            found.append(f"reasons of {one}")
    return found


def _sourced(*entries: Entry) -> set[str]:
    return {name for entry in entries for name in entry.sources}


def plain(value: Any, left_out: Iterable[str] = _SAID) -> Any:
    """A value in plain parts that can be compared, without positions and some fields."""
    if isinstance(value, Position):
        return None
    if isinstance(value, msgspec.Struct):
        return tuple(
            (name, plain(getattr(value, name), left_out))
            for name in value.__struct_fields__
            if name not in left_out
        )
    if isinstance(value, Mapping):
        return {name: plain(one, left_out) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one, left_out) for one in value]
    return value
