"""The words of a command with one setting changed, and every other word as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from selector.fields import one_line
from selector.serving.commands.errors import CommandError
from selector.serving.commands.flags import Flag, names_of, table
from selector.serving.commands.reading import Plain, fields_set, load_json, read_value, write_value
from selector.serving.commands.scanning import Given, effective, scan
from selector.serving.commands.settling import edited_json, gather

__all__ = ["change", "without_key"]


def change(argv: Sequence[str], start: int, field: str, value: Any) -> list[str]:
    """The words with ``field`` set to ``value``; ``None`` takes its flags away.

    Where the field is set already, that place is changed, and other flags that set it too, which
    the engine would refuse, are taken out. Else a flag is added at the end.

    Raises:
        CommandError: no flag sets the field, or not to that value.
    """
    rows = [row for row in table().setters(field) if row.kind in ("flag", "key")]
    if not rows:
        others = table().setters(field)
        raise CommandError(
            f"{one_line(field)} is set by the variable {names_of(others)} and by no flag; "
            "set the variable"
            if others
            else f"no flag sets {one_line(field)}"
        )
    words = list(argv)
    target = next((row for row in rows if _spots(words, start, row)), None)
    chosen = target or next((r for r in rows if r.sets[field] != "given"), rows[0])
    raw = None if value is None else write_value(chosen, field, value)
    holds = target is not None and raw is not None and _holds(words, start, target, field, value)
    for row in rows:
        if row is not chosen or raw is None:
            words = _take_out(words, start, row)
    return words if raw is None or holds else _put(words, start, chosen, raw)


def without_key(argv: Sequence[str], start: int, name: str) -> list[str]:
    """The words without a key, spelled ``--flag.key``, that the engine does not have.

    Raises:
        CommandError: the flag's JSON cannot be read.
    """
    root, _, key = name.partition(".")
    words = list(argv)
    for one in reversed(scan(words, start).given):
        if one.action == root:
            words = _without_key(words, one, key)
    return words


def _without_key(words: list[str], one: Given, key: str) -> list[str]:
    if one.found.path:
        return _without(words, one) if one.found.path[0] == key else words
    if not isinstance(load_json(str(one.raw), one.origin), dict):
        return words  # what comes later replaces it
    left = edited_json(str(one.raw), one.origin, key, None, remove=True)
    if left is None:
        return _without(words, one)
    return _replace(words, one, table().option(one.action), left)


def _counting(words: Sequence[str], start: int, row: Flag) -> list[Given]:
    """What counts for a flag, or for the flag that holds a key."""
    return effective(scan(words, start).given).get(row.root, ([], []))[0]


def _spots(words: Sequence[str], start: int, row: Flag) -> list[Given]:
    """The words that set a row and count."""
    winners = _counting(words, start, row)
    if row.kind != "key" or not winners:
        return winners
    held, sources = gather(winners)
    named = {key.replace("-", "_"): key for key in held or {}}
    if row.key not in named:
        return []
    key = named[row.key]
    if not sources[key].found.path:
        return [sources[key]]
    return [one for one in winners if one.found.path[0] == key]


def _holds(words: Sequence[str], start: int, row: Flag, field: str, value: Any) -> bool:
    """Whether a row sets the field to the value already."""
    winners = _counting(words, start, row)
    if row.kind == "key" or winners[-1].found.path:
        held, _ = gather(winners)
        if row.kind == "key":
            held = {key.replace("-", "_"): item for key, item in held.items()}[row.key]
    else:
        held = winners[-1].raw
    return bool(fields_set(row, read_value(row, held, row.name)).get(field) == value)


def _take_out(words: list[str], start: int, row: Flag) -> list[str]:
    """The words without a flag, however often it is given."""
    while True:
        given = scan(words, start).given
        found = next((one for one in given if _sets(one, row)), None)
        if found is None:
            return words
        if row.kind == "key" and not found.found.path:
            words = _edit(words, found, row, None, remove=True)
        else:
            words = _without(words, found)


def _sets(one: Given, row: Flag) -> bool:
    if one.action != row.root:
        return False
    if row.kind != "key":
        return True
    if one.found.path:
        return one.found.path[0].replace("-", "_") == row.key
    held = load_json(str(one.raw), one.origin) if one.raw not in ("", "None") else None
    return isinstance(held, dict) and any(key.replace("-", "_") == row.key for key in held)


def _without(words: list[str], one: Given) -> list[str]:
    return words[: one.position] + words[one.position + one.words :]


def _put(words: list[str], start: int, row: Flag, raw: Plain) -> list[str]:
    """The words with a flag given that text: in place where it counts, else at the end."""
    spots = _spots(words, start, row)
    if spots and row.kind == "key" and not spots[-1].found.path:
        return _edit(words, spots[-1], row, raw)
    if spots and row.kind != "key" and spots[-1].found.path:  # keys of a flag that has no rows
        words = _take_out(words, start, row)
    elif spots and row.kind != "key":
        return _replace(words, spots[-1], row, raw)
    elif spots:
        for one in reversed(spots[:-1]):  # parts of one value
            words = _without(words, one)
        last = _spots(words, start, row)[-1]
        if len(last.found.path) == 1 and not last.joined:
            return _replace(words, last, row, raw)
        name = f"{last.spelling.split('.', 1)[0]}.{row.key}"
        before, after = words[: last.position], words[last.position + last.words :]
        return [*before, *_written(name, row, raw), *after]
    holders = _counting(words, start, row) if row.kind == "key" else []
    name = row.name
    if holders and not holders[-1].found.path:
        return _edit(words, holders[-1], row, raw)
    if holders:
        name = f"{holders[-1].spelling.split('.', 1)[0]}.{row.key}"
    end = scan(words, start).end
    return [*words[:end], *_written(name, row, raw), *words[end:]]


def _written(name: str, row: Flag, raw: Plain) -> list[str]:
    if isinstance(raw, bool) and row.takes in ("switch", "on"):
        return [name if raw else row.negations[0]]
    if isinstance(raw, list):
        return [name, *raw]
    return [f"{name}={raw}"] if str(raw).startswith("-") else [name, str(raw)]


def _replace(words: list[str], one: Given, row: Flag, raw: Plain) -> list[str]:
    """The words with the value of one flag replaced in the form it has."""
    before, after = words[: one.position], words[one.position + one.words :]
    if isinstance(raw, bool):
        same = one.raw is raw
        return words if same else [*before, *_written(row.name, row, raw), *after]
    if isinstance(raw, list):
        same = one.raw == raw
        return words if same else [*before, *_written(one.spelling, row, raw), *after]
    if one.form == "attached":
        return [*before, f"{one.spelling}{raw}", *after]
    if one.form == "inline":
        return [*before, f"{one.spelling}={raw}", *after]
    if str(raw).startswith("-"):
        return [*before, f"{one.spelling}={raw}", *after]
    return [*before, words[one.position], str(raw), *after]


def _edit(
    words: list[str], one: Given, row: Flag, raw: Plain, *, remove: bool = False
) -> list[str]:
    """The words with one key changed inside the JSON of a flag."""
    text = "{}" if one.raw in ("", "None") else str(one.raw)
    held = load_json(text, one.origin)
    key = next((k for k in held if k.replace("-", "_") == row.key), row.key)
    value = raw if raw is None or row.takes == "text" else load_json(raw, row.name)
    edited = edited_json(text, one.origin, key, value, remove=remove)
    if edited is None:
        return _without(words, one)
    return _replace(words, one, table().option(row.root), edited)
