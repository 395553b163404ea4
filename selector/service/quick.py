"""Single questions, answered quickly: what a body says beside its lengths is read once.

Bodies that differ in nothing but the lengths of their request are the same bytes before and after
them. Those bytes are read strictly the first time; then they lead to what was bound.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from selector.live import LiveManifests, Snapshot
from selector.plan.memo import remember
from selector.service.answers import Asked
from selector.service.bodies import Lengths, Question, read_body
from selector.service.calls import Call

__all__ = ["Quick"]

_MOST_KNOWN = 1 << 10
_LONGEST_KNOWN = 1 << 14
_MOST_TEXT = 1 << 27
"""Bytes of text that are kept, before all of it makes room."""

_KEY = b'"request"'
_NAMES = tuple(b'"%s"' % field.encode() for field in Lengths.__struct_fields__)
_DECODER = msgspec.json.Decoder(Lengths)

_Cut = tuple[tuple[bytes, bytes], bytes]
"""What stands before and after a request's lengths, and these."""


class _Outer(msgspec.Struct):
    request: msgspec.Raw | UnsetType = UNSET


class Quick:
    """What was asked before of the manifests that are served."""

    def __init__(self, live: LiveManifests) -> None:
        self._live = live
        self._known: dict[tuple[bytes, bytes], Asked] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._text = 0

    def answer(self, call: Call, data: bytes) -> bytes:
        """The answer to a body.

        Raises:
            AttnselError: something said is unknown, refused or contradictory.
            Problem: it cannot be read.
        """
        cut = _cut(data)
        asked = None if cut is None else self._known.get(cut[0])
        if cut is not None and asked is not None:
            if self._live.current(asked.snapshot.name) is not asked.snapshot:
                self._forget()  # a manifest changed
            elif (lengths := _read(cut[1])) is not None:
                call.snapshot = asked.snapshot
                return asked.text(lengths.request())
        body = read_body(data, Question, call.limits.depth)
        call.snapshot = self._live.current(body.manifest)
        asked = Asked(call.snapshot, body, self._spend)
        text = asked.text(body.request.request())
        if cut is not None and len(data) <= _LONGEST_KNOWN and _is_whole(data, cut[1]):
            self._keep(cut[0], asked)
        return text

    def _keep(self, key: tuple[bytes, bytes], asked: Asked) -> None:
        """Keeps what was asked; all of it belongs to one snapshot of each manifest."""
        if self._snapshots.get(asked.snapshot.name) is not asked.snapshot:
            self._forget()
            self._snapshots[asked.snapshot.name] = asked.snapshot
        remember(self._known, key, asked, _MOST_KNOWN)

    def _spend(self, size: int) -> None:
        self._text += size
        if self._text > _MOST_TEXT:
            self._forget()

    def _forget(self) -> None:
        self._known.clear()
        self._snapshots.clear()
        self._text = 0


def _cut(data: bytes) -> _Cut | None:
    """A body cut where its request stands, if it looks as most do."""
    start = data.rfind(_KEY) + len(_KEY)
    end = data.find(b"}", start) + 1
    if start < len(_KEY) or not end:
        return None
    between, colon, lengths = data[start:end].partition(b":")
    if not colon or between.strip():
        return None
    return (data[:start], data[end:]), lengths


def _read(lengths: bytes) -> Lengths | None:
    """Lengths, if nothing is wrong with them; what is wrong is said by who reads the whole."""
    if b"\\" in lengths or any(lengths.count(name) > 1 for name in _NAMES):
        return None
    try:
        return _DECODER.decode(lengths)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _is_whole(data: bytes, lengths: bytes) -> bool:
    """Whether what was cut out of a body is its request, and can be nothing else."""
    if b"\\" in data or data.count(_KEY) != 1:
        return False  # a quote may then stand within a text, or the key within something else
    request = msgspec.json.decode(data, type=_Outer).request
    return isinstance(request, msgspec.Raw) and bytes(request) == lengths.strip()
