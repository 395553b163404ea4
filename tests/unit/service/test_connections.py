"""Connections over a port, for what a client can do that no application sees."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack
from threading import Event
from typing import Any

import pytest

from tests.unit.listening import running

HEAD = b"POST / HTTP/1.1\r\nhost: x\r\n"
App = Callable[[Any, Any, Any], Awaitable[None]]
Connect = Callable[..., socket.socket]

PATIENCE_S = 20
"""What takes so long does not come: the test fails, and the server ends."""


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Starts a server of an application and connects to it."""
    with ExitStack() as stack:

        def start(app: App, deadline_s: float = 3600) -> socket.socket:
            port = stack.enter_context(running(app, deadline_s))
            return stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))

        yield start


async def hello(scope: Any, receive: Any, send: Any) -> None:
    """Answers without a look at the body."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello"})


def rest(connection: socket.socket) -> bytes:
    """All that comes until the connection ends."""
    data = b""
    try:
        while piece := connection.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def flood(connection: socket.socket, data: bytes) -> bool:
    """Sends 10 MB of it, unless the connection ends before."""
    try:
        for _ in range(10_000_000 // len(data)):
            connection.sendall(data)
    except ConnectionError:
        return True
    return rest(connection).startswith(b"HTTP/1.1 431 ")


@pytest.mark.parametrize(
    "endless",
    [b"a" * 5000, b"x: y\r\n" * 1000, b"x: " + b"a" * 4997, b"\r\n" * 2500],
    ids=["line", "headers", "header", "empty lines"],
)
def test_a_head_has_an_end(connect: Connect, endless: bytes) -> None:
    connection = connect(hello)
    if endless[:1] != b"\r":
        connection.sendall(HEAD if b":" in endless else b"GET /")
    assert flood(connection, endless)


def test_a_long_head_that_ends_is_read(connect: Connect) -> None:
    connection = connect(hello)
    connection.sendall(HEAD + b"x: %s\r\nconnection: close\r\n\r\n" % (b"a" * 60_000))
    assert rest(connection).endswith(b"hello\r\n0\r\n\r\n")


def test_what_follows_a_body_has_an_end(connect: Connect) -> None:
    """Trailers of a request that was answered before it was whole."""
    connection = connect(hello)
    connection.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n0\r\n")
    assert flood(connection, b"x: %s\r\n" % (b"a" * 5000))


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nhos"], ids=["nothing", "half a head"])
def test_a_head_that_does_not_come_in_time_is_not_waited_for(connect: Connect, sent: bytes) -> None:
    connection = connect(hello, 0.2)
    connection.sendall(sent)
    assert rest(connection) == b""


def test_who_goes_on_with_a_body_that_was_answered_is_cut_off(connect: Connect) -> None:
    connection = connect(hello, 0.2)
    connection.sendall(HEAD + b"content-length: 1000000000\r\n\r\n")
    assert connection.recv(4096).startswith(b"HTTP/1.1 200 ")
    connection.settimeout(0.02)
    for _ in range(1000):
        try:
            connection.sendall(b"x")
            if connection.recv(4096) == b"":
                return
        except TimeoutError:
            pass
        except ConnectionError:
            return
    pytest.fail("it is still listened to")


def test_an_answer_that_is_not_taken_is_dropped(connect: Connect) -> None:
    gone = Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await send_one(receive, send)) is None:
            pass
        gone.set()

    async def send_one(receive: Any, send: Any) -> bool | None:
        await send({"type": "http.response.body", "body": b"a" * 65536, "more_body": True})
        try:
            message = await asyncio.wait_for(receive(), 0.01)
        except TimeoutError:
            return None
        return True if message["type"] == "http.disconnect" else None

    connection = connect(endless, 0.2)
    connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    assert gone.wait(PATIENCE_S)


def test_who_leaves_with_a_request_behind_another_is_gone_for_both(connect: Connect) -> None:
    asked, left, ended = Event(), Event(), Event()
    failed: list[Exception] = []

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        asked.set()
        while (await asyncio.wait_for(receive(), PATIENCE_S))["type"] != "http.disconnect":
            pass
        left.set()
        try:
            await hello(scope, receive, send)
        except Exception as error:
            failed.append(error)
        ended.set()

    connection = connect(slow)
    connection.sendall(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" * 2)
    assert asked.wait(PATIENCE_S)
    connection.close()
    assert left.wait(PATIENCE_S)
    assert ended.wait(PATIENCE_S)
    assert failed == []
