"""The command around certification; what certification finds is tested beside it."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest

from backends import certify as certification
from backends.cases import Case, Untested
from backends.certificate import Certificate
from backends.certify import Runs
from backends.contract import Batch
from backends.judging import CaseResult, Judgement
from selector import Selector
from selector.evidence import NO_TIME
from selector.values import Device, Facts, Phase, Position

from .conftest import SMALL, Run

BATCH = Batch(
    query_lens=(1,),
    seq_lens=(7,),
    num_heads=8,
    num_kv_heads=2,
    head_size=7,
    v_head_size=7,
    page_size=16,
    dtype="float32",
)


def result(value: int, judgement: str) -> CaseResult:
    at = Position(str(SMALL), 29, 7)
    case = Case("math", Phase.PREFILL, "head_size", str(value), at, True, BATCH)
    return CaseResult(case, Judgement(judgement), message="" if judgement == "confirmed" else "no")


def pretend(monkeypatch: pytest.MonkeyPatch, *judgements: str, reach: int = 99) -> None:
    """Certification that finds these, and stops after some."""
    results = [result(7 + index, judgement) for index, judgement in enumerate(judgements)]
    cases = {"backends.fake:math": tuple(one.case for one in results)} if results else {}
    at = Position(str(SMALL), 29, 7)
    left = tuple(Untested("math", p, "head_size", at, "too large to run here") for p in Phase)
    runs = Runs(cases, left, {"fa2": "no adapter runs it"})

    def certify(*_: object, done: Any, on_result: Any, **said: Any) -> Certificate:
        for one in results[len(done) : reach]:
            on_result(one)
        ref, cpu = Selector.load(SMALL).manifest.ref, Device("cpu")
        ran = tuple(results[: max(reach, len(done))])
        late = tuple(Untested("math", Phase.PREFILL, "dtype", at, NO_TIME) for _ in results[reach:])
        return Certificate(
            ref, cpu, Facts(), said["date"], 0, ran, left + late, runs.skipped, {}, said["repeat"]
        )

    monkeypatch.setattr(certification, "certify", certify)
    monkeypatch.setattr(certification, "find_runs", lambda *_: runs)


def test_claims_that_hold(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(monkeypatch, "confirmed", "confirmed", "declined")
    monkeypatch.chdir(tmp_path)
    ran = run("certify", "--device", "cpu", *small)
    assert ran.code == 0
    assert "3 cases  2 as claimed, 1 right, and declined on purpose; 2 claims untested" in ran.out
    left = next(line for line in ran.out.splitlines() if "too large to run here" in line)
    assert " ".join(left.split()) == "math 2 claims: too large to run here"
    assert ran.err == "running 3 cases of 1 backend on cpu\n"
    assert "fa2            not run: no adapter runs it" in ran.out
    assert "certified: every claim that was run holds (3 cases)" in ran.out
    (file,) = tmp_path.iterdir()
    assert file.name.startswith("evidence-cpu-20")
    written = json.loads(file.read_text("utf-8"))
    assert written["passed"] is True
    assert written["repeat"] == f"attnsel certify --device cpu --manifest {SMALL} --seed 0"


def test_a_wrong_claim_is_shown_at_its_line(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pretend(monkeypatch, "over_claim", "confirmed")
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


def test_a_run_cut_short_goes_on(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out, part = tmp_path / "evidence.json", tmp_path / "evidence.json.part"
    words = ("certify", "--device", "cpu", *small, "--out", out)
    pretend(monkeypatch, "confirmed", "confirmed", "confirmed", reach=2)
    ran = run(*words)
    assert ran.code == 0
    late = next(row for row in ran.out.splitlines() if row.endswith("no time left"))
    assert late.split() == ["math", "1", "claim:", "no", "time", "left"]
    assert ran.err.endswith("1 case is left; --resume goes on with it\n")
    assert len(part.read_text("utf-8").splitlines()) == 1 + 2
    part.write_text(part.read_text("utf-8") + '{"case": {"back', "utf-8")  # cut off in a line
    pretend(monkeypatch, "confirmed", "confirmed", "confirmed")
    ran = run(*words, "--resume")
    assert ran.err == "running 3 cases of 1 backend on cpu, 2 of them done\n"
    assert not part.exists()
    assert json.loads(out.read_text("utf-8"))["claims"][0]["cases"] == 3


def test_another_run_does_not_go_on(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    words = ("certify", "--device", "cpu", *small, "--out", tmp_path / "evidence.json")
    pretend(monkeypatch, "confirmed", "confirmed", reach=1)
    run(*words)
    ran = run(*words, "--resume", "--seed", "1")
    assert ran.code == 2
    assert "was begun with another seed; leave out --resume to begin anew" in ran.complaint
    (tmp_path / "evidence.json.part").write_text("nothing\n", "utf-8")
    ran = run(*words, "--resume")
    assert ran.code == 2
    assert "evidence.json.part holds no run" in ran.complaint


def test_runs_are_kept_until_their_evidence_is_written(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out = tmp_path / "evidence.json"
    out.mkdir()
    pretend(monkeypatch, "confirmed")
    ran = run("certify", "--device", "cpu", *small, "--out", out)
    assert ran.code == 2
    assert ran.err.endswith("evidence.json: is a directory\n")
    assert len((tmp_path / "evidence.json.part").read_text("utf-8").splitlines()) == 1 + 1


def test_two_runs_do_not_write_one_file(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out, part = tmp_path / "evidence.json", tmp_path / "evidence.json.part"
    pretend(monkeypatch, "confirmed", "confirmed", reach=1)
    run("certify", "--device", "cpu", *small, "--out", out)
    kept = part.read_bytes()
    with part.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        for flags in ((), ("--resume",)):
            ran = run("certify", "--device", "cpu", *small, "--out", out, *flags)
            assert ran.code == 2
            assert ran.complaint == f"{part} is being written by another run"
    assert part.read_bytes() == kept


class Allowing:
    """An adapter that allows an error and runs nothing."""

    def tolerance(self, dtype: str) -> float:
        return 1e-3


def test_a_run_that_found_something_is_kept_and_judged_anew(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    out, part = tmp_path / "evidence.json", tmp_path / "evidence.json.part"
    pretend(monkeypatch, "over_claim")
    ran = run("certify", "--device", "cpu", *small, "--out", out)
    assert ran.err.endswith(
        "part keeps the runs: --judge judges them anew once the manifest is corrected\n"
    )
    monkeypatch.setattr(certification, "load_adapter", lambda _: Allowing())
    words = ("certify", *small, "--judge", part, "--out", out)
    ran = run(*words)
    assert ran.code == 1
    assert "small.yaml:29:7: CERT003 math prefill: head_size 7 is claimed" in ran.out
    written = json.loads(out.read_text("utf-8"))
    assert f", judged {written['judged']['date']}" in ran.out
    assert written["manifest"]["file"] == "small.yaml"
    part.write_text(part.read_text("utf-8").replace('"backend":"math"', '"backend":"x"'), "utf-8")
    ran = run(*words)
    assert ran.code == 2
    assert ran.complaint == f"{part} records no run of a case of this manifest"
    ran = run("certify", *small, "--judge", SMALL)
    assert ran.code == 2
    assert "small.yaml holds no run" in ran.complaint
