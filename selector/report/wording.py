"""Codes and values → words. The one place where a reason becomes a sentence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from selector.values import (
    Coercion,
    Condition,
    Device,
    ManifestRef,
    Position,
    Rejection,
    Request,
)

__all__ = [
    "Places",
    "coercion_words",
    "conditions_words",
    "counted",
    "device_words",
    "kind_words",
    "listed",
    "manifest_words",
    "nearest_words",
    "ordinal",
    "reasons",
    "rejection_words",
    "request_words",
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


def listed(words: Sequence[str], last: str = "or") -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} {last} {words[-1]}"


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
    """The file and the first seven digits of the digest."""
    return f"{places.file(manifest.file)} {manifest.digest[:7]}"


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


def rejection_words(rejection: Rejection) -> str:
    """What was seen; what is allowed; and the manifest's own words, if it has any."""
    reason = rejection.reason
    if rejection.code == "DENIED":
        return f"denied: {reason}"
    if rejection.code == "PINNED":
        return f"switched off: {reason}"
    if rejection.code == "PHASE":
        return reason or "phase not served"
    if reason == "not stated":
        return f"{_fact(rejection)} (support is not stated)"
    return f"{_fact(rejection)}: {reason}" if reason else _fact(rejection)


def _fact(rejection: Rejection) -> str:
    """What was seen; what is allowed."""
    seen, allowed = rejection.observed or "", rejection.allowed or ""
    field = rejection.field or ""
    if rejection.code in ("NOT_INSTALLED", "VERSION"):
        return f"{field} {seen}; needs {allowed}"
    if field in _KINDS and seen in _KINDS[field]:
        return f"{_KINDS[field][seen]}; {_SERVED[field].get(allowed, f'serves {allowed}')}"
    if field in _RUNS_ON:
        return f"{_label(field)} {seen}; has {allowed}"
    if field:
        verb = "must be" if rejection.code == "JOINT" else "accepts"
        return f"{field} {seen}; {verb} {allowed}{nearest_words(rejection)}"
    return f"{seen}: {allowed}" if seen else allowed


def reasons(rejections: Sequence[Rejection]) -> Iterator[tuple[str, Position]]:
    """Yields each reason and where it stands; what one rule says of several fields, once."""
    for (_, reason), group in groupby(rejections, key=lambda r: (r.code, r.reason)):
        first, *rest = group
        if rest and reason and reason != "not stated" and first.field:
            facts = " and ".join(_fact(r) for r in (first, *rest))
            yield f"{facts}: {reason}", first.position
        else:
            yield from ((rejection_words(r), r.position) for r in (first, *rest))


def nearest_words(rejection: Rejection) -> str:
    """The nearest accepted value, when it is not all there is."""
    nearest = rejection.nearest
    return "" if nearest is None or nearest == rejection.allowed else f" (nearest {nearest})"


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
        f"{_label(field)} {'is not ' if negated else ''}{' / '.join(dict.fromkeys(allowed))}"
        for (field, negated), allowed in sets.items()
    ]


def coercion_words(coercion: Coercion) -> str:
    """``kv_cache_dtype fp8 → fp8_e4m3``."""
    return f"{coercion.field} {coercion.before} → {coercion.after}"
