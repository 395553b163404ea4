"""Many files → what is wrong with each, on as many cores as there are."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from selector.document import Document, read_bytes, read_document, read_text
from selector.lint.fixing import fixable
from selector.lint.running import Selection, lint
from selector.loading import not_found
from selector.values import Finding

__all__ = ["Checked", "check_bytes", "check_files", "checked", "unreadable"]

_FEW = 16
"""So many files are done by one core before others have begun."""


class Checked(msgspec.Struct, frozen=True):
    """What is wrong with one file.

    Attributes:
        file: as findings name it.
        findings: of it and of its overlays, in order.
        texts: file → its text, of those with findings.
        fixable: those of the findings that have a safe fix.
        fixed: how many findings were mended.
        trouble: why it could not be read; then there is nothing else.
    """

    file: str
    findings: tuple[Finding, ...] = ()
    texts: Mapping[str, str] = {}
    fixable: tuple[Finding, ...] = ()
    fixed: int = 0
    trouble: str = ""


def check_files(
    files: Sequence[Path], overlays: Sequence[str], selection: Selection
) -> Iterator[Checked]:
    """Yields what is wrong with each file, in the given order.

    Args:
        files: manifests.
        overlays: paths of overlays, applied to each of them.
        selection: of rules.
    """
    check = partial(_check_file, overlays=tuple(overlays), selection=selection)
    if len(files) < _FEW or (cores := _cores()) < 2:
        yield from map(check, files)
        return
    yield check(files[0])  # what all of them need is then loaded
    yield from _spread(check, files[1:], cores)


def check_bytes(data: bytes, file: str, overlays: Iterable[str], selection: Selection) -> Checked:
    """What is wrong with a manifest that is already at hand.

    Raises:
        OSError: an overlay cannot be opened.
    """
    documents = [read_text(data, file), *(read_document(Path(name)) for name in overlays)]
    return checked(lint(documents[0], documents[1:], selection), documents)


def unreadable(error: OSError, file: str) -> str:
    """What is wrong with a file: for a manifest that is none, which one may be meant."""
    named = error.filename or file
    if isinstance(error, FileNotFoundError) and named == file:
        return str(not_found(file))
    return f"{named}: {(error.strerror or str(error)).lower()}"


def _check_file(path: Path, overlays: Sequence[str], selection: Selection) -> Checked:
    try:
        return check_bytes(read_bytes(path), str(path), overlays, selection)
    except OSError as error:
        return Checked(str(path), trouble=unreadable(error, str(path)))


def checked(
    findings: Sequence[Finding], documents: Sequence[Document], fixed: int | None = None
) -> Checked:
    """What is wrong with a file, the first of some documents; the others are its overlays.

    Args:
        findings: about them.
        documents: as they were read.
        fixed: how many findings were mended; then what is left cannot be.
    """
    about = {finding.file for finding in findings}
    texts = {one.file: one.text for one in documents if one.file in about}
    safe = tuple(fixable(findings, documents)) if fixed is None else ()
    return Checked(documents[0].file, tuple(findings), texts, safe, fixed or 0)


def _cores() -> int:
    """On how many cores work can be spread; threads would not survive it."""
    if not hasattr(os, "fork") or not hasattr(os, "sched_getaffinity"):
        return 1
    return len(os.sched_getaffinity(0)) if threading.active_count() == 1 else 1


def _spread(check: partial[Checked], files: Sequence[Path], cores: int) -> Iterator[Checked]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    at_once = max(1, len(files) // (4 * cores))
    with ProcessPoolExecutor(cores, get_context("fork")) as pool:
        yield from pool.map(check, files, chunksize=at_once)
