"""One table of questions and answers, asked through every face of attnsel."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from selector import Facts, Layer, Policy, Request, Selector, find_device
from selector.binding import Bound
from selector.plan.plan import Pick, Plan
from selector.report.data import json_text, resolution_json

HERE = Path(__file__).parent
CASES = [json.loads(line) for line in (HERE / "conformance.jsonl").read_text().splitlines()]
NOT_LAYER = {"arch", "gpu", "cap_major", "cap_minor", "query_len", "seq_len", "backend", "deny"}
FACTS = {"torch", "flashinfer-python"}

Case = dict[str, Any]

case = pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])


def device_of(question: dict[str, Any]) -> str:
    if "cap_major" in question:
        return f"{question['cap_major']}.{question['cap_minor']}"
    return str(question.get("gpu") or question["arch"])


def known(value: str) -> str | None:
    return None if value == "none" else value


def overlays_of(case: Case) -> list[str]:
    return [str(HERE / case["overlay"])] if "overlay" in case else []


def manifest_words(case: Case) -> list[str]:
    """Which manifest a case is about, as options of a command."""
    manifest = ["--manifest", case["manifest"]] if "manifest" in case else []
    return [*manifest, *(word for path in overlays_of(case) for word in ("--overlay", path))]


def question_words(case: Case) -> list[str]:
    """What a case asks, as options of a command."""
    question = case["question"]
    args = ["--gpu" if "gpu" in question else "--arch", device_of(question)]
    for name, value in question.items():
        if name in ("query_len", "seq_len", "backend"):
            args += [f"--{name.replace('_', '-')}", str(value)]
        elif name == "deny":
            args += ["--deny", *value]
        elif name not in NOT_LAYER:
            args += ["--set", f"{name}={spelled(value)}"]
    return args


def layer_of(question: Case, *without: str) -> Layer:
    said = {k: v for k, v in question.items() if k not in {*NOT_LAYER, *FACTS, *without}}
    return Layer.read(said)


def facts_of(question: Case) -> Facts:
    return Facts({k: known(question[k]) for k in FACTS if k in question})


def bound_to(case: Case, *without: str) -> Bound:
    """The case bound to its manifest; its layer says all but some fields."""
    question = case["question"]
    policy = Policy(dict.fromkeys(question.get("deny", ()), "test"), question.get("backend"))
    selector = Selector.load(case.get("manifest"), overlays=overlays_of(case))
    device = find_device(device_of(question))
    return selector.bind(device, layer_of(question, *without), facts_of(question), policy)


@case
def test_library(case: Case) -> None:
    question = case["question"]
    answer = bound_to(case).resolve(question["query_len"], question["seq_len"])
    assert {
        "prefill_backend": answer.prefill.backend,
        "prefill_path": answer.prefill.path,
        "decode_backend": answer.decode.backend,
        "phase": answer.phase,
    } == case["answer"]


@case
def test_requests_that_run_together(case: Case) -> None:
    """As many as the case says are answered as one whose layer says so."""
    question = case["question"]
    one = Request(question["query_len"], question["seq_len"])
    together = bound_to(case, "num_reqs").resolve_batch([one] * question.get("num_reqs", 1))
    for answer in together:
        assert answer.prefill.backend == case["answer"]["prefill_backend"]
        assert answer.decode.backend == case["answer"]["decode_backend"]
        assert answer.phase == case["answer"]["phase"]


@case
def test_plan(case: Case) -> None:
    question = case["question"]
    if "deny" in question or "backend" in question:
        pytest.skip("a plan is for callers without a policy")
    lengths = Request(question["query_len"], question["seq_len"])
    plan = Plan.load(case.get("manifest"), overlays=overlays_of(case))
    device, layer = find_device(device_of(question)), layer_of(question)
    pick = plan.resolve(device, layer, facts_of(question), lengths)
    assert pick == Pick.of(bound_to(case).resolve_one(lengths))
    assert (pick.prefill, pick.decode, pick.path, pick.phase) == tuple(
        case["answer"][name]
        for name in ("prefill_backend", "decode_backend", "prefill_path", "phase")
    )


@case
def test_command_line(case: Case) -> None:
    args = ["resolve", "--format", "json", *question_words(case), *manifest_words(case)]
    result = CliRunner().invoke(app, args)
    expected = case["answer"]
    both = expected["prefill_backend"] and expected["decode_backend"]
    assert result.exit_code == (0 if both else 3), result.output
    answer = json.loads(result.stdout)
    assert {
        "prefill_backend": answer["prefill"]["backend"],
        "prefill_path": answer["prefill"]["path"],
        "decode_backend": answer["decode"]["backend"],
        "phase": answer["phase"],
    } == expected


def served_as(case: Case) -> tuple[list[str], list[str]]:
    """The manifest that a service needs for a case, and its overlays."""
    return [case["manifest"]] if "manifest" in case else [], overlays_of(case)


SERVED = [(*served, [*group]) for served, group in groupby(CASES, served_as)]


@contextmanager
def service(manifests: list[str], overlays: list[str]) -> Iterator[Any]:
    """A client of a service."""
    testclient = pytest.importorskip("starlette.testclient")
    from selector.live import LiveManifests
    from selector.service.app import Service
    from selector.service.log import Log

    live = LiveManifests.load(manifests, overlays)
    with testclient.TestClient(Service(live, Log(io.StringIO()))) as client:
        yield client


@pytest.mark.parametrize(("manifests", "overlays", "cases"), SERVED, ids=lambda _: "")
def test_http(manifests: list[str], overlays: list[str], cases: list[Case]) -> None:
    """Over HTTP the answers are the library's, byte for byte; those of a batch are the table's."""
    with service(manifests, overlays) as client:
        for case in cases:
            question = case["question"]
            body = {
                "device": device_of(question),
                "layer": {k: v for k, v in question.items() if k not in {*NOT_LAYER, *FACTS}},
                "facts": dict(facts_of(question).values),
                "policy": {
                    "deny": dict.fromkeys(question.get("deny", ()), "test"),
                    "backend": question.get("backend"),
                },
                "request": {k: question[k] for k in ("query_len", "seq_len")},
            }
            answer = client.post("/v1/resolve", json=body)
            expected = bound_to(case).resolve(question["query_len"], question["seq_len"])
            assert answer.text == json_text(resolution_json(expected)), case["id"]
        rows = client.post("/v1/resolve:batch", json=[case["question"] for case in cases]).json()
    for case, row in zip(cases, rows, strict=True):
        assert {k: row[k] for k in case["answer"]} == case["answer"], case["id"]


def spelled(value: object) -> str:
    """A JSON value as one types it after ``--set``."""
    if value is None:
        return "unset"
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_rows(path: Path, cases: list[Case]) -> None:
    questions = [c["question"] for c in cases]
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(q) + "\n" for q in questions))
        return
    import pyarrow
    from pyarrow import parquet

    columns = dict.fromkeys(name for q in questions for name in q)
    whole = [{name: q.get(name) for name in columns} for q in questions]
    parquet.write_table(pyarrow.Table.from_pylist(whole), path)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
def test_batch(kind: str, suffix: str, tmp_path: Path) -> None:
    if "parquet" in (kind, suffix):
        pytest.importorskip("pyarrow")
    rows = tmp_path / f"rows.{kind}"
    out = tmp_path / f"answers.{suffix}"
    for chosen, group in groupby(CASES, manifest_words):
        cases = [*group]
        write_rows(rows, cases)
        result = CliRunner().invoke(app, ["batch", str(rows), "--out", str(out), *chosen])
        assert result.exit_code == 0, result.output
        answers = read_rows(out)
        assert len(answers) == len(cases)
        for case, answer in zip(cases, answers, strict=True):
            assert {k: answer[k] for k in case["answer"]} == case["answer"], case["id"]
            assert answer["error"] is None


def read_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    from pyarrow import parquet

    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


@pytest.mark.parametrize(
    "change",
    [
        {"head_size": 64},
        {"num_heads": 8, "num_kv_heads": 8},
        {"sliding_window": 128},
        {"tp_size": 4},
    ],
    ids=str,
)
def test_a_field_set_on_a_model_means_the_same_everywhere(
    change: dict[str, int], tmp_path: Path
) -> None:
    settings = ",".join(f"{k}={v}" for k, v in change.items())
    model = ["--model", "qwen3-8b", "--set", settings, "--format", "json"]
    resolved = json.loads(CliRunner().invoke(app, ["resolve", "--arch", "9.0", *model]).stdout)
    read = json.loads(CliRunner().invoke(app, ["model", "qwen3-8b", *model[2:]]).stdout)
    rows, out = tmp_path / "rows.jsonl", tmp_path / "out.jsonl"
    rows.write_text(json.dumps({"arch": "9.0", "model": "qwen3-8b", **change}))
    CliRunner().invoke(app, ["batch", str(rows), "--out", str(out)])
    (answer,) = read_rows(out)
    assert answer["prefill_backend"] == resolved["prefill"]["backend"]
    assert answer["decode_backend"] == resolved["decode"]["backend"]
    (group,) = read["layers"]
    assert {k: resolved["layer"][k] for k in group["layer"]} == group["layer"]
