from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selector import Selector
from selector.devices import known_capabilities

from .conftest import GQA, SMALL, SPARSE, Run, line_of

NAMES = ["math", "fa2", "xqa", "mla_fa3", "sparse_sm100", "sparse_sm120"]


def test_the_list(run: Run, small: list[str]) -> None:
    ran = run("inspect", *small)
    assert ran.code == 0
    lines = ran.out.splitlines()[3:]
    rows = [line for line in lines if line[2] != " "]
    assert [row.split()[0] for row in rows] == NAMES
    assert rows[1].split()[1:4] == ["plain", "prefill,", "decode"]
    under = lines[lines.index(rows[1]) + 1].strip()
    assert under == "cuda · 8.0–12.1 · needs flashinfer-python >=0.6.14"
    assert rows[5].endswith(f":{line_of('name: sparse_sm120')}")


def test_the_list_as_markdown_and_json(run: Run, small: list[str]) -> None:
    lines = run("inspect", *small, "--format", "markdown").out.splitlines()
    assert lines[0].startswith("| backend | layers |")
    assert len(lines) == 2 + len(NAMES)
    listed = run("inspect", *small, "--format", "json").json
    assert [b["name"] for b in listed["backends"]] == NAMES


def test_one_entry_with_everything_it_states(run: Run, small: list[str]) -> None:
    out = run("inspect", "sparse_sm120", *small).out
    path_at = line_of("path: dense_mha", "name: sparse_sm120")
    for said in (
        "sparse MLA",
        "https://example.org/sparse120",
        f"false   small.yaml:{line_of('dense_prefill: false')} pinned",
        "Only the top-k MQA path exists on 12.x.",
        "https://example.org/pull/51395",
        "flashinfer-python >=0.6.14   small.yaml:",
        f"12.0, 12.1   small.yaml:{line_of('capability: [', 'name: sparse_sm120')}",
        f"off: dense_prefill false (pinned)   small.yaml:{path_at}",
        "its rule: when seq_len up to index_topk: Short prompts.",
        "second of 2 for prefill and decode",
        "so only sink false, sliding_window unset",
        "none: resolved only, not run here",
    ):
        assert said in out


def test_what_differs_between_phases_and_what_must_never_be(run: Run, small: list[str]) -> None:
    out = run("inspect", "fa2", *small).out
    assert "accepts for decode" in out
    assert "gqa_group   up to 8" in out
    assert "never sliding_window any number and kv_cache_dtype fp8_e4m3" in out
    assert "fp8_e4m3 when kv_cache_dtype fp8: fp8 means e4m3 here." in out
    assert "unchanged" in out


@pytest.mark.parametrize("name", NAMES)
def test_one_entry_in_every_format(run: Run, small: list[str], name: str) -> None:
    data = run("inspect", name, *small, "--format", "json").json
    assert data["name"] == name
    assert data["states"].keys() == set(data["phases"])
    out = run("inspect", name, *small, "--format", "markdown").out
    assert out.startswith("```text\n")
    assert out.endswith("```\n")


def test_the_matrix_has_every_entry_and_every_architecture(run: Run, small: list[str]) -> None:
    matrix = run("inspect", "--matrix", *small, "--format", "json").json["matrices"][0]
    assert matrix["archs"] == [*known_capabilities(), "cpu"]
    assert [row["backend"] for row in matrix["rows"]] == NAMES
    assert all(row["cells"].keys() == set(matrix["archs"]) for row in matrix["rows"])
    cells = {row["backend"]: row["cells"] for row in matrix["rows"]}
    assert cells["sparse_sm120"]["12.0"] == {"prefill": "yes", "decode": "yes"}
    assert cells["sparse_sm120"]["9.0"] == {"prefill": "no", "decode": "no"}
    assert cells["xqa"]["9.0"] == {"prefill": "no", "decode": "yes"}
    assert cells["mla_fa3"]["9.0"] == {"prefill": "yes", "decode": "yes"}
    assert cells["math"]["cpu"] == {"prefill": "yes", "decode": "yes"}


def test_the_matrix_as_a_table(run: Run, small: list[str]) -> None:
    out = run("inspect", "--matrix", *small).out
    head, *rows = out.splitlines()[2:9]
    assert head.split() == ["backend", *known_capabilities(), "cpu"]
    assert [row.split()[0] for row in rows] == NAMES
    gets = out.split("plain GQA, bfloat16, head size 128 gets")[1]
    row = next(r for r in gets.splitlines() if r.strip().startswith("12.0"))
    assert "fa2" in row
    assert "xqa" in row
    assert "if flashinfer-python >=0.6.14" in gets.split(row)[1].splitlines()[1]
    markdown = run("inspect", "--matrix", *small, "--format", "markdown").out
    assert markdown.startswith("| backend | 7.0 |")
    assert "| arch | family | prefill | decode | if | else |" in markdown


def test_the_matrix_for_a_given_layer(run: Run, small: list[str]) -> None:
    asked = ("inspect", "--matrix", *small, "--format", "json", "--set")
    (matrix,) = run(*asked, SPARSE).json["matrices"]
    cells = {row["backend"]: row["cells"] for row in matrix["rows"]}
    assert cells["math"]["12.0"] == {"prefill": "no", "decode": "no"}
    assert cells["sparse_sm120"]["12.0"]["prefill"] == "yes"
    (matrix,) = run(*asked, "dtype=bfloat16").json["matrices"]
    cells = {row["backend"]: row["cells"] for row in matrix["rows"]}
    assert cells["fa2"]["12.0"]["prefill"] == "some"
    (matrix,) = run(*asked, GQA + ",flashinfer-python=none").json["matrices"]
    cells = {row["backend"]: row["cells"] for row in matrix["rows"]}
    assert cells["fa2"]["12.0"]["prefill"] == "no"


