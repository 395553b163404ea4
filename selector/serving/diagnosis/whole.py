"""A whole log → an answer for each different attention error in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from selector.binding import Selector
from selector.errors import AttnselError
from selector.manifest import Manifest
from selector.serving.diagnosis.answer import Diagnosis, Given, diagnose
from selector.serving.diagnosis.between import are_same, known_versions
from selector.serving.logs.log import Log
from selector.values import Device

__all__ = ["Diagnosed", "NothingFoundError", "diagnose_log"]

_MOST_ANSWERS = 12


class NothingFoundError(AttnselError, ValueError):
    """A log holds no attention error."""

    code = "NOTHING_FOUND"


class Diagnosed(msgspec.Struct, frozen=True):
    """What is to be said of a log.

    Attributes:
        diagnoses: one for each different error, up to a number.
        selector: gave the answers: that of the log's own version, if it is known here.
        left: how many different errors have no answer here.
    """

    diagnoses: Sequence[Diagnosis]
    selector: Selector
    left: int


def diagnose_log(
    log: Log,
    selector: Selector,
    device: Device | None,
    given: Callable[[Manifest], Given],
    note: Callable[[str], None] = lambda _: None,
) -> Diagnosed:
    """The answers to a log's errors.

    Args:
        log: as it was read.
        selector: answers where no manifest of the log's own version is known.
        device: where it ran; ``None``: the log may say it.
        given: reads what comes before what the log says, in the words of the manifest that
            answers.
        note: is told what else is to be known.

    Raises:
        NothingFoundError: the log has no such error.
    """
    own = _of_its_version(log, selector, note)
    if not log.errors:
        raise NothingFoundError(_nothing_found(log))
    answers, other = (selector, None) if own is None else (own, selector)
    asked = log.errors[:_MOST_ANSWERS]
    said = given(answers.manifest)
    found = [diagnose(error, log, answers, device, said, other) for error in asked]
    return Diagnosed(found, answers, len(log.errors) - len(found))


def _of_its_version(log: Log, selector: Selector, note: Callable[[str], None]) -> Selector | None:
    """The selector of the log's own version, if a manifest of it is known here."""
    if log.version is None or are_same(log.version.text, selector.manifest.ref.version):
        return None
    for version, path in known_versions(selector.manifest).items():
        if are_same(log.version.text, version):
            try:
                return Selector.load(path)
            except (AttnselError, OSError) as error:
                note(f"{path} is of the log's version but not used: {str(error)[:200]}")
    return None


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
