"""``attnsel serve`` as a process, its log, its helpers, and clients that keep their connection."""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import Any, NamedTuple

__all__ = ["Client", "Line", "Reply", "Server", "memory_kib", "wait_until_gone"]

COMMAND = (sys.executable, "-c", "import sys; from cli.main import main; sys.exit(main())", "serve")
PATIENCE_S = 120
"""A machine that is busy with other work may take so long for what takes milliseconds."""

_RENEWED_S = 3.0
"""A connection that was idle so long may be closed just now by the server."""

Line = dict[str, Any]


class Server:
    """A process, in a session of its own; killed where a ``with`` ends, if it lives.

    Attributes:
        process: the process.
        port: where it listens.
        lines: its log but for the requests, as it comes.
        oddities: what was written that a log has not: no JSON, a bug, an error.
    """

    def __init__(self, manifests: Iterable[Path], *options: str, cache: Path | None = None) -> None:
        """Starts it.

        Args:
            manifests: what it serves; none: the shipped one.
            options: more of its options.
            cache: where it keeps what it has read; none: where the tests do.

        Raises:
            AssertionError: it ended before it listened; the message is what it said.
        """
        named = [word for one in manifests for word in ("--manifest", str(one))]
        kept = {} if cache is None else {"ATTNSEL_CACHE_DIR": str(cache)}
        self.process = subprocess.Popen(
            [*COMMAND, "--port", "0", *named, *options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **kept},
            start_new_session=True,
        )
        self.lines: list[Line] = []
        self.oddities: list[str] = []
        self._given = 0
        self._text: list[bytes] = []
        self._news = Condition()
        self._ended = False
        self._reader = Thread(target=self._read)
        self._reader.start()
        try:
            (where,) = self.until("listening")["address"]
        except BaseException:
            self.kill()
            raise
        self.port = int(where.rpartition(":")[2])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for text in self.process.stderr:
            self._take(text)
        with self._news:
            self._ended = True
            self._news.notify_all()

    def _take(self, text: bytes) -> None:
        """One line of the log."""
        try:
            line: Line = json.loads(text)
        except ValueError:
            line = {"event": "no JSON", "level": "error"}
        with self._news:
            self._text.append(text)
            if line["level"] == "error":
                self.oddities.append(text.decode("utf-8", "replace"))
            if line["event"] != "request":
                self.lines.append(line)
                self._news.notify_all()

    def until(self, wanted: str | Callable[[Line], bool]) -> Line:
        """The next line of an event, or that is wanted, after the one given last; waits for it.

        Raises:
            AssertionError: it does not come.
        """
        end = time.monotonic() + PATIENCE_S
        with self._news:
            while True:
                for line in self.lines[self._given :]:
                    self._given += 1
                    if line["event"] == wanted if isinstance(wanted, str) else wanted(line):
                        return line
                if self._ended or not self._news.wait(end - time.monotonic()):
                    said = b"".join(self._text[-20:]).decode("utf-8", "replace")
                    raise AssertionError(f"the log has no such line; it ends with\n{said}")

    def log(self) -> bytes:
        """All that was logged so far."""
        with self._news:
            return b"".join(self._text)

    def helpers(self) -> list[int]:
        """The processes that it has started, and those that these have."""
        parents = dict(_parents())
        found = [self.process.pid]
        for one in found:
            found += [pid for pid, parent in parents.items() if parent == one]
        return found[1:]

    def kill(self) -> None:
        """Ends it at once, as ``kill -9`` does, and reads the rest of its log."""
        self.process.kill()
        self._wait()

    def stop(self) -> int:
        """Has it drain; gives its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        assert self.process.stderr is not None
        if not self._reader.is_alive():
            self.process.stderr.close()
        return code


def _parents() -> Iterable[tuple[int, int]]:
    """Each process and its parent."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield int(folder.name), int((folder / "stat").read_text().rpartition(")")[2].split()[1])


def wait_until_gone(pids: Iterable[int]) -> None:
    """Waits for the end of processes.

    Raises:
        AssertionError: one stays.
    """
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ended, _, _ = select.select([handle], [], [], PATIENCE_S)
        finally:
            os.close(handle)
        assert ended, f"process {pid} stays: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}"


def memory_kib(pid: int, what: str = "VmRSS") -> int:
    """Memory of a process that is not swapped; ``VmHWM``: the most that it ever was."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has ended")


class Reply(NamedTuple):
    """An answer, whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One connection, kept from one question to the next."""

    def __init__(self, port: int) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        self._asked_at = 0.0

    def ask(self, method: str, path: str, body: bytes = b"", media: str = "") -> Reply:
        """What is answered.

        Raises:
            HTTPException: no answer came, or half of one.
            OSError: the same.
        """
        now = time.monotonic()
        if now - self._asked_at > _RENEWED_S:
            self._http.close()
        headers = {"content-type": media} if media else {}
        self._http.request(method, path, body or None, headers)
        answer = self._http.getresponse()
        data = answer.read()
        self._asked_at = time.monotonic()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(answer.status, names, data)

    def get(self, path: str) -> Reply:
        """The same, without a body."""
        return self.ask("GET", path)

    def close(self) -> None:
        """Ends the connection."""
        self._http.close()
