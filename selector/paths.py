"""Paths: what a request counts as for a backend, and how that backend computes its prefill."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from selector.choose import dense_backend
from selector.domains import Domain, Value
from selector.fields import REQUEST_FIELDS
from selector.manifest import SPARSE_PATH, Entry, Manifest, PathRule
from selector.rules import Answer, Question
from selector.values import Facts, Outcome, PathOff, Phase, Policy, Position

__all__ = [
    "Path",
    "decode_path",
    "decode_thresholds",
    "paths_off",
    "phase_of",
    "prefill_path",
    "taken",
    "the_only",
]


Dense = Callable[[Question], tuple[Answer, str | None]]
"""What a layer would be, were it not sparse → whether a backend prefills it, and which."""


class Path(msgspec.Struct, frozen=True):
    """How a request's prefill is computed.

    Attributes:
        path: the one, or ``None`` when that depends on something unknown.
        paths: all that are possible.
        path_rules: the rule that gives each of them, where one does.
        by: the backend that computes a dense path, where that is another one.
    """

    path: str | None = None
    paths: tuple[str, ...] = ()
    path_rules: tuple[Position, ...] = ()
    by: str | None = None


def decode_thresholds(entry: Entry, asked: Question, speculative_tokens: int) -> tuple[int, ...]:
    """The longest queries that can count as a decode, in tokens: one, when nothing is unknown."""
    rules = entry.decode_threshold
    matches = rules.matches(entry.coerced(asked)) if rules else ()
    return tuple(max(m.rule.result, 1 + speculative_tokens) for m in matches)


def the_only(thresholds: tuple[int, ...]) -> int | None:
    """The threshold, in tokens, when only one is possible."""
    return thresholds[0] if len(set(thresholds)) == 1 else None


def phase_of(thresholds: tuple[int, ...], query_len: int | None) -> Phase | None:
    """What a request counts as; ``None`` where that is unknown."""
    if query_len is None or not thresholds:
        return None
    fits = {query_len <= t for t in thresholds}
    if len(fits) > 1:
        return None
    return Phase.DECODE if True in fits else Phase.PREFILL


def decode_path(entry: Entry) -> str:
    """How an entry computes decodes, and prefills that count as decodes."""
    if entry.sparse:
        return SPARSE_PATH
    return "mqa" if entry.mla else "mha"


def prefill_path(
    manifest: Manifest,
    entry: Entry,
    asked: Question,
    batch: Question,
    facts: Facts,
    policy: Policy,
    dense: Dense | None = None,
) -> Path:
    """The path of a request's prefill, given that the entry runs it.

    Args:
        manifest: gives the backend that computes dense paths.
        entry: the prefill backend.
        asked: the question with the request's own lengths.
        batch: the question with the batch's.
        facts: versions, for ``requires``.
        policy: what the caller denies.
        dense: gives the backend of dense paths, where that is known; else the manifest is asked.
    """
    own = _as_run(manifest, entry, asked)
    shared = own if batch is asked else _as_run(manifest, entry, batch)
    found: dict[str, list[tuple[PathRule, str | None]]] = {}
    answer = Answer.NO
    for rule in entry.prefill_paths:
        sees = shared if rule.batch else own
        answer = taken(entry, rule, sees)
        runs: str | None = None
        if rule.by_dense_backend and answer is not Answer.NO:
            there, runs = dense(sees) if dense else dense_backend(manifest, sees, facts, policy)
            answer = min(answer, there, key=lambda a: a.value)
        if answer is not Answer.NO:
            found.setdefault(rule.path, []).append((rule, runs))
        if answer is Answer.YES:
            break
    paths, rules = tuple(found), tuple(ways[0][0].position for ways in found.values())
    if answer is Answer.YES and len(paths) == 1:
        by = {runs for _, runs in found[paths[0]]}
        return Path(paths[0], paths, rules, by.pop() if len(by) == 1 else None)
    return Path(None, paths, rules)


def _as_run(manifest: Manifest, entry: Entry, asked: Question) -> Question:
    """The question as the entry sees it once it runs: accepted, then coerced."""
    accepted = _as_accepted(manifest, entry, asked)
    return entry.coerced(accepted).derived(manifest.derive) if entry.coerce else accepted


def _as_accepted(manifest: Manifest, entry: Entry, asked: Question) -> Question:
    """The question, where what is unknown of the layer is something that the entry accepts.

    What changes with the request is left as it is: a batch's lengths are not one request's.
    """
    spec = entry.phases.get(Phase.PREFILL)
    changing = {*REQUEST_FIELDS, *manifest.changing, *(m.name for m in manifest.measures)}
    narrowed: dict[str, Value | Domain] = {}
    for name, accepted in spec.accepts.items() if spec else ():
        if asked.known(name) is None and name not in changing and len(accepted.rules) == 1:
            _, allowed = accepted.rules[0].result.allowed.within(asked)
            both = asked.possible(name) & allowed
            if not both.is_empty():
                only = both.only()
                narrowed[name] = both if only is None else only
    return asked.plus(narrowed).derived(manifest.derive) if narrowed else asked


def taken(entry: Entry, rule: PathRule, asked: Question) -> Answer:
    """Whether a path rule holds for a question as the entry runs it, but for a dense backend."""
    answers = [rule.when.answer(asked)]
    if answers[0] is Answer.NO:
        return Answer.NO
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
    answers = [Answer.MAYBE if layer is None else Answer.YES if layer is True else Answer.NO]
    for rule in entry.dense_prefill_except:
        answers.append(Answer(Answer.YES.value - rule.when.answer(asked).value))
    return min(answers, key=lambda a: a.value)


def paths_off(manifest: Manifest, entry: Entry, asked: Question) -> Iterator[PathOff]:
    """Yields the dense paths of a sparse entry that something switches off."""
    if not entry.sparse:
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
        return
    if asked.known("dense_prefill") is False:
        why = "the layer's own contract: its prefill may not be computed densely"
        for path in dense:
            yield PathOff(entry.name, path, Outcome.UNSUPPORTED, position, why)
        return
    used = _as_run(manifest, entry, asked)
    for rule in entry.dense_prefill_except:
        if rule.when.answer(used) is Answer.YES:
            for path in dense:
                yield PathOff(entry.name, path, Outcome.UNSUPPORTED, rule.position, rule.reason)
            return
