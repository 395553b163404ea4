"""What was read or computed before, kept on disk under a digest of all that it came from.

Reading YAML and checking it against the schema is most of the time of a first answer. What comes
of it is kept where ``ATTNSEL_CACHE_DIR`` says, else in ``attnsel`` below ``XDG_CACHE_HOME``, which
is ``~/.cache`` unless set; an empty ``ATTNSEL_CACHE_DIR`` keeps nothing. What cannot be kept, or is
no longer whole, is read anew.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from itertools import chain
from pathlib import Path
from threading import get_ident
from types import MappingProxyType
from typing import TypeVar, cast
from zlib import crc32

import msgspec

from selector.fields import BUILTIN, Field, Vocabulary
from selector.manifest import Entry, Manifest, PhaseSpec
from selector.resources import packaged, resource
from selector.values import Phase

__all__ = ["fetch", "is_wanted", "keep", "key_of", "packed", "unpacked"]

T = TypeVar("T", bound=msgspec.Struct)

_MOST_FILES = 64
_UNFINISHED_S = 3600
"""Nobody writes a file for so long: who began it was killed."""

_READ_AT_ONCE = 1 << 26
_TOLD = 4
"""Bytes at the beginning of a file that tell whether the rest is whole."""


def key_of(sources: Iterable[tuple[str, bytes]]) -> str:
    """The digest of files, with the names that findings give them, and of the code that reads."""
    digest = sha256(_code())
    for name, data in sources:
        digest.update(f"{len(name)} {name} {len(data)} ".encode("utf-8", "surrogatepass"))
        digest.update(data)
    return digest.hexdigest()


def fetch(key: str, kind: type[T]) -> T | None:
    """What was kept of a kind under a key, if it is there."""
    folder = _folder()
    if folder is None:
        return None
    try:
        with _file(folder, key, kind).open("rb") as stream:
            if os.fstat(stream.fileno()).st_uid != os.getuid():
                return None  # somebody else's
            told, data = stream.read(_TOLD), stream.read(_READ_AT_ONCE)
        if told != _sum_of(data):
            return None
        return unpacked(data, kind)
    except (OSError, msgspec.MsgspecError, RecursionError):
        return None


def packed(value: msgspec.Struct) -> bytes:
    """A value as bytes, from which the same code has it again."""
    return msgspec.msgpack.encode(value, enc_hook=_plain)


def unpacked(data: bytes, kind: type[T]) -> T:
    """The value of a kind that these bytes stand for.

    Raises:
        msgspec.MsgspecError: they stand for none.
        RecursionError: the same.
    """
    with _no_collection():
        found: T = _decoder(kind).decode(data)
    return cast("T", _shared(found)) if isinstance(found, Manifest) else found


def is_wanted() -> bool:
    """Whether anything shall be kept: an empty ``ATTNSEL_CACHE_DIR`` says no."""
    return os.environ.get("ATTNSEL_CACHE_DIR") != ""


def keep(key: str, value: msgspec.Struct) -> bool:
    """Keeps a value, and says whether it could; the oldest ones of its kind make room."""
    folder = _folder()
    if folder is None:
        return False
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = folder / f"{key}.{os.getpid()}.{get_ident()}.unfinished"
        data = packed(value)
        unfinished.write_bytes(_sum_of(data) + data)
        file = _file(folder, key, type(value))
        unfinished.replace(file)
    except OSError:
        return False
    with contextlib.suppress(OSError):  # another process makes room too
        kept = sorted(folder.glob(f"*{file.suffix}"), key=lambda path: path.stat().st_mtime)
        since = time.time() - _UNFINISHED_S
        left = [one for one in folder.glob("*.unfinished") if one.stat().st_mtime < since]
        for old in kept[:-_MOST_FILES] + left:
            old.unlink(missing_ok=True)
    return True


def _sum_of(data: bytes) -> bytes:
    return crc32(data).to_bytes(_TOLD, "big")


def _file(folder: Path, key: str, kind: type) -> Path:
    return folder / f"{key}.{kind.__name__.lower()}"


def _folder() -> Path | None:
    said = os.environ.get("ATTNSEL_CACHE_DIR")
    if said is not None:
        return Path(said) if said else None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home) / "attnsel" if os.path.isabs(home) else None


@cache
def _code() -> bytes:
    """What tells one state of the reading code from another."""
    code = (packaged(room).glob("*.py") for room in ("", "plan"))
    files = [*chain.from_iterable(code), *resource("schemas").glob("*.json")]
    states = ((path.name, path.stat()) for path in sorted(files))
    return repr([(name, at.st_size, at.st_mtime_ns) for name, at in states]).encode()


@cache
def _decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    return msgspec.msgpack.Decoder(kind, dec_hook=_restored)


def _plain(value: object) -> object:
    """What stands for a value that the format does not know."""
    if isinstance(value, MappingProxyType):
        return dict(value)
    if isinstance(value, Vocabulary):
        return list(value.fields.values())[len(BUILTIN) :]
    raise NotImplementedError(type(value))


def _restored(kind: type, plain: object) -> object:
    if kind is Vocabulary:
        return Vocabulary(msgspec.convert(plain, list[Field]))
    raise NotImplementedError(kind)


def _shared(manifest: Manifest) -> Manifest:
    """The manifest with what phases state alike held once, as it was: that is judged once."""
    entries = {name: _shared_entry(entry) for name, entry in manifest.entries.items()}
    return msgspec.structs.replace(manifest, entries=MappingProxyType(entries))


def _shared_entry(entry: Entry) -> Entry:
    phases: dict[Phase, PhaseSpec] = {}
    for phase, spec in entry.phases.items():
        for other in phases.values():
            if other.constraints == spec.constraints:
                spec = msgspec.structs.replace(spec, constraints=other.constraints)
        if spec.accepts == entry.accepts:
            spec = msgspec.structs.replace(spec, accepts=entry.accepts)
        phases[phase] = spec
    return msgspec.structs.replace(entry, phases=MappingProxyType(phases))


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing that is decoded is garbage; looking for some takes longer than decoding."""
    ran = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if ran:
            gc.enable()
