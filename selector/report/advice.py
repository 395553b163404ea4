"""What to do about an engine's error: the answer to it first, then what else would help."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from selector.changes.case import Case, choice_of
from selector.changes.search import Change, Kind, Remedy
from selector.fields import UNSET, close_matches
from selector.manifest import Manifest
from selector.report.failure import change_words, makes_words, others_words, runs_words
from selector.report.refusals import no_platform
from selector.report.wording import capabilities_words, listed
from selector.serving.commands.flags import table
from selector.serving.diagnosis.answer import Diagnosis
from selector.serving.diagnosis.between import public
from selector.values import Phase

__all__ = ["advice"]

_IF_IT_FITS = ", if the rest of the layer fits, which the log does not say"
_NO_CACHE = (None, UNSET, "auto")
_TRIED = {
    "kv_cache_dtype": "--kv-cache-dtype {dtype}",
    "block_size": "no --block-size",
    "dtype": "another --dtype",
}
"""Settings that a backend may be refused for alone, and what to give instead."""


def advice(diagnosis: Diagnosis, manifest: Manifest) -> list[str]:
    """What to do, the nearest first; never empty."""
    if diagnosis.contradiction is not None:
        return [f"no answer: {diagnosis.contradiction}"]
    if diagnosis.case is None:
        return _unplaced(diagnosis)
    nowhere = no_platform(diagnosis.case)
    if nowhere is not None:
        version = diagnosis.versions.manifest
        return [f"the manifest of vLLM {version} cannot answer: {nowhere}"]
    free = [_unforced(diagnosis, diagnosis.unforced)] if diagnosis.unforced else []
    newer = [*_other_version(diagnosis)]
    unnamed = [*_no_such_backend(diagnosis, manifest)]
    asides = [*_asides(diagnosis, manifest)]
    if diagnosis.runs:
        runs = [_runs(diagnosis, diagnosis.case)]
        first = [*free, *runs] if _unsaid(diagnosis) else [*runs, *free]
        return [*unnamed, *first, *newer, *asides]
    assumed = diagnosis.case.assumed
    words = [*unnamed, *free, *(_remedy(r, assumed, manifest) for r in diagnosis.remedies), *newer]
    where = capabilities_words(", ".join(diagnosis.runs_on))
    elsewhere = [f"on another GPU: as it is, it runs on {where}"] if where else []
    of = "MLA prefill" if diagnosis.error.prefill else "it"
    words = [*words, *asides] or [f"no setting that was tried helps {of}"]
    return [*words, *_next_failure(diagnosis), *elsewhere]


def _unsaid(diagnosis: Diagnosis) -> list[str]:
    """Fields that the engine refused and whose values the log does not say."""
    codes = [code for one in diagnosis.candidates for code in one.undecided]
    names = dict.fromkeys(code.lower() for code in codes if code.isupper())
    return [name for name in names if name not in diagnosis.question.layer.fields]


def _no_such_backend(diagnosis: Diagnosis, manifest: Manifest) -> Iterator[str]:
    """Yields that what was forced is no backend of the version."""
    name = diagnosis.error.backend
    if diagnosis.error.kind == "forced" and name is not None and name not in manifest.entries:
        near = close_matches(name, manifest.entries, 0.7)
        hint = f"; did you mean {near[0]}?" if near else ""
        yield f"{name} is no backend of vLLM {diagnosis.versions.manifest}{hint}"


def _unplaced(diagnosis: Diagnosis) -> list[str]:
    """What to say without a device: that one is needed, and where it would run."""
    named = "the log names no GPU"
    if diagnosis.gpu is not None:
        named = f'the log\'s GPU "{diagnosis.gpu.text}" is not one known here'
    where = capabilities_words(", ".join(diagnosis.runs_on))
    on = f"vLLM {diagnosis.versions.manifest} runs it on {where}" if where else "it runs nowhere"
    fits = capabilities_words(", ".join(diagnosis.fits))
    theirs = f"; its reasons are those of {fits}" if fits else ""
    return [f'say which GPU, with --gpu "RTX PRO 6000" or --arch 12.0: {named}{theirs}; {on}']


def _unforced(diagnosis: Diagnosis, chosen: Mapping[Phase, str]) -> str:
    return f"not forcing {diagnosis.error.backend}: {runs_words(chosen)}"


def _runs(diagnosis: Diagnosis, case: Case) -> str:
    """That the manifest has an answer although the engine had none."""
    versions = diagnosis.versions
    choices = {p: choice_of(case.resolution, p) for p in case.resolution.needed}
    does = runs_words({phase: str(choice.backend) for phase, choice in choices.items()})
    if unsaid := _unsaid(diagnosis):
        verb = "fits" if len(unsaid) == 1 else "fit"
        does += (
            f", if {listed(unsaid, 'and')} {verb}: say with --set {unsaid[0]}=…, the log does not"
        )
    elif any(choice.conditions for choice in choices.values()):
        does += _IF_IT_FITS
    if versions.differ is False:
        return f"the manifest of vLLM {versions.manifest} refuses nothing here: {does}"
    if versions.engine is not None and versions.differ:
        step = f"vLLM {public(versions.engine.text)} → {versions.manifest}"
        return f"{step}, which has an answer as it is: {does}"
    return f"vLLM {versions.manifest} has an answer as it is: {does}"


def _other_version(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields whether the other version would start."""
    other = diagnosis.other
    if other is None:
        return
    step = f"vLLM {diagnosis.versions.manifest} → {other.manifest.version}"
    if other.runs:
        fits = "" if other.sure else _IF_IT_FITS
        yield f"{step}, which has an answer as it is: {runs_words(other.chosen)}{fits}"
    elif other.contradiction is not None:
        yield f"{step} has no such layer: {other.contradiction}"
    elif not diagnosis.runs:
        yield f"{step} does not help: it has no backend either"


