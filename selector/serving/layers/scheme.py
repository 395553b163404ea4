"""What the engine makes of the KV cache scheme in a checkpoint's quantisation config.

ModelOpt's is the run's cache type, when it is one of two; another changes nothing. That of
compressed-tensors means ``fp8``, to layers that ask for it: those of MLA do not.
"""

from __future__ import annotations

from types import MappingProxyType

import msgspec

from selector.values import Layer, LayerGroup, Model, Origin

__all__ = ["as_engine_reads"]

_KEY = "kv_cache_scheme"
_MODELOPT = ("fp8_e4m3", "nvfp4")


def as_engine_reads(model: Model, *, latent: bool) -> tuple[Model, str]:
    """The model with the cache type that its layers get, and what to know of it.

    Args:
        model: as read.
        latent: whether MLA layers are built as such.
    """
    if model.quantisation.startswith("modelopt"):
        return _read_modelopt(model)
    groups = tuple(_read(group, latent=latent) for group in model.groups)
    text = ""
    if [_says(group) for group in groups] != [_says(group) for group in model.groups]:
        text = f"MLA layers do not read {_KEY}: their KV cache keeps the model's type"
    return msgspec.structs.replace(model, groups=groups), text


def _read_modelopt(model: Model) -> tuple[Model, str]:
    unread = [g for g in model.groups if _is_unread(g)]
    if not unread:
        return model, ""
    key, said = unread[0].keys.get("kv_cache_dtype", ""), unread[0].layer.get("kv_cache_dtype")
    groups = tuple(_without_cache_type(g) if _is_unread(g) else g for g in model.groups)
    text = f"{key} {said} is not read: only {' and '.join(_MODELOPT)} are; the cache stays auto"
    return msgspec.structs.replace(model, groups=groups), text


def _is_unread(group: LayerGroup) -> bool:
    from_checkpoint = _says(group) is Origin.CHECKPOINT
    return from_checkpoint and group.layer.get("kv_cache_dtype") not in _MODELOPT


def _says(group: LayerGroup) -> Origin | None:
    return group.origins.get("kv_cache_dtype")


def _read(group: LayerGroup, *, latent: bool) -> LayerGroup:
    layer, key = group.layer, group.keys.get("kv_cache_dtype", "")
    if not key.endswith(_KEY) or layer.get("kv_cache_dtype") != "fp8_e4m3":
        return group
    if layer.get("mla") is not True or not latent:
        return msgspec.structs.replace(group, layer=layer.replace(kv_cache_dtype="fp8"))
    return _without_cache_type(group)


def _without_cache_type(group: LayerGroup) -> LayerGroup:
    fields = {n: v for n, v in group.layer.fields.items() if n != "per_head_quant_scales"}
    return msgspec.structs.replace(
        group,
        layer=Layer(MappingProxyType({**fields, "kv_cache_dtype": "auto"})),
        origins={**group.origins, "kv_cache_dtype": Origin.DEFAULT},
        keys={n: k for n, k in group.keys.items() if n != "kv_cache_dtype"},
    )
