"""Which files are meant by paths, folders and patterns."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from glob import glob, has_magic
from pathlib import Path

from selector.resources import manifest_path

__all__ = ["files_of"]

_SUFFIXES = (".yaml", ".yml")
_MANIFEST = re.compile(rb"""^(\{\s*)?["']?attnsel["']?[ \t]*:""", re.MULTILINE)
_MOST_BYTES = 1 << 16
"""The key stands at the top of a manifest: it is looked for in so much of a file."""


def files_of(references: Iterable[str]) -> tuple[list[Path], list[str]]:
    """The files that are meant, in order, each once; and the references that mean none.

    A folder stands for the manifests and overlays in it and below it: ``*.yaml`` and ``*.yml``
    with the key ``attnsel``; folders whose name begins with a dot are passed over. A pattern
    (``*``, ``?``, ``[…]``, ``**``) stands for the files that match it, unless a file is called
    so. Anything else is a shipped manifest by its name, or a file by its path.
    """
    found: list[Path] = []
    empty = []
    for reference in references:
        path = manifest_path(reference)
        files: list[Path] = []
        if not reference:
            pass  # a variable that is not set, and not this folder
        elif path.is_dir():
            files = [*_below(path)]
        elif has_magic(reference) and not path.exists():
            files = [file for file in map(Path, glob(reference, recursive=True)) if file.is_file()]
        else:
            files = [path]
        found += files
        if not files:
            empty.append(reference)
    once = {os.path.realpath(file): file for file in sorted(found, reverse=True)}
    return sorted(once.values()), sorted(set(empty))


def _below(folder: Path) -> Iterator[Path]:
    for at, folders, names in os.walk(folder):
        folders[:] = (name for name in folders if not name.startswith("."))
        for name in names:
            path = Path(at, name)
            if name.endswith(_SUFFIXES) and path.is_file() and _is_manifest(path):
                yield path


def _is_manifest(path: Path) -> bool:
    """Whether a file says that it is one; one that cannot be read may be, and is told."""
    try:
        with path.open("rb") as stream:
            begin = stream.read(_MOST_BYTES).removeprefix(b"\xef\xbb\xbf")
    except OSError:
        return True
    return _MANIFEST.search(begin) is not None
