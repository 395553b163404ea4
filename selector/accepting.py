"""JSON Schema as one function that says yes or no, soon: what is wrong is worded elsewhere.

Most documents are right. To find that out takes a tenth of the time that a full validator takes to
be imported and to look for all mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["acceptance"]

Accepts = Callable[[Any], bool]
Make = Callable[[Any, Mapping[str, Any]], Accepts]

_SAYS_NOTHING = frozenset(
    ("$schema", "$id", "$defs", "title", "description", "errorMessage", "x-code", "then", "else")
)
_TYPES: dict[str, Accepts] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: _is_number(value) and value == value // 1,
    "number": lambda value: _is_number(value),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def acceptance(schema: Mapping[str, Any]) -> Accepts | None:
    """Tells whether a schema accepts a value; ``None``: it has a keyword that is not known here."""
    try:
        return _Maker(schema).accepts(schema)
    except KeyError:
        return None


class _Maker:
    """Makes the functions; each definition is made once, so that it can hold itself."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.made: dict[str, list[Accepts]] = {}

    def accepts(self, schema: Any) -> Accepts:
        """The function of a schema.

        Raises:
            KeyError: a keyword or a reference is not known.
        """
        if isinstance(schema, bool):
            return lambda _: schema
        parts = [
            getattr(self, f"_{_KEYWORDS[key]}")(said, schema)
            for key, said in schema.items()
            if key not in _SAYS_NOTHING
        ]
        if len(parts) == 1:
            only: Accepts = parts[0]
            return only
        return lambda value: all(part(value) for part in parts) if parts else True

    def _all(self, schemas: Iterable[Any]) -> list[Accepts]:
        return [self.accepts(schema) for schema in schemas]

    def _ref(self, said: str, _: Any) -> Accepts:
        name = said.removeprefix("#/$defs/")
        if name not in self.made:
            self.made[name] = []
            self.made[name].append(self.accepts(self.root["$defs"][name]))
        made = self.made[name]
        return lambda value: made[0](value)

    def _type(self, said: str | list[str], _: Any) -> Accepts:
        kinds = [_TYPES[kind] for kind in ([said] if isinstance(said, str) else said)]
        if len(kinds) == 1:
            return kinds[0]
        return lambda value: any(kind(value) for kind in kinds)

    def _enum(self, said: list[Any], _: Any) -> Accepts:
        if any(isinstance(one, dict | list) for one in said):
            raise KeyError("enum")
        known = {(isinstance(one, bool), one) for one in said}

        def accepts(value: Any) -> bool:
            if isinstance(value, dict | list):
                return False
            return (isinstance(value, bool), value) in known

        return accepts

    def _const(self, said: Any, schema: Any) -> Accepts:
        return self._enum([said], schema)

    def _pattern(self, said: str, _: Any) -> Accepts:
        search = re.compile(said).search
        return lambda value: not isinstance(value, str) or search(value) is not None

    def _minimum(self, said: float, _: Any) -> Accepts:
        return lambda value: not _is_number(value) or value >= said

    def _maximum(self, said: float, _: Any) -> Accepts:
        return lambda value: not _is_number(value) or value <= said

    def _min_items(self, said: int, _: Any) -> Accepts:
        return lambda value: not isinstance(value, list) or len(value) >= said

    def _items(self, said: Any, _: Any) -> Accepts:
        item = self.accepts(said)
        return lambda value: not isinstance(value, list) or all(map(item, value))

    def _contains(self, said: Any, _: Any) -> Accepts:
        item = self.accepts(said)
        return lambda value: not isinstance(value, list) or any(map(item, value))

    def _min_properties(self, said: int, _: Any) -> Accepts:
        return lambda value: not isinstance(value, dict) or len(value) >= said

    def _required(self, said: list[str], _: Any) -> Accepts:
        names = frozenset(said)
        return lambda value: not isinstance(value, dict) or names <= value.keys()

    def _properties(self, said: Mapping[str, Any], _: Any) -> Accepts:
        stated = {key: self.accepts(schema) for key, schema in said.items()}

        def accepts(value: Any) -> bool:
            if not isinstance(value, dict):
                return True
            return all(stated[key](one) for key, one in value.items() if key in stated)

        return accepts

    def _additional(self, said: Any, schema: Mapping[str, Any]) -> Accepts:
        known = schema.get("properties", {}).keys()
        if "patternProperties" in schema:
            raise KeyError("patternProperties")
        other = self.accepts(said)
        return lambda value: (
            not isinstance(value, dict)
            or all(other(one) for key, one in value.items() if key not in known)
        )

    def _names(self, said: Any, _: Any) -> Accepts:
        name = self.accepts(said)
        return lambda value: not isinstance(value, dict) or all(map(name, value))

    def _every(self, said: list[Any], _: Any) -> Accepts:
        parts = self._all(said)
        return lambda value: all(part(value) for part in parts)

    def _some(self, said: list[Any], _: Any) -> Accepts:
        parts = self._all(said)
        return lambda value: any(part(value) for part in parts)

    def _one(self, said: list[Any], _: Any) -> Accepts:
        parts = self._all(said)
        return lambda value: sum(part(value) for part in parts) == 1

    def _not(self, said: Any, _: Any) -> Accepts:
        part = self.accepts(said)
        return lambda value: not part(value)

    def _if(self, said: Any, schema: Mapping[str, Any]) -> Accepts:
        asked = self.accepts(said)
        then, other = self._all((schema.get("then", True), schema.get("else", True)))
        return lambda value: then(value) if asked(value) else other(value)


_KEYWORDS = {
    "$ref": "ref",
    "type": "type",
    "enum": "enum",
    "const": "const",
    "pattern": "pattern",
    "minimum": "minimum",
    "maximum": "maximum",
    "minItems": "min_items",
    "items": "items",
    "contains": "contains",
    "minProperties": "min_properties",
    "required": "required",
    "properties": "properties",
    "additionalProperties": "additional",
    "propertyNames": "names",
    "allOf": "every",
    "anyOf": "some",
    "oneOf": "one",
    "not": "not",
    "if": "if",
}
