"""Connections that hold nothing up: what a client sends and takes has an end and comes in time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

__all__ = ["connections"]

_MOST_UNFINISHED = 1 << 16
"""Bytes of a head, or of what stands between the pieces of a body, before they have their end."""

_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n"
    b"connection: close\r\ncontent-length: 0\r\n\r\n"
)


class _Connection(HttpToolsProtocol):
    """A connection that ends when a head is too long or too slow, or an answer is not taken."""

    deadline_s: float

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._unfinished = 0
        self._answered: RequestResponseCycle | None = None
        self._head_due: asyncio.TimerHandle | None = None
        self._taken_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_waiting()
        if self._answered is not None:  # and another one is read behind it
            self._answered.disconnected = True
            self._answered.message_event.set()
        self.resume_writing()
        super().connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._unfinished += len(data)
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self._await_head()
        if self._unfinished > _MOST_UNFINISHED and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._unfinished = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _await_head(self) -> None:
        """Ends the connection unless a head is complete in time; the rest of a body is none."""
        if self._head_due is None:
            self._head_due = self.loop.call_later(self.deadline_s, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taken_due = self.loop.call_later(self.deadline_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taken_due is not None:
            self._taken_due.cancel()
            self._taken_due = None


def connections(deadline_s: float) -> type[HttpToolsProtocol]:
    """Connections whose heads come, and whose answers are taken, within so many seconds."""
    return type("Connection", (_Connection,), {"deadline_s": deadline_s})
