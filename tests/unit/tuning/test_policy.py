"""Lists made from timings load in a manifest, and the selector then chooses what they say."""

from __future__ import annotations

import re
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
from selector.tuning.policy import Tuned, overlay_text, tune
from selector.tuning.regret import by_rules, chosen_by, within
from selector.tuning.results import Results, Runner, Shape
from selector.tuning.search import Aims
from selector.tuning.timings import MixedTimingsError, Timings
from selector.values import Device, Phase

both_phases = pytest.mark.parametrize("phase", list(Phase))


def tuned_selector(tmp_path: Path, timings: Timings, tuned: Tuned) -> Selector:
    file = tmp_path / "tuned.yaml"
    file.write_text(overlay_text(timings, [tuned]), "utf-8")
    return Selector.load(overlays=[file])


@both_phases
def test_the_selector_chooses_what_the_rules_say(
    make_timings: Callable[..., Timings], tmp_path: Path, phase: Phase
) -> None:
    timings = make_timings()
    mine = timings_of(timings, phase, paged_only=True)
    tuned = tuned_from(timings, mine, Aims(), Selector.load())
    after = tuned_selector(tmp_path, timings, tuned)
    said = by_rules([one.rule for one in tuned.lists])
    asked = chosen_by(after, timings)
    every = (*mine.seen, *mine.held_out)
    assert every
    assert [asked(one) for one in every] == [said(one) for one in every]


def test_the_selector_is_told_how_many_run_together(
    make_timings: Callable[..., Timings], tmp_path: Path
) -> None:
    def law(shape: Shape) -> dict[str, float]:
        many = shape.num_reqs * shape.num_heads >= 512
        best = "flashinfer_xqa" if many else "flashinfer_fa2"
        return {n: 10.0 if n == best else 20.0 for n in ("flashinfer_fa2", "flashinfer_xqa")}

    timings = make_timings(law)
    mine = timings_of(timings, Phase.DECODE, paged_only=True)
    tuned = tuned_from(timings, mine, Aims(), Selector.load())
    assert "batch_num_heads" in {test.field for one in tuned.lists for test in one.rule.when}
    found = compare(
        timings, mine, Selector.load(), tuned_selector(tmp_path, timings, tuned), Aims()
    )
    told, untold = found[0].held_out.mean, found[1].held_out.mean
    assert [one.name for one in found[:2]] == ["tuned", "tuned, not told"]
    assert told is not None
    assert untold is not None
    assert told < 1.1
    assert told < untold


def regrets(timings: Timings, phase: Phase, tmp_path: Path) -> dict[str, Compared]:
    before = Selector.load()
    mine = timings_of(timings, phase, paged_only=True)
    tuned = tuned_from(timings, mine, Aims(), before)
    after = tuned_selector(tmp_path, timings, tuned)
    return {one.name: one for one in compare(timings, mine, before, after, Aims())}


@both_phases
def test_tuned_beats_every_fixed_choice_and_the_default(
    make_timings: Callable[..., Timings], tmp_path: Path, phase: Phase
) -> None:
    found = regrets(make_timings(), phase, tmp_path)
    tuned, untold = found.pop("tuned"), found.pop("tuned, not told")
    assert untold == msgspec.structs.replace(tuned, name=untold.name)  # no law reads the number
    assert found.keys() >= {"manifest", "library", "one list", "always flashinfer_fa2"}
    assert not any("torch" in name for name in found)
    assert tuned.seen.mean is not None
    assert tuned.held_out.mean is not None
    for other in found.values():
        assert other.seen.mean is not None
        assert other.held_out.mean is not None
        assert tuned.seen.mean < other.seen.mean
        assert tuned.held_out.mean < other.held_out.mean


def test_lists_keep_what_the_manifest_had_and_say_what_was_measured(
    make_timings: Callable[..., Timings],
) -> None:
    timings = make_timings()
    mine = timings_of(timings, Phase.PREFILL, paged_only=True)
    tuned = tuned_from(timings, mine, Aims(), Selector.load())
    text = overlay_text(timings, [tuned])
    for one in tuned.lists:
        assert "torch_sdpa_math" in one.rest  # the manifest's own last resort
        assert not set(one.rest) & set(one.rule.order)
        said = r"FA[23] 1\.0\d×, FA[23] \d\.\d\d× the fastest's time on \d+ shapes "
        assert re.fullmatch(said + r"\(H200, 2026-11-01\)\.", one.reason)
    assert text.count("source: evidence/timings/timings-h200.json") == len(tuned.lists)
    assert 'capability: "9.0", mla: false, sparse: false' in text
    assert max(len(row) for row in text.splitlines()) <= 118


