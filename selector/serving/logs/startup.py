"""What an engine's log says at its start: version, GPU, model, and the command it was given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from selector.fields import one_line
from selector.serving.commands.command import Command, read_command
from selector.serving.commands.errors import CommandError
from selector.serving.commands.flags import table
from selector.serving.commands.shell import split_line
from selector.serving.logs.lines import Line
from selector.serving.logs.literal import one_blank, read_data, read_pairs

__all__ = ["Startup", "Stated", "Told", "is_of_startup"]


class Told(msgspec.Struct, frozen=True):
    """A text that the log says, and the line it was read at."""

    text: str
    line: int


class Stated(msgspec.Struct, frozen=True):
    """A setting that the log shows.

    Attributes:
        value: as :class:`selector.serving.commands.values.Setting` holds it.
        origin: the spelling that set it.
        line: where.
    """

    value: Any
    origin: str
    line: int


_SIGNS = (
    "ersion",
    "LLM engine",
    "vllm==",
    "vllm ==",
    "vllm serve",
    "vllm.entrypoints.openai.api_server",
    "docker run",
    "podman run",
    "vllm-openai:v",
    "NVIDIA",
    "GeForce",
    "Tesla",
    "Instinct",
    "RTX",
    "device_name=",
    "apability",
    "sm_",
    "load model",
)
"""What a line must hold before it is looked at closely."""

_LONGEST_COMMAND = 16_384
_MOST_OF_COMMANDS = 65_536
_MOST_UNREAD = 20
_MOST_STATEMENTS = 64

_VERSIONS = (
    re.compile(r"vLLM API server version\s+v?([0-9][\w.+!-]{0,80})"),
    re.compile(r"an?\s+(?:V\d\s+)?LLM\s+engine\s+\(v([0-9][\w.+!-]{0,80})\)"),
    re.compile(r"V\d\s+LLM\s+engine\s+\(v([0-9][\w.+!-]{0,80})\)"),
    re.compile(r"[▀▄█]\s{1,20}version\s{1,20}v?([0-9][\w.+!-]{0,80})"),
    re.compile(r"vLLM [Vv]ersion\s{0,20}[:=]?\s{0,20}v?([0-9][\w.+!-]{0,80})"),
    re.compile(r"\bvllm\s?==\s?([0-9][\w.+!-]{0,80})"),
    re.compile(r"vllm/vllm-openai:v([0-9][\w.+!-]{0,80})"),
)
"""The surest first."""

_MODELS = (
    re.compile(r"with\s+config:\s+model='([^']{1,300})'"),
    re.compile(r"[▀▄█]\s{1,20}model\s{1,20}(\S{1,300})"),
    re.compile(r"[Ss]tarting\s+to\s+load\s+model\s+(\S{1,300}?)\.{0,3}(?:\s|$)"),
)
_OF_GPU = (
    r"(?:GeForce|RTX|GTX|TITAN|Titan|Tesla|Quadro|Instinct|Radeon|Jetson|AGX|Orin|Thor|Ada|PRO|Pro"
    r"|Blackwell|Laptop|GPU|Server|Workstation|Max-Q|Edition|Generation|SUPER|Super|Ti|D|SFF|PCIe"
    r"|PCIE|NVL|SXM\d?|HBM\d\w?|[A-Z]{1,3}\d{1,4}[A-Za-z]{0,2}(?:-\w{1,8}){0,3}|\d{2,5}(?:GB|G)?)"
)
_PRODUCTS = (
    re.compile(rf"(?:NVIDIA|AMD)(?:[ _]{_OF_GPU}(?![A-Za-z0-9]|\.\d)){{1,8}}"),
    re.compile(rf"\b(?:GeForce|RTX|GTX|Tesla|Instinct)(?: {_OF_GPU}(?![A-Za-z0-9]|\.\d)){{1,8}}"),
)
_CAPABILITIES = (
    re.compile(r"CUDA\s+capability\s+(sm_\d{2,3}[af]?)\b"),
    re.compile(r"DeviceCapability\(major=(\d{1,2}),\s*minor=(\d{1,2})\)"),
    re.compile(r"has\s+compute\s+capability\s+(\d{1,2}\.\d)\b"),
    re.compile(r"[Cc]ompute [Cc]apability\s{0,10}[:=(]?\s{0,10}(\d{1,2}\.\d)\b(?!\.x)"),
    re.compile(r"\b(sm_\d{2,3}[af]?)\b"),
)
_COMMAND = re.compile(
    r"\b(?:vllm\s+serve|vllm\.entrypoints\.openai\.api_server|(?:docker|podman)\s+run)\s"
)
_VARIABLES = re.compile(r"(?:\b(?:VLLM|CUDA|FLASHINFER)_[A-Z0-9_]{1,80}=\S{1,300}\s+)+")
_FORMERLY = {"VLLM_ATTENTION_BACKEND": "backend"}
"""Variables that set a field in versions before those of the table of flags."""


def is_of_startup(raw: str) -> bool:
    """Whether a line may say something of the start; cheap, since it is asked of every line."""
    return any(sign in raw for sign in _SIGNS)


class Startup:
    """Collects what lines say of the start; of several statements it keeps the surest."""

    def __init__(self) -> None:
        self.unread: list[Told] = []
        self.shows_command = False
        self._found: dict[str, tuple[int, Told]] = {}
        self._settings: dict[str, tuple[int, Stated]] = {}
        self._command: list[str] = []
        self._command_line = 0
        self._command_size = 0
        self._statements = 0

    @property
    def version(self) -> Told | None:
        """The engine's own version."""
        return self._get("version")

    @property
    def model(self) -> Told | None:
        """The model's name or path."""
        return self._get("model")

    @property
    def gpu(self) -> Told | None:
        """The product's name, else the compute capability."""
        return self._get("product") or self._get("capability")

    @property
    def capability(self) -> Told | None:
        """The compute capability."""
        return self._get("capability")

    @property
    def settings(self) -> dict[str, Stated]:
        """What was set, by field."""
        return {name: stated for name, (_, stated) in self._settings.items()}

    @property
    def goes_on(self) -> bool:
        """Whether a command goes on in the next line."""
        return bool(self._command)

    def read_line(self, line: Line, before: Line | None = None) -> None:
        """Reads one line; the one before it may hold the first half of a statement."""
        if self._command:
            self._read_command(line.text)
        head = before.text if before else ""
        text = f"{head} {line.text}" if head else line.text
        self._read_patterns("version", _VERSIONS, text, len(head), line, before)
        self._read_patterns("model", _MODELS, text, len(head), line, before)
        self._read_patterns("product", _PRODUCTS, text, len(head), line, before)
        self._read_patterns("capability", _CAPABILITIES, text, len(head), line, before)
        if self._command or self._command_size > _MOST_OF_COMMANDS:
            return
        if found := _COMMAND.search(line.text):
            self._command_line = line.number
            self._read_command(_from_variables(line.text, found))

    def read_arguments(self, text: str, line: int) -> None:
        """Reads what ``non-default args: {…}`` or ``args: Namespace(…)`` hold, each by itself.

        Every process may say it once; what is said first counts.
        """
        self.shows_command = True
        if self._is_enough():
            return
        for name, told in read_pairs(text, deepest=0).items():
            value = read_data(told)
            if value is None:
                continue
            if name in ("model", "model_tag"):
                rank = 0 if name == "model" else 1
                self._keep("model", rank, Told(one_blank(str(value)), line))
            try:
                self._set_all(
                    read_command(["vllm", "serve", "model", *_words_of(name, value)]), 0, line
                )
            except CommandError as error:
                self._leave(str(error), line)

    def close(self) -> None:
        """Reads the command that the end of the log cut off."""
        if self._command:
            self._finish_command()

    def _get(self, name: str) -> Told | None:
        found = self._found.get(name)
        return found[1] if found else None

    def _keep(self, name: str, rank: int, told: Told) -> None:
        if name not in self._found or rank < self._found[name][0]:
            self._found[name] = (rank, told)

    def _is_enough(self) -> bool:
        """Counts a statement of settings; a log has one of each process, and sentences."""
        self._statements += 1
        return self._statements > _MOST_STATEMENTS

    def _leave(self, text: str, line: int) -> None:
        told = Told(one_line(text), line)
        if len(self.unread) < _MOST_UNREAD and told not in self.unread:
            self.unread.append(told)

    def _set_all(self, command: Command, rank: int, line: int) -> None:
        """Keeps what a command sets, unless something surer has said it."""
        for field, value, origin in _settings_of(command):
            if field not in self._settings or rank < self._settings[field][0]:
                self._settings[field] = (rank, Stated(value, origin, line))

    def _read_patterns(
        self,
        name: str,
        patterns: tuple[re.Pattern[str], ...],
        text: str,
        head: int,
        line: Line,
        before: Line | None,
    ) -> None:
        best = self._found[name][0] if name in self._found else len(patterns) + 2
        for rank, pattern in enumerate(patterns, start=2):
            if rank >= best:
                return
            found = pattern.search(text)
            if not found:
                continue
            told = _read_told(name, found, text)
            if told:
                early = before is not None and found.start() < head
                self._found[name] = (rank, Told(told, before.number if early else line.number))  # type: ignore[union-attr]
                return

    def _read_command(self, text: str) -> None:
        """Takes a line of a command, and reads it whole unless it goes on in the next."""
        self._command.append(text[:_LONGEST_COMMAND])
        size = sum(map(len, self._command))
        if not self._command[-1].endswith("\\") or size > _LONGEST_COMMAND:
            self._finish_command()

    def _finish_command(self) -> None:
        text = "\n".join(self._command).rstrip("\\")
        self._command = []
        self._command_size += len(text)
        if self._is_enough() or self._command_size > _MOST_OF_COMMANDS:
            return
        try:
            variables, words = split_line(text)
            command = read_command(words, variables)
        except CommandError as error:
            if " -" in text and "vllm" in text:  # else a sentence, or another program
                self._leave(f"the command is not read: {error}", self._command_line)
            return
        given = command.argv[command.start :]
        first = next((i for i, word in enumerate(given) if word.startswith("-")), len(given))
        if first > 1 or (first == len(given) and "/" not in text):
            return  # a sentence too
        self.shows_command = True
        if command.model is not None:
            self._keep("model", 5, Told(command.model, self._command_line))
        self._set_all(command, 1, self._command_line)


