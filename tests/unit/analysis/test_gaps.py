"""Gaps, idle entries and overlaps: the same as when every question is asked."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from selector import Selector
from selector.analysis.gaps import Gap, Rivals, find_gaps, rivals_of
from selector.analysis.space import Space
from selector.analysis.survey import Survey
from selector.values import Code, Outcome, Phase, Resolution

from ...conftest import Build
from .drawing import drawn
from .reduced import every_question, reduced

SEEDS = range(10)


def choice(answer: Resolution, phase: Phase) -> tuple[str | None, tuple[str, ...]]:
    one = answer.prefill if phase is Phase.PREFILL else answer.decode
    return one.backend, one.tried or ()


def accepts(answer: Resolution, name: str, phase: Phase) -> bool:
    """Whether nothing refuses an entry by itself."""
    candidate = next(c for c in answer.candidates if c.backend == name)
    verdict = candidate.prefill if phase is Phase.PREFILL else candidate.decode
    if verdict.outcome in (Outcome.SELECTED, Outcome.ELIGIBLE):
        return True
    return bool(verdict.rejections) and {r.code for r in verdict.rejections} == {Code.JOINT}


@pytest.mark.parametrize("seed", SEEDS)
def test_counts_are_those_of_asking_every_question(seed: int) -> None:
    selector = reduced(seed)
    manifest = selector.manifest
    found = find_gaps(manifest)
    survey = Survey(manifest)
    questions, unserved = 0, dict.fromkeys(Phase, 0)
    chosen = {phase: Counter[str]() for phase in Phase}
    slots = [(e, phase) for e in manifest.entries.values() for phase in e.phases]
    before = {(e.name, phase): Counter[str]() for e, phase in slots}
    aside = {(e.name, phase): Counter[str | None]() for e, phase in slots}
    own = {(e.name, phase): 0 for e, phase in slots}
    for times, _, (answer,) in every_question(selector, Space([manifest])):
        questions += times
        for phase in Phase:
            winner, _ = choice(answer, phase)
            if winner is None:
                unserved[phase] += times
            else:
                chosen[phase][winner] += times
        for entry, phase in slots:
            if not accepts(answer, entry.name, phase):
                continue
            winner, order = choice(answer, phase)
            key = (entry.name, phase)
            if winner == entry.name:
                own[key] += times
            elif winner in order and entry.name in order[order.index(winner) :]:
                before[key][str(winner)] += times
            else:
                aside[key][winner] += times
    assert found.totals.questions == questions
    for phase in Phase:
        assert found.totals.unserved.get(phase, 0) == unserved[phase]
        assert found.totals.chosen.get(phase, Counter()) == chosen[phase]
    for entry, phase in slots:
        key = (entry.name, phase)
        expected = Rivals(
            own[key] + before[key].total() + aside[key].total(),
            own[key],
            dict(before[key]),
            dict(aside[key]),
            False,
        )
        assert rivals_of(survey, entry)[phase] == expected
    assert {(i.backend, i.phase) for i in found.idle} == {key for key, n in own.items() if not n}
    overlaps = {(o.winner, o.loser, o.phase): o.questions for o in found.overlaps}
    assert overlaps == {(w, n, p): k for (n, p), wins in before.items() for w, k in wins.items()}


def test_what_was_drawn_has_everything() -> None:
    found = [find_gaps(reduced(seed).manifest) for seed in SEEDS]
    assert any(one.overlaps for one in found)
    assert any(one.idle for one in found)
    assert any(not idle.rivals.accepted for one in found for idle in one.idle)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gap_is_a_kind_without_a_backend(seed: int) -> None:
    selector = reduced(seed)
    served: set[tuple[Phase, bool, str]] = set()
    asked_for: set[tuple[Phase, bool, str]] = set()
    for _, asked, (answer,) in every_question(selector, Space([selector.manifest])):
        if asked.known("mla"):
            continue
        for phase in Phase:
            device = answer.device.capability or answer.device.platform
            key = (phase, bool(asked.known("sparse")), device)
            asked_for.add(key)
            if choice(answer, phase)[0] is not None:
                served.add(key)
    gaps = {
        (phase, gap.sparse, device)
        for gap in find_gaps(selector.manifest).gaps
        for phase in gap.phases
        for device in gap.devices
        if not gap.mla
    }
    assert gaps & asked_for == asked_for - served


def test_a_large_manifest_is_looked_at_in_time() -> None:
    manifest = Selector.loads(drawn(1, entries=60, constraints=40)).manifest
    start = time.process_time()
    found = find_gaps(manifest)
    assert time.process_time() - start < 10
    assert found.totals.exact
    assert len(found.overlaps) > 100


def test_beyond_the_budget_it_says_so() -> None:
    manifest = reduced(3).manifest
    found = find_gaps(manifest, budget=0)
    assert found.totals.kinds_drawn > 0
    assert found.totals.questions == 0
    assert not found.totals.exact
    assert all(gap.drawn for gap in found.gaps)
    assert all(idle.rivals.drawn or not idle.rivals.accepted for idle in found.idle)
    assert all(overlap.drawn for overlap in found.overlaps)


# -- vLLM -----------------------------------------------------------------------------------------


def gap_of(gaps: tuple[Gap, ...], mla: bool, sparse: bool) -> Gap:
    """The gap of decoders."""
    return next(
        g
        for g in gaps
        if (g.mla, g.sparse) == (mla, sparse) and (not g.attn_types or "decoder" in g.attn_types)
    )


def test_no_sparse_mla_below_9_nor_on_11() -> None:
    found = find_gaps(Selector.load("vllm-0.33.0").manifest)
    gap = gap_of(found.gaps, mla=True, sparse=True)
    on_cuda = [device for device in gap.devices if "." in device]
    assert on_cuda == ["7.0", "7.5", "8.0", "8.6", "8.7", "8.9", "11.0"]
    assert gap.phases == (Phase.PREFILL, Phase.DECODE)
    assert not [d for d in gap_of(found.gaps, mla=False, sparse=False).devices if "." in d]
    idle = {i.backend: i for i in found.idle}
    (name,) = idle["TOKENSPEED_MLA_MLA_PREFILL"].rivals.before
    assert name == "FLASH_ATTN_MLA_PREFILL"
    assert not idle["HPC_ATTN"].named
    winners = {(o.winner, o.loser) for o in found.overlaps}
    assert ("FLASHINFER_MLA", "TOKENSPEED_MLA") in winners


def test_rules_that_exclude_each_other(build: Build) -> None:
    never = [{"when": {"dtype": "float16"}, "code": "NO", "reason": "No."}]
    one = build.entry("one", accepts={"dtype": ["float16"]}, constraints=never)
    found = find_gaps(build.selector(one, build.entry("two")).manifest)
    assert {i.backend for i in found.idle} == {"one"}
    assert all(i.named and not i.rivals.accepted for i in found.idle)
    assert found.overlaps == ()
