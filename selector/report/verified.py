"""On what hardware an entry's claims were run, as ``inspect`` shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from selector.evidence import ClaimRecord, Evidence, entry_digest, find_evidence
from selector.manifest import Entry, Manifest
from selector.report.certificate import JUDGEMENT_WORDS
from selector.report.data import to_json
from selector.report.entries import entry_json
from selector.report.text import BLANK, Line, Part, faint, grid, line, strong, warn
from selector.report.wording import counted, device_words

__all__ = ["backend_json", "verified_json", "verified_lines"]

_MOST_VALUES = 8


def backend_json(entry: Entry, manifest: Manifest) -> dict[str, Any]:
    """All that is stated of an entry, and the runs that it names."""
    runs = verified_json(entry, find_evidence(manifest.ref.file) or {})
    return {**entry_json(entry, manifest), "verified": runs}


def verified_json(entry: Entry, found: Mapping[str, Evidence]) -> list[dict[str, Any]]:
    """The runs that an entry names in ``verified_on``, and what they cover.

    Args:
        entry: whose claims.
        found: the evidence beside the manifest, by id.
    """
    return [_run_json(entry, found[name]) for name in entry.verified_on if name in found]


def _run_json(entry: Entry, run: Evidence) -> dict[str, Any]:
    claims = run.of(entry.name)
    return {
        "id": run.id,
        "date": run.date,
        "device": to_json(run.device),
        "library": entry.library or None,
        "version": run.facts.get(entry.library),
        "unchanged": run.entries.get(entry.name) == entry_digest(entry),
        "cases": sum(claim.cases for claim in claims),
        "claims": [_claim_json(claim) for claim in claims],
    }


def _claim_json(claim: ClaimRecord) -> dict[str, Any]:
    return {
        "phase": claim.phase,
        "field": claim.field,
        "accepts": claim.accepts,
        "judgement": claim.judgement,
        "values": list(claim.values),
        "error": claim.error,
        "tolerance": claim.tolerance,
    }


def verified_lines(entry: Entry, found: Mapping[str, Evidence]) -> list[Line]:
    """For each run that the entry names: where, with what, when, and the values that it covers."""
    lines: list[Line] = []
    for data in verified_json(entry, found):
        lines += [BLANK, line("  ", strong("verified on "), _where(entry, found[data["id"]]))]
        about = counted(data["cases"], "case")
        lines.append(line("    ", faint(f"{data['id']}, {about}")))
        if not data["unchanged"]:
            lines.append(line("    ", warn("the entry claims something else since"), hang=4))
        lines += grid(list(_rows(found[data["id"]].of(entry.name))), 4, 2)
    return lines


def _where(entry: Entry, run: Evidence) -> str:
    """``H200 (9.0), flashinfer-python 0.7.4, 2026-11-30``."""
    version = run.facts.get(entry.library)
    library = f"{entry.library} {version}, " if isinstance(version, str) else ""
    return f"{device_words(run.device)}, {library}{run.date[:10]}"


def _rows(claims: Iterable[ClaimRecord]) -> Iterator[list[Part]]:
    """One row for each field and what was seen of it; what is said of both phases, once."""
    values: dict[tuple[str, str, str], list[str]] = {}
    for claim in claims:
        tried = [_base(claim)] if claim.field == "base" else claim.values
        values.setdefault((claim.field, _seen(claim), claim.phase), []).extend(tried)
    rows: dict[tuple[str, str, str], list[str]] = {}
    for (field, seen, phase), all_tried in values.items():
        each = list(dict.fromkeys(all_tried))
        more = f" and {len(each) - _MOST_VALUES} more" if len(each) > _MOST_VALUES else ""
        shown = ", ".join(each[:_MOST_VALUES]) + more
        rows.setdefault((field, seen, shown), []).append(phase)
    for (field, seen, shown), phases in rows.items():
        yield [field, seen, line(shown, faint(f"   {' and '.join(phases)}"))]


def _base(claim: ClaimRecord) -> str:
    """The ordinary question from which one field at a time was varied."""
    names = ("head_size", "dtype", "page_size", "num_heads", "num_kv_heads")
    batch = claim.batch or {}
    return ", ".join(f"{name} {batch[name]}" for name in names if name in batch)


def _seen(claim: ClaimRecord) -> str:
    if claim.judgement != "confirmed":
        return JUDGEMENT_WORDS[claim.judgement]
    return "right" if claim.accepts else "refused"
