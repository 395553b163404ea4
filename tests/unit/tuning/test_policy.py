"""Lists made from timings load in a manifest, and the selector then chooses what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from selector import Selector
from selector.tuning.comparing import (
    Compared,
    NothingToTuneError,
    compare,
    timings_of,
    tuned_from,
)
from selector.tuning.policy import Tuned, overlay_text
from selector.tuning.regret import by_rules, chosen_by
from selector.tuning.results import Results, Runner
from selector.tuning.search import Aims
from selector.values import Phase

both_phases = pytest.mark.parametrize("phase", list(Phase))


def tuned_selector(tmp_path: Path, results: Results, tuned: Tuned) -> Selector:
    file = tmp_path / "tuned.yaml"
    file.write_text(overlay_text(results, [tuned]), "utf-8")
    return Selector.load(overlays=[file])


@both_phases
def test_the_selector_chooses_what_the_rules_say(
    make_results: Callable[..., Results], tmp_path: Path, phase: Phase
) -> None:
    results = make_results()
    timings = timings_of(results, phase, paged_only=True)
    tuned = tuned_from(results, timings, Aims(), Selector.load())
    after = tuned_selector(tmp_path, results, tuned)
    said = by_rules([one.rule for one in tuned.lists])
    asked = chosen_by(after, results)
    every = (*timings.seen, *timings.held_out)
    assert every
    assert [asked(one) for one in every] == [said(one) for one in every]


def regrets(results: Results, phase: Phase, tmp_path: Path) -> dict[str, Compared]:
    before = Selector.load()
    timings = timings_of(results, phase, paged_only=True)
    tuned = tuned_from(results, timings, Aims(), before)
    after = tuned_selector(tmp_path, results, tuned)
    return {one.name: one for one in compare(results, timings, before, after, Aims())}


@both_phases
def test_tuned_beats_every_fixed_choice_and_the_default(
    make_results: Callable[..., Results], tmp_path: Path, phase: Phase
) -> None:
    found = regrets(make_results(), phase, tmp_path)
    tuned = found.pop("tuned")
    assert found.keys() >= {"manifest", "library", "beyond", "always flashinfer_fa2"}
    assert not any("torch" in name for name in found)
    assert tuned.seen.mean is not None
    assert tuned.held_out.mean is not None
    for name, other in found.items():
        if name != "beyond":
            assert other.seen.mean is not None
            assert other.held_out.mean is not None
            assert tuned.seen.mean < other.seen.mean
            assert tuned.held_out.mean < other.held_out.mean


def test_lists_keep_what_the_manifest_had_and_say_what_was_measured(
    make_results: Callable[..., Results],
) -> None:
    results = make_results()
    timings = timings_of(results, Phase.PREFILL, paged_only=True)
    tuned = tuned_from(results, timings, Aims(), Selector.load())
    text = overlay_text(results, [tuned])
    for one in tuned.lists:
        assert "torch_sdpa_math" in one.rest  # the manifest's own last resort
        assert not set(one.rest) & set(one.rule.order)
        assert one.reason.startswith("Measured on H200, 2026-11-01, ")
    assert text.count("source: timings 9.0-2026-11-01-h200") == len(tuned.lists)
    assert 'capability: "9.0", mla: false, sparse: false' in text
    assert max(len(row) for row in text.splitlines()) <= 118


def test_what_copies_the_cache_is_left_out_unless_asked_for(
    make_results: Callable[..., Results],
) -> None:
    results = make_results()
    timings = timings_of(results, Phase.DECODE, paged_only=True)
    assert timings.candidates == ("flashinfer_fa2", "flashinfer_xqa")
    assert "copies K and V" in timings.left_out["torch_sdpa_flash"]
    assert all(one.times.keys() == {*timings.candidates} for one in timings.seen)
    every = timings_of(results, Phase.DECODE, paged_only=False)
    assert "torch_sdpa_flash" in every.candidates
    assert every.left_out == {}


def test_nothing_to_choose_from(make_results: Callable[..., Results]) -> None:
    results = make_results(runners={name: Runner(False) for name in make_results().runners})
    with pytest.raises(NothingToTuneError, match="copies K and V"):
        timings_of(results, Phase.PREFILL, paged_only=True)
    none = msgspec.structs.replace(results, measured=())
    with pytest.raises(NothingToTuneError, match="nothing ran"):
        timings_of(none, Phase.PREFILL, paged_only=False)


def test_other_timings_can_be_the_judge(make_results: Callable[..., Results]) -> None:
    results = make_results()
    alone = timings_of(results, Phase.PREFILL, True)
    assert not any(one.shape.held_out for one in alone.seen)
    assert all(one.shape.held_out for one in alone.held_out)
    others = timings_of(results, Phase.PREFILL, True, others=results)
    assert len(others.seen) == len(others.held_out) == len(alone.seen) + len(alone.held_out)
