"""Comments that switch findings off are read where YAML has comments, and told when idle."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from selector.document import read_text
from selector.lint import Selection, lint
from selector.lint.suppressing import MOST, comments
from selector.values import Finding

MANIFEST = """\
%YAML 1.1
---
attnsel: 1
name: example
version: "1"
backends:
  - name: paged
    source: https://example.org/paged
    mla: false
    sparse: false
    accepts:
      platform: [cuda]
      capability: ["9.0", "12.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: [64, 128]
      block_size: any
      attn_type: [decoder]
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
"""
"""Has one finding that is no error: the directive on the first line."""


def lint_text(text: str, *overlays: str, **said: Any) -> list[tuple[str, int, int]]:
    changes = [read_text(text, f"overlay{n}.yaml") for n, text in enumerate(overlays)]
    return [place(f) for f in lint(read_text(text, "a.yaml"), changes, Selection(**said))]


def place(finding: Finding) -> tuple[str, int, int]:
    return finding.code, finding.line, finding.column


def messages(text: str) -> list[str]:
    return [str(f).removeprefix("a.yaml:") for f in lint(read_text(text, "a.yaml"))]


def with_comment(comment: str) -> str:
    return MANIFEST.replace("name: example", f"name: example  {comment}")


def test_without_comments() -> None:
    assert lint_text(MANIFEST) == [("CAP005", 1, 1)]


def test_a_finding_is_switched_off_for_its_line_the_next_line_or_the_file() -> None:
    on_line = MANIFEST.replace("%YAML 1.1", "%YAML 1.1 # attnsel: ignore[CAP005] an old editor")
    before = f"# attnsel: ignore[CAP005] an old editor\n# more words\n\n{MANIFEST}"
    anywhere = f"{MANIFEST}# attnsel: ignore-file[CAP005] an old editor\n"
    for text in (on_line, before, anywhere):
        assert lint_text(text) == []


def test_other_lines_and_other_codes_stay() -> None:
    assert lint_text(with_comment("# attnsel: ignore[CAP901] not this")) == [
        ("CAP005", 1, 1),
        ("CAP902", 4, 34),
    ]
    elsewhere = MANIFEST + "# attnsel: ignore[CAP102] not here\n"
    assert lint_text(elsewhere) == [("CAP005", 1, 1), ("CAP901", 22, 19)]


def test_comments_for_drift_are_no_concern_of_lint_but_for_their_form() -> None:
    assert lint_text(with_comment("# attnsel: ignore[DRF002] upstream is told")) == [
        ("CAP005", 1, 1)
    ]
    (_, unknown) = messages(with_comment("# attnsel: ignore[DRF2] upstream is told"))
    assert unknown.startswith('4:34: CAP902 no rule has the code "DRF2"; did you mean DRF')
    (_, bare) = messages(with_comment("# attnsel: ignore[DRF002]"))
    assert bare.startswith("4:16: CAP902 a comment that says no reason")
    both = "# attnsel: ignore[DRF002, CAP102] upstream is told"
    assert lint_text(with_comment(both)) == [("CAP005", 1, 1), ("CAP901", 4, 42)]


def test_errors_of_reading_stay() -> None:
    text = MANIFEST + "nom: x  # attnsel: ignore[CAP003] it is so\n"
    assert [(code, line) for code, line, _ in lint_text(text)] == [
        *[("CAP005", 1), ("CAP003", 22), ("CAP902", 22)]
    ]


@pytest.mark.parametrize(
    ("comment", "said"),
    [
        (
            "# attnsel: ignore[CAP102] why",
            "4:34: CAP901 CAP102 is switched off here, and nothing is found; remove it",
        ),
        (
            "# attnsel: ignore",
            "4:16: CAP902 a comment that names no code; write `# attnsel: ignore[CODE] why`",
        ),
        (
            "# attnsel: ignore[] why",
            "4:16: CAP902 a comment that names no code; write `# attnsel: ignore[CODE] why`",
        ),
        (
            "# attnsel: ignore[CAPP102] why",
            '4:34: CAP902 no rule has the code "CAPP102"; did you mean CAP102?',
        ),
        (
            "# attnsel: ignore[cap102] why",
            '4:34: CAP902 no rule has the code "cap102"; did you mean CAP102?',
        ),
        (
            "# attnsel: ignroe[CAP102] why",
            '4:16: CAP902 "ignroe" is no instruction; write `# attnsel: ignore[CODE] why`',
        ),
        (
            "# attnsel: noqa",
            '4:16: CAP902 "noqa" is no instruction; write `# attnsel: ignore[CODE] why`',
        ),
        (
            "# attnsel ignore[CAP102] why",
            '4:16: CAP902 "ignore without a colon" is no instruction; '
            "write `# attnsel: ignore[CODE] why`",
        ),
        (
            "# attnsel: ignore[CAP902] why",
            "4:34: CAP902 CAP902 cannot be switched off; correct what it finds",
        ),
    ],
)
def test_comments_that_do_nothing_are_told(comment: str, said: str) -> None:
    found = messages(with_comment(comment))
    assert found[1:] == [said]


def test_a_comment_must_say_why() -> None:
    text = MANIFEST.replace("%YAML 1.1", "%YAML 1.1 # attnsel: ignore[CAP005]")
    assert lint_text(text) == [("CAP902", 1, 11)]


@pytest.mark.parametrize(
    "comment",
    [
        "# attnsel: 1",
        "# attnsel selects backends",
        "# see attnsel: ignore it",
        "# attnsel: the manifest's language",
        "# written for attnsel",
        "# attnsel ignores what is not there",
    ],
)
def test_prose_is_no_instruction(comment: str) -> None:
    assert lint_text(with_comment(comment)) == [("CAP005", 1, 1)]


def test_several_codes_and_several_comments_on_a_line() -> None:
    both = "# attnsel: ignore[CAP005, CAP102] old # attnsel: ignore[CAP103] why"
    text = MANIFEST.replace("%YAML 1.1", f"%YAML 1.1 {both}")
    assert lint_text(text) == [("CAP901", 1, 37), ("CAP901", 1, 67)]
    twice = MANIFEST.replace("%YAML 1.1", "%YAML 1.1 # attnsel: ignore[CAP005, CAP005] old")
    assert lint_text(twice) == [("CAP902", 1, 37)]


@pytest.mark.parametrize(
    "text",
    [
        'description: "one # attnsel: ignore[CAP102] why"\n',
        "description: 'one # attnsel: ignore[CAP102] why'\n",
        "description: one#attnsel: ignore[CAP102]why\n",
        "description: |\n  one\n  # attnsel: ignore[CAP102] why\n  two\n",
        "description: >-\n  # attnsel: ignore[CAP102] why\n",
        'description: "one\n  # attnsel: ignore[CAP102] why\n  two"\n',
    ],
)
def test_what_stands_in_text_is_no_comment(text: str) -> None:
    assert comments("a.yaml", text) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("description: |  # attnsel: ignore[CAP102] why\n  one\n", 1),
        ("description: |\n  one\n# attnsel: ignore[CAP102] why\nname: x\n", 4),
        ('description: "one"  # attnsel: ignore[CAP102] why\n', 1),
        ("description: one  # attnsel: ignore[CAP102] why\n", 1),
        ("a: [one,  # attnsel: ignore[CAP102] why\n  two]\n", 1),
        ("a: 1  # words # attnsel: ignore[CAP102] why\n", 1),
        ("a: 1\r\n# attnsel: ignore[CAP102] why\r\n\r\nb: 1\r\n", 4),
        ("a: 1\n#attnsel:ignore[CAP102]why\n", 2),
    ],
)
def test_what_stands_behind_text_is_a_comment(text: str, line: int) -> None:
    [comment] = comments("a.yaml", text)
    assert comment.line == line
    assert comment.why == "why"
    assert [code for code, _ in comment.named] == ["CAP102"]


def test_comments_of_overlays_are_for_the_overlay() -> None:
    overlay = "attnsel: 1\noverlay: ours\ndeny: [{backend: paged, reason: Not here.}]\n"
    marked = overlay.replace("ours", "ours  # attnsel: ignore[CAP102] why")
    assert lint_text(MANIFEST, marked) == [("CAP005", 1, 1), ("CAP901", 2, 34)]
    anywhere = overlay + "# attnsel: ignore-file[CAP005] not in here\n"
    assert lint_text(MANIFEST, anywhere) == [("CAP005", 1, 1), ("CAP902", 4, 24)]


def test_what_an_overlay_takes_away_is_no_reason_to_drop_the_comment_of_the_manifest() -> None:
    text = MANIFEST.replace('"9.0", "12.0"]', '"9.0", ">=12.0"]  # attnsel: ignore[CAP105] seen')
    assert lint_text(text) == [("CAP005", 1, 1)]
    overlay = (
        "attnsel: 1\noverlay: ours\nbackends:\n  - name: paged\n    accepts: {capability: %s}\n"
    )
    assert lint_text(text, overlay % '"9.0"') == [("CAP005", 1, 1)]


def test_what_was_not_looked_for_is_not_told_to_be_unused() -> None:
    text = with_comment("# attnsel: ignore[CAP102] why")
    assert lint_text(text, ignore=frozenset({"CAP102"})) == [("CAP005", 1, 1)]
    assert lint_text(text, ignore=frozenset({"CAP901"})) == [("CAP005", 1, 1)]
    assert lint_text(text + "nom: x\n") == [("CAP005", 1, 1), ("CAP003", 22, 1)]
    assert lint_text("a: [\n# attnsel: ignore\n") == lint_text("a: [\n\n")


def test_many_comments_are_read_soon() -> None:
    hostile = "# attnsel: ignore[CAP102] why\n" * 60_000
    listed = f"# attnsel: ignore[{'CAP102,' * 200_000}] why\n"
    nested = MANIFEST + json.dumps({"description": ["# attnsel: ignore"] * 30_000})[1:-1] + "\n"
    for text in (MANIFEST + hostile, MANIFEST + listed, nested):
        began = time.process_time()
        found = lint_text(text)
        assert time.process_time() - began < 2
        assert len(found) <= MOST + 1
