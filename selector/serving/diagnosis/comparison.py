"""Why the engine refused a backend, beside why the manifest does.

Codes are compared as ``docs/vllm-parity.md`` says: all fields, and of the combination rules the
first, because vLLM names no other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from selector.changes.case import USABLE, Case, verdict_of
from selector.fields import Vocabulary
from selector.manifest import Manifest
from selector.serving.layers.pins import PREFILL_SUFFIX
from selector.serving.logs.log import EngineError
from selector.serving.logs.reasons import Reason
from selector.values import (
    Candidate,
    Code,
    Condition,
    Outcome,
    Phase,
    Rejection,
    Resolution,
    Verdict,
)

__all__ = ["Compared", "compare", "names_in", "phase_of", "same_reasons"]

_OWN = frozenset(Code)
_VALUES = ("head_size", "dtype", "kv_cache_dtype", "block_size", "attn_type")
"""Fields that a refusal speaks of without their values."""


class Compared(msgspec.Struct, frozen=True):
    """A backend that the engine looked at, or that the manifest says it looks at.

    Attributes:
        backend: its name in the manifest; the engine's, where that has none such.
        known: whether the manifest has it.
        said: why the engine refused it, in the log's order.
        rejections: why the manifest refuses it, as claimed.
        later: why the engine's class would take it but its constructor would not.
        outcome: what becomes of it by the manifest as claimed; ``None``: nobody can say.
        conditions: what that depends on.
        both: codes of reasons that both give.
        only_log: codes, or sentences without one, that only the log has.
        only_manifest: codes that only the manifest has.
        undecided: codes of the log about fields that are unknown here.
    """

    backend: str
    known: bool
    said: tuple[Reason, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    later: tuple[Rejection, ...] = ()
    outcome: Outcome | None = None
    conditions: tuple[Condition, ...] = ()
    both: tuple[str, ...] = ()
    only_log: tuple[str, ...] = ()
    only_manifest: tuple[str, ...] = ()
    undecided: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the log and the manifest give different reasons."""
        return bool(self.only_log or self.only_manifest)


def compare(
    error: EngineError, manifest: Manifest, claimed: Case | None, truth: Case | None
) -> tuple[Compared, ...]:
    """Each backend of the log in its order, then those that only the manifest's list has.

    Args:
        error: the engine's.
        manifest: the one that answers.
        claimed: what it says with the engine's claims; ``None`` when there is no answer.
        truth: what it says of what works.
    """
    said = names_in(error, manifest)
    judged = _candidates(claimed)
    really = _candidates(truth)
    names = list(said)
    if claimed is not None and error.kind != "forced":
        names += [n for n in _tried(error, claimed.resolution) if n not in said]
    return tuple(
        _compared(
            name,
            error.reasons.get(said.get(name, ""), ()),
            error,
            manifest,
            judged.get(name),
            really.get(name),
            frozenset() if claimed is None else frozenset(claimed.inquiry.layer.fields),
        )
        for name in names
    )


def names_in(error: EngineError, manifest: Manifest) -> dict[str, str]:
    """The backends that an error names: as the manifest calls them → as the engine does."""
    said = {_known_as(name, error, manifest): name for name in error.reasons}
    if error.backend is not None:
        said.setdefault(_known_as(error.backend, error, manifest), error.backend)
    return said


def same_reasons(compared: Sequence[Compared]) -> bool:
    """Whether the manifest refuses what the log refuses for the same reasons, and has nothing else.

    A backend that only the manifest's list has, and that it refuses too, makes no difference.
    """
    return all(not (c.said and c.differs) and c.outcome not in USABLE for c in compared)


def phase_of(error: EngineError, manifest: Manifest, backend: str) -> Phase:
    """The phase in which the engine asks a backend: that of decode, if it serves it."""
    entry = manifest.entries.get(backend)
    if error.prefill or (entry is not None and Phase.DECODE not in entry.phases):
        return Phase.PREFILL
    return Phase.DECODE


def _known_as(name: str, error: EngineError, manifest: Manifest) -> str:
    """The name in the manifest, which tells prefill backends of MLA from the others."""
    if not error.prefill or (name.endswith(PREFILL_SUFFIX) and name in manifest.entries):
        return name
    return f"{name}{PREFILL_SUFFIX}" if f"{name}{PREFILL_SUFFIX}" in manifest.entries else name


def _candidates(case: Case | None) -> dict[str, Candidate]:
    return {} if case is None else {c.backend: c for c in case.resolution.candidates}


def _tried(error: EngineError, answer: Resolution) -> Iterator[str]:
    choice = answer.prefill if error.prefill else answer.decode
    for name in choice.tried or ():
        if not error.prefill or name.endswith(PREFILL_SUFFIX):
            yield name


def _compared(
    name: str,
    said: tuple[Reason, ...],
    error: EngineError,
    manifest: Manifest,
    judged: Candidate | None,
    really: Candidate | None,
    told_of: frozenset[str],
) -> Compared:
    told = dict.fromkeys(r.code or r.text for r in said)
    if name not in manifest.entries:
        return Compared(name, False, said, only_log=tuple(told))
    if judged is None:
        return Compared(name, True, said)
    phase = phase_of(error, manifest, name)
    verdict = verdict_of(judged, phase)
    stated = [r.code for r in verdict.rejections if r.code not in _OWN]
    missing = [r.code for r in verdict.rejections if r.code in (Code.NOT_INSTALLED, Code.VERSION)]
    both = tuple(code for code in told if code in (*stated, *missing))
    unsaid = {name.upper() for name in _VALUES if name not in told_of}
    open_fields = {c.field.upper() for c in verdict.conditions} | _unknown(verdict, said) | unsaid
    undecided = tuple(c for c in told if c not in both and c in open_fields)
    return Compared(
        backend=name,
        known=True,
        said=said,
        rejections=verdict.rejections,
        later=_later(verdict, really, phase),
        outcome=verdict.outcome,
        conditions=verdict.conditions,
        both=both,
        only_log=tuple(c for c in told if c not in both and c not in undecided),
        only_manifest=_only_stated(stated, told, manifest) if said or error.complete else (),
        undecided=undecided,
    )


def _unknown(verdict: Verdict, said: Sequence[Reason]) -> set[str]:
    """Reasons without a code cannot be compared with what is only eligible on conditions."""
    if verdict.outcome is not Outcome.CONDITIONAL:
        return set()
    return {r.code or r.text for r in said if r.code is None}


def _later(verdict: Verdict, really: Candidate | None, phase: Phase) -> tuple[Rejection, ...]:
    """What the truth refuses although the claim does not."""
    if really is None or verdict.outcome not in USABLE:
        return ()
    return verdict_of(really, phase).rejections


def _only_stated(
    stated: Sequence[str], told: dict[str, None], manifest: Manifest
) -> tuple[str, ...]:
    """The manifest's codes that the log lacks: fields, and a rule unless the log names one."""
    fields = _codes_of_fields(manifest.vocabulary, manifest)
    rules = list(dict.fromkeys(code for code in stated if code not in fields))
    named = any(code not in fields for code in told)
    reported = [code for code in stated if code in fields] + ([] if named else rules[:1])
    return tuple(dict.fromkeys(code for code in reported if code not in told))


def _codes_of_fields(vocabulary: Vocabulary, manifest: Manifest) -> frozenset[str]:
    return frozenset(n.upper() for n in (*vocabulary.fields, *manifest.derive))
