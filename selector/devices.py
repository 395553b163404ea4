"""Architecture and product names → devices. The table is data: ``architectures.json``."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

from selector.errors import UnknownDeviceError, ValueRefusedError
from selector.fields import capability_text, close_matches, one_line, parse_capability
from selector.resources import packaged
from selector.values import Device, Resolution

__all__ = ["architectures", "find_device", "find_gpu", "known_capabilities", "note_on"]

_PLATFORMS = ("cpu", "rocm", "xpu", "tpu", "npu")


@cache
def architectures() -> tuple[dict[str, Any], ...]:
    """Known architectures, oldest first: platform, capability, family, products."""
    return tuple(_table()["architectures"])


@cache
def known_capabilities() -> tuple[str, ...]:
    """Compute capabilities known here, oldest first."""
    return tuple(a["capability"] for a in architectures() if a["platform"] == "cuda")


@cache
def _table() -> dict[str, Any]:
    import json

    table: dict[str, Any] = json.loads(packaged("architectures.json").read_text("utf-8"))
    return table


def find_device(text: str) -> Device:
    """The device meant by an architecture (``sm120``, ``12.0``, ``cpu``) or a product name.

    A capability that is well-formed but not known here gives a device all the same; nothing that
    lists its capabilities will accept it.

    Raises:
        UnknownDeviceError: it is neither; the nearest name is given.
    """
    lowered = text.strip().lower()
    if lowered in _PLATFORMS:
        return Device(lowered)
    try:
        return Device("cuda", capability_text(parse_capability(text)))
    except ValueRefusedError:
        if short := re.fullmatch(r"(?:sm_?)?([0-9]{1,2})", lowered):
            wanted = f'write "{short[1]}.0" or sm{short[1]}0'
            raise UnknownDeviceError(
                f'architecture "{lowered}" is not major.minor; {wanted}'
            ) from None
        return find_gpu(text, "architecture or GPU")


def find_gpu(text: str, what: str = "GPU") -> Device:
    """The device of a product: ``H200``, ``RTX PRO 6000``, ``NVIDIA A100-SXM4-80GB``.

    Args:
        text: the name, or a longer one that holds it.
        what: what the text was to name, for the error.

    Raises:
        UnknownDeviceError: no such product, or the name is that of several.
    """
    words = _words(text)
    best: tuple[int, str, dict[str, Any]] | None = None
    for row in architectures():
        for product in row["products"]:
            length = _match(words, _words(product))
            if length and (best is None or length > best[0]):
                best = (length, product, row)
    for name, meant in _table()["ambiguous"].items():
        if _match(words, _words(name)) and (best is None or best[0] <= len(_words(name))):
            listed = ", ".join(f"{p} ({_capability_of(p)})" for p in meant)
            raise UnknownDeviceError(f'GPU "{one_line(text)}" can be {listed}; say which')
    if best is None:
        raise UnknownDeviceError(f'unknown {what} "{one_line(text)}"{_hint(text)}')
    _, product, row = best
    return Device(row["platform"], row["capability"], product)


def _capability_of(product: str) -> str:
    return str(next(a["capability"] for a in architectures() if product in a["products"]))


def _hint(text: str) -> str:
    names = {p.lower(): (p, a) for a in architectures() for p in a["products"]}
    near = close_matches(text.strip().lower(), names, 0.5)
    if not near:
        return "; `attnsel info --gpus` lists all"
    product, row = names[near[0]]
    where = row["capability"] or row["platform"]
    return f"; did you mean {product} ({where})? `attnsel info --gpus` lists all"


def _words(text: str) -> tuple[str, ...]:
    found = re.findall(r"[a-z0-9]+", text.lower())
    return tuple(w for w in found if w not in ("nvidia", "geforce", "tesla", "amd", "instinct"))


def _match(words: tuple[str, ...], product: tuple[str, ...]) -> int:
    """How many words of a product name stand in ``words``, in a row.

    The last word of a product may be left out when it only names the family ("Blackwell").
    """
    for wanted in (product, product[:-1] if product[-1] == "blackwell" else product):
        for start in range(len(words) - len(wanted) + 1):
            if words[start : start + len(wanted)] == wanted:
                return len(wanted)
    return 0


def note_on(answer: Resolution) -> Resolution:
    """Adds a note when the device's compute capability is not known here."""
    capability = answer.device.capability
    if capability is None or capability in known_capabilities():
        return answer
    newest = known_capabilities()[-1]
    note = f"compute capability {capability} is not known here; the newest known is {newest}"
    return msgspec.structs.replace(answer, notes=(*answer.notes, note))
