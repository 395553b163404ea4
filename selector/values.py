"""The values that flow through attnsel: questions, decisions, findings. Frozen, no I/O.

Words are those of ``docs/words.md``. Everything here can be turned into JSON with
``msgspec.to_builtins`` and validates against the schema of the same name in ``schemas/``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from selector.domains import Domain, Value
from selector.errors import ContradictionError, ValueRefusedError
from selector.fields import MOST, Vocabulary, capability_text, one_line, parse_capability, whole

__all__ = [
    "Candidate",
    "Choice",
    "Code",
    "Coercion",
    "Condition",
    "Device",
    "Drafter",
    "Facts",
    "Fallback",
    "Finding",
    "Layer",
    "LayerGroup",
    "ManifestRef",
    "Model",
    "Origin",
    "Outcome",
    "PathOff",
    "Phase",
    "Policy",
    "Position",
    "Rejection",
    "Request",
    "Resolution",
    "Severity",
    "Tower",
    "Verdict",
]


class Phase(StrEnum):
    """What a request is for a backend."""

    PREFILL = "prefill"
    DECODE = "decode"


class Outcome(StrEnum):
    """What became of a candidate."""

    SELECTED = "selected"
    ELIGIBLE = "eligible"
    CONDITIONAL = "conditional"
    DENIED = "denied"
    PINNED = "pinned"
    UNAVAILABLE = "unavailable"
    UNSUPPORTED = "unsupported"


class Severity(StrEnum):
    """How bad a finding is; only errors make a manifest unusable."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Code(StrEnum):
    """The resolver's own codes of rejections; a manifest's constraints cannot use them.

    A field that is refused has its name in capitals as code; a constraint has its own.
    """

    PHASE = "PHASE"
    NOT_INSTALLED = "NOT_INSTALLED"
    VERSION = "VERSION"
    DENIED = "DENIED"
    PINNED = "PINNED"
    JOINT = "JOINT"


