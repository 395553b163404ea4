"""``attnsel explain --log``: an engine's log → an answer for each attention error in it."""

from __future__ import annotations

import codecs
import io
import sys
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import typer

from cli.asking import Flags, UsageError, named_device, read_settings
from cli.exits import Exit
from cli.options import ENGINE, Format
from cli.terminal import note, places, show, show_json

if TYPE_CHECKING:
    from selector.fields import Vocabulary
    from selector.manifest import Manifest
    from selector.serving.logs.log import Log

__all__ = ["explain_log"]

_CHUNK = 1 << 16
_REFUSED = {
    "model": "the error says what layer it is about; --set changes it",
    "query_len": "the engine chooses before there is a request",
    "seq_len": "the engine chooses before there is a request",
    "backend": "the log says what was forced",
    "prefill_backend": "the log says what was forced",
    "decode_backend": "the log says what was forced",
    "deny": "an engine denies no backend",
    "facts": "this machine is not that of the log; say facts with --set",
    "as_claimed": "both are shown",
    "closed_world": "what the log does not say stays unknown",
}
"""Options that do not go with a log, and why."""


def explain_log(file: str, parameters: Mapping[str, Any], form: Format) -> None:
    """Prints an answer for each different attention error of a log.

    Raises:
        AttnselError: an option does not go with a log, or the log has no such error.
        OSError: the log cannot be read.
        typer.Exit: nothing runs one of the layers.
    """
    from selector.binding import Selector
    from selector.report.diagnosis import diagnosis_json, diagnosis_lines
    from selector.serving.diagnosis.answer import Given
    from selector.serving.diagnosis.whole import diagnose_log

    for name, why in _REFUSED.items():
        if parameters.get(name):
            raise UsageError(f"--{name.replace('_', '-')} does not go with --log: {why}")
    flags = Flags.of(parameters)
    device = named_device(flags.arch, flags.gpu)  # none: the log may say it
    selector = Selector.load(flags.manifest or ENGINE, overlays=flags.overlay)
    log = _read(file, selector.manifest.vocabulary)

    def given(manifest: Manifest) -> Given:
        settings = read_settings(manifest, flags.settings)
        return Given(settings.fields, settings.facts)

    diagnosed = diagnose_log(log, selector, device, given, lambda words: note(f"attnsel: {words}"))
    found, selector = diagnosed.diagnoses, diagnosed.selector
    if form is Format.JSON:
        show_json(diagnosis_json(found, selector))
    else:
        show(diagnosis_lines(found, selector, places(selector.manifest.ref.file)))
    if diagnosed.left:
        shown = f"the first {len(found)} are shown"
        note(f"attnsel: {diagnosed.left} more different errors in the log; {shown}")
    if not all(one.runs for one in found):
        raise typer.Exit(Exit.NO_BACKEND)


def _read(file: str, vocabulary: Vocabulary) -> Log:
    """What the log says; bytes that are no text are passed by."""
    from selector.serving.logs.log import read_log

    if file == "-":
        return read_log(_lines(cast("io.BufferedIOBase", sys.stdin.buffer)), vocabulary)
    with open(file, "rb") as stream:
        return read_log(_lines(stream), vocabulary)


def _lines(stream: io.BufferedIOBase) -> Iterator[str]:
    """Yields whole lines of a log that may be compressed, or UTF-16 as some shells write files."""
    chunks = iter(partial(stream.read1, _CHUNK), b"")
    first = next(chunks, b"")
    chunks = chain([first], chunks)
    if first.startswith(b"\x1f\x8b"):
        chunks = _unpacked(chunks)
        first = next(chunks, b"")
        chunks = chain([first], chunks)
    wide = first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    begun: list[str] = []  # of a line whose end is not there yet
    for text in codecs.iterdecode(chunks, "utf-16" if wide else "utf-8-sig", "replace"):
        lines, end, rest = text.rpartition("\n")
        if end:
            yield "".join((*begun, lines))
            begun.clear()
        begun.append(rest)
    yield "".join(begun)


def _unpacked(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields what gzip packed, piece by piece."""
    unpack = zlib.decompressobj(wbits=31)
    try:
        for chunk in chunks:
            left = chunk
            while left:
                if unpack.eof:  # another file follows
                    unpack = zlib.decompressobj(wbits=31)
                yield unpack.decompress(left, _CHUNK)
                left = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
    except zlib.error as error:
        raise UsageError(f"the log is no whole gzip file: {error}") from None
    if not unpack.eof:
        raise UsageError("the log is no whole gzip file: its end is missing")
