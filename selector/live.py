"""Manifests that are read again when their files change: one snapshot is swapped for the next.

A request takes the snapshot once, at its start, and keeps it: it never sees two of them. A file
that is broken, half written or gone leaves the last good snapshot where it is; what is wrong is
said beside it, until the file is good again.

Files are looked at, not listened to: a look costs microseconds, and sees what notifications miss (a
network file system, a folder that is replaced, a link in a folder above).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from selector.binding import Selector
from selector.document import read_bytes
from selector.errors import ManifestError, UnknownManifestError, os_words
from selector.fields import close_matches, one_line
from selector.judge import forget
from selector.loading import load_sources, loads, not_found
from selector.manifest import Manifest
from selector.process import BugError, Process
from selector.resources import DEFAULT_MANIFEST, manifest_path, resource
from selector.stored import fetch, keep, key_of, packed, unpacked
from selector.values import Finding

__all__ = ["LiveManifest", "LiveManifests", "Loader", "Snapshot", "Trouble", "Watcher"]

_YOUNG_NS = 100_000_000
"""A file that changed less long ago may change again and look the same: its clock is coarse."""

_UNFINISHED_NS = 1_000_000_000
"""A file without an end of line at its end changed less long ago: the rest may be on its way."""

_AGAIN_S = 1.0
"""Until files are read again that could not be, for a reason that is none of theirs."""

_LAST_LOOK_S = 5.0
"""So long may a look take that is under way when nobody needs it any more."""

_MOST_WAITS = 20
"""So many looks in a row may see a file change before it is read all the same."""

_Sources = list[tuple[str, bytes]]
_Load = Callable[[_Sources], Manifest]
_State = tuple[tuple[int, ...] | None, ...]


class Snapshot:
    """One manifest as it was loaded once; never changed.

    Attributes:
        name: of the live manifest.
        generation: 1 for the first, one more for each that replaced it.
        selector: answers from it.
        sources: what it was read from: names and bytes, the manifest first.
        loaded_at: when, in seconds since 1970.
        worked_out: what was computed from it, by what asked for it; gone when it is.
    """

    def __init__(
        self,
        name: str,
        generation: int,
        selector: Selector,
        sources: Sequence[tuple[str, bytes]],
        loaded_at: float,
    ) -> None:
        self.name = name
        self.generation = generation
        self.selector = selector
        self.sources = sources
        self.loaded_at = loaded_at
        self.worked_out: dict[str, Any] = {}

    @property
    def digest(self) -> str:
        """SHA-256 of what the manifest means."""
        return self.selector.manifest.ref.digest

    @cached_property
    def claimed(self) -> Selector:
        """Answers with what engines claim instead of what is true."""
        return Selector(self.selector.manifest.as_claimed())


class Trouble(msgspec.Struct, frozen=True):
    """What is wrong with the file behind a live manifest.

    Attributes:
        code: stable.
        message: on one line.
        findings: in the file, if it could be read.
        since: when it was first seen, in seconds since 1970.
    """

    code: str
    message: str
    findings: tuple[Finding, ...]
    since: float


class _LastGood(msgspec.Struct, frozen=True):
    """What files held when they were last read well."""

    sources: _Sources


class LiveManifest:
    """A name, the files behind it, the snapshot that is served, and what is wrong with a newer one.

    ``current`` and ``trouble`` are single references: reading one takes no lock.

    Attributes:
        name: under which it is asked for.
        files: the manifest and its overlays.
        load: turns what they hold into a manifest, when they change.
        current: the snapshot that is served.
        trouble: what is wrong with the files; ``None``: nothing, ``current`` is what they hold.
        failures: how often the files changed into something that is no manifest.
        is_kept: whether a process that starts again finds what is served, whatever the files hold.
    """

    def __init__(
        self,
        name: str,
        files: Sequence[Path],
        *,
        tell: Callable[[LiveManifest], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Reads the files; where they are bad, what was last read well from them, if that is kept.

        Args:
            name: under which it is asked for.
            files: the manifest and its overlays.
            tell: is called after each swap, when trouble begins, changes or ends, and when what
                could not be kept is.
            clock: seconds since 1970.

        Raises:
            ManifestError: the manifest has errors; all are listed.
            OSError: a file cannot be opened.
        """
        self.name = name
        self.files = tuple(files)
        self.load: _Load = load_sources
        self.trouble: Trouble | None = None
        self.failures = 0
        self.is_kept = False
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()  # of those who write
        self._seen = self._read_state = _state_of(self.files)
        self._waits = 0
        self._bad: _Sources | None = None
        self._again_at: float | None = None
        self._key = key_of([(os.path.abspath(file), b"") for file in self.files])
        self._sources, self.current = self._first()

    @property
    def is_degraded(self) -> bool:
        """Whether the files no longer hold what is served."""
        return self.trouble is not None

    @property
    def status(self) -> str:
        """``ready``, or ``degraded``."""
        return "degraded" if self.is_degraded else "ready"

    def look(self) -> None:
        """Reads the files if they changed and are quiet: two looks in a row saw the same.

        Half a YAML document is often a whole one. Who writes a file piece by piece stops within a
        line, so one that ends there is given more time.
        """
        seen = _state_of(self.files)
        now = self._clock()
        if seen == self._read_state:
            waits = self._again_at is not None and now < self._again_at
            is_quiet = self._again_at is None and not _is_young(seen, now, _YOUNG_NS)
            if waits or is_quiet:
                return
        if seen != self._seen and self._waits < _MOST_WAITS:
            self._seen = seen
            self._waits += 1
            return
        if _is_young(seen, now, _UNFINISHED_NS) and not all(map(_ends_in_a_line, self.files)):
            return
        self.reload()

    def reload(self) -> None:
        """Reads the files now, and swaps the snapshot if they hold another good one."""
        with self._lock:
            self._waits = 0
            self._again_at = None
            self._seen = self._read_state = _state_of(self.files)
            before = (self.current, self.trouble, self.is_kept)
            try:
                self._take(self._read())
            except OSError as error:
                self._bad = None
                self._fail_by(error)
            if before != (self.current, self.trouble, self.is_kept) and self._tell is not None:
                self._tell(self)

    def _first(self) -> tuple[_Sources, Snapshot]:
        """What is served first: a process that starts again has forgotten the last good one."""
        try:
            sources = self._read()
            return sources, self._snapshot(sources, 1)
        except (ManifestError, OSError) as error:
            last = fetch(self._key, _LastGood)
            if last is None:
                raise
            self._fail_by(error)
            return last.sources, self._snapshot(last.sources, 1)

    def _read(self) -> _Sources:
        return [(str(file), read_bytes(_regular(file))) for file in self.files]

    def _take(self, sources: _Sources) -> None:
        """Swaps the snapshot for that of these sources, unless they are bad or the same."""
        if sources == self._sources:
            self.trouble = self._bad = None
            self.is_kept = self.is_kept or self._keep(sources)
            return
        if sources == self._bad:
            return
        try:
            snapshot = self._snapshot(sources, self.current.generation + 1)
        except ManifestError as error:
            self._bad = sources
            self._fail_by(error)
        except Exception as error:  # of what reads, not of the files: they are read again
            self._bad = None
            self._again_at = self._clock() + _AGAIN_S
            self._fail_by(error)
        else:
            self._sources = sources
            self.current = snapshot
            forget()
            self.trouble = self._bad = None

    def _fail_by(self, error: Exception) -> None:
        """Notes what is wrong with the files."""
        if isinstance(error, ManifestError):
            found = tuple(f for f in error.findings if isinstance(f, Finding))
            self._fail(error.code, str(error), found)
        elif isinstance(error, OSError):
            self._fail("UNREADABLE", os_words(error), ())
        elif isinstance(error, BugError):
            self._fail("UNREADABLE", f"reading ended by a bug: {str(error).splitlines()[0]}", ())
        else:
            self._fail("UNREADABLE", f"{type(error).__name__}: {one_line(error)}", ())

    def _fail(self, code: str, message: str, findings: tuple[Finding, ...]) -> None:
        now = self.trouble
        if now is not None and (now.code, now.message, now.findings) == (code, message, findings):
            return
        self.failures += 1
        since = self._clock() if now is None else now.since
        self.trouble = Trouble(code, message, findings, since)

    def _snapshot(self, sources: _Sources, generation: int) -> Snapshot:
        selector = Selector(self.load(sources))
        self.is_kept = self._keep(sources)
        return Snapshot(self.name, generation, selector, sources, self._clock())

    def _keep(self, sources: _Sources) -> bool:
        """Keeps what was read well for a process that starts again; whether it could."""
        return keep(self._key, _LastGood(sources))


