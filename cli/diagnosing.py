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
    from selector.binding import Selector
    from selector.fields import Vocabulary
    from selector.serving.diagnosis.answer import Diagnosis
    from selector.serving.logs.log import Log
    from selector.values import Device

__all__ = ["explain_log"]

_MOST_ANSWERS = 12
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

    for name, why in _REFUSED.items():
        if parameters.get(name):
            raise UsageError(f"--{name.replace('_', '-')} does not go with --log: {why}")
    flags = Flags.of(parameters)
    device = named_device(flags.arch, flags.gpu)  # none: the log may say it
    selector = Selector.load(flags.manifest or ENGINE, overlays=flags.overlay)
    log = _read(file, selector.manifest.vocabulary)
    own = _of_its_version(log, selector)
    other = selector if own is not None else None
    selector = own or selector
    found = _diagnose(log, selector, other, device, flags)
    if form is Format.JSON:
        show_json(diagnosis_json(found, selector))
    else:
        show(diagnosis_lines(found, selector, places(selector.manifest.ref.file)))
    if (left := len(log.errors) - len(found)) > 0:
        note(f"attnsel: {left} more different errors in the log; the first {len(found)} are shown")
    if not all(one.runs for one in found):
        raise typer.Exit(Exit.NO_BACKEND)


def _of_its_version(log: Log, selector: Selector) -> Selector | None:
    """The selector of the log's own version, if a manifest of it is known here."""
    from selector.binding import Selector
    from selector.errors import AttnselError
    from selector.serving.diagnosis.between import are_same, known_versions

    if log.version is None or are_same(log.version.text, selector.manifest.ref.version):
        return None
    for version, path in known_versions(selector.manifest).items():
        if are_same(log.version.text, version):
            try:
                return Selector.load(path)
            except (AttnselError, OSError) as error:
                note(f"attnsel: {path} is of the log's version but not used: {str(error)[:200]}")
    return None


def _diagnose(
    log: Log, selector: Selector, other: Selector | None, device: Device | None, flags: Flags
) -> list[Diagnosis]:
    from selector.serving.diagnosis.answer import Given, diagnose

    if not log.errors:
        raise UsageError(_nothing_found(log))
    settings = read_settings(selector.manifest, flags.settings)
    given = Given(settings.fields, settings.facts)
    return [diagnose(e, log, selector, device, given, other) for e in log.errors[:_MOST_ANSWERS]]


def _nothing_found(log: Log) -> str:
    looked = (
        'looked for "No valid attention backend found for ...", "No valid MLA prefill backend '
        'found ...", "Selected backend ... is not valid for this configuration" and what backends '
        "of vLLM say by themselves"
    )
    if not log.unread:
        return f"no attention error in the log: {looked}"
    first, more = log.unread[0], len(log.unread) - 1
    others = f" (and {more} more)" if more else ""
    return f"line {first.line:,} is not understood{others}: {first.text}; {looked}"


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
