"""What is read from a serve command: settings and notes."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["Note", "NoteKind", "Setting"]

NoteKind = Literal["dead", "deprecated", "unknown", "unmodelled", "overridden", "contradiction"]


class Setting(msgspec.Struct, frozen=True):
    """One field that a command sets.

    Attributes:
        field: of the manifest, or of the deployment (``max_model_len``, ``draft_model``, …).
        value: plain data.
        origin: the spelling that set it, ``variable NAME``, or ``FILE: key`` of a config file.
        position: of that word; -1 for a variable or a config file.
    """

    field: str
    value: Any
    origin: str
    position: int = -1


class Note(msgspec.Struct, frozen=True):
    """Something to know of a command.

    Attributes:
        kind: ``dead`` (does nothing, or is refused), ``deprecated``, ``unknown``, ``unmodelled``
            (it touches attention, but nothing here decides by it), ``overridden`` (given again
            later), ``contradiction`` (vLLM refuses both together, or a word of no flag).
        flag: its name.
        text: one line.
        position: of the word; -1 for a variable or a config file.
    """

    kind: NoteKind
    flag: str
    text: str
    position: int = -1
