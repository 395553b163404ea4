"""Memory of a server under mixed load: it grows until what may be kept is full, and no more."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import Event, Lock, Thread
from typing import NamedTuple

from selector.models import presets
from tests.conftest import PLAIN
from tests.faults import manifests
from tests.server import Client, Server, memory_kib

__all__ = ["Figures", "run"]

_MOST_GROWTH = 0.10
_LEAST_BOUND_MIB = 32
_STILL_S, _CHANGING_S = 60, 30
"""What is kept fills while nothing changes; a change of a manifest empties it."""

_DEVICES = ("H100", "H200", "B200", "RTX PRO 6000", "A100", "cpu", "9.0", "12.0")
_CONNECTIONS = 3
_KNOWN, _MOST_KNOWN = 0.9, 500
"""So many of the questions differ in nothing but lengths from one of so many."""

_MODELS = presets()


class Figures(NamedTuple):
    """Resident memory of the server and of its helpers, in MiB."""

    answers: Counter[str]
    reloads: int
    start: int
    first_half: int
    second_half: int
    end: int
    helpers: list[int]
    took_s: float

    def __str__(self) -> str:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in self.answers.most_common())
        return (
            f"{self.answers.total():,} answers and {self.reloads} reloads in {self.took_s:.0f} s: "
            f"{self.start} MiB at the start, at most {self.first_half} in the first half and "
            f"{self.second_half} in the second, {self.end} at the end; helpers at the end "
            f"{self.helpers}\n  {kinds}"
        )


class _Asker:
    """Connections that ask varied questions, whose answers are not looked into."""

    def __init__(self, port: int, seed: int) -> None:
        self.answers: Counter[str] = Counter()
        self.wrong: list[str] = []
        self._port = port
        self._stopped = Event()
        self._lock = Lock()
        dice = (random.Random(f"{seed} memory {one}") for one in range(_CONNECTIONS))
        self._threads = [Thread(target=self._run, args=(one,)) for one in dice]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _run(self, dice: random.Random) -> None:
        with closing(Client(self._port)) as client:
            while not self._stopped.is_set() and not self.wrong:
                kind, asked = _question(dice)
                reply = client.ask(*asked)
                if reply.status not in (200, 422):  # some models cannot be split so
                    self.wrong.append(f"{kind}: {reply.status} {reply.body[:500]!r} {asked}")
                with self._lock:
                    self.answers[kind] += 1


def _question(dice: random.Random) -> tuple[str, tuple[str, str, bytes, str]]:
    """A kind and what is sent; most are single questions, of layers that were asked before."""
    roll, name = dice.random(), dice.choice(("engine", "capabilities", "vllm-0.33.0"))
    if roll < 0.02:
        rows = [{"arch": "9.0", **PLAIN, "query_len": n + 1} for n in range(dice.randrange(2000))]
        path = f"/v1/resolve:batch?manifest={name}"
        return "batch", ("POST", path, json.dumps(rows).encode(), "application/json")
    if roll < 0.04:
        path = dice.choice((f"/v1/matrix?manifest={name}", f"/v1/backends?manifest={name}"))
        return "inspection", ("GET", path, b"", "")
    query = dice.randrange(1, 20_000)
    lengths = {"query_len": query, "seq_len": query + dice.choice((0, dice.randrange(100_000)))}
    if dice.random() < _KNOWN:
        dice = random.Random(dice.randrange(_MOST_KNOWN))
    asked = {"manifest": name, "device": dice.choice(_DEVICES), "request": lengths}
    if dice.random() < 0.5:
        asked |= {"model": dice.choice(_MODELS), "layer": {"tp": dice.choice((1, 2, 4, 8))}}
    else:
        heads = dice.choice((8, 16, 32, 64))
        asked["layer"] = PLAIN | {"num_heads": heads, "sliding_window": dice.randrange(1, 400)}
    kind = "explain" if roll < 0.05 else "resolve"
    return kind, ("POST", f"/v1/{kind}", json.dumps(asked).encode(), "application/json")


def run(folder: Path, seed: int, minutes: float) -> Figures:
    """Asks for so many minutes; what may be kept is full after some of them.

    Raises:
        AssertionError: a request failed, or memory grew in the second half.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "engine.yaml"
    file.write_bytes(manifests.good(1))
    shipped = [Path("capabilities.yaml"), Path("vllm-0.33.0")]
    with Server([file, *shipped], "--no-log-requests", cache=folder / "cache") as server:
        start = memory_kib(server.process.pid) // 1024
        asker, began = _Asker(server.port, seed), time.monotonic()
        try:
            samples, reloads = _watch(server, file, asker, minutes * 60)
        finally:
            asker.stop()
        assert not asker.wrong, asker.wrong[0]
        assert not server.oddities, "".join(server.oddities)
        took_s = time.monotonic() - began
        helpers = [memory_kib(pid) // 1024 for pid in server.helpers()]
    half = len(samples) // 2
    first, second = max(samples[:half]), max(samples[half:])
    figures = Figures(asker.answers, reloads, start, first, second, samples[-1], helpers, took_s)
    assert second - first <= max(_LEAST_BOUND_MIB, _MOST_GROWTH * first), figures
    return figures


def _watch(server: Server, file: Path, asker: _Asker, seconds: float) -> tuple[list[int], int]:
    """Samples of memory, in MiB, one a second; and how many reloads."""
    samples: list[int] = []
    began, reloads = time.monotonic(), 0
    while not asker.wrong and (passed := time.monotonic() - began) < seconds:
        if passed % (_STILL_S + _CHANGING_S) >= _STILL_S:
            reloads += 1
            file.write_bytes(manifests.good(reloads + 1))
            server.until("manifest served")
        samples.append(memory_kib(server.process.pid) // 1024)
        time.sleep(1)
    return samples, reloads
