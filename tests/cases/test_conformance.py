"""One table of questions and answers, asked through every face of attnsel."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.main import app
from selector import Facts, Layer, Policy, Selector, find_device

CASES = [
    json.loads(line)
    for line in Path(__file__).with_name("conformance.jsonl").read_text().splitlines()
]
NOT_LAYER = {"arch", "gpu", "cap_major", "cap_minor", "query_len", "seq_len", "backend", "deny"}
FACTS = {"torch", "flashinfer-python"}

case = pytest.mark.parametrize("case", CASES, ids=lambda c: c["id"])


def device_of(question: dict[str, Any]) -> str:
    if "cap_major" in question:
        return f"{question['cap_major']}.{question['cap_minor']}"
    return str(question.get("gpu") or question["arch"])


def known(value: str) -> str | None:
    return None if value == "none" else value


@case
def test_library(case: dict[str, Any]) -> None:
    question = case["question"]
    layer = {k: v for k, v in question.items() if k not in NOT_LAYER | FACTS}
    policy = Policy(dict.fromkeys(question.get("deny", ()), "test"), question.get("backend"))
    answer = (
        Selector.load()
        .bind(
            find_device(device_of(question)),
            Layer.read(layer),
            Facts({k: known(question[k]) for k in FACTS if k in question}),
            policy,
        )
        .resolve(question["query_len"], question["seq_len"])
    )
    assert {
        "prefill_backend": answer.prefill.backend,
        "prefill_path": answer.prefill.path,
        "decode_backend": answer.decode.backend,
        "phase": answer.phase,
    } == case["answer"]


@case
def test_command_line(case: dict[str, Any]) -> None:
    question = case["question"]
    args = ["resolve", "--format", "json", "--arch", device_of(question)]
    if "gpu" in question:
        args[-2] = "--gpu"
    for name, value in question.items():
        if name in ("query_len", "seq_len", "backend"):
            args += [f"--{name.replace('_', '-')}", str(value)]
        elif name == "deny":
            args += ["--deny", *value]
        elif name not in NOT_LAYER:
            args += ["--set", f"{name}={spelled(value)}"]
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


def spelled(value: object) -> str:
    """A JSON value as one types it after ``--set``."""
    if value is None:
        return "unset"
    return str(value).lower() if isinstance(value, bool) else str(value)


def write_rows(path: Path) -> None:
    questions = [c["question"] for c in CASES]
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
    write_rows(rows)
    out = tmp_path / f"answers.{suffix}"
    result = CliRunner().invoke(app, ["batch", str(rows), "--out", str(out)])
    assert result.exit_code == 0, result.output
    answers = read_rows(out)
    assert len(answers) == len(CASES)
    for case, answer in zip(CASES, answers, strict=True):
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
