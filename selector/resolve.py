"""The definition: which backend runs prefill and which runs decode, and why not the others.

Naive on purpose. Every candidate is judged against everything it states, in every phase; the
first in priority order that fits is chosen. Any faster form must give the same answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from selector.asking import BatchTotals, with_batch, with_request
from selector.choose import choosable, choose
from selector.domains import Domain, Value
from selector.errors import ContradictionError
from selector.fields import BATCH_FIELDS, REQUEST_FIELDS, show
from selector.judge import Judged, judge_all
from selector.manifest import Entry, Manifest
from selector.paths import (
    Path,
    decode_path,
    decode_thresholds,
    paths_off,
    phase_of,
    prefill_path,
    the_only,
)
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

__all__ = ["Route", "answer", "resolve", "resolve_batch", "routes_of"]


def resolve(
    manifest: Manifest,
    device: Device,
    question: Question,
    facts: Facts,
    request: Request,
    policy: Policy,
    *,
    brief: bool = False,
) -> Resolution:
    """The resolution of one request, alone in its batch.

    Args:
        manifest: the facts and the policy that goes with them.
        device: what is planned for; kept in the answer.
        question: everything that is the same for all requests of the layer
            (:func:`selector.asking.ask`), and how many run together.
        facts: versions, for ``requires``.
        request: the lengths.
        policy: what the caller denies or forces.
        brief: leave out the candidates that no list names: they are never chosen.

    Raises:
        UnknownBackendError: the policy names a backend that is not in the manifest.
    """
    for name in policy.deny:
        manifest.entry(name)
    asked = with_request(manifest, question, request)
    names = choosable(manifest, asked, policy) if brief else None
    judged = judge_all(manifest, asked, facts, policy, names)
    chosen = choose(manifest, asked, judged, policy)
    return answer(manifest, device, asked, request, chosen, judged, facts, policy)


def resolve_batch(
    manifest: Manifest,
    device: Device,
    question: Question,
    facts: Facts,
    requests: Sequence[Request],
    policy: Policy,
) -> tuple[Resolution, ...]:
    """The resolutions of requests that run together, in order.

    The question says how many they are (:func:`selector.asking.together`). Rules of scope
    ``batch`` see the longest prefill among the requests with the same prefill backend. Of a request
    that may be a decode, ``path`` is what it takes if it is none.

    Raises:
        ContradictionError: a length is unknown.
        UnknownBackendError: the policy names a backend that is not in the manifest.
    """
    _check_lengths(requests)
    alone: dict[Request, Resolution] = {}
    for request in requests:
        if request not in alone:
            alone[request] = resolve(manifest, device, question, facts, request, policy)
    answers = [alone[request] for request in requests]
    takers = [
        _Taker(r.prefill.backend, r.decode.backend, r.decode.decode_threshold, r.phase)
        for r in answers
    ]
    routes = _routes(manifest, question, facts, requests, policy, takers)
    return tuple(
        msgspec.structs.replace(
            answer,
            phase=route.phase,
            off=route.off,
            prefill=msgspec.structs.replace(answer.prefill, **msgspec.structs.asdict(route.path)),
        )
        for answer, route in zip(answers, routes, strict=True)
    )


class Route(msgspec.Struct, frozen=True):
    """What a request of a batch counts as, by which threshold, and the path it takes."""

    phase: Phase | None
    path: Path
    threshold: int | None
    off: tuple[PathOff, ...] = ()


def routes_of(
    manifest: Manifest,
    question: Question,
    facts: Facts,
    requests: Sequence[Request],
    policy: Policy,
    backend: str,
) -> tuple[Route, ...]:
    """What a backend would make of requests that run together, were the layer given to it.

    Whether it accepts the layer is not asked.

    Raises:
        ContradictionError: a length is unknown.
        UnknownBackendError: the backend is not in the manifest.
    """
    _check_lengths(requests)
    entry = manifest.entry(backend)
    takers = []
    for request in requests:
        asked = with_request(manifest, question, request)
        thresholds = decode_thresholds(entry, asked, request.speculative_tokens)
        phase = phase_of(thresholds, request.query_len)
        takers.append(_Taker(backend, backend, the_only(thresholds), phase))
    return _routes(manifest, question, facts, requests, policy, takers)


def _check_lengths(requests: Sequence[Request]) -> None:
    if any(r.query_len is None or r.seq_len is None for r in requests):
        raise ContradictionError("a batch needs query_len and seq_len of every request")


class _Taker(msgspec.Struct, frozen=True):
    """The backends that take a request, and what it counts as by itself."""

    prefill: str | None
    decode: str | None
    threshold: int | None
    phase: Phase | None


def _routes(
    manifest: Manifest,
    question: Question,
    facts: Facts,
    requests: Sequence[Request],
    policy: Policy,
    takers: Sequence[_Taker],
) -> tuple[Route, ...]:
    phases = _split(manifest, requests, takers)
    sure: dict[str | None, list[Request]] = {}
    maybe: dict[str | None, list[Request]] = {}
    for request, taker, phase in zip(requests, takers, phases, strict=True):
        if phase is not Phase.DECODE:
            maybe.setdefault(taker.prefill, []).append(request)
        if phase is Phase.PREFILL or taker.decode is None:
            sure.setdefault(taker.prefill, []).append(request)
    most = {name: _totals(requests_) for name, requests_ in maybe.items()}
    least = {name: _totals(requests_) for name, requests_ in sure.items()}
    found: dict[tuple[Request, _Taker, Phase | None], Route] = {}
    for request, taker, phase in zip(requests, takers, phases, strict=True):
        if (request, taker, phase) in found:
            continue
        batch = asked = with_request(manifest, question, request)
        if phase is not Phase.DECODE:
            certain = least.get(taker.prefill)
            if certain is None or request not in sure[taker.prefill]:
                certain = _totals([request]).joined(certain)
            batch = with_batch(manifest, question, certain, most[taker.prefill])
        path = _path(manifest, taker, phase, asked, batch, facts, policy)
        entry = manifest.entries.get(taker.prefill or "")
        off = tuple(paths_off(manifest, entry, batch)) if entry else ()
        found[request, taker, phase] = Route(phase, path, taker.threshold, off)
    return tuple(found[key] for key in zip(requests, takers, phases, strict=True))


def _totals(requests: Sequence[Request]) -> BatchTotals:
    lengths = [(r.query_len or 0, r.seq_len or 0) for r in requests]
    return BatchTotals(
        num_prefills=len(lengths),
        query_len=max(q for q, _ in lengths),
        seq_len=max(s for _, s in lengths),
        context_len=max(s - q for q, s in lengths),
    )


def _split(
    manifest: Manifest, requests: Sequence[Request], takers: Sequence[_Taker]
) -> list[Phase | None]:
    """What each request of a batch counts as; ``None`` where that is unknown.

    For an entry with ``uniform_decodes``, only the leading requests with the first one's query
    length are decodes; with a threshold of one token, all that fit are.
    """
    phases = [taker.phase for taker in takers]
    leads = Answer.YES  # whether the requests so far are leading decodes
    for i, (request, taker) in enumerate(zip(requests, takers, strict=True)):
        if taker.decode is None or not manifest.entries[taker.decode].uniform_decodes:
            continue
        if phases[i] is Phase.PREFILL or request.query_len != requests[0].query_len:
            leads = Answer.NO
        elif phases[i] is None and leads is Answer.YES:
            leads = Answer.MAYBE
        if phases[i] is Phase.DECODE and leads is not Answer.YES and taker.threshold != 1:
            certain = leads is Answer.NO and taker.threshold is not None
            phases[i] = Phase.PREFILL if certain else None
    return phases


def _path(
    manifest: Manifest,
    taker: _Taker,
    phase: Phase | None,
    asked: Question,
    batch: Question,
    facts: Facts,
    policy: Policy,
) -> Path:
    """The path of a request. One that counts as a decode takes the decode backend's."""
    if taker.prefill is None:
        return Path()
    if phase is Phase.DECODE and taker.decode is not None:
        path = decode_path(manifest.entries[taker.decode])
        return Path(path, (path,))
    return prefill_path(manifest, manifest.entries[taker.prefill], asked, batch, facts, policy)


