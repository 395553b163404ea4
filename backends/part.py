"""The results of a run as they come, one JSON line each, so that a run that was cut short goes on.

The first line says what is run: manifest, device, versions, seed. Only the same goes on; under
another manifest the results can be judged anew.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from backends.judging import CaseResult
from selector.errors import AttnselError
from selector.values import Device

__all__ = ["Head", "Part", "PartError", "read_part"]


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
    date: str


def read_part(path: Path) -> tuple[Head, tuple[CaseResult, ...]]:
    """What is run, and the results so far, up to a line that was cut off while it was written.

    Raises:
        PartError: the file holds no run.
        OSError: it cannot be read.
    """
    first, *rest = path.read_bytes().split(b"\n")
    try:
        head = msgspec.json.decode(first, type=Head)
    except msgspec.MsgspecError as error:
        raise PartError(f"{path} holds no run: {error}") from None
    results = []
    for line in rest:
        try:
            results.append(msgspec.json.decode(line, type=CaseResult))
        except msgspec.MsgspecError:
            break
    return head, tuple(results)


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
            PartError: what is there is of another run.
            OSError: the file cannot be read or written.
        """
        self.path, self.head = path, head
        self.results: tuple[CaseResult, ...] = ()
        if resume and path.exists() and path.stat().st_size:
            self._read()
        self._file = path.open("wb")
        for line in (self.head, *self.results):
            self._put(line)

    def _read(self) -> None:
        head, results = read_part(self.path)
        for name in ("digest", "device", "facts", "seed"):
            if getattr(head, name) != getattr(self.head, name):
                words = {"digest": "manifest", "facts": "set of versions"}
                raise PartError(
                    f"{self.path} was begun with another {words.get(name, name)}; "
                    "leave out --resume to begin anew"
                )
        self.head, self.results = head, results

    def add(self, result: CaseResult) -> None:
        """Writes a result down, at once."""
        self._put(result)

    def _put(self, line: msgspec.Struct) -> None:
        self._file.write(msgspec.json.encode(line) + b"\n")
        self._file.flush()

    def close(self, done: bool) -> None:
        """Ends writing; a file that nobody will need is removed."""
        self._file.close()
        if done:
            os.unlink(self.path)
