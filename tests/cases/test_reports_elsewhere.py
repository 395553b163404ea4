"""Reports of other engines' users, each engine stated as a small manifest.

``engines/`` has of each engine only what its threads say. ``fix`` is what the thread found: a
change, what runs once nothing is forced, where it runs as it is, that nothing helps.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from selector.binding import Selector
from selector.changes.case import USABLE, Case, Inquiry, candidate_of, choice_of
from selector.changes.search import elsewhere, remedy, unforced, ways
from selector.devices import find_device
from selector.report.explanation import explain, explanation_lines
from selector.report.failure import failure_words
from selector.report.text import paint
from selector.report.wording import Places
from selector.values import Facts, Layer, Outcome, Policy

HERE = Path(__file__).parent
REPORTS = [
    json.loads(line) for line in (HERE / "reports_elsewhere.jsonl").read_text("utf-8").splitlines()
]

every_report = pytest.mark.parametrize("report", REPORTS, ids=[r["id"] for r in REPORTS])


@cache
def engine(name: str) -> Selector:
    return Selector.load(HERE / "engines" / f"{name}.yaml")


def asked(report: dict[str, Any]) -> tuple[Case, Selector]:
    selector = engine(report["engine"])
    fields = selector.manifest.vocabulary.fields
    layer = Layer(
        {
            n: fields[n].read(v)
            for n, v in {"mla": False, "sparse": False, **report["fields"]}.items()
        }
    )
    policy = Policy(backend=report["backend"]) if "backend" in report else Policy()
    inquiry = Inquiry(find_device(report["arch"]), layer, Facts(report["facts"]), policy)
    return Case(inquiry, inquiry.resolve(selector), planning=True), selector


@every_report
def test_the_outcome_is_the_one_expected(report: dict[str, Any]) -> None:
    answer = asked(report)[0].resolution
    if report["outcome"] is None:
        assert answer.missing
    else:
        assert {choice_of(answer, p).backend for p in answer.needed} == {report["outcome"]}


@every_report
def test_every_reason_is_named_and_not_installed_is_told_apart(report: dict[str, Any]) -> None:
    answer = asked(report)[0].resolution
    for backend, codes in report["codes"].items():
        verdict = candidate_of(answer, backend).prefill
        assert set(codes) <= {r.code for r in verdict.rejections}, backend
        assert (verdict.outcome is Outcome.UNAVAILABLE) is (backend in report["unavailable"])
    for backend in report.get("usable", ()):
        assert candidate_of(answer, backend).prefill.outcome in USABLE


@every_report
def test_the_fix_is_what_is_suggested(report: dict[str, Any]) -> None:
    case, selector = asked(report)
    fix = report["fix"]
    if fix is None:
        return
    found = remedy(case, selector, ways(case, selector))
    if "nothing" in fix:
        assert unforced(case, selector) is None
        assert found is None or found.touches_model
    elif "unforced" in fix:
        assert set((unforced(case, selector) or {}).values()) == {fix["unforced"]}
    elif "elsewhere" in fix:
        assert set(fix["elsewhere"]) <= set(elsewhere(case, selector))
        assert report["arch"] not in elsewhere(case, selector)
    else:
        assert found is not None
        (change,) = found.changes
        assert change.field == fix["field"]
        assert fix["to"] in (change.after, *change.others)
        assert set(found.backends.values()) == {fix["backend"]}


@every_report
def test_the_answer_says_what_was_seen_and_what_is_allowed(report: dict[str, Any]) -> None:
    case, selector = asked(report)
    lines = paint(explanation_lines([explain(case, selector)], selector, Places()))
    text = " ".join(f"{lines} {failure_words([case], selector, Places()) or ''}".split())
    for words in report["says"]:
        assert any(one in text for one in words.split("|")), words