def test_a_reason_says_who_ran_what(make_timings: Callable[..., Timings]) -> None:
    def law(shape: Shape) -> dict[str, float]:
        narrow = {"flashinfer_cuda_cores": 5.0} if shape.num_kv_heads == shape.num_heads else {}
        return {"flashinfer_fa2": 10.0, **narrow}

    timings = make_timings(law)
    mine = timings_of(timings, Phase.DECODE, paged_only=True)
    (only,) = tuned_from(timings, mine, Aims(), Selector.load()).lists
    ran = sum("flashinfer_cuda_cores" in one.times for one in mine.seen)
    assert only.reason == (
        f"CUDA cores 1.00× on the {ran} it ran, FA2 {2 ** (ran / len(mine.seen)):.2f}× the "
        f"fastest's time on {len(mine.seen)} shapes (H200, 2026-11-01)."
    )
    alone = tune(timings, Phase.DECODE, within(mine.seen, ["flashinfer_fa2"]), Aims()).lists[-1]
    assert alone.reason.startswith("flashinfer FA2 alone ran the ")


def test_what_copies_the_cache_is_left_out_unless_asked_for(
    make_timings: Callable[..., Timings],
) -> None:
    timings = make_timings()
    mine = timings_of(timings, Phase.DECODE, paged_only=True)
    assert mine.candidates == ("flashinfer_fa2", "flashinfer_xqa")
    assert "copies K and V" in mine.left_out["torch_sdpa_flash"]
    assert all(one.times.keys() == {*mine.candidates} for one in mine.seen)
    every = timings_of(timings, Phase.DECODE, paged_only=False)
    assert "torch_sdpa_flash" in every.candidates
    assert every.left_out == {}


def test_shapes_that_nothing_ran_are_counted(make_timings: Callable[..., Timings]) -> None:
    def law(shape: Shape) -> dict[str, float | None]:
        return {"flashinfer_fa2": None if shape.head_size == 256 else 10.0}

    timings = make_timings(law)
    mine = timings_of(timings, Phase.DECODE, paged_only=True)
    decodes = [one for one in timings.measured if one.shape.phase is Phase.DECODE]
    assert mine.unrun == sum(one.shape.head_size == 256 for one in decodes) > 0
    assert mine.unrun + len(mine.seen) + len(mine.held_out) == len(decodes)


def test_nothing_to_choose_from(make_timings: Callable[..., Timings]) -> None:
    runners = make_timings().runners
    copying = make_timings(runners={name: Runner(False) for name in runners})
    with pytest.raises(NothingToTuneError, match="copies K and V"):
        timings_of(copying, Phase.PREFILL, paged_only=True)
    with pytest.raises(NothingToTuneError, match="nothing ran"):
        timings_of(make_timings(measured=()), Phase.PREFILL, paged_only=False)


def test_other_timings_can_be_the_judge(make_timings: Callable[..., Timings]) -> None:
    timings = make_timings()
    alone = timings_of(timings, Phase.PREFILL, True)
    assert not any(one.shape.held_out for one in alone.seen)
    assert all(one.shape.held_out for one in alone.held_out)
    others = timings_of(timings, Phase.PREFILL, True, others=timings)
    assert len(others.seen) == len(others.held_out) == len(alone.seen) + len(alone.held_out)
    elsewhere = make_timings(device=Device("cuda", "9.0", "H100"))
    with pytest.raises(MixedTimingsError, match="H100"):
        timings_of(timings, Phase.PREFILL, True, others=elsewhere)


def test_files_need_the_same_candidates(make_results: Callable[..., Results]) -> None:
    """What copies the cache may be in one of them only, where it is left out anyhow."""
    without = make_results(lambda shape: {"flashinfer_fa2": 10.0, "flashinfer_fa3": 10.0})
    both = Timings({"a": without, "b": make_results()})
    assert timings_of(both, Phase.PREFILL, True).candidates == ("flashinfer_fa2", "flashinfer_fa3")
    with pytest.raises(MixedTimingsError) as caught:
        timings_of(both, Phase.PREFILL, False)
    assert str(caught.value) == (
        "prefill candidates differ: a has flashinfer_fa2, flashinfer_fa3; "
        "b has flashinfer_fa2, flashinfer_fa3, torch_sdpa_flash: a list needs the times of all"
    )
