"""How far a long command has come, on a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType

__all__ = ["Progress", "Ticker"]

_EVERY_S = 0.2
_WIDTH = 30
_ERASE = "\r\x1b[K"


class Progress:
    """A bar on stderr, where that is a terminal: rows, their share of all, rows a second.

    Attributes:
        total: how many rows there are, where that is known.
    """

    def __init__(self) -> None:
        self.total: int | None = None
        self._on = sys.stderr is not None and sys.stderr.isatty()
        self._began = self._shown = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._on:
            print(_ERASE, end="", file=sys.stderr, flush=True)

    def show(self, rows: int) -> None:
        """Shows that so many rows are done, a few times a second."""
        if not self._on or (now := time.monotonic()) < self._shown + _EVERY_S:
            return
        self._shown = now
        said = f"{rows:,} rows, {rows / (now - self._began):,.0f} rows/s"
        if self.total:
            done = min(rows / self.total, 1.0)
            bar = "#" * int(done * _WIDTH)
            said = f"[{bar:<{_WIDTH}}] {done:4.0%}  {said}"
        print(f"{_ERASE}{said}", end="", file=sys.stderr, flush=True)


class Ticker:
    """A line on stderr that says what runs now, where that is a terminal; erased in the end."""

    def __init__(self) -> None:
        self._on = sys.stderr is not None and sys.stderr.isatty()
        self._shown = float("-inf")

    def __enter__(self) -> Ticker:
        return self

    def __exit__(self, *error: object) -> None:
        if self._on:
            print(_ERASE, end="", file=sys.stderr, flush=True)

    def show(self, words: str) -> None:
        """Shows some words, a few times a second; what is written next stands over them."""
        if self._on and (now := time.monotonic()) >= self._shown + _EVERY_S:
            self._shown = now
            print(f"{_ERASE}{words}", end="\r", file=sys.stderr, flush=True)
