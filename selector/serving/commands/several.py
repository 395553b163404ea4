"""Several serve commands: the words of a command line that holds them, the lines of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from selector.serving.commands.errors import CommandError
from selector.serving.commands.launch import find_serve
from selector.serving.commands.shell import split_line

__all__ = ["split_file", "split_words"]

_MOST_LINES = 10_000


def split_words(words: Sequence[str]) -> Iterator[tuple[dict[str, str], list[str]]]:
    """Yields each command between ``--``: the variables set for it, and its words.

    A wrapper's own ``--`` stays inside; one word with blanks is a whole line of a shell.

    Raises:
        CommandError: such a line holds no serve command.
    """
    for part in _parts(words):
        yield split_line(part[0]) if _is_line(part) else _assigned(part)


def _parts(words: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in words:
        if word != "--":
            part.append(word)
        elif not part or _is_line(part) or _serves(part):
            if part:
                yield part
            part = []
        else:
            part.append(word)
    if part:
        yield part


def _is_line(part: Sequence[str]) -> bool:
    return len(part) == 1 and " " in part[0]


def _serves(part: Sequence[str]) -> bool:
    try:
        return find_serve(_assigned(part)[1]) is not None
    except CommandError:
        return True


def _assigned(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The variables before the first word that sets none, and the words from there on."""
    variables: dict[str, str] = {}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not equals or not name.isidentifier():
            return variables, list(words[index:])
        variables[name] = value
    return variables, []


def split_file(text: str) -> Iterator[tuple[int, str]]:
    """Yields each line that holds a command, with its number; comments are passed by.

    A backslash at the end of a line continues it; the number is that of the first.

    Raises:
        CommandError: there are too many lines.
    """
    lines = text.splitlines()
    if len(lines) > _MOST_LINES:
        raise CommandError(f"{len(lines):,} lines are too many; at most {_MOST_LINES:,}")
    started, held = 0, ""
    for number, one in enumerate(lines, 1):
        if not held:
            started = number
        if one.endswith("\\") and not one.lstrip().startswith("#"):
            held += one[:-1] + " "
            continue
        whole, held = held + one, ""
        if whole.strip() and not whole.lstrip().startswith("#"):
            yield started, whole
    if held.strip():
        yield started, held
