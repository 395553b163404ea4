"""Device + layer + facts + request → one question. All arithmetic over fields happens here."""

from __future__ import annotations

import msgspec

from selector.domains import Domain, Value
from selector.errors import ContradictionError, ValueRefusedError
from selector.fields import (
    ABSENT,
    BATCH_FIELDS,
    LONGEST_VERSION,
    REQUEST_FIELDS,
    UNSET,
    one_line,
)
from selector.manifest import Manifest, Measure
from selector.rules import Answer, Question
from selector.values import Device, Facts, Layer, Request

__all__ = [
    "CHECKED",
    "COMPUTED_FROM",
    "BatchTotals",
    "ask",
    "check_facts",
    "check_layer",
    "check_space",
    "lengths_of",
    "together",
    "values_of",
    "with_batch",
    "with_request",
    "words_of_one",
]

_UNSET_UNLESS_SAID = ("block_size", "v_head_size")
_ONE_UNLESS_SAID = ("tp_size", "pp_size", "dcp_size", "pcp_size", "num_reqs")
_EITHER = Domain.of(True, False)
_MLA_SIZES = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
COMPUTED_FROM = {
    "mla": _MLA_SIZES,
    "sparse": ("mla", "index_topk"),
    "gqa_group": ("num_heads", "num_kv_heads"),
    "head_size": ("mla", "kv_lora_rank", "qk_rope_head_dim"),
    "dcp": ("dcp_size",),
    "pcp": ("pcp_size",),
    "total_num_heads": ("num_heads", "tp_size"),
    "model_num_heads": ("total_num_heads", "tp_size"),
    "heads_divide": ("model_num_heads", "num_kv_heads", "total_num_kv_heads", "tp_size", "mla"),
    "batch_num_heads": ("num_heads", "num_reqs"),
}
"""Fields that are computed when a layer does not say them, and what they are computed from."""
CHECKED = ("num_heads", "num_kv_heads", "gqa_group")
"""Fields that may contradict each other."""


class BatchTotals(msgspec.Struct, frozen=True):
    """The prefills of a batch, summed up: their number and their longest lengths, in tokens."""

    num_prefills: int
    query_len: int
    seq_len: int
    context_len: int

    def joined(self, others: BatchTotals | None) -> BatchTotals:
        """The totals of these prefills and others."""
        if others is None:
            return self
        return BatchTotals(
            self.num_prefills + others.num_prefills,
            max(self.query_len, others.query_len),
            max(self.seq_len, others.seq_len),
            max(self.context_len, others.context_len),
        )


def ask(
    manifest: Manifest,
    device: Device,
    layer: Layer,
    facts: Facts,
    closed_world: bool = False,
) -> Question:
    """The question that is the same for every request of a layer.

    Args:
        manifest: gives the vocabulary.
        device: what to plan for.
        layer: what the model needs; a feature that is missing is off.
        facts: what is installed.
        closed_world: what is unknown is taken not to be there, instead of "maybe".

    Raises:
        ContradictionError: sizes that cannot all hold.
        ValueRefusedError: the layer says what the device, the request or the manifest says.
    """
    check_layer(manifest, layer)
    values = values_of(manifest, device, layer, facts, closed_world)
    return Question(manifest.vocabulary, values).derived(manifest.derive)


def check_layer(manifest: Manifest, layer: Layer) -> None:
    """Refuses a layer that says what something else says.

    Raises:
        ValueRefusedError: the device, the request, the manifest or the facts say it.
    """
    others = _said_by_others(manifest)
    for name in layer.fields:
        if name in others:
            raise ValueRefusedError(f"{name} is no field of a layer; something else says it")


def _said_by_others(manifest: Manifest) -> set[str]:
    changing = {*REQUEST_FIELDS, *(m.name for m in manifest.measures)}
    return {"platform", "capability", *changing, *manifest.facts, *manifest.derive}


def values_of(
    manifest: Manifest, device: Device, layer: Layer, facts: Facts, closed_world: bool = False
) -> dict[str, Value | Domain]:
    """What is known of a layer on a device, before anything is derived by the manifest's rules.

    Raises:
        ContradictionError: sizes that cannot all hold.
    """
    words = manifest.vocabulary
    code = device.code
    values: dict[str, Value | Domain] = dict(layer.fields)
    values["platform"] = words.fields["platform"].read(device.platform)
    values["capability"] = ABSENT if code is None else code
    _infer_kind(values)
    values = {**words.off, **values}
    _take_defaults(manifest, values)
    for name in _UNSET_UNLESS_SAID:
        values.setdefault(name, UNSET)
    for name in _ONE_UNLESS_SAID:
        values.setdefault(name, 1)
    _derive_sizes(layer, values)
    _take_defaults(manifest, values)  # of sizes that only now are known
    for name, kind in manifest.facts.items():
        if kind == "boolean" and (name in facts.values or closed_world):
            values[name] = bool(facts.values.get(name, name in manifest.standard))
    if closed_world:
        others = _said_by_others(manifest)
        for name, closed in words.closed.items():
            if name not in values and name not in others:
                values[name] = closed
    return values


