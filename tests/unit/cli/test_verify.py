"""``attnsel verify``: verdicts, examples that can be pasted, exit codes."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from selector.resources import resource
from selector.schema import load_schema

from .conftest import SMALL, Run, line_of


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The small manifest with a promise that it breaks."""
    promise = '  - name: no fa2\n    when: {capability: "9.0"}\n    never: {backend: [fa2]}\n'
    path = tmp_path / "broken.yaml"
    path.write_text(SMALL.read_text("utf-8") + promise + "    reason: It hangs.\n")
    return path


def test_what_is_proved_ends_well(run: Run) -> None:
    ran = run("verify", "small.yaml")
    assert ran.code == 0, ran.out
    assert "proved        no dense prefill for sparse layers on 12.x" in ran.out
    assert ran.out.splitlines()[1].startswith(
        "  a question: a device, layer, software and lengths;"
    )
    assert f"small.yaml:{line_of('no dense prefill for sparse')}" in ran.out
    assert ran.out.endswith("3 proved.\n")


def test_an_example_shows_it_when_pasted(run: Run, broken: Path) -> None:
    ran = run("verify", broken)
    assert ran.code == 1
    assert ran.out.endswith("3 proved, 1 refuted.\n")
    (command,) = re.findall(r"^ +attnsel (resolve .*)$", ran.out, re.MULTILINE)
    (gives,) = re.findall(r"gives prefill (\w+)", ran.out)
    again = run(*shlex.split(command), "--format", "json")
    assert again.json["prefill"]["backend"] == gives == "fa2"
    assert again.json["notes"] == ['breaks the invariant "no fa2": It hangs.']
    assert f"{broken}:{line_of('8.0..12.1')}" in ran.out
    assert f"{broken}:{line_of('prefill: [fa2, math]')}" in ran.out


def test_json_says_the_same(run: Run, broken: Path) -> None:
    ran = run("verify", "small.yaml", broken, "--format", "json")
    assert ran.code == 1
    Draft202012Validator(load_schema("verification")).validate(ran.json)
    good, bad = ran.json["manifests"]
    assert {proof["verdict"] for proof in good["proofs"]} == {"proved"}
    (proof,) = [proof for proof in bad["proofs"] if proof["verdict"] == "refuted"]
    assert 0 < proof["broken"] < proof["questions"]
    assert proof["witness"]["command"].startswith("attnsel resolve --manifest ")


def test_beyond_the_budget_it_says_so(run: Run) -> None:
    ran = run("verify", "small.yaml", "--budget", "0")
    assert ran.code == 1
    assert "not decided   no dense prefill for sparse layers on 12.x" in ran.out
    assert re.search(r"were drawn: if none of those breaks it, at most [\d.]+%", ran.out)


def test_an_overlay_is_part_of_what_is_proved(run: Run, tmp_path: Path) -> None:
    overlay = tmp_path / "ours.yaml"
    overlay.write_text(
        "attnsel: 1\noverlay: ours\n"
        "priorities: [{when: {mla: false}, order: [math], reason: Ours.}]\n"
    )
    ran = run("verify", "small.yaml", "--overlay", overlay)
    assert ran.code == 1
    assert "xqa, for decode: " in ran.out
    assert f"--overlay {overlay}" in ran.out


def test_what_cannot_be_read_is_one_line(run: Run) -> None:
    ran = run("verify", "nowhere.yaml")
    assert ran.code == 2
    assert "nowhere.yaml" in ran.complaint


def promising(tmp_path: Path, promise: str) -> Path:
    """The small manifest with one more promise."""
    text = SMALL.read_text("utf-8")
    path = tmp_path / "promising.yaml"
    path.write_text(f"{text}  - name: ours\n{promise}    reason: Ours.\n")
    return path


