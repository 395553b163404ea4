"""Codes and values → words. The one place where a reason becomes a sentence."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import groupby

from selector.devices import known_capabilities
from selector.fields import close_matches
from selector.values import (
    Code,
    Coercion,
    Condition,
    Device,
    ManifestRef,
    Position,
    Rejection,
    Request,
)
from selector.words import listed

__all__ = [
    "Places",
    "capabilities_words",
    "coercion_words",
    "conditions_words",
    "counted",
    "device_words",
    "kind_words",
    "listed",
    "manifest_words",
    "ordinal",
    "reasons",
    "rejection_words",
    "request_words",
    "uncapitalised",
    "with_separators",
]

_KINDS = {
    "mla": {"true": "MLA layer", "false": "layer without MLA"},
    "sparse": {"true": "sparse layer", "false": "dense layer"},
}
_SERVED = {
    "mla": {"true": "serves MLA only", "false": "serves no MLA"},
    "sparse": {"true": "serves sparse only", "false": "serves dense only"},
}
_RUNS_ON = ("capability", "platform")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth")
_LABELS = {"capability": "compute capability"}


class Places:
    """How positions are written: the file as the reader would open it, then the line.

    Args:
        names: file as the positions have it → file as it is shown.
    """

    def __init__(self, names: dict[str, str] | None = None) -> None:
        self._names = names or {}

    def file(self, name: str) -> str:
        """The file as it is shown."""
        return self._names.get(name, name)

    def at(self, position: Position) -> str:
        """``file:line``, which editors and terminals open."""
        return f"{self.file(position.file)}:{position.line}"


def counted(number: int, noun: str, plural: str = "") -> str:
    """``1 token``, ``3,300 tokens``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def ordinal(number: int) -> str:
    """``first`` … ``ninth``, then ``10th``."""
    if 1 <= number <= len(_ORDINALS):
        return _ORDINALS[number - 1]
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number % 100 // 10 != 1 else "th"
    return f"{number}{ending}"


def device_words(device: Device) -> str:
    """``RTX PRO 6000 Blackwell (12.0)``, ``compute capability 12.0``, ``cpu``."""
    if device.product is None and device.capability is not None:
        return f"compute capability {device.capability}"
    return str(device)


def request_words(request: Request) -> str:
    """``3,300 new tokens, nothing cached``; ``any request`` when nothing is known of it."""
    query, seq = request.query_len, request.seq_len
    if query is None:
        return "any request" if seq is None else f"any request of {counted(seq, 'token')}"
    new = counted(query, "new token")
    if seq is None:
        return f"{new}, any context"
    cached = seq - query
    return f"{new}, {counted(cached, 'cached', 'cached') if cached else 'nothing cached'}"


def manifest_words(manifest: ManifestRef, places: Places) -> str:
    """The file, the overlays on it, and the first seven digits of the digest."""
    _, *overlays = manifest.name.split("+")
    laid = "".join(f" + {name}" for name in overlays)
    return f"{places.file(manifest.file)}{laid} {manifest.digest[:7]}"


def with_separators(text: str) -> str:
    """The text with its whole numbers written as everywhere: ``4096`` → ``4,096``."""
    return re.sub(r"(?<![\w.,=<>-])\d{4,}(?![\w.])", lambda found: f"{int(found[0]):,}", text)


_FEWEST = 3


def capabilities_words(text: str) -> str:
    """``8.0, 8.6, …, 12.1`` → ``8.0–12.1``, where none that is known between them is missing."""
    known = known_capabilities()
    runs: list[list[str]] = []
    for word in text.split(", "):
        last = runs[-1][-1] if runs else ""
        follows = word in known and last in known and known.index(word) == known.index(last) + 1
        if follows:
            runs[-1].append(word)
        else:
            runs.append([word])
    return ", ".join(
        f"{run[0]}–{run[-1]}" if len(run) >= _FEWEST else ", ".join(run) for run in runs
    )


def kind_words(mla: bool, sparse: bool) -> str:
    """``MLA``, ``sparse MLA``, ``plain`` (MHA, GQA, MQA) or ``sparse``."""
    return {
        (False, False): "plain",
        (False, True): "sparse",
        (True, False): "MLA",
        (True, True): "sparse MLA",
    }[mla, sparse]