def _from_variables(text: str, found: re.Match[str]) -> str:
    """The command in a line with the variables right before it, up to a backtick."""
    before, told = text[: found.start()][-4000:], text[found.start() :].partition("`")[0]
    if told.startswith("vllm."):  # the module
        before = re.sub(r"\S*python\S* (?:-\w )?$", "", before)
        told = f"python -m {told}"
    set_there = [m[0] for m in _VARIABLES.finditer(before) if m.end() == len(before)]
    return "".join(set_there) + told


def _words_of(name: str, value: Any) -> list[str]:
    """An argument as the words of a command; none for one that does not touch attention."""
    spelling = f"--{name.replace('_', '-')}"
    found = table().options.get(spelling)
    if found is None or found.flag.kind != "flag":
        return []
    if found.flag.takes in ("switch", "on"):
        off = next(iter(found.flag.negations), None)
        return [spelling] if value is True else [off] if value is False and off else []
    if isinstance(value, list):
        return [spelling, *map(str, value)]
    return [f"{spelling}={json.dumps(value) if isinstance(value, dict) else value}"]


def _settings_of(command: Command) -> Iterator[tuple[str, Any, str]]:
    """Yields what a command sets, and the spelling that does."""
    for setting in command.settings:
        yield setting.field, setting.value, setting.origin
    for name, field in _FORMERLY.items():
        if command.setting(field) is None and command.variables.get(name):
            yield field, command.variables[name], f"variable {name}"


def _read_told(name: str, found: re.Match[str], text: str) -> str | None:
    """The text that a match stands for; ``None`` when it says nothing after all."""
    if name == "product":
        told = one_blank(found[0].replace("_", " ")).removesuffix(" GPU")
        return told if any(c.isdigit() for c in told) or "Thor" in told or "Orin" in told else None
    if name != "capability":
        return found[1].rstrip(".,-")
    if found.lastindex == 2:
        return f"{found[1]}.{found[2]}"
    if found[1].startswith("sm_"):
        if len(set(_CAPABILITIES[-1].findall(text))) > 1 and "CUDA" not in found[0]:
            return None  # a list of what was compiled
        digits = found[1][3:].rstrip("af")
        return f"{digits[:-1]}.{digits[-1]}"
    return found[1]
