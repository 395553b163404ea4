"""An engine's log → the attention errors in it, and what it says of the engine.

vLLM has two error texts: no backend is valid (``No valid attention backend found for …``), or the
one asked for is not (``Selected backend … is not valid for this configuration …``). All versions'
spellings are read, however the log wraps, prefixes, colours and repeats them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from selector.errors import AttnselError
from selector.fields import Vocabulary
from selector.serving.logs.drafts import MARK, Draft, has_mark
from selector.serving.logs.lines import Line, clean_line, number_lines
from selector.serving.logs.literal import until_closed
from selector.serving.logs.older import Older, is_near, read_older, strange
from selector.serving.logs.reasons import Reason
from selector.serving.logs.sentences import Reading, Words, read_error
from selector.serving.logs.startup import Startup, Stated, Told, is_of_startup

__all__ = ["EngineError", "Log", "Reason", "Stated", "Told", "read_log"]

_MOST_ERRORS = 256
"""So many different errors of a log are kept, the first ones."""

_MOST_STARTUP = 4096
"""So many lines that may say something of the start are looked at closely."""

_LONGEST_LINE = 1 << 16
"""Of a longer line, this much of its beginning is looked at for all but the engine's errors."""

_MOST_MARKS = 256
"""So many texts are begun in one line: the first and the last ones."""

_MOST_STRANGE = 5
_MOST_DRAFTS = 64
_LONGEST_SAMPLE = 8192
_LONGEST_BEFORE = 400


class EngineError(msgspec.Struct, frozen=True):
    """An attention error of a log.

    Attributes:
        kind: ``none``: no backend was valid; ``forced``: the one asked for was not; ``refused``:
            one backend refused by a sentence of its own, whoever chose it.
        platform: the engine's word for it, ``cuda``; ``None``: not said.
        backend: the backend asked for, of ``forced``; the one that refuses, of ``refused``.
        asked: fields of the vocabulary → their values, as :meth:`selector.fields.Field.read` gives
            them.
        unknown: names, or values, that the vocabulary does not have, as text.
        reasons: backend → why it was refused, in the log's order.
        prefill: whether an MLA prefill backend was looked for, beside the decode backend.
        complete: whether the error was read to its end.
        line: where it stands first.
        count: how often the log says it.
    """

    kind: str
    platform: str | None
    backend: str | None
    asked: Mapping[str, object]
    unknown: Mapping[str, str]
    reasons: Mapping[str, tuple[Reason, ...]]
    prefill: bool
    complete: bool
    line: int
    count: int = 1


class Log(msgspec.Struct, frozen=True):
    """What a log says of attention.

    Attributes:
        errors: each different error once, in the order of their lines.
        version: the engine's own.
        gpu: the product's name, else the compute capability; `selector.devices.find_device` knows
            most of them.
        capability: the compute capability, ``12.0``, where the log says it.
        model: name or path.
        settings: what its command line sets, by field: of the manifest, or of the deployment.
        shows_command: whether it shows a command line, or the arguments that were given.
        unread: what looks as if it mattered and was not understood, and why.
    """

    errors: tuple[EngineError, ...] = ()
    version: Told | None = None
    gpu: Told | None = None
    capability: Told | None = None
    model: Told | None = None
    settings: Mapping[str, Stated] = MappingProxyType({})
    shows_command: bool = False
    unread: tuple[Told, ...] = ()


def read_log(text: str | Iterable[str], vocabulary: Vocabulary | None = None) -> Log:
    """The attention errors of a vLLM log, and what it says of the engine; raises nothing.

    Reads line by line in time that grows with the log's length, and keeps little of it.

    Args:
        text: the whole log, or its lines (an open file).
        vocabulary: the manifest's, when it has fields of its own.
    """
    reader = _Reader(vocabulary or Vocabulary())
    for number, raw in number_lines(text):
        reader.read(number, raw)
    return reader.finish()


class _Kept(NamedTuple):
    error: EngineError
    sample: str


