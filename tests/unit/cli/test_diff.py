"""`attnsel diff`: formats, exit codes, and commands that show what they are said to show."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from selector.schema import load_schema

from .conftest import SMALL, Run


@pytest.fixture
def new(tmp_path: Path) -> str:
    """The small manifest with a head size less, and a dense path switched off."""
    text = SMALL.read_text("utf-8")
    for before, after in (
        ("head_size: [64, 128, 256]", "head_size: [64, 128]"),
        ("    dense_prefill: true\n", "    dense_prefill: false\n    rationale: It crashed.\n"),
        ("Decode only.", "For decodes."),
    ):
        assert before in text
        text = text.replace(before, after, 1)
    path = tmp_path / "new.yaml"
    path.write_text(text, "utf-8")
    return str(path)


def test_json_is_what_the_schema_says_and_every_command_shows_it(run: Run, new: str) -> None:
    ran = run("diff", SMALL, new, "--format", "json")
    assert ran.code == 4
    found = ran.json
    Draft202012Validator(load_schema("difference")).validate(found)
    assert found["changed"] == sum(change["count"] for change in found["changes"])
    asked = [
        (region["witness"], change["before"], change["after"])
        for change in found["changes"]
        for region in change["regions"]
    ]
    assert len(asked) > 3
    for witness, *decisions in asked:
        for command, decision in zip((witness["old"], witness["new"]), decisions, strict=True):
            answer = run(*shlex.split(command)[1:], "--format", "json").json
            assert {p: answer[p]["backend"] for p in ("prefill", "decode")} == decision
    (path,) = (one for one in found["paths"]["changes"] if one["after"]["path"] == "sparse_mqa")
    for side, command in (("before", "old"), ("after", "new")):
        answer = run(*shlex.split(path["witness"][command])[1:], "--format", "json").json
        assert answer["prefill"]["path"] == path[side]["path"]


def test_text(run: Run, new: str) -> None:
    ran = run("diff", SMALL, new, "--limit", "1")
    assert ran.code == 4
    assert "questions decide differently (" in ran.out.splitlines()[0]
    assert "head_size 256" in ran.out
    assert "e.g. attnsel resolve --manifest" in ran.out
    assert "sparse_sm100: dense_mha → sparse_mqa" in ran.out
    assert "no decision changes by" in ran.out
    assert "description (xqa)" in ran.out


def test_markdown_folds_what_is_long(run: Run, new: str) -> None:
    ran = run("diff", SMALL, new, "--format", "markdown", "--limit", "2")
    assert ran.code == 4
    assert ran.out.startswith("### ")
    assert "| change | questions | share |" in ran.out
    assert ran.out.count("<details>") == ran.out.count("</details>") >= 3


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_the_same(run: Run, form: str) -> None:
    ran = run("diff", SMALL, SMALL, "--format", form)
    assert ran.code == 0
    if form == "json":
        Draft202012Validator(load_schema("difference")).validate(ran.json)
    else:
        assert "the same: only comments, order or anchors can differ" in ran.out


def test_claims_beside_truth(run: Run) -> None:
    """The small manifest claims nothing: with its claims it decides the same."""
    ran = run("diff", SMALL, SMALL, "--as-claimed", "old")
    assert "as claimed" in ran.out


def test_what_cannot_be_read(run: Run) -> None:
    ran = run("diff", SMALL, "nowhere.yaml")
    assert ran.code == 2
    assert ran.complaint == "nowhere.yaml: no such file or directory"