class Position(NamedTuple):
    """A place in a file: line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class Finding(msgspec.Struct, frozen=True, order=True):
    """What lint, verify or drift says of a manifest. Sorts by place, then code."""

    file: str
    line: int
    column: int
    code: str
    severity: Severity
    message: str
    fix: str = ""

    def __str__(self) -> str:
        tail = f"; {self.fix}" if self.fix else ""
        return f"{self.file}:{self.line}:{self.column}: {self.code} {self.message}{tail}"


class Device(msgspec.Struct, frozen=True):
    """A device to plan for.

    Attributes:
        platform: ``cuda``, ``rocm``, ``cpu``, …
        capability: compute capability as ``"major.minor"``; ``None`` where there is none. Other
            spellings (``sm120``) are normalised.
        product: the product name asked for, if any.

    Raises:
        ValueRefusedError: the capability is none.
    """

    platform: str
    capability: str | None = None
    product: str | None = None

    def __post_init__(self) -> None:
        if self.capability is not None:
            code = parse_capability(str(self.capability))
            msgspec.structs.force_setattr(self, "capability", capability_text(code))

    @property
    def code(self) -> int | None:
        """The capability as ``100 * major + minor``."""
        return None if self.capability is None else parse_capability(self.capability)

    def __str__(self) -> str:
        where = self.capability or self.platform
        return f"{self.product} ({where})" if self.product else where


class Layer(msgspec.Struct, frozen=True):
    """What the model needs of an attention layer: values of the vocabulary's fields.

    A field that is missing is unknown, except features, which are off, and ``block_size``, which
    is left to the backend. Build one with :meth:`of`, which checks names and values.

    Head counts are those of one tensor-parallel rank.
    """

    fields: Mapping[str, Value | Domain]

    def __post_init__(self) -> None:
        _freeze(self, "fields")

    def __hash__(self) -> int:
        return hash(frozenset(self.fields.items()))

    def __reduce__(self) -> tuple[object, ...]:  # other processes are asked too
        return Layer, ({**self.fields},)

    @classmethod
    def of(cls, vocabulary: Vocabulary | None = None, /, **values: object) -> Layer:
        """A layer from field values; vLLM's spellings are accepted.

        Raises:
            UnknownFieldError: a name is no field.
            ValueRefusedError: a value is not of the field's type or vocabulary.
            ContradictionError: one field is given twice with different values.
        """
        return cls.read(values, vocabulary)

    @classmethod
    def read(cls, values: Mapping[str, object], vocabulary: Vocabulary | None = None) -> Layer:
        """The same as :meth:`of`, from a mapping."""
        words = vocabulary or Vocabulary()
        read: dict[str, Value | Domain] = {}
        for name, raw in values.items():
            field = words.field(name)
            value = field.read(raw)
            if field.name in read:
                both = _as_set(read[field.name]) & _as_set(value)
                if both.is_empty():
                    raise ContradictionError(f"{field.name} is given twice, with different values")
                value = field.read(both)
            read[field.name] = value
        return cls(MappingProxyType(read))

    def replace(self, vocabulary: Vocabulary | None = None, /, **values: object) -> Layer:
        """The same layer with these fields changed; raises as :meth:`of` does."""
        changed = Layer.read(values, vocabulary).fields
        return Layer(MappingProxyType({**self.fields, **changed}))

    def get(self, name: str) -> Value | Domain | None:
        """The value of a field, or ``None`` when it is unknown."""
        return self.fields.get(name)


def _freeze(value: msgspec.Struct, name: str) -> None:
    """Puts a copy that nobody can change in place of a mapping."""
    copy = MappingProxyType({**getattr(value, name)})
    msgspec.structs.force_setattr(value, name, copy)


def _as_set(value: Value | Domain) -> Domain:
    return value if isinstance(value, Domain) else Domain.of(value)


class Request(msgspec.Struct, frozen=True):
    """One request at one step.

    Attributes:
        query_len: new tokens of this step; ``None`` when unknown.
        seq_len: new plus cached tokens; ``None`` when unknown.
        speculative_tokens: draft tokens verified with each decode; widens the decode threshold.
    """

    query_len: int | None = None
    seq_len: int | None = None
    speculative_tokens: int = 0

    def __post_init__(self) -> None:
        for name in ("query_len", "seq_len", "speculative_tokens"):
            raw = getattr(self, name)
            if raw is None:
                continue
            value = None if isinstance(raw, str | float) else whole(raw)
            if value is None or abs(value) > MOST:
                raise ValueRefusedError(f"{name} {one_line(raw)} is not a whole number")
            if value < 1 and name != "speculative_tokens":
                raise ContradictionError(f"{name} {value} is not at least 1")
            msgspec.structs.force_setattr(self, name, value)
        if self.speculative_tokens < 0:
            raise ContradictionError(f"speculative_tokens {self.speculative_tokens} is negative")
        if None not in (self.query_len, self.seq_len) and self.query_len > self.seq_len:  # type: ignore[operator]
            raise ContradictionError(
                f"query_len {self.query_len} is longer than seq_len {self.seq_len}"
            )


class Facts(msgspec.Struct, frozen=True):
    """What is installed and switched on. A name that is missing is unknown.

    Attributes:
        values: versions as text, probes as booleans, ``None`` for "not installed".
    """

    values: Mapping[str, str | bool | None] = MappingProxyType({})

    def __post_init__(self) -> None:
        _freeze(self, "values")

    def __hash__(self) -> int:
        return hash(frozenset(self.values.items()))

    def __reduce__(self) -> tuple[object, ...]:
        return Facts, ({**self.values},)


class Policy(msgspec.Struct, frozen=True):
    """What the caller prefers, beside the manifest's own priorities.

    Attributes:
        deny: backend name → reason.
        backend: force this backend in every phase it serves. One that cannot run leaves its phase
            without a backend; no other takes its place.
        prefill_backend: force this one for prefill only.
        decode_backend: force this one for decode only.
    """

    deny: Mapping[str, str] = MappingProxyType({})
    backend: str | None = None
    prefill_backend: str | None = None
    decode_backend: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.deny, Mapping):
            raise ValueRefusedError(
                'deny maps backends to reasons, such as {"flashinfer_fa3": "driver bug"}'
            )
        _freeze(self, "deny")

    def __hash__(self) -> int:
        forced = (self.backend, self.prefill_backend, self.decode_backend)
        return hash((frozenset(self.deny.items()), *forced))

    def __reduce__(self) -> tuple[object, ...]:
        forced = (self.backend, self.prefill_backend, self.decode_backend)
        return Policy, ({**self.deny}, *forced)


class Condition(msgspec.Struct, frozen=True):
    """Something unknown that a decision depends on: ``field`` must be within ``allowed``."""

    field: str
    allowed: str
    position: Position


class Rejection(msgspec.Struct, frozen=True):
    """One reason why a candidate cannot be used.

    Attributes:
        code: stable; the field's name in capitals, a constraint's own code, or a :class:`Code`.
        position: where the manifest says so.
        field: the field refused, if it is one field.
        observed: its value, as text.
        allowed: the accepted values, as text.
        nearest: the accepted value closest to it, as text.
        reason: the manifest's own words, if it has any.
        source: the class and method, file or link that states the rule, if the manifest says it.
    """

    code: str
    position: Position
    field: str | None = None
    observed: str | None = None
    allowed: str | None = None
    nearest: str | None = None
    reason: str | None = None
    source: str | None = None


class Verdict(msgspec.Struct, frozen=True):
    """What became of a candidate in one phase."""

    outcome: Outcome
    rejections: tuple[Rejection, ...] = ()
    conditions: tuple[Condition, ...] = ()


class Candidate(msgspec.Struct, frozen=True):
    """One entry of the manifest, judged for prefill and for decode."""

    backend: str
    position: Position
    prefill: Verdict
    decode: Verdict


class Coercion(msgspec.Struct, frozen=True):
    """A value that the chosen backend changes before it looks at it."""

    field: str
    before: str
    after: str
    position: Position
    reason: str


class PathOff(msgspec.Struct, frozen=True):
    """A dense prefill path that the chosen entry, or the layer, switches off."""

    backend: str
    path: str
    outcome: Outcome
    position: Position
    rationale: str
    evidence: tuple[str, ...] = ()
    revisit_when: str | None = None


class Choice(msgspec.Struct, frozen=True):
    """The decision for one phase.

    Attributes:
        backend: the chosen entry, or ``None`` when nothing fits.
        path: how it computes this request in this phase; ``None`` when that depends on something
            unknown (then ``paths`` lists what it can be).
        paths: every path possible with what is known.
        path_rules: the rule that gives each of them, where one does.
        by: the backend that computes a dense path of a sparse layer, where that is another one.
        possible: every backend that could be chosen, given what is unknown, in order.
        tried: the list that decided, in order; ``None`` when several can be the one.
        rule: the line of the priority list or the policy that decided.
        reason: that list's own words.
        source: what it was made from, file or link, if the manifest says it.
        rank: place of the backend in the list, from 1; 0 when forced.
        of: length of the list.
        conditions: what must hold for this choice.
        coercions: values this backend changes.
        decode_threshold: longest query this backend treats as a decode, in tokens; ``None`` when it
            depends on something unknown.
    """

    backend: str | None
    path: str | None = None
    paths: tuple[str, ...] = ()
    path_rules: tuple[Position, ...] = ()
    by: str | None = None
    possible: tuple[str, ...] = ()
    tried: tuple[str, ...] | None = None
    rule: Position | None = None
    reason: str | None = None
    source: str | None = None
    rank: int = 0
    of: int = 0
    conditions: tuple[Condition, ...] = ()
    coercions: tuple[Coercion, ...] = ()
    decode_threshold: int | None = None


class ManifestRef(msgspec.Struct, frozen=True):
    """Which manifest decided: its name, version, file and the SHA-256 of its meaning."""

    name: str
    version: str
    file: str
    digest: str


class Fallback(msgspec.Struct, frozen=True):
    """Why a local manifest answered in place of a server.

    Attributes:
        server: its URL.
        code: stable: ``UNREACHABLE``, ``TIMEOUT``, ….
        reason: what went wrong, on one line.
    """

    server: str
    code: str
    reason: str


class Resolution(msgspec.Struct, frozen=True):
    """The answer for one device, layer, request and set of facts.

    ``phase`` says what the request counts as for the chosen decode backend: ``decode`` when its
    query is no longer than that backend's threshold; ``None`` when that is unknown. ``fallback`` is
    there only where a server was asked and a local manifest answered.
    """

    manifest: ManifestRef
    device: Device
    layer: Mapping[str, Any]
    request: Request
    phase: Phase | None
    prefill: Choice
    decode: Choice
    off: tuple[PathOff, ...]
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()
    fallback: Fallback | UnsetType = UNSET

    @property
    def backend(self) -> str | None:
        """The backend that runs this request's phase."""
        return self.decode.backend if self.phase is Phase.DECODE else self.prefill.backend

    @property
    def needed(self) -> tuple[Phase, ...]:
        """The phases the layer goes through: encoders see all tokens at once and never decode."""
        if self.layer.get("attn_type") in ("encoder", "encoder_only"):
            return (Phase.PREFILL,)
        return (Phase.PREFILL, Phase.DECODE)

    @property
    def missing(self) -> tuple[Phase, ...]:
        """The phases that the layer needs and no backend runs."""
        chosen = {Phase.PREFILL: self.prefill.backend, Phase.DECODE: self.decode.backend}
        return tuple(phase for phase in self.needed if chosen[phase] is None)


