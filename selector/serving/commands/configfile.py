"""The file of flags that ``--config`` names: read, laid before the words, overruled by them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from selector.fields import one_line
from selector.serving.commands.editing import change
from selector.serving.commands.errors import CommandError
from selector.serving.commands.flags import Flag, normalise, table
from selector.serving.commands.reading import Plain
from selector.serving.commands.scanning import Given, effective, scan
from selector.serving.commands.settling import gather
from selector.serving.commands.values import Note

__all__ = ["FileFlags", "named_file", "overrule", "read_config_file", "scan_config"]


def read_config_file(data: bytes, file: str) -> Mapping[str, Any]:
    """The keys and values of a YAML file, tags and merge keys refused.

    Args:
        data: what the file holds.
        file: what errors call it.

    Raises:
        CommandError: it is no mapping, too large, too deep, or holds what YAML versions read
            differently; says where.
    """
    from selector.document import read_text  # only this needs YAML

    if not data.strip():
        raise CommandError(f"{one_line(file)}: empty; write lines such as tensor-parallel-size: 2")
    document = read_text(data, file)
    if document.broken:
        found = next(f for f in document.findings if f.severity == "error")
        fix = f"; {found.fix}" if found.fix else ""
        where = f"{one_line(file)}:{found.line}:{found.column}"
        raise CommandError(f"{where}: {one_line(found.message)}{fix}")
    return document.tree or {}


class FileFlags(msgspec.Struct, frozen=True):
    """What a config file gives: flags, the model, and what to know."""

    given: tuple[Given, ...] = ()
    model: str | None = None
    notes: tuple[Note, ...] = ()


def scan_config(config: Mapping[str, Plain], file: str) -> FileFlags:
    """Reads the keys of a config file as flags.

    Raises:
        CommandError: a key can be several flags, or its value is not of the flag's kind.
    """
    given: list[Given] = []
    notes: list[Note] = []
    model: str | None = None
    for key, value in config.items():
        name, shown = f"--{key}", f"{one_line(file)}: {one_line(key)}"
        root = normalise(name)
        if root in ("--model", "--model-tag"):
            model = str(value)
        found = None if root == "--model-tag" else table().find(name)
        if found is None:
            hint = "; write model" if root == "--model-tag" else ""
            text = f"{shown} is no flag of vLLM {table().version}{hint}"
            notes.append(Note("unknown", one_line(key), text))
        elif root != "--model" and value not in ([], ()):
            raw = _raw(value, found.flag, found.negated, shown)
            if raw is not None:
                given.append(Given(found, raw, name, -1, "apart", file=one_line(file)))
    return FileFlags(tuple(given), model, tuple(notes))


def _raw(value: Plain, flag: Flag, negated: bool, shown: str) -> Plain:
    """What a flag is given; ``None`` for a switch that is left alone."""
    if isinstance(value, bool):
        if flag.takes in ("switch", "on"):
            leaves = not value and (negated or not flag.negations)
            return None if leaves else value != negated
        return str(value)
    if flag.takes in ("switch", "on"):
        raise CommandError(f"{shown} is {one_line(value)}, not true or false")
    if isinstance(value, list):
        if flag.takes != "many":
            raise CommandError(f"{shown} is a list, but takes one value")
        return [str(item) for item in value]
    if isinstance(value, Mapping):
        return json.dumps(value)
    return [str(value)] if flag.takes == "many" else str(value)


def named_file(given: Sequence[Given]) -> tuple[str | None, list[Note]]:
    """The config file that the words name, and what the engine says of how they do."""
    named = [one for one in given if one.action == "--config"]
    files = [one for one in named if one.form == "apart" and one.spelling == "--config"]
    notes = [
        Note(
            "dead",
            "--config",
            f"{one_line(one.spelling)}={one_line(one.raw)} is not read by the engine, which looks "
            f"for --config {one_line(one.raw)} in two words",
            one.position,
        )
        for one in named
        if one not in files
    ]
    if not files:
        return None, notes
    last = files[-1]
    file = str(last.raw)
    text = ""
    if len(files) > 1:
        text = f"--config is given {len(files)} times; the engine takes one file"
    elif not file.endswith((".yaml", ".yml")):
        text = f"--config {one_line(file)}: the engine takes names that end in .yaml or .yml"
    if text:
        notes.append(Note("contradiction", "--config", text, last.position))
    return file, notes


# -- changing what a file sets --------------------------------------------------------------------

_NONE = frozenset({"--kv-transfer-config", "--kv-offloading-size", "--quantization"})
"""Flags that take ``None`` for nothing."""


def overrule(
    argv: Sequence[str], start: int, from_file: Sequence[Given], field: str, value: Plain
) -> list[str]:
    """The words with a field set, by flags that overrule the config file where it sets the field.

    A structured flag replaces that of the file whole, so all that the file holds goes with it.

    Raises:
        CommandError: no flag sets the field so, or none undoes what the file says.
    """
    rows = [row for row in table().setters(field) if row.kind in ("flag", "key")]
    words, copied = list(argv), dict[str, str]()
    for root in dict.fromkeys(row.root for row in rows if row.kind == "key"):
        if winners := _of_file(from_file, words, start, root):
            copied[root] = json.dumps(gather(winners)[0] or {})
            words = _insert(words, start, [root, copied[root]])
    words = change(words, start, field, value)
    for root, text in copied.items():
        pairs = [n for n in range(start, len(words) - 1) if words[n : n + 2] == [root, text]]
        if pairs:  # it was left alone
            words = [*words[: pairs[0]], *words[pairs[0] + 2 :]]
        elif _of_file(from_file, words, start, root):
            words = _insert(words, start, [root, "{}"])
    for row in rows if value is None else ():
        if row.kind == "flag" and (winners := _of_file(from_file, words, start, row.root)):
            words = _insert(words, start, _undone(row, winners[-1]))
    return words


def _of_file(
    from_file: Sequence[Given], words: Sequence[str], start: int, root: str
) -> list[Given]:
    """What counts for a flag, where that stands in the file."""
    winners = effective((*from_file, *scan(words, start).given)).get(root, ([], []))[0]
    return winners if winners and winners[-1].file else []


def _insert(words: Sequence[str], start: int, more: Sequence[str]) -> list[str]:
    end = scan(words, start).end
    return [*words[:end], *more, *words[end:]]


def _undone(row: Flag, given: Given) -> list[str]:
    """The words after which a flag of the file sets nothing."""
    if "auto" in row.values or "backend" in row.sets.values():
        return [row.name, "auto"]
    if row.name.endswith("-parallel-size"):
        return [row.name, "1"]
    if row.negations:
        return [row.negations[0]]
    if row.name in _NONE:
        return [row.name, "None"]
    raise CommandError(f"{given.origin} cannot be undone by a flag; take it out of the file")
