"""Answers as the columns of a table: plain values, lists and mappings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from selector.binding import Bound
from selector.plan.tail import Pick
from selector.rules import Answer
from selector.values import Candidate, Code, Phase, Request, Resolution

__all__ = [
    "ANSWER_COLUMNS",
    "PLAIN_COLUMNS",
    "answer_to",
    "failed",
    "pick_columns",
]

ANSWER_COLUMNS = (
    "decode_backend",
    "prefill_backend",
    "prefill_path",
    "prefill_by",
    "phase",
    "num_decodes",
    "decode_threshold",
    "candidates",
    "missing",
    "conditions",
    "rejections",
    "error",
)
"""What is added to each row. A column of the same name in the input is kept as ``input_<name>``."""

_REASONS = ("candidates", "missing", "conditions", "rejections")
"""Those of them that say why; they cost the most time."""

PLAIN_COLUMNS = tuple(name for name in ANSWER_COLUMNS if name not in _REASONS)
"""The others: the plain choice."""


def failed(error: str) -> dict[str, Any]:
    """The columns of a row that has no answer."""
    return dict.fromkeys(ANSWER_COLUMNS) | {"error": error}


def answer_to(
    bound: Bound,
    requests: Sequence[Request],
    *,
    resolve: Callable[[Request], Resolution] | None = None,
    dense: bool = False,
    given: bool = False,
) -> dict[str, Any]:
    """The columns for requests that run together.

    Args:
        bound: what they have in common.
        requests: at least one; the answer is that of the first which is no decode.
        resolve: gives the definition's answer to one request, where something has it faster.
        dense: a dense prefill is supposed, which the answer says.
        given: the layer is given to the backend that is forced, whether it accepts it or not.

    Raises:
        AttnselError: they have no answer.
    """
    answers: Sequence[Resolution]
    if len(requests) == 1:
        answers = [(resolve or bound.resolve_one)(requests[0])]
    else:
        answers = bound.resolve_batch(requests)
    first = next((a for a in answers if a.phase is not Phase.DECODE), answers[0])
    columns = _columns_of(first) | {"num_decodes": _decodes([a.phase for a in answers])}
    if dense:
        columns["conditions"] = ["dense_prefill supposed", *columns["conditions"]]
    forced = bound.policy.backend
    if forced is not None and first.backend is None and given:
        columns |= _would_take(bound, requests, forced)
    return columns


def _columns_of(resolution: Resolution) -> dict[str, Any]:
    """A resolution as the columns added to a row: plain values, lists and mappings."""
    chosen = {resolution.prefill.backend, resolution.decode.backend}
    rejections: dict[str, list[str]] = {}
    for candidate in resolution.candidates:
        codes = _codes(candidate)
        if codes and candidate.backend not in chosen:
            rejections[candidate.backend] = codes
    conditions = (*resolution.prefill.conditions, *resolution.decode.conditions)
    return {
        "decode_backend": resolution.decode.backend,
        "prefill_backend": resolution.prefill.backend,
        "prefill_path": resolution.prefill.path,
        "prefill_by": resolution.prefill.by,
        "phase": _text(resolution.phase),
        "num_decodes": _decodes([resolution.phase]),
        "decode_threshold": resolution.decode.decode_threshold,
        "candidates": None if (tried := resolution.decode.tried) is None else list(tried),
        "missing": [str(phase) for phase in resolution.missing],
        "conditions": list(dict.fromkeys(f"{c.field} {c.allowed}" for c in conditions)),
        "rejections": rejections,
        "error": None,
    }


def pick_columns(pick: Pick) -> dict[str, Any]:
    """A plain choice for one request as columns: :data:`PLAIN_COLUMNS`."""
    return {
        "decode_backend": pick.decode,
        "prefill_backend": pick.prefill,
        "prefill_path": pick.path,
        "prefill_by": pick.by,
        "phase": _text(pick.phase),
        "num_decodes": _decodes([pick.phase]),
        "decode_threshold": pick.decode_threshold,
        "error": None,
    }


def _codes(candidate: Candidate) -> list[str]:
    """Why a candidate is refused; that it does not serve a phase matters only where that is all."""
    refused = [[r.code for r in v.rejections] for v in (candidate.prefill, candidate.decode)]
    served = [codes for codes in refused if Code.PHASE not in codes]
    return list(dict.fromkeys(code for codes in served or refused for code in codes))


def _would_take(bound: Bound, requests: Sequence[Request], backend: str) -> dict[str, Any]:
    """What a backend that is given a layer it refuses would make of the requests."""
    if any(request.query_len is None or request.seq_len is None for request in requests):
        return {}
    entry = bound.manifest.entry(backend)
    device = (entry.accepts[name] for name in ("platform", "capability"))
    if any(
        m.rule.result.answer(bound.question) is Answer.NO
        for d in device
        for m in d.matches(bound.question)
    ):
        return {}  # it has no kernels there at all
    routes = bound.routes(requests, backend)
    first = next((r for r in routes if r.phase is not Phase.DECODE), routes[0])
    return {
        "prefill_path": first.path.path,
        "prefill_by": first.path.by,
        "phase": _text(first.phase),
        "num_decodes": _decodes([route.phase for route in routes]),
        "decode_threshold": first.threshold,
    }


def _decodes(phases: Sequence[Phase | None]) -> int | None:
    """How many requests count as decodes; ``None`` where that is unknown."""
    return None if None in phases else sum(phase is Phase.DECODE for phase in phases)


def _text(phase: Phase | None) -> str | None:
    return None if phase is None else str(phase)
