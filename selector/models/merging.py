"""Keys that replace those of a ``config.json`` before it is read, as ``--hf-overrides`` does."""

from __future__ import annotations

from collections.abc import Mapping

from selector.models.tables import tables

__all__ = ["merged"]


def merged(config: Mapping[str, object], overrides: Mapping[str, object]) -> dict[str, object]:
    """The config with keys replaced.

    A config inside the config (``text_config``) is merged key by key, at every depth. Any other
    object, such as ``rope_scaling``, is replaced whole at the top and merged inside a config.
    """
    known = tables()
    inner = {*known.nesting, *known.towers, *known.encoders, *known.decoders}
    found = dict(config)
    for key, value in overrides.items():
        old = found.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        found[key] = _deep(old, value) if both and key in inner else value
    return found


def _deep(old: object, new: object) -> object:
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        return new
    return {**old, **{key: _deep(old.get(key), value) for key, value in new.items()}}
