"""Reads a vLLM serve command without running anything: what it sets, and what it cannot."""

from __future__ import annotations

from selector.serving.commands.command import Command, quoted, read_command
from selector.serving.commands.container import read_container
from selector.serving.commands.errors import CommandError
from selector.serving.commands.flags import table
from selector.serving.commands.shell import split_line

__all__ = [
    "Command",
    "CommandError",
    "quoted",
    "read_command",
    "read_container",
    "split_line",
    "table",
]
