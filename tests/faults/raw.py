"""Bytes that are no request, or one that no client should send, over sockets."""

from __future__ import annotations

import random
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from selector.service.limits import Limits
from tests.faults import payloads
from tests.faults.payloads import MARK, Body
from tests.server import PATIENCE_S

__all__ = ["Case", "cases", "converse", "verdict"]

_QUIET_S = 0.15
"""Nothing came for so long: the server waits for more, and is told that there is none."""

_PATHS = (
    "/v1/resolve", "/v1/resolve:batch", "/v1/explain", "/v1/lint", "/v1/diff", "/v1/manifest",
    "/v1/backends", "/v1/backends/fa2", "/v1/matrix", "/v1/models", "/healthz", "/readyz",
    "/metrics", "/openapi.json", "/", "/explorer.js",
)  # fmt: skip


class Case(NamedTuple):
    """What is sent over one connection.

    Attributes:
        kind: what is wrong with it.
        data: the bytes.
        may_be_good: part of it may have an answer.
        is_whole: it is one request, and ends the connection: what comes until then is its answer.
    """

    kind: str
    data: bytes
    may_be_good: bool = False
    is_whole: bool = False


def cases(count: int, seed: int) -> Iterator[Case]:
    """So many; number N of a seed is always the same."""
    for number in range(count):
        dice = random.Random(f"{seed} raw {number}")
        yield dice.choices(_MAKERS, _SHARES)[0](dice)


def converse(port: int, case: Case) -> bytes:
    """All that a server answers to a case, until it ends the connection or has answered it all.

    Raises:
        TimeoutError: it does neither.
    """
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as connection:
        answer = b""
        with suppress(ConnectionError):  # ended while there was still something to send
            connection.sendall(case.data)
            if not case.is_whole:
                connection.settimeout(_QUIET_S)
            while piece := _next(connection):
                answer += piece
        return answer


def _next(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1 << 16)
    except TimeoutError:
        if connection.gettimeout() == PATIENCE_S:
            raise
        connection.settimeout(PATIENCE_S)
        connection.shutdown(socket.SHUT_WR)
        return connection.recv(1 << 16)


_CLOSE = b"connection: close\r\n"
_STATUS = re.compile(rb"^HTTP/1\.1 (\d{3}) ", re.MULTILINE)


def verdict(case: Case, answer: bytes) -> str:
    """What came of a case; begins with ``wrong`` where it must not."""
    statuses = [int(found) for found in _STATUS.findall(answer)]
    if answer and not answer.startswith(b"HTTP/1.1 "):
        return f"wrong: no answer of HTTP {answer[:300]!r}"
    if not answer and case.is_whole and len(case.data) < Limits().body_bytes:
        return "wrong: no answer, though all of it is read before one is given"
    if b"Traceback" in answer:
        return f"wrong: a traceback {answer[:2000]!r}"
    if 503 in statuses and b'"code":"DEADLINE"' in answer:
        return "503 DEADLINE"
    if any(status >= 500 for status in statuses):
        return f"wrong: {statuses} {answer[:1000]!r}"
    if not case.may_be_good and any(200 <= status < 400 for status in statuses):
        return f"wrong: it is taken as good {answer[:500]!r}"
    return "closed" if not statuses else f"{statuses[-1]}"


# -- bytes ---------------------------------------------------------------------------------------


def _noise(dice: random.Random) -> Case:
    data = dice.choice(
        (
            dice.randbytes(dice.randrange(1, 2000)),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + dice.randbytes(500),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
            b"\0" * dice.randrange(1, 5000),
            b"SSH-2.0-OpenSSH_9.9\r\n",
            b"GET /\r\n",
            b"GET\r\n\r\n",
            b"\r\n" * dice.randrange(1, 200_000),
        )
    )
    return Case("noise", data)


def _line(dice: random.Random) -> Case:
    """A request line that is none."""
    path = dice.choice(_PATHS).encode()
    method = dice.choice((b"GET", b"POST", b"PUT", b"BREW", b"get", b"G\0T", b"", b"G" * 70_000))
    version = dice.choice((b"HTTP/9.9", b"HTTP/1.1x", b"HTTP/", b"http/1.1", b"ICY/1.0", b"\xff"))
    return Case("request line", b"%s %s %s\r\nhost: x\r\n\r\n" % (method, path, version))


def _path(dice: random.Random) -> Case:
    """A path that nobody answers."""
    path = dice.choice(
        (
            b"/../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"/v1/../../etc/passwd",
            b"//etc/passwd",
            b"/v1/backends/%00", b"/v1/backends/%ff%fe", b"/v1/backends/..%2f..%2fetc%2fpasswd",
            b"/v1/backends/\xff\xfe", b"/\xe2\x82\xac", b"/%", b"/%zz", b"/%0d%0aset-cookie:%20a=b",
            b"/explorer.js/..%2f..%2flive.py", b"/explorer/../live.py",
            b"/v1/backends/" + b"a" * 60_000,
            b"http://example.org/etc/passwd", b"example.org:443", b"*", b"http://", b"/v1/resolve/",
            b"/v1/manifest?manifest=../../etc/passwd", b"/v1/manifest?manifest=%00",
            b"/healthz?a=b",
            b"/v1/manifest?manifest=/etc/passwd", b"/v1/matrix?" + b"a=b&" * 5000, b"/v1/models?x",
            b"/v1/manifest?source=-1", b"/v1/manifest?source=" + b"9" * 9000,
            b"/v1/manifest?%ff=%ff",
            b"/v1/backends/" + bytes(dice.choices(range(33, 256), k=20)),
        )
    )  # fmt: skip
    method = dice.choice((b"GET", b"HEAD", b"OPTIONS", b"DELETE", b"CONNECT", b"PROPFIND"))
    whole = b"%s %s HTTP/1.1\r\nhost: x\r\n%s\r\n" % (method, path, _CLOSE)
    return Case("path", whole, is_whole=True)