class _Reader:
    """Goes over the lines once: most are passed by, a few begin a draft of an error."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._words = Words(vocabulary)
        self._startup = Startup()
        self._before: deque[tuple[int, str]] = deque(maxlen=2)
        self._pending = False
        self._startup_pending = False
        self._startup_left = _MOST_STARTUP
        self._drafts: dict[str, Draft] = {}
        self._last = ""
        self._kept: dict[object, _Kept] = {}
        self._older: dict[str, tuple[Older, EngineError]] = {}
        self._strange: dict[str, Told] = {}

    def read(self, number: int, raw: str) -> None:
        """Reads one line."""
        if len(raw) < 2 and not (self._pending or self._drafts or self._startup.goes_on):
            self._startup_pending = False
            self._before.append((number, raw))
            return
        marked = has_mark(raw, (earlier for _, earlier in self._before))
        of_startup = self._startup_left > 0 and is_of_startup(raw)
        self._startup_left -= of_startup
        near = of_startup or self._startup_pending or self._startup.goes_on
        beside = is_near(raw)
        if marked or self._pending or self._drafts or near or beside:
            lines = clean_line(number, raw)
            if near:
                self._read_startup(lines)
            if beside:
                self._read_beside(lines, marked)
            for place, line in enumerate(lines):
                if marked or self._pending:
                    self._find_marks(line, lines[max(0, place - 2) : place])
                elif self._drafts:
                    self._go_on(line)
        self._pending, self._startup_pending = marked, of_startup
        self._before.append((number, raw))

    def finish(self) -> Log:
        """What was read, once all lines are."""
        for tag in list(self._drafts):
            self._close(tag, at_end=True)
        self._startup.close()
        return Log(
            errors=self._all(),
            version=self._startup.version,
            gpu=self._startup.gpu,
            capability=self._startup.capability,
            model=self._startup.model,
            settings=MappingProxyType(self._startup.settings),
            shows_command=self._startup.shows_command,
            unread=(*self._startup.unread, *self._strange.values()),
        )

    def _all(self) -> tuple[EngineError, ...]:
        """The errors; what one backend said without an exception counts where nothing else does."""
        beside = list(self._older.values())
        found = [*self._merged(), *(error for older, error in beside if older.raised)]
        found = found or [error for _, error in beside]
        return tuple(sorted(found, key=lambda error: error.line))[:_MOST_ERRORS]

    def _read_beside(self, lines: list[Line], marked: bool) -> None:
        """Reads what one backend says by itself, and keeps errors that nothing here reads."""
        for line in _shortened(lines):
            older = read_older(line.text)
            if older is None:
                said = None if marked else strange(line.text)
                if said is not None and len(self._strange) < _MOST_STRANGE:
                    self._strange.setdefault(said, Told(said, line.number))
            elif older.text in self._older:
                first, error = self._older[older.text]
                self._older[older.text] = first, _counted(error, 1)
            elif len(self._older) < _MOST_ERRORS:
                self._older[older.text] = older, _error_of(older, self._words, line.number)

    def _read_startup(self, lines: list[Line]) -> None:
        before = self._cleaned_before()[-1:] if self._startup_pending else []
        for line in _shortened(lines):
            same = [b for b in before if line.tag in ("", b.tag)]
            self._startup.read_line(line, same[0] if same else None)
            before = [line]

    def _cleaned_before(self) -> list[Line]:
        return [clean_line(number, raw)[-1] for number, raw in self._before]

    def _find_marks(self, line: Line, held: list[Line]) -> None:
        """Begins a draft at each mark that ends in this line; what is before goes on with one."""
        window = [*([] if len(held) > 1 else self._cleaned_before()), *held][-2:]
        window = [
            b._replace(text=b.text[-_LONGEST_BEFORE:]) for b in window if line.tag in ("", b.tag)
        ]
        head = "".join(f"{b.text}\n" for b in window)
        marks = [m for m in MARK.finditer(head + line.text) if m.end() > len(head)]
        if not marks:
            self._go_on(line)
            return
        marks = marks[: _MOST_MARKS // 2] + marks[_MOST_MARKS // 2 :][-_MOST_MARKS // 2 :]
        if marks[0].start() > len(head):
            self._go_on(line._replace(text=line.text[: marks[0].start() - len(head)], after=True))
        for place, mark in enumerate(marks):
            stop = marks[place + 1].start() if place + 1 < len(marks) else None
            self._begin([*window, line], mark.start(), stop, mark.lastgroup or "")

    def _begin(self, window: list[Line], start: int, stop: int | None, kind: str) -> None:
        """Begins a draft with the part of the window between two places."""
        pieces: list[Line] = []
        offset, lead = 0, ""
        for line in window:
            first, last = start - offset, len(line.text) if stop is None else stop - offset
            offset += len(line.text) + 1
            if first >= len(line.text) or last <= 0:
                continue
            if not pieces:
                lead = line.text[max(first - _LONGEST_BEFORE, 0) : max(first, 0)]
            part = line.text[max(first, 0) : last]
            pieces.append(line._replace(text=part, before=line.before and first <= 0))
        tag = window[-1].tag
        self._close(tag)
        if len(self._drafts) >= _MOST_DRAFTS:
            self._close(next(iter(self._drafts)))
        draft = self._drafts[tag] = Draft(kind, pieces[0], lead)
        self._last = tag
        for piece in pieces:
            if draft.add(piece):
                self._close(tag)
                return

    def _go_on(self, line: Line) -> None:
        """Gives a line to the draft of the process that wrote it."""
        for tag in [tag for tag, draft in self._drafts.items() if draft.is_old(line.number)]:
            self._close(tag)
        tag = line.tag or self._last
        draft = self._drafts.get(tag)
        if draft is None and not line.tag and self._drafts:
            tag, draft = next(reversed(self._drafts.items()))
        if draft is not None and draft.add(line):
            self._close(tag)

    def _close(self, tag: str, at_end: bool = False) -> None:
        draft = self._drafts.pop(tag, None)
        if draft is None:
            return
        text = draft.text(self._words.are_known)
        if draft.kind == "args":
            opened = min((at for at in map(text.find, "{(") if at >= 0), default=len(text))
            self._startup.read_arguments(until_closed(text[opened + 1 :])[0], draft.line)
            return
        reading = read_error(draft.kind, text, self._words, draft.is_raised or at_end)
        if reading is not None:
            self._keep(reading, draft, text)

    def _keep(self, reading: Reading, draft: Draft, text: str) -> None:
        error = EngineError(
            kind="forced" if draft.kind == "forced" else "none",
            platform=reading.platform,
            backend=reading.backend,
            asked=MappingProxyType(reading.asked),
            unknown=MappingProxyType(reading.unknown),
            reasons=MappingProxyType(reading.reasons),
            prefill=draft.kind == "prefill",
            complete=draft.is_closed,
            line=draft.line,
        )
        key = (draft.kind, draft.is_closed, repr(reading))
        old = self._kept.get(key)
        if old is not None:
            self._kept[key] = old._replace(error=_counted(old.error, 1))
        elif len(self._kept) < _MOST_ERRORS:
            self._kept[key] = _Kept(error, "".join(text.split())[:_LONGEST_SAMPLE])

    def _merged(self) -> tuple[EngineError, ...]:
        """The errors; one that is cut off counts for the whole one that begins like it."""
        whole = {key: kept for key, kept in self._kept.items() if kept.error.complete}
        cut = []
        for kept in self._kept.values():
            if kept.error.complete:
                continue
            twin = next((k for k, w in whole.items() if w.sample.startswith(kept.sample)), None)
            if twin is None:
                cut.append(kept.error)
            else:
                first = min(whole[twin].error.line, kept.error.line)
                counted = _counted(whole[twin].error, kept.error.count)
                error = msgspec.structs.replace(counted, line=first)
                whole[twin] = whole[twin]._replace(error=error)
        found = [*(kept.error for kept in whole.values()), *cut]
        return tuple(sorted(found, key=lambda error: error.line))


def _error_of(older: Older, words: Words, line: int) -> EngineError:
    """The refusal by one backend as an error."""
    asked: dict[str, object] = {}
    for name, value in older.asked.items():
        field = words.fields.get(name)
        if field is not None:
            with suppress(AttnselError):
                asked[field.name] = field.read(value)
    reason = Reason(older.text, older.code)
    return EngineError(
        kind="forced" if older.named else "refused",
        platform=None,
        backend=older.backend,
        asked=MappingProxyType(asked),
        unknown=MappingProxyType({}),
        reasons=MappingProxyType({older.backend: (reason,)} if older.backend else {}),
        prefill=False,
        complete=True,
        line=line,
    )


def _counted(error: EngineError, more: int) -> EngineError:
    return msgspec.structs.replace(error, count=error.count + more)


def _shortened(lines: Iterable[Line]) -> list[Line]:
    """The beginnings of lines that are too long."""
    return [line._replace(text=line.text[:_LONGEST_LINE]) for line in lines]
