"""The two error texts of vLLM, each on one line → what was asked and why it was refused."""

from __future__ import annotations

import re

import msgspec

from selector.errors import AttnselError
from selector.fields import Vocabulary
from selector.serving.logs.literal import read_pairs, read_plain, until_closed
from selector.serving.logs.reasons import Reason, read_reason_list

__all__ = ["Reading", "Words", "read_error"]

_FOUND = re.compile(r"No\s*valid\s*(?:attention|MLA\s*prefill)\s*backend\s*found")
_REASONS = re.compile(r"Reasons?\s*:\s*")
_PLATFORM = re.compile(r"\s*for\s+([^\s.,({]{1,60})")
_BLOCK_SIZE = re.compile(r"\s*for\s+--block-size\s+([0-9]{1,9})")
_CUT = re.compile(r"(?:\s+for(?:\s+[\w-]*(?:\s+with(?:\s+\w*)?)?)?)?\s*$")
_FORCED = re.compile(r"Selected\s*backend\s+(.{1,300}?)\s+is\s+not\s+valid")
_FORCED_CUT = re.compile(r"Selected\s*backend\s+(\S{1,200})\s+is(?:\s+n(?:ot?)?(?:\s+v\w*)?)?$")
_NAME = re.compile(
    r"\s*[{,]?\s*(?:<[\w.]{0,100}?\.?(\w{1,80})\s*:[^<>]{0,300}>|['\"]?(?:\w{1,80}\.){0,6}"
    r"([A-Za-z]\w{0,80})['\"]?)\s*:\s*\["
)
_LAST_WORD = re.compile(r"(?:\w{1,80}\.){0,12}([A-Za-z]\w{0,80})")
_DEVICE_CAPABILITY = re.compile(r"\w*\(?(?:major=)?(\d{1,2}),\s*(?:minor=)?(\d{1,2})\)$")
_SHORT_PAIR = re.compile(r"\b([a-z_]{3,40})=([\w.]{1,80}\w|\w)")
_TRIM = "[](){}.,:'\""

_MOST_BACKENDS = 100
_LONGEST_VALUE = 300

_SPEECH = (
    "No valid attention backend found for with Selected is not this configuration Reason Reasons "
    "supported compute capability sparse non-sparse MLA non-MLA prefill partial multimodal token "
    "full sinks sink setting type sliding window non-causal batch invariance connector scales "
    "requires per-head quant on device devices Hopper Blackwell only FlashAttention FlashInfer "
    "FlashMLA Sparse Dense kernel but got model config cuda rocm decoder encoder True False None "
    "AttentionSelectorConfig AttentionBackendEnum AttentionType encoder_only encoder_decoder"
)


class Reading(msgspec.Struct, frozen=True):
    """What an error text says; the attributes are those of an ``EngineError``."""

    platform: str | None
    backend: str | None
    asked: dict[str, object]
    unknown: dict[str, str]
    reasons: dict[str, tuple[Reason, ...]]


