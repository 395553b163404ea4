"""A manifest held against what was read of the engine that it describes.

Everything is a finding, what could not be decided too (``DRF007``, notes).
"""

from __future__ import annotations

from collections.abc import Iterator

from selector.drift.claims import compare_claims
from selector.drift.combinations import compare_combinations
from selector.drift.dense import compare_dense_prefill
from selector.drift.inheritance import compare_inheritance
from selector.drift.machines import Pair
from selector.drift.operators import compare_operators
from selector.drift.reading import Backend, EngineReading, Vocabulary
from selector.drift.refusals import compare_constructors
from selector.drift.rules import GONE, UNDECIDED, UNLISTED
from selector.drift.saying import called, other_platform, problem_of
from selector.manifest import Manifest
from selector.values import Finding, Severity

__all__ = ["compare"]


def compare(manifest: Manifest, reading: EngineReading) -> tuple[Finding, ...]:
    """Everything in which a manifest and an engine's code differ, in order.

    Args:
        manifest: as it is, not as claimed.
        reading: of the engine.
    """
    found = [*reading.findings, *_registry(manifest, reading)]
    stated = [*_pairs(manifest, reading)]
    found += compare_dense_prefill(stated)
    found += compare_constructors(manifest, reading, stated)
    claimed = manifest.as_claimed()
    as_claimed = [*_pairs(claimed, reading)]
    found += compare_claims(claimed, reading, as_claimed)
    found += compare_combinations(claimed, reading, as_claimed)
    found += compare_inheritance(claimed, reading, as_claimed)
    found += compare_operators(claimed, reading)
    return tuple(sorted(set(found)))


def _pairs(manifest: Manifest, reading: EngineReading) -> Iterator[Pair]:
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
