"""What a manifest says, as typed values. :mod:`selector.loading` reads it from text."""

from __future__ import annotations

from collections.abc import Mapping as MappingType
from types import MappingProxyType

import msgspec

from selector.domains import Value
from selector.fields import Vocabulary
from selector.rules import Constraint, FirstMatch, Steps, Test, When
from selector.values import ManifestRef, Phase, Position

__all__ = [
    "SPARSE_PATH",
    "Claim",
    "Denial",
    "Entry",
    "Invariant",
    "Joint",
    "Manifest",
    "Measure",
    "PathRule",
    "PhaseSpec",
    "Priority",
    "Requirement",
]

SPARSE_PATH = "sparse_mqa"
"""The one path of a sparse entry that is not dense; all others are gated by ``dense_prefill``."""


class Requirement(msgspec.Struct, frozen=True):
    """A fact that must hold: a version specifier, or a probe that must answer yes."""

    fact: str
    specifier: str | None
    position: Position


class PhaseSpec(msgspec.Struct, frozen=True):
    """What an entry accepts in one phase; ``accepts`` is complete, for every field it restricts."""

    accepts: MappingType[str, FirstMatch[Test]]
    constraints: tuple[Constraint, ...]
    position: Position
    disabled: bool = False
    rationale: str | None = None


class PathRule(msgspec.Struct, frozen=True):
    """One way to compute prefill, and when it is taken."""

    path: str
    when: When
    steps: Steps | None
    batch: bool
    reason: str
    position: Position


class Claim(msgspec.Struct, frozen=True):
    """What an engine's own code says instead."""

    source: str
    accepts: MappingType[str, FirstMatch[Test]]
    dense_prefill: bool | None
    constraints: tuple[Constraint, ...] | None


class Entry(msgspec.Struct, frozen=True):
    """One backend: what works."""

    name: str
    position: Position
    source: str
    mla: bool
    sparse: bool
    accepts: MappingType[str, FirstMatch[Test]]
    phases: MappingType[Phase, PhaseSpec]
    description: str = ""
    library: str = ""
    dense_prefill: bool | None = None
    dense_prefill_at: Position | None = None
    rationale: str | None = None
    evidence: tuple[str, ...] = ()
    revisit_when: str | None = None
    pinned: frozenset[str] = frozenset()
    requires: tuple[Requirement, ...] = ()
    kv_layout: frozenset[str] = frozenset()
    coerce: MappingType[str, FirstMatch[Value]] = MappingProxyType({})
    decode_threshold: FirstMatch[int] | None = None
    uniform_decodes: bool = False
    prefill_paths: tuple[PathRule, ...] = ()
    adapter: str | None = None
    claimed: Claim | None = None
    verified_on: tuple[str, ...] = ()


class Measure(msgspec.Struct, frozen=True):
    """A size of a batch: 32-bit words of a top-k mask over its prefills."""

    name: str
    small_tile: int
    large_tile: int
    word_align: int


class Joint(msgspec.Struct, frozen=True):
    """What the prefill and the decode backend must share."""

    when: When
    same: tuple[str, ...]
    reason: str
    position: Position


class Priority(msgspec.Struct, frozen=True):
    """One priority list: the order in which backends are tried."""

    when: When
    orders: MappingType[Phase, tuple[str, ...]]
    reason: str
    position: Position


class Denial(msgspec.Struct, frozen=True):
    """A backend that policy never tries."""

    backend: str
    when: When
    reason: str
    position: Position


class Invariant(msgspec.Struct, frozen=True):
    """What must never happen."""

    name: str
    when: When
    never_paths: frozenset[str]
    never_backends: frozenset[str]
    reason: str
    position: Position


class Manifest(msgspec.Struct, frozen=True):
    """A manifest that has no errors."""

    ref: ManifestRef
    vocabulary: Vocabulary
    entries: MappingType[str, Entry]
    priorities: tuple[Priority, ...]
    facts: MappingType[str, str]
    derive: MappingType[str, FirstMatch[Value]]
    space: tuple[Constraint, ...] = ()
    joint: tuple[Joint, ...] = ()
    deny: tuple[Denial, ...] = ()
    measures: tuple[Measure, ...] = ()
    invariants: tuple[Invariant, ...] = ()
    description: str = ""

    def as_claimed(self) -> Manifest:
        """The same manifest with every entry's ``claimed:`` in place of the truth.

        It gives other answers, so its digest differs.
        """
        from hashlib import sha256

        entries = {name: _claimed(entry) for name, entry in self.entries.items()}
        digest = sha256(f"claimed {self.ref.digest}".encode()).hexdigest()
        ref = msgspec.structs.replace(self.ref, digest=digest)
        return msgspec.structs.replace(self, ref=ref, entries=MappingProxyType(entries))


def _claimed(entry: Entry) -> Entry:
    claim = entry.claimed
    if claim is None:
        return entry
    phases = {
        phase: msgspec.structs.replace(
            spec,
            accepts=MappingProxyType({**spec.accepts, **claim.accepts}),
            constraints=spec.constraints if claim.constraints is None else claim.constraints,
        )
        for phase, spec in entry.phases.items()
    }
    dense = entry.dense_prefill if claim.dense_prefill is None else claim.dense_prefill
    return msgspec.structs.replace(
        entry,
        accepts=MappingProxyType({**entry.accepts, **claim.accepts}),
        phases=MappingProxyType(phases),
        dense_prefill=dense,
    )
