"""`attnsel diff`: formats, exit codes, and commands that show what they are said to show."""

from __future__ import annotations

import re
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
    first, second, *_ = ran.out.splitlines()
    assert first.endswith("of all questions are decided differently: 9,600 of 153,008,209,920")
    assert second.startswith("  a question: ")
    assert "head_size 256" in ran.out
    assert "\n      attnsel resolve --manifest" in ran.out
    assert "sparse_sm100: dense_mha → sparse_mqa" in ran.out
    assert "no decision changes by" in ran.out
    assert "description (xqa)" in ran.out


WAYS = {
    "refused": (
        ("head_size: [64, 128, 256]", "head_size: [64, 128]"),
        "fa2 is refused now: head_size 256; accepts 64, 128 (nearest 128)",
    ),
    "order": (("- prefill: [fa2, math]", "- prefill: [math, fa2]"), "math now stands before fa2"),
    "unlisted": (
        ("- prefill: [fa2, math]", "- prefill: [math]"),
        "the list that decides no longer names fa2",
    ),
}


def changed(tmp_path: Path, before: str, after: str) -> tuple[str, int]:
    """The small manifest with one place changed, and the line of that place."""
    text = SMALL.read_text("utf-8")
    assert before in text
    path = tmp_path / "changed.yaml"
    path.write_text(text.replace(before, after, 1), "utf-8")
    return str(path), text[: text.index(before)].count("\n") + 1


@pytest.mark.parametrize("cause", [*WAYS])
def test_each_region_says_why_and_where(run: Run, tmp_path: Path, cause: str) -> None:
    edit, words = WAYS[cause]
    new, line = changed(tmp_path, *edit)
    ran = run("diff", SMALL, new)
    found = [" ".join(one.split()) for one in ran.out.replace("\n      /", " /").splitlines()]
    said = [one for one in found if words in one]
    assert said
    assert all(f"{new}:{line}" in one for one in said)
    reasons = [
        reason
        for change in run("diff", SMALL, new, "--format", "json").json["changes"]
        for region in change["regions"]
        for reason in region["witness"]["reasons"]
    ]
    assert {reason["cause"] for reason in reasons} == {cause}
    assert {(reason["new"][0], reason["new"][1]) for reason in reasons} == {(new, line)}


def test_the_other_way_round_it_was_refused_before(run: Run, tmp_path: Path) -> None:
    new, line = changed(tmp_path, *WAYS["refused"][0])
    out = " ".join(run("diff", new, SMALL).out.split())
    assert "fa2 was refused before: head_size 256; accepts 64, 128 (nearest 128)" in out
    assert f"{new}:{line}" in out


def test_a_backend_that_is_gone_or_new(run: Run, tmp_path: Path) -> None:
    text = SMALL.read_text("utf-8")
    at = text.index("  - name: fa2\n")
    line = text[:at].count("\n") + 1
    new, _ = changed(tmp_path, "- name: fa2", "- name: fa4")
    Path(new).write_text(Path(new).read_text("utf-8").replace("fa2, math", "fa4, math"), "utf-8")
    out = " ".join(run("diff", SMALL, new).out.split())
    assert re.search(rf"fa2 is gone \S*small.yaml:{line} ", out)
    back = " ".join(run("diff", new, SMALL).out.split())
    assert f"fa4 is gone {new}:{line}" in back
    text = Path(new).read_text("utf-8")
    Path(new).write_text(text.replace("[fa4, math]", "[math]"), "utf-8")
    back = " ".join(run("diff", new, SMALL, "--limit", "9").out.split())
    assert re.search(rf"fa2 is new \S*small.yaml:{line} ", back)


def test_what_regions_share_is_said_once(run: Run, tmp_path: Path) -> None:
    out = run("diff", SMALL, changed(tmp_path, *WAYS["order"][0])[0]).out
    changes = out.count(" of what changes, ")
    assert changes > 1
    assert out.count("in all of these: no MLA, dense, dtype bfloat16") == changes
    assert out.count("no MLA") == changes


def test_a_comment_fits_a_forge_however_much_changes(run: Run) -> None:
    """Every change of a large manifest, without a limit."""
    command = ("diff", "vllm-0.33.0", "vllm-0.33.0", "--as-claimed", "old", "--limit", "1000")
    out = run(*command, "--format", "markdown").out
    assert 20_000 < len(out) < 65_536
    assert out.count("<details>") == out.count("</details>")
    assert "… cut to fit a comment" in out


def test_large_numbers_are_powers_of_ten_and_exact_in_json(run: Run) -> None:
    command = ("diff", "vllm-0.33.0", "vllm-0.33.0", "--as-claimed", "old", "--limit", "1")
    out = run(*command).out
    assert "4.3 × 10^23" in " ".join(out.split())
    assert not re.search(r"\d(,\d{3}){5}", out)
    exact = run(*command, "--format", "json").json["questions"]
    assert f"{exact:.1e}" == "4.3e+23"


def test_markdown_folds_what_is_long(run: Run, new: str) -> None:
    ran = run("diff", SMALL, new, "--format", "markdown", "--limit", "2")
    assert ran.code == 4
    assert ran.out.startswith("### ")
    assert "| change | share | questions |" in ran.out
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
    assert ran.code == 0
    assert "small.yaml as claimed → " in ran.out
    assert re.search(r": none of [\d,]+ questions is decided", ran.out)


def test_what_cannot_be_read(run: Run) -> None:
    ran = run("diff", SMALL, "nowhere.yaml")
    assert ran.code == 2
    assert ran.complaint == "nowhere.yaml: no such file or directory"
