"""What ``attnsel lint`` reads, mends and prints."""

from __future__ import annotations

import errno
import gc
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from cli.terminal import complain, places, show, show_json
from selector.document import LIMITS, read_bytes
from selector.lint.catalogue import codes, find_rule
from selector.lint.files import files_of
from selector.lint.many import Checked, check_bytes, check_files, checked, unreadable
from selector.lint.running import Selection
from selector.resources import DEFAULT_MANIFEST, resource
from selector.values import Finding

__all__ = ["Found", "Lint", "Stdin", "checked_files", "mended_files", "rare_collection", "show_all"]


class Stdin(NamedTuple):
    """A manifest on standard input, and what it is called."""

    name: str

    def read(self) -> bytes:
        """Its bytes; of one that is too large a few more than are allowed."""
        return sys.stdin.buffer.read(LIMITS.size_bytes + 1) if sys.stdin else b""


class Lint(NamedTuple):
    """What is to be looked at.

    Attributes:
        references: names, paths, folders and patterns.
        stdin: what comes from standard input, if anything.
        overlays: paths.
        selection: of rules.
    """

    references: Sequence[str]
    stdin: Stdin | None
    overlays: Sequence[str]
    selection: Selection

    def files(self) -> tuple[list[Path], list[str]]:
        """The files that are meant, and what is wrong with references that mean none."""
        if not self.references and self.stdin is None:
            return [resource(DEFAULT_MANIFEST)], []
        files, empty = files_of(self.references)
        return files, [f"{one or 'an empty name'}: no manifest is there" for one in empty]


@dataclass
class Found:
    """What was found: of the files that could be read, and why others could not."""

    checked: list[Checked]
    troubles: list[str]

    def __post_init__(self) -> None:
        if not self.checked:  # one line, that nobody takes for "nothing is wrong"
            self.troubles = [f"0 files checked: {'; '.join(self.troubles) or 'name a manifest'}"]
        self.troubles += dict.fromkeys(one.trouble for one in self.checked if one.trouble)
        self.checked = sorted((one for one in self.checked if not one.trouble), key=_file)


