"""A plan gives the definition's answers, whatever the manifest says and whatever is unknown."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from selector import Device, Facts, Layer, Request
from selector.domains import Domain
from selector.manifest import Manifest
from tests.laws.test_resolve import (
    LAYER_FIELDS,
    Asked,
    Fields,
)

Question = tuple[Device, Layer, Facts, Request]


def question(manifest: Manifest, asked: Asked, unknown: frozenset[str], sets: Fields) -> Question:
    """What a drawn question is for the library, without what is unknown."""
    said = {f: asked.fields[f] for f in LAYER_FIELDS if f != "capability" and f not in unknown}
    fields: dict[str, Any] = dict(Layer.read(said, manifest.vocabulary).fields)
    fields |= {name: Domain.of(*values) for name, values in sets.items()}
    facts: dict[str, Any] = {"probe": asked.fields["probe"], "lib": asked.version}
    return (
        Device("cuda", asked.fields["capability"]),
        Layer(MappingProxyType(fields)),
        Facts({name: value for name, value in facts.items() if name not in unknown}),
        Request(
            None if "query_len" in unknown else asked.query_len,
            None if "seq_len" in unknown else asked.seq_len,
            asked.speculative_tokens,
        ),
    )
