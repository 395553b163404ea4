"""Reports of vLLM's users: what the thread found is what a diagnosis says, or something better.

Of each report ``said`` holds only the reasons that the thread itself shows. ``fix`` is what it
found: a change, what runs once nothing is forced, what a later version runs, that nothing helps;
``null``: only a version that is not known here has it. ``only_other_version`` is ``null`` where
the thread shows no error; a version that it gives roughly ("~0.19") is rounded. ``first`` is how
the answer begins, and ``says`` what else of the thread must be in it.
"""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from selector.binding import Selector
from selector.changes.case import USABLE, candidate_of, choice_of
from selector.devices import find_device
from selector.fields import Vocabulary
from selector.report.diagnosis import diagnosis_json, diagnosis_lines
from selector.report.text import paint
from selector.report.wording import Places
from selector.serving.diagnosis.answer import Diagnosis, diagnose
from selector.serving.logs.log import EngineError, Log, Reason, Told, read_log

FILE = Path(__file__).with_name("reports.jsonl")
LOGS = Path(__file__).parents[1] / "unit" / "serving" / "logs"
REPORTS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
FUZZED = 300

every_report = pytest.mark.parametrize("report", REPORTS, ids=[r["id"] for r in REPORTS])


@cache
def vllm() -> Selector:
    return Selector.load("vllm-0.33.0")


def diagnosed(report: dict[str, Any]) -> Diagnosis:
    """The report as the log of an engine would have it."""
    words = Vocabulary()
    error = EngineError(
        kind="forced" if report["backend"] else "none",
        platform="cuda",
        backend=report["backend"],
        asked={name: words.field(name).read(value) for name, value in report["config"].items()},
        unknown={},
        reasons={b: tuple(Reason(c, c) for c in codes) for b, codes in report["said"].items()},
        prefill=False,
        complete=True,
        line=1,
    )
    version = None if report["version"] is None else Told(report["version"], 1)
    return diagnose(error, Log((error,), version), vllm(), find_device(report["arch"]))


@every_report
def test_the_outcome_is_the_one_expected(report: dict[str, Any]) -> None:
    found = diagnosed(report)
    assert found.case is not None
    assert found.runs is (report["outcome"] != "none")
    if found.runs:
        answer = found.case.resolution
        assert {choice_of(answer, p).backend for p in answer.needed} == {report["outcome"]}


@every_report
def test_the_reasons_are_named(report: dict[str, Any]) -> None:
    found = {c.backend: {r.code for r in c.rejections} for c in diagnosed(report).candidates}
    for backend, codes in report["codes"].items():
        assert set(codes) <= found[backend], backend


@every_report
def test_what_the_log_says_too_is_not_marked(report: dict[str, Any]) -> None:
    for one in diagnosed(report).candidates:
        said = set(report["said"].get(one.backend, ()))
        assert set(one.both) | set(one.only_log) | set(one.undecided) == said
        assert not set(one.both) & {*one.only_log, *one.only_manifest}


@every_report
def test_the_fix_is_among_the_suggestions(report: dict[str, Any]) -> None:
    found, fix = diagnosed(report), report["fix"]
    if fix is None:
        assert report["only_other_version"]
    elif "nothing" in fix:
        assert found.remedies == ()
    elif "valid" in fix:
        assert found.case is not None
        candidate = candidate_of(found.case.resolution, fix["valid"])
        assert {candidate.prefill.outcome, candidate.decode.outcome} <= set(USABLE)
    elif "unforced" in fix:
        assert found.unforced is not None
        assert set(found.unforced.values()) == {fix["unforced"]}
    elif "runs" in fix:
        assert found.runs
    else:
        assert fix["backend"] in {
            name
            for remedy in found.remedies
            for name in remedy.backends.values()
            for change in remedy.changes
            if len(remedy.changes) == 1 and change.field == fix["field"]
            if fix["to"] in (change.after, *change.others)
        }


@every_report
def test_it_says_when_only_another_version_could_tell(report: dict[str, Any]) -> None:
    expected = report["only_other_version"]
    if expected is None:
        return
    found = diagnosed(report)
    assert found.only_other_version is expected
    text = paint(diagnosis_lines([found], vllm(), Places()))
    assert ("only a manifest of" in text) is expected


@every_report
def test_what_to_do_comes_first_and_the_thread_is_found_in_the_answer(
    report: dict[str, Any],
) -> None:
    text = paint(diagnosis_lines([diagnosed(report)], vllm(), Places()), width=1000)
    assert text.startswith(report["first"] or "")
    for words in report["says"]:
        assert words in text


@every_report
def test_what_was_asked_is_shown(report: dict[str, Any]) -> None:
    text = paint(diagnosis_lines([diagnosed(report)], vllm(), Places()))
    assert f"head_size {report['config']['head_size']}" in text
    assert report["arch"] in text.split("\n\n")[1]


# -- anything at all -----------------------------------------------------------------------------


def fuzzed(seed: int) -> str:
    """A log with lines cut, doubled, moved, and characters replaced."""
    chance = random.Random(seed)
    text = chance.choice(sorted(LOGS.glob("*.log"))).read_text("utf-8")
    for _ in range(chance.randint(1, 12)):
        at, length = chance.randrange(len(text) + 1), chance.choice((1, 1, 2, 8, 40))
        other = text[(start := chance.randrange(len(text) + 1)) : start + length]
        new = chance.choice(
            ("", other, "None", "True", "-1", "9" * 40, "[", "]}", "=", "\n", "\x1b[0m", "\0", "é")
        )
        text = text[:at] + new + text[at + chance.choice((0, len(new), length)) :]
    return text


def test_fuzzed_logs_get_an_answer_or_a_one_line_error() -> None:
    answers, seen = 0, set()
    for seed in range(FUZZED):
        log = read_log(fuzzed(seed), vllm().manifest.vocabulary)
        device = find_device("12.0") if seed % 2 else None
        for error in log.errors[:1]:
            key = (repr(error.asked), repr(error.reasons), error.backend, log.gpu, device)
            if repr(key) in seen:
                continue
            seen.add(repr(key))
            found = diagnose(error, log, vllm(), device)
            answers += 1
            assert paint(diagnosis_lines([found], vllm(), Places()), width=100)
            assert "\n" not in (found.contradiction or "")
            assert json.dumps(diagnosis_json([found], vllm()))
    assert answers > FUZZED // 10
