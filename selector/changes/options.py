"""What a person could change so that one rejection goes away: values to try, nearest first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from selector.binding import Bound
from selector.changes.case import Inquiry, Shard
from selector.domains import EMPTY, Domain, Value
from selector.fields import BUILTIN, Field, show
from selector.manifest import Entry, Manifest
from selector.rules import Answer, Constraint, FirstMatch, Question, Test, inputs_of
from selector.values import Code, Layer, Phase, Rejection, Request

__all__ = ["FIXED", "Kind", "Option", "immovable", "options"]


_MOST_VALUES = 5
_TENSOR_PARALLEL = (1, 2, 4, 8, 16, 32)

FIXED = frozenset({"platform", "capability", "mla", "sparse", "attn_type"})
"""Fields that make it another device or another kind of layer."""

_SETTINGS = frozenset(
    {
        "dtype",
        "kv_cache_dtype",
        "block_size",
        "per_head_quant_scales",
        "batch_invariant",
        "kv_connector",
        "adaptive_verification",
        "pcp",
        "dcp",
        "tp_size",
        "pp_size",
        "dcp_size",
        "pcp_size",
        "num_reqs",
        "batch_num_heads",
    }
)
"""Fields that are a choice of whoever runs the model; the others are the model's."""

_REQUEST = frozenset({"query_len", "seq_len", "context_len", "has_context"})
_HEADS = frozenset({"num_heads", "num_kv_heads", "gqa_group"})


class Kind(StrEnum):
    """What a change touches."""

    SETTING = "setting"
    REQUEST = "request"
    POLICY = "policy"
    INSTALL = "install"
    MODEL = "model"


class Option(NamedTuple):
    """One thing to change, and how an inquiry looks with it."""

    kind: Kind
    field: str
    before: str
    after: str
    apply: Callable[[Inquiry], Inquiry]


def immovable(rejection: Rejection, manifest: Manifest, inquiry: Inquiry) -> bool:
    """Whether nothing that the asker can change mends this rejection."""
    if rejection.code == Code.DENIED:
        return rejection.reason not in inquiry.policy.deny.values()
    if rejection.code in (Code.PHASE, Code.PINNED, Code.JOINT):
        return True
    return rejection.field is not None and inputs_of(rejection.field, manifest.derive) <= FIXED


def options(
    bound: Bound,
    inquiry: Inquiry,
    entry: Entry,
    phase: Phase,
    rejection: Rejection,
    shard: Shard | None,
) -> tuple[Option, ...]:
    """Changes of an inquiry that may mend a rejection, nearest first; each must still be tried.

    Args:
        bound: what the inquiry is about.
        inquiry: what was asked.
        entry: who refuses.
        phase: in which phase.
        rejection: why.
        shard: the layer for another tensor-parallel size.
    """
    manifest = bound.manifest
    if immovable(rejection, manifest, inquiry):
        return ()
    if rejection.code == Code.DENIED:
        return (_allow(entry.name),)
    if rejection.field in manifest.facts:
        return tuple(_installs(rejection, manifest))
    asked = bound.asked(inquiry.request)
    found: dict[tuple[str, str], Option] = {}
    wanted = _wanted(entry, phase, rejection, asked)
    for name, domain in _underlying(wanted, manifest.derive, asked):
        if name not in FIXED and name not in manifest.facts:
            for option in _set(name, domain, asked, shard):
                found.setdefault((option.field, option.after), option)
    return tuple(found.values())


# -- which values would do -----------------------------------------------------------------------


def _wanted(
    entry: Entry, phase: Phase, rejection: Rejection, asked: Question
) -> Iterator[tuple[str, Domain]]:
    """Yields fields and the values that they would have to take, one field at a time."""
    name = rejection.field
    spec = entry.phases[phase]
    if name is not None and rejection.code == name.upper() and name in spec.accepts:
        yield from _accepted(spec.accepts[name], rejection, asked)
    for constraint in spec.constraints:
        if constraint.code == rejection.code and constraint.reason == (rejection.reason or ""):
            if name is not None:
                yield name, _required(constraint, name, asked)
            yield from _outside(constraint, asked)


