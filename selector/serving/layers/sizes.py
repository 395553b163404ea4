"""Parallel sizes that cannot go together: what the engine refuses before it builds a layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from selector.domains import Domain, Value
from selector.values import Model

__all__ = ["clashes"]


def clashes(model: Model, fields: Mapping[str, Value | Domain]) -> Iterator[str]:
    """Yields what is wrong with the sizes of context parallelism, one line each.

    Args:
        model: with the whole model's head counts, and the kind of layers that will be built.
        fields: what the command sets.
    """
    tp, dcp, pcp = (_size(fields, name) for name in ("tp_size", "dcp_size", "pcp_size"))
    if dcp == 1:
        return
    if pcp == 1 and tp % dcp:
        fit = ", ".join(str(n) for n in range(1, tp + 1) if tp % n == 0)
        yield f"dcp_size {dcp} does not divide tp_size {tp}; sizes that do: {fit}"
    elif pcp > 1 and dcp not in (pcp, tp * pcp):
        yield (
            f"dcp_size {dcp} with pcp_size {pcp} and tp_size {tp}; it can be 1, {pcp} or {tp * pcp}"
        )
    else:
        yield from _heads(model, tp, dcp)


def _size(fields: Mapping[str, Value | Domain], name: str) -> int:
    value = fields.get(name, 1)
    return value if isinstance(value, int) else 1


def _heads(model: Model, tp: int, dcp: int) -> Iterator[str]:
    """Yields why ranks cannot share the cached tokens of a KV head; MLA has one head on each."""
    layers = [group.layer for group in model.groups if group.layer.get("attn_type") == "decoder"]
    counts = {(layer.get("num_heads"), layer.get("num_kv_heads")) for layer in layers}
    if len(counts) != 1 or any(layer.get("mla") is True for layer in layers):
        return
    ((heads, kv_heads),) = counts
    if not isinstance(heads, int) or not isinstance(kv_heads, int):
        return
    if tp <= kv_heads:
        yield (
            f"dcp_size {dcp} needs more ranks than the model's {kv_heads} KV heads, but tp_size is "
            f"{tp}; without copies of a head nothing can be shared"
        )
    elif dcp > tp // kv_heads:
        yield (
            f"dcp_size {dcp} is more than the {tp // kv_heads} ranks of tp_size {tp} that hold "
            f"each of {kv_heads} KV heads"
        )
    elif heads // kv_heads % dcp:
        yield f"dcp_size {dcp} does not divide the {heads // kv_heads} query heads of a KV head"