def test_the_matrix_of_a_model_has_one_part_for_each_kind_of_layer(
    run: Run, small: list[str]
) -> None:
    asked = ("inspect", "--matrix", *small, "--model", "gemma-3-27b")
    assert [m["judged"] for m in run(*asked, "--format", "json").json["matrices"]] == [
        "gemma-3-27b, sliding layers",
        "gemma-3-27b, full layers",
    ]
    assert run(*asked).out.count("judged for gemma-3-27b") == 2


def test_the_shipped_manifest_leaves_no_architecture_without_plain_gqa(run: Run) -> None:
    matrix = run("inspect", "--matrix", "--format", "json").json["matrices"][0]
    entries = Selector.load().manifest.entries
    assert [row["backend"] for row in matrix["rows"]] == list(entries)
    assert [gets["arch"] for gets in matrix["gets"]] == [*known_capabilities(), "cpu"]
    for gets in matrix["gets"]:
        if gets["arch"] not in ("7.0", "7.5"):
            assert gets["prefill"]["backend"], gets["arch"]
            assert gets["decode"]["backend"], gets["arch"]
    for row in matrix["rows"]:
        assert any(c["prefill"] != "no" or c["decode"] != "no" for c in row["cells"].values())


def test_a_path_that_is_off_is_pinned_only_where_the_entry_says_so(
    run: Run, tmp_path: Path
) -> None:
    text = SMALL.read_text("utf-8")
    assert "pinned: [dense_prefill]" in text
    file = tmp_path / "free.yaml"
    file.write_text(text.replace("    pinned: [dense_prefill]\n", ""), "utf-8")
    out = run("inspect", "sparse_sm120", "--manifest", file).out
    assert "off: dense_prefill false   " in out
    assert "pinned" not in out
    out = run("resolve", "--arch", "12.0", "--set", SPARSE, "--manifest", file).out
    assert "dense_mha prefill of sparse_sm120" in out
    assert "pinned" not in out
    (path, *_) = run("inspect", "sparse_sm120", "--manifest", file, "--format", "json").json[
        "prefill_paths"
    ]
    assert (path["path"], path["off"]) == ("dense_mha", True)


def test_a_wide_matrix_goes_on_below(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = run("inspect", "--matrix", *small).out
    heads = [line.split()[1:] for line in out.splitlines() if line.startswith("  backend")]
    assert len(heads) > 1
    assert [arch for head in heads for arch in head] == [*known_capabilities(), "cpu"]
    assert all(len(line) <= 60 for line in out.splitlines())


def test_an_entry_as_json_says_the_source_of_all_that_it_states(
    run: Run, build: Any, tmp_path: Path
) -> None:
    """And who computes a dense path, and when it may not be dense."""
    cases = [{"when": {"tp_size": 8}, "allow": [64]}, {"allow": [128]}]
    dense = {"path": "dense_mha", "by": "dense_backend", "reason": "Short.", "source": "a test"}
    entry = build.entry(
        "one",
        mla=True,
        sparse=True,
        source="the code",
        sources={"head_size": "a class"},
        accepts={"capability": ["9.0"], "head_size": {"cases": cases}},
        constraints=[{"when": {"tp_size": 4}, "code": "TP", "reason": "Slow.", "source": "a rule"}],
        dense_prefill=True,
        dense_prefill_except=[{"when": {"sink": True}, "reason": "No.", "source": "a branch"}],
        prefill_paths=[dense, {"path": "sparse_mqa", "reason": "The rest."}],
        decode_threshold={
            "cases": [{"when": {"tp_size": 2}, "value": 2, "source": "a line"}, {"value": 1}],
            "source": "a method",
        },
    )
    file = tmp_path / "one.yaml"
    file.write_text(json.dumps(build.tree(entry)), "utf-8")
    data = run("inspect", "one", "--manifest", file, "--format", "json").json
    states = data["states"]["decode"]
    assert data["source"] == "the code"
    assert [rule["source"] for rule in states["accepts"]["head_size"]] == ["a class"] * 2
    assert states["accepts"]["dtype"][0]["source"] == ""
    assert [rule["source"] for rule in states["constraints"]] == ["a rule"]
    assert [rule["source"] for rule in data["decode_threshold"]] == ["a line", "a method"]
    paths = [(path["by"], path["source"]) for path in data["prefill_paths"]]
    assert paths == [("dense_backend", "a test"), (None, "")]
    (case,) = data["dense_prefill_except"]
    assert (case["when"], case["reason"], case["source"]) == ("sink true", "No.", "a branch")
    assert case["position"][1] == 1


def test_an_entry_that_says_no_more_has_no_exceptions(run: Run, small: list[str]) -> None:
    for name in NAMES:
        data = run("inspect", name, *small, "--format", "json").json
        assert data["dense_prefill_except"] == []
        assert {path["by"] for path in data["prefill_paths"]} <= {None}
