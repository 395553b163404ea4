"""One request and one answer, as the service's rooms hand them to each other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from selector.live import Snapshot
from selector.service.limits import Limits
from selector.service.problems import Problem

__all__ = ["JSON", "Answer", "Call", "GoneError"]

JSON = "application/json"

Headers = list[tuple[bytes, bytes]]


class GoneError(Exception):
    """The client went away before it had sent all."""


class Answer:
    """What goes back.

    Attributes:
        body: all of it, or piece by piece.
        media: its type.
        status: of HTTP.
        headers: that go with it.
        end: is called when it is over, with whether all of it was sent.
    """

    __slots__ = ("body", "end", "headers", "media", "status")

    def __init__(
        self,
        body: bytes | AsyncIterator[bytes],
        *,
        media: str = JSON,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        end: Callable[[bool], None] | None = None,
    ) -> None:
        self.body = body
        self.end = end
        self.media = media
        self.status = status
        self.headers = headers or {}


class Call:
    """A request.

    Attributes:
        scope: as ASGI has it.
        id: what the log calls it.
        limits: what it may ask for.
        answer: what goes back, once that is known.
        route: the pattern of its path, once that is known.
        snapshot: what answers, once that is known.
        trusted: whether it shows the token, where one is wanted.
    """

    __slots__ = ("_receive", "answer", "id", "limits", "route", "scope", "snapshot", "trusted")

    def __init__(self, scope: Any, receive: Any, id: str, limits: Limits, trusted: bool) -> None:
        self.scope = scope
        self.id = id
        self.limits = limits
        self.trusted = trusted
        self.answer: Answer | None = None
        self.route = ""
        self.snapshot: Snapshot | None = None
        self._receive = receive

    def header(self, name: bytes) -> str:
        """A header by its name in small letters; empty when it is not there."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value, "latin-1")
        return ""

    @property
    def media(self) -> str:
        """The type of the body, without parameters; empty when it is not said."""
        return self.header(b"content-type").partition(";")[0].strip().lower()

    def query(self, *known: str) -> dict[str, str]:
        """The parameters of the URL.

        Raises:
            Problem: one is unknown, given twice, or no UTF-8.
        """
        raw = self.scope["query_string"]
        if not raw:
            return {}
        try:
            pairs = parse_qsl(raw.decode("ascii"), True, errors="strict", max_num_fields=16)
        except ValueError:
            raise Problem(400, "PARAMETER", "the query of the URL cannot be read") from None
        found: dict[str, str] = {}
        for name, value in pairs:
            if name not in known:
                takes = f"it takes {', '.join(known)}" if known else "this path takes none"
                raise Problem(422, "PARAMETER", f'no parameter is called "{name[:60]}"; {takes}')
            if name in found:
                raise Problem(422, "PARAMETER", f"{name} is given twice")
            found[name] = value
        return found

    async def body(self, most: int) -> bytes:
        """The whole body.

        Raises:
            GoneError: the client went away.
            Problem: it is too long, packed, or does not come in time.
        """
        if self.header(b"content-encoding") not in ("", "identity"):
            raise Problem(415, "PACKED", "a body is read as it is; send it without an encoding")
        said = self.header(b"content-length")
        if said.isdecimal() and int(said[:18]) > most:
            raise _too_long(most)
        try:
            async with asyncio.timeout(self.limits.deadline_s):
                return await self._all(most)
        except TimeoutError:
            raise Problem(408, "SLOW", "the body did not come in time") from None

    async def is_gone(self) -> bool:
        """Whether the client went away; asked when its body is read."""
        try:
            async with asyncio.timeout(0):
                await self._next()
        except TimeoutError:
            return False
        except GoneError:
            return True
        return False

    async def _all(self, most: int) -> bytes:
        pieces: list[bytes] = []
        length = 0
        while length <= most:
            message = await self._next()
            pieces.append(message.get("body", b""))
            length += len(pieces[-1])
            if length <= most and not message.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        raise _too_long(most)

    async def _next(self) -> Mapping[str, Any]:
        message: Mapping[str, Any] = await self._receive()
        if message["type"] == "http.disconnect":
            raise GoneError
        return message


def _too_long(most: int) -> Problem:
    return Problem(413, "TOO_LONG", f"the body is longer than {most:,} bytes")


class Slots:
    """So many at once; others wait."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count)

    async def take(self, deadline_s: float) -> None:
        """Takes one.

        Raises:
            Problem: none is free in time.
        """
        try:
            async with asyncio.timeout(deadline_s):
                await self._free.acquire()
        except TimeoutError:
            raise Problem(503, "DEADLINE", "others were asked before; ask again later") from None

    def give_back(self) -> None:
        """Gives it back."""
        self._free.release()
