"""The words of a serve command as what was given for which flag, in the order of argparse."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from selector.fields import one_line
from selector.serving.commands.errors import CommandError
from selector.serving.commands.flags import Found, normalise, table
from selector.serving.commands.reading import Plain

__all__ = ["Given", "Scan", "effective", "scan"]

_NEGATIVE = re.compile(r"-[0-9]+|-[0-9]*\.[0-9]+")
Form = Literal["apart", "inline", "attached", "alone"]


class Given(msgspec.Struct, frozen=True):
    """One flag as it was given.

    Attributes:
        raw: its text; a list of them; ``True`` or ``False`` for a switch; ``None`` for nothing.
        spelling: as it was written, without its value.
        position: of the flag's word; -1 when it came from a config file.
        form: whether its value is a word of its own, stands behind ``=``, or is written on.
        words: how many words it took.
        joined: a dotted key with ``+``: words to a list.
        file: the config file it came from; empty for a word.
    """

    found: Found
    raw: Plain
    spelling: str
    position: int
    form: Form
    words: int = 1
    joined: bool = False
    file: str = ""

    @property
    def origin(self) -> str:
        """What a setting says it came from: the spelling, or ``FILE: key``."""
        return f"{self.file}: {self.spelling[2:]}" if self.file else self.spelling

    @property
    def root(self) -> str:
        """The same without the keys after the first dot."""
        spelling = self.spelling.partition(".")[0] if self.found.path else self.spelling
        return f"{self.file}: {spelling[2:]}" if self.file else spelling

    @property
    def action(self) -> str:
        """The name of the flag, or of the one that holds the key."""
        return self.found.flag.root

    @property
    def group(self) -> str:
        """The spelling under which dotted keys are gathered; empty for a plain flag."""
        return normalise(self.spelling).split(".", 1)[0] if self.found.path else ""


class Scan(msgspec.Struct, frozen=True):
    """All that was given: flags, words without a flag, and words that look like unknown flags."""

    given: tuple[Given, ...]
    words: tuple[tuple[int, str], ...]
    unknown: tuple[tuple[int, str], ...]
    end: int


def scan(argv: Sequence[str], start: int) -> Scan:
    """Reads words from ``start`` on.

    Raises:
        CommandError: a flag has no value, a switch has one, or a spelling can be several flags.
    """
    given: list[Given] = []
    words: list[tuple[int, str]] = []
    unknown: list[tuple[int, str]] = []
    at, end = start, len(argv)
    while at < end:
        word = argv[at]
        if word == "--":
            words.extend(enumerate(argv[at + 1 :], at + 1))
            end = at
            break
        if not _is_option(word):
            words.append((at, word))
            at += 1
            continue
        spelling, equals, text = word.partition("=")
        found = table().find(spelling)
        if found is None:
            unknown.append((at, spelling))
            at += 1
            if not equals and at < end and not _is_option(argv[at]):
                at += 1  # most flags take a word
            continue
        one = _read_one(argv, at, found, spelling, text if equals else None)
        given.append(one)
        at += one.words
    return Scan(tuple(given), tuple(words), tuple(unknown), end)


def _is_option(word: str) -> bool:
    if len(word) < 2 or not word.startswith("-") or word == "--":
        return False
    if _NEGATIVE.fullmatch(word):
        return False
    if " " not in word:
        return True
    spelling, equals, _ = word.partition("=")
    return bool(equals) and " " not in spelling and table().find(spelling) is not None


def _read_one(
    argv: Sequence[str], at: int, found: Found, spelling: str, inline: str | None
) -> Given:
    flag, shown = found.flag, one_line(spelling)
    if found.path:
        return _read_dotted(argv, at, found, spelling, inline)
    if flag.takes in ("switch", "on"):
        if inline is not None:
            raise CommandError(
                f"{shown} takes no value, but has {one_line(inline)!r}; write {shown} alone"
                + (f" or {flag.negations[0]}" if flag.negations else "")
            )
        return Given(found, not found.negated, spelling, at, "alone")
    if found.attached is not None:
        raw = found.attached + (f"={inline}" if inline is not None else "")
        return Given(found, raw, spelling[:2], at, "attached")
    if inline is not None:
        raw_inline = [inline] if flag.takes == "many" else inline
        return Given(found, raw_inline, spelling, at, "inline")
    most = len(argv) if flag.takes == "many" else at + 2
    last = at + 1
    while last < min(most, len(argv)) and not _is_option(argv[last]) and argv[last] != "--":
        last += 1
    if last == at + 1 and flag.takes != "optional":
        seen = f"{one_line(argv[last])} follows" if last < len(argv) else "the line ends"
        raise CommandError(
            f"{shown} has no value: {seen}; write {shown} VALUE, or {shown}=VALUE for one that "
            "begins with a dash"
        )
    values = list(argv[at + 1 : last])
    got: Plain = values if flag.takes == "many" else values[0] if values else None
    return Given(found, got, spelling, at, "apart", last - at)


def _read_dotted(
    argv: Sequence[str], at: int, found: Found, spelling: str, inline: str | None
) -> Given:
    if inline is None and at + 1 >= len(argv):
        raise CommandError(f"{one_line(spelling)} has no value: the line ends; write one after it")
    raw = argv[at + 1] if inline is None else inline
    form: Form = "apart" if inline is None else "inline"
    joined = found.path[-1].endswith("+")
    if joined:
        path = (*found.path[:-1], found.path[-1][:-1])
        flag = table().keys.get(f"{found.flag.root}.{path[0]}", found.flag)
        found = Found(flag, path=path)
    return Given(found, raw, spelling, at, form, 1 if inline is not None else 2, joined)


def effective(given: Iterable[Given]) -> dict[str, tuple[list[Given], list[Given]]]:
    """For each flag, what counts and what does not: the last counts, as in argparse.

    Dotted keys of one spelling count together, as if they were one JSON at the end of the line;
    so they replace a JSON, wherever it stands, and keys of another spelling given before.
    """
    plain: dict[str, list[Given]] = {}
    dotted: dict[str, dict[str, list[Given]]] = {}
    for one in given:
        if one.found.path:
            dotted.setdefault(one.action, {}).setdefault(one.group, []).append(one)
        else:
            plain.setdefault(one.action, []).append(one)
    result: dict[str, tuple[list[Given], list[Given]]] = {}
    for action in dict.fromkeys((*plain, *dotted)):
        rounds = [[one] for one in plain.get(action, [])]
        rounds.extend(dotted.get(action, {}).values())
        result[action] = (rounds[-1], [one for lost in rounds[:-1] for one in lost])
    return result
