"""The description of the service: written by hand, with the schemas that answers have elsewhere."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from selector.resources import packaged
from selector.schema import load_schema

__all__ = ["description"]

_ELSEWHERE = "attnsel:"
"""Begins a reference to a schema that ships with attnsel."""


@cache
def description() -> dict[str, Any]:
    """The OpenAPI document, whole: no reference leads out of it."""
    text = packaged("service/openapi.json").read_text("utf-8")
    document: dict[str, Any] = json.loads(text)
    schemas: dict[str, Any] = document["components"]["schemas"]
    for name, stated in [*schemas.items()]:
        if stated.get("$ref", "").startswith(_ELSEWHERE):
            schemas.update(_brought(name))
    return document


def _brought(name: str) -> dict[str, Any]:
    """A schema under its name, and what it defines under names that begin with its own."""
    whole = {key: part for key, part in load_schema(name).items() if key not in ("$schema", "$id")}
    parts = whole.pop("$defs", {})
    found = {name: _moved(whole, name)}
    return found | {f"{name}.{part}": _moved(stated, name) for part, stated in parts.items()}


def _moved(schema: Any, name: str) -> Any:
    """A schema whose references lead to where its parts are now."""
    if isinstance(schema, list):
        return [_moved(part, name) for part in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(part, name) for key, part in schema.items()}
    target = schema.get("$ref")
    if isinstance(target, str):
        own = target.removeprefix("#/$defs/")
        part = name if own == "#" else f"{name}.{own}"
        moved["$ref"] = f"#/components/schemas/{part}"
    return moved
