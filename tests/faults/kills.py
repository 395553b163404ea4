"""Servers that are killed, and start again: what was served last is served, and nobody is left.

The file may be as it was, broken or gone when it starts again, and what is kept beside it damaged.
"""

from __future__ import annotations

import http.client
import random
import socket
import subprocess
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from tests.faults import manifests
from tests.faults.load import Load
from tests.faults.manifests import Kept
from tests.faults.payloads import QUESTION
from tests.faults.reloads import Writer
from tests.server import COMMAND, PATIENCE_S, Client, Server, wait_until_gone

__all__ = ["Figures", "drain", "run"]

_AFTER = ("half", "vanished", "as it is", "good", "schema", "binary", "folder")
_DAMAGE = ("none", "none", "none", "cut", "flipped", "emptied", "unfinished", "no folder")


class Figures(NamedTuple):
    """What was done and seen."""

    kills: int
    answers: int
    after: Counter[str]
    helpers: int
    took_s: float

    def __str__(self) -> str:
        after = ", ".join(f"{count} {what}" for what, count in self.after.most_common())
        return (
            f"{self.kills} servers killed after {self.answers:,} answers, and started again, in "
            f"{self.took_s:.0f} s; {self.helpers} helpers of theirs ended too\n  {after}"
        )


class _Life:
    """A file, what is known of it, and how often its server was killed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.dice = random.Random(f"{seed} kills")
        self.kept = Kept(folder / "engine.yaml")
        self.cache = folder / "cache"
        self.writer = Writer([self.kept], self.dice)
        self.after: Counter[str] = Counter()
        self.answers = self.helpers = 0
        self._seed = seed

    def server(self) -> Server:
        """A server of the file."""
        return Server([self.kept.path], "--no-log-requests", cache=self.cache)

    def live_and_be_killed(self) -> set[str]:
        """Reloads under load until it is killed; gives digests of which one is the last good."""
        with self.server() as server:
            digests = [server.lines[0]["digest"]]
            with Load(server.port, ["engine"], self._seed, connections=2, cut_off=True) as load:
                for _ in range(self.dice.randrange(1, 4)):
                    digests.append(self.writer.write_good(self.kept))
                    if self.dice.random() < 0.7:
                        server.until(lambda line: line.get("digest") == digests[-1])
                time.sleep(self.dice.choice((0, 0.01, 0.03, 0.06)))
                helpers = server.helpers()
                server.kill()
            wait_until_gone(helpers)
            assert not load.wrong, load.wrong[0]
            said = "".join(server.oddities)
            assert not said or _is_of_an_unborn(said), said
            self.answers += load.counts.total()
            self.helpers += len(helpers)
            told = [line["digest"] for line in server.lines if line["event"] == "manifest served"]
        return {*digests[digests.index(told[-1]) :]}  # a later one may be kept and not yet told

    def change_file(self, after: str) -> None:
        """Has the file become something before the server starts again."""
        if after == "good":
            self.writer.write_good(self.kept)
        elif after != "as it is":
            self.writer.write_broken(self.kept, after)

    def damage_cache(self, damage: str) -> None:
        """Has what is kept become something."""
        files = sorted(self.cache.iterdir())
        for file in files if damage in ("cut", "flipped", "emptied") else ():
            file.write_bytes(_damaged(file.read_bytes(), damage, self.dice))
        if damage == "unfinished":
            (self.cache / f"{files[0].stem}.1.2.unfinished").write_bytes(b"\0" * 100)
        if damage == "no folder":
            for file in files:
                file.unlink()
            self.cache.rmdir()
            self.cache.write_bytes(b"a file where a folder should be")

    def start_again(self, after: str, damage: str, last: set[str]) -> None:
        """What is served is the file's, or the last good one; or no server starts."""
        said = f"{after} file, {damage} damage"
        self.after[said] += 1
        is_good = after in ("as it is", "good")
        if not is_good and damage not in ("none", "unfinished"):
            self._check_that_none_starts(said)
        else:
            expected = (
                manifests.load(self.kept.path, self.kept.path.read_bytes()) if is_good else None
            )
            with self.server() as server, closing(Client(server.port)) as client:
                (state,) = client.get("/readyz").json["manifests"]
                wanted = {expected.digest} if expected else last
                assert state["digest"] in wanted, f"{said}: an older one is served"
                assert state["status"] == ("ready" if is_good else "degraded"), said
                assert state["generation"] == 1
                assert client.ask("POST", "/v1/resolve", QUESTION, "application/json").status == 200
                helpers = server.helpers()
                assert server.stop() == 0
                wait_until_gone(helpers)
                assert not server.oddities, "".join(server.oddities)
        if self.cache.is_file():
            self.cache.unlink()
        self.writer.write_good(self.kept)

    def _check_that_none_starts(self, said: str) -> None:
        """Nothing good is left anywhere: one line says so."""
        ended = subprocess.run(
            [*COMMAND, "--port", "0", "--manifest", str(self.kept.path)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            env={"ATTNSEL_CACHE_DIR": str(self.cache)},
            check=False,
        )
        assert ended.returncode == 2, f"{said}: {ended.stderr}"
        assert "Traceback" not in ended.stderr
        assert str(self.kept.path) in ended.stderr


def _is_of_an_unborn(said: str) -> bool:
    """Whether a helper says that nobody told it what it is: Python had just started it."""
    return "spawn_main" in said and said.endswith("EOFError: Ran out of input\n")


def _damaged(data: bytes, damage: str, dice: random.Random) -> bytes:
    if damage == "emptied" or not data:
        return b""
    if damage == "cut":
        return data[: dice.randrange(len(data))]
    place = dice.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]