class Words:
    """The words that error texts use: the vocabulary's names and vLLM's own phrases."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        every = vocabulary.fields.values()
        self.fields = {name: field for field in every for name in (field.name, *field.aliases)}
        self._known = {*self.fields, *_SPEECH.split()}

    def are_known(self, word: str) -> bool:
        """Whether it is one of them, with or without a value and what stands around it."""
        name, equals, value = word.strip(_TRIM).partition("=")
        if equals and name in self.fields:
            return value == "" or self._is_value(value)
        return name in self._known or name.rpartition(".")[2] in self._known

    def _is_value(self, value: str) -> bool:
        last = value.rpartition(".")[2]
        known = last in self._known or last.isdigit() or last.lower() in self._known
        return known or any(last in field.values for field in self.fields.values())


def read_error(kind: str, text: str, words: Words, is_told: bool) -> Reading | None:
    """What the text says; ``None`` when it is no error but speaks of one.

    Args:
        kind: ``none``, ``prefill`` or ``forced``.
        text: the text from its first word on; it may be cut off.
        words: the words it may use.
        is_told: whether a text that says next to nothing is one all the same: it was raised, or
            the log ends with it.
    """
    if kind == "forced":
        return _read_forced(text, is_told)
    found = _FOUND.match(text)
    if not found:
        return None
    rest = text[found.end() :]
    reasons_at = _REASONS.search(rest)
    head = rest[: reasons_at.start()] if reasons_at else rest
    block_size = _BLOCK_SIZE.match(head)
    platform = None if block_size else _PLATFORM.match(head)
    if platform is None and re.match(r"\s*for\s+\{", head):
        return None  # the line of vLLM's source that raises it
    pairs = {"block_size": block_size[1]} if block_size else _read_config(head, bool(reasons_at))
    asked, unknown = _read_fields(pairs, words)
    reasons = _read_reasons(rest[reasons_at.end() :]) if reasons_at else {}
    if not (pairs or reasons) and not (is_told and (_CUT.match(head) or platform)):
        return None
    return Reading(platform[1] if platform else None, None, asked, unknown, reasons)


def _read_forced(text: str, is_told: bool) -> Reading | None:
    found = _FORCED.match(text)
    cut = None if found or not is_told else _FORCED_CUT.match(text)
    said = found or cut
    name = _LAST_WORD.search(said[1]) if said else None
    if said is None or name is None or "{" in said[1]:
        return None
    backend = name[1]
    reasons_at = _REASONS.search(text, said.end())
    if reasons_at is None:
        return Reading(None, backend, {}, {}, {})
    told = text[reasons_at.end() :].strip().removeprefix("[")
    reasons = read_reason_list(until_closed(told)[0])
    return Reading(None, backend, {}, {}, {backend: reasons} if reasons else {})


def _read_config(head: str, ends: bool) -> dict[str, str]:
    """The pairs of the configuration; the last one is left out when it is cut off."""
    opened = re.search(r"\w{0,80}Config\(", head)
    if opened:
        told, closed = until_closed(head[opened.end() :])
        ends = ends or closed is not None
    elif " with " in head:
        told = head.partition(" with ")[2]
    else:  # cut by hand
        return dict(_SHORT_PAIR.findall(head))
    pairs = {name: value.rstrip(". ") for name, value in read_pairs(told).items()}
    if pairs and not ends:
        pairs.popitem()
    return pairs


def _read_fields(pairs: dict[str, str], words: Words) -> tuple[dict[str, object], dict[str, str]]:
    """Values by the vocabulary's names; what it does not know stays text."""
    asked: dict[str, object] = {}
    unknown: dict[str, str] = {}
    for name, text in pairs.items():
        field = words.fields.get(name) or words.fields.get(name.removeprefix("device_"))
        pair = _DEVICE_CAPABILITY.match(text) if field and field.type == "capability" else None
        value = f"{pair[1]}.{pair[2]}" if pair else read_plain(text)
        try:
            if field is None or field.name in asked:
                raise LookupError
            asked[field.name] = field.read(value)
        except (AttnselError, LookupError):
            if field is None or field.name not in asked:
                unknown[name] = text[:_LONGEST_VALUE]
    return asked, unknown


def _read_reasons(text: str) -> dict[str, tuple[Reason, ...]]:
    """Each backend and its reasons, from ``{A: [b, c], D: [e]}`` with braces or without."""
    reasons: dict[str, tuple[Reason, ...]] = {}
    at = 0
    while len(reasons) < _MOST_BACKENDS:
        found = _NAME.match(text, at)
        if not found:
            break
        name = found[1] or found[2]
        told, closed = until_closed(text[found.end() :])
        reasons.setdefault(name, read_reason_list(told))
        if closed is None:
            break
        at = found.end() + closed + 1
    return reasons
