"""Results files: read as written, and refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from selector import Selector
from selector.tuning.results import MlaSizes, Results, Shape, UnreadableResultsError, read_results
from selector.values import Device, Phase

DEEPSEEK = Shape(
    phase=Phase.PREFILL,
    requests=((3, 16, 16), (1, 5, 900)),
    num_heads=16,
    num_kv_heads=1,
    head_size=576,
    page_size=64,
    dtype="bfloat16",
    mla=MlaSizes(512, 128, 64, 128),
)


def test_a_file_is_read_as_written(make_results: Callable[..., Results], tmp_path: Path) -> None:
    results = make_results()
    file = tmp_path / "timings.json"
    file.write_bytes(msgspec.json.encode(results))
    assert read_results(file) == results


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "no timings: Expected `object`"),
        ("{}", "version is none, not 1; `attnsel bench` writes such a file"),
        ('{"version": 2}', "version is 2, not 1"),
        ('{"version": 1}', "missing required field"),
        ("\xff", "no timings"),
        ('{"version": 1, "x": ' + "[" * 100_000, "recursion"),
    ],
)
def test_what_is_no_results_file(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "timings.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UnreadableResultsError) as caught:
        read_results(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)


def _same_candidate_twice(raw: Any) -> None:
    raw["measured"][0]["timings"] *= 2


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda raw: raw["measured"][0]["timings"][0].update(median_us=0.0), "> 0.0"),
        (lambda raw: raw["measured"][0]["timings"][0].update(median_us=-3), "> 0.0"),
        (lambda raw: raw["measured"][0]["timings"][0].update(candidate="x"), "`runners` lacks 'x'"),
        (lambda raw: raw["measured"][0]["shape"].update(requests=[]), "length >= 1"),
        (lambda raw: raw["measured"][0]["shape"].update(requests=[[1, -5, 3]]), ">= 1"),
        (lambda raw: raw["measured"][0]["shape"].update(head_size=-4), ">= 1"),
        (lambda raw: raw.update(date="\x1b[31mtoday"), "regex"),
        (_same_candidate_twice, "a candidate twice for prefill"),
    ],
)
def test_what_no_run_can_have_measured(
    make_results: Callable[..., Results],
    tmp_path: Path,
    spoil: Callable[[Any], None],
    said: str,
) -> None:
    raw = json.loads(msgspec.json.encode(make_results()))
    spoil(raw)
    file = tmp_path / "timings.json"
    file.write_text(json.dumps(raw), "utf-8")
    with pytest.raises(UnreadableResultsError) as caught:
        read_results(file)
    assert said in str(caught.value)


def test_a_shape_asks_for_its_longest_request() -> None:
    assert DEEPSEEK.query_lens == (16, 16, 16, 5)
    assert DEEPSEEK.seq_lens == (16, 16, 16, 900)
    assert (DEEPSEEK.request.query_len, DEEPSEEK.request.seq_len) == (16, 900)
    assert DEEPSEEK.num_reqs == DEEPSEEK.layer.fields["num_reqs"] == 4
    assert str(DEEPSEEK) == (
        "prefill 4 × up to 16 new of 900, 16/1 heads of 576, pages of 64, bfloat16"
    )


def test_a_latent_layer_is_one_to_the_selector() -> None:
    bound = Selector.load().bind(Device("cuda", "9.0"), DEEPSEEK.layer)
    answer = bound.resolve_one(DEEPSEEK.request)
    assert answer.prefill.backend == "flashinfer_mla_fa3"
