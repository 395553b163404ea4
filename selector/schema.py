"""JSON Schema validation with one finding a mistake, in one line, at the line that is wrong.

A schema may carry its own message: ``errorMessage`` (what is wrong, then what to write, after a
semicolon) and ``x-code`` beside the keyword that fails. Everything else is worded here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from selector.accepting import acceptance
from selector.fields import close_matches
from selector.resources import resource
from selector.scalars import cut, lacks_space

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


@cache
def _acceptance(name: str) -> Callable[[object], bool] | None:
    return acceptance(load_schema(name))


def check(instance: object, name: str) -> Iterator[Fault]:
    """Yields every mistake in ``instance`` against the schema called ``name``."""
    accepts = _acceptance(name)
    if accepts is not None and accepts(instance):
        return
    errors = list(islice(_validator(name).iter_errors(instance), _MOST_ERRORS))
    told = [error for error in errors if not _is_conditional(error)]
    wanting = {tuple(error.absolute_path) for error in errors if _wanted(error)}
    misspelt = {
        (*error.absolute_path, key)
        for error in told
        if error.validator == "additionalProperties" and tuple(error.absolute_path) in wanting
        for key in _meant(error)
    }
    places = {tuple(error.absolute_path) for error in told}
    for error in errors:
        if any((*error.absolute_path, key) in misspelt for key in _wanted(error)):
            continue
        if not _is_conditional(error) or not _follows(tuple(error.absolute_path), places):
            yield from _faults(error)


def _is_conditional(error: Any) -> bool:
    """Whether an error is one only because another value has been read."""
    return "then" in error.absolute_schema_path


def _follows(path: tuple[str | int, ...], places: set[tuple[str | int, ...]]) -> bool:
    """Whether a conditional mistake only follows from one that stands at one of these places.

    What stands there, or what the condition reads, is nothing that could be looked at.
    """
    entry = path[:2]
    read = [entry + rest for rest in _READ.get(entry[:1], ())]
    within = {place[:-1] for place in places} if "capability" in path else set()
    return path in places | within or bool(places.intersection(read))


_READ: dict[tuple[str | int, ...], tuple[tuple[str, ...], ...]] = {
    ("backends",): (
        ("sparse",),
        ("dense_prefill",),
        ("phases",),
        ("accepts",),
        ("accepts", "capability"),
    ),
    ("facts",): ((), ("type",)),
}
"""What the conditions of an entry and of a fact read."""


_MOST_TYPES = 3
"""Where more are allowed, it is a predicate: naming them all would say nothing."""

_WORD = re.compile(r"[A-Za-z][\w.-]{0,60}")

_SHORTEST = 2
"""A key as short as this resembles too much."""

_MOST_ERRORS, _MOST_KEYS = 400, 50
"""How many mistakes, and misspelt keys of a mapping, are looked for: more are never shown."""


def _missing(error: Any) -> str:
    """The key that an error of ``required`` is about."""
    missing = (str(key) for key in error.validator_value if key not in error.instance)
    return next(key for key in missing if f"'{key}'" in error.message)


def _wanted(error: Any) -> list[str]:
    """The keys that would mend an error, where it is that one is missing."""
    if error.validator == "required":
        return [_missing(error)]
    if error.validator not in ("anyOf", "oneOf"):
        return []
    return [key for branch in error.validator_value for key in branch.get("required", ())]


def _unknown(error: Any) -> list[str]:
    """The keys that an error of ``additionalProperties`` is about."""
    return [key for key in error.instance if key not in error.schema.get("properties", {})]


def _meant(error: Any) -> list[str]:
    """The known keys that the unknown ones stand for."""
    unknown = _unknown(error)
    if len(unknown) == len(error.instance):
        return list(error.schema.get("required", ()))  # no key is right: any may be meant
    return [near[0] for key in unknown[:_MOST_KEYS] if (near := _near(key, error))]


def _near(key: str, error: Any) -> list[str]:
    """The known key that an unknown one is nearest to, if any is near."""
    known = error.schema.get("properties", {})
    return close_matches(key, known, 0.55) if len(key) > _SHORTEST else []


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
        words, _, fix = (own or "is not a name that is allowed here; use a-z, 0-9, _").partition(
            "; "
        )
        message = f'key "{cut(str(error.instance))}" {words}'
        yield Fault((*path, error.instance), True, "CAP003", message, fix)
        return
    if own and not _is_mistyped(error, own):
        message, _, fix = own.partition("; ")
        if message[:3] == "is ":
            message = f"{_shown(error.instance)} {message}"
        yield Fault(path, False, schema.get("x-code", "CAP004"), message, fix)
        return
    yield _worded(error, path)


def _is_mistyped(error: Any, own: str) -> bool:
    """Whether the schema's own words, of what is blank or within, are said of another type."""
    blank = own[:8] == "is blank" and error.instance is not None
    return error.validator == "type" and (blank or error.validator_value == "object")


def _unknown_keys(error: Any, path: tuple[str | int, ...]) -> Iterator[Fault]:
    known = error.schema.get("properties", {})
    for key in _unknown(error):
        near = _near(key, error)
        fix = f"did you mean {near[0]}?" if near else f"known here: {', '.join(sorted(known))}"
        yield Fault((*path, key), True, "CAP003", f'unknown key "{cut(key)}"', fix)


def _worded(error: Any, path: tuple[str | int, ...]) -> Fault:
    what = error.validator
    wanted = error.validator_value
    seen = _shown(error.instance)
    if what == "required":
        missing = _missing(error)
        about = error.schema.get("properties", {}).get(missing, {}).get("description", "")
        return Fault(
            path, False, "CAP008", f"`{missing}` is missing", f"add it: {about}".strip(": ")
        )
    if what == "type":
        kinds = [wanted] if isinstance(wanted, str) else wanted
        if len(kinds) > _MOST_TYPES:
            message = f"{seen} says no values"
            return Fault(path, False, "CAP004", message, "list the values, or write any")
        allowed = " or ".join(_TYPES[k] for k in kinds)
        fix = _retyped(error.instance, kinds) or f"write {allowed}{_of_keys(error)}"
        return Fault(path, False, "CAP004", f"{seen} is not {allowed}", fix)
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
    fix = f"write at {'least' if what == 'minimum' else 'most'} {wanted}" if "imum" in what else ""
    return Fault(path, False, "CAP004", f"{seen} {limits.get(what, f'breaks {what}')}", fix)


def _of_keys(error: Any) -> str:
    """The keys that a list names, where they are those of the mapping that is wanted."""
    known = error.schema.get("properties", {})
    named = error.instance if isinstance(error.instance, list) else []
    if not named or not all(isinstance(key, str) and key in known for key in named):
        return ""
    return f" with the keys {', '.join(dict.fromkeys(named))}"


def _retyped(value: object, kinds: list[str]) -> str:
    """What to write where a value was meant for the type, and YAML reads another."""
    first = next(iter(value), "") if isinstance(value, dict) else value
    if isinstance(first, str) and (sign := lacks_space(first)):
        return f"put a space after the {sign}"
    if isinstance(value, str) and "array" in kinds and _WORD.fullmatch(value):
        return f"write [{value}]"
    if isinstance(value, int | float) and not isinstance(value, bool) and "string" in kinds:
        return f'write "{value}"'
    if value in ("true", "false") and "boolean" in kinds:
        return f"write {value} without quotes"
    if isinstance(value, str) and value[:19].isdecimal() and "integer" in kinds:
        return f"write {cut(value)} without quotes"
    return ""


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return f'"{cut(value)}"'
    return "an empty value" if value is None else json.dumps(value)[:60]
