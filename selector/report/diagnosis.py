"""An engine's error in words: what was asked, what would help, who refused it and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from selector.binding import Selector
from selector.changes.case import choice_of
from selector.domains import Domain, Value
from selector.fields import show, show_domain
from selector.manifest import Manifest
from selector.report.data import case_json, to_json
from selector.report.failure import remedy_words, runs_words
from selector.report.refusals import Refusals, no_platform
from selector.report.text import (
    BLANK,
    Line,
    Part,
    bad,
    faint,
    good,
    grid,
    joined,
    line,
    strong,
    warn,
)
from selector.report.wording import (
    Places,
    capabilities_words,
    conditions_words,
    device_words,
    kind_words,
    listed,
    manifest_words,
    with_separators,
)
from selector.serving.comparison import Compared
from selector.serving.diagnosis import Diagnosis
from selector.serving.log import EngineError
from selector.serving.provenance import Provenance, Source
from selector.serving.question import Witness
from selector.values import Outcome

__all__ = ["diagnosis_json", "diagnosis_lines"]

_FIRST = ("head_size", "dtype", "kv_cache_dtype")
_FLAGS = {"backend": "--attention-backend"}
_READ_IN_PARTS = ("mla_dimensions",)
_MOST_UNKNOWN = 8
_LONGEST = 160


def diagnosis_lines(
    diagnoses: Sequence[Diagnosis], selector: Selector, places: Places
) -> list[Line]:
    """One block for each error of the log, in the order of their lines."""
    lines: list[Line] = []
    for diagnosis in diagnoses:
        lines += [*([BLANK] if lines else []), *_block(diagnosis, selector.manifest, places)]
    return lines


def _block(diagnosis: Diagnosis, manifest: Manifest, places: Places) -> list[Line]:
    refusals = Refusals(manifest, places)
    lines = [
        line(_heading(diagnosis), "    ", faint(manifest_words(manifest.ref, places)), hang=4),
        line("  ", _layer(diagnosis, manifest), hang=4),
        *_remarks(diagnosis.error),
        BLANK,
        *_help(diagnosis),
        *_version(diagnosis),
    ]
    if diagnosis.candidates:
        rows = [_candidate(c, diagnosis, refusals) for c in diagnosis.candidates]
        lines += [BLANK, line("  ", strong("candidates"), "  ", refusals.legend)]
        lines += grid(rows, indent=4, gap=2)
    if diagnosis.provenance:
        told: list[list[Part]] = [
            [f"{p.field} {p.value}", _whence(p)] for p in diagnosis.provenance
        ]
        lines += [BLANK, line("  ", strong("where values came from")), *grid(told, 4, 2)]
    return lines


# -- what was asked ------------------------------------------------------------------------------


def _heading(diagnosis: Diagnosis) -> Line:
    error, engine = diagnosis.error, diagnosis.versions.engine
    what = "no valid MLA prefill backend" if error.prefill else "no valid attention backend"
    if error.backend is not None:
        what = f"{error.backend} was asked for and is not valid"
    device = "GPU unknown" if diagnosis.device is None else device_words(diagnosis.device)
    version = "version unknown" if engine is None else f"vLLM {engine.text}"
    parts: list[Part] = [strong(what), device, version, f"line {error.line:,}"]
    if error.count > 1:
        parts.append(f"said {error.count:,} times")
    return joined(parts)


def _layer(diagnosis: Diagnosis, manifest: Manifest) -> Line:
    """The layer's values; what the error itself does not print is said to be so."""
    question, fields = diagnosis.question, manifest.vocabulary.fields
    layer = question.layer
    mla, sparse = layer.get("mla"), layer.get("sparse")
    parts: list[Part] = []
    if mla is not None or sparse is not None:
        parts.append(kind_words(mla is True, sparse is True))
    names = [n for n in fields if n in layer.fields and n not in (*_FIRST, "mla", "sparse")]
    for name in (*_FIRST, *names):
        value = layer.get(name)
        if value is None:
            parts.append(f"{name} unknown")
        elif name in _FIRST or not _says_nothing(name, value, manifest):
            parts.append(line(_value(name, value, manifest), faint(_witness(diagnosis, name))))
    return joined(parts)


def _says_nothing(name: str, value: Value | Domain, manifest: Manifest) -> bool:
    field = manifest.vocabulary.fields[name]
    return value == field.off or value in field.symbols or (name, value) == ("attn_type", "decoder")


def _value(name: str, value: Value | Domain, manifest: Manifest) -> str:
    field = manifest.vocabulary.fields[name]
    if value is True:
        return name
    shown = show_domain(field, value) if isinstance(value, Domain) else show(field, value)
    return shown if name == "dtype" else with_separators(f"{name} {shown}")


