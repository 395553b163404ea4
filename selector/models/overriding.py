"""Fields of a model's layers set by hand, with what follows from them, and what cannot be."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from selector.domains import Domain, Value
from selector.errors import ContradictionError
from selector.models.naming import name_group, with_names
from selector.models.sharding import shard
from selector.values import Drafter, Layer, LayerGroup, Model, Origin

__all__ = ["override"]

Values = dict[str, Value | Domain]
_LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def override(model: Model, fields: Mapping[str, Value | Domain]) -> Model:
    """Gives the model with fields of all its layers set, and what follows from them.

    ``tp_size`` deals out the heads first (:func:`selector.models.shard`); head counts that are set
    are those of one rank. Towers are left alone.

    Args:
        model: as read, with the whole model's head counts.
        fields: field → value, as the vocabulary reads them.

    Raises:
        ContradictionError: two of the fields, set or read, cannot both hold.
        ValueRefusedError: heads cannot be dealt out evenly over the ranks.
    """
    size = fields.get("tp_size", 1)
    ranks = shard(model, size) if isinstance(size, int) and size != 1 else model
    groups = [_Change(model.name, group, fields).result() for group in ranks.groups]
    now = {old.name: new.name for old, new in zip(ranks.groups, groups, strict=True)}
    drafters = tuple(Drafter(d.key, d.count, now.get(d.like, d.like)) for d in ranks.drafters)
    return msgspec.structs.replace(ranks, groups=_merged(groups), drafters=drafters)


def _merged(groups: list[LayerGroup]) -> tuple[LayerGroup, ...]:
    """The groups, with those that have become alike as one, and names that differ."""
    alike: list[LayerGroup] = []
    for group in groups:
        for index, other in enumerate(alike):
            if other.layer.fields == group.layer.fields:
                count, known = other.count + group.count, other.numbers and group.numbers
                numbers = tuple(sorted((*other.numbers, *group.numbers))) if known else ()
                alike[index] = msgspec.structs.replace(other, count=count, numbers=numbers)
                break
        else:
            alike.append(group)
    return with_names(alike)


class _Change:
    """One group being changed: fields that were set, then those that follow."""

    def __init__(self, name: str, group: LayerGroup, fields: Mapping[str, Value | Domain]) -> None:
        self._where = f"{name}: {group.name} layers"
        self._group = group
        self._set = fields
        self._values: Values = {**group.layer.fields, **fields}
        self._origins = {**group.origins, **dict.fromkeys(fields, Origin.FLAG)}
        self._keys = {key: k for key, k in group.keys.items() if key not in fields}

    def result(self) -> LayerGroup:
        """The changed group.

        Raises:
            ContradictionError: it cannot exist.
        """
        if self._set.get("mla") is False and self._group.layer.get("mla") is True:
            self._expand_latent()
        self._set_sparse()
        self._set_sizes()
        self._set_heads()
        self._check_window()
        return msgspec.structs.replace(
            self._group,
            name=self._name(),
            layer=Layer(MappingProxyType(self._values)),
            origins=MappingProxyType(self._origins),
            keys=MappingProxyType(self._keys),
        )

    def _name(self) -> str:
        """What the layers are called now."""
        if not self._set.keys() & {"mla", "sparse", "index_topk", "sliding_window", "chunked"}:
            return self._group.name
        kind = "full"
        if self._number("sliding_window"):
            kind = "sliding"
        elif self._values.get("chunked") is True:
            kind = "chunked"
        return name_group(kind, self._values)

    def _follow(self, field: str, value: Value, source: str) -> None:
        """Sets a field that follows from another, unless it was set itself."""
        if field not in self._set:
            self._values[field] = value
            self._origins[field] = Origin.DERIVED
            self._keys[field] = f"--set {source}"

    def _number(self, field: str) -> int | None:
        value = self._values.get(field)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def _refuse(self, words: str) -> ContradictionError:
        return ContradictionError(f"{self._where}: {words}")

    def _expand_latent(self) -> None:
        """Without MLA the latent is expanded first: a head is as wide as its query and key."""
        nope, rope = self._number("qk_nope_head_dim"), self._number("qk_rope_head_dim")
        if not nope or not rope:
            raise self._refuse("mla false, but nothing says how wide an expanded head is")
        if self._values.get("sparse") is True and "sparse" not in self._set:
            raise self._refuse("mla false, but their indexer works on the latent; set sparse=false")
        heads = self._number("num_heads")
        for field in ("head_size", "v_head_size"):
            self._follow(field, nope + rope, "mla")
        if heads is not None:
            self._follow("num_kv_heads", heads, "mla")
        for field in _LATENT:
            self._follow(field, "absent", "mla")
        self._follow("index_topk", "absent", "mla")
        self._follow("sparse", False, "mla")
        self._values.pop("dense_prefill", None)
        self._origins.pop("dense_prefill", None)
        self._keys.pop("dense_prefill", None)

    def _set_sparse(self) -> None:
        topk = self._number("index_topk")
        if "index_topk" in self._set:
            self._follow("sparse", bool(topk), "index_topk")
        if self._set.get("sparse") is False:
            self._follow("index_topk", "absent", "sparse")
            topk = self._number("index_topk")
        sparse = self._values.get("sparse")
        changed = self._set.keys() & {"sparse", "index_topk", "mla"}
        if changed and sparse is True and not topk and self._values.get("mla") is True:
            raise self._refuse("sparse true, but index_topk is not a number; set it too")
        if changed and sparse is False and topk:
            raise self._refuse(f"sparse false with index_topk {topk}; layers with an index pick")

    def _set_sizes(self) -> None:
        if self._values.get("mla") is True:
            self._set_latent_sizes()
            return
        sizes = [name for name in ("kv_lora_rank", "q_lora_rank") if self._number(name)]
        if sizes and (self._set.keys() & {"mla", *sizes}):
            raise self._refuse(f"{sizes[0]} {self._number(sizes[0])} without MLA; set mla=true")
        before = self._group.layer
        size = self._number("head_size")
        if (
            size
            and "head_size" in self._set
            and before.get("v_head_size") == before.get("head_size")
        ):
            self._follow("v_head_size", size, "head_size")

    def _set_latent_sizes(self) -> None:
        latent, rope = self._number("kv_lora_rank"), self._number("qk_rope_head_dim")
        if self._set.keys() & {"mla", "kv_lora_rank", "qk_rope_head_dim", "head_size"}:
            if not latent or not rope:
                raise self._refuse("mla true needs kv_lora_rank and qk_rope_head_dim; set them too")
            self._follow("head_size", latent + rope, "kv_lora_rank")
            if self._number("head_size") != latent + rope:
                raise self._refuse(
                    f"head_size {self._values['head_size']} is not kv_lora_rank {latent} + "
                    f"qk_rope_head_dim {rope}"
                )
        if self._set.get("mla") is True:
            self._follow("num_kv_heads", 1, "mla")
        if "v_head_dim" in self._set and (width := self._number("v_head_dim")):
            self._follow("v_head_size", width, "v_head_dim")
        if self._number("num_kv_heads") not in (None, 1):
            raise self._refuse(
                f"num_kv_heads {self._values['num_kv_heads']}, but MLA caches one latent head"
            )
        if self._set.get("attn_type") in ("encoder", "encoder_only"):
            raise self._refuse(f"attn_type {self._set['attn_type']}, but MLA is causal")

    def _set_heads(self) -> None:
        heads, kv_heads = self._number("num_heads"), self._number("num_kv_heads")
        if heads is None or kv_heads is None:
            return
        if heads % kv_heads:
            raise self._refuse(f"num_heads {heads} is not a multiple of num_kv_heads {kv_heads}")
        if self._set.keys() & {"num_heads", "num_kv_heads", "mla"}:
            self._follow("gqa_group", heads // kv_heads, "num_heads")
        if self._number("gqa_group") not in (None, heads // kv_heads):
            raise self._refuse(
                f"gqa_group {self._values['gqa_group']}, but {heads} heads share {kv_heads} KV "
                f"heads: {heads // kv_heads} each"
            )

    def _check_window(self) -> None:
        window = self._number("sliding_window")
        asked = self._set.keys() & {"sliding_window", "chunked"}
        if asked and window and self._values.get("chunked") is True:
            raise self._refuse(f"sliding_window {window} and chunked; attention is one of them")
