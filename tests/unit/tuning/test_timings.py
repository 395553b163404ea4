"""Files of timings that go together, and those that do not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from selector.tuning.results import Measured, Results, Timing
from selector.tuning.timings import MixedTimingsError, read_timings
from selector.values import Device

FACTS = {"flashinfer-python": "0.7.4", "cuda": "13.0", "torch": "2.11.0"}


def write(folder: Path, name: str, results: Results) -> Path:
    file = folder / f"{name}.json"
    file.write_bytes(msgspec.json.encode(results))
    return file


def test_of_a_shape_in_two_files_the_newer_counts(
    make_results: Callable[..., Results], tmp_path: Path
) -> None:
    whole = make_results()
    first, second, third, *_ = whole.measured
    held_out = msgspec.structs.replace(second.shape, held_out=not second.shape.held_out)
    again = Measured(held_out, (Timing(candidate="flashinfer_fa2", median_us=1.0),))
    old = make_results(measured=(first, second), date="2026-10-31T23:00:00+00:00", left=3)
    new = make_results(measured=(again, third))
    files = [write(tmp_path, "new", new), write(tmp_path, "old", old)]
    timings = read_timings(files)
    assert timings == read_timings(files[::-1])
    assert {*timings.measured} == {first, again, third}
    assert (timings.again, timings.left) == (1, 3)
    assert (timings.names, timings.days) == ("old, new", "2026-10-31 to 2026-11-01")
    assert timings.sources == "evidence/timings/old.json, evidence/timings/new.json"
    assert timings.newest == new


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"device": Device("cuda", "9.0", "H100")},
            "a has device H200 (9.0) and b has device H100 (9.0): "
            "tune on the timings of each alone",
        ),
        (
            {"facts": {**FACTS, "flashinfer-python": "0.8.0"}},
            "a has flashinfer-python 0.7.4 and b has flashinfer-python 0.8.0: "
            "tune on the timings of each alone",
        ),
        ({"facts": {**FACTS, "torch": None}}, "b has torch unknown"),
    ],
)
def test_a_mixture_is_refused(
    make_results: Callable[..., Results], tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    files = [
        write(tmp_path, "a", make_results(measured=())),
        write(tmp_path, "b", make_results(measured=(), **changes)),
    ]
    with pytest.raises(MixedTimingsError) as caught:
        read_timings(files)
    assert said in str(caught.value)


def test_another_driver_is_no_mixture(make_results: Callable[..., Results], tmp_path: Path) -> None:
    facts = [{**FACTS, "driver": driver} for driver in ("580.1", "580.2")]
    files = [
        write(tmp_path, name, make_results(measured=(), facts=each))
        for name, each in zip("ab", facts, strict=True)
    ]
    assert [*read_timings(files).files] == ["a", "b"]


def test_two_files_of_one_name_are_refused(
    make_results: Callable[..., Results], tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    files = [
        write(folder, "a", make_results(measured=())) for folder in (tmp_path, tmp_path / "other")
    ]
    with pytest.raises(MixedTimingsError, match="two files are called a"):
        read_timings(files)
