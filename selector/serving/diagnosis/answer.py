"""An engine's attention error → what was asked, who refused it and why, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

import msgspec

from selector.binding import Selector
from selector.changes.case import Case, Inquiry, choice_of
from selector.changes.search import Remedy, Way, elsewhere, remedy, unforced, ways
from selector.devices import known_capabilities
from selector.domains import Domain, Value
from selector.errors import AttnselError
from selector.manifest import Manifest
from selector.serving.diagnosis.between import Across, across, are_same, known_versions
from selector.serving.diagnosis.comparison import Compared, compare, same_reasons
from selector.serving.diagnosis.provenance import Provenance, Source, provenance_of
from selector.serving.diagnosis.question import Question, device_of, facts_told, question_of
from selector.serving.logs.log import EngineError, Log, Told
from selector.values import Device, Facts, Phase, Policy

__all__ = ["Diagnosis", "Given", "Versions", "diagnose"]

_MOST_REMEDIES = 4
_MOST_TRIED = 8


class Given(msgspec.Struct, frozen=True):
    """What the asker says himself; it comes before what the log says."""

    fields: Mapping[str, Value | Domain] = MappingProxyType({})
    facts: Mapping[str, str | bool | None] = MappingProxyType({})


class Versions(msgspec.Struct, frozen=True):
    """The engine's version beside the manifest's.

    Attributes:
        engine: what the log says; ``None``: it says none.
        manifest: the version that the manifest states.
        differ: whether they do; ``None`` when the log says none.
        known: versions of the engine that manifests here state.
    """

    engine: Told | None
    manifest: str
    differ: bool | None
    known: tuple[str, ...]


class Diagnosis(msgspec.Struct, frozen=True):
    """What is to be said of one error of a log.

    Attributes:
        error: the engine's.
        versions: the engine's and the manifest's.
        question: the layer that was asked about.
        device: where; ``None``: neither the log nor the asker says it.
        gpu: what the log calls the GPU, whether that is known here or not.
        device_line: the line of the log that says it; ``None``: the asker does.
        contradiction: why no such layer can exist; then there is no answer.
        case: the answer: what works on that device.
        claimed: the answer with the engine's own claims, which is what the engine selects.
        candidates: who was refused, and why.
        provenance: where values came from.
        remedies: changes that give the layer a backend and leave the model as it is, nearest first.
        unforced: what runs each phase once no backend is forced, not counting the one that the
            engine refused; ``None`` when none is forced, or nothing does.
        runs_on: the architectures on which the layer runs as it is.
        fits: without a device, the architectures on which the manifest gives the log's reasons.
        other: what another version says of the question; ``None``: none was asked.
        unread: what the log says and was not understood.
    """

    error: EngineError
    versions: Versions
    question: Question
    device: Device | None
    gpu: Told | None = None
    device_line: int | None = None
    contradiction: str | None = None
    case: Case | None = None
    claimed: Case | None = None
    candidates: tuple[Compared, ...] = ()
    provenance: tuple[Provenance, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    unforced: Mapping[Phase, str] | None = None
    runs_on: tuple[str, ...] = ()
    fits: tuple[str, ...] = ()
    other: Across | None = None
    unread: tuple[Told, ...] = ()

    @property
    def runs(self) -> bool:
        """Whether the manifest has backends for the layer; without a device, on some device."""
        if self.case is None:
            return bool(self.runs_on)
        return not self.case.resolution.missing

    @property
    def differs(self) -> bool:
        """Whether the log and the manifest refuse for different reasons, or not the same."""
        return self.case is not None and not same_reasons(self.candidates)

    @property
    def only_other_version(self) -> bool:
        """Whether only a manifest of the engine's own version could tell why."""
        return self.differs and self.versions.differ is not False


