"""Models: a Hugging Face ``config.json`` → the distinct attention layers of the model.

How configs spell things, and what configuration classes assume, are tables (``families.json``,
``defaults.json``); a few named rules read them. Models that ship with attnsel are in ``presets/``.
"""

from __future__ import annotations

from selector.models.loading import load_model, presets
from selector.models.overriding import override
from selector.models.reader import read_config
from selector.models.sharding import shard

__all__ = ["load_model", "override", "presets", "read_config", "shard"]