def _headers(dice: random.Random) -> Case:
    """Headers that are none, or far too many."""
    lines = dice.choice(
        (
            b"x: " + b"a" * dice.choice((100_000, 3_000_000)),
            b"\r\n".join(b"x-%d: %s" % (n, MARK) for n in range(dice.choice((9_000, 50_000)))),
            b"no colon", b": no name", b"na me: x", b"x\0y: z", b"x: a\0b", b"x: a\rb: c",
            b" folded: x",
            b"content-length: 5\r\ncontent-length: 6", b"content-length: -1",
            b"content-length: 0x5",
            b"content-length: " + b"9" * 30, b"content-length: 1e3", b"content-length: \xb2",
            b"transfer-encoding: chunked\r\ncontent-length: 5", b"transfer-encoding: chunked, x",
            b"transfer-encoding: x", b"\xff\xfe: \xff",
        )
    )  # fmt: skip
    return Case("headers", b"POST /v1/resolve HTTP/1.1\r\nhost: x\r\n%s\r\n\r\n{}" % lines)


def _harmless(dice: random.Random) -> Case:
    """Headers and forms that are odd, on a request that is good."""
    lines = dice.choice(
        (
            b"x: \xff\xfe", b"authorization: Bearer \xff",
            b"connection: upgrade\r\nupgrade: websocket",
            b"connection: upgrade\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQCAAAAAAIAAAAA",
            b"expect: 100-continue", b"expect: 200-maybe", b"x-request-id: " + b"a" * 5000,
            b"if-none-match: \xff", b"te: trailers", b"accept: \xff", b"range: bytes=0-1",
            b"x-http-method-override: DELETE", b"cookie: " + b"a=b;" * 5000, b"connection: close",
        )
    )  # fmt: skip
    path = dice.choice(("/v1/manifest", "/healthz", "/v1/backends/fa2", "/metrics", "/"))
    start = dice.choice((b"GET %s HTTP/1.1", b"GET %s HTTP/1.0", b"HEAD %s HTTP/1.1"))
    whole = b"%s\r\nhost: x\r\n%s\r\n\r\n" % (start % path.encode(), lines)
    return Case("odd headers", whole, may_be_good=True)


def _chunks(dice: random.Random) -> Case:
    """A body in pieces that are none."""
    head = b"POST /v1/lint HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    body = dice.choice(
        (
            b"zz\r\n", b"-5\r\nabcde\r\n0\r\n\r\n", b"ffffffffffffffffffff\r\n",
            b"5\r\nabcdefgh\r\n",
            b"5;" + b"x" * 200_000 + b"\r\nabcde\r\n0\r\n\r\n", b"5\nabcde\n0\n\n", b"\r\n\r\n",
            b"5\r\nabc", b"0\r\n" + b"x: %s\r\n" % MARK * 9000, b"0\r\nx: " + b"a" * 2_000_000,
            b"1\r\n" * 1000, dice.randbytes(300), b"5 \r\nabcde\r\n0\r\n\r\n"
        )
    )  # fmt: skip
    return Case("chunks", head + body, may_be_good=True)


def _length(dice: random.Random) -> Case:
    """A length that is not that of the body."""
    said = dice.choice((0, 1, 50, 10_000, 5_000_000, 10**15))
    head = b"POST /v1/resolve HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % said
    body = payloads.QUESTION
    return Case("length", head + (body[: said - 1] if said > len(body) else body))


def _pipeline(dice: random.Random) -> Case:
    """Several requests at once, the last of them none or half of one."""
    good = b"GET %s HTTP/1.1\r\nhost: x\r\n\r\n" % dice.choice(_PATHS).encode()
    asked = payloads.request("/v1/resolve", Body("", payloads.QUESTION, True))
    last = dice.choice((_line, _headers, _chunks, _half))(dice).data
    whole = b"".join(dice.choices((good, asked), k=dice.randrange(1, 30)))
    return Case("pipeline", whole + last, may_be_good=True)


def _half(dice: random.Random) -> Case:
    whole = payloads.request("/v1/resolve", Body("", payloads.QUESTION, True))
    return Case("half", whole[: dice.randrange(1, len(whole))])


def _flipped(dice: random.Random) -> Case:
    """A request with some of its bytes changed."""
    path, body = payloads.any_body(dice)
    data = bytearray(payloads.request(path, body))
    for _ in range(dice.randrange(1, 6)):
        data[dice.randrange(min(len(data), 400))] = dice.randrange(256)
    return Case("flipped", bytes(data), may_be_good=True)


def _body(dice: random.Random) -> Case:
    path, body = payloads.any_body(dice)
    whole = payloads.request(path, body._replace(headers=body.headers + _CLOSE))
    return Case(f"{path} {body.kind}", whole, body.may_be_good, is_whole=True)


_WEIGHED: tuple[tuple[Callable[[random.Random], Case], int], ...] = (
    (_noise, 6),
    (_line, 4),
    (_path, 10),
    (_headers, 8),
    (_harmless, 5),
    (_chunks, 6),
    (_length, 4),
    (_pipeline, 5),
    (_half, 4),
    (_flipped, 10),
    (_body, 40),
)
_MAKERS = [make for make, _ in _WEIGHED]
_SHARES = [share for _, share in _WEIGHED]