def run(count: int, seed: int, folder: Path) -> Figures:
    """Kills so many servers.

    Raises:
        AssertionError: one served something else afterwards, or left something behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    life, began = _Life(folder, seed), time.monotonic()
    for number in range(count):
        after = _AFTER[number % len(_AFTER)]
        damage = "none" if number < len(_AFTER) else life.dice.choice(_DAMAGE)
        last = life.live_and_be_killed()
        life.change_file(after)
        life.damage_cache(damage)
        life.start_again(after, damage, last)
    return Figures(count, life.answers, life.after, life.helpers, time.monotonic() - began)


# -- draining ------------------------------------------------------------------------------------


def drain(folder: Path) -> str:
    """Ends a server while it reads a body and works on an answer; gives words for that.

    Raises:
        AssertionError: what was under way had no answer, or it did not end well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    kept = Kept(folder / "engine.yaml")
    Writer([kept], random.Random("drain"))
    with Server([kept.path], "--no-log-requests", cache=folder / "cache") as server:
        with socket.create_connection(("127.0.0.1", server.port), PATIENCE_S) as slow:
            _send_half(slow)
            helpers = server.helpers()
            explain = _Later(server.port)
            ended = Thread(target=server.stop)
            ended.start()
            server.until("draining")
            _check_that_it_is_not_ready(server.port)
            slow.sendall(QUESTION[50:])
            answer = http.client.HTTPResponse(slow)
            answer.begin()
            assert (answer.status, answer.getheader("connection")) == (200, "close")
            assert len(answer.read()) > 1000
            answer.close()
            explain.check()
            ended.join(PATIENCE_S)
        assert server.process.returncode == 0
        wait_until_gone(helpers)
        assert not server.oddities, "".join(server.oddities)
    return "a server that was told to end answered what was under way"


def _send_half(slow: socket.socket) -> None:
    """The head of a question and half of its body, to a server that waits for the rest."""
    head = (
        "POST /v1/resolve HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\n"
        f"content-type: application/json\r\ncontent-length: {len(QUESTION)}\r\n\r\n"
    )
    slow.sendall(head.encode())
    assert slow.recv(4096).startswith(b"HTTP/1.1 100 ")
    slow.sendall(QUESTION[:50])


class _Later:
    """A question that takes a while, which is asked and not yet answered."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self._http.putrequest("POST", "/v1/explain")
        self._http.putheader("expect", "100-continue")
        self._http.putheader("content-length", str(len(QUESTION)))
        self._http.endheaders()
        assert self._http.sock.recv(4096).startswith(b"HTTP/1.1 100 ")
        self._http.send(QUESTION)

    def check(self) -> None:
        answer = self._http.getresponse()
        assert (answer.status, len(answer.read()) > 1000) == (200, True)
        self._http.close()


def _check_that_it_is_not_ready(port: int) -> None:
    """Who asks for the first time is told so, until nobody listens any more."""
    while True:
        with closing(Client(port)) as client:
            try:
                ready = client.get("/readyz")
            except (OSError, http.client.HTTPException):
                return
            assert (ready.status, ready.json["status"]) == (503, "draining")
