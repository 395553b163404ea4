"""Reads a vLLM serve command without running anything: what it sets, and what it cannot."""

from __future__ import annotations

from selector.serving.command import Command, quoted, read_command
from selector.serving.container import read_container
from selector.serving.errors import CommandError
from selector.serving.flags import Flag, Found, Table, find_flag, table
from selector.serving.shell import split_line
from selector.serving.values import Note, NoteKind, Setting

__all__ = [
    "Command",
    "CommandError",
    "Flag",
    "Found",
    "Note",
    "NoteKind",
    "Setting",
    "Table",
    "find_flag",
    "quoted",
    "read_command",
    "read_container",
    "split_line",
    "table",
]
