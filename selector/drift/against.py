"""A manifest held against what was read of the engine that it describes.

Everything is a finding, what could not be decided too (``DRF007``, notes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from selector.drift.claims import compare_claims
from selector.drift.combinations import compare_combinations
from selector.drift.inheritance import compare_inheritance
from selector.drift.machines import Pair
from selector.drift.operators import compare_operators
from selector.drift.reading import Attribute, Backend, ClassReading, EngineReading, Vocabulary
from selector.drift.refusals import compare_constructors
from selector.drift.rules import CLAIM, DENSE, GONE, UNDECIDED, UNLISTED
from selector.drift.saying import CAPABILITIES, called, method_fails, name_of, place_of, source_of
from selector.manifest import Manifest
from selector.values import Finding, Position, Severity

__all__ = [
    "CAPABILITIES",
    "compare",
    "inherited_words",
    "other_platform",
    "pairs",
    "problem_of",
    "says",
]


def compare(manifest: Manifest, reading: EngineReading) -> tuple[Finding, ...]:
    """Everything in which a manifest and an engine's code differ, in order.

    Args:
        manifest: as it is, not as claimed.
        reading: of the engine.
    """
    found = [*reading.findings, *_registry(manifest, reading)]
    stated = [*pairs(manifest, reading)]
    for pair in stated:
        found += _dense_prefill(pair)
    found += compare_constructors(manifest, reading, stated)
    claimed = manifest.as_claimed()
    as_claimed = [*pairs(claimed, reading)]
    found += compare_claims(claimed, reading, as_claimed)
    found += compare_combinations(claimed, reading, as_claimed)
    found += compare_inheritance(claimed, reading, as_claimed)
    found += compare_operators(claimed, reading)
    return tuple(sorted(set(found)))


def pairs(manifest: Manifest, reading: EngineReading) -> Iterator[Pair]:
    """The entries whose backend class was read."""
    for name, backend in reading.named().items():
        if name in manifest.entries and backend.cls is not None:
            yield Pair(manifest.entries[name], backend, reading.vocabulary)


def _registry(manifest: Manifest, reading: EngineReading) -> Iterator[Finding]:
    named = reading.named()
    for name, backend in named.items():
        if name not in manifest.entries:
            yield _unlisted(name, backend, manifest, reading.vocabulary)
    if not named:
        return  # the registry could not be read, which is a finding already
    for entry in manifest.entries.values():
        if (known := named.get(entry.name)) is None:
            yield GONE.finding(
                entry.position,
                f"{entry.name} is not in the registry of {called(reading)}",
                "remove the entry, or name the backend as the registry does",
            )
        elif known.cls is None:
            yield GONE.finding(
                entry.position,
                f"{entry.name}: {known.registered or 'no class'}, registered at {known.at}: "
                f"{problem_of(known)}",
            )


def _unlisted(name: str, backend: Backend, manifest: Manifest, vocabulary: Vocabulary) -> Finding:
    if not backend.registered:
        words = f"{name} registers no class, so nothing is compared"
        return UNDECIDED.finding(backend.at, words)
    if backend.cls is None:
        words = f"{name}: {backend.registered} is not compared: {problem_of(backend)}"
        return UNDECIDED.finding(backend.at, words)
    foreign = other_platform(backend, vocabulary.foreign)
    also = f"; it names another platform ({foreign})" if foreign else ""
    described = f"{manifest.ref.name} {manifest.ref.version}"
    return UNLISTED.finding(
        backend.at,
        f"{name} is registered, and {described} has no entry for it{also}",
        "" if foreign else "add an entry",
        Severity.NOTE if foreign else None,
    )


def problem_of(backend: Backend) -> str:
    """Why the class is missing; a problem of the whole source has no place."""
    return backend.problem.removeprefix(":1: ")


def other_platform(backend: Backend, platforms: tuple[str, ...]) -> str:
    """The other platform that a backend, its module or an ancestor is named after."""
    classes = backend.cls.mro if backend.cls is not None else ()
    text = "_".join((backend.name, backend.registered, *classes)).lower()
    named = (one for one in platforms if re.search(rf"(?:^|[._]){re.escape(one)}", text))
    return next(named, "")


def _dense_prefill(pair: Pair) -> Iterator[Finding]:
    entry, backend, vocabulary = pair
    impl, asked = backend.impl, vocabulary.dense_prefill
    if not asked or (not entry.sparse and not _is_sparse(pair)):
        return
    at = entry.dense_prefill_at or entry.position
    if impl is None:
        why = backend.impl_problem or "no implementation is named"
        yield UNDECIDED.finding(at, f"{entry.name} dense_prefill: {why}")
        return
    stated = impl.attributes.get(asked)
    if stated is None or not (says(stated, True) or says(stated, False)):
        why = "is not known from the code alone" if stated else "is said by no class"
        words = f"{asked} of {name_of(impl.path)} ({place_of(impl.at)}) {why}"
        yield UNDECIDED.finding(at, f"{entry.name} dense_prefill: {words}")
    elif stated.defined_in != impl.path and says(stated, True):
        yield _inherited(pair, stated, at)
    elif not says(_kind(pair, "mla"), False):
        yield from _stated(pair, stated, at)


def _stated(pair: Pair, stated: Attribute, at: Position) -> Iterator[Finding]:
    """What the implementation itself says, or a base that says there is none."""
    entry, impl = pair.entry, pair.backend.impl
    assert impl is not None
    claim = entry.claimed.dense_prefill if entry.claimed is not None else None
    said = entry.dense_prefill if claim is None else claim
    if said is None or says(stated, said):
        return
    words = (
        f"{entry.name} dense_prefill: the manifest says {str(said).lower()}, "
        f"and {source_of(stated)} says {not said}"
    )
    if set_at := [one for one in impl.assigned if one.name == stated.name]:
        place = place_of(set_at[0].at)
        words += f"; a constructor sets {set_at[0].expression} at times ({place})"
        yield UNDECIDED.finding(at, words)
    else:
        yield CLAIM.finding(at, words)


def _inherited(pair: Pair, stated: Attribute, at: Position) -> Finding:
    entry, impl, name = pair.entry, pair.backend.impl, stated.name
    assert impl is not None
    words = f"{entry.name}: {inherited_words(impl, stated, pair.vocabulary)}"
    set_at = [one for one in impl.assigned if one.name == name]
    if says(_kind(pair, "mla"), False):
        words += "; only MLA layers ask for it, and this is none"
        return DENSE.finding(at, words, severity=Severity.NOTE)
    claimed = entry.claimed is not None and entry.claimed.dense_prefill is True
    if entry.dense_prefill is not False or claimed:
        fix = f"state {name} in {name_of(impl.path)}"
        return DENSE.finding(at, words, fix, Severity.WARNING)
    if set_at:
        return UNDECIDED.finding(at, words)
    return DENSE.finding(
        at, f"{words}; the manifest says false", f"set {name} = False in the class"
    )


def inherited_words(impl: ClassReading, stated: Attribute, vocabulary: Vocabulary) -> str:
    """What an implementation inherits of its dense prefill, from where, and what comes of it."""
    words = (
        f"{name_of(impl.path)} ({place_of(impl.at)}) does not state {stated.name} and inherits "
        f"True from {name_of(stated.defined_in)} ({place_of(stated.at)})"
        f"{_promise(impl, vocabulary.dense_method)}"
    )
    if set_at := [one for one in impl.assigned if one.name == stated.name]:
        words += f"; a constructor sets {set_at[0].expression} at times ({place_of(set_at[0].at)})"
    return words


def _promise(impl: ClassReading, name: str) -> str:
    """What keeps the inherited path from running, where that is seen."""
    method = impl.methods.get(name)
    if method is None:
        return ""
    words = method_fails(method)
    return f"; {words}" if words else ""


def _is_sparse(pair: Pair) -> bool:
    """Whether the backend or its implementation says so; the router asks the latter."""
    name, impl = pair.vocabulary.kinds.get("sparse", ""), pair.backend.impl
    said = impl.attributes.get(name) if impl is not None else None
    return says(_kind(pair, "sparse"), True) or says(said, True)


def _kind(pair: Pair, field: str) -> Attribute | None:
    """What the backend's class says of all its layers."""
    cls = pair.backend.cls
    return cls.attributes.get(pair.vocabulary.kinds.get(field, "")) if cls is not None else None


def says(attribute: Attribute | None, value: bool) -> bool:
    """Whether an attribute is certainly this on every architecture."""
    if attribute is None or not attribute.known:
        return False
    return all(answer.value is value for answer in attribute.answers().values())