def _state_of(files: Iterable[Path]) -> _State:
    """What tells one state of files from another; of one that is not there, ``None``."""
    return tuple(map(_file_state, files))


def _file_state(file: Path) -> tuple[int, ...] | None:
    try:
        at = os.stat(file)
    except OSError:
        return None
    return (at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns)


def _is_young(state: _State, now: float, age_ns: int) -> bool:
    now_ns = int(now * 1e9)
    return any(one is not None and 0 <= now_ns - one[-1] < age_ns for one in state)


def _ends_in_a_line(file: Path) -> bool:
    """Whether a file's last line has its end; one that cannot be read is not waited for."""
    try:
        with _regular(file).open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 1))
            return stream.read(1) in (b"\n", b"")
    except OSError:
        return True


def _regular(file: Path) -> Path:
    """A file, unless it is a pipe or a device, which may keep who reads it waiting forever.

    Raises:
        OSError: it is one, or is not there.
    """
    kind = file.stat().st_mode
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):  # a folder says itself that it is one
        return file
    raise OSError(errno.EINVAL, "not a regular file", str(file))


class LiveManifests(Mapping[str, LiveManifest]):
    """All that are served, by name; the first answers those who name none."""

    def __init__(self, manifests: Iterable[LiveManifest]) -> None:
        self._by_name = {one.name: one for one in manifests}
        self.first = next(iter(self._by_name.values()))

    @classmethod
    def load(
        cls,
        references: Sequence[str],
        overlays: Sequence[str] = (),
        tell: Callable[[LiveManifest], None] | None = None,
    ) -> LiveManifests:
        """Reads manifests by path or by the name of one that ships.

        Args:
            references: names and paths; none: the shipped ``capabilities.yaml``. A path is served
                under the name of its file, without the suffix.
            overlays: local changes, to each of them.
            tell: is called when one changes.

        Raises:
            ManifestError: one has errors; all are listed.
            OSError: a file cannot be opened.
            UnknownManifestError: there is no such file, nor a shipped manifest of that name; or two
                would have one name.
        """
        files = [manifest_path(one) for one in references] or [resource(DEFAULT_MANIFEST)]
        names = [file.stem if file.suffix in (".yaml", ".yml") else file.name for file in files]
        for name in names:
            if names.count(name) > 1:
                raise UnknownManifestError(f"two manifests would be called {name}; rename one file")
        extra = [Path(one) for one in overlays]
        return cls(_open(n, (f, *extra), tell) for n, f in zip(names, files, strict=True))

    def current(self, name: str | None) -> Snapshot:
        """The snapshot that a request is answered from: one read of one reference.

        Raises:
            UnknownManifestError: none of that name is served.
        """
        if name is None:
            return self.first.current
        live = self._by_name.get(name)
        if live is None:
            near = close_matches(name[:100], self._by_name)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(self._by_name)}"
            raise UnknownManifestError(f'no manifest "{one_line(name)}" is served; {hint}')
        return live.current

    def __getitem__(self, name: str) -> LiveManifest:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def _open(
    name: str, files: Sequence[Path], tell: Callable[[LiveManifest], None] | None
) -> LiveManifest:
    try:
        return LiveManifest(name, files, tell=tell)
    except ManifestError as error:
        raise ManifestError(tuple(_of_overlay(f, name, files) for f in error.findings)) from None
    except FileNotFoundError as error:
        if error.filename != str(files[0]):
            raise
        raise not_found(str(files[0])) from None


