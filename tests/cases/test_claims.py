"""Wrong claims of public reports: which of them a manifest alone can show, and by which rule.

A row with ``finds`` has the claim as a small manifest, in words of its own, and what the whole
lint finds there: code, line, column. A row with ``needs`` says what must be read or run instead,
and why no rule over manifests can see it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selector.document import read_text
from selector.lint import lint
from selector.lint.catalogue import codes

FILE = Path(__file__).with_name("claims.jsonl")
CASES = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
SHOWN = [case for case in CASES if "finds" in case]
REPORTS = FILE.parents[3] / "shared" / "cases" / "dev.jsonl"


@pytest.mark.parametrize("case", SHOWN, ids=[case["id"] for case in SHOWN])
def test_the_claim_is_found_where_it_stands(case: dict[str, Any]) -> None:
    found = lint(read_text(case["manifest"], "m.yaml"))
    assert [[f.code, f.line, f.column] for f in found] == case["finds"], [*map(str, found)]


def test_every_claim_is_found_by_a_rule_or_has_a_reason_why_not() -> None:
    for case in CASES:
        assert ("finds" in case) != ("needs" in case), case["id"]
        if "needs" in case:
            assert len(case["why"].split()) > 10, case["id"]
        elif not case["finds"]:  # a control: the claim is right
            assert "control" in case["why"]
        assert {code for code, _, _ in case.get("finds", ())} <= set(codes())
    assert len({case["id"] for case in CASES}) == len(CASES)


@pytest.mark.skipif(not REPORTS.exists(), reason="the reports are not beside the project")
def test_every_report_about_a_claim_is_there() -> None:
    rows = map(json.loads, REPORTS.read_text("utf-8").splitlines())
    assert {row["id"] for row in rows if row["kind"] == "C"} == {case["id"] for case in CASES}
