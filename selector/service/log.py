"""What happened, as lines of JSON. A body is never among it."""

from __future__ import annotations

import logging
import time
from typing import TextIO

import msgspec

__all__ = ["Forward", "Log"]


class Log:
    """Writes one object a line.

    Attributes:
        requests: whether each request has a line; trouble always has.
    """

    def __init__(self, stream: TextIO, *, requests: bool = True) -> None:
        self._stream = stream
        self.requests = requests

    def write(self, level: str, event: str, **fields: object) -> None:
        """Writes a line.

        Args:
            level: ``info``, ``warning`` or ``error``.
            event: what happened, in a word or two.
            fields: plain values that go with it.
        """
        line = {"time": round(time.time(), 6), "level": level, "event": event, **fields}
        try:
            self._stream.write(f"{msgspec.json.encode(line).decode()}\n")
            self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads it any more; answers go on
        except RuntimeError:
            pass  # a handler of a signal writes, and what it interrupts was writing


class Forward(logging.Handler):
    """Takes what the server logs by itself, such as bytes that are no request."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line; a traceback is not among it, for it may hold what a request holds."""
        self._log.write(record.levelname.lower(), "server", detail=record.getMessage()[:500])
