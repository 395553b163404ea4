"""The results of a run as they come, one JSON line each, so that a run that was cut short goes on.

The first line says what is run: manifest, device, versions, seed. Only the same goes on; under
another manifest the results can be judged anew.
"""

from __future__ import annotations

import fcntl
from io import BytesIO
from pathlib import Path
from typing import Annotated, Self

import msgspec

from backends.judging import CaseResult
from selector.errors import AttnselError
from selector.values import Device

__all__ = ["Head", "Part", "PartError", "another", "check_same", "read_part"]


class PartError(AttnselError, ValueError):
    """A part is of another run, or none. One line says which."""

    code = "PART"


class Head(msgspec.Struct, frozen=True):
    """What is run.

    Attributes:
        digest: of the manifest.
        device: on which.
        facts: what is installed.
        seed: of the random inputs.
        date: when it began, ISO 8601; a run that goes on keeps it.
    """

    digest: str
    device: Device
    facts: dict[str, str | bool | None]
    seed: int
    date: Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}$")]


def check_same(path: Path, begun: Head, now: Head) -> None:
    """Holds that what a file was begun with is what goes on, on whatever day.

    Raises:
        PartError: it is not.
    """
    for name in ("digest", "device", "facts", "seed"):
        if getattr(begun, name) != getattr(now, name):
            words = {"digest": "manifest", "facts": "set of versions"}
            raise another(path, words.get(name, name))


def another(path: Path, what: str) -> PartError:
    """Says that a file is of a run with another ``what``."""
    return PartError(f"{path} was begun with another {what}; leave out --resume to begin anew")


def read_part(path: Path) -> tuple[Head, tuple[CaseResult, ...]]:
    """What is run, and the results so far, up to a line that was cut off while it was written.

    Raises:
        PartError: the file holds no run.
        OSError: it cannot be read.
    """
    head, results, _ = _read(path, path.read_bytes())
    return head, results


def _read(path: Path, data: bytes) -> tuple[Head, tuple[CaseResult, ...], int]:
    """What a file holds, and at which byte its last whole result ends."""
    first, *rest = BytesIO(data).readlines() or [b""]
    try:
        head = msgspec.json.decode(first, type=Head)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PartError(f"{path} holds no run: {error}") from None
    if not first.endswith(b"\n"):
        raise PartError(f"{path} holds no run: its first line was cut off")
    results: list[CaseResult] = []
    end = len(first)
    for line in rest:
        try:
            result = msgspec.json.decode(line, type=CaseResult)
        except (msgspec.MsgspecError, RecursionError):
            break
        if not line.endswith(b"\n"):
            break
        results.append(result)
        end += len(line)
    return head, tuple(results), end


class Part:
    """A file of results.

    Attributes:
        path: the file.
        head: what is run.
        results: what an earlier run left there.
    """

    def __init__(self, path: Path, head: Head, resume: bool = False) -> None:
        """Begins the file, or goes on with it.

        Raises:
            PartError: what is there is of another run, or another run is writing it.
            OSError: the file cannot be read or written.
        """
        self.path, self.head = path, head
        self.results: tuple[CaseResult, ...] = ()
        self._file = path.open("a+b")
        try:
            self._begin(resume)
        except BaseException:
            self._file.close()
            raise

    def _begin(self, resume: bool) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PartError(f"{self.path} is being written by another run") from None
        begun = resume and self.path.stat().st_size > 0
        self._file.truncate(self._take_up() if begun else 0)  # what counts never leaves the disk
        if not begun:
            self._put(self.head)

    def _take_up(self) -> int:
        """Takes over what an earlier run left; gives where that ends."""
        head, results, end = _read(self.path, self.path.read_bytes())
        check_same(self.path, head, self.head)
        self.head, self.results = head, results
        return end

    def add(self, result: CaseResult) -> None:
        """Writes a result down, at once."""
        self._put(result)

    def _put(self, line: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Ends writing."""
        self._file.close()

    def remove(self) -> None:
        """Removes the file: nobody will need it."""
        self.path.unlink(missing_ok=True)
