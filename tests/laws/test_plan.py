"""A plan gives the definition's answers, whatever the manifest says and whatever is unknown."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given

from selector import Layer, Selector
from selector.errors import ContradictionError
from selector.loading import loads
from selector.manifest import Manifest
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
    plan: Plan, manifest: Manifest, asked: Asked, unknown: frozenset[str], sets: Fields
) -> None:
    """One question, asked of the plan twice, and of the definition."""
    device, layer, facts = question(manifest, asked, unknown, sets)
    wanted = request(asked, unknown)
    try:
        bound = Selector(manifest).bind(device, layer, facts)
    except ContradictionError as refused:
        with pytest.raises(ContradictionError, match=re.escape(str(refused))):
            plan.resolve(device, layer, facts, wanted)
        return
    answer = Pick.of(bound.resolve_one(wanted))
    for _ in range(2):
        assert plan.resolve(device, layer, facts, wanted) == answer


@given(wide_cases())
@hard
def test_a_plan_gives_the_definitions_answers(case: Case) -> None:
    manifest = loads(json.dumps(case.tree))
    plan = Plan(manifest)
    check(plan, manifest, case.asked, frozenset(), {})
    check(plan, manifest, case.asked, case.unknown, case.sets)
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
    for query_len in range(1, 400):
        cells.resolve(query_len, query_len + 77)
    assert len(asked) - before <= 4