def _witness(diagnosis: Diagnosis, name: str) -> str:
    return {
        Witness.REASON: " (from the reason)",
        Witness.SETTING: " (from the command line)",
        Witness.GIVEN: " (given)",
        Witness.ERROR: "",
    }[diagnosis.question.told.get(name, Witness.ERROR)]


def _remarks(error: EngineError) -> Iterator[Line]:
    unknown = {n: v for n, v in error.unknown.items() if n not in _READ_IN_PARTS}
    if unknown:
        names = [f"{n}={v}"[:80] for n, v in list(unknown.items())[:_MOST_UNKNOWN]]
        yield line("  ", warn("not read"), "  ", f"not known here: {', '.join(names)}", hang=12)
    if not error.complete:
        yield line("  ", warn("cut off"), "  the log breaks off inside this error", hang=11)


# -- what would help -----------------------------------------------------------------------------


def _help(diagnosis: Diagnosis) -> Iterator[Line]:
    """Yields the smallest change that works, then others."""
    if diagnosis.contradiction is not None:
        yield line("  ", bad("no answer"), "  ", diagnosis.contradiction, hang=13)
        return
    words = _help_words(diagnosis)
    title = good("nearest") if diagnosis.runs or diagnosis.remedies else bad("nearest")
    for place, text in enumerate(words):
        start: Part = title if place == 0 else faint("or     ")
        yield line("  ", start, "  ", text, hang=11)


def _help_words(diagnosis: Diagnosis) -> list[str]:
    where = capabilities_words(", ".join(diagnosis.runs_on))
    if diagnosis.case is None:
        on = (
            f"vLLM {diagnosis.versions.manifest} runs it on {where}" if where else "it runs nowhere"
        )
        named = "the log names no GPU"
        if diagnosis.gpu is not None:
            named = f'the log\'s GPU "{diagnosis.gpu.text}" is not one known here'
        say = f'{named}; say it with --gpu "RTX PRO 6000" or --arch 12.0'
        fits = capabilities_words(", ".join(diagnosis.fits))
        return [f"{say}; {on}", *([f"the log's reasons are those of {fits}"] if fits else [])]
    free = [f"not forced, {runs_words(diagnosis.unforced)}"] if diagnosis.unforced else []
    if diagnosis.runs:
        return [_runs(diagnosis), *free]
    assumed = diagnosis.case.assumed
    words = [*free, *(remedy_words(r, assumed) for r in diagnosis.remedies)]
    if not words:
        words = [no_platform(diagnosis.case) or "no setting that was tried helps"]
    return [*words, *([f"as it is, it runs on {where}"] if where else [])]


def _runs(diagnosis: Diagnosis) -> str:
    """That the manifest has an answer although the engine had none."""
    versions, case = diagnosis.versions, diagnosis.case
    does = "has an answer"
    if case is not None:
        choices = {p: choice_of(case.resolution, p) for p in case.resolution.needed}
        chosen = {phase: str(choice.backend) for phase, choice in choices.items()}
        does = f"has an answer as it is: {runs_words(chosen)}"
        if any(choice.conditions for choice in choices.values()):
            does += ", if the rest of the layer fits, which the log does not say"
    if versions.engine is not None and versions.differ:
        return f"vLLM {versions.engine.text} → {versions.manifest}, which {does}"
    return f"vLLM {versions.manifest} {does}"


def _version(diagnosis: Diagnosis) -> Iterator[Line]:
    """Yields whether the manifest is of another version than the log."""
    versions = diagnosis.versions
    if versions.differ is False and not diagnosis.differs:
        return
    known = listed(versions.known, "and") or "none"
    if versions.engine is None:
        words = f"the log does not say its version; the manifest is of {versions.manifest}"
    elif versions.differ:
        words = f"the log is of {versions.engine.text}, the manifest of {versions.manifest}"
        if versions.engine.text in versions.known:
            words += f"; ask again with --manifest vllm-{versions.engine.text}"
        else:
            words += f" (known here: {known})"
    else:
        words = "the log's reasons are not those of its version: was something changed or added?"
    if diagnosis.only_other_version:
        theirs = versions.engine.text if versions.engine else "its version"
        words += f"; where reasons differ, only a manifest of {theirs} could tell"
    yield line("  ", warn("version"), "  ", words, hang=11)


# -- who refused it ------------------------------------------------------------------------------