# -- the answer ----------------------------------------------------------------------------------


def _coercions(entry: Entry, asked: Question) -> Iterator[Coercion]:
    after = entry.coerced(asked)
    for name, rules in entry.coerce.items():
        if after.possible(name) != asked.possible(name):
            rule = next(m.rule for m in rules.matches(asked) if m.rule.result != "same")
            yield Coercion(name, asked.text(name), after.text(name), rule.position, rule.reason)


def answer(
    manifest: Manifest,
    device: Device,
    asked: Question,
    request: Request,
    chosen: tuple[Choice, Choice],
    judged: Judged,
    facts: Facts,
    policy: Policy,
) -> Resolution:
    """The resolution that follows from the choice and the verdicts; it marks what is selected."""
    prefill, decode = chosen
    thresholds: tuple[int, ...] = ()
    if decode.backend is not None:
        entry = manifest.entries[decode.backend]
        thresholds = decode_thresholds(entry, asked, request.speculative_tokens)
        own = decode_path(entry)
        decode = _complete(manifest, decode, asked, Path(own, (own,)), thresholds)
    phase = phase_of(thresholds, request.query_len)
    taker = _Taker(prefill.backend, decode.backend, decode.decode_threshold, phase)
    path = _path(manifest, taker, phase, asked, asked, facts, policy)
    prefill = _complete(manifest, prefill, asked, path, ())
    for phase_, choice in ((Phase.PREFILL, prefill), (Phase.DECODE, decode)):
        if choice.backend is not None:
            verdict = judged[choice.backend][phase_]
            judged[choice.backend][phase_] = msgspec.structs.replace(
                verdict, outcome=Outcome.SELECTED
            )
    off = paths_off(manifest, manifest.entries[prefill.backend], asked) if prefill.backend else ()
    return Resolution(
        manifest=manifest.ref,
        device=device,
        layer=_layer(manifest, asked),
        request=request,
        phase=phase,
        prefill=prefill,
        decode=decode,
        off=tuple(off),
        notes=tuple(_broken(manifest, asked, prefill, decode)),
        candidates=tuple(
            Candidate(
                e.name, e.position, judged[e.name][Phase.PREFILL], judged[e.name][Phase.DECODE]
            )
            for e in manifest.entries.values()
            if e.name in judged
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
    manifest: Manifest, choice: Choice, asked: Question, path: Path, thresholds: tuple[int, ...]
) -> Choice:
    if choice.backend is None:
        return choice
    return msgspec.structs.replace(
        choice,
        path=path.path,
        paths=path.paths,
        path_rules=path.path_rules,
        by=path.by,
        coercions=tuple(_coercions(manifest.entries[choice.backend], asked)),
        decode_threshold=the_only(thresholds),
    )


def _layer(manifest: Manifest, asked: Question) -> dict[str, Value]:
    """The layer's fields as the answer shows them: values, or the set in words."""
    skipped = {"platform", "capability", *manifest.facts, *manifest.derive}
    skipped |= {*REQUEST_FIELDS, "total_num_heads", "model_num_heads", "heads_divide"}
    if asked.known("num_reqs") == 1:  # nobody said it, or it says nothing
        skipped |= BATCH_FIELDS
    skipped |= {m.name for m in manifest.measures}
    shown: dict[str, Value] = {}
    for name, value in asked.items():
        default = manifest.defaults.get(name)
        if name in skipped or (default and default.of(asked) == value):
            continue
        field = manifest.vocabulary.fields[name]
        shown[name] = asked.text(name) if isinstance(value, Domain) else value
        if field.type == "capability":
            shown[name] = show(field, shown[name])
    return shown
