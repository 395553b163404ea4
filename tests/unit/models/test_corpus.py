"""Configs whose layers are known from running model classes: each must be read exactly.

``data/corpus.jsonl`` holds a config (what bears on attention) and what its model really has a
line; ``tools/extract_corpus.py`` writes it. Facts: vLLM 0.33.0 and transformers 5.20.2 models
built without weights.
"""

import importlib.util
import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TOOL = HERE.parents[2] / "tools" / "score_models.py"


def load_tool():
    spec = importlib.util.spec_from_file_location("score_models", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


scoring = load_tool()
ROWS = [
    json.loads(line) for line in (HERE / "data" / "corpus.jsonl").read_text("utf-8").splitlines()
]
SCORED = [row for row in ROWS if row["domain"] == "text" and row["confidence"] != "low"]
OTHERS = [row for row in ROWS if row not in SCORED]
MISSED = {
    "default/evolla": "a protein encoder counted in the main stack, and 8 cross-attentions",
    "default/nllb-moe": "its decoder's modules say that they are not causal; its mask is",
    "default/pix2struct": "its decoder's modules say that they are not causal; its mask is",
    "default/t5gemma2": "a decoder layer attends to itself and to the encoder in one call",
}
"""What is not read as the corpus has it, and why it stays so."""


@pytest.mark.parametrize("row", SCORED, ids=lambda row: row["id"])
def test_layers_are_those_the_model_has(row):
    score = scoring.score(row)
    assert score.refusal == ""
    if row["id"] in MISSED:
        assert score.misses
    else:
        assert score.misses == ()


@pytest.mark.parametrize("row", OTHERS, ids=lambda row: row["id"])
def test_others_are_read_or_refused_with_a_reason(row):
    score = scoring.score(row)
    assert "\n" not in score.refusal
    if score.refusal:
        assert score.refusal.startswith(f"{row['id']}: ")


def test_figure():
    exact = sum(scoring.score(row).exact for row in SCORED)
    assert exact >= 0.97 * len(SCORED), f"{exact} of {len(SCORED)}"


def test_the_extract_is_small_and_covers_the_families_promised():
    assert (HERE / "data" / "corpus.jsonl").stat().st_size <= 300 * 1024
    types = {row["config"].get("model_type") for row in ROWS}
    assert {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3"} <= types
    assert {"gpt_oss", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_linear"} <= types


def test_figures_are_printed(capsys):
    assert scoring.main([str(HERE / "data" / "corpus.jsonl"), "--misses"]) == 0
    out = capsys.readouterr().out
    assert "read exactly: " in out
    assert "misses by field:" in out
    for name in MISSED:
        assert f"\n{name}: " in out


def test_a_corpus_that_is_read_badly_is_said_in_the_exit_code(tmp_path, capsys):
    row = {**SCORED[0], "expected": {**SCORED[0]["expected"], "layers": []}}
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps(row) + "\n", "utf-8")
    assert scoring.main([str(bad)]) == 1
    assert "read exactly: 0 of 1 (0.0%)" in capsys.readouterr().out
