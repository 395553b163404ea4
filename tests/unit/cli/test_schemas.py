"""The schemas say exactly what the value types hold, each field with a description."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from selector import values
from selector.schema import load_schema

from .conftest import GQA, SPARSE, Run

NAMES = sorted(
    path.name.removesuffix(".schema.json")
    for path in (Path(__file__).parents[3] / "schemas").glob("*.schema.json")
)
_CONDITIONS = {"if", "then", "else", "not"}
"""Keywords that narrow what is described elsewhere."""


def test_every_schema_is_here() -> None:
    assert {"preflight", "diagnosis", "manifest"} < set(NAMES)
    assert len(NAMES) >= 13


@pytest.mark.parametrize("name", NAMES)
def test_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(load_schema(name))


def fields(schema: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(schema, list):
        for part in schema:
            yield from fields(part)
    elif isinstance(schema, dict):
        yield from schema.get("properties", {}).items()
        for keyword, part in schema.items():
            if keyword not in _CONDITIONS:
                yield from fields(part)


@pytest.mark.parametrize("name", NAMES)
def test_every_field_is_described_and_every_object_is_closed(name: str) -> None:
    schema = load_schema(name)
    for field, stated in fields(schema):
        if not (isinstance(stated, dict) and stated.keys() & {"type", "$ref", "anyOf", "enum"}):
            continue
        assert stated.get("description", "").strip(), field
        if stated.get("type") == "object":
            assert "additionalProperties" in stated, field


@pytest.mark.parametrize(
    ("definition", "struct"),
    [
        ("resolution", values.Resolution),
        ("choice", values.Choice),
        ("candidate", values.Candidate),
        ("verdict", values.Verdict),
        ("rejection", values.Rejection),
        ("condition", values.Condition),
        ("coercion", values.Coercion),
        ("path_off", values.PathOff),
    ],
)
def test_definitions_hold_the_fields_of_the_types(
    definition: str, struct: type[msgspec.Struct]
) -> None:
    stated = load_schema("resolution")["$defs"][definition]
    extra = {"model"} if definition == "resolution" else set()
    assert stated["properties"].keys() - extra == set(struct.__struct_fields__)
    without = {"fallback"}  # said only where there was one
    assert set(stated["required"]) == set(struct.__struct_fields__) - without


def test_enums_and_other_structs() -> None:
    definitions = load_schema("resolution")["$defs"]
    assert definitions["verdict"]["properties"]["outcome"]["enum"] == [
        *("selected", "eligible", "conditional", "denied", "pinned", "unavailable", "unsupported")
    ]
    assert set(definitions["verdict"]["properties"]["outcome"]["enum"]) == set(values.Outcome)
    origins = definitions["model"]["properties"]["origins"]["additionalProperties"]["enum"]
    assert set(origins) == set(values.Origin)
    finding = load_schema("finding")["$defs"]["finding"]["properties"]
    assert finding.keys() == set(values.Finding.__struct_fields__)
    assert set(finding["severity"]["enum"]) == set(values.Severity)
    fallback = definitions["resolution"]["properties"]["fallback"]
    assert fallback["required"] == [*values.Fallback.__struct_fields__]
    assert load_schema("request")["properties"].keys() == set(values.Request.__struct_fields__)


@pytest.mark.parametrize(
    ("request_", "good"),
    [
        ({"query_len": 1, "seq_len": 5, "speculative_tokens": 2}, True),
        ({}, True),
        ({"query_len": None}, True),
        ({"query_len": 0}, False),
        ({"tokens": 3}, False),
    ],
)
def test_requests(request_: dict[str, object], good: bool) -> None:
    assert Draft202012Validator(load_schema("request")).is_valid(request_) is good


LAYER = GQA.replace("128", "96").replace("auto", "fp8_e5m2")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("explanation", ("explain", "--arch", "12.0", "--set", LAYER)),
        ("explanation", ("explain", "--arch", "7.5", "--set", SPARSE)),
        ("explanation", ("explain", "--arch", "12.0", "--model", "gpt-oss-20b", "--deny", "math")),
        ("inspection", ("inspect",)),
        ("inspection", ("inspect", "--gaps")),
        ("inspection", ("inspect", "--matrix")),
        ("inspection", ("inspect", "--matrix", "--model", "gemma-3-27b")),
        *(("inspection", ("inspect", name)) for name in ("fa2", "sparse_sm100", "sparse_sm120")),
        ("machine", ("info",)),
        ("machine", ("info", "--gpus")),
        ("machine", ("info", "--fields")),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, tuple) else value,
)
def test_what_is_printed_is_what_the_schema_says(
    run: Run, small: list[str], name: str, arguments: tuple[str, ...]
) -> None:
    ran = run(*arguments, *small, "--format", "json")
    schema = load_schema(name)
    (form,) = [
        part["$ref"].rsplit("/", 1)[1]
        for part in schema["anyOf"]
        if Draft202012Validator({**schema, "anyOf": [part]}).is_valid(ran.json)
    ]
    assert form  # exactly one of them


def test_every_shipped_entry_can_be_inspected_as_the_schema_says(run: Run) -> None:
    validator = Draft202012Validator(load_schema("inspection"))
    for short in run("inspect", "--format", "json").json["backends"]:
        validator.validate(run("inspect", short["name"], "--format", "json").json)


def test_schemas_of_other_answers_hold_the_parts_of_a_resolution() -> None:
    answer = load_schema("resolution")["$defs"]
    for name in ("explanation", "inspection", "machine"):
        shared = load_schema(name)["$defs"].keys() & answer.keys()
        for part in shared:
            assert load_schema(name)["$defs"][part] == answer[part], "run make schemas"
