"""Words that all rooms put together alike."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["listed", "listed_and"]


def listed(words: Iterable[str], last: str = "or") -> str:
    """``a``, ``a or b``, ``a, b or c``."""
    *first, end = [*words] or [""]
    return f"{', '.join(first)} {last} {end}" if first else end


def listed_and(words: Iterable[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    return listed(words, "and")
