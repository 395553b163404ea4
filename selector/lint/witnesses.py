"""Questions made of what a search left, and asked of the definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from selector.binding import Selector
from selector.domains import Domain, Value
from selector.errors import AttnselError
from selector.fields import ABSENT, REQUEST_FIELDS, UNSET, capability_text
from selector.lint.questions import Questions
from selector.manifest import Manifest
from selector.values import Device, Facts, Layer, Phase, Request, Resolution

__all__ = ["Asked", "ask", "question_of"]

_USUAL = (1, 16, 64, 128, 256, 512, 576, 2048)


class Asked(msgspec.Struct, frozen=True):
    """A question: everything that some rule looks at is known."""

    device: Device
    layer: Layer
    facts: Facts
    request: Request


def question_of(questions: Questions, left: Sequence[int]) -> Asked:
    """A question whose fields have values that a search left; usual ones, where they are left."""
    manifest, words = questions.manifest, questions.manifest.vocabulary
    chosen: dict[str, Value | None] = {}
    told = set()
    for name, place in questions.fields.items():
        values, mask = questions.values[place], left[place]
        possible = [*values.of(mask)]
        if manifest.facts.get(name) == "version":
            chosen[name] = next((v for v in possible if isinstance(v, str)), possible[0])
        else:
            chosen[name] = _usual(manifest, name, possible)
        if mask != values.all:
            told.add(name)
    facts = {n: _fact(chosen[n]) for n in manifest.facts if n in chosen}
    others = {"platform", "capability", *REQUEST_FIELDS, *manifest.derive, *manifest.facts}
    others |= {measure.name for measure in manifest.measures}
    layer: dict[str, Value | Domain] = {
        name: value
        for name, value in chosen.items()
        if value is not None
        and name in words.fields
        and name not in others
        and (name in told or name not in manifest.defaults)
    }
    code = chosen["capability"]
    device = Device(
        str(chosen["platform"]), capability_text(code) if isinstance(code, int) else None
    )
    lengths = {name: chosen[name] for name in REQUEST_FIELDS if name in told}
    return Asked(device, Layer(MappingProxyType(layer)), Facts(facts), _request(lengths))


def _usual(manifest: Manifest, name: str, values: Sequence[Value | None]) -> Value | None:
    """A value that asks for nothing where there is one, else one that models have."""
    default = manifest.defaults.get(name)
    wanted: tuple[Value | None, ...] = (
        manifest.vocabulary.off.get(name),
        default.value if default else None,
        UNSET,
        ABSENT,
        *_USUAL,
    )
    kinds = {(type(value), value) for value in values}  # True is no 1
    usual = (one for one in wanted if one is not None and (type(one), one) in kinds)
    return next(usual, values[0])


def _fact(value: Value | None) -> str | bool | None:
    return value if value is None or isinstance(value, bool) else str(value)


def _request(lengths: Mapping[str, Value | None]) -> Request:
    """A request of these lengths, as far as they go together."""
    query, seq, context = map(lengths.get, ("query_len", "seq_len", "context_len"))
    if context is None and lengths.get("has_context") is not None:
        context = 1 if lengths["has_context"] else 0
    new = query if isinstance(query, int) else 1
    if isinstance(seq, int):
        if query is None and isinstance(context, int):
            new = seq - context
        return Request(max(1, min(new, seq)), max(seq, 1))
    return Request(new, new + context if isinstance(context, int) else new)


def ask(manifest: Manifest, names: Iterable[str], asked: Asked) -> Resolution | None:
    """The definition's answer when only some entries are there; ``None``: no such question is."""
    kept = {name: entry for name, entry in manifest.entries.items() if name in {*names}}
    priorities = tuple(
        msgspec.structs.replace(
            one,
            orders=MappingProxyType(
                {phase: tuple(n for n in order if n in kept) for phase, order in one.orders.items()}
            ),
        )
        for one in manifest.priorities
    )
    deny = tuple(one for one in manifest.deny if one.backend in kept)
    fewer = msgspec.structs.replace(
        manifest,
        entries=MappingProxyType(kept),
        priorities=priorities,
        deny=deny,
        invariants=(),
    )
    try:
        bound = Selector(fewer).bind(asked.device, asked.layer, asked.facts)
        return bound.resolve_one(asked.request)
    except AttnselError:
        return None


def chosen_in(answer: Resolution, phase: Phase) -> str | None:
    """What an answer chooses in a phase for certain."""
    choice = answer.prefill if phase is Phase.PREFILL else answer.decode
    return None if choice.conditions else choice.backend
