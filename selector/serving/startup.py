"""What an engine's log says at its start: version, GPU, model, settings."""

from __future__ import annotations

import re
import shlex

import msgspec

from selector.serving.lines import Line
from selector.serving.literal import one_blank, read_pairs, read_plain

__all__ = ["Startup", "Told", "is_of_startup"]


class Told(msgspec.Struct, frozen=True):
    """A text that the log says, and the line it was read at."""

    text: str
    line: int


_SIGNS = (
    "ersion",
    "LLM engine",
    "vllm==",
    "vllm ==",
    "vllm serve",
    "vllm.entrypoints.openai.api_server",
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

_MOST_SETTINGS = 400
_LONGEST_VALUE = 2000
_LONGEST_COMMAND = 16_384

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
_ARGUMENTS = re.compile(r"(?:non-default\s+args:\s*\{|\bargs:\s*Namespace\()")
_COMMAND = re.compile(r"(?:\bvllm\s+serve\s|\bvllm\.entrypoints\.openai\.api_server\s)")
_VARIABLE = re.compile(r"\b((?:VLLM|CUDA|FLASHINFER)_[A-Z0-9_]{1,80})=(\S{1,300})")
_END_OF_COMMAND = ("&&", "||", "|", ";", ">", "2>&1", "&", "`")


def is_of_startup(raw: str) -> bool:
    """Whether a line may say something of the start; cheap, since it is asked of every line."""
    return any(sign in raw for sign in _SIGNS)


class Startup:
    """Collects what lines say of the start; of several statements it keeps the surest."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, Told]] = {}
        self._settings: dict[str, tuple[int, Told]] = {}
        self._command: list[str] = []
        self._command_line = 0

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
    def settings(self) -> dict[str, Told]:
        """What was given on the command line, by name."""
        return {name: told for name, (_, told) in self._settings.items()}

    @property
    def goes_on(self) -> bool:
        """Whether a command goes on in the next line."""
        return bool(self._command)

    def read_line(self, line: Line, before: Line | None = None) -> None:
        """Reads one line; the one before it may hold the first half of a statement."""
        if self._command:
            self._read_command(line)
        head = before.text if before else ""
        text = f"{head} {line.text}" if head else line.text
        self._read_patterns("version", _VERSIONS, text, len(head), line, before)
        self._read_patterns("model", _MODELS, text, len(head), line, before)
        self._read_patterns("product", _PRODUCTS, text, len(head), line, before)
        self._read_patterns("capability", _CAPABILITIES, text, len(head), line, before)
        if not self._command and (found := _COMMAND.search(line.text)):
            for name, value in _VARIABLE.findall(line.text[: found.start()][-4000:]):
                self._set(name, value, 1, line.number)
            self._command = [line.text[found.end() - 1 :][:_LONGEST_COMMAND]]
            self._command_line = line.number
            self._end_command()

    def read_arguments(self, text: str, line: int) -> None:
        """Reads what ``non-default args: {…}`` or ``args: Namespace(…)`` hold."""
        for name, value in read_pairs(text, deepest=0).items():
            plain = read_plain(value)
            if plain is None:
                continue
            told = plain if isinstance(plain, str) else str(plain)
            self._set(name, one_blank(told), 0, line)
            if name in ("model", "model_tag"):
                self._keep("model", 0 if name == "model" else 1, Told(one_blank(told), line))

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

    def _set(self, name: str, text: str, rank: int, line: int) -> None:
        old = self._settings.get(name)
        if (old is None and len(self._settings) < _MOST_SETTINGS) or (old and rank < old[0]):
            self._settings[name] = (rank, Told(text[:_LONGEST_VALUE], line))

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

    def _read_command(self, line: Line) -> None:
        self._command.append(line.text[:_LONGEST_COMMAND])
        self._end_command()

    def _end_command(self) -> None:
        """Reads the command unless it goes on in the next line."""
        size = sum(map(len, self._command))
        if not self._command[-1].endswith("\\") or size > _LONGEST_COMMAND:
            self._finish_command()

    def _finish_command(self) -> None:
        text = " ".join(part.removesuffix("\\") for part in self._command)
        self._command = []
        words = _words_of(text)
        first = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
        if first > 1 or (not words[first:] and "/" not in text):
            return  # a sentence that speaks of the command
        if first:
            self._keep("model", 5, Told(words[0], self._command_line))
        for name, value in _flags_of(words[first:]):
            self._set(name, value, 1, self._command_line)
            if name == "model":
                self._keep("model", 5, Told(value, self._command_line))


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


def _words_of(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    for place, word in enumerate(words):
        if word in _END_OF_COMMAND:
            return words[:place]
    return words


def _flags_of(words: list[str]) -> list[tuple[str, str]]:
    """Names and values of a command's flags, names as ``--help`` has them with ``_`` for ``-``."""
    flags: list[tuple[str, str]] = []
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("-") or word.strip("-") == "":
            continue
        name, equals, value = word.partition("=")
        if not equals:
            nearby = words[place] if place < len(words) else "-"
            value = "true"
            if not nearby.startswith("-") or re.fullmatch(r"-[0-9.]+", nearby):
                value = nearby
                place += 1
        flags.append((name.lstrip("-").replace("-", "_"), one_blank(value)))
    return flags