class Origin(StrEnum):
    """Where a value of a model's layer came from."""

    FLAG = "flag"
    CONFIG = "config"
    CHECKPOINT = "checkpoint quantisation"
    DEFAULT = "default"
    DERIVED = "derived"


class LayerGroup(msgspec.Struct, frozen=True):
    """Layers of a model that need the same of their attention.

    Attributes:
        name: ``full``, ``sliding``, ``sparse``, ``cross``, ….
        count: how many there are.
        layer: what they need, for one tensor-parallel rank.
        origins: field → where its value came from.
        keys: field → the key of ``config.json`` it was read from.
        numbers: which layers of their stack they are, counted from 0; empty when that is unknown.
    """

    name: str
    count: int
    layer: Layer
    origins: Mapping[str, Origin]
    keys: Mapping[str, str] = MappingProxyType({})
    numbers: tuple[int, ...] = ()


class Tower(msgspec.Struct, frozen=True):
    """A stack beside the main one, such as a vision encoder; its layers are not the model's.

    Attributes:
        kind: ``vision``, ``audio``, ``speech`` (a decoder that speaks) or ``other``.
        key: the key of ``config.json`` that holds its config.
        model_type: its own ``model_type``; empty when nobody says it.
        groups: its distinct layers, with all their heads; empty when they could not be read.
        notes: what was assumed, or why it could not be read.
    """

    kind: str
    key: str
    model_type: str
    groups: tuple[LayerGroup, ...] = ()
    notes: tuple[str, ...] = ()


