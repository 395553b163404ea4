"""A line of a shell: into words, and into the commands that it chains. Nothing is run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from selector.fields import one_line
from selector.serving.commands.errors import CommandError
from selector.serving.commands.launch import find_serve

__all__ = ["split_line"]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BRACED = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)(?::?-([^{}]*))?\}")
_OPERATORS = (
    "&&",
    "||",
    ";;",
    "&>>",
    "&>",
    ">>",
    "<<",
    ">&",
    "<&",
    ">|",
    ";",
    "&",
    "|",
    "(",
    ")",
    "<",
    ">",
    "\n",
)
_REDIRECTIONS = {"&>>", "&>", ">>", "<<", ">&", "<&", ">|", "<", ">"}
_LONGEST = 1 << 20


def split_line(line: str) -> tuple[dict[str, str], list[str]]:
    r"""The serve command in a shell line: the variables set for it, and its words.

    Read are quotes, ``\`` at the end of a line, comments, ``VAR=value`` before the command,
    ``export VAR=value`` in a command before it (``;``, ``&&`` or a line of its own), and variables
    of the line where they are used. Wrappers (``env``, ``sudo``, ``docker run``) stay in the
    words; :func:`read_command` opens them. What follows the command (``| tee log``, ``> log``) is
    left out.

    Raises:
        CommandError: a quote has no end, the line holds no command, or several and none serves.
    """
    if len(line) > _LONGEST:
        raise CommandError(f"a line of {len(line):,} characters is too long; most are {_LONGEST:,}")
    known: dict[str, str] = {}
    exported: dict[str, str] = {}
    commands: list[tuple[dict[str, str], list[str]]] = []
    trouble: CommandError | None = None
    for words in _commands(line, known):
        if words[0].text == "export":
            for word in words[1:]:
                if found := _ASSIGNMENT.fullmatch(word.text):
                    known[found[1]] = exported[found[1]] = found[2]
                elif word.text in known:
                    exported[word.text] = known[word.text]
            continue
        own: dict[str, str] = {}
        while words and not words[0].quoted and (found := _ASSIGNMENT.fullmatch(words[0].text)):
            own[found[1]] = found[2]
            words = words[1:]
        if not words:
            known.update(own)
            exported.update({name: own[name] for name in own if name in exported})
            continue
        argv = [word.text for word in words]
        commands.append(({**exported, **own}, argv))
        try:
            if find_serve(argv) is not None:
                return commands[-1]
        except CommandError as error:  # vllm --version && vllm serve …
            trouble = trouble or error
    if trouble:
        raise trouble
    if len(commands) == 1:
        return commands[0]
    raise CommandError(
        f'"{one_line(line)}" holds {"no command" if not commands else "no serve command"}; '
        "write vllm serve MODEL and its flags"
    )


class _Word:
    """A word, and whether its beginning was quoted (an assignment's is not)."""

    __slots__ = ("quoted", "text")

    def __init__(self, text: str, quoted: bool) -> None:
        self.text, self.quoted = text, quoted


def _commands(line: str, known: Mapping[str, str]) -> Iterator[list[_Word]]:
    """The words of each command of a line, without redirections."""
    words: list[_Word] = []
    skip = False
    for token in _tokens(line, known):
        if isinstance(token, _Word):
            if not skip:
                words.append(token)
            skip = False
        elif token in _REDIRECTIONS:
            skip = True
        else:
            skip = False
            if words:
                yield words
            words = []
    if words:
        yield words


class _Reader:
    """Where reading stands, and the word being made."""

    def __init__(self, line: str, known: Mapping[str, str]) -> None:
        self.line, self.known, self.at = line, known, 0
        self.parts: list[str] = []
        self.started = self.quoted = False

    def add(self, text: str) -> None:
        self.parts.append(text)
        self.started = True

    def take(self) -> _Word | None:
        """The word so far, if one was begun."""
        word = _Word("".join(self.parts), self.quoted) if self.started else None
        self.parts, self.started, self.quoted = [], False, False
        return word

    def quote(self, mark: str) -> None:
        """Reads what is in quotes; the mark stands at the place."""
        self.quoted = self.quoted or not self.started
        self.add("")
        begin = self.at
        self.at += 1
        while self.at < len(self.line) and self.line[self.at] != mark:
            if mark == '"' and self.line[self.at] == "\\":
                self.escape('"\\$`\n')
            elif mark == '"' and self.line[self.at] == "$":
                self.expand()
            else:
                stop = re.compile(r'["\\$]' if mark == '"' else "'").search(self.line, self.at + 1)
                end = stop.start() if stop else len(self.line)
                self.add(self.line[self.at : end])
                self.at = end
        if self.at >= len(self.line):
            raise CommandError(
                f'"{one_line(self.line[begin:])}": the quote {mark} at character {begin + 1} has '
                "no end; close it"
            )
        self.at += 1

    def escape(self, special: str = "") -> None:
        """Reads a backslash and what follows it; a line's end is joined to the next."""
        follows = self.line[self.at + 1 : self.at + 2]
        if follows == "\r" and self.line[self.at + 2 : self.at + 3] == "\n":
            self.at += 3
            return
        self.at += 2
        if follows == "\n":
            return
        self.add(follows if not special or follows in special else "\\" + follows)

    def expand(self) -> None:
        """Reads ``$NAME`` and ``${NAME:-default}``; what is not known here stays as it is."""
        rest = _BRACED.match(self.line, self.at + 1) or _NAME.match(self.line, self.at + 1)
        if rest is None:
            self.add("$")
            self.at += 1
            return
        braced = rest.re is _BRACED
        name, default = (rest[1], rest[2]) if braced else (rest[0], None)
        value = self.known.get(name) or default
        self.add(f"${rest[0]}" if value is None else value)
        self.at = rest.end()


def _is_stream(word: _Word) -> bool:
    """Whether a word that a redirection touches is the number of its stream: ``2>&1``."""
    return word.text.isdecimal() and not word.quoted


def _tokens(line: str, known: Mapping[str, str]) -> Iterator[_Word | str]:
    """Words and operators in order."""
    reader = _Reader(line, known)
    while reader.at < len(line):
        char = line[reader.at]
        if char in "'\"":
            reader.quote(char)
        elif char == "\\":
            reader.escape()
        elif char == "$":
            reader.expand()
        elif char in " \t\r":
            reader.at += 1
            if word := reader.take():
                yield word
        elif char == "#" and not reader.started:
            end = line.find("\n", reader.at)
            reader.at = len(line) if end < 0 else end
        elif operator := next((o for o in _OPERATORS if line.startswith(o, reader.at)), None):
            reader.at += len(operator)
            word = reader.take()
            if word and not (operator in _REDIRECTIONS and _is_stream(word)):
                yield word
            yield operator
        else:
            reader.add(char)
            reader.at += 1
    if word := reader.take():
        yield word
