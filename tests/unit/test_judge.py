"""Judging: what is asked is judged; what nothing but facts refuses is only not installed."""

from __future__ import annotations

from typing import Any

import pytest

from selector import Facts, Layer, Outcome, Resolution
from selector.values import Verdict

Build = Any  # the fixture of tests/conftest.py
Tree = dict[str, Any]
FACTS = {
    "probe": {"type": "boolean", "description": "A switch."},
    "other": {"type": "boolean", "description": "Another."},
    "mylib": {"type": "version", "description": "A library."},
}
OFF = Facts({"probe": False, "other": False, "mylib": None})


def judged(
    build: Build, entry: Tree, layer: Layer | None = None, facts: Facts | None = None
) -> Verdict:
    """What an entry says of decode, by itself."""
    selector = build.selector(entry, facts=FACTS)
    answer = selector.bind("9.0", layer or build.layer(), facts).resolve(9, 9)
    assert isinstance(answer, Resolution)
    return answer.candidates[0].decode


# -- what is asked -------------------------------------------------------------------------------

STORES: Tree = {"kv_cache_dtype": [{"value": "fp8_e4m3", "reason": "What it stores."}]}


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        ({"accepts": {"kv_cache_dtype": ["auto"]}}, Outcome.SELECTED),
        ({"accepts": {"kv_cache_dtype": ["fp8_e4m3"]}}, Outcome.UNSUPPORTED),
        (
            {
                "constraints": [
                    {"when": {"kv_cache_dtype": "fp8_e4m3"}, "code": "C", "reason": "R."}
                ]
            },
            Outcome.SELECTED,
        ),
        (
            {"constraints": [{"when": {"kv_cache_dtype": "auto"}, "code": "C", "reason": "R."}]},
            Outcome.UNSUPPORTED,
        ),
    ],
    ids=str,
)
def test_what_a_backend_makes_of_a_value_is_not_what_it_is_asked(
    build: Build, keys: Tree, outcome: Outcome
) -> None:
    assert judged(build, build.entry(coerce=STORES, **keys)).outcome is outcome


def test_what_is_refused_is_shown_as_it_was_asked(build: Build) -> None:
    entry = build.entry(coerce=STORES, accepts={"kv_cache_dtype": ["fp8_e5m2"]})
    (rejection,) = judged(build, entry).rejections
    assert (rejection.observed, rejection.allowed) == ("auto", "fp8_e5m2")


# -- not there, or not possible ------------------------------------------------------------------

NEEDS_PROBE: Tree = {"require": {"probe": True}, "code": "SWITCH", "reason": "It needs it."}
SMALL: Tree = {"require": {"head_size": 64}, "code": "SMALL", "reason": "Sixty-four only."}
NEVER: Tree = {"when": {"head_size": 128}, "code": "NEVER", "reason": "It hangs."}
DISABLED: Tree = {"prefill": {}, "decode": {"disabled": True, "rationale": "It crashes."}}


@pytest.mark.parametrize(
    ("keys", "outcome", "codes"),
    [
        ({"requires": {"mylib": ">=1"}}, Outcome.UNAVAILABLE, ["NOT_INSTALLED"]),
        ({"accepts": {"probe": True}}, Outcome.UNAVAILABLE, ["PROBE"]),
        ({"constraints": [NEEDS_PROBE]}, Outcome.UNAVAILABLE, ["SWITCH"]),
        (
            {"accepts": {"probe": True}, "requires": {"mylib": ">=1"}},
            Outcome.UNAVAILABLE,
            ["PROBE", "NOT_INSTALLED"],
        ),
        (
            {"constraints": [NEEDS_PROBE, SMALL], "requires": {"mylib": ">=1"}},
            Outcome.UNSUPPORTED,
            ["SWITCH", "SMALL", "NOT_INSTALLED"],
        ),
        ({"constraints": [NEEDS_PROBE, NEVER]}, Outcome.UNSUPPORTED, ["SWITCH", "NEVER"]),
        (
            {"accepts": {"probe": True, "head_size": 64}},
            Outcome.UNSUPPORTED,
            ["HEAD_SIZE", "PROBE"],
        ),
        ({"phases": DISABLED, "requires": {"mylib": ">=1"}}, Outcome.PINNED, ["PINNED"]),
        ({"phases": DISABLED, "accepts": {"probe": True}}, Outcome.PINNED, ["PINNED"]),
        ({"phases": DISABLED, "accepts": {"head_size": 64}}, Outcome.UNSUPPORTED, ["HEAD_SIZE"]),
    ],
    ids=str,
)
def test_what_nothing_but_facts_refuses_is_not_there_and_else_it_is_not_possible(
    build: Build, keys: Tree, outcome: Outcome, codes: list[str]
) -> None:
    verdict = judged(build, build.entry(**keys), facts=OFF)
    assert verdict.outcome is outcome
    assert [r.code for r in verdict.rejections] == codes


