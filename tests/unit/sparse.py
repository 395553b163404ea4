"""Entries and layers for tests of sparse layers: what may be dense, and who computes it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from selector import Layer
from selector.domains import Domain

Build = Any  # the fixture of tests/conftest.py
Tree = dict[str, Any]
KIND = {"mla": True, "sparse": True, "dense_prefill": True}
PROBE = {"probe": {"type": "boolean", "description": "A switch."}}
BY_ANOTHER: Tree = {"path": "dense_mha", "by": "dense_backend", "reason": "Nothing is left out."}
DENSE: Tree = {"path": "dense_mha", "reason": "Nothing is left out."}
TOP_K: Tree = {"path": "sparse_mqa", "reason": "The rest."}


def sparse(build: Build, *paths: Tree, **keys: Any) -> Tree:
    """A sparse entry of Hopper with these paths, and the top-k path for the rest."""
    stated = {"dense_prefill": True, "accepts": {}, **keys}
    stated["accepts"] = {"capability": ["9.0"], **stated["accepts"]}
    entry: Tree = build.entry(
        "sparse", mla=True, sparse=True, prefill_paths=[*paths, TOP_K], **stated
    )
    return entry


def dense(build: Build, name: str, **keys: Any) -> Tree:
    """An entry that computes prefill of dense MLA layers."""
    entry: Tree = build.entry(name, mla=True, phases={"prefill": {}}, **keys)
    return entry


def layer(build: Build, **values: Any) -> Layer:
    """A sparse MLA layer that may be computed densely; sets are possible values."""
    sets = {k: v for k, v in values.items() if isinstance(v, Domain)}
    plain = build.layer(**{**KIND, **{k: v for k, v in values.items() if k not in sets}})
    return Layer(MappingProxyType({**plain.fields, **sets}))
