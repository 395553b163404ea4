"""An engine's error in words: what was asked, what would help, who refused it and why."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from selector.binding import Selector
from selector.changes.case import Case
from selector.domains import Domain, Value
from selector.fields import show, show_domain
from selector.manifest import Manifest
from selector.report.advice import advice
from selector.report.data import case_json, to_json
from selector.report.refusals import Refusals
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
    conditions_words,
    device_words,
    kind_words,
    listed,
    manifest_words,
    reasons,
    with_separators,
)
from selector.serving.commands.flags import table
from selector.serving.diagnosis.answer import Diagnosis
from selector.serving.diagnosis.between import Across, View, public
from selector.serving.diagnosis.comparison import Compared
from selector.serving.diagnosis.provenance import Provenance, Source
from selector.serving.diagnosis.question import Witness
from selector.serving.logs.log import EngineError, Told
from selector.values import Outcome

__all__ = ["diagnosis_json", "diagnosis_lines"]

_FIRST = ("head_size", "dtype", "kv_cache_dtype")
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
    return [*lines, *_unread([told for d in diagnoses[:1] for told in d.unread])]


def _unread(told: Sequence[Told]) -> Iterator[Line]:
    """Yields what of the log was not understood, once."""
    if told:
        rows: list[list[Part]] = [[f"line {one.line:,}", one.text] for one in told]
        yield from [BLANK, line("  ", warn("not understood")), *grid(rows, 4, 2)]


def _block(diagnosis: Diagnosis, manifest: Manifest, places: Places) -> list[Line]:
    refusals = Refusals(manifest, places)
    first, *others = advice(diagnosis, manifest)
    paint = good if diagnosis.runs or diagnosis.remedies or diagnosis.unforced else bad
    lines = [
        line(paint(first), hang=4),
        *(line("  ", faint("or"), "  ", words, hang=6) for words in others),
        BLANK,
        line(
            "  ", _heading(diagnosis), "    ", faint(manifest_words(manifest.ref, places)), hang=4
        ),
        line("  ", _layer(diagnosis, manifest), hang=4),
        *_remarks(diagnosis.error),
        *_version(diagnosis),
        *_between(diagnosis),
    ]
    if diagnosis.candidates:
        folded = [c.backend for c in diagnosis.candidates if _is_of_other_layers(c, diagnosis)]
        rows = [
            _candidate(c, diagnosis, refusals)
            for c in diagnosis.candidates
            if c.backend not in folded
        ]
        lines += [BLANK, line("  ", strong("candidates"), "  ", refusals.legend)]
        lines += grid(rows, indent=4, gap=2)
        if folded:
            words = f"for another kind of layer, and not in the log: {', '.join(folded)}"
            lines.append(line("    ", faint(words), hang=4))
    if shown := [p for p in diagnosis.provenance if _matters(p, diagnosis)]:
        told: list[list[Part]] = [[f"{p.field} {p.value}", _whence(p)] for p in shown]
        lines += [BLANK, line("  ", strong("where values came from")), *grid(told, 4, 2)]
    return lines


# -- what was asked ------------------------------------------------------------------------------


def _heading(diagnosis: Diagnosis) -> Line:
    error, engine = diagnosis.error, diagnosis.versions.engine
    what = "no valid MLA prefill backend" if error.prefill else "no valid attention backend"
    if error.kind == "refused":
        what = f"{error.backend or 'the backend that was chosen'} refused the layer by itself"
    elif error.backend is not None:
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
    twins = {n for n in names if n.startswith("config_")}
    twins = {n for n in twins if layer.get(n.removeprefix("config_")) == layer.get(n)}
    names = [n for n in names if n not in twins]
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


# -- versions ------------------------------------------------------------------------------------


def _version(diagnosis: Diagnosis) -> Iterator[Line]:
    """Yields whether the manifest is of another version than the log."""
    versions = diagnosis.versions
    if versions.differ is False and not diagnosis.differs:
        return
    others = [version for version in versions.known if version != versions.manifest]
    if versions.engine is None:
        words = f"the log does not say its version; the manifest is of {versions.manifest}"
    elif versions.differ:
        theirs = public(versions.engine.text)
        words = f"the log is of {theirs}, the manifest of {versions.manifest}"
        words += f" (known too: {listed(others, 'and')})" if others else ""
    else:
        words = "the log's reasons are not those of its version: was something changed or added?"
    if diagnosis.only_other_version:
        theirs = public(versions.engine.text) if versions.engine else "its version"
        words += f"; where reasons differ, only a manifest of {theirs} could tell"
    yield line("  ", warn("version"), "  ", words, hang=11)


def _between(diagnosis: Diagnosis) -> Iterator[Line]:
    """Yields what another version says of each backend in another way."""
    other = diagnosis.other
    if other is None or diagnosis.claimed is None or other.case is None:
        return
    mine, theirs = diagnosis.versions.manifest, other.manifest.version
    yield BLANK
    if not other.moved:
        yield line("  ", f"{mine} and {theirs} say the same of these backends")
        return
    yield line("  ", strong(f"between {mine} and {theirs}"))
    here, there = diagnosis.claimed, other.case
    rows: list[list[Part]] = [
        [
            one.backend,
            line(f"{mine}: ", _view(one.here, here), f" → {theirs}: ", _view(one.there, there)),
        ]
        for one in other.moved
    ]
    yield from grid(rows, indent=4, gap=2)


def _view(view: View, case: Case) -> str:
    if not view.known:
        return "not there"
    if not view.rejections:
        return "could run it"
    return " · ".join(text for text, _ in reasons(view.rejections, case.assumed, brief=True))


# -- who refused it ------------------------------------------------------------------------------


def _is_of_other_layers(one: Compared, diagnosis: Diagnosis) -> bool:
    """Whether neither the log speaks of it, nor would the manifest ask it for such a layer."""
    return (
        bool(diagnosis.error.reasons)
        and not one.said
        and one.backend != diagnosis.error.backend
        and any(r.field in ("mla", "sparse") for r in one.rejections)
    )


def _candidate(one: Compared, diagnosis: Diagnosis, refusals: Refusals) -> list[Part]:
    """A backend, and why it was refused; what only one of the two says is marked."""
    parts: list[Part] = []
    if diagnosis.claimed is None or one.outcome is None:
        parts = [_sentence(reason.text) for reason in one.said]
        if not one.known:
            parts.append(warn("not in the manifest"))
        return [one.backend, joined(parts or [faint("no reason given")])]
    case = diagnosis.claimed
    for place, rejection in enumerate(one.rejections):
        marked = rejection.code in one.only_manifest and (one.said or not place)
        mark = warn("only in the manifest: ") if marked else ""
        parts += [line(mark, words) for words in refusals.reasons(case, [rejection])]
    if not one.rejections:
        parts.append(_standing(one, refusals.manifest))
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


def _standing(one: Compared, manifest: Manifest) -> Part:
    """That nothing refuses it, and what that depends on: in full where it is software."""
    if not one.conditions:
        chosen = "; its choice" if one.outcome is Outcome.SELECTED else ""
        return good(f"refused by nothing in the manifest{chosen}")
    software = [c for c in one.conditions if c.field in manifest.facts]
    unsaid = list(dict.fromkeys(c.field for c in one.conditions if c not in software))
    words = [*conditions_words(software)]
    if unsaid:
        verb = "fits" if len(unsaid) == 1 else "fit"
        words.append(f"{listed(unsaid, 'and')} {verb}, of which the log says too little")
    return f"eligible if {' and '.join(words)}"


# -- where values came from ----------------------------------------------------------------------


def _matters(one: Provenance, diagnosis: Diagnosis) -> bool:
    """Whether it is worth a line: a dtype that nobody gave and nothing refuses is not."""
    refused = {
        *(r.field for c in diagnosis.candidates for r in c.rejections),
        *((r.code or "").lower() for c in diagnosis.candidates for r in c.said),
    }
    return one.field != "dtype" or one.sure or one.field in refused


def _whence(one: Provenance) -> str:
    setter = table().flag_of(one.field)
    flag = setter.name if setter is not None else one.field
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
        "other": None if one.other is None else _other_json(one.other),
        "unread": to_json(one.unread),
        "candidates": [to_json(c) for c in one.candidates],
        "provenance": to_json(one.provenance),
        "resolution": None if one.case is None else case_json(one.case),
        "claimed": _claimed_json(one),
    }


def _other_json(other: Across) -> dict[str, Any]:
    return {
        "manifest": to_json(other.manifest),
        "runs": other.runs,
        "sure": other.sure,
        "chosen": to_json(other.chosen),
        "contradiction": other.contradiction,
        "moved": to_json(other.moved),
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
