"""Requests that are malformed: an answer of 4xx or the end of the connection, and nothing else.

Half of them are made from the description of the service, half are bytes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.faults import manifests, raw
from tests.faults.payloads import MARK, QUESTION
from tests.server import Client, Server, memory_kib, wait_until_gone

__all__ = ["Figures", "run_raw", "serving"]

_AT_ONCE = 8
_MOST_MIB = 384
"""Bodies, what is made of them, and texts that are kept; see :mod:`selector.service.quick`."""


class Figures(NamedTuple):
    """What was sent and what came back."""

    what: str
    results: Counter[str]
    most_mib: int
    took_s: float

    def __str__(self) -> str:
        results = ", ".join(f"{count:,} {result}" for result, count in self.results.most_common())
        return (
            f"{self.results.total():,} {self.what} in {self.took_s:.0f} s, at most {self.most_mib} "
            f"MiB: {results}"
        )


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[Server]:
    """A server that is still there and right at the end, and has logged no bug and no body.

    Raises:
        AssertionError: it is not.
    """
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "engine.yaml"
    file.write_bytes(manifests.good(7))
    with Server([file], *options, cache=folder / "cache") as server:
        with closing(Client(server.port)) as client:
            asked = ("POST", "/v1/resolve", QUESTION, "application/json")
            before = client.ask(*asked)
            yield server
            after = client.ask(*asked)
        assert (after.status, after.body) == (200, before.body)
        helpers = server.helpers()
        assert server.stop() == 0
        wait_until_gone(helpers)
        bugs = [line for line in server.oddities if not _is_late(line)]
        assert not bugs, "".join(bugs)
        log = server.log()
        for word in (MARK, b"Traceback"):
            assert word not in log, log[max(0, log.index(word) - 500) :][:2000].decode()


def _is_late(line: str) -> bool:
    """Whether a line is of an answer that was not found in time; who asked looks at its code."""
    return '"event":"request"' in line and '"status":503' in line


def run_raw(count: int, seed: int, folder: Path) -> Figures:
    """Sends so many pieces of bytes.

    Raises:
        AssertionError: one of them has an answer that it must not have, or the server suffered.
    """
    results: Counter[str] = Counter()
    began, wrong = time.monotonic(), []
    with serving(folder) as server:
        with ThreadPoolExecutor(_AT_ONCE) as threads:

            def send(case: raw.Case) -> tuple[raw.Case, str]:
                return case, raw.verdict(case, raw.converse(server.port, case))

            for case, result in threads.map(send, raw.cases(count, seed)):
                results[result if "wrong" not in result else "wrong"] += 1
                if result.startswith("wrong"):
                    wrong.append(f"{case.kind}: {result}\n  {case.data[:600]!r}")
        most = memory_kib(server.process.pid, "VmHWM") // 1024
        assert not wrong, "\n".join([f"{len(wrong)} are wrong", *wrong[:10]])
    assert most < _MOST_MIB, f"{most} MiB"
    return Figures("pieces of bytes", results, most, time.monotonic() - began)
