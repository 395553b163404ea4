"""Reads a vLLM serve command without running anything: what it sets, and what it cannot."""

from __future__ import annotations

from selector.serving.commands.command import Command, quoted, read_command
from selector.serving.commands.container import read_container
from selector.serving.commands.errors import CommandError
from selector.serving.commands.flags import Flag, Found, Table, find_flag, table
from selector.serving.commands.shell import split_line
from selector.serving.commands.values import Note, NoteKind, Setting

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
