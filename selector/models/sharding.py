"""The same model on several tensor-parallel ranks."""

from __future__ import annotations

import msgspec

from selector.domains import Value
from selector.errors import ContradictionError, ValueRefusedError
from selector.models.source import shown
from selector.values import LayerGroup, Model, Origin

__all__ = ["shard"]


def shard(model: Model, tp_size: int) -> Model:
    """Gives the model as one of ``tp_size`` tensor-parallel ranks sees it.

    Query heads are divided. KV heads are divided too, or each is held by several ranks where there
    are fewer of them than ranks; the one latent head of MLA is on every rank. Towers are left
    whole: engines also run them whole on each rank.

    Args:
        model: as read, with the whole model's head counts.
        tp_size: number of ranks, at least 1.

    Raises:
        ValueRefusedError: ``tp_size`` is no such number, or heads cannot be dealt out evenly.
        ContradictionError: the model is sharded already.
    """
    if isinstance(tp_size, bool) or not isinstance(tp_size, int) or tp_size < 1:
        raise ValueRefusedError(f"tp_size {shown(tp_size)} is not a whole number of at least 1")
    groups = tuple(_shard_group(model.name, group, tp_size) for group in model.groups)
    shared = {words: None for group in model.groups if (words := _shared(group, tp_size))}
    return msgspec.structs.replace(model, groups=groups, notes=(*model.notes, *shared))


def _shared(group: LayerGroup, tp_size: int) -> str:
    """Says so when ranks hold copies of a KV head."""
    kv_heads = group.layer.get("num_kv_heads")
    whole = group.layer.get("tp_size") in (None, 1) and isinstance(kv_heads, int)
    latent = group.layer.get("mla") is True
    if not whole or latent or not isinstance(kv_heads, int) or tp_size <= kv_heads:
        return ""
    return f"{group.name} layers: each of {kv_heads} KV heads is on {tp_size // kv_heads} ranks"


def _shard_group(name: str, group: LayerGroup, tp_size: int) -> LayerGroup:
    layer = group.layer
    before = layer.get("tp_size")
    if before not in (None, 1, tp_size):
        raise ContradictionError(
            f"{name}: heads are per rank of tensor parallel size {before} already, not {tp_size}"
        )
    changed: dict[str, Value] = {"tp_size": tp_size}
    origins = {**group.origins, "tp_size": Origin.FLAG}
    heads, kv_heads = layer.get("num_heads"), layer.get("num_kv_heads")
    if before != tp_size and isinstance(heads, int) and isinstance(kv_heads, int):
        where = f"{name}: {group.name} layers"
        changed["num_heads"] = _divided(where, "query heads", heads, tp_size)
        changed["num_kv_heads"] = 1 if layer.get("mla") else _dealt(where, kv_heads, tp_size)
        changed["gqa_group"] = int(changed["num_heads"]) // int(changed["num_kv_heads"])
        origins |= dict.fromkeys(("num_heads", "num_kv_heads", "gqa_group"), Origin.DERIVED)
    return msgspec.structs.replace(group, layer=layer.replace(**changed), origins=origins)


def _divided(where: str, what: str, number: int, tp_size: int) -> int:
    if number % tp_size:
        fits = [n for n in range(1, number + 1) if number % n == 0]
        near = min(fits, key=lambda n: abs(n - tp_size))
        raise ValueRefusedError(
            f"{where}: {number} {what} cannot be divided over tensor parallel size {tp_size}; "
            f"nearest that fits: {near}"
        )
    return number // tp_size


def _dealt(where: str, kv_heads: int, tp_size: int) -> int:
    """KV heads on one rank; ranks share one where there are more ranks than heads."""
    if tp_size <= kv_heads:
        return _divided(where, "KV heads", kv_heads, tp_size)
    if tp_size % kv_heads:
        raise ValueRefusedError(
            f"{where}: {kv_heads} KV heads cannot be shared evenly by tensor parallel size "
            f"{tp_size}"
        )
    return 1
