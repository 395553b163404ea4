"""Jobs run in processes of their own, so that a kernel that crashes takes nothing else with it.

A **job** is data: build some modules, or run a case. A worker (:mod:`backends.worker`) is started
when there is a job for it, answers one job after another, and is replaced when it dies, when a job
takes longer than its limit, or when it says that its device is no longer fit. What became of the
job that it died of is a :class:`Loss`.

Both ends speak JSON over a socket pair, because a library may write anything to standard output.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO

import msgspec

from backends.cases import Case
from backends.contract import Batch
from backends.judging import CaseResult
from selector.errors import AttnselError

__all__ = [
    "Answer",
    "Build",
    "Built",
    "Job",
    "Loss",
    "Run",
    "Workers",
    "WorkersError",
    "count_cores",
]


class Run(msgspec.Struct, frozen=True, tag=True):
    """Run a case; answered by its result."""

    adapter: str
    case: Case
    device: str
    seed: int


class Build(msgspec.Struct, frozen=True, tag=True):
    """Build what some batches need."""

    adapter: str
    batches: tuple[Batch, ...]
    device: str


class Built(msgspec.Struct, frozen=True):
    """How building went.

    Attributes:
        refused: the compiler's refusal, which holds for whatever needs this kernel.
        failed: what else went wrong.
    """

    refused: str = ""
    failed: str = ""


Job = Run | Build


class Answer(msgspec.Struct, frozen=True):
    """What a worker answers; neither result: it is ready for its first job.

    Attributes:
        ran: the result of a case.
        built: how building went.
        fit: it can take another job.
    """

    ran: CaseResult | None = None
    built: Built | None = None
    fit: bool = True


class Loss(msgspec.Struct, frozen=True):
    """A worker died of its job.

    Attributes:
        how: how it ended, in words.
        last: the last line that it wrote.
    """

    how: str
    last: str = ""

    def __str__(self) -> str:
        return f"{self.how}: {self.last}" if self.last else self.how


class WorkersError(AttnselError, RuntimeError):
    """No worker can be started. One line says why."""

    code = "WORKERS"


_COMMAND = (sys.executable, "-P", "-m", "backends.worker")

_START_S = 180.0
"""How long importing torch and waking the device may take."""


def count_cores() -> int:
    """The cores that this process may use, of the machine or of its container."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text("ascii").split()
        return max(1, min(cores or 1, int(quota) // int(period)))
    except (OSError, ValueError):  # no container, or no limit
        return cores or 1


_decode = msgspec.json.Decoder(Answer).decode
_encode = msgspec.json.encode


class Workers:
    """Some processes that answer jobs.

    Args:
        device: that they work on, in torch's words.
        count: how many run at a time.
        command: starts a worker; the number of its socket is added.
    """

    def __init__(self, device: str, count: int = 1, command: Sequence[str] = _COMMAND) -> None:
        self.device, self.count, self.command = device, count, command

    def answer(
        self,
        jobs: Iterable[Job],
        limit_s: float,
        on_answer: Callable[[Job, CaseResult | Built | Loss], object],
        until: float | None = None,
    ) -> list[Job]:
        """Gives out jobs until all are answered, or time is up.

        Args:
            jobs: in order.
            limit_s: how long one may take.
            on_answer: called with each job and what became of it, as answers come.
            until: when to stop, by ``time.monotonic``; a job that then runs is ended unanswered.

        Returns:
            The jobs that nothing became of.

        Raises:
            WorkersError: a worker dies before its first job.
        """
        waiting = deque(jobs)
        running: list[_Worker] = []
        left: list[Job] = []
        threads = max(1, count_cores() // self.count)
        extra = {"OMP_NUM_THREADS": str(threads), "MAX_JOBS": str(threads)}
        env = {**extra, **os.environ}  # what somebody has set stands
        env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)  # find what we found
        try:
            while waiting or any(worker.job for worker in running):
                if until is not None and time.monotonic() >= until:
                    break
                idle = sum(worker.job is None for worker in running)
                for _ in range(min(self.count - len(running), len(waiting) - idle)):
                    running.append(_Worker(self.command, self.device, env))
                for worker in running:
                    if waiting and worker.ready and worker.job is None:
                        worker.take(waiting.popleft(), limit_s)
                ends = [worker.ends_at for worker in running if worker.ends_at is not None]
                due = min([*ends, *([] if until is None else [until])], default=None)
                pause = None if due is None else max(0.0, due - time.monotonic())
                heard = wait([worker.line for worker in running], pause)
                for worker in [*running]:
                    job = worker.job
                    became = worker.listen(worker.line in heard)
                    if became is not None and job is not None:
                        on_answer(job, became)
                    if not worker.fit:
                        worker.end()
                        running.remove(worker)
            left = [worker.job for worker in running if worker.job is not None]
        finally:
            for worker in running:
                worker.end()
        return [*left, *waiting]


class _Worker:
    """One process."""

    def __init__(self, command: Sequence[str], device: str, env: Mapping[str, str]) -> None:
        mine, its = socket.socketpair()
        self.said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (closed by end)
        with its:
            self.process = subprocess.Popen(
                [*command, str(its.fileno()), device],
                stdin=subprocess.DEVNULL,
                stdout=self.said,
                stderr=subprocess.STDOUT,
                pass_fds=[its.fileno()],
                start_new_session=True,  # so that its compilers can be ended with it
                env=env,
            )
        self.line = Connection(mine.detach())
        self.ready, self.fit = False, True
        self.job: Job | None = None
        self.ends_at: float | None = time.monotonic() + _START_S
        self.limit_s = _START_S

    def take(self, job: Job, limit_s: float) -> None:
        """Gives it a job."""
        self.job, self.limit_s = job, limit_s
        self.ends_at = time.monotonic() + limit_s
        try:
            self.line.send_bytes(_encode(job))
        except OSError:  # it is dead, which listening will tell
            return

    def listen(self, spoke: bool) -> CaseResult | Built | Loss | None:
        """What became of its job, if anything did.

        Raises:
            WorkersError: it died before its first job.
        """
        if spoke:
            try:
                answer = _decode(self.line.recv_bytes())
            except (EOFError, OSError):
                return self._lost(self._how())
            self.fit = answer.fit
            self.ready, self.job, self.ends_at = True, None, None
            return answer.ran or answer.built
        if self.ends_at is not None and time.monotonic() >= self.ends_at:
            return self._lost(f"took longer than {self.limit_s:g} s")
        return None

    def _lost(self, how: str) -> Loss:
        self.fit = False
        loss = Loss(how, self._last_line())
        if not self.ready:
            raise WorkersError(f"a process for kernels cannot be started: {loss}")
        self.job = None
        return loss

    def _how(self) -> str:
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            return "stopped answering"
        if code >= 0:
            return f"its process exited with code {code}"
        try:
            return f"its process was ended by {signal.Signals(-code).name}"
        except ValueError:
            return f"its process was ended by signal {-code}"

    def _last_line(self) -> str:
        self.said.seek(0, os.SEEK_END)
        self.said.seek(max(0, self.said.tell() - 4096))
        lines = self.said.read().decode("utf-8", "replace").split("\n")
        return next((line.strip()[:200] for line in reversed(lines) if line.strip()), "")

    def end(self) -> None:
        """Ends it, and what it started."""
        self.line.close()
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.said.close()