def _underlying(
    wanted: Iterable[tuple[str, Domain]],
    derive: Mapping[str, FirstMatch[Value]],
    asked: Question,
) -> Iterator[tuple[str, Domain]]:
    """Yields the same with what derived values are computed from in their place."""
    pending = [*wanted]
    seen: set[str] = set()
    while pending:
        name, domain = pending.pop(0)
        if name not in derive:
            yield name, domain
        elif name not in seen:
            seen.add(name)
            pending += [
                (test.field, test.allowed.within(asked)[1])
                for rule in derive[name].rules
                if domain.admits(rule.result)
                for test in rule.when.tests
                if test.answer(asked) is not Answer.YES
            ]


def _accepted(
    rules: FirstMatch[Test], rejection: Rejection, asked: Question
) -> Iterator[tuple[str, Domain]]:
    """Yields the set that refused the field, and what would lead to a case that accepts it."""
    for rule in rules.rules:
        if rule.result.position == rejection.position:
            yield rule.result.field, rule.result.allowed.within(asked)[1]
    for rule in rules.rules:
        if rule.result.answer(asked) is not Answer.NO:
            for test in rule.when.tests:
                if test.answer(asked) is not Answer.YES:
                    yield test.field, test.allowed.within(asked)[1]


def _required(constraint: Constraint, name: str, asked: Question) -> Domain:
    """The values of a field that a constraint asks for."""
    domain = EMPTY
    for when in (constraint.require, *constraint.any_of):
        for test in when.tests:
            if test.field == name:
                domain = domain | test.allowed.within(asked)[1]
    return domain


def _outside(constraint: Constraint, asked: Question) -> Iterator[tuple[str, Domain]]:
    """Yields each field that a constraint is about, and the values for which it says nothing."""
    for test in constraint.when.tests:
        universe = asked.vocabulary.fields[test.field].universe()
        yield test.field, universe - test.allowed.within(asked)[1]


def _values(field: Field, domain: Domain, seen: Value | None) -> Iterator[Value]:
    """Yields members of a set, the nearest first, then some others; symbols last."""
    inside = domain & field.universe()
    nearest = None if seen is None else inside.nearest(seen)
    if nearest != "auto" and inside.admits("auto") and not _alike(nearest, seen):
        nearest = "auto"  # the nearest by spelling means nothing here
    found: dict[Value, None] = {} if nearest is None else {nearest: None}
    for span in inside.spans:
        for end in (span.first_from(field.low), span.last_to(span.high or 0)):
            if end is not None and span.admits(end):
                found[end] = None
    if not inside.all_names_but:
        symbols = set(field.symbols)
        found |= dict.fromkeys(sorted(inside.names - symbols, key=str))
        found |= dict.fromkeys(sorted(inside.names & symbols, key=str))
    yield from (v for v in found if v != seen or isinstance(v, bool) is not isinstance(seen, bool))


def _alike(a: Value | None, b: Value | None) -> bool:
    """Whether two names are of one family: ``fp8_e5m2`` and ``fp8_e4m3``."""
    return isinstance(a, str) and isinstance(b, str) and a[:3] == b[:3]


# -- how to change -------------------------------------------------------------------------------


def _set(name: str, domain: Domain, asked: Question, shard: Shard | None) -> Iterator[Option]:
    field = asked.vocabulary.fields[name]
    if name in _HEADS and shard is not None:
        yield from _reshard(name, domain, asked, shard)
    for count, value in enumerate(_values(field, domain, asked.known(name))):
        if count == _MOST_VALUES:
            return
        if name in _REQUEST:
            yield from _lengthen(name, value, asked)
        elif name in ("dcp", "pcp"):
            yield from _ranks(f"{name}_size", value, asked)
        else:
            kind = Kind.SETTING if _is_setting(field) else Kind.MODEL
            yield Option(kind, name, asked.text(name), show(field, value), _setter(name, value))


def _is_setting(field: Field) -> bool:
    declared = all(field.name != known.name for known in BUILTIN)
    return field.name in _SETTINGS or (declared and field.role == "context" and not field.of_model)


def _setter(name: str, value: Value) -> Callable[[Inquiry], Inquiry]:
    if name in _HEADS:
        return lambda inquiry: _with_heads(inquiry, name, value)
    return lambda inquiry: inquiry.with_field(name, value)


def _with_heads(inquiry: Inquiry, name: str, value: Value) -> Inquiry:
    """Other heads; a group's size is that of the heads, so it and they change together."""
    heads = inquiry.layer.fields.get("num_heads")
    fields = {n: v for n, v in inquiry.layer.fields.items() if n != "gqa_group"}
    if name == "gqa_group" and isinstance(heads, int) and isinstance(value, int):
        fields["num_kv_heads"] = heads // max(value, 1)
    else:
        fields[name] = value
    return msgspec.structs.replace(inquiry, layer=Layer(MappingProxyType(fields)))


