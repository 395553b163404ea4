"""One question over HTTP: what is no answer, what is sent, which connections are kept."""

from __future__ import annotations

import os
import pickle
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from selector import Policy, RemoteSelector, Request, Selector, ServerError
from selector.errors import ValueRefusedError
from selector.report.data import json_text, resolution_json
from tests.unit import listening
from tests.unit.listening import LAYER, NOBODY, ask, failure, read_request, said, scripted

TOKEN = "correct-horse-battery"
HTML = said("200 OK", "content-type: text/html", body=b"<html>")
PROBLEM = "content-type: application/problem+json"


# -- what is given ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        *("", "x", "localhost:80", "ftp://x", "http://", "http:///x", "http://x:0", "http://x:y"),
        *("http://x:70000", "http://[::1", "http://a b", "http://x/ü", "http://x/?a", "http://x#a"),
        *("http://x\n", "http://me:secret@x", "secret@x"),
    ],
)
def test_what_is_no_url_of_a_server(url: str) -> None:
    with pytest.raises(ValueRefusedError) as raised:
        RemoteSelector(url)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("said", [{"timeout_s": 0}, {"timeout_s": float("nan")}, {"token": "a\nb"}])
def test_what_is_no_time_and_no_token(said: Any) -> None:
    with pytest.raises(ValueRefusedError) as raised:
        RemoteSelector(NOBODY, **said)
    assert "a\nb" not in str(raised.value)


# -- what is no answer ---------------------------------------------------------------------------


def test_nobody_is_there() -> None:
    error = failure(NOBODY)
    assert (error.code, error.is_down) == ("UNREACHABLE", True)
    assert str(error) == f"{NOBODY}: cannot be reached: connection refused"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("host", ["no.invalid", "x" * 64])
def test_a_name_that_is_none(host: str) -> None:
    error = failure(f"http://{host}")
    assert (error.code, error.is_down) == ("UNREACHABLE", True)


def problem(status: str, code: str) -> bytes:
    return said(status, PROBLEM, body=b'{"code": "%s", "detail": "because"}' % code.encode())


