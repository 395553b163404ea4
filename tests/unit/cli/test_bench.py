"""The command around timing; what is timed is tested beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends import bench, probe, timing
from backends.bench import DeviceLostError
from selector import Selector
from selector.schema import load_schema
from selector.values import Device

from .conftest import Run

pytest.importorskip("torch")

TINY = """
grid: tiny
description: One shape of each phase.
groups:
  - {name: a, phase: prefill, count: 1, heads: [[2, 1]], head_size: [8], query_len: [4, 8]}
  - {name: b, phase: decode, count: 1, heads: [[2, 1]], head_size: [8], context_len: [4, 8]}
"""


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, number in (("LEAST", 2), ("FEWEST", 2), ("MOST", 2)):
        monkeypatch.setattr(timing, name, number)
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY, "utf-8")
    return str(file)


def test_candidates_are_timed_and_written(run: Run, grid: str, tmp_path: Path) -> None:
    from jsonschema import Draft202012Validator

    out = tmp_path / "t.json"
    ran = run("bench", "--device", "cpu", "--grid", grid, "--out", out)
    assert ran.code == 0
    assert ran.err == "timing 2 shapes, 2 backends, on cpu\n"
    rows = [row.split() for row in ran.out.splitlines()]
    assert ["torch_sdpa_flash", "2", "shapes"] in [row[:3] for row in rows]
    assert "flashinfer_fa2" in ran.out
    assert "not run: platform cpu; has cuda" in ran.out
    assert f"timings are in {out}" in ran.out
    written = json.loads(out.read_text("utf-8"))
    assert written["command"] == f"attnsel bench --grid {grid} --seed 0"
    assert [one["shape"]["phase"] for one in written["measured"]] == ["prefill", "decode"]
    Draft202012Validator(load_schema("timings")).validate(written)
    again = run(
        "bench", "--device", "cpu", "--grid", grid, "--out", out, "--resume", "--format", "json"
    )
    assert again.code == 0
    assert again.json["measured"] == written["measured"]


def test_one_phase_and_one_backend(run: Run, grid: str, tmp_path: Path) -> None:
    flags = ("--phase", "decode", "--backend", "torch_sdpa_math")
    out = tmp_path / "t.json"
    ran = run("bench", "--device", "cpu", "--grid", grid, *flags, "--out", out)
    assert ran.code == 0
    written = json.loads(out.read_text("utf-8"))
    assert written["command"].endswith("--phase decode --backend torch_sdpa_math")
    assert [one["shape"]["phase"] for one in written["measured"]] == ["decode"]
    assert [t["candidate"] for t in written["measured"][0]["timings"]] == ["torch_sdpa_math"]


def test_the_command_that_repeats_names_the_manifest(run: Run, grid: str, tmp_path: Path) -> None:
    overlay = tmp_path / "more.yaml"
    overlay.write_text("attnsel: 1\noverlay: more\n", "utf-8")
    flags = ("--manifest", Selector.load().manifest.ref.file, "--overlay", str(overlay))
    out = tmp_path / "t.json"
    words = ("--limit-s", "0", "--format", "json", "--out", out)
    ran = run("bench", "--device", "cpu", "--grid", grid, *flags, *words)
    assert ran.json["command"] == f"attnsel bench --grid {grid} --seed 0 {' '.join(flags)}"


def test_nothing_to_time_is_one_line(run: Run, grid: str, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    ran = run("bench", "--device", "cpu", "--grid", grid, "--paged-only", "--out", out)
    assert ran.code == 2
    assert "no entry of this manifest can be timed here: platform cpu; has cuda" in ran.complaint
    assert not out.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--device", "cuda"), "no CUDA device is seen on this machine; --device cpu runs here"),
        (("--device", "cpu", "--grid", "nope"), "no grid nope: one of"),
        (("--device", "cpu", "--backend", "nope"), "nope"),
    ],
)
def test_wrong_use_is_one_line(
    run: Run, monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], said: str
) -> None:
    monkeypatch.setattr(probe, "probe_device", lambda: Device("cpu"))
    ran = run("bench", *flags)
    assert ran.code == 2
    assert said in ran.complaint


def test_a_lost_device_is_one_line(
    run: Run, grid: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object, **__: object) -> None:
        raise DeviceLostError("the device is lost after fa3")

    monkeypatch.setattr(bench, "measure", lose)
    ran = run("bench", "--device", "cpu", "--grid", grid, "--out", tmp_path / "t.json")
    assert ran.code == 1
    assert ran.err.endswith("attnsel: the device is lost after fa3\n")


def test_a_results_file_of_something_else(run: Run, grid: str, tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    out.write_text("{}", "utf-8")
    ran = run("bench", "--device", "cpu", "--grid", grid, "--out", out, "--resume")
    assert ran.code == 2
    assert "version is none, not 1" in ran.complaint