def diagnose(
    error: EngineError,
    log: Log,
    selector: Selector,
    device: Device | None = None,
    given: Given | None = None,
    other: Selector | None = None,
) -> Diagnosis:
    """What was asked, who refused it and why, where values came from, and what would help.

    Args:
        error: one of the log's.
        log: what else it says.
        selector: of the engine's manifest, with what is true.
        device: where; ``None``: what the log says.
        given: fields and facts that the asker sets.
        other: of another version, which is asked the same.

    Raises:
        AttnselError: a fact that the asker sets is refused.
    """
    manifest = selector.manifest
    said = given or Given()
    question = question_of(error, log, manifest, said.fields)
    found = None if device is not None else device_of(error, log)
    where = device if found is None else found[0]
    plain = Diagnosis(
        error=error,
        versions=_versions(log, manifest),
        question=question,
        device=where,
        gpu=log.gpu,
        device_line=None if found is None else found[1],
        provenance=provenance_of(error, log, question, manifest),
        unread=log.unread,
    )
    inquiry = _inquiry(error, question, manifest, where, said, log)
    try:
        inquiry.bind(selector)
    except AttnselError as refused:
        return msgspec.structs.replace(
            plain, contradiction=str(refused), candidates=compare(error, manifest, None, None)
        )
    if where is None:
        return _nowhere(plain, inquiry, selector)
    found_here = _somewhere(plain, inquiry, selector)
    if other is None:
        return found_here
    return msgspec.structs.replace(found_here, other=_other(found_here, log, selector, other, said))


def _inquiry(
    error: EngineError,
    question: Question,
    manifest: Manifest,
    where: Device | None,
    said: Given,
    log: Log,
) -> Inquiry:
    """What to ask a manifest."""
    standard = dict.fromkeys(manifest.standard, True)
    facts = Facts({**standard, **facts_told(error, manifest), **said.facts})
    return Inquiry(where or Device("cuda"), question.layer, facts, _policy(error, log, manifest))


def _other(
    found: Diagnosis, log: Log, selector: Selector, other: Selector, said: Given
) -> Across | None:
    """The same question under another version's manifest."""
    manifest, error = other.manifest, found.error
    facts = {name: value for name, value in said.facts.items() if name in manifest.facts}
    known = msgspec.structs.replace(said, facts=facts)
    question = question_of(error, log, manifest, said.fields)
    inquiry = _inquiry(error, question, manifest, found.device, known, log)
    try:
        truth = Case(inquiry, inquiry.resolve(other), planning=True)
    except AttnselError as refused:
        return Across(manifest.ref, contradiction=str(refused))
    claims = _claims_of(other)
    claimed = Case(inquiry, inquiry.resolve(claims), planning=True, as_claimed=True)
    if found.claimed is None:
        return None
    return across(error, (selector.manifest, found.claimed), (manifest, claimed), truth)


@lru_cache(8)  # every error of a log asks for them
def _claims_of(selector: Selector) -> Selector:
    return Selector(selector.manifest.as_claimed())


def _policy(error: EngineError, log: Log, manifest: Manifest) -> Policy:
    """The backend that was forced, when the manifest has it."""
    forced = error.kind == "forced"
    if error.kind == "refused" and (stated := log.settings.get("backend")) is not None:
        forced = stated.value == error.backend
    known = forced and error.backend in manifest.entries
    return Policy(backend=error.backend) if known else Policy()


def _somewhere(plain: Diagnosis, inquiry: Inquiry, selector: Selector) -> Diagnosis:
    """The answer for a device that is known."""
    claims = _claims_of(selector)
    case = Case(inquiry, inquiry.resolve(selector), planning=True)
    claimed = Case(inquiry, inquiry.resolve(claims), planning=True, as_claimed=True)
    lacking = bool(case.resolution.missing)
    free = unforced(case, selector) if lacking else _without(case, selector)
    return msgspec.structs.replace(
        plain,
        case=case,
        claimed=claimed,
        candidates=compare(plain.error, selector.manifest, claimed, case),
        remedies=tuple(_reordered(r, plain) for r in _remedies(case, selector)) if lacking else (),
        unforced=None if free is None else MappingProxyType(free),
        runs_on=elsewhere(case, selector),
    )


