"""A process that does what it is asked ends with the one that asks."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import pytest

from selector.process import BugError, Process

ASKS = """
import time
from selector.process import Process

if __name__ == "__main__":
    asked = Process()
    asked.ask(max, 1, 2)
    print(asked._process.pid, flush=True)
    asked.ask(time.sleep, 3600)
"""


@pytest.fixture
def process() -> Process:
    return Process()


def test_it_gives_what_the_work_gives_and_tells_of_bugs(process: Process) -> None:
    assert process.ask(divmod, 7, 2) == (3, 1)
    with pytest.raises(BugError, match=r"^ZeroDivisionError\n"):
        process.ask(divmod, 7, 0)
    assert process.ask(divmod, 9, 2) == (4, 1)
    process.kill()
    with pytest.raises(OSError, match=r"ended|reset|[Bb]roken pipe"):
        process.ask(divmod, 7, 2)


def test_it_ends_with_the_one_that_asks_whatever_it_is_at() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", ASKS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as asks:
        assert asks.stdout is not None
        handle = os.pidfd_open(int(asks.stdout.readline()))
        asks.kill()
        ended, _, _ = select.select([handle], [], [], 60)
        os.close(handle)
        assert ended
        assert asks.stderr is not None
        assert asks.stderr.read() == ""
