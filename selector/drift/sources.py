"""The Python files of a package: in a wheel, in a folder, or among installed packages.

Nothing is extracted, imported or run. A file is read when it is asked for, within bounds; what is
refused is a finding, and the rest is still read.
"""

from __future__ import annotations

import lzma
import os
import re
import zipfile
import zlib
from pathlib import Path
from typing import Protocol

import msgspec

from selector.errors import AttnselError
from selector.values import Finding, Severity

__all__ = [
    "FILES",
    "FILE_BYTES",
    "NAME_LENGTH",
    "READ_BYTES",
    "File",
    "Source",
    "SourceError",
    "open_source",
]

FILE_BYTES = 4 * 1024 * 1024
"""A file with more is not read; the largest of vLLM 0.33.0 has 320 kB."""
READ_BYTES = 256 * 1024 * 1024
"""No more than this is read of one source, all files together."""
FILES = 100_000
"""A wheel with more entries is refused."""
NAME_LENGTH = 512
"""A longer name in a wheel is refused."""
NAMES_SHOWN = 20
"""So many refused names are findings of their own; the rest are counted."""


class SourceError(AttnselError, ValueError):
    """A source cannot be read at all: no such file, no package in it, not a wheel."""

    code = "SOURCE"


class File(msgspec.Struct, frozen=True):
    """A Python file of a source.

    Attributes:
        path: inside the source, with ``/``: ``vllm/v1/attention/backend.py``.
        data: its bytes.
        is_package: whether it is the ``__init__.py`` of a package.
    """

    path: str
    data: bytes
    is_package: bool


class Source(Protocol):
    """Where modules come from.

    Attributes:
        label: what was given, for messages.
        package: the top-level package that is read.
        version: the version that the source states; empty where it states none.
        findings: what was refused so far.
    """

    label: str
    package: str
    version: str
    findings: list[Finding]

    def read(self, module: str) -> File | None:
        """The file of a module by its dotted name; ``None``: there is none, or it is refused."""
        ...

    def has(self, module: str) -> bool:
        """Whether a file of this module, or a folder of this name, is there."""
        ...

    def names(self) -> tuple[str, ...]:
        """The dotted names of the package's modules, in order."""
        ...


def open_source(path: str | Path, package: str) -> Source:
    """A wheel, a folder that is the package or holds it, or a site-packages folder.

    Args:
        path: a ``.whl`` file or a folder.
        package: the top-level package to read, such as ``vllm``.

    Raises:
        SourceError: there is nothing at the path, it is no zip, or the package is not in it.
    """
    place = Path(path)
    if place.is_dir():
        return FolderSource(place, package)
    if place.is_file():
        return WheelSource(place, package)
    raise SourceError(f"{path}: no such file or folder; give a wheel or a folder with {package}")


def _candidates(module: str) -> tuple[tuple[str, bool], ...]:
    """The files that a module can be: a package wins over a module of the same name."""
    base = module.replace(".", "/")
    return ((f"{base}/__init__.py", True), (f"{base}.py", False))


def _module_of(path: str) -> str:
    """The module that a file inside the source is."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


_PARTS = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


class _Bounded:
    """What both sources share: findings, and the budget of bytes."""

    def __init__(self, label: str, package: str) -> None:
        self.label = label
        self.package = package
        self.version = ""
        self.findings: list[Finding] = []
        self._left = READ_BYTES
        self._refused: set[str] = set()

    def _refuse(self, where: str, code: str, message: str, fix: str = "") -> None:
        if (key := f"{code} {where}") not in self._refused:
            self._refused.add(key)
            self.findings.append(Finding(where, 1, 1, code, Severity.ERROR, message, fix))

    def _fits(self, path: str, size: int) -> bool:
        if size > FILE_BYTES:
            self._refuse(path, "DRF103", f"{size:,} bytes; at most {FILE_BYTES:,} are read")
            return False
        if size > self._left:
            self._refuse(
                self.label,
                "DRF103",
                f"more than {READ_BYTES:,} bytes of code; the rest is not read",
            )
            return False
        return True

    def _take(self, path: str, data: bytes, is_package: bool) -> File | None:
        """The file, if what was really read keeps within the bounds."""
        if not self._fits(path, len(data)):
            return None
        self._left -= len(data)
        return File(path, data, is_package)


class FolderSource(_Bounded):
    """A folder that is the package, or that holds it (site-packages, a checkout)."""

    def __init__(self, place: Path, package: str) -> None:
        super().__init__(str(place), package)
        if (place / package / "__init__.py").is_file():
            self._root = place.resolve()
        elif place.name == package and (place / "__init__.py").is_file():
            self._root = place.resolve().parent
        else:
            raise SourceError(f"{place}: holds no package {package}; give the folder that does")
        self.version = self._find_version()

    def _find_version(self) -> str:
        for found in sorted(self._root.glob(f"{self.package}-*.dist-info")):
            return found.name.removesuffix(".dist-info").split("-", 1)[1]
        return ""

    def has(self, module: str) -> bool:
        """Whether a file of this module, or a folder of this name, is there."""
        if not _PARTS.fullmatch(module):
            return False
        base = self._root / module.replace(".", "/")
        return base.is_dir() or base.with_name(base.name + ".py").is_file()

    def names(self) -> tuple[str, ...]:
        """The dotted names of the package's modules; links to folders are not followed."""
        found: set[str] = set()
        for folder, folders, files in os.walk(self._root / self.package):
            base = Path(folder).relative_to(self._root)
            found.update((base / file).as_posix() for file in files if file.endswith(".py"))
            if len(found) > FILES:
                folders.clear()
                self._refuse(self.label, "DRF103", f"more than {FILES:,} files; the rest is left")
        return tuple(sorted(name for one in found if _PARTS.fullmatch(name := _module_of(one))))

    def read(self, module: str) -> File | None:
        """The file of a module; a link that leads out of the folder is a finding."""
        if not _PARTS.fullmatch(module):
            return None
        for name, is_package in _candidates(module):
            path = self._root / name
            if not path.is_file():
                continue
            if not path.resolve().is_relative_to(self._root):
                self._refuse(name, "DRF102", "a link that leads out of the source; it is not read")
                return None
            try:
                if not self._fits(name, path.stat().st_size):
                    return None
                with path.open("rb") as stream:
                    data = stream.read(FILE_BYTES + 1)
            except OSError as error:
                self._refuse(name, "DRF101", f"cannot be read: {error.strerror}")
                return None
            return self._take(name, data, is_package)
        return None