def _label(field: str) -> str:
    return _LABELS.get(field, field)


def rejection_words(
    rejection: Rejection, assumed: Collection[str] = (), brief: bool = False
) -> str:
    """What was seen; what is allowed; and the manifest's own words, if it has any.

    Args:
        rejection: the reason, as codes and values.
        assumed: facts that nobody knows, and that were taken not to be there.
        brief: leave out the manifest's own words where values say enough.
    """
    reason = rejection.reason
    if rejection.code == Code.DENIED:
        return f"denied: {reason}"
    if rejection.code == Code.PINNED:
        return f"switched off: {reason}"
    if rejection.code == Code.PHASE:
        return reason or "phase not served"
    fact = _fact(rejection, assumed)
    if reason == "not stated":
        return f"{fact} ({'' if brief else 'support is '}not stated)"
    if not reason or (brief and rejection.field):
        return fact
    return f"{fact}: {reason}"


def _fact(rejection: Rejection, assumed: Collection[str]) -> str:
    """What was seen; what is allowed."""
    seen, allowed = rejection.observed or "", rejection.allowed or ""
    field = rejection.field or ""
    if rejection.code in (Code.NOT_INSTALLED, Code.VERSION):
        if field in assumed:
            seen = "unknown, taken as not installed"
        return f"{field} {seen}; needs {allowed}"
    if field in _KINDS and seen in _KINDS[field]:
        return f"{_KINDS[field][seen]}; {_SERVED[field].get(allowed, f'serves {allowed}')}"
    if field in _RUNS_ON:
        return f"{_label(field)} {seen}; has {capabilities_words(allowed)}"
    if field:
        verb = "must be" if rejection.code == Code.JOINT else "accepts"
        return with_separators(f"{field} {seen}; {verb} {allowed}{_nearest_words(rejection)}")
    return with_separators(f"{seen}: {allowed}" if seen else allowed)


def reasons(
    rejections: Sequence[Rejection], assumed: Collection[str] = (), brief: bool = False
) -> Iterator[tuple[str, Position]]:
    """Yields each reason and where it stands; what one rule says of several fields, once."""
    for (_, reason), group in groupby(rejections, key=lambda r: (r.code, r.reason)):
        first, *rest = group
        if rest and reason and reason != "not stated" and first.field:
            facts = " and ".join(_fact(r, assumed) for r in (first, *rest))
            yield facts if brief else f"{facts}: {reason}", first.position
        else:
            yield from ((rejection_words(r, assumed, brief), r.position) for r in (first, *rest))


def _nearest_words(rejection: Rejection) -> str:
    """The nearest accepted value, when it is not all there is; of names, one spelled alike."""
    nearest, seen = rejection.nearest, rejection.observed or ""
    if nearest is None or nearest == rejection.allowed:
        return ""
    if nearest[:1].isalpha() and not close_matches(seen, [nearest]):
        return ""
    return f" (nearest {nearest})"


def conditions_words(conditions: Sequence[Condition]) -> list[str]:
    """``flashinfer-python >=0.6.14``, ``dtype float16, bfloat16``, ``sink is not true``.

    Sets of one field stand in one text, with slashes between them: which of them applies can
    depend on another field that is unknown.
    """
    sets: dict[tuple[str, bool], list[str]] = {}
    for condition in conditions:
        negated = condition.allowed.startswith("not ")
        allowed = condition.allowed.removeprefix("not ")
        sets.setdefault((condition.field, negated), []).append(allowed)
    return [
        with_separators(
            f"{_label(field)} {'is not ' if negated else ''}{' / '.join(dict.fromkeys(allowed))}"
        )
        for (field, negated), allowed in sets.items()
    ]


def coercion_words(coercion: Coercion) -> str:
    """``kv_cache_dtype fp8 → fp8_e4m3``."""
    return with_separators(f"{coercion.field} {coercion.before} → {coercion.after}")


def uncapitalised(text: str) -> str:
    """``When X ships.`` → ``X ships.``; names keep their capitals."""
    return text[5:] if text.lower().startswith("when ") else text
