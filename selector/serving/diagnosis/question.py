"""An engine's error → the question that the engine asked: the layer, the device.

An error that no backend is valid prints the layer. The one that a forced backend is not prints
none of it: then its reasons and the log's settings still tell something.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from selector.devices import find_device
from selector.domains import Domain, Value
from selector.errors import AttnselError
from selector.fields import UNSET, Vocabulary
from selector.manifest import Manifest
from selector.serving.logs.log import EngineError, Log
from selector.serving.logs.reasons import Reason
from selector.values import Device, Layer

__all__ = [
    "Question",
    "Witness",
    "device_of",
    "facts_told",
    "is_unset",
    "question_of",
    "read_setting",
]

_TRUE_OF = {
    "SINK": "sink",
    "MM_PREFIX": "mm_prefix",
    "PER_HEAD_QUANT_SCALES": "per_head_quant_scales",
    "NON_CAUSAL": "non_causal",
    "NON_CAUSAL_DCP": "non_causal",
    "KV_CONNECTOR": "kv_connector",
    "BATCH_INVARIANT": "batch_invariant",
    "PCP": "pcp",
    "DCP": "dcp",
    "ADAPTIVE_VERIFICATION": "adaptive_verification",
    "RSWA": "rswa",
}
"""Reasons that vLLM gives only when the layer, or the run, asks for the feature."""

_RANKS = {"pcp": "pcp_size", "dcp": "dcp_size"}


class Witness(StrEnum):
    """What tells a value."""

    ERROR = "error"
    REASON = "reason"
    SETTING = "setting"
    GIVEN = "given"


class Question(msgspec.Struct, frozen=True):
    """What the engine asked.

    Attributes:
        layer: what is known of it.
        told: field → what tells its value.
    """

    layer: Layer
    told: Mapping[str, Witness]


def question_of(
    error: EngineError,
    log: Log,
    manifest: Manifest,
    given: Mapping[str, Value | Domain] = MappingProxyType({}),
) -> Question:
    """The layer that an error speaks of; what the asker says himself comes first.

    Args:
        error: the engine's.
        log: whose settings tell what the error does not print.
        manifest: whose fields are meant, and which kinds of layers its backends serve.
        given: fields that the asker sets.
    """
    vocabulary = manifest.vocabulary
    fields: dict[str, Value | Domain] = {}
    told: dict[str, Witness] = {}
    sources = (
        (Witness.GIVEN, given),
        (Witness.ERROR, _asked(error, vocabulary)),
        (Witness.REASON, {**_kind(error, manifest), **_implied(error)}),
        (Witness.SETTING, _set(log, vocabulary)),
    )
    for witness, values in sources:
        for name, value in values.items():
            if name not in fields and name in vocabulary.fields:
                fields[name] = value
                told[name] = witness
    _match_ranks(fields, told)
    return Question(Layer(MappingProxyType(fields)), MappingProxyType(told))


def _asked(error: EngineError, vocabulary: Vocabulary) -> dict[str, Value | Domain]:
    found: dict[str, Value | Domain] = {}
    for name, raw in error.asked.items():
        if name in ("platform", "capability"):
            continue
        try:
            found[name] = vocabulary.field(name).read(raw)
        except AttnselError:
            continue
    if error.prefill:
        found.setdefault("mla", True)
    return found


def _kind(error: EngineError, manifest: Manifest) -> dict[str, Value | Domain]:
    """The kind of layer that the one backend serves: another kind would be among its reasons."""
    entry = manifest.entries.get(error.backend or "")
    if entry is None or error.kind != "forced" or not error.complete or not error.reasons:
        return {}
    said = {r.code for reasons in error.reasons.values() for r in reasons}
    kind = {"mla": entry.mla, "sparse": entry.sparse}
    return {name: value for name, value in kind.items() if name.upper() not in said}


def _implied(error: EngineError) -> dict[str, Value | Domain]:
    """What follows from the reasons; nothing where they contradict each other."""
    found: dict[str, set[Value | Domain]] = {}
    for reason in (r for reasons in error.reasons.values() for r in reasons):
        for name, value in _implied_by(reason):
            found.setdefault(name, set()).add(value)
    return {name: next(iter(values)) for name, values in found.items() if len(values) == 1}


def _implied_by(reason: Reason) -> list[tuple[str, Value | Domain]]:
    if reason.code in _TRUE_OF:
        return [(_TRUE_OF[reason.code], True)]
    if reason.code in ("MLA", "SPARSE"):
        return [(reason.code.lower(), "non-" not in reason.text.lower())]
    if reason.code == "SLIDING_WINDOW":
        return [("sliding_window", Domain.between(1, None))]
    return []


def _set(log: Log, vocabulary: Vocabulary) -> dict[str, Value | Domain]:
    """What the command line says of the layer."""
    values = {name: read_setting(log, name, vocabulary) for name in log.settings}
    return {name: value for name, value in values.items() if value is not None}


def read_setting(log: Log, name: str, vocabulary: Vocabulary) -> Value | Domain | None:
    """A setting as a value of its field; ``None`` when the log has none or it says ``auto``."""
    stated, field = log.settings.get(name), vocabulary.fields.get(name)
    if stated is None or field is None or (name, stated.value) == ("dtype", "auto"):
        return None
    try:
        return field.read(stated.value)
    except AttnselError:
        return None


def _match_ranks(fields: dict[str, Value | Domain], told: dict[str, Witness]) -> None:
    """Context parallelism that is on has two ranks or more, and the reverse."""
    for switch, size in _RANKS.items():
        if fields.get(switch) is True and not _is_several(fields.get(size)):
            fields[size] = Domain.between(2, None)
            told[size] = told[switch]
        elif switch not in fields and _is_several(fields.get(size)):
            fields[switch] = True
            told[switch] = told[size]
        elif fields.get(switch) is False and size in fields and told[size] is Witness.SETTING:
            fields[size] = 1


def _is_several(size: object) -> bool:
    return isinstance(size, Domain) or (isinstance(size, int) and size > 1)


def device_of(error: EngineError, log: Log) -> tuple[Device, int] | None:
    """The device that the log speaks of, and the line that says so; ``None``: it does not."""
    for told in (log.gpu, log.capability):
        if told is None:
            continue
        try:
            return find_device(told.text), told.line
        except AttnselError:
            continue
    if error.platform not in (None, "cuda"):
        try:
            return find_device(str(error.platform)), error.line
        except AttnselError:
            return None
    return None


def facts_told(error: EngineError, manifest: Manifest) -> dict[str, bool]:
    """Facts that the reasons tell: a rule that asks for nothing but a fact was broken."""
    found: dict[str, bool] = {}
    for name, reasons in error.reasons.items():
        entry = manifest.entries.get(name)
        codes = {reason.code for reason in reasons}
        for constraint in (
            (c for p in entry.phases.values() for c in p.constraints) if entry else ()
        ):
            tests = constraint.require.tests
            if constraint.code not in codes or len(tests) != 1 or constraint.any_of:
                continue
            if manifest.facts.get(tests[0].field) == "boolean":
                found[tests[0].field] = not tests[0].allowed.fixed.admits(True)
    return found


def is_unset(value: object) -> bool:
    """Whether a value says nothing: left to the engine."""
    return value in (None, UNSET, "auto")