def _next_failure(diagnosis: Diagnosis) -> Iterator[str]:
    """Yields that the other phase of MLA would fail after the one that the error is about."""
    case = diagnosis.case
    if diagnosis.error.prefill and case and Phase.DECODE in case.resolution.missing:
        yield "the error is about MLA prefill; decode has no backend either, and would fail next"


def _asides(diagnosis: Diagnosis, manifest: Manifest) -> Iterator[str]:
    """Yields what the log itself hints at, beyond what the manifest answers."""
    layer = diagnosis.question.layer
    cache = layer.get("kv_cache_dtype")
    if layer.get("attn_type") in ("encoder", "encoder_only") and cache not in _NO_CACHE:
        yield (
            f"an encoder layer keeps no KV cache, so kv_cache_dtype {cache} says nothing to it: "
            "leave --kv-cache-dtype away where that is refused"
        )
    entry = manifest.entries.get(diagnosis.error.backend or "")
    forced = entry if diagnosis.error.kind == "forced" else None
    if forced is not None and forced.mla and layer.get("mla") is False:
        yield (
            f"{forced.name} serves MLA only and this layer has none: is it the drafter's? "
            "--speculative-config.attention_backend gives it its own"
        )
    for one in diagnosis.candidates:
        fields = [str(reason.code).lower() for reason in one.said]
        if not one.known and fields and set(fields) <= set(_TRIED):
            values = listed([f"{name} {layer.get(name)}" for name in dict.fromkeys(fields)], "and")
            flags = dict.fromkeys(_TRIED[name].format(dtype=layer.get("dtype")) for name in fields)
            yield (
                f"{one.backend}, which the manifest lacks, was refused for {values} alone: "
                f"try {listed(list(flags), 'and')}"
            )


# -- changes -------------------------------------------------------------------------------------


def _remedy(found: Remedy, assumed: frozenset[str], manifest: Manifest) -> str:
    made = " and ".join(_change(c, assumed, manifest) for c in found.changes)
    return f"{made} {makes_words(found)}"


def _change(change: Change, assumed: frozenset[str], manifest: Manifest) -> str:
    """A change as an operator makes it: the flag that sets a field, the software a fact is of."""
    if change.kind is Kind.INSTALL:
        return _install(change, manifest)
    flag = table().flag_of(change.field) if change.kind is Kind.SETTING else None
    if flag is None:
        return change_words(change, assumed)
    if change.after == UNSET:
        return f"no {flag.name} (now {change.before})"
    others = others_words([value for value in change.others if value != UNSET])
    return f"{flag.name} {change.after}{others} instead of {change.before}"


def _install(change: Change, manifest: Manifest) -> str:
    if manifest.facts.get(change.field) != "boolean":
        return f"installing {change.field} {change.after} (now {change.before})"
    told = manifest.fact_words.get(change.field, "").rstrip(".")
    if not told:
        return f"software with which {change.field} is true"
    first, _, rest = told.partition(" ")
    told = f"{first.lower()} {rest}" if first in ("A", "An", "The") else told
    return f"installing software so that {told} ({change.field} is false now)"
