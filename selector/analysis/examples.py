"""Questions that show something, as the definition answers them; no more said than is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from selector.analysis.space import Space
from selector.analysis.witness import Witness, witness_of
from selector.asking import with_request
from selector.binding import Selector
from selector.changes.case import candidate_of, verdict_of
from selector.domains import Domain, Value
from selector.errors import AttnselError
from selector.manifest import Invariant
from selector.rules import Question
from selector.values import Device, Facts, Layer, Outcome, Phase, Request, Resolution

__all__ = ["Example", "Shows", "asked_in", "breaks", "example_of", "is_eligible", "shorten"]

Shows = Callable[[Resolution], bool]
"""Whether an answer shows what is looked for."""

_USUAL: Mapping[str, tuple[Value, ...]] = {
    "head_size": (128, 576),
    "dtype": ("bfloat16", "float16"),
    "kv_cache_dtype": ("auto", "fp8"),
    "attn_type": ("decoder",),
    "num_heads": (32,),
    "v_head_dim": (128,),
}
"""Values that people know, to say instead of others that do as well."""


class Example(msgspec.Struct, frozen=True):
    """A question, and the definition's answer to it."""

    witness: Witness
    answer: Resolution


def example_of(
    space: Space,
    selector: Selector,
    classes: Mapping[str, Domain],
    shows: Shows,
    lengths: Sequence[tuple[int, int]] = (),
) -> Example | None:
    """A question of these classes whose answer shows something; ``None``: none was found.

    Args:
        space: what the classes are from.
        selector: answers.
        classes: of the question.
        shows: what is looked for.
        lengths: more lengths to try, query and sequence.
    """
    witness = witness_of(space, classes)
    if witness is None:
        return None
    first = witness.request
    tried = [first, *(Request(q, s) for q, s in lengths)]
    tried += [Request(q, first.seq_len) for q, _ in lengths if q <= (first.seq_len or 0)]
    for request in dict.fromkeys(tried):
        answer = _answer(selector, witness.device, witness.layer.fields, witness.facts, request)
        if answer is None:
            return None
        if shows(answer):
            found = Example(msgspec.structs.replace(witness, request=request), answer)
            return shorten(selector, found, shows)
    return None


def breaks(promise: Invariant) -> Shows:
    """What tells answers that break a promise: the note that the definition puts on them."""
    lead = f'breaks the invariant "{promise.name}": '

    def shows(answer: Resolution) -> bool:
        return any(note.startswith(lead) for note in answer.notes)

    return shows


def asked_in(selector: Selector, example: Example) -> Question:
    """The question of an example as rules see it."""
    witness = example.witness
    bound = selector.bind(witness.device, witness.layer, witness.facts)
    return with_request(selector.manifest, bound.question, witness.request)


def _answer(
    selector: Selector, device: Device, fields: Mapping[str, Any], facts: Facts, request: Request
) -> Resolution | None:
    """The definition's answer; ``None`` where there is no such layer or something is not known."""
    try:
        answer = selector.bind(device, Layer(fields), facts).resolve_one(request)
    except AttnselError:
        return None
    return None if any(_doubts(answer)) else answer


def _doubts(answer: Resolution) -> Iterator[bool]:
    """Yields whether something unknown could change a choice or its path."""
    for choice in (answer.prefill, answer.decode):
        yield bool(choice.conditions)
        yield choice.backend is None and bool(choice.possible)
        yield len(choice.paths) > 1


def shorten(selector: Selector, example: Example, shows: Shows) -> Example:
    """The same in values that people know, with what makes no difference left unsaid."""
    witness, answer = example.witness, example.answer
    request, fields = witness.request, dict(witness.layer.fields)
    facts = dict(witness.facts.values)

    def try_(fields: Mapping[str, Any], facts: Mapping[str, Any]) -> Resolution | None:
        found = _answer(selector, witness.device, fields, Facts(facts), request)
        return found if found and _same(found, answer) and shows(found) else None

    for name in [*fields]:
        without = {n: v for n, v in fields.items() if n != name}
        ways = [without, *({**fields, name: value} for value in _USUAL.get(name, ()))]
        for way in ways:
            if way != fields and (found := try_(way, facts)):
                answer, fields = found, way
                break
            if way == fields:
                break
    for fact in [*facts]:
        fewer = {n: v for n, v in facts.items() if n != fact}
        if found := try_(fields, fewer):
            answer, facts = found, fewer
    return Example(Witness(witness.device, Layer(fields), Facts(facts), request), answer)


def _same(one: Resolution, other: Resolution) -> bool:
    pairs = ((one.prefill, other.prefill), (one.decode, other.decode))
    return all((a.backend, a.paths) == (b.backend, b.paths) for a, b in pairs)


def is_eligible(answer: Resolution, backend: str, phase: Phase) -> bool:
    """Whether a backend would do in a phase, and another one comes first."""
    return verdict_of(candidate_of(answer, backend), phase).outcome is Outcome.ELIGIBLE
