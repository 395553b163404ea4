"""``attnsel serve`` as a process: it listens, reloads, drains, and says what is wrong."""

from __future__ import annotations

import asyncio
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.serve import _server
from tests.server import PATIENCE_S, Client, Server

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

SMALL = Path(__file__).parent / "small.yaml"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "engine.yaml"
    path.write_bytes(SMALL.read_bytes())
    return path


@pytest.fixture
def server(file: Path) -> Iterator[Server]:
    with Server([file]) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with closing(Client(server.port)) as client:
        yield client


def test_more_manifests_follow_the_first(file: Path) -> None:
    with Server([file], "vllm-0.33.0", "capabilities") as server, closing(Client(server.port)) as c:
        served = [one["name"] for one in c.get("/readyz").json["manifests"]]
    assert served == ["engine", "vllm-0.33.0", "capabilities"]


def test_it_answers_sees_a_change_reloads_and_drains(
    server: Server, client: Client, file: Path
) -> None:
    assert client.get("/healthz").json == {"status": "alive"}
    file.write_text(file.read_text().replace('version: "1"', 'version: "2"'))
    assert server.until("manifest served")["generation"] == 2
    file.unlink()
    assert server.until("manifest degraded")["code"] == "UNREADABLE"
    assert client.get("/v1/backends").json["manifest"]["version"] == "2"
    file.write_bytes(SMALL.read_bytes())
    assert server.until("manifest served")["generation"] == 3
    server.process.send_signal(signal.SIGHUP)
    assert server.until("reloaded")["manifests"]["engine"]["generation"] == 3
    assert server.stop() == 0
    assert server.until("draining")["signal"] == "SIGTERM"


def test_a_hangup_never_ends_it_however_early() -> None:
    handled: list[object] = []

    class Fake:
        started = False

        def __init__(self, _: object) -> None:
            pass

        async def startup(self, sockets: object) -> None:
            handled.append(signal.getsignal(signal.SIGHUP))

    service: Any = SimpleNamespace(reload_soon=lambda *_: None)
    kept = signal.getsignal(signal.SIGHUP)
    try:
        asyncio.run(_server(SimpleNamespace(Server=Fake), None, service, 0).startup())
    finally:
        signal.signal(signal.SIGHUP, kept)
    assert handled == [service.reload_soon]


def test_a_hangup_never_ends_it_however_late() -> None:
    with Server([SMALL]) as server:
        server.process.send_signal(signal.SIGTERM)
        server.until("draining")
        while server.process.poll() is None:
            server.process.send_signal(signal.SIGHUP)
            select.select([], [], [], 0.005)  # a storm would hold up the end
        assert server.process.wait() == 0


def test_it_listens_on_loopback_alone(server: Server) -> None:
    listening = Path(f"/proc/{server.process.pid}/net/tcp").read_text()
    hosts = {
        line.split()[1].partition(":")[0]
        for line in listening.splitlines()[1:]
        if line.split()[1].endswith(f":{server.port:04X}") and line.split()[3] == "0A"
    }
    assert hosts == {"0100007F"}


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/resolve HTTP/1.1\r\nHost\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request(server: Server, client: Client, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as connection:
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        answer = connection.recv(4096)
    assert answer == b"" or answer.split()[1][:1] == b"4"
    assert client.get("/healthz").status == 200


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--manifest", "none"], "no manifest that ships"),
        (["--manifest", "{dir}/bad.yaml"], "CAP"),
        (["--token-file", "{dir}/none"], "no such file"),
        (["--token-file", "{dir}/short"], "too short (3)"),
        (["--token-file", "{dir}/two"], "holds no token"),
        (["--drain-delay", "-1"], "--drain-delay"),
        (["--port", "70000"], "65535"),
    ],
)
def test_what_cannot_start(options: list[str], words: str, tmp_path: Path, run: Any) -> None:
    (tmp_path / "short").write_text("abc\n")
    (tmp_path / "two").write_text("abcdefghijklmnop\nqrstuvwxyz\n")
    (tmp_path / "bad.yaml").write_text("attnsel: 1\n")
    ran = run("serve", *(option.format(dir=tmp_path) for option in options))
    assert ran.code == 2
    assert words in ran.complaint


def test_a_port_that_is_taken(run: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        ran = run("serve", "--port", other.getsockname()[1])
    assert ran.code == 2
    assert "address already in use" in ran.complaint


def test_a_host_that_is_none(run: Any) -> None:
    assert "256.0.0.1:8080: " in run("serve", "--host", "256.0.0.1").complaint


def test_what_is_missing_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    ran = run("serve")
    assert ran.code == 2
    assert "pip install 'attnsel[serve]'" in ran.complaint
