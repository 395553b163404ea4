"""What was given for flags and variables → settings and notes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from selector.fields import one_line
from selector.serving.commands.errors import CommandError
from selector.serving.commands.flags import Flag, table
from selector.serving.commands.reading import KERNELS, Plain, fields_set, load_json, read_value
from selector.serving.commands.scanning import Given, Scan, effective
from selector.serving.commands.values import Note, Setting

__all__ = ["Settled", "edited_json", "gather", "settle"]

_NOTED = {"select", "prefill_path", "version", "layout", "start", "hook"}
_ADDING = {"--middleware"}
"""Flags that may stand several times."""

_DRAFT = "--speculative-config"
_SHORTCUTS = {
    "--spec-method": "method",
    "--spec-model": "model",
    "--spec-tokens": "num_speculative_tokens",
}
_DEEPEST = 20
_MOST_HINTS = 20
"""So many unknown flags are compared with the known ones, which takes a while."""


class Settled(msgspec.Struct, frozen=True):
    """What a command comes to."""

    settings: tuple[Setting, ...]
    notes: tuple[Note, ...]
    speculative: Mapping[str, Any] | None
    hf_overrides: Mapping[str, Any] | None
    model: str | None
    model_position: int


def settle(from_file: Sequence[Given], scanned: Scan, variables: Mapping[str, str]) -> Settled:
    """Gives what counts, in the order of the table of flags.

    Raises:
        CommandError: a value is not of its flag's type.
    """
    work = _Settling()
    model: tuple[str | None, int] = (None, -1)
    for action, (winners, losers) in effective((*from_file, *scanned.given)).items():
        if action == "--config":
            continue
        work.note_lost(action, winners, losers)
        last = winners[-1]
        if action == "--model":
            model = (str(last.raw), last.position)
        elif last.found.flag.kind != "other":
            work.add(action, winners)
    work.add_variables(variables)
    for index, (position, spelling) in enumerate(scanned.unknown):
        near = table().nearest(spelling) if index < _MOST_HINTS else None
        hint = f"; did you mean {near}?" if near else ""
        text = f"{one_line(spelling)} is no flag of vLLM {table().version}{hint}"
        work.notes.append(Note("unknown", one_line(spelling), text, position))
    return Settled(
        work.settings(),
        tuple(work.notes),
        work.speculative,
        work.hf_overrides,
        model[0],
        model[1],
    )


def gather(winners: Sequence[Given]) -> tuple[Plain, dict[str, Given]]:
    """The JSON of a structured flag, and which word each of its keys came from.

    Raises:
        CommandError: it is no JSON object.
    """
    last = winners[-1]
    if not last.found.path:
        flag = table().option(last.action)
        value = read_value(flag, last.raw, last.origin)
        return value, dict.fromkeys(value or {}, last)
    merged: dict[str, Plain] = {}
    for one in winners:
        if len(one.found.path) > _DEEPEST:
            raise CommandError(f"{one_line(one.spelling)} has more than {_DEEPEST} keys")
        value = _dotted_value(one)
        for key in reversed(one.found.path):
            value = {key: value}
        _merge(merged, value)
    return merged, {one.found.path[0]: one for one in winners}


def _dotted_value(one: Given) -> Plain:
    """What a dotted key holds: JSON, a number such as ``1k``, or else the text."""
    if one.joined:
        return str(one.raw).split(",")
    try:
        return load_json(str(one.raw), one.spelling)
    except CommandError:
        return one.raw


def _merge(into: dict[str, Plain], update: dict[str, Plain]) -> None:
    for key, value in update.items():
        old = into.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            _merge(old, value)
        elif isinstance(value, list) and isinstance(old, list):
            into[key] = [*old, *value]
        else:
            into[key] = value


class _Settling:
    """Settings and notes while they come in."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self.speculative: dict[str, Any] | None = None
        self.hf_overrides: Mapping[str, Any] | None = None
        self._set: dict[str, tuple[Setting, Flag]] = {}

    def settings(self) -> tuple[Setting, ...]:
        """All settings in the order of the table."""
        order = {flag.name: index for index, flag in enumerate(table().flags)}
        return tuple(
            setting for setting, flag in sorted(self._set.values(), key=lambda p: order[p[1].name])
        )

    def note_lost(self, action: str, winners: Sequence[Given], losers: Sequence[Given]) -> None:
        """Notes what does not count, after checking it as the engine does."""
        if action in _ADDING:
            return
        flag = table().option(action)
        for one in losers:
            if not one.found.path and _is_checked(flag):
                read_value(flag, one.raw, one.origin)
            last = winners[-1]
            text = f"{one_line(one.origin)} does not count: {one_line(last.origin)} comes after it"
            if last.found.path and last.group != one.group:  # a JSON is of no group
                text = (
                    f"{one_line(one.origin)} does not count: dotted keys spelled "
                    f"{one_line(last.group)} replace it whole"
                )
            self.notes.append(Note("overridden", action, text, one.position))
        seen: dict[tuple[str, ...], Given] = {}
        for one in winners:
            earlier = seen.get(one.found.path)
            if earlier is not None and one.found.path and not one.joined:
                text = f"{one_line(earlier.origin)} does not count: it is given again later"
                self.notes.append(Note("overridden", one_line(one.origin), text, earlier.position))
            seen[one.found.path] = one

    def add(self, action: str, winners: Sequence[Given]) -> None:
        """Adds what counts for one flag."""
        flag, last = table().option(action), winners[-1]
        self._note_status(flag, last.origin, last.position, last.raw is not False)
        if action in table().structured:
            self._add_keys(flag, *gather(winners))
        elif last.found.path:
            if flag.takes != "json":
                raise CommandError(f"{one_line(last.spelling)}: {flag.name} has no keys")
            value, _ = gather(winners)
            self._add_value(flag, value, last)
        elif _is_checked(flag):
            self._add_value(flag, read_value(flag, last.raw, last.origin), last)

    def _add_value(self, flag: Flag, value: Plain, given: Given) -> None:
        if flag.name == "--hf-overrides":
            self.hf_overrides = value
        if (key := _SHORTCUTS.get(flag.name)) and value is not None:
            self.speculative = {**(self.speculative or {})}
            self.speculative.setdefault(key, value)
        self._set_fields(flag, value, given.root, given.position)

    def _add_keys(self, flag: Flag, value: Plain, sources: Mapping[str, Given]) -> None:
        if value is None:
            return
        if flag.name == _DRAFT:
            value = {key.replace("-", "_"): held for key, held in value.items()}
            sources = {key.replace("-", "_"): given for key, given in sources.items()}
            self.speculative = {**value, **(self.speculative or {})}
        for key, held in value.items():
            given, row = sources[key], table().keys.get(f"{flag.name}.{key}")
            name = f"{flag.name}.{key}"
            if row is None:
                if flag.name != _DRAFT:  # not all keys of a drafter touch attention
                    text = f"{one_line(name)} is no key of vLLM {table().version}, which refuses it"
                    self.notes.append(Note("unknown", one_line(name), text, given.position))
                continue
            self._note_status(row, name, given.position, held is not None and held is not False)
            if row.status in ("live", "deprecated"):
                read = read_value(row, held, name)
                where = given.origin if given.found.path else name
                if given.file and not given.found.path:
                    where = f"{given.origin}.{key}"
                self._set_fields(row, read, where, given.position)

    def _set_fields(self, flag: Flag, value: Plain, origin: str, position: int) -> None:
        if "backend" in flag.sets.values() and str(value).upper() in KERNELS:
            text = f"{one_line(origin)} {value} chooses a kernel of MiniMax M3, and no backend"
            self.notes.append(Note("unmodelled", flag.name, text, position))
        for field, made in fields_set(flag, value).items():
            before = self._set.get(field)
            if before is None:
                self._set[field] = (Setting(field, made, origin, position), flag)
            elif flag.sets[field] != "given":
                text = (
                    f"{one_line(before[0].origin)} and {one_line(origin)} exclude each other; "
                    "keep one"
                )
                self.notes.append(Note("contradiction", flag.name, text, position))

    def _note_status(self, flag: Flag, origin: str, position: int, active: bool) -> None:
        """Notes a flag that does nothing, goes, or is not decided by here."""
        shown, instead = one_line(origin), f"; use {flag.replacement}" if flag.replacement else ""
        if flag.status == "dead":
            self.notes.append(
                Note("dead", flag.name, f"{shown}: {flag.effect.rstrip('.')}{instead}", position)
            )
        elif flag.status == "absent":
            self.notes.append(Note("unknown", flag.name, f"{shown}: {flag.effect}", position))
        elif flag.status == "deprecated":
            text = f"{shown} is an old spelling{instead}"
            self.notes.append(Note("deprecated", flag.name, text, position))
        if (
            active
            and flag.status in ("live", "deprecated")
            and not flag.sets
            and flag.stage in _NOTED
            and flag.name not in table().structured
        ):
            text = f"{shown} is not decided by here: {flag.effect}"
            self.notes.append(Note("unmodelled", flag.name, text, position))

    def add_variables(self, variables: Mapping[str, str]) -> None:
        """Adds what vLLM's variables set."""
        strict = (found := self._set.get("strict_variables")) is not None and found[0].value
        refusal = "; --fail-on-environ-validation makes that an error" if strict else ""
        for name, text in variables.items():
            row = table().variables.get(name)
            if row is None:
                if name.startswith("VLLM_") and name not in table().other_variables:
                    said = f"vLLM {table().version} knows no variable {one_line(name)}{refusal}"
                    self.notes.append(Note("unknown", one_line(name), said))
                continue
            count = len(self.notes)
            self._note_status(row, f"variable {name}", -1, True)
            if row.status == "dead" and refusal:
                note = self.notes[count]
                self.notes[count] = msgspec.structs.replace(note, text=note.text + refusal)
            if row.sets:
                where = f"variable {name}"
                self._set_fields(row, read_value(row, text, where), where, -1)


def _is_checked(flag: Flag) -> bool:
    """Whether a flag's value is read: those that set nothing may hold any JSON."""
    return flag.kind == "flag" and bool(flag.sets or flag.takes != "json")


def edited_json(text: str, where: str, key: str, value: Plain, *, remove: bool) -> str | None:
    """A JSON object with one key changed or taken out; ``None`` when nothing is left of it."""
    held = dict(load_json(text, where))
    if remove:
        held.pop(key, None)
    elif held.get(key, ...) == value and type(held[key]) is type(value):
        return text
    else:
        held[key] = value
    return json.dumps(held) if held else None
