"""``attnsel extract`` on a small engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from selector.resources import resource

from .test_drift import engine, old

__all__ = ["engine"]

STATES_IT = "    supports_dense_mha_prefill = False\n"
WHOLE = """\
from enum import Enum

class AttentionBackendEnum(Enum):
    WHOLE = "vllm.v1.attention.whole.Whole"
"""
STATED = """\
class Whole:
    supported_dtypes = []
    supported_kv_cache_dtypes = ["auto"]

    @classmethod
    def is_mla(cls):
        return False

    @classmethod
    def is_sparse(cls):
        return False

    @classmethod
    def supports_compute_capability(cls, capability):
        return capability.major == 9

    @classmethod
    def get_supported_head_sizes(cls):
        return [64, 128]

    @classmethod
    def supports_head_size(cls, size):
        return size in (64, 128)

    @classmethod
    def supports_dtype(cls, dtype):
        return True

    @classmethod
    def supports_kv_cache_dtype(cls, kind):
        return kind in cls.supported_kv_cache_dtypes

    @classmethod
    def get_supported_kernel_block_sizes(cls):
        return [16]

    @classmethod
    def supports_block_size(cls, size):
        return size is None or size % 16 == 0

    @classmethod
    def supports_attn_type(cls, kind):
        return kind == "decoder"

    @staticmethod
    def get_builder_cls():
        return Builder

class Builder:
    reorder_batch_threshold = 4
"""


def test_the_draft_is_on_stdout_and_what_is_left_to_do_on_stderr(run: Any, engine: Path) -> None:
    ran = run("extract", "--source", engine)
    assert ran.code == 1
    assert ran.out.startswith("# A draft of what was read of vllm")
    assert "\n  - name: FLASH\n" in ran.out
    assert "DRF" not in ran.out.replace("# TODO DRF", "").replace("rule DRF201", "")
    for line in ran.err.splitlines():
        if line.startswith("<stdout>:"):
            number = int(line.split(":")[1])
            assert f"# TODO {line.split()[1]} " in ran.out.splitlines()[number - 1]
    assert "todo-not-known" in ran.err
    assert ran.err.endswith("Drafted 4 entries.\n")


def test_a_written_draft_lints_resolves_and_agrees_with_its_engine(
    run: Any, engine: Path, tmp_path: Path
) -> None:
    out = tmp_path / "draft.yaml"
    ran = run("extract", "--source", old(engine), "--out", out)
    assert (ran.code, ran.err) == (1, "")
    assert f"{out}:" in ran.out
    ran = run("lint", out, "--format", "json")
    assert [one for one in ran.json if one["code"] < "CAP1"] == []
    layer = "head_size=64,dtype=float16,kv_cache_dtype=auto,attn_type=decoder,num_heads=8"
    request = ["--arch", "sm90", "--set", layer, "--query-len", "8"]
    ran = run("resolve", "--manifest", out, *request, "--backend", "FLASH")
    assert ran.code == 0, ran.out
    ran = run("drift", "--manifest", out, "--source", engine, "--format", "json")
    assert [one for one in ran.json if one["severity"] == "error"] == []


def test_a_file_is_not_replaced_unless_it_is_said(run: Any, engine: Path, tmp_path: Path) -> None:
    out = tmp_path / "draft.yaml"
    out.write_text("mine\n", encoding="utf-8")
    ran = run("extract", "--source", engine, "--out", out)
    assert (ran.code, "exists; give another name, or --force" in ran.complaint) == (2, True)
    assert out.read_text(encoding="utf-8") == "mine\n"
    assert run("extract", "--source", engine, "--out", out, "--force").code == 1
    assert "attnsel: 1\n" in out.read_text(encoding="utf-8")


def test_findings_are_json_that_validates(run: Any, engine: Path) -> None:
    ran = run("extract", "--source", engine, "--format", "json")
    found = json.loads(ran.err)
    schema = json.loads((resource("schemas") / "finding.schema.json").read_text("utf-8"))
    for one in found:
        jsonschema.validate(one, schema)
    assert {"DRF201", "DRF204", "DRF205", "DRF206"} <= {one["code"] for one in found}


def test_findings_are_for_github_and_sarif_too(run: Any, engine: Path, tmp_path: Path) -> None:
    out = tmp_path / "draft.yaml"
    ran = run("extract", "--source", engine, "--out", out, "--format", "github")
    assert "::warning file=" in ran.out
    assert "title=DRF201 todo-not-known::" in ran.out
    ran = run("extract", "--source", engine, "--format", "sarif")
    log = json.loads(ran.err)["runs"][0]
    assert {one["ruleId"] for one in log["results"]} >= {"DRF201", "DRF205"}


def test_a_class_that_states_everything_leaves_nothing_to_do(run: Any, engine: Path) -> None:
    attention = engine / "vllm/v1/attention"
    (attention / "backends/registry.py").write_text(WHOLE, encoding="utf-8")
    (attention / "whole.py").write_text(STATED, encoding="utf-8")
    prefill = attention / "backends/mla/prefill/registry.py"
    prefill.write_text("class MLAPrefillBackendEnum:\n    pass\n", encoding="utf-8")
    ran = run("extract", "--source", engine)
    assert ran.code == 0, ran.err
    assert "warning" not in ran.err
    assert "      dtype: any\n" in ran.out
    assert "        - {value: 4}\n" in ran.out


def test_what_cannot_be_read_is_wrong_use(run: Any, engine: Path, tmp_path: Path) -> None:
    ran = run("extract", "--source", tmp_path / "none.whl", "--out", tmp_path / "draft.yaml")
    assert (ran.code, "no such file or folder" in ran.complaint) == (2, True)
    ran = run("extract", "--source", engine, "--engine", "nope")
    assert (ran.code, "--engine takes " in ran.complaint) == (2, True)
    assert run("extract").code == 2
    (engine / "vllm/v1/attention/backends/registry.py").unlink()
    (engine / "vllm/v1/attention/backends/mla/prefill/registry.py").unlink()
    ran = run("extract", "--source", engine, "--out", tmp_path / "draft.yaml")
    assert (ran.code, "no backend of vllm can be drafted" in ran.err) == (2, True)
    assert "DRF107" in ran.out
    assert not (tmp_path / "draft.yaml").exists()


@pytest.mark.parametrize("code", ["DRF201", "DRF202", "DRF203", "DRF204", "DRF205", "DRF206"])
def test_each_thing_left_to_do_is_explained(run: Any, code: str) -> None:
    ran = run("rule", code)
    assert (ran.code, ran.out.startswith(f"{code} todo-")) == (0, True)
