"""Clients that ask all the time, and hold every answer against what it says of itself."""

from __future__ import annotations

import http.client
import io
import json
import random
import re
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from threading import Event, Lock, Thread
from types import TracebackType
from typing import Any, NamedTuple

import pyarrow
import pyarrow.ipc

from tests.conftest import PLAIN
from tests.server import Client, Reply

__all__ = ["Load", "Seen"]

_JSON, _LINES = "application/json", "application/jsonl"
_ARROW = "application/vnd.apache.arrow.stream"
_MOST_ROWS = 3000
_SHARES = {
    "resolve": 60, "batch": 6, "lines": 4, "arrow": 4, "text": 6, "backends": 6, "matrix": 6,
    "explain": 2, "state": 6,
}  # fmt: skip


class Seen(NamedTuple):
    """What an answer says of what gave it."""

    name: str
    generation: int
    digest: str
    number: int


class Load:
    """So many connections that ask, each on a thread of its own.

    Attributes:
        seen: what was answered from.
        counts: answers by kind.
        wrong: what is wrong with answers.
    """

    def __init__(
        self, port: int, names: Sequence[str], seed: int, *, connections: int, cut_off: bool = False
    ) -> None:
        """Takes who is asked for what.

        Args:
            port: of the server.
            names: of the manifests.
            seed: of the questions.
            connections: how many ask.
            cut_off: the server will be killed; that a connection ends is no fault then.
        """
        self.seen: set[Seen] = set()
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._port = port
        self._names = names
        self._cut_off = cut_off
        self._newest = dict.fromkeys(names, 0)
        self._lock = Lock()
        self._stopped = Event()
        self._threads = [
            Thread(target=self._run, args=(random.Random(f"{seed} {one}"),))
            for one in range(connections)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def expect(self, name: str, generation: int) -> None:
        """No answer to a question that is asked from now on is of an older generation."""
        with self._lock:
            self._newest[name] = max(self._newest[name], generation)

    def _run(self, dice: random.Random) -> None:
        with closing(Client(self._port)) as client:
            while not self._stopped.is_set() and len(self.wrong) < 20:
                (kind,) = dice.choices([*_SHARES], [*_SHARES.values()])
                name = dice.choice(self._names)
                try:
                    self._ask(client, kind, name, dice)
                except (OSError, http.client.HTTPException) as error:
                    if not self._cut_off:
                        self.wrong.append(f"{kind} of {name}: no answer, {error!r}")
                    return
                except Exception:
                    self.wrong.append(f"{kind} of {name}: {traceback.format_exc(limit=-3)}")

    def _ask(self, client: Client, kind: str, name: str, dice: random.Random) -> None:
        """One question; its answer is of one generation, and no older than what came before it.

        Raises:
            AssertionError: it is not.
        """
        floor = self._newest[name]
        question = _QUESTIONS[kind](name, dice)
        reply = client.ask(*question)
        assert reply.status == 200, f"{reply.status}: {reply.body[:500]!r}"
        digest, number = _ANSWERS[kind](reply)
        with self._lock:
            self.counts[kind] += 1
        if not digest:
            return
        said = reply.headers["attnsel-manifest"], reply.headers["attnsel-digest"]
        assert said == (name, digest), f"headers say {said}, the body {(name, digest)}"
        generation = int(reply.headers["attnsel-generation"])
        assert generation >= floor, f"generation {generation} after {floor} was served"
        self.expect(name, generation)
        self.seen.add(Seen(name, generation, digest, number))


Asked = tuple[str, str, bytes, str]


def _resolve(name: str, dice: random.Random) -> Asked:
    return "POST", "/v1/resolve", _question(name, dice), _JSON


def _explain(name: str, dice: random.Random) -> Asked:
    return "POST", "/v1/explain", _question(name, dice), _JSON


def _question(name: str, dice: random.Random) -> bytes:
    cached = dice.randrange(10_000) if dice.random() < 0.5 else 0
    query = dice.randrange(1, 10_000)
    lengths = {"query_len": query, "seq_len": query + cached}
    layer = PLAIN | {"num_heads": dice.choice((8, 16)), "num_kv_heads": 8}
    asked = {"manifest": name, "device": "9.0", "layer": layer, "request": lengths}
    return json.dumps(asked).encode()


def _rows(dice: random.Random) -> list[dict[str, Any]]:
    count = dice.randrange(1, _MOST_ROWS)
    return [{"arch": "9.0", **PLAIN, "query_len": number % 97 + 1} for number in range(count)]


def _batch(name: str, dice: random.Random) -> Asked:
    return "POST", f"/v1/resolve:batch?manifest={name}", json.dumps(_rows(dice)).encode(), _JSON


def _lines(name: str, dice: random.Random) -> Asked:
    text = "".join(f"{json.dumps(row)}\n" for row in _rows(dice))
    return "POST", f"/v1/resolve:batch?manifest={name}", text.encode(), _LINES


def _arrow(name: str, dice: random.Random) -> Asked:
    table, sink = pyarrow.Table.from_pylist(_rows(dice)), io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return "POST", f"/v1/resolve:batch?manifest={name}", sink.getvalue(), _ARROW


def _get(path: str) -> Callable[[str, random.Random], Asked]:
    return lambda name, _: ("GET", path.format(name), b"", "")


_QUESTIONS: dict[str, Callable[[str, random.Random], Asked]] = {
    "resolve": _resolve,
    "explain": _explain,
    "batch": _batch,
    "lines": _lines,
    "arrow": _arrow,
    "text": _get("/v1/manifest?manifest={}"),
    "backends": _get("/v1/backends?manifest={}"),
    "matrix": _get("/v1/matrix?manifest={}"),
    "state": lambda _, dice: ("GET", dice.choice(("/readyz", "/metrics", "/healthz")), b"", ""),
}

# -- what an answer says: its digest and its number ----------------------------------------------

_VERSION = re.compile(rb'version: "(\d+)"')


def _of_json(answer: Any) -> tuple[str, int]:
    manifest = answer["manifest"]
    return manifest["digest"], int(manifest["version"])


def _of_resolution(answer: Any) -> tuple[str, int]:
    digest, number = _of_json(answer)
    assert answer["decode"]["decode_threshold"] == number, "the choice is of another generation"
    return digest, number


def _of_rows(rows: Sequence[Any], reply: Reply) -> tuple[str, int]:
    numbers = {*rows}
    assert len(numbers) == 1, f"rows of one table are of several generations: {numbers}"
    return reply.headers["attnsel-digest"], int(numbers.pop())


def _of_array(reply: Reply) -> tuple[str, int]:
    return _of_rows([row["decode_threshold"] for row in reply.json], reply)


def _of_lines(reply: Reply) -> tuple[str, int]:
    rows = map(json.loads, reply.body.splitlines())
    return _of_rows([row["decode_threshold"] for row in rows], reply)


def _of_arrow(reply: Reply) -> tuple[str, int]:
    with pyarrow.ipc.open_stream(reply.body) as stream:
        return _of_rows(stream.read_all()["decode_threshold"].to_pylist(), reply)


def _of_text(reply: Reply) -> tuple[str, int]:
    found = _VERSION.search(reply.body)
    assert found, "the manifest's text has no version"
    digest = reply.headers["etag"].removeprefix('W/"').removesuffix('"')
    return digest, int(found[1])


_ANSWERS: dict[str, Callable[[Reply], tuple[str, int]]] = {
    "resolve": lambda reply: _of_resolution(reply.json),
    "explain": lambda reply: _of_resolution(reply.json["resolution"]),
    "batch": _of_array,
    "lines": _of_lines,
    "arrow": _of_arrow,
    "text": _of_text,
    "backends": lambda reply: _of_json(reply.json),
    "matrix": lambda reply: _of_json(reply.json),
    "state": lambda _: ("", 0),
}