def _candidate(one: Compared, diagnosis: Diagnosis, refusals: Refusals) -> list[Part]:
    """A backend, and why it was refused; what only one of the two says is marked."""
    parts: list[Part] = []
    if diagnosis.claimed is None or one.outcome is None:
        parts = [_sentence(reason.text) for reason in one.said]
        if not one.known:
            parts.append(warn("not in the manifest"))
        return [one.backend, joined(parts or [faint("no reason given")])]
    case = diagnosis.claimed
    for rejection in one.rejections:
        mark = warn("only in the manifest: ") if rejection.code in one.only_manifest else ""
        parts += [line(mark, words) for words in refusals.reasons(case, [rejection])]
    if not one.rejections:
        parts.append(_standing(one))
    for rejection in one.later:
        why = next(iter(refusals.reasons(case, [rejection])))
        parts.append(line(warn("when it is constructed: "), why))
    for reason in one.said:
        if (reason.code or reason.text) in one.only_log:
            parts.append(line(warn("only in the log: "), _sentence(reason.text)))
        elif (reason.code or reason.text) in one.undecided:
            parts.append(line(_sentence(reason.text), faint(" (its value is unknown here)")))
    return [one.backend, joined(parts)]


def _sentence(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _standing(one: Compared) -> Part:
    if one.conditions:
        return f"eligible if {' and '.join(conditions_words(one.conditions))}"
    if one.outcome is Outcome.SELECTED:
        return good("refused by nothing in the manifest; its choice")
    return good("refused by nothing in the manifest")


# -- where values came from ----------------------------------------------------------------------


def _whence(one: Provenance) -> str:
    flag = _FLAGS.get(one.field, f"--{one.field.replace('_', '-')}")
    match one.source:
        case Source.GIVEN:
            return "given with --set"
        case Source.REASON:
            return "as the log's own reason says"
        case Source.FLAG:
            return f"{one.told.text}, line {one.told.line:,}" if one.told else flag
        case Source.CHECKPOINT:
            likely = "probably the checkpoint's quantisation config"
        case Source.COERCION:
            likely = "probably changed by the engine"
            if one.backends:
                likely += f", as for {listed(one.backends, 'and')}"
        case Source.TARGET:
            likely = "a layout of MLA for a layer that is none: probably the target model's"
        case Source.CONFIG:
            likely = "probably the model's config"
        case Source.ENGINE:
            likely = "probably the engine's own choice"
        case Source.UNKNOWN:
            likely = "unknown"
    if one.told is not None:
        return f"{likely}: {one.told.text} was given, line {one.told.line:,}"
    if one.seen:
        return f"{likely}: {flag} was not given"
    return f"{likely}, or {flag}: the log shows no command line"


# -- as data -------------------------------------------------------------------------------------


def diagnosis_json(diagnoses: Sequence[Diagnosis], selector: Selector) -> dict[str, Any]:
    """A diagnosis as JSON values; for several errors, ``{"diagnoses": [...]}``."""
    plain = [_json(diagnosis, selector.manifest) for diagnosis in diagnoses]
    return plain[0] if len(plain) == 1 else {"diagnoses": plain}


def _json(one: Diagnosis, manifest: Manifest) -> dict[str, Any]:
    told = one.question.told
    return {
        "error": _error_json(one.error),
        "versions": to_json(one.versions),
        "device": None if one.device is None else to_json(one.device),
        "gpu": to_json(one.gpu),
        "device_line": one.device_line,
        "layer": {n: _plain(n, v, manifest) for n, v in one.question.layer.fields.items()},
        "told": {name: witness.value for name, witness in told.items()},
        "contradiction": one.contradiction,
        "runs": one.runs,
        "only_other_version": one.only_other_version,
        "remedies": to_json(one.remedies),
        "unforced": None if one.unforced is None else to_json(one.unforced),
        "runs_on": list(one.runs_on),
        "fits": list(one.fits),
        "candidates": [to_json(c) for c in one.candidates],
        "provenance": to_json(one.provenance),
        "resolution": None if one.case is None else case_json(one.case),
        "claimed": _claimed_json(one),
    }


def _plain(name: str, value: Value | Domain, manifest: Manifest) -> Value:
    field = manifest.vocabulary.fields[name]
    return show_domain(field, value) if isinstance(value, Domain) else value


def _error_json(error: EngineError) -> dict[str, Any]:
    kept = ("kind", "platform", "backend", "prefill", "complete", "line", "count")
    plain = {name: getattr(error, name) for name in kept}
    return {**plain, "unknown": dict(error.unknown)}


def _claimed_json(one: Diagnosis) -> dict[str, str | None] | None:
    if one.claimed is None:
        return None
    answer = one.claimed.resolution
    return {"prefill": answer.prefill.backend, "decode": answer.decode.backend}
