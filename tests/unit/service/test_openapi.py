"""The description says what the service does: every route, field, status and code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from selector import errors
from selector.resources import packaged
from selector.service import bodies
from selector.service.access import EXPLORER
from selector.service.handlers import ROUTES
from selector.service.openapi import description
from selector.serving.diagnosis.whole import NothingFoundError
from selector.tables.answers import ANSWER_COLUMNS
from tests.unit.service.conftest import Serve, Served

DOCUMENT = description()
SCHEMAS = DOCUMENT["components"]["schemas"]
LAYER = {"head_size": 128, "dtype": "bfloat16", "kv_cache_dtype": "auto", "attn_type": "decoder"}
LOG = (
    "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig("
    "head_size=128, dtype=torch.bfloat16, kv_cache_dtype=fp8, block_size=16, use_mla=False, "
    "has_sink=False, use_sparse=False). Reasons: {FLASH_ATTN: [kv_cache_dtype not supported]}."
)


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def test_routes_are_described_and_nothing_else_is() -> None:
    assert {(method, path) for method, path, _ in operations()} == {r[:2] for r in ROUTES}


def references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from references(part)
    elif isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for part in value.values():
            yield from references(part)


def test_every_reference_leads_somewhere_within() -> None:
    found = {*references(DOCUMENT)}
    assert len(found) > 60
    for reference in found:
        part: Any = DOCUMENT
        for name in reference.removeprefix("#/").split("/"):
            part = part[name]


@pytest.mark.parametrize("name", SCHEMAS)
def test_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    for field, stated in SCHEMAS[name].get("properties", {}).items():
        assert stated.get("description", "").strip(), field


@pytest.mark.parametrize(
    ("name", "struct"),
    [
        ("Question", bodies.Question),
        ("Lengths", bodies.Lengths),
        ("Logged", bodies.Logged),
        ("Side", bodies.Side),
        ("Sides", bodies.Sides),
        ("Policy", bodies._Policy),
        ("Device", bodies._Device),
    ],
)
def test_bodies_have_the_fields_that_are_read(name: str, struct: type[msgspec.Struct]) -> None:
    stated = SCHEMAS[name]
    fields = msgspec.structs.fields(struct)
    assert {*stated["properties"]} == {field.name for field in fields}
    assert {*stated.get("required", ())} == {field.name for field in fields if field.required}
    assert stated["additionalProperties"] is False
    for field in fields:
        default = stated["properties"][field.name].get("default", field.default)
        assert default == field.default, field.name


def test_columns_of_a_batch() -> None:
    assert tuple(SCHEMAS["AnsweredRow"]["properties"]) == ANSWER_COLUMNS
    assert tuple(SCHEMAS["AnsweredRow"]["required"]) == ANSWER_COLUMNS


def test_codes_of_problems() -> None:
    raised = {NothingFoundError.code}
    raised |= {
        one.code
        for one in vars(errors).values()
        if isinstance(one, type) and issubclass(one, errors.AttnselError)
    }
    for file in packaged("service").glob("*.py"):
        raised |= {*re.findall(r'Problem\(\s*\d+,\s*"([A-Z_]+)"', file.read_text())}
    raised |= {"NO_SUCH_PATH", "NO_SUCH_METHOD"}
    raised -= {"UNKNOWN_RULE"}  # nobody can name a rule here
    assert {*SCHEMAS["Problem"]["properties"]["code"]["enum"]} == raised


ASKED = {"device": "9.0", "layer": LAYER, "request": {"query_len": 7}}
REAL: list[tuple[str, str, dict[str, Any], int]] = [
    ("POST", "/v1/resolve", {"json": ASKED}, 200),
    ("POST", "/v1/resolve", {"json": ASKED | {"layer": {"x": 1}}}, 422),
    ("POST", "/v1/resolve", {"json": ASKED | {"manifest": "x"}}, 404),
    ("POST", "/v1/resolve", {"content": b"{"}, 400),
    ("POST", "/v1/resolve", {"content": b" " * 100_001}, 413),
    ("POST", "/v1/resolve", {"content": b"", "headers": {"content-type": "a/b"}}, 415),
    ("POST", "/v1/resolve:batch", {"json": [{"arch": "9.0", **LAYER}, {}]}, 200),
    ("POST", "/v1/resolve:batch", {"json": {}}, 422),
    ("POST", "/v1/explain", {"json": ASKED}, 200),
    ("POST", "/v1/explain", {"json": {"log": LOG, "manifest": "vllm-0.33.0"}}, 200),
    ("POST", "/v1/explain", {"json": {"log": "fine"}}, 422),
    ("POST", "/v1/lint", {"content": b"attnsel: 1\n"}, 200),
    ("POST", "/v1/diff", {"json": {"old": "engine", "new": {"name": "engine"}}}, 200),
    ("POST", "/v1/diff", {"json": {"old": "engine", "new": {"document": "a: ["}}}, 422),
    ("GET", "/v1/manifest", {}, 200),
    ("GET", "/v1/manifest", {"headers": {"if-none-match": "*"}}, 304),
    ("GET", "/v1/backends", {}, 200),
    ("GET", "/v1/backends", {"params": {"x": "1"}}, 422),
    ("GET", "/v1/backends/{name}", {}, 200),
    ("GET", "/v1/matrix", {}, 200),
    ("GET", "/v1/models", {}, 200),
    ("GET", "/v1/models", {"params": {"x": "1"}}, 422),
    ("GET", "/healthz", {}, 200),
    ("GET", "/readyz", {}, 200),
    ("GET", "/metrics", {}, 200),
    ("GET", "/openapi.json", {}, 200),
]


@pytest.mark.parametrize(("method", "path", "sent", "status"), REAL)
def test_real_answers_are_as_described(
    serve: Serve, method: str, path: str, sent: dict[str, Any], status: int
) -> None:
    served = serve(body_bytes=100_000)
    answer = served.client.request(method, path.replace("{name}", "fa2"), **sent)
    assert answer.status_code == status, answer.text
    check(answer, DOCUMENT["paths"][path][method.lower()])


def check(answer: Any, operation: dict[str, Any]) -> None:
    """Holds an answer against what is said of its status: its headers, type and body."""
    stated = operation["responses"][str(answer.status_code)]
    if "$ref" in stated:
        stated = DOCUMENT["components"]["responses"][stated["$ref"].rpartition("/")[2]]
    for header in stated.get("headers", {}):
        assert header in answer.headers
    if "content" not in stated:
        assert answer.content == b""
        return
    media = answer.headers["content-type"].partition(";")[0]
    schema = stated["content"][media]["schema"]
    if media.endswith("json"):
        validator(schema).validate(answer.json())


def test_a_service_that_drains_and_a_token_that_is_missing(serve: Serve) -> None:
    served = serve(token="correct-horse-battery")
    for _, path, operation in operations():
        if operation.get("security") != [] and "get" in DOCUMENT["paths"][path]:
            check(served.client.get(path), operation)
    served.service.draining = True
    check(served.client.get("/readyz"), DOCUMENT["paths"]["/readyz"]["get"])


def test_a_degraded_manifest_is_as_described(served: Served) -> None:
    served.file.write_text("attnsel: 1\n")
    served.service.live["engine"].reload()
    answer = served.client.get("/readyz")
    assert answer.json()["manifests"][0]["trouble"]["findings"]
    check(answer, DOCUMENT["paths"]["/readyz"]["get"])


def test_the_explorer_is_as_described(served: Served) -> None:
    for path in EXPLORER:
        check(served.client.get(path), DOCUMENT["paths"][path]["get"])


def test_the_file_lies_in_the_package() -> None:
    assert Path(packaged("service/openapi.json")).is_file()
