"""The command around certification; what certification finds is tested beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backends import certify as certification
from backends.certify import Certificate
from selector import Selector
from selector.values import Device, Facts, Finding, Severity

from .conftest import SMALL, Run


class Pretended:
    """A certificate with a few cases, some of them wrong."""

    id = "cpu-2026-11-01-abcdef01"

    def __init__(self, judgements: list[str]) -> None:
        self.judgements = judgements
        self.passed = bool(judgements) and "over_claim" not in judgements

    def evidence(self) -> dict[str, Any]:
        ref = Selector.load(SMALL).manifest.ref
        certificate = Certificate(ref, Device("cpu"), Facts(), "2026-11-01", 0, (), (), {})
        cases = [{"backend": "math", "judgement": kind} for kind in self.judgements]
        left = {"field": "head_size", "line": 29, "column": 7, "why": "too large to run here"}
        untested = [{"backend": "math", "phase": p, **left} for p in ("prefill", "decode")]
        skipped = {"fa2": "no adapter runs it"}
        more = {"cases": cases, "untested": untested, "skipped": skipped, "passed": self.passed}
        return certificate.evidence() | more

    def findings(self) -> list[Finding]:
        if self.passed:
            return []
        words = (
            "math prefill: head_size 7 is claimed, and the kernel refuses it",
            "narrow the claim",
        )
        return [Finding(str(SMALL), 29, 7, "CERT003", Severity.ERROR, *words)]


def pretend(monkeypatch: pytest.MonkeyPatch, *judgements: str) -> None:
    def run_claims(*_: object, on_start: Callable[[int, int], object], **__: object) -> Pretended:
        if judgements:
            on_start(len(judgements), 1)
        return Pretended(list(judgements))

    monkeypatch.setattr(certification, "certify", run_claims)


def test_claims_that_hold(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(monkeypatch, "confirmed", "confirmed", "declined")
    monkeypatch.chdir(tmp_path)
    ran = run("certify", "--device", "cpu", *small)
    assert ran.code == 0
    assert "3 cases  2 as claimed, 1 right, and declined on purpose; 2 claims untested" in ran.out
    left = next(line for line in ran.out.splitlines() if "too large to run here" in line)
    assert " ".join(left.split()).startswith("math head_size too large to run here prefill and")
    assert left.endswith("small.yaml:29")
    assert ran.err == "running 3 cases of 1 backend on cpu\n"
    assert "fa2            not run: no adapter runs it" in ran.out
    assert "certified: every claim that was run holds (3 cases)" in ran.out
    written = json.loads((tmp_path / f"evidence-{Pretended.id}.json").read_text("utf-8"))
    assert written["passed"] is True


def test_a_wrong_claim_is_shown_at_its_line(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(monkeypatch, "confirmed", "over_claim")
    out = tmp_path / "evidence.json"
    ran = run("certify", "--device", "cpu", *small, "--out", out)
    assert ran.code == 1
    assert "small.yaml:29:7: CERT003 math prefill: head_size 7 is claimed" in ran.out
    assert SMALL.read_text("utf-8").splitlines()[28] in ran.out
    assert "not certified: 1 claim is wrong (2 cases)" in ran.out
    assert json.loads(out.read_text("utf-8"))["passed"] is False
    ran = run("certify", "--device", "cpu", *small, "--out", out, "--format", "json")
    assert ran.code == 1
    assert ran.json["passed"] is False


def test_nothing_runs_here(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(monkeypatch)
    monkeypatch.chdir(tmp_path)
    ran = run("certify", "--device", "cpu", *small)
    assert ran.code == 2
    assert ran.complaint == "no entry of this manifest runs here: no adapter runs it (1 entry)"
    assert list(tmp_path.iterdir()) == []


def test_a_device_that_is_not_there(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from backends import probe

    monkeypatch.setattr(probe, "probe_device", lambda: Device("cpu"))
    ran = run("certify", "--device", "cuda", *small)
    assert ran.code == 2
    assert "no CUDA device" in ran.complaint
    ran = run("certify", "--device", "cpu", "--backend", "nope", *small)
    assert ran.code == 2
