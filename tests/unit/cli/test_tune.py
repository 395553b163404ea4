"""The command around tuning; what is found is tested beside it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from jsonschema import Draft202012Validator

from backends.shapes import read_grid
from selector import Selector
from selector.schema import load_schema
from selector.tuning.results import VERSION, Measured, Results, Runner, Timing
from selector.values import Device, Phase

from .conftest import Run


def timings(**changes: Any) -> Results:
    """FA2 twice as fast for short queries, FA3 for long ones; a copying kernel faster still."""
    measured = []
    for shape in read_grid("h200").shapes()[::4]:
        if shape.phase is Phase.PREFILL:
            short = (shape.request.query_len or 0) <= 256
            times = {"flashinfer_fa2": 10.0, "flashinfer_fa3": 20.0 if short else 5.0}
            times["torch_sdpa_flash"] = 1.0
            rows = tuple(Timing(candidate=n, median_us=us) for n, us in times.items())
            measured.append(Measured(shape, rows))
    results = Results(
        version=VERSION,
        date="2026-11-01T00:00:00+00:00",
        device=Device("cuda", "9.0", "H200"),
        facts={"flashinfer-python": "0.7.4", "cuda": "13.0", "torch": "2.11.0"},
        manifest=Selector.load().manifest.ref,
        grid="h200",
        seed=0,
        command="attnsel bench --grid h200",
        method="made up",
        runners={
            n: Runner("torch" not in n)
            for n in ("flashinfer_fa2", "flashinfer_fa3", "torch_sdpa_flash")
        },
        not_run={},
        defaults={Phase.PREFILL: ("flashinfer_fa3",)},
        measured=tuple(measured),
    )
    return msgspec.structs.replace(results, **changes)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "timings.json"
    file.write_bytes(msgspec.json.encode(timings()))
    return file


def test_regret_and_lists(run: Run, file: Path) -> None:
    ran = run("tune", file)
    assert ran.code == 0
    rows = [row.split() for row in ran.out.splitlines()]
    assert ["tuned", "1.000", "1.00", "1.000", "1.00"] in rows
    assert "not counted: torch_sdpa_flash copies K and V out of their pages" in ran.out
    assert "query_len: {m" in ran.out
    assert "the library's own default" in ran.out


def test_yaml_is_ready_to_paste(run: Run, file: Path) -> None:
    ran = run("tune", file, "--format", "yaml")
    assert ran.code == 0
    first, last = yaml.safe_load(f"priorities:\n{ran.out}")["priorities"]
    bound = first["when"].pop("query_len")
    assert first["when"] == last["when"] == {"capability": "9.0", "mla": False, "sparse": False}
    short, long = (first, last) if "max" in bound else (last, first)
    assert short["prefill"][:2] == ["flashinfer_fa2", "flashinfer_fa3"]
    assert long["prefill"][:2] == ["flashinfer_fa3", "flashinfer_fa2"]
    assert 256 in bound.values()
    assert " 1.00×, FA" in first["reason"]
    assert re.search(
        r"2\.00× the fastest's time on \d+ shapes \(H200, 2026-11-01\)", first["reason"]
    )
    assert first["source"] == "evidence/timings/timings.json"


def test_json_is_by_the_schema(run: Run, file: Path) -> None:
    ran = run("tune", file, "--format", "json", "--rules", "1")
    assert ran.code == 0
    Draft202012Validator(load_schema("tuning")).validate(ran.json)
    (phase,) = ran.json["phases"]
    assert len(phase["lists"]) == 1
    assert phase["regret"][0]["seen"]["mean"] > 1.1
    assert ran.json["timings"] == ["timings"]


def test_several_files_are_one(run: Run, file: Path, tmp_path: Path) -> None:
    more = tmp_path / "more.json"
    more.write_bytes(msgspec.json.encode(timings(date="2026-11-02T00:00:00+00:00", left=7)))
    ran = run("tune", file, more)
    assert ran.code == 0
    count = len(timings().measured)
    assert f"{count} shapes measured again: the newer times count." in ran.out
    assert "7 shapes of the grid not reached." in ran.out
    assert "2026-11-01 to 2026-11-02 · timings, more" in ran.out
    assert "source: evidence/timings/timings.json, evidence/timings/more.json" in ran.out
    older = timings(facts={**timings().facts, "cuda": "12.8"})
    more.write_bytes(msgspec.json.encode(older))
    ran = run("tune", file, more)
    assert ran.code == 2
    assert "more has cuda 12.8 and timings has cuda 13.0: tune on" in ran.complaint


def test_without_numpy_it_says_what_to_install(
    run: Run, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    ran = run("tune", file)
    assert ran.code == 2
    assert "pip install 'attnsel[tune]'" in ran.complaint


def test_any_candidate_on_request(run: Run, file: Path) -> None:
    ran = run("tune", file, "--any-kv", "--format", "yaml")
    assert yaml.safe_load(ran.out)[0]["prefill"][0] == "torch_sdpa_flash"


def test_another_run_is_the_judge(run: Run, file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.json"
    slow = [
        Measured(m.shape, tuple(msgspec.structs.replace(t, median_us=7.0) for t in m.timings))
        for m in timings().measured
    ]
    other.write_bytes(msgspec.json.encode(timings(measured=tuple(slow))))
    ran = run("tune", file, "--holdout", other, "--format", "json")
    (phase,) = ran.json["phases"]
    assert phase["seen"] == phase["held_out"] == len(slow)
    assert {one["held_out"]["mean"] for one in phase["regret"]} == {1.0}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--phase", "decode"), "no decode candidate to choose: nothing ran"),
        (("--rules", "13"), "less than or equal to 12"),
        (("--holdout", "nowhere.json"), "nowhere.json: no such file"),
    ],
)
def test_wrong_use_is_one_line(run: Run, file: Path, flags: tuple[str, ...], said: str) -> None:
    ran = run("tune", file, *flags)
    assert ran.code == 2
    assert said in ran.complaint


def test_timings_that_leave_nothing_to_write(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "timings.json"
    file.write_bytes(msgspec.json.encode(timings(measured=())))
    ran = run("tune", file)
    assert ran.code == 2
    assert ran.complaint == "timings: no shape was timed"
    renamed = msgspec.json.encode(timings()).replace(b"flashinfer_fa3", b"nobody")
    file.write_bytes(renamed)
    ran = run("tune", file)
    assert ran.code == 2
    assert ran.complaint.startswith('no backend is called "nobody"')