def _without(case: Case, selector: Selector) -> dict[Phase, str] | None:
    """What runs each phase when the backend that the engine refused is left out, if one was."""
    forced = case.inquiry.policy.backend
    if forced is None:
        return None
    policy = Policy(deny={forced: "refused by the engine"})
    answer = msgspec.structs.replace(case.inquiry, policy=policy).resolve(selector, brief=True)
    if answer.missing:
        return None
    return {phase: str(choice_of(answer, phase).backend) for phase in answer.needed}


def _nowhere(plain: Diagnosis, inquiry: Inquiry, selector: Selector) -> Diagnosis:
    """The answer without a device: where it would run, and where the log's reasons fit."""
    error, manifest = plain.error, selector.manifest
    claims = _claims_of(selector)
    fits, runs_on = [], []
    for arch in known_capabilities():
        asked = msgspec.structs.replace(inquiry, device=Device("cuda", arch))
        case = Case(asked, asked.resolve(selector))
        if not case.resolution.missing:
            runs_on.append(arch)
        compared = compare(error, manifest, Case(asked, asked.resolve(claims)), case)
        if error.reasons and same_reasons([c for c in compared if c.said]):
            fits.append(arch)
    return msgspec.structs.replace(
        plain,
        candidates=compare(error, manifest, None, None),
        runs_on=tuple(runs_on),
        fits=tuple(fits),
    )


def _remedies(case: Case, selector: Selector) -> tuple[Remedy, ...]:
    """Changes of settings first, then of software; nobody can give a model other heads."""
    nearest = [way for way in ways(_listed(case), selector) if _is_possible(way)][:_MOST_TRIED]
    found: dict[object, Remedy] = {}
    for way in nearest:
        one = remedy(case, selector, [way])
        if one is not None and not any(_says_too(other, one) for other in found.values()):
            found.setdefault(tuple((c.field, c.after) for c in one.changes), one)
    return tuple(found.values())[:_MOST_REMEDIES]


def _reordered(found: Remedy, plain: Diagnosis) -> Remedy:
    """The remedy with the cache type first that undoes where the present one came from.

    ``auto`` is again the checkpoint's own type; a layout of the target's MLA is no kind of fp8.
    """
    source = next((p.source for p in plain.provenance if p.field == "kv_cache_dtype"), None)
    first = {Source.TARGET: "auto", Source.CHECKPOINT: str(plain.question.layer.get("dtype"))}
    wanted = first.get(source) if source else None
    changes = []
    for change in found.changes:
        values = (change.after, *change.others)
        if change.field == "kv_cache_dtype" and wanted in values[1:]:
            others = tuple(value for value in values if value != wanted)
            change = msgspec.structs.replace(change, after=str(wanted), others=others)
        changes.append(change)
    return msgspec.structs.replace(found, changes=tuple(changes))


def _says_too(one: Remedy, other: Remedy) -> bool:
    """Whether the first makes the other idle: fewer changes of the same, or the same value."""
    fields, others = ({change.field for change in r.changes} for r in (one, other))
    if fields < others:
        return True
    if one.backends != other.backends or (len(one.changes), len(other.changes)) != (1, 1):
        return False
    first, second = one.changes[0], other.changes[0]
    return first.field == second.field and second.after in (first.after, *first.others)


def _listed(case: Case) -> Case:
    """The case with those candidates only that can be chosen: the forced one, or the list's."""
    answer, forced = case.resolution, case.inquiry.policy.backend
    names = {*(answer.prefill.tried or ()), *(answer.decode.tried or ())}
    if forced is not None:
        names = {forced}
    elif answer.prefill.tried is None or answer.decode.tried is None:
        return case
    kept = tuple(c for c in answer.candidates if c.backend in names)
    return msgspec.structs.replace(
        case, resolution=msgspec.structs.replace(answer, candidates=kept)
    )


def _is_possible(way: Way) -> bool:
    return bool(way.prospect.changes) and not way.prospect.touches_model


def _versions(log: Log, manifest: Manifest) -> Versions:
    stated = manifest.ref.version
    differ = None if log.version is None else not are_same(log.version.text, stated)
    return Versions(log.version, stated, differ, tuple(sorted(known_versions(manifest))))
