"""A process that does what it is asked, one thing after another.

It is started when it is first needed, ends with the process that asks, however that ends, and can
be killed when it takes too long: a thread could not be.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import traceback
from collections.abc import Callable
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

__all__ = ["BugError", "Process"]

_START = get_context("spawn")  # a copy of a process with threads could hang


class BugError(Exception):
    """A bug in what a process did; the text is its traceback."""


class Process:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        self._pipe: Connection | None = None
        self._process: Any = None
        self._ended = False

    def ask(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What the work gives; blocks.

        Args:
            work: a function at the top of a module.
            arguments: plain values.

        Raises:
            BugError: the work raised something.
            OSError: the process ended, or cannot be started.
        """
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        self._pipe.send((work, arguments))
        try:
            done, reply = self._pipe.recv()
        except EOFError:
            raise _ended() from None
        if not done:
            raise BugError(reply)
        return reply

    def _start(self) -> None:
        mine, theirs = _START.Pipe()
        self._process = _START.Process(target=_work, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        self._pipe = mine
        if self._ended:  # while it started
            self._process.kill()
            raise _ended()

    def kill(self) -> None:
        """Ends the process, or has it ended once it has started."""
        self._ended = True
        if self._process is not None and self._process.pid is not None:
            self._process.kill()


def _ended() -> OSError:
    return ConnectionResetError(errno.ECONNRESET, "the process that was asked ended")


def _work(pipe: Connection) -> None:
    """Does what is asked until nobody can ask any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started it ends it
    Thread(target=_end_with_parent, daemon=True).start()
    while True:
        try:
            work, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            reply = (True, work(*arguments))
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__))
            reply = (False, f"{type(error).__name__}\n{where}")
        with contextlib.suppress(OSError):  # nobody waits for it any more
            pipe.send(reply)


def _end_with_parent() -> None:
    """Ends this process, whatever it is at, when the one that started it has ended."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
