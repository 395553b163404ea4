"""``attnsel drift`` on a small engine."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from selector.drift.rules import RULES
from selector.resources import resource

from ...conftest import read_engine_files

SNIPPETS = Path(__file__).parents[1] / "drift" / "snippets"
PAGE = Path(__file__).parents[3] / "docs" / "drift-findings.md"
STATES_IT = "    supports_dense_mha_prefill = False\n"


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A folder with the engine."""
    for name, text in read_engine_files(SNIPPETS / "engine.txt").items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for folder in path.parents:
            if folder == tmp_path / "site":
                break
            (folder / "__init__.py").touch()
    return tmp_path / "site"


@pytest.fixture
def manifest(tmp_path: Path) -> Path:
    path = tmp_path / "m.yaml"
    path.write_text((SNIPPETS / "manifest.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    return path


def old(engine: Path) -> Path:
    """The engine before its sparse implementation stated its dense prefill."""
    path = engine / "vllm/v1/attention/sparse.py"
    path.write_text(path.read_text(encoding="utf-8").replace(STATES_IT, ""), encoding="utf-8")
    return engine


def test_findings_end_with_1_and_show_both_places(run: Any, engine: Path, manifest: Path) -> None:
    ran = run("drift", "--manifest", manifest, "--source", old(engine))
    assert ran.code == 1
    assert "DRF002 SPARSE_SM120: SparseSM120Impl (vllm/v1/attention/sparse.py:" in ran.out
    assert "dense_prefill: false\n" in ran.out
    assert "Not decided:\n" in ran.out
    assert ran.err == ""


def test_a_wheel_is_read(run: Any, engine: Path, manifest: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "vllm.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path in sorted(old(engine).rglob("*.py")):
            archive.write(path, path.relative_to(engine))
    assert "DRF002 SPARSE" in run("drift", "--manifest", manifest, "--source", wheel).out


def test_json_is_of_the_form_of_lint(run: Any, engine: Path, manifest: Path) -> None:
    ran = run("drift", "--manifest", manifest, "--source", old(engine), "--format", "json")
    schema = json.loads(resource("schemas/finding.schema.json").read_text(encoding="utf-8"))
    jsonschema.validate(ran.json, schema)
    assert "DRF002" in {one["code"] for one in ran.json}
    assert "DRF007" in {one["code"] for one in ran.json}


def test_github_and_sarif(run: Any, engine: Path, manifest: Path) -> None:
    arguments = ("drift", "--manifest", manifest, "--source", old(engine), "--format")
    assert "title=DRF002 inherited-dense-prefill::SPARSE" in run(*arguments, "github").out
    log = run(*arguments, "sarif").json
    results = {one["ruleId"]: one for one in log["runs"][0]["results"]}
    rules = log["runs"][0]["tool"]["driver"]["rules"]
    assert rules[results["DRF002"]["ruleIndex"]]["id"] == "DRF002"
    assert results["DRF002"]["level"] == "error"


def test_what_cannot_be_read_is_wrong_use(run: Any, manifest: Path, tmp_path: Path) -> None:
    ran = run("drift", "--manifest", manifest, "--source", tmp_path / "none.whl")
    assert (ran.code, "no such file or folder" in ran.complaint) == (2, True)
    broken = tmp_path / "broken.whl"
    broken.write_bytes(b"no zip")
    ran = run("drift", "--manifest", manifest, "--source", broken)
    assert (ran.code, "is no wheel" in ran.complaint) == (2, True)
    ran = run("drift", "--manifest", manifest, "--source", tmp_path, "--engine", "nope")
    assert (ran.code, "--engine takes flashinfer, " in ran.complaint) == (2, True)
    assert run("drift", "--manifest", manifest).code == 2


def test_a_broken_module_is_a_finding_and_the_rest_is_compared(
    run: Any, engine: Path, manifest: Path
) -> None:
    (old(engine) / "vllm/v1/attention/flash.py").write_text("class class\n", encoding="utf-8")
    ran = run("drift", "--manifest", manifest, "--source", engine, "--format", "json")
    assert ran.code == 1
    found = {one["code"]: one for one in ran.json}
    assert found["DRF104"]["file"] == "vllm/v1/attention/flash.py"
    assert found["DRF004"]["message"].startswith("FLASH: vllm.v1.attention.flash.FlashBackend")
    assert found["DRF002"]["message"].startswith("SPARSE_SM120: ")


def test_only_notes_end_with_0(run: Any, engine: Path, manifest: Path) -> None:
    registry = engine / "vllm/v1/attention/backends/registry.py"
    text = registry.read_text(encoding="utf-8").replace("    COMPOSITE =", "    CPU_COMPOSITE =")
    registry.write_text(text, encoding="utf-8")
    prefill = engine / "vllm/v1/attention/backends/mla/prefill/registry.py"
    text = prefill.read_text(encoding="utf-8").replace("    FLASH =", "    CPU_FLASH =")
    prefill.write_text(text, encoding="utf-8")
    wider = manifest.read_text(encoding="utf-8").replace('"8.0..9.0"', '"8.0..11.0"')
    manifest.write_text(wider, encoding="utf-8")
    ran = run("drift", "--manifest", manifest, "--source", engine)
    assert ran.code == 0, ran.out
    assert "Not decided: " in ran.out


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_each_finding_is_explained(run: Any, rule: Any) -> None:
    ran = run("rule", rule.code.lower())
    assert ran.code == 0
    assert ran.out.startswith(f"{rule.code} {rule.name} · {rule.severity}")
    assert "ignore[" not in ran.out
    assert f"| `{rule.code}` | {rule.name} |" in PAGE.read_text(encoding="utf-8")


def test_a_comment_switches_a_finding_off(run: Any, engine: Path, manifest: Path) -> None:
    text = manifest.read_text(encoding="utf-8")
    told = ("drift", "--manifest", manifest, "--source", old(engine), "--format", "json")
    line = "    dense_prefill: false"
    comment = "  # attnsel: ignore[DRF002] upstream is told of it"
    manifest.write_text(text.replace(line, line + comment), encoding="utf-8")
    assert "DRF002" not in {one["code"] for one in run(*told).json}
    elsewhere = text.replace("    mla: true", f"    mla: true{comment}")
    manifest.write_text(elsewhere, encoding="utf-8")
    assert {"DRF002", "CAP901"} <= {one["code"] for one in run(*told).json}


def test_a_comment_for_drift_that_does_nothing_is_told_and_others_are_lints(
    run: Any, engine: Path, manifest: Path
) -> None:
    text = manifest.read_text(encoding="utf-8")
    comment = "  # attnsel: ignore[DRF002, CAP105, CAP999, DRF9] nothing of it"
    manifest.write_text(text.replace("    mla: true", f"    mla: true{comment}"), encoding="utf-8")
    told = ("drift", "--manifest", manifest, "--source", engine, "--format", "json")
    idle = [one for one in run(*told).json if one["code"].startswith("CAP")]
    assert [(one["code"], one["message"].split()[0]) for one in idle] == [("CAP901", "DRF002")]
    (engine / "vllm/v1/attention/backends/registry.py").write_text("", encoding="utf-8")
    assert "CAP901" not in {one["code"] for one in run(*told).json}  # nothing was compared


@pytest.mark.parametrize("form", ["json", "github"])
def test_half_of_a_surrogate_pair_can_be_written(form: str) -> None:
    import io
    import sys

    from cli.terminal import places, show_json
    from selector.report.github import workflow_commands
    from selector.values import Finding, Severity

    found = [Finding("x.yaml", 1, 1, "DRF004", Severity.ERROR, "vllm.\ud800.X is not there", "")]
    out, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), "utf-8")
    try:
        if form == "github":
            sys.stdout.writelines(workflow_commands(found, places("x.yaml"), lambda code: ""))
        else:
            show_json({"message": found[0].message, "ö": 1})
        sys.stdout.flush()
    finally:
        sys.stdout = out
