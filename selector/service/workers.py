"""Processes that answer slow questions, so that quick ones do not wait and a deadline can end them.

A process is started when it is first needed, kept for the next question, and killed when its
deadline passes: a thread could not be.
"""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from selector.errors import AttnselError
from selector.service.problems import Problem, problem_of

__all__ = ["Work", "WorkError", "Workers"]

_START = get_context("spawn")  # a copy of a process with threads could hang

Work = Callable[..., bytes]
_Job = tuple[Work, tuple[Any, ...]]


class WorkError(Exception):
    """A bug in what a process did; the text is its traceback."""


class Workers:
    """So many processes, each with one question at a time; others wait for them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads = ThreadPoolExecutor(count, "attnsel-worker")
        self._idle: asyncio.Queue[_Worker] | None = None
        self._all: set[_Worker] = set()

    async def do(self, work: Work, *arguments: Any, deadline_s: float) -> bytes:
        """What the work gives.

        Args:
            work: a function at the top of a module.
            arguments: plain values.
            deadline_s: the longest time for waiting and work.

        Raises:
            Problem: what the work raises; or the deadline passed.
        """
        if self._idle is None:  # made within the loop that waits for it
            self._idle = asyncio.Queue()
            for _ in range(self._count):
                self._idle.put_nowait(_Worker())
        try:
            async with asyncio.timeout(deadline_s):
                worker = await self._idle.get()
                reply = await self._ask(worker, (work, arguments), self._idle)
        except TimeoutError:
            raise Problem(503, "DEADLINE", "no answer was found in time") from None
        if isinstance(reply, bytes):
            return reply
        if isinstance(reply, str):
            raise WorkError(reply)
        raise Problem(*reply)

    async def _ask(self, worker: _Worker, job: _Job, idle: asyncio.Queue[_Worker]) -> Any:
        self._all.add(worker)
        try:
            asking = asyncio.get_running_loop().run_in_executor(self._threads, worker.ask, job)
            reply = await asking
        except (asyncio.CancelledError, EOFError, OSError) as error:  # too late, or it died
            worker.kill()
            self._all.discard(worker)
            worker = _Worker()
            if isinstance(error, asyncio.CancelledError):
                raise
            raise Problem(503, "ENDED", "what worked on the answer was ended; ask again") from None
        finally:
            idle.put_nowait(worker)
        return reply

    def stop(self) -> None:
        """Ends all of them, whatever they are at."""
        for worker in self._all:
            worker.kill()
        self._threads.shutdown(wait=False, cancel_futures=True)


class _Worker:
    """One process and the pipe to it."""

    def __init__(self) -> None:
        self._pipe: Connection | None = None
        self._process: Any = None
        self._ended = False

    def ask(self, job: _Job) -> Any:
        """The reply to a job; blocks.

        Raises:
            EOFError: the process ended.
        """
        if self._pipe is None:
            mine, theirs = _START.Pipe()
            self._process = _START.Process(target=_work, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
            self._pipe = mine
            if self._ended:  # while it started
                self._process.kill()
                raise EOFError
        self._pipe.send(job)
        return self._pipe.recv()

    def kill(self) -> None:
        """Ends the process, or has it ended once it has started."""
        self._ended = True
        if self._process is not None and self._process.pid is not None:
            self._process.kill()


def _work(pipe: Connection) -> None:
    """Does jobs until nobody sends more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the service ends it
    while True:
        try:
            work, arguments = pipe.recv()
        except (EOFError, OSError):
            return
        pipe.send(_reply(work, arguments))


def _reply(work: Work, arguments: tuple[Any, ...]) -> bytes | str | tuple[Any, ...]:
    """What the work gives; the problem that it raises, in parts; or the traceback of a bug."""
    try:
        return work(*arguments)
    except Problem as problem:
        return problem.parts
    except AttnselError as error:
        return problem_of(error).parts
    except Exception as error:
        where = "".join(traceback.format_tb(error.__traceback__))
        return f"{type(error).__name__}\n{where}"