BROKEN = {
    "never: {backend: [mla_fa3]}": "- when: {mla: true}",
    "when: {platform: cpu}\n    never: {backend: [math]}": "- when: {platform: [cpu]}",
    'when: {capability: "12.x"}\n    never: {backend: any}': "- when: {mla: true, sparse: true}",
    "never: {path: [mqa]}": "- when: {mla: true}",
    "never: {path: [mha]}": "- when: {platform: [cpu]}",
    "when: {sparse: true}\n    never: {path: [sparse_mqa]}": "- when: {mla: true, sparse: true}",
}
"""Promises that the small manifest breaks, and the line that lets it."""


@pytest.mark.parametrize("promise", [*BROKEN])
def test_each_kind_of_promise_shows_a_question_and_a_line_at_fault(
    run: Run, tmp_path: Path, promise: str
) -> None:
    path = promising(tmp_path, f"    {promise}\n")
    ran = run("verify", path)
    assert ran.code == 1
    (command,) = re.findall(r"^ +attnsel (resolve .*)$", ran.out, re.MULTILINE)
    answer = run(*shlex.split(command), "--format", "json").json
    assert answer["notes"] == ['breaks the invariant "ours": Ours.']
    assert f"{path}:{line_of(BROKEN[promise])}" in ran.out


def test_a_path_that_lengths_decide_is_shown_by_a_known_model(run: Run, tmp_path: Path) -> None:
    text = resource("capabilities.yaml").read_text("utf-8")
    promise = "  - name: ours\n    when: {sparse: true}\n    never: {path: [dense_mha]}\n"
    path = tmp_path / "lengths.yaml"
    path.write_text(f"{text.rstrip()}\n{promise}    reason: Ours.\n", "utf-8")
    ran = run("verify", path)
    assert "refuted       ours" in ran.out
    assert re.search(r"lengths decide: [\d,]+ of \d.* questions meet the rule", ran.out)
    (command,) = re.findall(r"^ +attnsel (resolve .*)$", ran.out, re.MULTILINE)
    answer = run(*shlex.split(command), "--format", "json").json
    assert answer["notes"] == ['breaks the invariant "ours": Ours.']
    assert answer["prefill"]["path"] == "dense_mha"
    backend = answer["prefill"]["backend"]
    for words in (
        f"this rule of {backend} gives dense_mha",
        f"{backend} may compute prefill densely",
        f"this list gives {backend}",
    ):
        assert re.search(rf"{path}:\d+ +{words}", ran.out)


def test_a_decode_path_is_at_fault_where_the_entry_is(run: Run, tmp_path: Path) -> None:
    path = promising(tmp_path, "    never: {path: [mqa]}\n")
    out = run("verify", path).out
    assert re.search(rf"{path}:{line_of('- name: mla_fa3')} +mla_fa3 decodes by mqa", out)


def test_what_an_invariant_excludes_is_no_contradiction(run: Run) -> None:
    ran = run("verify", "vllm-0.33.0")
    said = " ".join(ran.out.split())
    name = "proved every backend that a priority list names can be chosen, but for 2 that an"
    assert f"{name} invariant excludes asked of every manifest" in said
    assert "excluded by an invariant: FLASHINFER_MLA_PREFILL, for prefill:" in said
    assert "never chosen" not in said
    names = {
        proof["name"]
        for proof in run("verify", "vllm-0.33.0", "--format", "json").json["manifests"][0]["proofs"]
    }
    assert "every backend that a priority list names can be chosen" in names


def test_a_path_bounded_by_a_field_that_nothing_else_looks_at(run: Run, tmp_path: Path) -> None:
    """No rule tells the lengths of such a question apart; it is still made and shown."""
    promise = "  - name: never dense\n    when: {sparse: true}\n    never: {path: [dense_mha]}\n"
    path = tmp_path / "broken.yaml"
    text = resource("manifests/vllm-0.33.0.yaml").read_text("utf-8")
    path.write_text(f"{text}{promise}    reason: It would be slow.\n")
    ran = run("verify", path)
    assert ran.code == 1
    (verdict,) = (line for line in ran.out.splitlines() if "never dense" in line)
    assert verdict.split()[0] == "refuted"
