"""Manifests that say their number in every answer, broken ones, and the ways that files change.

All that a file holds on its way, but for the last, is broken: so each good file is one generation,
and what is served is known at every moment.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from selector.document import LIMITS
from selector.errors import ManifestError
from selector.loading import load_sources

__all__ = ["BROKEN", "Kept", "Loaded", "broken", "good", "load", "missing", "put", "remove"]

_SMALL = (Path(__file__).parents[1] / "unit" / "cli" / "small.yaml").read_bytes()
_PAUSE_S = 0.02
"""A writer stops so long within a file, for several looks at it."""


class Kept(NamedTuple):
    """The file of a manifest: where it is asked for, and whether its folder is mounted."""

    path: Path
    is_mounted: bool = False

    @property
    def name(self) -> str:
        return self.path.stem


class Loaded(NamedTuple):
    """What loading some bytes gives: a digest, or the code and the line of what is wrong."""

    digest: str
    code: str = ""
    detail: str = ""


def load(path: Path, data: bytes) -> Loaded:
    """What a server is to make of these bytes in a file."""
    try:
        return Loaded(load_sources([(str(path), data[: LIMITS.size_bytes + 1])]).ref.digest)
    except ManifestError as error:
        return Loaded("", error.code, str(error))


def good(number: int) -> bytes:
    """A manifest that says its number as its version, and in every decode that it chooses."""
    said = _SMALL.replace(b'version: "1"', b'version: "%d"' % number)
    return said.replace(b"decode_threshold: 1\n", b"decode_threshold: %d\n" % number)


def broken(kind: str, number: int, dice: random.Random) -> bytes:
    """Bytes that are no manifest."""
    whole = good(number)
    if kind == "half":
        return whole[: _cut(whole, dice)]
    if kind == "half, to the end of a line":
        return whole[: whole.index(b"\n", whole.index(b"  - name: xqa")) + 1]
    if kind == "schema":
        return whole.replace(b"backends:", b"backends%d:" % number)
    if kind == "syntax":
        return whole + b"\nlast: [%d\n" % number
    if kind == "empty":
        return b""
    if kind == "binary":
        return b"\x7fELF\0\0" + dice.randbytes(5000) + b"\n"
    if kind == "not UTF-8":
        return whole.replace(b"The reference", b"Die Verg\xfctung %d" % number)
    if kind == "huge":
        return whole + b"# more and more\n" * (LIMITS.size_bytes // 15)
    raise AssertionError(kind)


BROKEN = (
    "half", "half, to the end of a line", "schema", "syntax", "empty", "binary", "not UTF-8",
    "huge", "vanished", "folder",
)  # fmt: skip


def _cut(data: bytes, dice: random.Random) -> int:
    """A place within a line, before which there is no manifest yet."""
    most = data.find(b"  - name: mla_fa3")
    while True:
        place = dice.randrange(1, most if most > 0 else min(len(data), 3000))
        half = data[:place]
        if not half.endswith(b"\n") and not load(Path("half.yaml"), half).digest:
            return place


# -- ways to write -------------------------------------------------------------------------------


def replaced(path: Path, data: bytes, dice: random.Random) -> None:
    """Written beside and put in its place, as most editors do."""
    beside = path.with_name(f".{path.name}.swp")
    beside.write_bytes(data)
    os.replace(beside, path)


def in_pieces(path: Path, data: bytes, dice: random.Random) -> None:
    """Emptied, then written piece by piece, as ``cat`` through a slow pipe does."""
    cuts = sorted(_cut(data, dice) for _ in range(2)) if len(data) > 1 else []
    with path.open("wb", buffering=0) as stream:
        for start, end in pairwise((0, *cuts, len(data))):
            stream.write(data[start:end])
            time.sleep(dice.choice((0, _PAUSE_S)))


def anew(path: Path, data: bytes, dice: random.Random) -> None:
    """Deleted, then created."""
    path.unlink(missing_ok=True)
    time.sleep(dice.choice((0, _PAUSE_S)))
    path.write_bytes(data)


def moved_away(path: Path, data: bytes, dice: random.Random) -> None:
    """The old one is kept under another name, as a backup."""
    if path.exists():
        os.replace(path, path.with_name(f"{path.name}~"))
    path.write_bytes(data)


def linked(path: Path, data: bytes, dice: random.Random) -> None:
    """A link to another file is put in its place."""
    folder = path.with_name("versions")
    folder.mkdir(exist_ok=True)
    target = folder / f"{time.time_ns()}.yaml"
    target.write_bytes(data)
    beside = path.with_name(f".{path.name}.link")
    beside.symlink_to(target)
    os.replace(beside, path)
    for old in sorted(folder.iterdir())[:-2]:
        old.unlink()


_WAYS: tuple[Callable[[Path, bytes, random.Random], None], ...] = (
    replaced,
    in_pieces,
    anew,
    moved_away,
    linked,
)


def put(kept: Kept, data: bytes, dice: random.Random) -> str:
    """Writes a file in one of the ways; gives its name."""
    path = kept.path
    if kept.is_mounted:
        _mount(path, data)
        return "mounted"
    if path.is_dir():
        path.rmdir()
    was = path.read_bytes() if path.exists() else b""
    if was and data.startswith(was):
        with path.open("ab", buffering=0) as stream:
            stream.write(data[len(was) :])
        return "appended"
    way = dice.choice(_WAYS)
    way(path, data, dice)
    return way.__name__


def missing(kept: Kept, *, folder: bool) -> str:
    """The words for a file that is not there, or is a folder."""
    return f"{kept.path}: {'is a directory' if folder else 'no such file or directory'}"


def remove(kept: Kept, *, folder: bool) -> None:
    """Takes the file away, perhaps for a folder of its name."""
    path = kept.path
    if kept.is_mounted:
        _mount(path, None, folder=folder)
    elif path.is_dir():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    if folder and not kept.is_mounted:
        path.mkdir()


def _mount(path: Path, data: bytes | None, *, folder: bool = False) -> None:
    """A dated folder with the file, and ``..data``, a link, led from the old one to it."""
    mount = path.parent
    dated, link = mount / f"..{time.time_ns()}", mount / "..data"
    old = link.resolve() if link.is_symlink() else None
    dated.mkdir(parents=True)
    if data is not None:
        (dated / path.name).write_bytes(data)
    elif folder:
        (dated / path.name).mkdir()
    beside = mount / "..data_tmp"
    beside.symlink_to(dated.name)
    os.replace(beside, link)
    if not path.is_symlink():
        path.symlink_to(f"..data/{path.name}")
    if old is not None:
        shutil.rmtree(old)
