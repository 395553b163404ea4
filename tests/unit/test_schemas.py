"""The schemas are valid, closed and described, and say what the vocabulary says."""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from selector.document import LIMITS, read_text
from selector.fields import BUILTIN, Vocabulary
from selector.loading import read
from selector.resources import DEFAULT_MANIFEST, resource
from selector.schema import check, load_schema

ROOT = Path(__file__).parent.parent.parent
SCHEMAS = sorted(path.name.removesuffix(".schema.json") for path in resource("schemas").iterdir())
REQUEST_AND_DEVICE = {
    *("query_len", "seq_len", "context_len", "has_context", "num_prefills"),
    *("platform", "capability"),
}

every_schema = pytest.mark.parametrize("name", SCHEMAS)


def nodes(schema: Any, where: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every subschema that describes a value, with its place."""
    if not isinstance(schema, dict):
        return
    yield where, schema
    for group in ("properties", "$defs", "patternProperties"):
        for key, value in schema.get(group, {}).items():
            yield from nodes(value, f"{where}/{group}/{key}")
    for key in ("items", "additionalProperties"):
        yield from nodes(schema.get(key), f"{where}/{key}")
    for key in ("anyOf", "oneOf"):
        for i, value in enumerate(schema.get(key, ())):
            yield from nodes(value, f"{where}/{key}/{i}")


def test_all_six_and_the_overlay_are_there() -> None:
    wanted = {"manifest", "layer", "request", "resolution", "finding", "evidence", "overlay"}
    assert wanted <= set(SCHEMAS)


@every_schema
def test_it_is_valid_and_named(name: str) -> None:
    schema = load_schema(name)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["$id"].endswith(f"/{name}.schema.json")
    assert schema["title"]
    assert schema["description"]


@every_schema
def test_every_property_has_a_description(name: str) -> None:
    bare = [
        f"{where}/{key}"
        for where, schema in nodes(load_schema(name))
        for key, value in schema.get("properties", {}).items()
        if isinstance(value, dict) and not str(value.get("description", "")).strip()
    ]
    assert bare == []


@every_schema
def test_every_mapping_is_closed(name: str) -> None:
    """Keys are listed, or described; what a later schema checks may stay open here."""
    open_on_purpose = {
        ("manifest", "/properties/definitions"),  # anchors for anything
    }
    unclosed = {
        (name, where)
        for where, schema in nodes(load_schema(name))
        if "object" in [schema.get("type"), *(schema.get("type") or ())]
        and "additionalProperties" not in schema
        and "$ref" not in schema
    }
    assert unclosed <= open_on_purpose


@every_schema
def test_every_reference_leads_somewhere(name: str) -> None:
    schema = load_schema(name)
    text = json.dumps(schema)
    for where in {part.split('"')[0] for part in text.split('"$ref": "')[1:]}:
        assert where.startswith("#/$defs/"), where
        assert where.removeprefix("#/$defs/") in schema["$defs"]


@every_schema
def test_messages_are_one_line_and_say_what_to_write(name: str) -> None:
    messages = [s["errorMessage"] for s in all_subschemas(load_schema(name)) if "errorMessage" in s]
    for message in messages:
        assert "\n" not in message
        assert not message.endswith((".", ";", " "))


def all_subschemas(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    if isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            yield from all_subschemas(value)


def test_the_vocabulary_and_the_schemas_agree() -> None:
    manifest, layer = load_schema("manifest"), load_schema("layer")
    names = {field.name for field in BUILTIN}
    for holder in ("when", "require", "accepts"):
        assert set(manifest["$defs"][holder]["properties"]) - {"any_of"} == names
    assert set(layer["properties"]) == names - REQUEST_AND_DEVICE
    for field in BUILTIN:
        assert manifest["$defs"]["when"]["properties"][field.name]["description"] == (
            field.description
        )


def test_writing_the_schemas_again_changes_nothing() -> None:
    tool = runpy.run_path(str(ROOT / "tools" / "write_schemas.py"))
    for name, put in (("manifest", tool["put_manifest"]), ("layer", tool["put_layer"])):
        file = ROOT / "schemas" / f"{name}.schema.json"
        schema = json.loads(file.read_text("utf-8"))
        put(schema)
        assert json.dumps(schema, indent=2, ensure_ascii=False) + "\n" == file.read_text("utf-8")


def test_layers_as_read_are_layers_by_the_schema() -> None:
    validator = Draft202012Validator(load_schema("layer"))
    words = Vocabulary()
    for field in BUILTIN:
        if field.name in REQUEST_AND_DEVICE:
            continue
        for raw in (*field.values, *field.symbols, *((1, 64) if field.type == "integer" else ())):
            assert validator.is_valid({field.name: words.fields[field.name].read(raw)})
        assert not validator.is_valid({field.name: []})
    assert not validator.is_valid({"hed_size": 1})


def test_the_shipped_manifest_names_its_schema_and_is_clean() -> None:
    path = resource(DEFAULT_MANIFEST)
    first = path.read_text("utf-8").splitlines()[0]
    assert first == "# yaml-language-server: $schema=schemas/manifest.schema.json"
    assert (path.parent / "schemas" / "manifest.schema.json").is_file()
    manifest, document = read(read_text(path.read_bytes(), str(path)))
    assert document.findings == []
    assert manifest is not None


def test_a_tree_as_deep_as_may_be_is_checked_without_recursing_too_far() -> None:
    for opening, closing in (("[", "]"), ("{a: ", "}")):
        depth = LIMITS.depth - 6
        deep = opening * depth + "1" + closing * depth
        text = (
            f"attnsel: 1\nname: x\nversion: '1'\ndefinitions: [{deep}]\n"
            f"backends: [{{accepts: {{dtype: {deep}, head_size: {{cases: {deep}}}}}}}]\n"
        )
        manifest, document = read(read_text(text, "m.yaml"))
        assert manifest is None
        assert 5 < len(document.findings) < 30
        assert {f.code for f in document.findings} <= {"CAP003", "CAP004", "CAP008"}


def test_one_wrong_value_is_one_fault() -> None:
    layer = {"mla": "maybe", "dtype": "bfloat17", "hed_size": 1}
    faults = {(fault.path, fault.code): fault for fault in check(layer, "layer")}
    assert len(faults) == 3
    assert faults[("dtype",), "CAP004"].fix == "did you mean bfloat16?"
    assert faults[("hed_size",), "CAP003"].fix == "did you mean head_size?"
    assert faults[("mla",), "CAP004"].message == '"maybe" is not true or false'
