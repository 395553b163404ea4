"""The quick yes or no of a schema is that of a full validator."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from selector.accepting import acceptance
from selector.document import read_document, read_text
from selector.schema import check, load_schema
from tests.fuzz.lint import inputs

ROOT = Path(__file__).parents[2]
FILES = sorted([*ROOT.glob("tests/manifests/*/*.yaml"), *ROOT.glob("manifests/*.yaml")])
SCHEMAS = ("manifest", "overlay")


@cache
def validator(name: str) -> Any:
    return Draft202012Validator(load_schema(name))


def agree(value: object, name: str) -> bool:
    accepts = acceptance(load_schema(name))
    assert accepts is not None
    said = accepts(value)
    assert said == validator(name).is_valid(value)
    assert said == (not list(check(value, name)))
    return said


@pytest.mark.parametrize("path", [ROOT / "capabilities.yaml", *FILES], ids=lambda path: path.stem)
def test_of_manifests(path: Path) -> None:
    tree = read_document(path).tree
    if tree is not None:
        said = agree(tree, "manifest")
        assert said or path.parent.name == "bad"
        agree(tree, "overlay")


@given(inputs(), st.sampled_from(SCHEMAS))
def test_of_changed_manifests(data: bytes, name: str) -> None:
    tree = read_text(data, "a.yaml").tree
    if tree is not None:
        agree(tree, name)


VALUES = [
    *(None, True, False, 0, 1, 2, 1.0, 1.5, "", "a", "ab", "1", [], [1], [1, "a"], [True]),
    *({}, {"a": 1}, {"a": "a", "b": 2}, {"b": [1]}, {"c": {"a": 1}}, [[1], {"a": 1}]),
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize(
    "schema",
    [
        *(True, False, {}, {"const": 1}, {"const": True}, {"const": "a"}, {"enum": [1, "a", None]}),
        *({"type": kind} for kind in ("object", "array", "string", "integer", "number", "null")),
        {"type": ["boolean", "string"]},
        *(
            {"pattern": "^a$"},
            {"minimum": 1},
            {"maximum": 1},
            {"minItems": 2},
            {"minProperties": 2},
        ),
        *({"items": {"type": "integer"}}, {"items": False}, {"contains": {"const": 1}}),
        *(
            {"required": ["a"]},
            {"properties": {"a": {"const": 1}}},
            {"propertyNames": {"const": "a"}},
        ),
        {"properties": {"a": True}, "additionalProperties": False},
        {"properties": {"a": True}, "additionalProperties": {"type": "integer"}},
        *({"allOf": [{"minimum": 1}, {"type": "integer"}]}, {"not": {"type": "object"}}),
        {"anyOf": [{"type": "string"}, {"type": "number"}]},
        {"oneOf": [{"type": "integer"}, {"minimum": 2}]},
        {"if": {"type": "string"}, "then": {"const": "a"}, "else": {"type": "object"}},
        {"if": {"type": "string"}, "then": {"const": "a"}},
        {
            "$defs": {"n": {"items": {"$ref": "#/$defs/n"}, "not": {"const": 1}}},
            "$ref": "#/$defs/n",
        },
    ],
    ids=repr,
)
def test_of_every_keyword(schema: Any, value: object) -> None:
    accepts = acceptance(schema)
    assert accepts is not None
    assert accepts(value) == Draft202012Validator(schema).is_valid(value)


@pytest.mark.parametrize(
    "schema",
    [
        *({"uniqueItems": True}, {"patternProperties": {}, "additionalProperties": False}),
        *({"$ref": "#/$defs/none", "$defs": {}}, {"const": [1]}, {"items": {"format": "uri"}}),
    ],
    ids=repr,
)
def test_what_is_not_known_has_no_quick_answer(schema: Any) -> None:
    assert acceptance(schema) is None
