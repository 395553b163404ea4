"""The answer to ``preflight``: will it start, what is selected and from what, what to change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from selector.changes.case import Case, choice_of
from selector.report.answer import choice_lines, condition_lines
from selector.report.data import to_json
from selector.report.layers import layer_words
from selector.report.text import (
    BLANK,
    GLUE,
    Line,
    Part,
    bad,
    faint,
    good,
    grid,
    joined,
    line,
    strong,
)
from selector.report.wording import (
    Places,
    capabilities_words,
    counted,
    device_words,
    listed,
    reasons,
    with_separators,
)
from selector.serving.layers.parts import Part as Layers
from selector.serving.layers.parts import Trace
from selector.serving.layers.pins import PREFILL_SUFFIX, is_dense_mla
from selector.serving.layers.refusal import Refusal
from selector.serving.preflight.answer import Preflight
from selector.serving.preflight.judging import Judged
from selector.serving.preflight.mending import Amendment, Mended
from selector.values import Coercion, Condition, Resolution

__all__ = ["preflight_json", "preflight_lines"]

_WIDTH = 9
_SIZES = ("tp_size", "pp_size", "dcp_size", "pcp_size")
_SAID_BY = (
    ("flags", ("flag", "variable")),
    ("coerced", ("coercion",)),
    ("checkpoint", ("checkpoint",)),
    ("config", ("config",)),
    ("default", ("default",)),
    ("derived", ("derived",)),
)
_SILENT = ("false", "unset", "absent", "none")
"""Defaults and derived values that ask for nothing."""

_SAID_TWICE = ("config_kv_cache_dtype", "dcp", "pcp")
"""Set by a flag that sets a plainer field too."""


# -- words ---------------------------------------------------------------------------------------


def _amendment_words(change: Amendment) -> str:
    """``--kv-cache-dtype fp8 → auto``, ``no --block-size 7``, ``only -ac.backend X``."""
    if change.after is None:
        return f"no {change.flag} {change.before or ''}".rstrip()
    if change.before is None:
        return f"add {change.flag} {change.after}"
    if change.before == change.after:
        return f"only {change.flag} {change.after}"
    return f"{change.flag} {change.before} → {change.after}"


def _refusal_words(refusal: Refusal, found: Preflight, alike: Sequence[Refusal] = ()) -> str:
    """What refuses, for which layers, with the value seen and the values allowed.

    Args:
        refusal: one of them.
        found: what it is of.
        alike: others that say the same of other layers.
    """
    if refusal.words:
        return refusal.words
    of = listed([_of(one, found) for one in (refusal, *alike)], "and")
    phases = listed(list(refusal.phases), "and")
    why = _why(refusal)
    if refusal.stage == "constructor":
        return f"{refusal.backend} is selected for {of}, and its constructor refuses: {why}"
    if refusal.pin:
        name = str(refusal.backend)
        if refusal.stage == "mla prefill":
            name = name.removesuffix(PREFILL_SUFFIX)
        return f"{refusal.pin} {name} is refused for {of}: {why}"
    if refusal.stage == "mla prefill":
        return f"no MLA prefill backend for {of}: {why}"
    return f"no backend for {phases} of {of}"


def _why(refusal: Refusal) -> str:
    return " · ".join(
        dict.fromkeys(
            text for refused in refusal.candidates for text, _ in reasons(refused.rejections)
        )
    )


def _of(refusal: Refusal, found: Preflight) -> str:
    parts = [one.part for one in found.parts]
    part = next((p for p in parts if (p.stack, p.group.name) == _at(refusal)), None)
    return _layers(part) if part is not None else "all layers"


def _at(refusal: Refusal) -> tuple[str | None, str]:
    return refusal.stack, refusal.group


def _layers(part: Layers) -> str:
    """``36 full layers``, ``1 mla layer of the drafter``."""
    words = counted(part.group.count, f"{part.group.name} layer")
    if part.stack == "drafter":
        return f"{words} of the drafter"
    return f"{words} of the {part.model.name}" if part.stack == "tower" else words


# -- text ----------------------------------------------------------------------------------------


def preflight_lines(found: Preflight, places: Places) -> list[Line]:
    """Whether it starts; then what is selected, what to change, and what to know."""
    lines = [_verdict(found), *_short_change(found), line(_heading(found), hang=4)]
    general = [r for r in found.refusals if all(not _is_of(r, one) for one in found.parts)]
    if general:
        rows: list[list[Part]] = [[faint(r.stage), _refusal_words(r, found)] for r in general]
        lines += [BLANK, *grid(rows, indent=2)]
    for one in found.parts:
        lines += [BLANK, *_block(one, found, places)]
    if found.refusals:
        lines += [BLANK, *_change(found)]
    return [*lines, *_notes(found)]


def _verdict(found: Preflight) -> Line:
    if found.will_start:
        return line(good("will start"))
    first, *others = found.refusals
    alike = [r for r in others if _same(r) == _same(first)]
    rest = len({_same(r) for r in others} - {_same(first)})
    more = f" (and {counted(rest, 'more refusal')})" if rest else ""
    return line(bad("will not start"), f": {_refusal_words(first, found, alike)}{more}", hang=4)


def _same(refusal: Refusal) -> tuple[object, ...]:
    """What two refusals share that differ in their layers only."""
    return refusal.stage, refusal.phases, refusal.backend, refusal.pin, _why(refusal), refusal.words


def _heading(found: Preflight) -> Line:
    ref = found.engine.truth.manifest.ref
    parts: list[Part] = [strong(found.model.name), device_words(found.device)]
    parts.append(f"{ref.name} {ref.version}")
    for name in _SIZES:
        setting = found.command.setting(name)
        if setting is not None:
            parts.append(f"{name.removesuffix('_size')} {setting.value}")
    return joined(parts)


def _is_of(refusal: Refusal, judged: Judged) -> bool:
    return _at(refusal) == (judged.part.stack, judged.part.group.name)


def _block(judged: Judged, found: Preflight, places: Places) -> list[Line]:
    part, manifest = judged.part, found.engine.claims.manifest
    title = strong(_layers(part))
    own = [r for r in found.refusals if _is_of(r, judged)]
    if judged.claimed is None or judged.inquiry is None:
        lines = [line(title)]
        if part.unmodelled:
            lines += grid([[_label("selected"), part.unmodelled]], indent=2)
    else:
        case = Case(judged.inquiry, judged.claimed, part.model, part.group, True, part.shard, True)
        lines = [line(title, "  ", layer_words(case, manifest), hang=4), BLANK]
        lines += choice_lines(case, manifest, places)
        lines += condition_lines(case, manifest, places)
    if refused := [row for refusal in own for row in _refused(refusal, places)]:
        lines += [BLANK, *grid(refused, indent=2)]
    return [*lines, BLANK, *grid([*_said(part.traces)], indent=2)]


def _label(text: str) -> Part:
    return faint(f"{text:<{_WIDTH}}")


def _refused(refusal: Refusal, places: Places) -> Iterator[list[Part]]:
    """Yields where it stops, who refused, and why."""
    label: str = refusal.stage
    if not refusal.candidates:
        yield [_label(label), bad(refusal.backend or ""), refusal.words]
    for refused in refusal.candidates:
        said = list(reasons(refused.rejections))
        words = " · ".join(text for text, _ in said)
        at = places.at(said[0][1]) if said else ""
        yield [_label(label), bad(refused.backend), line(words, "   ", faint(at))]
        label = ""


def _said(traces: Sequence[Trace]) -> Iterator[list[Part]]:
    """Yields who says which values."""
    for label, kinds in _SAID_BY:
        said = [
            _trace_words(trace)
            for trace in traces
            if trace.kind in kinds
            and trace.field not in _SAID_TWICE
            and (label == "flags" or trace.value not in _SILENT)
        ]
        if said:
            yield [_label(label), " · ".join(said)]


def _trace_words(trace: Trace) -> str:
    where = f" ({trace.where})" if trace.where and trace.where != trace.field else ""
    return f"{trace.field}{GLUE}{with_separators(trace.value)}{where}"


def _changes_words(mended: Mended) -> str:
    return " and ".join(_amendment_words(one) for one in mended.amendments)


def _short_change(found: Preflight) -> list[Line]:
    """The smallest change, for those who read no further."""
    if found.mended is None:
        return []
    return [line("with ", good(_changes_words(found.mended)), " it starts", hang=4)]


def _change(found: Preflight) -> list[Line]:
    """The smallest change, and the command with it made; it is never wrapped."""
    if found.mended is None:
        runs = capabilities_words(", ".join(found.elsewhere))
        there = f"; as it is, it runs on {runs}" if runs else ""
        return [line(strong("change"), f"  no setting that was tried helps{there}")]
    words = _changes_words(found.mended)
    command = found.line.replace(" ", GLUE)
    return [line(strong("change"), "  ", words, hang=8), line("  ", command)]


def _notes(found: Preflight) -> list[Line]:
    notes = list(dict.fromkeys((note.kind, note.text) for note in found.notes))
    rows: list[list[Part]] = [[faint(kind), text] for kind, text in notes]
    rows += [[faint("model"), note] for note in found.model.notes]
    if found.assumed:
        names = listed(list(found.assumed), "and")
        rows.append([faint("assumed"), f"{names}: part of an ordinary installation"])
    return [BLANK, line(strong("notes")), *grid(rows, indent=2)] if rows else []


# -- JSON ----------------------------------------------------------------------------------------


def preflight_json(found: Sequence[Preflight]) -> dict[str, Any]:
    """A preflight as JSON values; for several commands ``{"commands": [...]}``."""
    plain = [_json(one) for one in found]
    return plain[0] if len(plain) == 1 else {"commands": plain}


def _json(found: Preflight) -> dict[str, Any]:
    return {
        "will_start": found.will_start,
        "command": found.line_read,
        "model": found.model.name,
        "device": to_json(found.device),
        "manifest": to_json(found.engine.truth.manifest.ref),
        "groups": [_group_json(one) for one in found.parts],
        "refusals": [_refusal_json(one, found) for one in found.refusals],
        "change": _change_json(found),
        "notes": [to_json(note) for note in dict.fromkeys(found.notes)],
        "assumed": list(found.assumed),
        "elsewhere": list(found.elsewhere),
    }


def _change_json(found: Preflight) -> dict[str, Any] | None:
    if found.mended is None:
        return None
    changes = [
        {"flag": one.flag, "field": one.field or None, "before": one.before, "after": one.after}
        for one in found.mended.amendments
    ]
    return {"changes": changes, "command": found.line}


def _refusal_json(refusal: Refusal, found: Preflight) -> dict[str, Any]:
    return {
        "stage": refusal.stage,
        "stack": refusal.stack,
        "group": refusal.group or None,
        "phases": [str(phase) for phase in refusal.phases],
        "backend": refusal.backend,
        "forced_by": refusal.pin or None,
        "text": _refusal_words(refusal, found),
        "candidates": [
            {"backend": one.backend, "rejections": to_json(one.rejections)}
            for one in refusal.candidates
        ],
    }


def _group_json(judged: Judged) -> dict[str, Any]:
    part, claimed = judged.part, judged.claimed
    return {
        "stack": part.stack,
        "model": part.model.name,
        "name": part.group.name,
        "count": part.group.count,
        "values": [to_json(trace) for trace in part.traces] + _coerced_json(claimed),
        "forced": [
            {"backend": pin.backend, "by": pin.origin, "mla_prefill": pin.mla_prefill}
            for pin in part.pins
        ],
        "selected": None if claimed is None else _selected_json(claimed),
        "unmodelled": part.unmodelled or None,
    }


def _selected_json(claimed: Resolution) -> dict[str, Any]:
    chosen: dict[str, Any] = {"prefill": None, "decode": None}
    conditions: dict[Condition, None] = {}
    for phase in claimed.needed:
        choice = choice_of(claimed, phase)
        conditions |= dict.fromkeys(choice.conditions)
        if choice.backend is not None:
            chosen[phase.value] = {"backend": choice.backend, "paths": list(choice.paths)}
    prefill = claimed.prefill.backend if is_dense_mla(claimed.layer) else None
    return {**chosen, "mla_prefill": prefill, "conditions": to_json(list(conditions))}


def _coerced_json(claimed: Resolution | None) -> list[dict[str, str]]:
    if claimed is None:
        return []
    seen: dict[Coercion, str] = {}
    for choice in (claimed.prefill, claimed.decode):
        for coercion in choice.coercions:
            seen.setdefault(coercion, choice.backend or "")
    return [
        {"field": c.field, "value": c.after, "kind": "coercion", "where": backend}
        for c, backend in seen.items()
    ]
