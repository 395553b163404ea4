"""Timings on disk as they come: after each shape the results file, within a shape one beside it.

A run that goes on takes up what is there, if it was begun with the same manifest, device, versions
and seed, and asks the same candidates. The candidate that was running when a run ended is a fault.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from backends.part import Head, PartError, another, check_same
from selector.tuning.results import Measured, Results, Shape, Timing, read_results

__all__ = ["ENDED", "Keeper"]

ENDED = "the process ended while it ran"


class _Running(msgspec.Struct, frozen=True):
    """What is known of an unfinished shape, and the candidate that runs now."""

    head: Head
    shape: Shape
    timings: tuple[Timing, ...]
    running: str


class Keeper:
    """Keeps results on disk as they come, and knows where a run before this one ended."""

    def __init__(self, file: Path, resume: bool = False) -> None:
        """Begins anew, or reads what is there.

        Raises:
            UnreadableResultsError: what is there is no results file.
            OSError: results cannot be put there.
        """
        if file.exists() and not file.is_file():  # replacing it would remove a device, or fail late
            raise OSError(errno.EINVAL, "timings go to an ordinary file", str(file))
        self.file = file
        self.beside = file.with_name(f"{file.name}.running")
        self.head: Head | None = None
        self.shape: Shape | None = None
        self.timings: tuple[Timing, ...] = ()
        self.earlier = read_results(file) if resume and file.exists() else None
        if not resume:
            self.beside.unlink(missing_ok=True)

    def take_up(self, head: Head, asked: Mapping[Shape, Collection[str]]) -> dict[Shape, Measured]:
        """What a run before this one measured, and nothing where this one begins anew.

        Args:
            head: what is run now.
            asked: shape → the candidates that are asked now.

        Raises:
            PartError: another run was begun there.
        """
        self.head = head
        if self.beside.exists():
            self._read_beside(head)
        if self.earlier is None:
            return {}
        begun = self.earlier
        was = Head(begun.manifest.digest, begun.device, {**begun.facts}, begun.seed, head.date)
        check_same(self.file, was, head)
        for one in begun.measured:
            if {timing.candidate for timing in one.timings} != {*asked.get(one.shape, ())}:
                raise another(self.file, "set of shapes or backends")
        return {one.shape: one for one in begun.measured}

    def _read_beside(self, head: Head) -> None:
        try:
            raw = msgspec.json.decode(self.beside.read_bytes(), type=_Running)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise PartError(f"{self.beside} holds no run: {error}") from None
        check_same(self.beside, raw.head, head)
        self.shape, self.timings = raw.shape, raw.timings
        if raw.running:
            self.timings += (Timing(candidate=raw.running, fault=ENDED),)

    def begun(self, shape: Shape) -> tuple[Timing, ...]:
        """What is already known of a shape that was not finished."""
        return self.timings if shape == self.shape else ()

    def note(self, shape: Shape, timings: tuple[Timing, ...], running: str) -> None:
        """Keeps the timings of an unfinished shape, and which candidate runs now."""
        assert self.head is not None  # take_up comes first
        _write(self.beside, msgspec.json.encode(_Running(self.head, shape, timings, running)))

    def keep(self, results: Results) -> None:
        """Keeps all that was measured."""
        _write(self.file, _text(results))
        if results.measured:  # else an unfinished shape is still what there is
            self.beside.unlink(missing_ok=True)


def _text(results: Results) -> bytes:
    """The results as JSON, one line for each shape."""
    bare = msgspec.json.encode(msgspec.structs.replace(results, measured=()))
    rows = b",\n  ".join(map(msgspec.json.encode, results.measured))
    head, _, tail = msgspec.json.format(bare, indent=1).rpartition(b"[]")
    return b"%b[\n  %b\n ]%b\n" % (head, rows, tail)


def _write(file: Path, data: bytes) -> None:
    """Replaces a file at once, so that no reader and no end of the process sees half of it."""
    new = file.with_name(f"{file.name}.new")
    new.write_bytes(data)
    os.replace(new, file)
