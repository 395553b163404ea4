"""The definition: which backend runs prefill and which runs decode, and why not the others.

Naive on purpose. Every candidate is judged against everything it states, in every phase; the
first in priority order that fits is chosen. Any faster form must give the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from selector.asking import BatchTotals, with_batch, with_request
from selector.choose import choose
from selector.domains import Domain, Value
from selector.errors import ContradictionError, UnknownBackendError
from selector.fields import close_matches, one_line, show
from selector.judge import Judged, coerced, judge_all
from selector.manifest import SPARSE_PATH, Entry, Manifest, PathRule
from selector.rules import Answer, Question
from selector.values import (
    Candidate,
    Choice,
    Coercion,
    Device,
    Facts,
    Outcome,
    PathOff,
    Phase,
    Policy,
    Request,
    Resolution,
)

__all__ = ["resolve", "resolve_batch"]


def resolve(
    manifest: Manifest,
    device: Device,
    question: Question,
    facts: Facts,
    request: Request,
    policy: Policy,
) -> Resolution:
    """The resolution of one request, alone in its batch.

    Args:
        manifest: the facts and the policy that goes with them.
        device: what is planned for; kept in the answer.
        question: everything that is the same for all requests of the layer
            (:func:`selector.asking.ask`).
        facts: versions, for ``requires``.
        request: the lengths.
        policy: what the caller denies or forces.

    Raises:
        UnknownBackendError: the policy names a backend that is not in the manifest.
    """
    _check_names(manifest, policy)
    asked = with_request(manifest, question, request)
    judged = judge_all(manifest, asked, facts, policy)
    prefill, decode = choose(manifest, asked, judged, policy)
    threshold = _threshold(manifest, decode, asked, request)
    phase = _phase_of(threshold, request)
    return _answer(manifest, device, asked, request, phase, (prefill, decode), judged)


def resolve_batch(
    manifest: Manifest,
    device: Device,
    question: Question,
    facts: Facts,
    requests: Sequence[Request],
    policy: Policy,
) -> tuple[Resolution, ...]:
    """The resolutions of requests that run together, in order.

    Rules of scope ``batch`` see the longest prefill among the requests with the same prefill
    backend. Of a request that may be a decode, ``path`` is what it takes if it is none.

    Raises:
        ContradictionError: a length is unknown.
        UnknownBackendError: the policy names a backend that is not in the manifest.
    """
    if any(r.query_len is None or r.seq_len is None for r in requests):
        raise ContradictionError("a batch needs query_len and seq_len of every request")
    alone = [resolve(manifest, device, question, facts, r, policy) for r in requests]
    phases = _split(manifest, alone)
    sure: dict[str | None, list[Request]] = {}
    maybe: dict[str | None, list[Request]] = {}
    for mine, phase in zip(alone, phases, strict=True):
        if phase is not Phase.DECODE:
            maybe.setdefault(mine.prefill.backend, []).append(mine.request)
        if phase is Phase.PREFILL or mine.decode.backend is None:
            sure.setdefault(mine.prefill.backend, []).append(mine.request)
    most = {name: _totals(requests_) for name, requests_ in maybe.items()}
    least = {name: _totals(requests_) for name, requests_ in sure.items()}
    answers: list[Resolution] = []
    for mine, phase in zip(alone, phases, strict=True):
        batch = asked = with_request(manifest, question, mine.request)
        if phase is not Phase.DECODE:
            name = mine.prefill.backend
            certain = least.get(name)
            if certain is None or mine.request not in sure[name]:
                certain = _totals([mine.request]).joined(certain)
            batch = with_batch(manifest, question, certain, most[name])
        path, paths = _prefill_path(manifest, mine.prefill, phase, mine.decode, asked, batch)
        prefill = msgspec.structs.replace(mine.prefill, path=path, paths=paths)
        answers.append(msgspec.structs.replace(mine, phase=phase, prefill=prefill))
    return tuple(answers)


def _check_names(manifest: Manifest, policy: Policy) -> None:
    forced = (policy.backend, policy.prefill_backend, policy.decode_backend)
    for name in (*policy.deny, *(f for f in forced if f is not None)):
        if name not in manifest.entries:
            near = close_matches(name, manifest.entries, 0.4)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UnknownBackendError(f'no backend is called "{one_line(name)}"{hint}')


def _totals(requests: Sequence[Request]) -> BatchTotals:
    lengths = [(r.query_len or 0, r.seq_len or 0) for r in requests]
    return BatchTotals(
        num_prefills=len(lengths),
        query_len=max(q for q, _ in lengths),
        seq_len=max(s for _, s in lengths),
        context_len=max(s - q for q, s in lengths),
    )


def _split(manifest: Manifest, alone: Sequence[Resolution]) -> list[Phase | None]:
    """What each request of a batch counts as; ``None`` where that is unknown.

    For an entry with ``uniform_decodes``, only the leading requests with the first one's query
    length are decodes; with a threshold of one token, all that fit are.
    """
    phases = [r.phase for r in alone]
    leading = True
    for i, mine in enumerate(alone):
        name = mine.decode.backend
        if name is None or not manifest.entries[name].uniform_decodes:
            continue
        same_length = mine.request.query_len == alone[0].request.query_len
        leading = leading and phases[i] is Phase.DECODE and same_length
        if not leading and phases[i] is Phase.DECODE and mine.decode.decode_threshold != 1:
            phases[i] = None if mine.decode.decode_threshold is None else Phase.PREFILL
    return phases


# -- paths, thresholds, the answer ---------------------------------------------------------------


def _threshold(
    manifest: Manifest, decode: Choice, asked: Question, request: Request
) -> tuple[int, ...]:
    """The decode thresholds possible, in tokens."""
    if decode.backend is None:
        return ()
    rules = manifest.entries[decode.backend].decode_threshold
    matches = rules.matches(asked) if rules else ()
    return tuple(max(m.rule.result, 1 + request.speculative_tokens) for m in matches)


def _phase_of(thresholds: tuple[int, ...], request: Request) -> Phase | None:
    if request.query_len is None or not thresholds:
        return None
    fits = {request.query_len <= t for t in thresholds}
    if len(fits) > 1:
        return None
    return Phase.DECODE if True in fits else Phase.PREFILL


def _decode_path(entry: Entry) -> str:
    if entry.sparse:
        return SPARSE_PATH
    return "mqa" if entry.mla else "mha"


def _prefill_path(
    manifest: Manifest,
    prefill: Choice,
    phase: Phase | None,
    decode: Choice,
    asked: Question,
    batch: Question,
) -> tuple[str | None, tuple[str, ...]]:
    """The path of a request's prefill: the one, and all that are possible.

    A request that counts as a decode takes the decode backend's path, whatever its length.
    """
    if prefill.backend is None:
        return None, ()
    if phase is Phase.DECODE and decode.backend is not None:
        path = _decode_path(manifest.entries[decode.backend])
        return path, (path,)
    entry = manifest.entries[prefill.backend]
    paths: list[str] = []
    answer = Answer.NO
    for rule in entry.prefill_paths:
        answer = _taken(entry, rule, coerced(entry, batch if rule.batch else asked))
        if answer is not Answer.NO and rule.path not in paths:
            paths.append(rule.path)
        if answer is Answer.YES:
            break
    certain = answer is Answer.YES and len(paths) == 1
    return (paths[0] if certain else None), tuple(paths)


def _taken(entry: Entry, rule: PathRule, asked: Question) -> Answer:
    answers = [rule.when.answer(asked)]
    if rule.steps is not None:
        answers.append(rule.steps.answer(asked))
    if entry.sparse and rule.path != SPARSE_PATH:
        answers.append(_may_be_dense(entry, asked))
    return min(answers, key=lambda a: a.value)


def _may_be_dense(entry: Entry, asked: Question) -> Answer:
    """A dense path needs the entry's word and the layer's."""
    if entry.dense_prefill is not True:
        return Answer.NO
    layer = asked.known("dense_prefill")
    if layer is None:
        return Answer.MAYBE
    return Answer.YES if layer is True else Answer.NO


def _paths_off(manifest: Manifest, backend: str | None, asked: Question) -> Iterator[PathOff]:
    """Yields the dense paths of the chosen prefill backend that something switches off."""
    entry = manifest.entries.get(backend or "")
    if entry is None or not entry.sparse:
        return
    dense = dict.fromkeys(r.path for r in entry.prefill_paths if r.path != SPARSE_PATH)
    position = entry.dense_prefill_at or entry.position
    if entry.dense_prefill is False:
        pinned = "dense_prefill" in entry.pinned
        for path in dense or ("dense_mha",):
            yield PathOff(
                backend=entry.name,
                path=path,
                outcome=Outcome.PINNED if pinned else Outcome.UNSUPPORTED,
                position=position,
                rationale=entry.rationale or "",
                evidence=entry.evidence,
                revisit_when=entry.revisit_when,
            )
    elif asked.known("dense_prefill") is False:
        why = "the layer's own contract: its prefill may not be computed densely"
        for path in dense:
            yield PathOff(entry.name, path, Outcome.UNSUPPORTED, position, why)


def _coercions(entry: Entry, asked: Question) -> Iterator[Coercion]:
    after = coerced(entry, asked)
    for name, rules in entry.coerce.items():
        if after.possible(name) != asked.possible(name):
            rule = next(m.rule for m in rules.matches(asked) if m.rule.result != "same")
            yield Coercion(name, asked.text(name), after.text(name), rule.position, rule.reason)


def _answer(
    manifest: Manifest,
    device: Device,
    asked: Question,
    request: Request,
    phase: Phase | None,
    chosen: tuple[Choice, Choice],
    judged: Judged,
) -> Resolution:
    prefill, decode = chosen
    thresholds = _threshold(manifest, decode, asked, request)
    path, paths = _prefill_path(manifest, prefill, phase, decode, asked, asked)
    prefill = _complete(manifest, prefill, asked, path, paths, ())
    if decode.backend is not None:
        decode_path = _decode_path(manifest.entries[decode.backend])
        decode = _complete(manifest, decode, asked, decode_path, (decode_path,), thresholds)
    for phase_, choice in ((Phase.PREFILL, prefill), (Phase.DECODE, decode)):
        if choice.backend is not None:
            verdict = judged[choice.backend][phase_]
            judged[choice.backend][phase_] = msgspec.structs.replace(
                verdict, outcome=Outcome.SELECTED
            )
    return Resolution(
        manifest=manifest.ref,
        device=device,
        layer=_layer(manifest, asked),
        request=request,
        phase=phase,
        prefill=prefill,
        decode=decode,
        off=tuple(_paths_off(manifest, prefill.backend, asked)),
        notes=tuple(_broken(manifest, asked, prefill, decode)),
        candidates=tuple(
            Candidate(
                e.name, e.position, judged[e.name][Phase.PREFILL], judged[e.name][Phase.DECODE]
            )
            for e in manifest.entries.values()
        ),
    )


def _broken(manifest: Manifest, asked: Question, prefill: Choice, decode: Choice) -> Iterator[str]:
    """Yields a note for each invariant that the answer breaks: the manifest is at fault."""
    backends = {prefill.backend, decode.backend}
    paths = {*prefill.paths, *decode.paths}
    for promise in manifest.invariants:
        broken = backends & promise.never_backends or paths & promise.never_paths
        if broken and promise.when.answer(asked) is Answer.YES:
            yield f'breaks the invariant "{promise.name}": {promise.reason}'


def _complete(
    manifest: Manifest,
    choice: Choice,
    asked: Question,
    path: str | None,
    paths: tuple[str, ...],
    thresholds: tuple[int, ...],
) -> Choice:
    if choice.backend is None:
        return choice
    return msgspec.structs.replace(
        choice,
        path=path,
        paths=paths,
        coercions=tuple(_coercions(manifest.entries[choice.backend], asked)),
        decode_threshold=thresholds[0] if len(set(thresholds)) == 1 else None,
    )


def _layer(manifest: Manifest, asked: Question) -> dict[str, Value]:
    """The layer's fields as the answer shows them: values, or the set in words."""
    skipped = {"platform", "capability", *manifest.facts, *manifest.derive}
    skipped |= {"query_len", "seq_len", "context_len", "has_context", "num_prefills"}
    skipped |= {m.name for m in manifest.measures}
    shown: dict[str, Value] = {}
    for name, value in asked.items():
        if name not in skipped:
            field = manifest.vocabulary.fields[name]
            shown[name] = asked.text(name) if isinstance(value, Domain) else value
            if field.type == "capability":
                shown[name] = show(field, shown[name])
    return shown
