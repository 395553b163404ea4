"""Clients that send or take their bytes so slowly that they would hold a connection for ever."""

from __future__ import annotations

import json
import os
import random
import socket
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from tests.conftest import PLAIN
from tests.faults.malformed import Figures, serving
from tests.faults.payloads import QUESTION
from tests.server import PATIENCE_S, Client, Server, memory_kib

__all__ = ["run"]

_DEADLINE_S = 1
_PAUSE_S = 0.05
_KINDS = ("silent", "head", "body", "stopped body", "chunks", "trailers", "answer not taken")
_HEAD = b"POST /v1/%s HTTP/1.1\r\nhost: x\r\n"


def run(count: int, seed: int, folder: Path) -> Figures:
    """Connects so many of them, and waits until the server has ended each.

    Raises:
        AssertionError: one stays, or others were not answered meanwhile.
    """
    dice, kinds, began = random.Random(f"{seed} slow"), Counter[str](), time.monotonic()
    options = ("--deadline", str(_DEADLINE_S), "--at-once", "64")
    with serving(folder, *options) as server, ExitStack() as stack:
        before = _sockets(server)
        slow: list[tuple[str, socket.socket]] = []
        for number in range(count):
            kind = _KINDS[number % len(_KINDS)] if number < 14 else dice.choice(_KINDS)
            kinds[kind] += 1
            slow.append((kind, stack.enter_context(_connect(server.port, kind))))
        end = time.monotonic() + PATIENCE_S
        while _sockets(server) > before:
            assert time.monotonic() < end, f"{_sockets(server) - before} of {count} are held"
            for kind, connection in slow:
                _drip(kind, connection)
            with closing(Client(server.port)) as client:
                assert client.get("/healthz").status == 200
            time.sleep(_PAUSE_S)
        most = memory_kib(server.process.pid, "VmHWM") // 1024
    return Figures("slow clients, each cut off", kinds, most, time.monotonic() - began)


def _sockets(server: Server) -> int:
    """How many sockets a server has open."""
    count = 0
    for link in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(OSError):
            count += os.readlink(link).startswith("socket:")
    return count


def _connect(port: int, kind: str) -> socket.socket:
    """A connection that has sent the beginning."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE_S)
    connection.connect(("127.0.0.1", port))
    if kind == "answer not taken":
        rows = [{"arch": "9.0", **PLAIN, "query_len": n + 1} for n in range(20_000)]
        body = json.dumps(rows).encode()
        head = _HEAD % b"resolve:batch"
        connection.sendall(head + b"content-length: %d\r\n\r\n%s" % (len(body), body))
    elif kind == "head":
        connection.sendall(_HEAD % b"resolve")
    elif "body" in kind:
        connection.sendall(_HEAD % b"resolve" + b"content-length: 100000\r\n\r\n" + QUESTION)
    elif kind in ("chunks", "trailers"):
        connection.sendall(_HEAD % b"resolve" + b"transfer-encoding: chunked\r\n\r\n")
        if kind == "trailers":
            connection.sendall(b"%x\r\n%s\r\n0\r\n" % (len(QUESTION), QUESTION))
    return connection


def _drip(kind: str, connection: socket.socket) -> None:
    piece = {"head": b"x: y\r\n", "body": b" ", "chunks": b"1\r\n \r\n", "trailers": b"x: y\r\n"}
    with suppress(OSError):
        connection.sendall(piece.get(kind, b""))