class Drafter(msgspec.Struct, frozen=True):
    """Layers that draft tokens for speculative decoding; they are not counted in the model's.

    Attributes:
        key: the key of ``config.json`` that says how many there are.
        count: how many.
        like: the name of the model's group whose attention they share; empty when it has none.
    """

    key: str
    count: int
    like: str = ""


class Model(msgspec.Struct, frozen=True):
    """A model's attention layers, as read from its ``config.json``.

    Attributes:
        name: preset or file name.
        model_type: the config's ``model_type``.
        groups: distinct layers in order of first appearance.
        attention_free: layers without attention, counted.
        notes: what was assumed.
        source: the public page a preset's values come from.
        towers: stacks beside the main one, never counted in it.
        drafters: layers that draft tokens, never counted in the main stack.
        kv_shared_layers: how many of the last layers read the KV cache of earlier ones.
        defaults: keys left out of the config → the model type whose class defaults stand in.
        defaults_source: the library, and its version, that those class defaults are of.
        quantisation: the method that the checkpoint's quantisation config names, if any.
    """

    name: str
    model_type: str
    groups: tuple[LayerGroup, ...]
    attention_free: int = 0
    notes: tuple[str, ...] = ()
    source: str = ""
    towers: tuple[Tower, ...] = ()
    drafters: tuple[Drafter, ...] = ()
    kv_shared_layers: int = 0
    defaults: Mapping[str, str] = MappingProxyType({})
    defaults_source: str = ""
    quantisation: str = ""
