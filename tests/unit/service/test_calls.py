"""Bodies that come in pieces, too slowly, without end, or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.service.conftest import Serve, Served

Receive = Callable[[], Awaitable[dict[str, Any]]]

BODY = b'{"device": "9.0"}'


def ask(served: Served, receive: Receive) -> list[dict[str, Any]]:
    """What the service sends to a client that sends its body so."""
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/v1/resolve", "root_path": ""}
    scope |= {"query_string": b"", "headers": [(b"content-type", b"application/json")]}
    asyncio.run(served.service(scope, receive, send))
    return sent


def piece(data: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


def test_in_pieces(served: Served) -> None:
    pieces = iter([piece(bytes([one])) for one in BODY] + [piece(b"", more=False)])

    async def receive() -> dict[str, Any]:
        return next(pieces)

    assert ask(served, receive)[0]["status"] == 200


def test_without_end(serve: Serve) -> None:
    served, came = serve(body_bytes=1000), 0

    async def receive() -> dict[str, Any]:
        nonlocal came
        came += 1
        assert came < 20, "no more is read than may be"
        return piece(b" " * 100)

    start, body = ask(served, receive)
    assert (start["status"], json.loads(body["body"])["code"]) == (413, "TOO_LONG")


@pytest.mark.parametrize("begun", [[], [piece(b"{")]], ids=["nothing", "a piece"])
def test_too_slowly(serve: Serve, begun: list[dict[str, Any]]) -> None:
    served, pieces = serve(deadline_s=0.01), iter(begun)

    async def receive() -> dict[str, Any]:
        for one in pieces:
            return one
        await asyncio.Event().wait()
        raise AssertionError

    start, body = ask(served, receive)
    assert (start["status"], json.loads(body["body"])["code"]) == (408, "SLOW")


def test_not_at_all(served: Served) -> None:
    pieces = iter([piece(b"{"), {"type": "http.disconnect"}])

    async def receive() -> dict[str, Any]:
        return next(pieces)

    assert ask(served, receive) == []
    assert served.logged()[-1]["status"] == 499
