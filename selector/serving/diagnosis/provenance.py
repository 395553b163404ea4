"""Where the values of a question probably came from, as far as the log tells."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

import msgspec

from selector.domains import Value
from selector.fields import one_line, show
from selector.manifest import Manifest
from selector.serving.diagnosis.question import (
    Question,
    Witness,
    facts_told,
    is_unset,
    read_setting,
)
from selector.serving.logs.log import EngineError, Log, Told

__all__ = ["Provenance", "Source", "provenance_of"]

_OF_CHECKPOINTS = ("fp8", "fp8_e4m3", "fp8_e5m2", "nvfp4")
"""Cache dtypes that a checkpoint's quantisation can ask for."""

_OF_MLA = ("fp8_ds_mla", "nvfp4_ds_mla")
_FIELDS = ("kv_cache_dtype", "block_size", "dtype")
_NAMING = ("backend", "draft_backend", "mla_prefill_backend", "backend_per_kind")


class Source(StrEnum):
    """Where a value came from."""

    GIVEN = "given"
    FLAG = "flag"
    REASON = "reason"
    CHECKPOINT = "checkpoint quantisation"
    COERCION = "coercion"
    TARGET = "target model"
    CONFIG = "config"
    ENGINE = "engine"
    UNKNOWN = "unknown"


class Provenance(msgspec.Struct, frozen=True):
    """Where one value came from.

    Attributes:
        field: the field, or ``backend`` for the one that was asked for.
        value: its value, as text.
        source: where it came from.
        sure: whether the log says so; else it is the likeliest.
        told: the setting that says it, or that says something else, as it was given.
        seen: whether the log shows the settings that were given.
        backends: entries that coerce another value to this one.
    """

    field: str
    value: str
    source: Source
    sure: bool = False
    told: Told | None = None
    seen: bool = False
    backends: tuple[str, ...] = ()


def provenance_of(
    error: EngineError, log: Log, question: Question, manifest: Manifest
) -> tuple[Provenance, ...]:
    """Where the values came from that whoever started the engine may not expect."""
    return tuple(_all(error, log, question, manifest))


def _all(
    error: EngineError, log: Log, question: Question, manifest: Manifest
) -> Iterator[Provenance]:
    if error.backend is not None:
        yield _of_backend(error.backend, log)
    for fact, known in facts_told(error, manifest).items():
        yield Provenance(fact, str(known).lower(), Source.REASON, sure=True, seen=log.shows_command)
    for name in _FIELDS:
        value = question.layer.get(name)
        if not isinstance(value, str | int) or (is_unset(value) and name != "kv_cache_dtype"):
            continue
        if is_unset(value) and is_unset(read_setting(log, name, manifest.vocabulary)):
            continue
        if question.told.get(name) is Witness.GIVEN:
            shown = show(manifest.vocabulary.fields[name], value)
            yield Provenance(name, shown, Source.GIVEN, sure=True)
        else:
            yield _of_field(name, value, log, question, manifest)


def _of_backend(backend: str, log: Log) -> Provenance:
    seen = log.shows_command
    for name in _NAMING:
        told = _given(log, name)
        if told is not None and backend.lower() in told.text.lower():
            return Provenance("backend", backend, Source.FLAG, True, told, seen)
    return Provenance("backend", backend, Source.UNKNOWN, seen=seen)


def _given(log: Log, name: str) -> Told | None:
    """``--block-size 16``, and its line."""
    stated = log.settings.get(name)
    if stated is None:
        return None
    return Told(f"{one_line(stated.origin)} {one_line(stated.value)}", stated.line)


def _of_field(
    name: str, value: Value, log: Log, question: Question, manifest: Manifest
) -> Provenance:
    shown = show(manifest.vocabulary.fields[name], value)
    told, seen = _given(log, name), log.shows_command
    given = read_setting(log, name, manifest.vocabulary)
    if given == value:
        return Provenance(name, shown, Source.FLAG, True, told, seen)
    if name == "dtype":
        source = Source.CONFIG if is_unset(given) else Source.UNKNOWN
        return Provenance(name, shown, source, False, told, seen)
    if name == "block_size":
        source = Source.ENGINE if is_unset(given) else Source.COERCION
        return Provenance(name, shown, source, False, told, seen)
    by = tuple(_coercers(name, value, manifest))
    if shown in _OF_MLA and question.layer.get("mla") is not True:
        return Provenance(name, shown, Source.TARGET, False, told, seen)
    if by or not is_unset(given):
        return Provenance(name, shown, Source.COERCION, False, told, seen, by)
    source = Source.CHECKPOINT if shown in _OF_CHECKPOINTS else Source.UNKNOWN
    return Provenance(name, shown, source, False, told, seen)


def _coercers(name: str, value: Value, manifest: Manifest) -> Iterator[str]:
    """Yields the entries that change another value of the field to this one."""
    for entry in manifest.entries.values():
        rules = entry.coerce.get(name)
        if rules is not None and any(rule.result == value for rule in rules.rules):
            yield entry.name
