"""Recorded runs: nothing that counts is written twice or lost, and nothing else is believed."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from backends.cases import Case
from backends.contract import Batch
from backends.judging import CaseResult, Judgement
from backends.part import Head, Part, PartError, read_part
from selector.values import Device, Phase, Position

HEAD = Head("0" * 64, Device("cpu"), {"torch": "2.11.0"}, 0, "2026-11-30")
BATCH = Batch(
    query_lens=(1,),
    seq_lens=(7,),
    num_heads=8,
    num_kv_heads=2,
    head_size=64,
    v_head_size=64,
    page_size=16,
    dtype="float32",
)
AT = Position("m.yaml", 1, 1)


def result(value: int) -> CaseResult:
    case = Case("math", Phase.PREFILL, "head_size", str(value), AT, True, BATCH)
    return CaseResult(case, Judgement.CONFIRMED, 0.0, 1e-3)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two results of a run that was cut short."""
    file = tmp_path / "e.json.part"
    with Part(file, HEAD) as part:
        for value in (7, 8):
            part.add(result(value))
    return file


@pytest.mark.parametrize("cut", [b"", b'{"case": {"back', msgspec.json.encode(result(9))])
def test_results_never_leave_the_disk(file: Path, cut: bytes) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole + cut)
    with Part(file, HEAD, resume=True) as part:
        assert file.read_bytes() == whole  # although nothing was written yet
        assert part.results == (result(7), result(8))
        part.add(result(9))
    assert read_part(file)[1] == (result(7), result(8), result(9))


def test_beginning_anew_begins_anew(file: Path) -> None:
    with Part(file, HEAD):
        pass
    assert read_part(file) == (HEAD, ())


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'{"digest":"x","y":' + b"[" * 100_000 + b"\n",
        msgspec.json.encode(HEAD),
        msgspec.json.encode(HEAD).replace(b"2026-11-30", b"x/../../y") + b"\n",
    ],
)
def test_what_is_no_run(file: Path, text: bytes) -> None:
    file.write_bytes(text)
    with pytest.raises(PartError, match=r"e\.json\.part holds no run: "):
        read_part(file)


def test_an_endless_line_ends_the_results(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b'{"x":' + b"[" * 100_000 + b"\n")
    assert len(read_part(file)[1]) == 2
