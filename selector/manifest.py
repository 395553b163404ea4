"""What a manifest says, as typed values. :mod:`selector.loading` reads it from text."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as MappingType
from types import MappingProxyType

import msgspec

from selector.domains import Domain, Value
from selector.errors import UnknownBackendError
from selector.fields import Vocabulary, close_matches, one_line
from selector.rules import Constraint, FirstMatch, Question, Rule, Steps, Test, When
from selector.values import ManifestRef, Phase, Policy, Position

__all__ = [
    "BATCH_COLUMNS",
    "DEVICE_COLUMNS",
    "MODEL_COLUMNS",
    "POLICY_COLUMNS",
    "REQUEST_COLUMNS",
    "SPARSE_PATH",
    "Claim",
    "Column",
    "Default",
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

DEVICE_COLUMNS = (
    *("arch", "gpu", "capability", "compute_capability"),
    *("cap_major", "cap_minor", "platform"),
)
REQUEST_COLUMNS = ("query_len", "seq_len", "speculative_tokens", "num_reqs")
BATCH_COLUMNS = ("query_lens", "seq_lens")
POLICY_COLUMNS = ("backend", "deny")
MODEL_COLUMNS = ("model", "layer")
"""Columns of tables that have a meaning of their own, whatever the manifest says of others."""


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

    def says_as_much_as(self, other: PhaseSpec) -> bool:
        """Whether both accept the same by the same constraints, being read from one statement."""
        return self.accepts is other.accepts and self.constraints is other.constraints


class PathRule(msgspec.Struct, frozen=True):
    """One way to compute prefill, and when it is taken."""

    path: str
    when: When
    steps: Steps | None
    batch: bool
    reason: str
    position: Position
    by_dense_backend: bool = False
    source: str = ""


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
    sources: MappingType[str, str] = MappingProxyType({})
    description: str = ""
    library: str = ""
    dense_prefill: bool | None = None
    dense_prefill_at: Position | None = None
    dense_prefill_except: tuple[Rule[bool], ...] = ()
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

    @property
    def thresholds(self) -> tuple[int, ...]:
        """The longest queries that count as decodes, in tokens: one for each rule."""
        rules = self.decode_threshold
        return tuple(rule.result for rule in rules.rules) if rules else ()

    def coerced(self, asked: Question) -> Question:
        """The question with the values that this backend really uses, once it runs the layer."""
        if not self.coerce:
            return asked
        used: dict[str, Value | Domain] = {}
        for name, rules in self.coerce.items():
            results = Domain()
            for match in rules.matches(asked):
                same = match.rule.result == "same"
                results |= asked.possible(name) if same else Domain.of(match.rule.result)
            only = results.only()
            used[name] = results if only is None else only
        return asked.plus(used)


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
    source: str = ""


class Priority(msgspec.Struct, frozen=True):
    """One priority list: the order in which backends are tried."""

    when: When
    orders: MappingType[Phase, tuple[str, ...]]
    reason: str
    position: Position
    source: str = ""


class Denial(msgspec.Struct, frozen=True):
    """A backend that policy never tries."""

    backend: str
    when: When
    reason: str
    position: Position
    source: str = ""


class Default(msgspec.Struct, frozen=True):
    """What a field is taken to be when nobody says it: a value, or what another field is."""

    value: Value | None
    field: str | None
    position: Position
    source: str = ""

    def of(self, asked: Question) -> Value | None:
        """The value that stands in; ``None`` when nothing is known of the other field."""
        return self.value if self.field is None else asked.known(self.field)


class Column(msgspec.Struct, frozen=True):
    """How one column of a table is read.

    Attributes:
        field: the field it holds.
        values: a value of the column → what it says of fields; ``None``: that one is unknown.
        dense: true in a row supposes that every sparse entry may compute prefill densely.
        given: names the backend that is given the layer, whether or not it accepts it.
    """

    field: str | None = None
    values: MappingType[str, MappingType[str, Value | None]] = MappingProxyType({})
    dense: bool = False
    given: bool = False


class Invariant(msgspec.Struct, frozen=True):
    """What must never happen."""

    name: str
    when: When
    never_paths: frozenset[str]
    never_backends: frozenset[str]
    reason: str
    position: Position


class Manifest(msgspec.Struct, frozen=True):
    """A manifest that has no errors.

    ``changing`` are the derived values that change with each request; ``fact_words`` say what a
    fact means; ``names`` are the fields that it speaks of, anywhere.
    """

    ref: ManifestRef
    vocabulary: Vocabulary
    entries: MappingType[str, Entry]
    priorities: tuple[Priority, ...]
    facts: MappingType[str, str]
    derive: MappingType[str, FirstMatch[Value]]
    changing: MappingType[str, FirstMatch[Value]] = MappingProxyType({})
    standard: frozenset[str] = frozenset()
    fact_words: MappingType[str, str] = MappingProxyType({})
    defaults: MappingType[str, Default] = MappingProxyType({})
    columns: MappingType[str, Column] = MappingProxyType({})
    space: tuple[Constraint, ...] = ()
    joint: tuple[Joint, ...] = ()
    deny: tuple[Denial, ...] = ()
    measures: tuple[Measure, ...] = ()
    invariants: tuple[Invariant, ...] = ()
    description: str = ""
    names: frozenset[str] = frozenset()

    def entry(self, name: str) -> Entry:
        """The entry called so.

        Raises:
            UnknownBackendError: there is none; the nearest one is named.
        """
        if name in self.entries:
            return self.entries[name]
        near = close_matches(name, self.entries, 0.4)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnknownBackendError(f'no backend is called "{one_line(name)}"{hint}')

    def forced(self, policy: Policy, phase: Phase) -> str | None:
        """The backend that a policy forces in a phase; one forced in both only where it serves.

        Raises:
            UnknownBackendError: the policy names a backend that is not in the manifest.
        """
        own = policy.prefill_backend if phase is Phase.PREFILL else policy.decode_backend
        if own is not None:
            return self.entry(own).name
        both = policy.backend
        return both if both is not None and phase in self.entry(both).phases else None

    def as_claimed(self) -> Manifest:
        """The same manifest with every entry's ``claimed:`` in place of the truth."""
        return self._changed("claimed", _claimed)

    def supposing_dense_prefill(self) -> Manifest:
        """The same manifest as if every sparse entry could compute prefill densely.

        A supposition, to see what a pinned word keeps from happening; never what is true.
        """
        return self._changed("supposing dense prefill", _dense)

    def _changed(self, how: str, change: Callable[[Entry], Entry]) -> Manifest:
        """The manifest with changed entries; it gives other answers, so its digest differs."""
        from hashlib import sha256

        entries = {name: change(entry) for name, entry in self.entries.items()}
        digest = sha256(f"{how} {self.ref.digest}".encode()).hexdigest()
        ref = msgspec.structs.replace(self.ref, digest=digest)
        return msgspec.structs.replace(self, ref=ref, entries=MappingProxyType(entries))


def _dense(entry: Entry) -> Entry:
    if not entry.sparse:
        return entry
    return msgspec.structs.replace(entry, dense_prefill=True, dense_prefill_except=())


def _claimed(entry: Entry) -> Entry:
    claim = entry.claimed
    if claim is None:
        return entry
    accepts = MappingProxyType({**entry.accepts, **claim.accepts})
    phases = {
        phase: msgspec.structs.replace(
            spec,
            accepts=accepts
            if spec.accepts is entry.accepts
            else MappingProxyType({**spec.accepts, **claim.accepts}),
            constraints=spec.constraints if claim.constraints is None else claim.constraints,
        )
        for phase, spec in entry.phases.items()
    }
    dense = entry.dense_prefill if claim.dense_prefill is None else claim.dense_prefill
    return msgspec.structs.replace(
        entry,
        accepts=accepts,
        sources=MappingProxyType({**entry.sources, **dict.fromkeys(claim.accepts, claim.source)}),
        phases=MappingProxyType(phases),
        dense_prefill=dense,
    )