def _of_overlay(finding: object, name: str, files: Sequence[Path]) -> object:
    """A finding, which says under which manifest if it is in an overlay: that is over several."""
    if not isinstance(finding, Finding) or finding.file == str(files[0]):
        return finding
    return msgspec.structs.replace(finding, message=f"{finding.message}, over {name}")


class Loader:
    """Loads manifests in a process of its own.

    Checking one takes tens of milliseconds, in which nobody else in this process would answer.
    """

    def __init__(self) -> None:
        self._process = Process()
        self._lock = threading.Lock()
        self._stopped = False

    def start(self) -> None:
        """Has the process ready for a first manifest."""
        with self._lock, contextlib.suppress(BugError, OSError):  # it is tried again
            self._process.ask(_warmed)

    def load(self, sources: _Sources) -> Manifest:
        """The manifest in files that are at hand; a process that ended is replaced.

        Raises:
            BugError: reading has a bug.
            ManifestError: it has findings of severity error; all are listed.
            OSError: no process can be started, or each one ends.
        """
        with self._lock:
            try:
                reply = self._process.ask(_loaded, sources)
            except OSError:
                if self._stopped:
                    raise
                self._process = Process()
                reply = self._process.ask(_loaded, sources)
        if isinstance(reply, bytes):
            return unpacked(reply, Manifest)
        raise ManifestError(reply)

    def stop(self) -> None:
        """Ends the process, whatever it is at."""
        self._stopped = True
        self._process.kill()


def _loaded(sources: _Sources) -> bytes | tuple[object, ...]:
    """A manifest as bytes, or its findings."""
    try:
        return packed(load_sources(sources))
    except ManifestError as error:
        return error.findings


def _warmed() -> None:
    """Imports and compiles what reading needs."""
    loads(resource(DEFAULT_MANIFEST).read_bytes())


class Watcher:
    """Looks at manifests again and again, on a thread of its own, and loads what has changed."""

    def __init__(self, manifests: Iterable[LiveManifest], interval_s: float = 0.005) -> None:
        self._manifests = tuple(manifests)
        self._interval_s = interval_s
        self._loader = Loader()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="attnsel-watcher", daemon=True)

    def start(self) -> None:
        """Begins to look."""
        self._thread.start()

    def stop(self) -> None:
        """Ends it; waits a while for a look that is under way."""
        self._stopped.set()
        self._thread.join(_LAST_LOOK_S)
        self._loader.stop()

    def _run(self) -> None:
        if self._stopped.wait(self._interval_s):
            return
        self._loader.start()
        for live in self._manifests:
            live.load = self._loader.load
        while not self._stopped.wait(self._interval_s):
            for live in self._manifests:
                live.look()
