"""Runs one case and says what it means for the claim behind it.

The adapter plans and runs the batch on random inputs; the float64 reference computes what should
have come out of the same inputs, drawn again, so that a kernel that writes into its inputs cannot
spoil them; the two are compared by :func:`backends.contract.relative_error` with the tolerance
declared beside the adapter.

=============  ==============  ===============  ==================  ============
the entry      the kernel      runs, right      runs, wrong         fails
says           refuses
=============  ==============  ===============  ==================  ============
accepted       ``OVER_CLAIM``  ``CONFIRMED``    ``WRONG_RESULT``    ``FAULT``
refused        ``CONFIRMED``   ``UNDER_CLAIM``  ``SILENTLY_WRONG``  ``KEPT_OFF``
refused, with  ``CONFIRMED``   ``DECLINED``     ``SILENTLY_WRONG``  ``KEPT_OFF``
a reason
=============  ==============  ===============  ==================  ============

* ``WRONG_RESULT``, ``FAULT`` and ``OVER_CLAIM``: the claim is wrong. A user would get garbage, a
  crash, or a refusal.
* ``UNDER_CLAIM``: the claim is wrong. A user is kept from a kernel that works. Where the manifest
  gives a ``reason`` for the rule that refuses, it is a decision and no error: ``DECLINED``.
* ``SILENTLY_WRONG`` and ``KEPT_OFF``: the claim is right, and all that stands between a user and
  garbage or a crash: the kernel takes the request without a word. No reason to fail; correcting
  the manifest could only make it worse.

What could not be judged (no memory, a feature without a definition in the reference) is
``UNJUDGED``.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf, isfinite
from typing import TYPE_CHECKING

import msgspec

from backends.cases import Case
from backends.contract import Adapter, RefusedError, first_line, named_line, relative_error

if TYPE_CHECKING:
    import torch

__all__ = [
    "WRONG_CLAIMS",
    "CaseResult",
    "Judgement",
    "failed",
    "judge_again",
    "refusal",
    "run_case",
]


class Judgement(StrEnum):
    """What a case says of the claim behind it, the worst first."""

    SILENTLY_WRONG = "silently_wrong"
    WRONG_RESULT = "wrong_result"
    FAULT = "fault"
    OVER_CLAIM = "over_claim"
    UNDER_CLAIM = "under_claim"
    KEPT_OFF = "kept_off"
    DECLINED = "declined"
    UNJUDGED = "unjudged"
    CONFIRMED = "confirmed"


WRONG_CLAIMS = frozenset(
    {Judgement.OVER_CLAIM, Judgement.UNDER_CLAIM, Judgement.WRONG_RESULT, Judgement.FAULT}
)
"""Judgements that make certification fail."""


class CaseResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of a case.

    Attributes:
        case: what was asked, and what the entry says to it.
        judgement: what that means for the claim.
        error: the relative error of the output; ``None`` when there is none to measure.
        tolerance: the error allowed.
        message: why there is none: the refusal, or the fault.
    """

    case: Case
    judgement: Judgement
    error: float | None = None
    tolerance: float | None = None
    message: str = ""


def run_case(adapter: Adapter, case: Case, device: str = "cpu", seed: int = 0) -> CaseResult:
    """Runs a case and judges the claim behind it.

    Args:
        adapter: the kernel.
        case: what to ask of it.
        device: where, in torch's words.
        seed: of the inputs.
    """
    import torch

    try:
        out = _run(adapter, case, device, seed)
        expected = _expect(case, device, seed)
    except RefusedError as error:
        return refusal(case, first_line(error))
    except (MemoryError, torch.OutOfMemoryError) as error:
        return CaseResult(case, Judgement.UNJUDGED, message=named_line(error))
    except _NoReferenceError as error:
        return CaseResult(case, Judgement.UNJUDGED, message=first_line(error))
    except Exception as error:  # a fault in a kernel or an adapter is what is looked for
        return failed(case, named_line(error))
    return _measured(case, relative_error(out, expected), adapter.tolerance(case.batch.dtype))


def judge_again(case: Case, ran: CaseResult, tolerance: float) -> CaseResult:
    """What a recorded run of the same batch says of a case: the kernel knew no manifest.

    Args:
        case: what the manifest says now.
        ran: what became of the batch then.
        tolerance: the error allowed now.
    """
    if ran.judgement is Judgement.UNJUDGED:
        return CaseResult(case, ran.judgement, message=ran.message)
    if ran.tolerance is not None:
        return _measured(case, inf if ran.error is None else ran.error, tolerance)
    if ran.judgement in (Judgement.FAULT, Judgement.KEPT_OFF):
        return failed(case, ran.message)
    return refusal(case, ran.message)


def _measured(case: Case, off: float, tolerance: float) -> CaseResult:
    """The result of a case with an output that is this far off."""
    if off <= tolerance:
        kind = Judgement.DECLINED if case.reason else Judgement.UNDER_CLAIM
        if case.accepts:
            kind = Judgement.CONFIRMED
    else:
        kind = Judgement.WRONG_RESULT if case.accepts else Judgement.SILENTLY_WRONG
    if not isfinite(off):
        return CaseResult(case, kind, None, tolerance, "the output is not finite, or misshapen")
    return CaseResult(case, kind, off, tolerance)


def refusal(case: Case, message: str) -> CaseResult:
    """The result of a case that the library refuses."""
    kind = Judgement.OVER_CLAIM if case.accepts else Judgement.CONFIRMED
    return CaseResult(case, kind, message=message)


def failed(case: Case, message: str) -> CaseResult:
    """The result of a case whose kernel failed, or took its process with it."""
    kind = Judgement.FAULT if case.accepts else Judgement.KEPT_OFF
    return CaseResult(case, kind, message=message)


class _NoReferenceError(Exception):
    """The reference has no definition of what is asked."""


def _run(adapter: Adapter, case: Case, device: str, seed: int) -> torch.Tensor:
    """The kernel's output, on the CPU, once the device has finished."""
    from backends.inputs import make_inputs, run_plan

    plan = adapter.plan(case.batch, device)
    return run_plan(plan, make_inputs(case.batch, device, seed)).cpu()


def _expect(case: Case, device: str, seed: int) -> torch.Tensor:
    """What should have come out."""
    from backends.inputs import make_inputs
    from backends.reference import attend

    inputs = make_inputs(case.batch, device, seed)
    try:
        return attend(case.batch, inputs.q, inputs.kv, inputs.sinks, inputs.indices)
    except RefusedError as error:
        raise _NoReferenceError(str(error)) from error
