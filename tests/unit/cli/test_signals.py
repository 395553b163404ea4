"""What signals do to ``attnsel serve``: it drains, and reads its token and manifests again."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from cli.serve import _server
from tests.server import PATIENCE_S, Reply, Server

SMALL = Path(__file__).parent / "small.yaml"
OLD, NEW = "a" * 16, "b" * 16


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "engine.yaml"
    path.write_bytes(SMALL.read_bytes())
    return path


def get(server: Server, path: str, token: str = "") -> Reply:
    """What a client is answered that connects anew."""
    connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_S)
    with closing(connection):
        connection.request("GET", path, headers={"authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        return Reply(answer.status, dict(answer.headers), answer.read())


# -- draining ------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_on_while_others_learn_that_it_ends(file: Path, first: signal.Signals) -> None:
    with Server([file], "--drain-delay", "3600") as server:
        assert get(server, "/readyz").status == 200
        server.process.send_signal(first)
        line = server.until("draining")
        assert (line["signal"], line["delay_s"]) == (first.name, 3600)
        for _ in range(3):
            ready = get(server, "/readyz")
            assert (ready.status, ready.json["status"]) == (503, "draining")
            assert get(server, "/v1/backends").status == 200
            assert get(server, "/healthz").status == 200
        assert server.stop() == 0, "a second signal skips the rest"
        assert server.until("draining")["delay_s"] == 0
        assert not server.oddities


def test_it_ends_by_itself_after_the_delay(file: Path) -> None:
    with Server([file], "--drain-delay", "0.3") as server:
        assert server.stop() == 0
        assert server.until("draining")["delay_s"] == 0.3


def test_a_signal_before_it_answers_ends_it() -> None:
    """Nobody was told that it is ready, so nobody has to learn that it ends."""
    service: Any = SimpleNamespace(draining=False, log=SimpleNamespace(write=lambda *_, **__: None))

    class Fake:
        started = False
        should_exit = force_exit = False

        def __init__(self, _: object) -> None:
            pass

        async def on_tick(self, _: int) -> bool:
            return self.should_exit

    server = _server(SimpleNamespace(Server=Fake), None, service, 3600)
    server.handle_exit(signal.SIGTERM, None)
    assert (server.should_exit, service.draining) == (True, True)
    server = _server(SimpleNamespace(Server=Fake), None, service, 3600)
    server.started, service.draining = True, False
    server.handle_exit(signal.SIGTERM, None)
    assert not asyncio.run(server.on_tick(0))


# -- reading again -------------------------------------------------------------------------------


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{OLD}\n")
    return path


@pytest.fixture
def guarded(file: Path, token_file: Path) -> Iterator[Server]:
    with Server([file], "--token-file", str(token_file)) as server:
        yield server


def hang_up(server: Server) -> None:
    server.process.send_signal(signal.SIGHUP)


def test_a_token_is_replaced(guarded: Server, token_file: Path) -> None:
    assert get(guarded, "/v1/backends", OLD).status == 200
    token_file.write_text(f"{NEW}\n")
    assert get(guarded, "/v1/backends", NEW).status == 401, "not before it is asked to"
    hang_up(guarded)
    guarded.until("token replaced")
    guarded.until("reloaded")
    statuses = [get(guarded, "/v1/backends", token).status for token in (OLD, NEW, "")]
    assert statuses == [401, 200, 401]
    hang_up(guarded)
    guarded.until("reloaded")
    assert [line["event"] for line in guarded.lines].count("token replaced") == 1
    assert NEW.encode() not in guarded.log()


@pytest.mark.parametrize(
    ("text", "words"),
    [("short", "too short (5)"), ("", "holds no token"), (None, "no such file")],
)
def test_a_token_file_that_is_bad_leaves_the_old_token(
    guarded: Server, token_file: Path, text: str | None, words: str
) -> None:
    token_file.unlink() if text is None else token_file.write_text(text)
    hang_up(guarded)
    kept = guarded.until("token kept")
    assert kept["level"] == "warning"
    assert words in kept["detail"]
    assert str(token_file) in kept["detail"]
    guarded.until("reloaded")
    statuses = [get(guarded, "/v1/backends", token).status for token in (OLD, "", text or "x")]
    assert statuses == [200, 401, 401]


def test_a_reload_says_which_manifest_is_not_what_its_file_holds(
    file: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.yaml"
    other.write_bytes(SMALL.read_bytes())
    with Server([file, other]) as server:
        file.unlink()
        hang_up(server)
        assert server.until("reloaded")["manifests"] == {
            "engine": {"generation": 1, "status": "degraded"},
            "other": {"generation": 1, "status": "ready"},
        }


# -- what is kept --------------------------------------------------------------------------------


def test_it_says_when_nothing_can_be_kept(file: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("no folder")
    with Server([file], cache=tmp_path / "taken" / "below") as server:
        assert (server.lines[0]["level"], server.lines[0]["kept"]) == ("warning", False)
        assert b'attnsel_manifest_kept{manifest="engine"} 0.0' in get(server, "/metrics").body
        (tmp_path / "taken").unlink()
        hang_up(server)
        line = server.until("manifest served")
        assert (line["level"], line["kept"], line["generation"]) == ("info", True, 1)
        assert b'attnsel_manifest_kept{manifest="engine"} 1.0' in get(server, "/metrics").body
