"""A plan gives the definition's answers, whatever the manifest says and whatever is unknown."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given

from selector import Device, Facts, Layer, Selector
from selector.errors import ContradictionError, ValueRefusedError
from selector.loading import loads
from selector.manifest import Manifest
from selector.plan import plan as plans
from selector.plan.cells import Cells
from selector.plan.plan import Plan
from selector.plan.tail import Pick
from selector.values import Request

from .drawing import (
    LENGTHS,
    Asked,
    Case,
    Fields,
    bound_or_assume,
    hard,
    question,
    request,
    wide_cases,
)


def check(
    plan: Plan,
    manifest: Manifest,
    asked: Asked,
    unknown: frozenset[str],
    sets: Fields,
    closed: bool = False,
) -> None:
    """One question, asked of the plan twice, and of the definition."""
    device, layer, facts = question(manifest, asked, unknown, sets)
    wanted = request(asked, unknown)
    try:
        bound = Selector(manifest).bind(device, layer, facts, closed_world=closed)
    except ContradictionError as refused:
        with pytest.raises(ContradictionError, match=re.escape(str(refused))):
            plan.resolve(device, layer, facts, wanted, closed_world=closed)
        return
    answer = Pick.of(bound.resolve_one(wanted))
    for _ in range(2):
        assert plan.resolve(device, layer, facts, wanted, closed_world=closed) == answer


@given(wide_cases())
@hard
def test_a_plan_gives_the_definitions_answers(case: Case) -> None:
    manifest = loads(json.dumps(case.tree))
    plan = Plan(manifest)
    check(plan, manifest, case.asked, frozenset(), {})
    check(plan, manifest, case.asked, case.unknown, case.sets)
    check(plan, manifest, case.asked, case.unknown, case.sets, closed=True)
    check(plan, manifest, case.asked, frozenset(), {})


@given(wide_cases())
@hard
def test_cells_give_the_definitions_answers(case: Case) -> None:
    asked = case.asked
    bound = bound_or_assume(loads(json.dumps(case.tree)), asked, case.unknown, case.sets)
    cells = Cells(bound)
    for query_len, seq_len in (*LENGTHS, *case.batch, *LENGTHS):
        one = Request(query_len, seq_len, asked.speculative_tokens)
        wanted = Pick.of(bound.resolve_one(one))
        assert cells.resolve(query_len, seq_len, asked.speculative_tokens) == wanted


@given(wide_cases())
@hard
def test_what_is_answered_does_not_depend_on_what_was_asked_before(case: Case) -> None:
    manifest = loads(json.dumps(case.tree))
    device, layer, facts = question(manifest, case.asked)
    bound_or_assume(manifest, case.asked)
    plan = Plan(manifest)
    first = [plan.resolve(device, layer, facts, Request(*lengths)) for lengths in LENGTHS]
    fresh = [Plan(manifest).resolve(device, layer, facts, Request(*le)) for le in LENGTHS[::-1]]
    assert first == fresh[::-1]


def test_a_cell_is_asked_for_once() -> None:
    bound = Selector.load().bind(
        "9.0", Layer.of(head_size=128, dtype="bfloat16", num_heads=32, num_kv_heads=8)
    )
    asked: list[Request] = []
    resolve_one = bound.resolve_one

    def counted(one: Request) -> object:
        asked.append(one)
        return resolve_one(one)

    bound.resolve_one = counted  # type: ignore[method-assign, assignment]
    cells = Cells(bound)
    before = len(asked)
    lengths = range(1, 400)
    for query_len in (*lengths, *lengths):
        cells.resolve(query_len, query_len + 77)
    first = [one.query_len for one in asked[before:]]
    assert len(first) <= 16  # the bounds on query_len in the manifest's lists, not the lengths
    assert first == sorted(set(first))  # the second round asks nothing


def test_in_a_closed_world_what_is_not_said_to_be_installed_is_not() -> None:
    layer = Layer.of(
        head_size=128, dtype="bfloat16", num_heads=64, num_kv_heads=8, kv_cache_dtype="auto"
    )
    selector = Selector.load()
    plan, device = Plan(selector.manifest), Device("cuda", "8.0")
    for facts in (Facts(), Facts({"torch": "2.9"}), Facts({"flashinfer-python": "0.7"})):
        bound = selector.bind(device, layer, facts, closed_world=True)
        wanted = Pick.of(bound.resolve(7, 70))
        assert plan.resolve(device, layer, facts, Request(7, 70), closed_world=True) == wanted


def test_facts_that_are_refused_are_refused_whatever_was_asked_before() -> None:
    layer, device = Layer.of(head_size=128), Device("cuda", "9.0")
    plan = Plan.load("vllm-0.33.0")
    for one in (Request(7, 70), Request()):
        plan.resolve(device, layer, Facts({"has_flashinfer": True}), one)
        with pytest.raises(ValueRefusedError, match="is not true, false or None"):
            plan.resolve(device, layer, Facts({"has_flashinfer": 1}), one)  # type: ignore[dict-item]


def test_what_a_plan_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "_MOST_SHAPES", 4)
    monkeypatch.setattr(plans, "_MOST_KINDS", 4)
    layer = Layer.of(head_size=128, dtype="bfloat16", num_heads=64, num_kv_heads=8)
    plan = Plan(Selector.load().manifest)
    first = [plan.resolve(Device("cuda", f"9.{n}"), layer, Facts(), Request(1, 1)) for n in (0, 1)]
    for number in range(12):
        device = Device("cuda", f"9.{number}", f"product {number}")
        plan.resolve(device, layer, Facts(), Request(1, 1))
        assert len(plan._equal_shapes) <= 4
        assert len(plan._shapes) <= 4
        assert len(plan._kinds) <= 4
    again = [plan.resolve(Device("cuda", f"9.{n}"), layer, Facts(), Request(1, 1)) for n in (0, 1)]
    assert again == first
