"""JSON Schema validation with one finding a mistake, in one line, at the line that is wrong.

A schema may carry its own message: ``errorMessage`` (what is wrong, then what to write, after a
semicolon) and ``x-code`` beside the keyword that fails. Everything else is worded here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from selector.fields import close_matches
from selector.resources import resource

__all__ = ["Fault", "check", "load_schema"]


class Fault(NamedTuple):
    """One mistake: where in the document, whether the key itself is wrong, and what to say."""

    path: tuple[str | int, ...]
    at_key: bool
    code: str
    message: str
    fix: str


@cache
def load_schema(name: str) -> dict[str, Any]:
    """The shipped schema called ``name``: ``manifest``, ``layer``, ``resolution``, …."""
    path = resource("schemas") / f"{name}.schema.json"
    schema: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return schema


@cache
def _validator(name: str) -> Any:
    from jsonschema import Draft202012Validator  # imports slowly; only checking needs it

    return Draft202012Validator(load_schema(name))


def check(instance: object, name: str) -> Iterator[Fault]:
    """Yields every mistake in ``instance`` against the schema called ``name``."""
    for error in _validator(name).iter_errors(instance):
        yield from _faults(error)


_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}


def _faults(error: Any) -> Iterator[Fault]:
    path = tuple(error.absolute_path)
    schema = error.schema if isinstance(error.schema, dict) else {}
    own = schema.get("errorMessage")
    if error.validator == "additionalProperties":
        yield from _unknown_keys(error, path)
        return
    if error.validator == "propertyNames" or "propertyNames" in error.schema_path:
        own = own or "is not a name that is allowed here"
        yield Fault(
            (*path, error.instance), True, "CAP003", f'key "{_cut(error.instance)}" {own}', ""
        )
        return
    if own:
        message, _, fix = own.partition("; ")
        if message[:3] == "is ":
            message = f"{_shown(error.instance)} {message}"
        yield Fault(path, False, schema.get("x-code", "CAP004"), message, fix)
        return
    yield _worded(error, path)


def _unknown_keys(error: Any, path: tuple[str | int, ...]) -> Iterator[Fault]:
    known = list(error.schema.get("properties", {}))
    for key in error.instance:
        if key in known:
            continue
        near = close_matches(key, known, 0.55)
        fix = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
        yield Fault((*path, key), True, "CAP003", f'unknown key "{_cut(key)}"', fix)


def _worded(error: Any, path: tuple[str | int, ...]) -> Fault:
    what = error.validator
    wanted = error.validator_value
    seen = _shown(error.instance)
    if what == "required":
        missing = next(k for k in wanted if k not in error.instance and f"'{k}'" in error.message)
        about = error.schema.get("properties", {}).get(missing, {}).get("description", "")
        return Fault(
            path, False, "CAP008", f"`{missing}` is missing", f"add it: {about}".strip(": ")
        )
    if what == "type":
        kinds = [wanted] if isinstance(wanted, str) else wanted
        allowed = " or ".join(_TYPES[k] for k in kinds)
        return Fault(path, False, "CAP004", f"{seen} is not {allowed}", f"write {allowed}")
    if what == "enum":
        listed = ", ".join(map(str, wanted))
        near = close_matches(str(error.instance), [str(w) for w in wanted])
        fix = f"did you mean {near[0]}?" if near else f"allowed: {listed}"
        return Fault(path, False, "CAP004", f"{seen} is not one of {listed}", fix)
    if what == "const":
        return Fault(path, False, "CAP004", f"{seen} is not {_shown(wanted)}", "")
    if what in ("minItems", "minProperties"):
        about = str(error.schema.get("description", "")).rstrip(".")
        return Fault(path, False, "CAP004", f"{seen} is empty", f"write what it holds: {about}")
    limits = {
        "minimum": f"is less than {wanted}",
        "maximum": f"is more than {wanted}",
        "minLength": "is blank",
        "pattern": "is not spelled as expected",
    }
    return Fault(path, False, "CAP004", f"{seen} {limits.get(what, f'breaks {what}')}", "")


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f'"{_cut(value)}"'
    return "an empty value" if value is None else json.dumps(value)[:60]


def _cut(text: object) -> str:
    flat = " ".join(str(text).split())
    return flat if len(flat) <= 60 else flat[:57] + "…"
