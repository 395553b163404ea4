"""What happened, as lines of JSON. A body is never among it."""

from __future__ import annotations

import time
from typing import TextIO

import msgspec

__all__ = ["Log"]


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