def _take_defaults(manifest: Manifest, values: dict[str, Value | Domain]) -> None:
    """Fills in what nobody says; a default may stand on another one, in any order."""
    universes = manifest.vocabulary.universes
    open_ = {name: default for name, default in manifest.defaults.items() if name not in values}
    while open_:
        taken = {}
        for name, default in open_.items():
            stated = values.get(default.field) if default.field else default.value
            if stated is not None and _is_in(stated, universes[name]):
                taken[name] = stated
        if not taken:
            return
        values |= taken
        open_ = {name: default for name, default in open_.items() if name not in taken}


def _is_in(value: Value | Domain, universe: Domain) -> bool:
    return value <= universe if isinstance(value, Domain) else universe.admits(value)


def _infer_kind(values: dict[str, Value | Domain]) -> None:
    """A layer with the sizes of MLA is MLA, and one with an indexer is sparse, unless it says.

    Where those sizes are unknown, so is the kind.
    """
    sizes = [values.get(name) for name in _MLA_SIZES]
    if any(isinstance(size, int) for size in sizes):
        values.setdefault("mla", True)
    elif any(isinstance(size, Domain) for size in sizes):
        values.setdefault("mla", _EITHER)
    kept = values.get("index_topk")
    if values.get("mla") is not None and values.get("mla") is not False and kept is not None:
        certain = isinstance(kept, int) and values["mla"] is True
        if certain or isinstance(kept, int | Domain):
            values.setdefault("sparse", True if certain else _EITHER)


