"""The layers that are asked about: those of a model, or one whose fields are said."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from selector.changes.case import Shard
from selector.domains import Domain, Value
from selector.errors import AttnselError, UnknownModelError
from selector.models import override
from selector.values import Layer, LayerGroup, Model

__all__ = ["Layers", "layers_of"]

Layers = tuple[Model | None, LayerGroup | None, Layer, Shard | None]
"""A model and a group of its layers, if one was given; the layer; and its other sizes."""


def layers_of(whole: Model | None, fields: Mapping[str, Value | Domain]) -> list[Layers]:
    """Each group of layers of the model, with the fields that were said; else just these.

    Raises:
        UnknownModelError: the model has no attention layers.
        AttnselError: its layers cannot have such fields.
    """
    if whole is None:
        return [(None, None, Layer(MappingProxyType(dict(fields))), None)]
    model = override(whole, fields)
    if not model.groups:
        raise UnknownModelError(f"{model.name} has no attention layers")
    return [(model, g, g.layer, _sharder(whole, fields, g.name)) for g in model.groups]


def _sharder(whole: Model, fields: Mapping[str, Value | Domain], name: str) -> Shard:
    """Gives the layer of the group called so for another tensor-parallel size."""

    def layer_at(size: int) -> Layer | None:
        try:
            groups = override(whole, {**fields, "tp_size": size}).groups
        except AttnselError:
            return None
        return next((group.layer for group in groups if group.name == name), None)

    return layer_at
