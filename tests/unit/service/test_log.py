"""Lines of the log, whatever becomes of the stream."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from typing import Any

from selector.service.log import Log


class Interrupted(io.RawIOBase):
    """A file whose first write is interrupted, as one into a full pipe is by a signal."""

    def __init__(self) -> None:
        self.handler: Callable[[], None] = lambda: None
        self.data = b""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        handler, self.handler = self.handler, lambda: None
        handler()
        self.data += bytes(data)
        return len(data)


def test_a_handler_of_a_signal_may_log_while_a_line_is_written() -> None:
    file = Interrupted()
    log = Log(io.TextIOWrapper(io.BufferedWriter(file)))
    went_on: list[bool] = []

    def handler() -> None:
        log.write("info", "draining")
        went_on.append(True)

    file.handler = handler
    log.write("info", "request")
    log.write("info", "later")
    events = [json.loads(line)["event"] for line in file.data.splitlines()]
    assert (went_on, events) == ([True], ["request", "later"])


def test_a_stream_that_is_closed_ends_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    Log(stream).write("info", "request")