@contextmanager
def rare_collection() -> Iterator[None]:
    """Collects garbage rarely: what is read is kept until the end, and looking at it takes time."""
    before = gc.get_threshold()
    gc.set_threshold(200_000, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _file(one: Checked) -> str:
    return one.file


def checked_files(asked: Lint) -> Found:
    """What is wrong with the files, which stay as they are."""
    files, troubles = asked.files()
    found = [*check_files(files, asked.overlays, asked.selection)]
    if asked.stdin:
        found.append(_try(asked.stdin.name, asked.stdin.read(), asked))
    return Found(found, troubles)


def _try(name: str, data: bytes, asked: Lint) -> Checked:
    try:
        return check_bytes(data, name, asked.overlays, asked.selection)
    except OSError as error:
        return Checked(name, trouble=unreadable(error, name))


def mended_files(asked: Lint, write: bool) -> Found:
    """What is left wrong with the files when all that is safe to mend is mended.

    What came from standard input is written to standard output.

    Args:
        asked: the files; overlays are mended too, where there is only one manifest.
        write: put what is mended in place; else it is only shown as a difference.
    """
    files, troubles = asked.files()
    found = []
    alone = len(files) + bool(asked.stdin) == 1
    for file in files:
        try:
            found.append(_mend(str(file), read_bytes(file), asked, alone, write))
        except OSError as error:
            found.append(Checked(str(file), trouble=unreadable(error, str(file))))
    if asked.stdin:
        data = asked.stdin.read()
        try:
            found.append(_mend(asked.stdin.name, data, asked, alone, write))
        except OSError as error:
            found.append(Checked(asked.stdin.name, trouble=unreadable(error, asked.stdin.name)))
            _write_bytes(data if write else b"")
    return Found(found, troubles)


def _mend(name: str, data: bytes, asked: Lint, alone: bool, write: bool) -> Checked:
    from selector.lint.fixing import mend

    before = [(name, data), *((one, read_bytes(Path(one))) for one in asked.overlays)]
    keep = frozenset() if alone else frozenset(asked.overlays)
    after = mend(before, asked.selection, keep)
    for file, seen in before:
        mended = after.data[file]
        if not write:
            _write_bytes("".join(_difference(file, seen, mended)).encode("utf-8"))
        elif asked.stdin and file == asked.stdin.name:
            _write_bytes(mended)
        elif mended != seen:
            _put(Path(file), mended)
    return checked(after.findings, after.documents, after.fixed)


def _difference(file: str, before: bytes, after: bytes) -> Iterator[str]:
    if before == after:
        return
    from difflib import unified_diff

    name = places(file).file(file)
    old, new = (re.findall("[^\n]*\n|[^\n]+", data.decode("utf-8")) for data in (before, after))
    for line in unified_diff(old, new, name, name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _write_bytes(data: bytes) -> None:
    sys.stdout.flush()
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def _put(file: Path, data: bytes) -> None:
    """Puts data in place of a file's, at once: nobody reads half of it.

    Raises:
        OSError: that cannot be; the file is as it was.
    """
    real = Path(os.path.realpath(file))
    if not real.is_file():
        raise OSError(errno.EINVAL, "cannot be mended, as it is no ordinary file", str(file))
    was = real.stat()
    if not was.st_mode & 0o222:
        raise OSError(errno.EACCES, "cannot be mended, as it is read-only", str(file))
    part = real.with_name(f".{real.name}.{os.getpid()}.part")
    try:
        part.write_bytes(data)
        with suppress(OSError, AttributeError):  # only root gives files away, and not everywhere
            os.chown(part, was.st_uid, was.st_gid)
        part.chmod(stat.S_IMODE(was.st_mode))
        os.replace(part, real)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(file)) from error
    finally:
        part.unlink(missing_ok=True)


def show_all(found: Found, form: str, *, statistics: bool, to_stderr: bool, written: bool) -> None:
    """Prints findings, and what could not be read.

    Args:
        found: all.
        form: ``text``, ``json``, ``github`` or ``sarif``.
        statistics: count the findings of each rule instead.
        to_stderr: standard output holds something else.
        written: whether what is mended was written.
    """
    findings = sorted({finding for one in found.checked for finding in one.findings})
    with redirect_stdout(sys.stderr if to_stderr else sys.stdout):
        if form == "sarif":
            _show_sarif(found, findings)
        elif form == "json":
            _show_json(findings, statistics)
        elif found.checked:
            _show_text(found, findings, "counts" if statistics else form, written)
        sys.stdout.flush()
    for trouble in found.troubles:
        complain(trouble)


def _show_sarif(found: Found, findings: Sequence[Finding]) -> None:
    from importlib.metadata import version

    from selector.lint.catalogue import rules
    from selector.report.sarif import sarif_log

    log = sarif_log(
        findings, _texts(found), rules(), version("attnsel"), found.troubles, str(Path.cwd())
    )
    show_json(log)


def _show_json(findings: Sequence[Finding], statistics: bool) -> None:
    from selector.report.findings import counts_json, findings_json

    show_json(counts_json(findings, _name_of) if statistics else findings_json(findings))


def _show_text(found: Found, findings: Sequence[Finding], form: str, written: bool) -> None:
    from selector.report.findings import counts_lines, finding_lines, summary_lines

    where = places(*(one.file for one in found.checked), *_texts(found))
    if form == "github":
        from selector.report.github import workflow_commands

        sys.stdout.writelines(f"{line}\n" for line in workflow_commands(findings, where, _name_of))
        lines = []
    elif form == "counts":
        lines = counts_lines(findings, _name_of)
    else:
        lines = finding_lines(findings, _texts(found), where)
    files = [where.file(one.file) for one in found.checked]
    fixable = len({finding for one in found.checked for finding in one.fixable})
    fixed = sum(one.fixed for one in found.checked)
    show([*lines, *summary_lines(findings, files, fixable, fixed, written)], whole=True)


def _texts(found: Found) -> dict[str, str]:
    return {file: text for one in found.checked for file, text in one.texts.items()}


def _name_of(code: str) -> str:
    return find_rule(code).name if code in codes() else ""
