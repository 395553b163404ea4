"""A draft of a manifest: what was read of an engine's code, and what is left to do.

What is certainly accepted is stated. What is not known, only tried, or has no form in the language
is refused or left out, with a comment at its place and a finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import NamedTuple

from selector.drift.drafting_entries import Subject, draft_entry
from selector.drift.drafting_yaml import Block, Node, Rows, Todo, write
from selector.drift.reading import Backend, EngineReading
from selector.drift.saying import called, listed, other_platform, place_of, problem_of
from selector.drift.todo import LEFT_OUT, NOT_DRAFTED, NOT_KNOWN
from selector.fields import BUILTIN, Field
from selector.values import Finding, Severity

__all__ = ["Draft", "draft_manifest"]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.+-]*", re.ASCII)
_UNREAD = (
    "requires", "constraints", "coerce", "prefill_paths", "joint", "priorities", "invariants",
)  # fmt: skip


class Draft(NamedTuple):
    """A draft.

    Attributes:
        text: YAML, which loads if there is an entry.
        findings: what could not be read, and what is left to do, at its line of the text.
        entries: how many backends have an entry.
    """

    text: str
    findings: tuple[Finding, ...]
    entries: int


def draft_manifest(reading: EngineReading, file: str) -> Draft:
    """Drafts a manifest of an engine.

    Args:
        reading: of the engine.
        file: what findings call the draft.
    """
    fields = {one.name: one for one in (*BUILTIN, *_declared(reading))}
    left_out = {
        name: todo
        for name, one in reading.named().items()
        if (todo := _left_out(name, one, reading))
    }
    subjects = [
        Subject(name, one, one.cls, reading, fields, _common(one, reading))
        for name, one in reading.named().items()
        if name not in left_out and one.cls is not None
    ]
    entries = [draft_entry(one) for one in subjects]
    nodes = (
        Node("attnsel", 1),
        Node("name", reading.engine),
        Node("version", reading.version or "unknown"),
        Node("source", f"{called(reading)}, {PurePath(reading.source).name}"),
        *_fields(reading),
        Node("", "", (_unread(), *_silent(reading, fields))),
        Node("backends", Rows(entries) if entries else []),
        Node("", "", (*left_out.values(), *_operators(reading))),
    )
    head = (
        f"A draft of what was read of {called(reading)} for {reading.platform}; nothing of it ran.",
        "Each TODO is a finding of `attnsel extract`; `attnsel rule DRF201` explains one.",
    )
    text, found = write(head, nodes, file)
    return Draft(text, (*reading.findings, *found), len(entries))


def _declared(reading: EngineReading) -> Iterator[Field]:
    """Features that the engine has and the vocabulary lacks."""
    builtin = {one.name for one in BUILTIN}
    said = {name for one in reading.named().values() if one.cls for name in one.cls.attributes}
    for name, (attribute, _) in reading.vocabulary.features.items():
        if name not in builtin and attribute in said:
            yield Field(name, "boolean", "feature", f"What {attribute} is asked for.", off=False)


def _fields(reading: EngineReading) -> Iterator[Node]:
    declared = [*_declared(reading)]
    if declared:
        todo = Todo(
            NOT_DRAFTED,
            "",
            "fields",
            f"{listed([one.name for one in declared])}: if it follows from other fields, say so "
            "under `derive`",
        )
        forms = [
            Node(one.name, {"type": one.type, "role": one.role, "description": one.description})
            for one in declared
        ]
        yield Node("fields", Block(forms), (todo,))


def _unread() -> Todo:
    words = "not read; paths and phases below are the usual ones, and nothing is chosen yet"
    return Todo(NOT_DRAFTED, "", ", ".join(_UNREAD), words, Severity.NOTE)


def _silent(reading: EngineReading, fields: Mapping[str, Field]) -> Iterator[Todo]:
    """Features of which no class says anything: every entry refuses them."""
    said = {name for one in reading.named().values() if one.cls for name in one.cls.attributes}
    told = {field for field, (name, _) in reading.vocabulary.features.items() if name in said} | {
        "mla",
        "sparse",
    }
    silent = [one.name for one in fields.values() if one.role == "feature" and one.name not in told]
    if silent:
        words = f"no class says whether {listed(silent)} are supported, so every entry refuses them"
        yield Todo(NOT_KNOWN, "", "features", words, Severity.NOTE)


def _operators(reading: EngineReading) -> Iterator[Todo]:
    """Functions that declare what they can do; which of them make a backend, no registry says."""
    if reading.operators:
        names = listed([one.name for one in reading.operators if one.attention])
        words = f"write entries for them, and name them under `sources`: {names or 'none'}"
        yield Todo(LEFT_OUT, "", "operators", words)


def _left_out(name: str, backend: Backend, reading: EngineReading) -> Todo | None:
    """Why a backend has no entry."""
    if not backend.registered:
        words, severity = f"registers no class ({place_of(backend.at)})", Severity.NOTE
    elif backend.cls is None:
        words, severity = f"{backend.registered}: {problem_of(backend)}", Severity.WARNING
    elif not _NAME.fullmatch(name):
        words, severity = "its name is none that a manifest can hold", Severity.WARNING
    elif platform := other_platform(backend, reading.vocabulary.foreign):
        words = f"names another platform ({platform}) than the one that was read for"
        severity = Severity.NOTE
    else:
        return None
    return Todo(LEFT_OUT, "", name, words, severity)


def _common(backend: Backend, reading: EngineReading) -> frozenset[str]:
    """The classes that all backends of a registry share; what they define is nobody's own."""
    group = reading.prefill if any(one is backend for one in reading.prefill) else reading.backends
    return frozenset.intersection(*(frozenset(one.cls.mro) for one in group if one.cls is not None))
