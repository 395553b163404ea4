"""What was found once, kept within bounds."""

from __future__ import annotations

from typing import TypeVar

__all__ = ["remember"]

K = TypeVar("K")
V = TypeVar("V")


def remember(memo: dict[K, V], key: K, value: V, most: int = 1 << 16) -> V:
    """Keeps a value and gives it back; when there are too many, all others make room."""
    if len(memo) >= most:
        memo.clear()
    memo[key] = value
    return value
