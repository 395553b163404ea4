"""Servers on a port of this machine: a service as it is, and ones that say what they are told."""

from __future__ import annotations

import io
import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Literal

import pytest

from selector import Layer, RemoteSelector, Resolution, ServerError

LAYER = Layer.of(head_size=128, dtype="bfloat16", kv_cache_dtype="auto", attn_type="decoder")
NOBODY = "http://127.0.0.1:1"
"""Where no server is."""

Answer = bytes | Callable[[socket.socket], None]


@contextmanager
def running(
    app: Any, deadline_s: float = 3600, lifespan: Literal["on", "off"] = "off"
) -> Iterator[int]:
    """The port of an application, whose connections are those of a service."""
    uvicorn = pytest.importorskip("uvicorn")
    from selector.service.connections import connections

    config = uvicorn.Config(
        app,
        http=connections(deadline_s),
        ws="none",
        log_config=None,
        access_log=False,
        lifespan=lifespan,
    )
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        thread = Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def service(
    manifests: Sequence[str] = (), overlays: Sequence[str] = (), token: str | None = None
) -> Iterator[str]:
    """The URL of a service; its files are not looked at."""
    pytest.importorskip("starlette")
    from selector.live import LiveManifests
    from selector.service.access import Access
    from selector.service.app import Service
    from selector.service.log import Log

    live = LiveManifests.load(manifests, overlays)
    app = Service(live, Log(io.StringIO()), access=Access(token), watch_s=3600)
    with running(app, lifespan="on") as port:
        yield f"http://127.0.0.1:{port}"


def write_overlay(file: Path, backend: str) -> str:
    """The path of an overlay that gives 9.0 this backend."""
    file.write_text(
        "attnsel: 1\noverlay: own\npriorities:\n"
        f"  - {{when: {{capability: '9.0'}}, order: [{backend}], reason: Mine.}}\n"
    )
    return str(file)


class Scripted:
    """A server that gives each connection the next answer, the last one for ever.

    Attributes:
        url: where it is.
        requests: what it was asked, whole.
        stopping: it ends.
    """

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.requests: list[bytes] = []
        self.stopping = Event()
        self._thread = Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            with connection, suppress(OSError):
                if self.stopping.is_set():
                    return
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                connection.settimeout(30)
                if callable(answer):
                    answer(connection)
                    continue
                self.requests.append(read_request(connection))
                connection.sendall(answer)

    def stop(self) -> None:
        """Answers nobody any more."""
        self.stopping.set()
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port), 30).close()
        self._thread.join()
        self._socket.close()


@contextmanager
def scripted(*answers: Answer) -> Iterator[Scripted]:
    """Such a server."""
    server = Scripted(*answers)
    try:
        yield server
    finally:
        server.stop()


def read_request(connection: socket.socket) -> bytes:
    """A request, whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return data
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    for one in head.lower().split(b"\r\n"):
        if one.startswith(b"content-length:"):
            while len(body) < int(one.split(b":")[1]):
                body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


def said(status: str, *headers: str, body: bytes = b"", length: int | None = None) -> bytes:
    """The bytes of an answer; ``length`` says another length than it has."""
    size = len(body) if length is None else length
    lines = [f"HTTP/1.1 {status}", f"content-length: {size}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@contextmanager
def between(*urls: str) -> Iterator[str]:
    """The URL of one that hands each question to the next of these services, which answers it."""

    def hand_to(url: str) -> Callable[[socket.socket], None]:
        host, _, port = url.removeprefix("http://").partition(":")

        def answer(connection: socket.socket) -> None:
            request = read_request(connection).replace(
                b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"
            )
            with socket.create_connection((host, int(port)), 30) as other:
                other.sendall(request)
                while piece := other.recv(65536):
                    connection.sendall(piece)

        return answer

    with scripted(*map(hand_to, urls)) as server:
        yield server.url


@contextmanager
def tls(folder: Path, answer: object) -> Iterator[Scripted]:
    """A server that speaks TLS, by a certificate in ``cert.pem`` for 127.0.0.1 alone."""
    if shutil.which("openssl") is None:
        pytest.skip("makes a certificate with openssl")
    key, cert = folder / "key.pem", folder / "cert.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    named = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = [*words.split(), *named, "-keyout", key, "-out", cert]
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    def speak(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            read_request(wrapped)
            wrapped.sendall(said("200 OK", "attnsel-digest: 1", body=json.dumps(answer).encode()))

    with scripted(speak) as server:
        server.url = server.url.replace("http:", "https:")
        yield server


def ask(url: str, **said: Any) -> Resolution:
    """One answer of a server."""
    with RemoteSelector(url, **said) as remote:
        return remote.bind("9.0", LAYER).resolve(7, 9)


def failure(url: str, **said: Any) -> ServerError:
    """Why there is none; always one line that begins with the URL."""
    with pytest.raises(ServerError) as raised:
        ask(url, **said)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(f"{url.rstrip('/')}: ")
    return raised.value
