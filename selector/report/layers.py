"""A layer in words: what distinguishes it, and where its values came from."""

from __future__ import annotations

from collections.abc import Iterator

from selector.changes.case import Case
from selector.fields import Field, show
from selector.manifest import Manifest
from selector.report.text import Line, Part, faint, joined, line, strong
from selector.report.wording import counted, device_words, kind_words, listed, request_words
from selector.values import Origin

__all__ = ["group_words", "heading", "layer_words"]

_ALWAYS = ("head_size", "dtype", "kv_cache_dtype")
_NAMED_ELSEWHERE = ("mla", "sparse", "tp_size", "pp_size", "num_heads", "num_kv_heads", "gqa_group")
_MLA_SIZES = (
    "q_lora_rank",
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "v_head_size",
)
_ORIGINS = {
    Origin.CHECKPOINT: "checkpoint quantisation; not a flag",
    Origin.DEFAULT: "default",
}


def heading(case: Case) -> Line:
    """Whose layers, on what, for which request."""
    parts: list[Part] = [strong(case.model.name if case.model else "one layer")]
    parts += [device_words(case.resolution.device), request_words(case.resolution.request)]
    parts += [
        f"{name.removesuffix('_size')} {size}"
        for name in ("tp_size", "pp_size", "dcp_size", "pcp_size")
        if (size := case.resolution.layer.get(name, 1)) != 1
    ]
    return joined([*parts, *_asked_how(case)])


def _asked_how(case: Case) -> Iterator[str]:
    """Yields what the answer depends on beside the question: claims, assumptions, policy."""
    policy = case.inquiry.policy
    if case.as_claimed:
        yield "as claimed"
    if case.inquiry.closed_world:
        yield "closed world"
    for name, where in (
        (policy.backend, ""),
        (policy.prefill_backend, " for prefill"),
        (policy.decode_backend, " for decode"),
    ):
        if name is not None:
            yield f"{name} forced{where}"
    if policy.deny:
        yield f"without {listed(list(policy.deny), 'and')}"


def group_words(case: Case) -> str:
    """``78 sparse layers``; ``this layer`` when there is no model."""
    if case.group is None:
        return "this layer"
    return counted(case.group.count, f"{case.group.name} layer")


def layer_words(case: Case, manifest: Manifest) -> Line:
    """The layer's kind and values: the core ones always, others when they ask for something."""
    layer = case.resolution.layer
    kind = kind_words(layer.get("mla") is True, layer.get("sparse") is True)
    parts: list[Part] = [kind]
    parts += [_value(case, manifest.vocabulary.fields[name]) for name in _ALWAYS]
    parts += [_value(case, field) for field in _notable(case, manifest)]
    if heads := _heads(case):
        parts.append(heads)
    return joined(parts)


def _notable(case: Case, manifest: Manifest) -> Iterator[Field]:
    layer = case.resolution.layer
    for field in manifest.vocabulary.fields.values():
        value = layer.get(field.name)
        shown_already = field.name in (*_ALWAYS, *_NAMED_ELSEWHERE, "dcp_size", "pcp_size")
        if value is None or shown_already or value == field.off:
            continue
        if value in field.symbols or (field.name, value) == ("attn_type", "decoder"):
            continue
        if field.name not in _MLA_SIZES:
            yield field


def _value(case: Case, field: Field) -> Line:
    raw = case.resolution.layer.get(field.name)
    value = "unknown" if raw is None else show(field, raw)
    if field.type == "integer" and isinstance(raw, int):
        value = f"{raw:,}"
    text = value if field.name == "dtype" and raw is not None else f"{field.name} {value}"
    if raw is True and field.off is False:
        text = field.name
    origin = case.group.origins.get(field.name) if case.group else None
    if origin in _ORIGINS and (field.name in _ALWAYS or origin is Origin.CHECKPOINT):
        return line(text, faint(f" ({_ORIGINS[origin]})"))
    return line(text)


def _heads(case: Case) -> str:
    layer = case.resolution.layer
    heads, kv_heads = layer.get("num_heads"), layer.get("num_kv_heads")
    if not isinstance(heads, int):
        return ""
    rank = " a rank" if layer.get("tp_size", 1) != 1 else ""
    if layer.get("mla") is True or not isinstance(kv_heads, int):
        return f"{counted(heads, 'head')}{rank}"
    return f"{counted(heads, 'head')} on {counted(kv_heads, 'KV head')}{rank}"