class WheelSource(_Bounded):
    """A wheel, read as a zip; no name in it is ever a path on this machine."""

    def __init__(self, place: Path, package: str) -> None:
        super().__init__(str(place), package)
        try:
            self._zip = zipfile.ZipFile(place)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
            raise SourceError(
                f"{place}: is no wheel that can be read ({error}); give a .whl file or a folder"
            ) from None
        entries = self._zip.infolist()
        if len(entries) > FILES:
            raise SourceError(f"{place}: {len(entries):,} entries; at most {FILES:,} are read")
        self._entries = self._index(entries)
        self._folders = {
            name[:at] for name in self._entries for at in range(len(name)) if name[at] == "/"
        }
        if package not in self._folders:
            raise SourceError(f"{place}: holds no package {package}; give a wheel that does")
        self.version = self._find_version()

    def _index(self, entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        kept: dict[str, zipfile.ZipInfo] = {}
        bad: dict[str, str] = {}
        for entry in entries:
            name = entry.filename
            if problem := _name_problem(entry):
                bad.setdefault(name[:80], problem)
            elif name in kept:
                bad.setdefault(
                    name, "is in the wheel twice; the last one counts when it is installed"
                )
                kept[name] = entry
            elif name.endswith((".py", "/METADATA")):
                kept[name] = entry
        said = [f"{name!r} {problem}" for name, problem in list(bad.items())[:NAMES_SHOWN]]
        if len(bad) > NAMES_SHOWN:
            said.append(f"{len(bad) - NAMES_SHOWN:,} more names are refused")
        self.findings += [
            Finding(self.label, 1, 1, "DRF102", Severity.ERROR, message) for message in said
        ]
        return kept

    def _find_version(self) -> str:
        for name in sorted(self._entries):
            folder, _, rest = name.partition("/")
            if rest == "METADATA" and folder.endswith(".dist-info"):
                data = self._bytes(name, self._entries[name])
                head = (data or b"").split(b"\n\n", 1)[0].decode("utf-8", "replace")
                if found := re.search(r"^Version:[ \t]*(\S{1,80})", head, re.MULTILINE):
                    return found[1]
        return ""

    def has(self, module: str) -> bool:
        """Whether a file of this module, or a folder of this name, is there."""
        base = module.replace(".", "/")
        return base in self._folders or f"{base}.py" in self._entries

    def names(self) -> tuple[str, ...]:
        """The dotted names of the package's modules."""
        inside = (one for one in self._entries if one.startswith(f"{self.package}/"))
        modules = {_module_of(one) for one in inside if one.endswith(".py")}
        return tuple(sorted(one for one in modules if _PARTS.fullmatch(one)))

    def read(self, module: str) -> File | None:
        """The file of a module, decompressed within the bounds."""
        for name, is_package in _candidates(module):
            if (entry := self._entries.get(name)) is not None:
                data = self._bytes(name, entry)
                return None if data is None else self._take(name, data, is_package)
        return None

    def _bytes(self, name: str, entry: zipfile.ZipInfo) -> bytes | None:
        if not self._fits(name, entry.file_size):
            return None
        try:
            with self._zip.open(entry) as stream:
                return stream.read(FILE_BYTES + 1)
        except _BROKEN as error:
            why = str(error) or type(error).__name__
            self._refuse(name, "DRF101", f"cannot be read from the wheel: {why}")
        return None


_BROKEN = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, ValueError),
    *(NotImplementedError, RuntimeError, MemoryError),
)
"""What a damaged entry raises; an encrypted one is a ``RuntimeError``, and one that asks for
gigabytes to be decompressed with a ``MemoryError``."""


def _name_problem(entry: zipfile.ZipInfo) -> str:
    """What is wrong with an entry's name, or nothing."""
    name = entry.filename
    if len(name) > NAME_LENGTH:
        return f"has {len(name):,} characters; at most {NAME_LENGTH} are taken"
    parts = name.rstrip("/").split("/")
    if "\\" in name or "\0" in name or any(ord(character) < 32 for character in name):
        return "is no name of a file in a wheel; it is not read"
    if ".." in parts or "" in parts or "." in parts or re.match(r"[A-Za-z]:", name):
        return "leads out of the wheel; it is not read"
    if entry.external_attr >> 28 == 0xA:
        return "is a link; it is not read"
    return ""
