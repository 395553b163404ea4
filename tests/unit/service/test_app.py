"""Routes, problems, headers, logs and metrics."""

from __future__ import annotations

import io
import json
import re
import threading
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from typer.testing import CliRunner

from cli.main import app
from selector.live import LiveManifests
from selector.service.app import Service
from selector.service.log import Log
from tests.unit.service.conftest import SMALL, Serve, Served, testclient

LAYER = {"head_size": 128, "dtype": "bfloat16", "kv_cache_dtype": "auto", "attn_type": "decoder"}
ASKED = {"device": "9.0", "layer": LAYER, "request": {"query_len": 7, "seq_len": 9}}
SAID = "head_size=128,dtype=bfloat16,kv_cache_dtype=auto,attn_type=decoder"
JSON = {"content-type": "application/json"}


def printed(*arguments: str, stdin: str | None = None) -> bytes:
    """What a command prints."""
    return CliRunner().invoke(app, [*arguments, "--format", "json"], input=stdin).stdout_bytes


def problem(answer: Any, status: int, code: str) -> dict[str, Any]:
    """The problem document of an answer, which is whole."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    assert [*found] == ["type", "title", "status", "detail", "code", "findings"]
    assert (found["status"], found["code"]) == (status, code), found
    assert "\n" not in found["detail"]
    assert found["type"] == f"urn:attnsel:problem:{code.lower().replace('_', '-')}"
    return found


# -- the same bytes as the commands print --------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/v1/backends", ["inspect"]),
        ("/v1/backends/fa2", ["inspect", "fa2"]),
        ("/v1/matrix", ["inspect", "--matrix"]),
    ],
)
def test_what_a_manifest_states(served: Served, path: str, words: list[str]) -> None:
    expected = printed(*words, "--manifest", str(served.file))
    assert served.client.get(path).content == expected
    assert served.client.get(path).content == expected, "what is kept is the same"


@pytest.mark.parametrize("command", ["resolve", "explain"])
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, ["--query-len", "7", "--seq-len", "9"]),
        ({"request": {"query_len": 7}}, ["--query-len", "7"]),
        ({"request": {}}, []),
        ({"facts": {"torch": "2.9"}, "request": {}}, ["--set", "torch=2.9"]),
        ({"facts": {"torch": None}, "request": {}}, ["--set", "torch=none"]),
        ({"closed_world": True, "request": {}}, ["--closed-world"]),
        ({"policy": {"backend": "fa2"}, "request": {}}, ["--backend", "fa2"]),
        ({"policy": {"deny": {"fa2": "--deny fa2"}}, "request": {}}, ["--deny", "fa2"]),
    ],
    ids=str,
)
def test_questions(served: Served, command: str, more: Any, words: list[str]) -> None:
    chosen = ["--manifest", str(served.file), "--arch", "9.0", "--set", SAID]
    answer = served.client.post(f"/v1/{command}", json=ASKED | more)
    assert answer.status_code == 200, answer.text
    assert answer.content == printed(command, *chosen, *words)


def test_a_model_s_layers(served: Served) -> None:
    body = {
        "manifest": "capabilities",
        "device": "H200",
        "model": "glm-5.2-fp8",
        "layer": {"tp": 8},
    }
    words = ["--manifest", "capabilities.yaml", "--gpu", "H200", "--model", "glm-5.2-fp8"]
    assert served.client.post("/v1/resolve", json=body).content == printed(
        "resolve", *words, "--set", "tp=8"
    )


def test_a_config_is_a_model_and_a_path_is_none(served: Served) -> None:
    config = {
        "model_type": "qwen3", "hidden_size": 4096, "num_hidden_layers": 2, "head_dim": 128,
        "num_attention_heads": 32, "num_key_value_heads": 8, "torch_dtype": "bfloat16",
    }  # fmt: skip
    answer = served.client.post("/v1/resolve", json={"device": "9.0", "model": config})
    assert answer.json()["model"]["model_type"] == "qwen3"
    for path in (str(served.file), "/etc/passwd", "-", "../config.json"):
        answer = served.client.post("/v1/resolve", json={"device": "9.0", "model": path})
        problem(answer, 422, "UNKNOWN_MODEL")


def test_as_claimed(served: Served) -> None:
    body = ASKED | {"manifest": "capabilities", "as_claimed": True}
    words = ["--manifest", "capabilities.yaml", "--arch", "9.0", "--set", SAID, "--as-claimed"]
    words += ["--query-len", "7", "--seq-len", "9"]
    assert served.client.post("/v1/resolve", json=body).content == printed("resolve", *words)


def test_lint(served: Served) -> None:
    text = served.file.read_text().replace("head_size: [64", "head_sise: [64")
    answer = served.client.post("/v1/lint", content=text, headers={"content-type": "text/yaml"})
    assert answer.content == printed("lint", "-", "--stdin-filename", "<body>", stdin=text)
    assert "head_sise" in answer.text


def test_diff(served: Served) -> None:
    document = served.file.read_text().replace("[64, 128, 256]", "[64, 128]")
    body = {"old": "engine", "new": {"document": document}}
    answer = served.client.post("/v1/diff", json=body).json()
    assert answer["changes"]
    assert answer["new"]["file"] == "new.yaml"
    again = served.client.post("/v1/diff", json={"old": "engine", "new": {"name": "engine"}})
    assert again.content == printed("diff", str(served.file), str(served.file))
    problem(served.client.post("/v1/diff", json=body | {"old": "x"}), 404, "UNKNOWN_MANIFEST")
    bad = served.client.post("/v1/diff", json=body | {"new": {"document": "attnsel: 1\n"}})
    assert problem(bad, 422, "MANIFEST")["findings"][0]["file"] == "new.yaml"


def test_the_manifest_and_its_tag(served: Served) -> None:
    answer = served.client.get("/v1/manifest")
    assert answer.content == served.file.read_bytes()
    tag = answer.headers["etag"]
    assert tag == f'W/"{answer.headers["attnsel-digest"]}"'
    again = served.client.get("/v1/manifest", headers={"if-none-match": tag})
    assert (again.status_code, again.content) == (304, b"")
    other = served.client.get("/v1/manifest?manifest=capabilities", headers={"if-none-match": tag})
    assert other.status_code == 200


def test_the_files_of_a_manifest(tmp_path: Path) -> None:
    overlay = tmp_path / "local, own.yaml"
    overlay.write_text("attnsel: 1\noverlay: own\nbackends: []\n")
    live = LiveManifests.load([str(SMALL)], [str(overlay)])
    with testclient.TestClient(Service(live, Log(io.StringIO()))) as client:
        for number, file in enumerate((SMALL, overlay)):
            answer = client.get(f"/v1/manifest?source={number}")
            assert answer.content == file.read_bytes()
            names = answer.headers["attnsel-sources"].split(",")
            assert unquote(names[number]) == str(file)
        for number in ("2", "-1", "", "x", "²", "9" * 5000):
            asked = {"params": {"source": number}, "headers": {"if-none-match": "*"}}
            problem(client.get("/v1/manifest", **asked), 422, "PARAMETER")


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "NOT_JSON"),
        (b"{", 400, "NOT_JSON"),
        (b"\xff", 400, "NOT_JSON"),
        (b'{"device": "\xff"}', 400, "NOT_JSON"),
        (b"[]", 422, "BODY"),
        (b"{}", 422, "BODY"),
        (b'{"device": "9.0", "layr": {}}', 422, "BODY"),
        (b'{"device": "9.0", "request": {"query_length": 1}}', 422, "BODY"),
        (b'{"device": "9.0", "policy": {"allow": []}}', 422, "BODY"),
        (b'{"device": "9.0", "layer": {"head_size": [64]}}', 422, "BODY"),
        (b'{"device": "9.0", "request": {"query_len": "7"}}', 422, "BODY"),
        (b'{"device": "9.0", "request": {"query_len": true}}', 422, "BODY"),
        (b'{"device": "9.9.9"}', 422, "UNKNOWN_DEVICE"),
        (b'{"device": {"platform": "cuda", "capability": "x"}}', 422, "VALUE"),
        (b'{"device": "9.0", "manifest": "none"}', 404, "UNKNOWN_MANIFEST"),
        (b'{"device": "9.0", "manifest": "../engine"}', 404, "UNKNOWN_MANIFEST"),
        (b'{"device": "9.0", "layer": {"head_sise": 64}}', 422, "UNKNOWN_FIELD"),
        (b'{"device": "9.0", "layer": {"head_size": -1}}', 422, "VALUE"),
        (b'{"device": "9.0", "layer": {"query_len": 1}}', 422, "VALUE"),
        (b'{"device": "9.0", "request": {"query_len": 0}}', 422, "CONTRADICTION"),
        (b'{"device": "9.0", "request": {"query_len": 9, "seq_len": 7}}', 422, "CONTRADICTION"),
        (b'{"device": "9.0", "request": {"query_len": 1e3000}}', 422, "BODY"),
        (b'{"device": "9.0", "facts": {"torch": "new"}}', 422, "VALUE"),
        (b'{"device": "9.0", "facts": {"flashinfer_python": "1"}}', 422, "VALUE"),
        (b'{"device": "9.0", "policy": {"backend": "none"}}', 422, "UNKNOWN_BACKEND"),
        (b'{"device": "9.0", "model": "no-such"}', 422, "UNKNOWN_MODEL"),
        (b'{"device": "9.0", "model": {"a": 1}}', 422, "UNKNOWN_MODEL"),
        (b'{"device": "9.0", "device": "8.0"}', 422, "BODY"),
    ],
    ids=lambda v: v.decode("latin-1")[:60] if isinstance(v, bytes) else str(v),
)
def test_bodies_that_are_refused(served: Served, body: bytes, status: int, code: str) -> None:
    answer = served.client.post("/v1/resolve", content=body, headers=JSON)
    problem(answer, status, code)


def test_paths_and_methods_that_nobody_answers(served: Served) -> None:
    problem(served.client.get("/v2"), 404, "NO_SUCH_PATH")
    problem(served.client.get("/v2%0a%00%1b"), 404, "NO_SUCH_PATH")
    problem(served.client.get("/v1/backends/"), 404, "NO_SUCH_PATH")
    problem(served.client.get("/v1/backends/none"), 404, "UNKNOWN_BACKEND")
    answer = served.client.delete("/v1/resolve")
    problem(answer, 405, "NO_SUCH_METHOD")
    assert answer.headers["allow"] == "POST"


def test_parameters_are_strict(served: Served) -> None:
    problem(served.client.get("/v1/backends?manifests=engine"), 422, "PARAMETER")
    problem(served.client.get("/v1/backends?manifest=engine&manifest=x"), 422, "PARAMETER")
    problem(served.client.get("/v1/backends?manifest=%ff"), 400, "PARAMETER")
    problem(served.client.get("/v1/backends?manifest=none"), 404, "UNKNOWN_MANIFEST")
    problem(served.client.post("/v1/resolve?a=1", json=ASKED), 422, "PARAMETER")


def test_types_of_bodies(served: Served) -> None:
    for media in ("text/plain", "application/x-www-form-urlencoded", "application/jsonp"):
        answer = served.client.post("/v1/resolve", content=b"{}", headers={"content-type": media})
        problem(answer, 415, "MEDIA_TYPE")
    packed = {**JSON, "content-encoding": "gzip"}
    problem(served.client.post("/v1/resolve", content=b"", headers=packed), 415, "PACKED")
    parameter = {"content-type": "Application/JSON; charset=utf-8"}
    answer = served.client.post("/v1/resolve", content=json.dumps(ASKED), headers=parameter)
    assert answer.status_code == 200


# -- limits, each tried at its edge --------------------------------------------------------------


def test_the_longest_body(serve: Serve) -> None:
    body = json.dumps(ASKED).encode()
    served = serve(body_bytes=len(body))
    assert served.client.post("/v1/resolve", content=body, headers=JSON).status_code == 200
    problem(served.client.post("/v1/resolve", content=body + b" ", headers=JSON), 413, "TOO_LONG")

    def pieces() -> Any:
        yield body
        yield b" "

    problem(served.client.post("/v1/resolve", content=pieces(), headers=JSON), 413, "TOO_LONG")


def test_the_deepest_body(serve: Serve) -> None:
    served = serve(depth=5)
    nested = {"device": "9.0", "model": {"a": {"b": {"c": {}}}}}
    problem(served.client.post("/v1/resolve", json=nested), 422, "UNKNOWN_MODEL")
    nested["model"] = {"a": {"b": {"c": {"d": {}}}}}
    problem(served.client.post("/v1/resolve", json=nested), 400, "TOO_DEEP")
    flat = {"device": "9.0", "model": {"[[[[[[": '\\"[[[[[[{{{{{'}}
    problem(served.client.post("/v1/resolve", json=flat), 422, "UNKNOWN_MODEL")
    late: dict[str, Any] = {
        "a" * 100_000: "[" * 100_000,
        "device": "9.0",
        "model": {"a": {"b": {"c": {}}}},
    }
    problem(served.client.post("/v1/resolve", json=late), 422, "BODY")
    late["model"]["a"]["b"]["c"]["d"] = {}
    problem(served.client.post("/v1/resolve", json=late), 400, "TOO_DEEP")
    many = b"[" * 1_000_000
    problem(served.client.post("/v1/resolve", content=many, headers=JSON), 400, "TOO_DEEP")


def test_an_answer_that_takes_too_long(serve: Serve) -> None:
    served = serve(deadline_s=0.001)
    problem(served.client.post("/v1/lint", content=b"a"), 503, "DEADLINE")


def test_a_bug_is_no_traceback_for_the_client(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("secret")

    monkeypatch.setattr("selector.service.quick.Asked", fail)
    answer = served.client.post("/v1/resolve", json=ASKED)
    assert "secret" not in problem(answer, 500, "BUG")["detail"]
    logged = [line for line in served.logged() if line["event"] == "bug"]
    assert [line["request_id"] for line in logged] == [answer.headers["x-request-id"]]
    assert "quick.py" in logged[0]["traceback"]


# -- who may ask ---------------------------------------------------------------------------------

TOKEN = "correct-horse-battery"


@pytest.mark.parametrize(
    "shown",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}x",
        f"Basic {TOKEN}",
        TOKEN,
    ],
)
def test_without_the_token(serve: Serve, shown: str | None) -> None:
    served = serve(token=TOKEN)
    headers = {} if shown is None else {"authorization": shown}
    for path in ("/v1/backends", "/v1/manifest", "/metrics", "/v2"):
        answer = served.client.get(path, headers=headers)
        problem(answer, 401, "NO_TOKEN")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert served.client.get("/healthz", headers=headers).status_code == 200


def test_with_the_token(serve: Serve) -> None:
    served = serve(token=TOKEN)
    for scheme in ("Bearer", "bearer"):
        headers = {"authorization": f"{scheme} {TOKEN}"}
        assert served.client.get("/v1/backends", headers=headers).status_code == 200
    assert TOKEN not in served.log.getvalue()


def test_what_is_wrong_with_a_file_is_for_those_with_the_token(serve: Serve) -> None:
    served = serve(token=TOKEN)
    served.file.write_text("attnsel: 1\n")
    served.service.live["engine"].reload()
    (first, *_) = served.client.get("/readyz").json()["manifests"]
    assert (first["status"], first["trouble"]) == ("degraded", None)
    headers = {"authorization": f"Bearer {TOKEN}"}
    (first, *_) = served.client.get("/readyz", headers=headers).json()["manifests"]
    assert first["trouble"]["findings"]


def test_headers_of_every_answer(served: Served) -> None:
    for path in ("/healthz", "/v1/backends", "/v2", "/v1/manifest"):
        headers = served.client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-request-id"]
        assert "server" not in headers


def test_every_answer_says_by_which_snapshot(served: Served) -> None:
    refused = served.client.post("/v1/resolve", json=ASKED | {"layer": {"x": 1}})
    for answer in (served.client.post("/v1/resolve", json=ASKED), refused):
        assert answer.headers["attnsel-manifest"] == "engine"
        assert answer.headers["attnsel-generation"] == "1"
        assert re.fullmatch("[0-9a-f]{64}", answer.headers["attnsel-digest"])


# -- a live manifest -----------------------------------------------------------------------------


def test_a_changed_file_answers_and_a_broken_one_does_not(served: Served) -> None:
    ready = served.client.get("/readyz").json()
    assert (ready["status"], [m["name"] for m in ready["manifests"]]) == (
        "ready",
        ["engine", "capabilities", "vllm-0.33.0"],
    )
    good = served.file.read_text()
    before = served.client.post("/v1/resolve", json=ASKED)
    served.file.write_text(good.replace('version: "1"', 'version: "2"'))
    served.service.live["engine"].reload()
    after = served.client.post("/v1/resolve", json=ASKED)
    assert after.headers["attnsel-generation"] == "2"
    assert after.json()["manifest"]["version"] == "2"
    assert before.json()["manifest"]["version"] == "1"
    served.file.write_text(good.replace("backends:", "backens:"))
    served.service.live["engine"].reload()
    assert served.client.post("/v1/resolve", json=ASKED).content == after.content
    answer = served.client.get("/readyz")
    (first, second, _) = answer.json()["manifests"]
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert (first["status"], second["status"]) == ("degraded", "ready")
    assert first["trouble"]["code"] == "MANIFEST"
    assert first["trouble"]["findings"][0]["line"] > 0
    metrics = served.client.get("/metrics").text
    assert 'attnsel_manifest_degraded{manifest="engine"} 1.0' in metrics
    assert 'attnsel_manifest_failures_total{manifest="engine"} 1.0' in metrics
    assert 'attnsel_manifest_generation{manifest="engine"} 2.0' in metrics


@pytest.mark.parametrize(("place", "level"), [("", "info"), ("/proc/nope", "warning")])
def test_what_cannot_be_kept_is_said_where_it_was_wanted(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, place: str, level: str
) -> None:
    monkeypatch.setenv("ATTNSEL_CACHE_DIR", place)
    served = serve()
    served.service.tell(served.service.live.first)
    (line,) = served.logged()
    assert (line["event"], line["level"], line["kept"]) == ("manifest served", level, False)


def test_a_service_that_drains_is_not_ready(served: Served) -> None:
    served.service.draining = True
    answer = served.client.get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (503, "draining")
    assert served.client.get("/healthz").status_code == 200


def test_logs_have_an_id_and_no_body(served: Served) -> None:
    body = ASKED | {"layer": {**LAYER, "confidential": 1}}
    served.client.post("/v1/resolve", json=body, headers={"x-request-id": "mine-1"})
    served.client.get("/v1/backends", headers={"x-request-id": "not one\x7f"})
    first, second = (line for line in served.logged() if line["event"] == "request")
    assert (first["request_id"], first["status"], first["route"]) == ("mine-1", 422, "/v1/resolve")
    assert re.fullmatch("[0-9a-f]+-[0-9a-f]+", second["request_id"])
    assert (second["manifest"], second["generation"]) == ("engine", 1)
    assert "confidential" not in served.log.getvalue()


def test_requests_are_counted_by_route(served: Served) -> None:
    served.client.get("/v1/backends/fa2")
    served.client.get("/v1/backends/math")
    served.client.get("/nowhere/at/all")
    metrics = served.client.get("/metrics").text
    assert 'attnsel_requests_total{route="/v1/backends/{name}",status="200"} 2.0' in metrics
    assert 'attnsel_requests_total{route="none",status="404"} 1.0' in metrics
    assert re.search(r'^attnsel_build_info{version="[0-9.]+"} 1\.0$', metrics, re.MULTILINE)
    assert "nowhere" not in metrics


@pytest.mark.parametrize(
    ("method", "path", "sent", "manifest"),
    [
        ("GET", "/healthz", {}, "engine"),
        ("GET", "/", {}, "engine"),
        ("GET", "/nowhere", {}, "engine"),
        ("POST", "/v1/lint", {"content": "attnsel: 1\n"}, "engine"),
        ("POST", "/v1/resolve", {"content": "{"}, "engine"),
        ("GET", "/v1/matrix?manifest=vllm-0.33.0", {}, "vllm-0.33.0"),
        ("GET", "/v1/matrix?manifest=none", {}, "engine"),
        ("POST", "/v1/diff", {"json": {"old": "engine", "new": "capabilities"}}, "capabilities"),
        (
            "POST",
            "/v1/diff",
            {"json": {"old": "capabilities", "new": {"document": "attnsel: 1\n"}}},
            "capabilities",
        ),
    ],
)
def test_every_answer_names_a_manifest(
    served: Served, method: str, path: str, sent: dict[str, Any], manifest: str
) -> None:
    answer = served.client.request(method, path, **sent)
    now = served.service.live[manifest].current
    names = ("attnsel-manifest", "attnsel-digest", "attnsel-generation")
    assert [answer.headers[name] for name in names] == [manifest, now.digest, "1"]


def test_a_comparison_of_served_manifests_is_worked_out_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: list[object] = []
    work = served.service.work

    async def count(*arguments: Any) -> bytes:
        worked.append(arguments)
        return await work(*arguments)

    monkeypatch.setattr(served.service, "work", count)
    sides = {"old": "engine", "new": {"name": "engine", "as_claimed": True}}
    answers = [served.client.post("/v1/diff", json=sides).content for _ in range(2)]
    assert answers[0] == answers[1]
    assert len(worked) == 1
    served.client.post("/v1/diff", json=sides | {"limit": 1})
    served.file.write_text(served.file.read_text().replace('version: "1"', 'version: "2"'))
    served.service.live["engine"].reload()
    served.client.post("/v1/diff", json=sides)
    assert len(worked) == 3


def test_many_who_want_a_reload_get_one(served: Served) -> None:
    def waiting() -> list[threading.Thread]:
        return [one for one in threading.enumerate() if one.name == "attnsel-reload"]

    with served.service._reloading:
        for _ in range(50):
            served.service.reload_soon()
        (thread,) = waiting()
    thread.join()
    assert [line["event"] for line in served.logged()].count("reloaded") == 1
    served.service.reload_soon()
    for thread in waiting():
        thread.join()
    assert [line["event"] for line in served.logged()].count("reloaded") == 2