def test_what_a_rule_forbids_of_facts_alone_is_not_there(build: Build) -> None:
    rule = {"when": {"probe": False}, "code": "SWITCH", "reason": "It needs it."}
    verdict = judged(build, build.entry(constraints=[rule]), facts=OFF)
    assert verdict.outcome is Outcome.UNAVAILABLE


def test_a_fact_that_is_unknown_is_a_condition_in_every_form(build: Build) -> None:
    entry = build.entry(
        requires={"mylib": ">=1"}, accepts={"probe": True}, constraints=[NEEDS_PROBE]
    )
    verdict = judged(build, entry)
    assert verdict.rejections == ()
    assert [f"{c.field} {c.allowed}" for c in verdict.conditions] == [
        "mylib >=1",
        "probe true",
        "probe true",
    ]
    known = judged(build, entry, facts=Facts({"mylib": "1.0", "probe": True}))
    assert (known.outcome, known.conditions) == (Outcome.SELECTED, ())


# -- who says so ---------------------------------------------------------------------------------

CASES: Tree = {"cases": [{"when": {"tp_size": 8}, "allow": [64]}, {"allow": [96]}]}


@pytest.mark.parametrize(
    "keys",
    [
        {"accepts": {"head_size": 64}},
        {"accepts": {"head_size": {"max": 64}}},
        {"accepts": {"head_size": CASES}},
        {"accepts": {"head_size": {"max": {"field": "num_heads"}}}},
        {"phases": {"decode": {"accepts": {"head_size": 64}}}},
    ],
    ids=str,
)
@pytest.mark.parametrize("sources", [{"head_size": "a class"}, {"dtype": "a class"}, {}], ids=str)
def test_a_refusal_says_the_source_of_its_field(build: Build, keys: Tree, sources: Tree) -> None:
    entry = build.entry(**keys, sources=sources)
    (rejection,) = judged(build, entry, build.layer(num_heads=16)).rejections
    assert (rejection.code, rejection.source) == ("HEAD_SIZE", sources.get("head_size"))


def test_the_source_of_one_entry_is_not_that_of_another(build: Build) -> None:
    """Though both refuse the same value by the same set."""
    same = {"head_size": 64}
    for source in ("a class", "another class"):
        entry = build.entry(accepts=same, sources={"head_size": source})
        (rejection,) = judged(build, entry).rejections
        assert rejection.source == source


@pytest.mark.parametrize("rule", [SMALL, NEVER], ids=["require", "never"])
@pytest.mark.parametrize("source", ["a method", None])
def test_a_refusal_says_the_source_of_its_constraint(
    build: Build, rule: Tree, source: str | None
) -> None:
    stated = {**rule, "source": source} if source else rule
    entry = build.entry(constraints=[stated], sources={"head_size": "a class"})
    (rejection,) = judged(build, entry).rejections
    assert (rejection.code, rejection.source) == (rule["code"], source)


def test_a_feature_that_is_not_stated_may_have_a_source_too(build: Build) -> None:
    entry = build.entry(sources={"sink": "supports_sink"})
    (rejection,) = judged(build, entry, build.layer(sink=True)).rejections
    assert (rejection.code, rejection.reason, rejection.source) == (
        "SINK",
        "not stated",
        "supports_sink",
    )


def test_a_refusal_says_the_source_of_its_case(build: Build) -> None:
    cases = [{"when": {"tp_size": 8}, "allow": [64]}, {"allow": [96], "source": "a branch"}]
    entry = build.entry(accepts={"head_size": {"cases": cases}}, sources={"head_size": "a class"})
    (rejection,) = judged(build, entry).rejections
    assert rejection.source == "a branch"


# -- what is the same is asked once --------------------------------------------------------------


def test_phases_that_say_the_same_say_it_of_their_own_switch(build: Build) -> None:
    """What one statement says to both is one answer; that a phase is off is its own."""
    entry = build.entry(accepts={"probe": True}, phases=DISABLED)
    selector = build.selector(entry, facts=FACTS)
    (found,) = selector.bind("9.0", build.layer(), OFF).resolve(9, 9).candidates
    assert (found.prefill.outcome, found.decode.outcome) == (Outcome.UNAVAILABLE, Outcome.PINNED)


def test_a_phase_that_says_more_is_asked_by_itself(build: Build) -> None:
    for own, codes in (
        ({"accepts": {"tp_size": 8}}, ["TP_SIZE"]),
        ({"constraints": [NEVER]}, ["NEVER"]),
        ({}, []),
    ):
        entry = build.entry(phases={"prefill": {}, "decode": own})
        (found,) = build.selector(entry).bind("9.0", build.layer()).resolve(9, 9).candidates
        assert found.prefill.rejections == ()
        assert [r.code for r in found.decode.rejections] == codes
