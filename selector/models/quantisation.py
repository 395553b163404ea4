"""What a checkpoint's quantisation config says of the KV cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from selector.models.source import MISSING, Source, shown
from selector.values import Origin

__all__ = ["KvCache", "kv_cache", "quantisation_method"]


class KvCache(NamedTuple):
    """The KV cache's element type, whether it has one scale a head, and where that was read."""

    dtype: str
    per_head: bool
    origin: Origin
    keys: str
    notes: tuple[str, ...] = ()


def kv_cache(*levels: Source) -> KvCache:
    """The KV cache a checkpoint was quantised for, from the first level that says; else ``auto``.

    Weights that are quantised leave the cache alone; so does a scheme that is not understood,
    with a note.
    """
    notes: list[str] = []
    for level in levels:
        for key in level.tables.quantisations:
            raw = level.given.get(key)
            if not isinstance(raw, Mapping):
                continue
            for path, found in _places(key, raw):
                dtype = _dtype(found, level.tables.kv_algorithms)
                if dtype:
                    per_head = isinstance(found, Mapping) and found.get("strategy") == "attn_head"
                    where = level.path(path)
                    return KvCache(dtype, per_head, Origin.CHECKPOINT, where, tuple(notes))
                notes.append(f"{level.path(path)} {shown(found)} is not understood: KV cache auto")
    return KvCache("auto", False, Origin.DEFAULT, "", tuple(notes[:3]))


def quantisation_method(*levels: Source) -> str:
    """The method that the first quantisation config names: ``fp8``, ``modelopt``, …, or nothing."""
    for level in levels:
        for key in level.tables.quantisations:
            raw = level.given.get(key)
            if isinstance(raw, Mapping):
                method = raw.get("quant_method")
                return method[:80].lower() if isinstance(method, str) else ""
    return ""


def _places(key: str, config: Mapping[str, object]) -> list[tuple[str, object]]:
    """Where a quantisation config may speak of the KV cache, and what it says there."""
    found: list[tuple[str, object]] = []
    nested = config.get("quantization", MISSING)
    levels = [(key, config)]
    if isinstance(nested, Mapping):
        levels.append((f"{key}.quantization", nested))
    for path, level in levels:
        scheme = level.get("kv_cache_scheme")
        if isinstance(scheme, Mapping):  # a word such as "static" is how, not whether
            found.append((f"{path}.kv_cache_scheme", scheme))
        algorithm = level.get("kv_cache_quant_algo")
        if algorithm is not None:
            found.append((f"{path}.kv_cache_quant_algo", algorithm))
    return found


_SCHEMES = {("float", 8): "fp8_e4m3", ("float", 4): "nvfp4", ("int", 8): "int8"}
"""Type and bits of a scheme → element type."""


def _dtype(found: object, algorithms: Mapping[str, str]) -> str:
    if isinstance(found, str):
        return algorithms.get(found.lower(), "")
    if isinstance(found, Mapping):
        kind = found.get("type")
        bits = found.get("num_bits")
        if isinstance(kind, str) and isinstance(bits, int) and not isinstance(bits, bool):
            return _SCHEMES.get((kind, bits), "")
    return ""