@pytest.mark.parametrize(
    ("answer", "code", "is_down", "words"),
    [
        (HTML, "NOT_ATTNSEL", False, "it answers 200 text/html"),
        (said("200 OK", body=b"{}"), "NOT_ATTNSEL", False, "it answers 200"),
        (said("200 OK", "attnsel-digest: 1", body=b"{}"), "NOT_ATTNSEL", False, "no resolution"),
        (said("200 OK", "attnsel-digest: 1", body=b"\xff"), "NOT_ATTNSEL", False, "no resolution"),
        (said("200 OK", "attnsel-digest: 1", body=b"[", length=2), "CUT", True, "breaks off"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n9\r\nx", "CUT", True, "breaks off"),
        (
            b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-9\r\nx",
            "NOT_ATTNSEL",
            False,
            "no HTTP server",
        ),
        (b"", "UNREACHABLE", True, "closed connection"),
        (b"SSH-2.0-OpenSSH\r\n", "NOT_ATTNSEL", False, "no HTTP server"),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", "NOT_ATTNSEL", False, "no HTTP"),
        (said("200 OK", body=b"", length=1 << 40), "NOT_ATTNSEL", False, "longer than 67,108,864"),
        (said("401 Unauthorized"), "NO_TOKEN", False, "wants a bearer token"),
        (said("403 Forbidden", "content-type: text/html"), "NOT_ATTNSEL", False, "403 text/html"),
        (said("404 Not Found"), "NOT_ATTNSEL", False, "it answers 404"),
        (problem("404 Not Found", "NO_SUCH_PATH"), "NO_SUCH_PATH", False, "because"),
        (problem("413 Too Large", "TOO_LONG"), "TOO_LONG", False, "because"),
        (problem("422 No", "BODY"), "BODY", False, "because"),
        (problem("500 Oh", "BUG"), "BUG", True, "because"),
        (problem("503 Later", "DEADLINE"), "DEADLINE", True, "because"),
        (problem("503 Later", "VALUE"), "VALUE", True, "because"),
        (said("503 Later", PROBLEM, body=b"[]"), "FAILED", True, "fails: it answers 503"),
        (said("502 Oh", "content-type: text/html"), "FAILED", True, "fails: it answers 502"),
        (said("302 Found", f"location: {NOBODY}/?secret"), "REDIRECT", False, "points elsewhere"),
    ],
)
def test_what_is_no_answer(
    here: Selector, answer: bytes, code: str, is_down: bool, words: str
) -> None:
    with scripted(answer) as server:
        error = failure(server.url)
        if is_down:
            told = ask(server.url, fallback=here).fallback
            assert told
            assert (told.code, told.reason) == (code, str(error))
        else:
            assert str(failure(server.url, fallback=here)) == str(error)
    assert (error.code, error.is_down) == (code, is_down)
    assert words in str(error)
    assert "secret" not in str(error)


def test_an_answer_without_a_length_is_not_read_for_ever() -> None:
    def pour(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nattnsel-digest: 1\r\n\r\n")
        for _ in range(200):
            connection.sendall(bytes(1 << 20))
            poured.append(1 << 20)

    poured: list[int] = []
    with scripted(pour) as server:
        assert "longer than 67,108,864 bytes" in str(failure(server.url, timeout_s=60))
    assert sum(poured) < 100 << 20


def drip(head: bytes) -> Callable[[socket.socket], None]:
    """Says something, then a byte now and then: each comes in time, all of them do not."""

    def answer(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(head)
        for _ in range(300):
            if stop.wait(0.02):
                return
            connection.sendall(b"x")

    stop = threading.Event()
    return answer


@pytest.mark.parametrize(
    "head",
    [b"", b"HTTP/1.1 200 OK\r\nx: ", b"HTTP/1.1 200 OK\r\ncontent-length: 999\r\n\r\n"],
    ids=["status", "header", "body"],
)
def test_a_server_that_drips_is_given_up(head: bytes) -> None:
    with scripted(drip(head)) as server:
        error = failure(server.url, timeout_s=0.3)
    assert (error.code, error.is_down) == ("TIMEOUT", True)
    assert str(error) == f"{server.url}: no answer within 0.3 s"


def test_a_server_that_reads_in_drips_is_given_up() -> None:
    def sip(connection: socket.socket) -> None:
        while piece := connection.recv(1 << 18):
            sipped.append(len(piece))
            if stop.wait(0.02):
                return

    stop = threading.Event()
    sipped: list[int] = []
    big = Policy(deny={"x": "y" * (64 << 20)})
    with scripted(sip) as server, RemoteSelector(server.url, timeout_s=0.5) as remote:
        bound = remote.bind("9.0", LAYER, policy=big)
        with pytest.raises(ServerError) as raised:
            bound.resolve(7)
        stop.set()
    assert raised.value.code == "TIMEOUT"
    assert sum(sipped) < 48 << 20


def test_a_server_that_says_nothing_and_one_that_does_not_read() -> None:
    def hold(connection: socket.socket) -> None:
        connection.recv(1)
        held.wait(30)

    held = threading.Event()
    with scripted(hold) as server:
        assert failure(server.url, timeout_s=0.2).code == "TIMEOUT"
        with RemoteSelector(server.url, timeout_s=0.2) as remote:
            big = Policy(deny={"x": "y" * (32 << 20)})
            with pytest.raises(ServerError) as raised:
                remote.bind("9.0", LAYER, policy=big).resolve(7)
            assert raised.value.code == "TIMEOUT"
        held.set()


def test_a_name_that_is_looked_up_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object, **__: object) -> Any:
        found.wait(30)
        raise socket.gaierror(socket.EAI_AGAIN, "no")

    found = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    assert failure("http://slow.example", timeout_s=0.1).code == "TIMEOUT"
    found.set()


# -- what goes over the wire ---------------------------------------------------------------------


def test_a_path_a_token_and_no_more(url: str) -> None:
    with scripted(HTML) as server:
        failure(f"{server.url}/behind/a%20proxy/", token=TOKEN)
    (request,) = server.requests
    head, _, body = request.partition(b"\r\n\r\n")
    first, *headers = head.decode().split("\r\n")
    assert first == "POST /behind/a%20proxy/v1/resolve HTTP/1.1"
    assert f"Authorization: Bearer {TOKEN}" in headers
    assert body.endswith(b'"request":{"query_len":7,"seq_len":9,"speculative_tokens":0}}')


def test_a_redirect_is_not_followed() -> None:
    with scripted(HTML) as other:
        with scripted(said("307 Go", f"location: {other.url}/v1/resolve")) as server:
            assert failure(server.url, token=TOKEN).code == "REDIRECT"
        assert other.requests == []


def test_through_a_proxy(url: str, here: Selector, monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(HTML) as proxy:
        monkeypatch.setenv("http_proxy", f"http://me:sec%72et@127.0.0.1:{proxy.port}")
        failure("http://far.example/x", token=TOKEN)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert ask(url) == here.bind("9.0", LAYER).resolve(7, 9)
    (request,) = proxy.requests
    assert request.startswith(b"POST http://far.example/x/v1/resolve HTTP/1.1\r\n")
    assert b"\r\nHost: far.example\r\n" in request
    assert b"\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n" in request
    monkeypatch.setenv("https_proxy", "socks5://me:secret@x")
    with pytest.raises(ValueRefusedError) as raised:
        RemoteSelector("https://far.example")
    assert "secret" not in str(raised.value)


def test_a_proxy_for_tls_does_not_see_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted(said("403 No")) as proxy:
        monkeypatch.setenv("https_proxy", proxy.url)
        error = failure("https://far.example", token=TOKEN)
    assert "403" in str(error)
    assert proxy.requests[0].startswith(b"CONNECT far.example:443 ")
    assert TOKEN.encode() not in proxy.requests[0]


def test_tls(here: Selector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is known is asked; one that nobody vouches for, or without TLS, is not."""
    with listening.tls(tmp_path, resolution_json(here.bind("9.0", LAYER).resolve(7, 9))) as server:
        error = failure(server.url)
        assert (error.code, error.is_down) == ("TLS", True)
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert ask(server.url) == here.bind("9.0", LAYER).resolve(7, 9)
        assert failure(server.url.replace("127.0.0.1", "localhost")).code == "TLS"
    with scripted(lambda connection: connection.sendall(HTML)) as plain:
        assert failure(plain.url.replace("http:", "https:"), timeout_s=30).code == "TLS"


# -- connections ---------------------------------------------------------------------------------


def keeping(answers: int, body: bytes, count: list[int]) -> Callable[[socket.socket], None]:
    """Answers so many questions on one connection, then closes it without a word."""

    def answer(connection: socket.socket) -> None:
        count.append(0)
        for _ in range(answers):
            if not read_request(connection):
                return
            count[-1] += 1
            connection.sendall(said("200 OK", "attnsel-digest: 1", body=body))

    return answer


def test_connections_are_kept_and_replaced_once(here: Selector) -> None:
    body = json_text(resolution_json(here.bind("9.0", LAYER).resolve(7, 9))).encode()
    count: list[int] = []
    with scripted(keeping(3, body, count)) as server, RemoteSelector(server.url) as remote:
        bound = remote.bind("9.0", LAYER)
        for _ in range(7):
            bound.resolve(7, 9)
    assert count == [3, 3, 1]
    count.clear()
    gone: list[int] = []
    answers = (keeping(1, body, count), keeping(0, body, gone))
    with scripted(*answers) as server, RemoteSelector(server.url) as remote:
        bound = remote.bind("9.0", LAYER)
        bound.resolve(7, 9)
        with pytest.raises(ServerError):
            bound.resolve(7, 9)
    assert (count, gone) == ([1], [0])


def test_a_connection_whose_answer_was_given_up_is_not_kept() -> None:
    """Or the next question would get the answer to this one."""

    def hold(connection: socket.socket) -> None:
        read_request(connection)
        held.wait(30)

    held = threading.Event()
    with scripted(hold) as server, RemoteSelector(server.url, timeout_s=0.2) as remote:
        with pytest.raises(ServerError):
            remote.bind("9.0", LAYER).resolve(1, 1)
        assert remote._client._idle == []
        held.set()


def test_many_threads_get_their_own_answers(url: str, here: Selector) -> None:
    with RemoteSelector(url) as remote, ThreadPoolExecutor(8) as pool:
        bound, own = remote.bind("9.0", LAYER), here.bind("9.0", LAYER)
        lengths = [(n % 17 + 1, n + 20) for n in range(200)]
        answers = [*pool.map(lambda pair: bound.resolve(*pair), lengths)]
    assert answers == [own.resolve(*pair) for pair in lengths]


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_makes_its_own_connections(url: str) -> None:
    with RemoteSelector(url) as remote:
        bound = remote.bind("9.0", LAYER)
        bound.resolve(1, 1)
        (kept,) = remote._client._idle
        child = os.fork()
        if child == 0:
            try:
                bound.resolve(2, 2)
                os._exit(0 if remote._client._idle[0] is not kept else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bound.resolve(3, 3).request == Request(3, 3)
        assert remote._client._idle == [kept]
