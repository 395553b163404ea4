"""A command without a key of a structured flag that its engine refuses."""

from __future__ import annotations

from selector.serving.commands.command import Command
from selector.serving.commands.reading import load_json
from selector.serving.commands.scanning import Given, scan
from selector.serving.commands.settling import edited_json

__all__ = ["without_key"]


def without_key(command: Command, name: str) -> Command:
    """The command read again without a key, spelled ``--flag.key``, wherever it stands.

    Raises:
        CommandError: what is left cannot be read.
    """
    root, _, key = name.partition(".")
    words = list(command.argv)
    for one in reversed(scan(words, command.start).given):
        if one.action == root:
            words = _without(words, one, key)
    return command.again(words)


def _without(words: list[str], one: Given, key: str) -> list[str]:
    before, after = words[: one.position], words[one.position + one.words :]
    if one.found.path:
        return [*before, *after] if one.found.path[0] == key else words
    if not isinstance(load_json(str(one.raw), one.origin), dict):
        return words  # what comes later replaces it
    left = edited_json(str(one.raw), one.origin, key, None, remove=True)
    return [*before, *([] if left is None else [f"{one.spelling}={left}"]), *after]