def _reshard(name: str, domain: Domain, asked: Question, shard: Shard) -> Iterator[Option]:
    """Other tensor-parallel sizes that leave an accepted number of heads on a rank."""
    now = asked.known("tp_size")
    if not isinstance(now, int) or isinstance(now, bool):
        return
    for size in sorted(_TENSOR_PARALLEL, key=lambda size: (abs(size - now), size)):
        layer = shard(size) if size != now else None
        if layer is None:
            continue
        heads, kv_heads = layer.get("num_heads"), layer.get("num_kv_heads")
        if not isinstance(heads, int) or not isinstance(kv_heads, int):
            continue
        value = {"num_heads": heads, "num_kv_heads": kv_heads, "gqa_group": heads // kv_heads}[name]
        if domain.admits(value):
            yield Option(Kind.SETTING, "tp_size", str(now), str(size), _sharder(layer, size))


def _sharder(layer: Layer, size: int) -> Callable[[Inquiry], Inquiry]:
    def apply(inquiry: Inquiry) -> Inquiry:
        heads = {n: layer.fields[n] for n in _HEADS if n in layer.fields}
        fields = {n: v for n, v in inquiry.layer.fields.items() if n not in _HEADS}
        changed = Layer(MappingProxyType({**fields, **heads, "tp_size": size}))
        return msgspec.structs.replace(inquiry, layer=changed)

    return apply


def _ranks(name: str, value: Value, asked: Question) -> Iterator[Option]:
    """Context parallelism is switched by its size."""
    size = 2 if value is True else 1
    flag = name.removesuffix("_size")

    def apply(inquiry: Inquiry) -> Inquiry:
        return inquiry.with_field(name, size).with_field(flag, value)

    yield Option(Kind.SETTING, name, asked.text(name), str(size), apply)


def _lengthen(name: str, value: Value, asked: Question) -> Iterator[Option]:
    """Another length of the request; what is cached stays, unless it is what must change."""
    query, seq = asked.known("query_len"), asked.known("seq_len")
    if not isinstance(query, int) or not isinstance(seq, int):
        return
    cached = seq - query
    if not isinstance(value, int):
        return
    if name == "query_len":
        request = Request(value, value + cached)
    elif name == "seq_len":
        request = Request(min(query, value), value)
    else:
        request = Request(query, query + int(value))
    field = asked.vocabulary.fields[name]

    def apply(inquiry: Inquiry) -> Inquiry:
        kept = msgspec.structs.replace(
            inquiry.request, query_len=request.query_len, seq_len=request.seq_len
        )
        return msgspec.structs.replace(inquiry, request=kept)

    yield Option(Kind.REQUEST, name, asked.text(name), show(field, value), apply)


def _allow(name: str) -> Option:
    def apply(inquiry: Inquiry) -> Inquiry:
        kept = {n: why for n, why in inquiry.policy.deny.items() if n != name}
        policy = msgspec.structs.replace(inquiry.policy, deny=MappingProxyType(kept))
        return msgspec.structs.replace(inquiry, policy=policy)

    return Option(Kind.POLICY, "deny", name, "nothing", apply)


def _installs(rejection: Rejection, manifest: Manifest) -> Iterator[Option]:
    """A version that is accepted, or a probe that says yes."""
    name, wanted = str(rejection.field), rejection.allowed or ""
    seen = rejection.observed or ""
    if manifest.facts[name] == "boolean":
        yield Option(Kind.INSTALL, name, seen, "true", _knower(name, True))
        return
    version = _version_within(wanted)
    if version is not None:
        yield Option(Kind.INSTALL, name, seen, wanted, _knower(name, version))


def _knower(name: str, value: str | bool) -> Callable[[Inquiry], Inquiry]:
    return lambda inquiry: inquiry.with_fact(name, value)


def _version_within(specifier: str) -> str | None:
    """A version that the specifier accepts: one it names, or the next after one it names."""
    from packaging.specifiers import SpecifierSet

    wanted = SpecifierSet(specifier)
    named = [s.version.removesuffix(".*") for s in wanted]
    tried = [*named, *(f"{v}.1" for v in named), *(f"{v}.post1" for v in named), "0", "9999"]
    return next((v for v in tried if wanted.contains(v, True)), None)
