"""Files that change in every way, one time in three into something broken, under load."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.faults import manifests
from tests.faults.load import Load
from tests.faults.manifests import Kept
from tests.server import Client, Line, Server, wait_until_gone

__all__ = ["Figures", "Writer", "run"]

_STORMS = 0.2
"""So many of the changes come with SIGHUPs around them."""


class Figures(NamedTuple):
    """What was done and seen."""

    reloads: int
    broken: int
    ways: Counter[str]
    answers: Counter[str]
    generations: int
    took_s: float

    def __str__(self) -> str:
        rate = self.answers.total() / self.took_s
        ways = ", ".join(f"{count} {way}" for way, count in self.ways.most_common())
        return (
            f"{self.reloads:,} reloads, {self.broken} of them broken, in {self.took_s:.0f} s: "
            f"{self.answers.total():,} answers ({rate:,.0f} a second), all good; "
            f"{self.generations} generations seen\n  {ways}"
        )


class Writer:
    """Changes files, and knows what is to be served from each.

    Attributes:
        digests: digest → number, of all good ones that were written.
        goods: name → how many of them there were.
        ways: how files were written.
    """

    def __init__(self, kept: list[Kept], dice: random.Random) -> None:
        self.kept = kept
        self.digests: dict[str, int] = {}
        self.goods = dict.fromkeys((one.name for one in kept), 0)
        self.ways: Counter[str] = Counter()
        self._dice = dice
        self._number = 1
        self._broken_as: dict[str, str] = {}
        for one in kept:
            self.write_good(one)

    def write_good(self, one: Kept) -> str:
        """Writes a good manifest; gives its digest."""
        was = b"" if one.name in self._broken_as or not one.path.exists() else one.path.read_bytes()
        self._number += 1
        if was and self._dice.random() < 0.2:
            data = (
                was + b"  - {name: n%d, when: {}, never: {path: [mqa]}, reason: x}\n" % self._number
            )
            number = int(was.partition(b'version: "')[2].partition(b'"')[0])
        else:
            data, number = manifests.good(self._number), self._number
        digest, _, detail = manifests.load(one.path, data)
        assert digest, detail
        self.digests[digest] = number
        self.goods[one.name] += 1
        self.ways[manifests.put(one, data, self._dice)] += 1
        self._broken_as.pop(one.name, None)
        return digest

    def write_broken(self, one: Kept, kind: str = "") -> tuple[str, str]:
        """Writes what is none, and wrong in another way than before; gives the code and words."""
        self._number += 1
        code, detail = self._break(one, kind or self._dice.choice(manifests.BROKEN))
        self._broken_as[one.name] = detail
        return code, detail

    def _break(self, one: Kept, kind: str) -> tuple[str, str]:
        before = self._broken_as.get(one.name)
        if kind in ("vanished", "folder"):
            detail = manifests.missing(one, folder=kind == "folder")
            if detail != before:
                self.ways[kind] += 1
                manifests.remove(one, folder=kind == "folder")
                return "UNREADABLE", detail
        else:
            data = manifests.broken(kind, self._number, self._dice)
            found = manifests.load(one.path, data)
            assert not found.digest, kind
            if found.detail != before:  # which the log would not say again
                self.ways[manifests.put(one, data, self._dice)] += 1
                return found.code, found.detail
        return self._break(one, self._dice.choice(manifests.BROKEN))


def run(count: int, seed: int, folder: Path, *, connections: int = 6) -> Figures:
    """Changes files so often.

    Raises:
        AssertionError: a request failed, an answer is of two generations or of another one than was
            written, or what is broken is not said.
    """
    dice = random.Random(f"{seed} reloads")
    (folder / "mount").mkdir(parents=True)
    still = Kept(folder / "still.yaml")
    kept = [Kept(folder / "engine.yaml"), Kept(folder / "mount" / "mounted.yaml", True)]
    writer = Writer([*kept, still], dice)
    paths = [one.path for one in writer.kept]
    names = [one.name for one in writer.kept]
    began, broken = time.monotonic(), 0
    with Server(paths, "--no-log-requests", cache=folder / "cache") as server:
        with (
            Load(server.port, names, seed, connections=connections) as load,
            closing(Client(server.port)) as client,
        ):
            for turn in range(count):
                last = count - turn <= len(kept)  # each ends with a good one
                one = kept[turn % 2] if last else dice.choice(kept)
                is_broken = not last and dice.random() < 1 / 3
                broken += is_broken
                change(server, writer, one, client, load, dice, broken=is_broken)
                assert not load.wrong, load.wrong[0]
        took_s = time.monotonic() - began
        helpers = server.helpers()
        assert server.stop() == 0
        wait_until_gone(helpers)
    check(server, writer, load)
    generations = len({(one.name, one.generation) for one in load.seen})
    return Figures(count, broken, writer.ways, load.counts, generations, took_s)


def change(
    server: Server,
    writer: Writer,
    one: Kept,
    client: Client,
    load: Load,
    dice: random.Random,
    *,
    broken: bool,
) -> None:
    """One change, until the server says what became of it."""
    storm = dice.random() < _STORMS
    if storm:
        _storm(server, dice)
    if broken:
        served = client.ask("GET", f"/v1/manifest?manifest={one.name}").headers["attnsel-digest"]
        code, detail = writer.write_broken(one)
        if storm:
            _storm(server, dice)
        line = server.until(
            lambda line: _is_of(line, "manifest degraded", one) and line["detail"] == detail
        )
        assert (line["code"], line["digest"]) == (code, served)
    else:
        served, detail = writer.write_good(one), ""
        if storm:
            _storm(server, dice)
        line = server.until(
            lambda line: _is_of(line, "manifest served", one) and line["digest"] == served
        )
    assert line["generation"] == writer.goods[one.name], "each good file is one generation"
    load.expect(one.name, line["generation"])
    _check_state(client, one, served, detail)


def _is_of(line: Line, event: str, one: Kept) -> bool:
    return line["event"] == event and line["manifest"] == one.name


def _storm(server: Server, dice: random.Random) -> None:
    for _ in range(dice.randrange(1, 9)):
        server.process.send_signal(signal.SIGHUP)


def _check_state(client: Client, one: Kept, served: str, detail: str) -> None:
    """Holds what is said of a manifest against what it is."""
    ready = client.get("/readyz")
    (state,) = (found for found in ready.json["manifests"] if found["name"] == one.name)
    trouble = state["trouble"]
    assert (ready.status, state["digest"]) == (200, served)
    assert state["status"] == ("degraded" if detail else "ready")
    assert (trouble["detail"] if trouble else "") == detail
    if detail:
        assert ready.json["status"] == "degraded"
        assert bool(trouble["findings"]) == (trouble["code"] == "MANIFEST")
    metrics = client.get("/metrics").body.decode()
    said = float(bool(detail))
    assert f'attnsel_manifest_degraded{{manifest="{one.name}"}} {said}' in metrics


def check(server: Server, writer: Writer, load: Load) -> None:
    """Holds all that was answered against all that was written.

    Raises:
        AssertionError: they differ.
    """
    assert not load.wrong, load.wrong[0]
    assert not server.oddities, "".join(server.oddities)
    digests: dict[tuple[str, int], str] = {}
    for one in load.seen:
        assert writer.digests.get(one.digest) == one.number, f"{one} was never written"
        assert digests.setdefault((one.name, one.generation), one.digest) == one.digest
        assert one.name != "still" or one.generation == 1, f"{one} did not change"
