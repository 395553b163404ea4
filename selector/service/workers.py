"""Processes that answer slow questions: quick ones do not wait, and a deadline can end them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from selector.errors import AttnselError
from selector.process import Process
from selector.service.problems import Problem, problem_of

__all__ = ["Work", "Workers"]

Work = Callable[..., bytes]


class Workers:
    """So many processes, each with one question at a time; others wait for them."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._threads = ThreadPoolExecutor(count, "attnsel-worker")
        self._idle: asyncio.Queue[Process] | None = None
        self._all: set[Process] = set()

    async def do(self, work: Work, *arguments: Any, deadline_s: float) -> bytes:
        """What the work gives.

        Args:
            work: a function at the top of a module.
            arguments: plain values.
            deadline_s: the longest time for waiting and work.

        Raises:
            BugError: the work has a bug.
            Problem: what the work raises; or the deadline passed.
        """
        if self._idle is None:  # made within the loop that waits for it
            self._idle = asyncio.Queue()
            for _ in range(self._count):
                self._idle.put_nowait(Process())
        try:
            async with asyncio.timeout(deadline_s):
                worker = await self._idle.get()
                reply = await self._ask(worker, (work, *arguments), self._idle)
        except TimeoutError:
            detail = f"no answer was found within {deadline_s:g} s, waiting for others included"
            raise Problem(503, "DEADLINE", detail) from None
        if isinstance(reply, bytes):
            return reply
        raise Problem(*reply)

    async def _ask(
        self, worker: Process, asked: tuple[Any, ...], idle: asyncio.Queue[Process]
    ) -> bytes | tuple[Any, ...]:
        self._all.add(worker)
        try:
            loop = asyncio.get_running_loop()
            reply: bytes | tuple[Any, ...] = await loop.run_in_executor(
                self._threads, worker.ask, _reply, *asked
            )
        except (asyncio.CancelledError, OSError) as error:  # too late, or it died
            worker.kill()
            self._all.discard(worker)
            worker = Process()
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


def _reply(work: Work, *arguments: Any) -> bytes | tuple[Any, ...]:
    """What the work gives, or the problem that it raises, in parts."""
    try:
        return work(*arguments)
    except Problem as problem:
        return problem.parts
    except AttnselError as error:
        return problem_of(error).parts
