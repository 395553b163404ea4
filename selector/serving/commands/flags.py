"""The flags, keys and variables of a serve command: how they are spelled and what they set.

``flags.json`` lists, for one version of the engine, everything that touches attention (``flags``)
and the spellings of the rest (``others``), without which nobody could tell a value from a model.

A row's ``sets`` says which field it becomes, and how:

================  ==============================================================================
``value``         the value itself
``above_one``     whether it is more than 1
``given``         true: that it is there at all counts
``backend``       a backend's name in capitals; ``auto`` sets nothing
``dtype``         an element type in its common spelling
``use_or_avoid``  ``use`` for true, ``avoid`` for false
``bit``           a boolean from 0 or 1
``off``           false, when the flag is on; else nothing
``unset``         the symbol ``unset``, when the flag is on; else nothing
================  ==============================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from selector.fields import close_matches, one_line
from selector.serving.commands.errors import CommandError

__all__ = ["Flag", "Found", "Table", "names_of", "normalise", "table"]

Kind = Literal["flag", "key", "variable", "config", "other"]
Status = Literal["live", "dead", "deprecated", "absent"]

_INVERSE = {"--enable-": "--disable-", "--disable-": "--enable-"}


class Flag(msgspec.Struct, frozen=True):
    """One flag, structured key, variable, or key of a ``config.json``.

    Attributes:
        takes: ``text``, ``integer``, ``number``, ``size`` (``4k``), ``size_or_auto``, ``json``,
            ``many`` words, ``optional`` word, ``switch`` (has a negation), ``on`` (has none),
            ``boolean`` (a key's true or false), ``bit`` (a variable's 0 or 1).
        stage: where it matters: ``select``, ``prefill_path``, ``version``, ``layout``, ``start``,
            ``tune``, ``hook``; ``None`` where it does not.
        sets: field → how, see the module.
        low: the least integer, if there is one.
    """

    name: str
    kind: Kind
    effect: str = ""
    takes: str = "text"
    aliases: tuple[str, ...] = ()
    dest: str | None = None
    status: Status = "live"
    replacement: str | None = None
    stage: str | None = None
    sets: Mapping[str, str] = MappingProxyType({})
    values: tuple[str, ...] = ()
    low: int | None = None

    @property
    def spellings(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return (self.name, *self.aliases)

    @property
    def negations(self) -> tuple[str, ...]:
        """The spellings that switch it off; the first is the one to write."""
        if self.takes != "switch":
            return ()
        long = [name for name in self.spellings if name.startswith("--")]
        inverses = [
            inverse + name.removeprefix(prefix)
            for name in long
            for prefix, inverse in _INVERSE.items()
            if name.startswith(prefix)
        ]
        return (*inverses, *(f"--no-{name[2:]}" for name in long))

    @property
    def root(self) -> str:
        """For a key, the flag that it belongs to; else the name."""
        return self.name.split(".", 1)[0] if self.kind == "key" else self.name

    @property
    def key(self) -> str:
        """For a key, its name inside the JSON."""
        return self.name.split(".", 1)[1] if self.kind == "key" else ""


class Found(NamedTuple):
    """What a spelling means.

    Attributes:
        negated: it switches the flag off.
        attached: a value written onto a short flag: ``fp8`` of ``-qfp8``.
        path: the keys after the dots, for a structured flag.
    """

    flag: Flag
    negated: bool = False
    attached: str | None = None
    path: tuple[str, ...] = ()


class Table:
    """All flags of one version of an engine; ``options`` has them by spelling."""

    def __init__(self, text: str | bytes) -> None:
        data = json.loads(text)
        self.engine = str(data["engine"])
        self.version = str(data["version"])
        self.flags: tuple[Flag, ...] = msgspec.convert(data["flags"], tuple[Flag, ...])
        self.variables = {f.name: f for f in self.flags if f.kind == "variable"}
        self.other_variables = frozenset(data["other_variables"])
        self.keys = {f.name: f for f in self.flags if f.kind == "key"}
        self.structured = frozenset(key.root for key in self.keys.values())
        others = [
            Flag(names[0], "other", takes=takes, aliases=tuple(names[1:]))
            for takes, lines in data["others"].items()
            for names in (line.split() for line in lines)
        ]
        self.options: dict[str, Found] = {}
        for flag in (*(f for f in self.flags if f.kind == "flag"), *others):
            for name in flag.spellings:
                self.options[name] = Found(flag)
            for name in flag.negations:
                self.options.setdefault(name, Found(flag, negated=True))

    def option(self, name: str) -> Flag:
        """The flag with that name; raises ``KeyError`` for what is none."""
        return self.options[name].flag

    def setters(self, field: str) -> tuple[Flag, ...]:
        """Every row that sets a field, as the table lists them."""
        return tuple(flag for flag in self.flags if field in flag.sets)

    def flag_of(self, field: str) -> Flag | None:
        """The flag that takes a field's value as it is; ``None`` when none does."""
        plain = ("value", "dtype", "backend")
        rows = (row for row in self.setters(field) if row.kind == "flag")
        return next((row for row in rows if row.sets[field] in plain), None)

    def find(self, spelling: str) -> Found | None:
        """What a spelling means; ``None`` for one of no flag.

        Underscores are dashes, and a unique beginning will do, as in the engine's own parser.

        Raises:
            CommandError: the spelling is the beginning of several flags.
        """
        name = normalise(spelling)
        if "." in name:
            root, *path = name.split(".")
            found = self.find(root)
            if found is None or found.negated or found.attached is not None:
                return None
            flag = self.keys.get(f"{found.flag.name}.{path[0]}", found.flag)
            return Found(flag, path=tuple(path))
        if name in self.options:
            return self.options[name]
        if len(name) < 2 or not name.startswith("-") or name == "--":
            return None
        if not name.startswith("--") and name[:2] in self.options:
            return self.options[name[:2]]._replace(attached=name[2:])
        matches = [known for known in self.options if known.startswith(name)]
        meanings = {(self.options[m].flag.name, self.options[m].negated) for m in matches}
        if len(meanings) > 1:
            shown = ", ".join(sorted(matches)[:4])
            raise CommandError(
                f"{one_line(spelling)} can be {shown}{', …' if len(matches) > 4 else ''}; "
                "write it in full"
            )
        return self.options[matches[0]] if matches else None

    def nearest(self, spelling: str) -> str | None:
        """The known spelling closest to an unknown one, if any is close."""
        near = close_matches(normalise(spelling)[:80], self.options, 0.8)
        return near[0] if near else None


def normalise(spelling: str) -> str:
    """A spelling as the engine looks it up: dashes for underscores before the first dot."""
    if not spelling.startswith("--"):
        return spelling
    head, dot, tail = spelling.partition(".")
    return head.replace("_", "-") + dot + tail


@cache
def table() -> Table:
    """The table of vLLM 0.33.0, read once from the file beside this module."""
    return Table(Path(__file__).with_name("flags.json").read_bytes())


def names_of(flags: Iterable[Flag]) -> str:
    """The names of flags, for a message."""
    return ", ".join(flag.name for flag in flags)