def _derive_sizes(layer: Layer, values: dict[str, Value | Domain]) -> None:
    heads, kv_heads = values.get("num_heads"), values.get("num_kv_heads")
    if isinstance(heads, int) and isinstance(kv_heads, int):
        if heads % kv_heads:
            raise ContradictionError(
                f"num_heads {heads} is not a multiple of num_kv_heads {kv_heads}"
            )
        group = values.setdefault("gqa_group", heads // kv_heads)
        if isinstance(group, int) and group * kv_heads != heads:
            raise ContradictionError(
                f"num_heads {heads} is not num_kv_heads {kv_heads} times gqa_group {group}"
            )
    latent, rope = layer.get("kv_lora_rank"), layer.get("qk_rope_head_dim")
    if values.get("mla") is True and isinstance(latent, int) and isinstance(rope, int):
        values.setdefault("head_size", latent + rope)
    for flag, size in (("dcp", "dcp_size"), ("pcp", "pcp_size")):
        if layer.get(flag) is None:
            values[flag] = _is_several(values[size])
    _derive_heads(values)


def _derive_heads(values: dict[str, Value | Domain]) -> None:
    """Heads of the whole model and of one rank, each from the other."""
    ranks, total = values["tp_size"], values.get("total_num_heads")
    heads, kv_heads = values.get("num_heads"), values.get("num_kv_heads")
    all_heads = _heads_together(heads, values["num_reqs"])
    if all_heads is not None:
        values.setdefault("batch_num_heads", all_heads)
    if isinstance(ranks, int):
        if total is None and isinstance(heads, int):
            total = values["total_num_heads"] = heads * ranks
        if isinstance(total, int):
            values.setdefault("model_num_heads", total // ranks)
        elif total == ABSENT:
            values.setdefault("model_num_heads", ABSENT)
        total_kv = values.get("total_num_kv_heads")
        if isinstance(total_kv, int):
            kv_heads = max(1, total_kv // ranks)
    latent = values.get("mla")
    if isinstance(latent, Domain):
        return  # one latent head, or as many as the model has
    kv_heads = 1 if latent is True else kv_heads
    mine = values.get("model_num_heads")
    if isinstance(mine, int) and isinstance(kv_heads, int):
        values.setdefault("heads_divide", mine % kv_heads == 0)


def _heads_together(heads: Value | Domain | None, requests: Value | Domain) -> Value | None:
    """The query heads of so many requests; ``None``: not known."""
    if isinstance(heads, int) and isinstance(requests, int):
        return heads * requests
    return UNSET if heads == UNSET else None


def _is_several(number: Value | Domain) -> bool | Domain:
    if not isinstance(number, Domain):
        return isinstance(number, int) and number > 1
    several = Domain.between(2, None)
    if (number & several).is_empty():
        return False
    return True if number <= several else Domain.of(True, False)


def check_facts(manifest: Manifest, facts: Facts) -> None:
    """Refuses facts that the manifest cannot compare. Names it does not declare are left alone.

    Raises:
        ValueRefusedError: no version by PEP 440, or no answer of a probe.
    """
    for name, value in facts.values.items():
        kind = manifest.facts.get(name)
        if kind is None or value is None:
            continue
        if kind == "boolean" and not isinstance(value, bool):
            raise ValueRefusedError(f'{name} "{one_line(value)}" is not true, false or None')
        if kind == "version" and not _is_version(value):
            raise ValueRefusedError(f'{name} "{one_line(value)}" is not a version such as "0.6.14"')


def _is_version(value: object) -> bool:
    from packaging.version import InvalidVersion, Version  # imports slowly

    if not isinstance(value, str) or len(value) > LONGEST_VERSION:
        return False
    try:
        Version(value)
    except InvalidVersion:
        return False
    return True


def check_space(manifest: Manifest, question: Question) -> None:
    """Refuses a question that cannot exist.

    Raises:
        ContradictionError: a ``space`` rule is broken for certain; its line and reason are named.
    """
    for rule in manifest.space:
        if rule.violated(question) is Answer.YES:
            seen = [f"{t.field} {question.text(t.field)}" for t in rule.when.tests]
            broken = rule.rejections(question)[0]
            if broken.field:
                seen.append(f"{broken.field} {broken.observed} (must be {broken.allowed})")
            raise ContradictionError(f"{' with '.join(seen)}: {rule.reason} [{rule.position}]")


def together(manifest: Manifest, question: Question, count: int) -> Question:
    """The question of a layer that does not say how many requests run together: so many do.

    Raises:
        ContradictionError: a ``space`` rule says that so many cannot.
    """
    if count < 2 or BATCH_FIELDS.isdisjoint(manifest.names):
        return question
    heads = _heads_together(question.known("num_heads"), count)
    if heads is not None:
        question = question.plus({"batch_num_heads": heads})
    counted = question.supposing("num_reqs", count)
    check_space(manifest, counted)
    return counted


def with_request(manifest: Manifest, question: Question, request: Request) -> Question:
    """The question for one request, alone in its batch."""
    query, seq = request.query_len, request.seq_len
    if query is not None and seq is not None:
        values = lengths_of(manifest, query, seq)
    else:
        values = {"num_prefills": 1}
        if query is not None:
            values |= {"query_len": query, "seq_len": Domain.between(query, None)}
        if seq is not None:
            values |= {"seq_len": seq, "query_len": Domain.between(1, seq)}
    return question.plus(values).derived(manifest.changing)


def lengths_of(manifest: Manifest, query_len: int, seq_len: int) -> dict[str, Value | Domain]:
    """What a request alone in its batch says; lengths are in tokens."""
    context = seq_len - query_len
    values: dict[str, Value | Domain] = {
        "num_prefills": 1,
        "query_len": query_len,
        "seq_len": seq_len,
        "context_len": context,
        "has_context": context > 0,
    }
    for measure in manifest.measures:
        values[measure.name] = mask_words(measure, BatchTotals(1, query_len, seq_len, context))
    return values


def with_batch(
    manifest: Manifest, question: Question, least: BatchTotals, most: BatchTotals | None = None
) -> Question:
    """The question as rules of scope ``batch`` see it.

    Args:
        manifest: gives the measures and the derived values.
        question: what is the same for all requests.
        least: the requests that are prefills for certain.
        most: those and the ones that may be; the same, when ``None``.
    """
    most = most or least
    values: dict[str, Value | Domain] = {
        name: _span(getattr(least, name), getattr(most, name))
        for name in ("num_prefills", "query_len", "seq_len", "context_len")
    }
    context = Domain.of(least.context_len > 0, most.context_len > 0)
    only = context.only()
    values["has_context"] = context if only is None else only
    for measure in manifest.measures:
        values[measure.name] = _span(mask_words(measure, least), mask_words(measure, most))
    return question.plus(values).derived(manifest.changing)


def _span(low: int, high: int) -> Value | Domain:
    return low if low == high else Domain.between(low, high)


def mask_words(measure: Measure, totals: BatchTotals) -> int:
    """32-bit words of a top-k mask over a batch's prefills, padded to whole tiles.

    The longest cached context stands for the longest context chunk.
    """
    each = words_of_one(measure, totals.query_len, totals.context_len)
    return totals.num_prefills * each


def words_of_one(measure: Measure, query_len: int, context_len: int) -> int:
    """:func:`mask_words` of a prefill alone; lengths are in tokens."""
    tile = measure.small_tile if query_len <= measure.small_tile else measure.large_tile
    columns = -(-max(query_len, context_len) // 32)
    words = -(-columns // measure.word_align) * measure.word_align
    return -(-query_len // tile) * tile * words
