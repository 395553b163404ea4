"""Paths: which rule gives a prefill its path, who computes a dense one, what switches it off."""

from __future__ import annotations

from typing import Any

import pytest

from selector import Device, Facts, Outcome, Phase, Policy, Request, Selector
from selector.domains import Domain
from selector.plan import Pick, Plan

from .sparse import BY_ANOTHER, DENSE, PROBE, Build, Tree, dense, layer, sparse


def lines(selector: Selector, *places: int) -> tuple[Any, ...]:
    """Where the sparse entry states these of its path rules."""
    return tuple(selector.manifest.entries["sparse"].prefill_paths[i].position for i in places)


# -- who computes a dense path -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "policy", "by"),
    [
        ({}, Policy(), "flash"),
        ({"accepts": {"head_size": 64}}, Policy(), "triton"),
        ({"accepts": {"sink": True}}, Policy(), "triton"),
        ({"requires": {"probe": True}}, Policy(), "triton"),
        ({}, Policy({"flash": "driver bug"}), "triton"),
        ({}, Policy(backend="sparse"), "flash"),
        ({}, Policy(prefill_backend="sparse"), "flash"),
    ],
    ids=str,
)
def test_a_dense_path_is_computed_by_the_prefill_backend_of_the_same_layer_if_it_were_dense(
    build: Build, first: Tree, policy: Policy, by: str
) -> None:
    entries = (sparse(build, BY_ANOTHER), dense(build, "flash", **first), dense(build, "triton"))
    selector = build.selector(*entries, facts=PROBE)
    bound = selector.bind("9.0", layer(build), Facts({"probe": False}), policy)
    answer = bound.resolve(8, 8)
    assert answer.prefill.backend == "sparse"
    assert (answer.prefill.path, answer.prefill.by) == ("dense_mha", by)
    assert answer.prefill.path_rules == lines(selector, 0)


@pytest.mark.parametrize(
    "others",
    [
        [],
        [{"accepts": {"head_size": 64}}],
        [{"phases": {"decode": {}}}],
        [{"phases": {"prefill": {"disabled": True, "rationale": "It hangs."}}}],
    ],
    ids=str,
)
def test_without_a_backend_for_it_the_rule_does_not_hold(build: Build, others: list[Tree]) -> None:
    entries = [build.entry(f"other{i}", mla=True, **keys) for i, keys in enumerate(others)]
    selector = build.selector(sparse(build, BY_ANOTHER), *entries)
    answer = selector.bind("9.0", layer(build)).resolve(8, 8)
    assert (answer.prefill.path, answer.prefill.by) == ("sparse_mqa", None)
    assert answer.prefill.path_rules == lines(selector, 1)
    assert answer.off == ()  # nothing switches it off


def test_the_lists_of_the_dense_layer_decide_who_computes_it(build: Build) -> None:
    """Those that ask whether it is sparse, themselves or by a derived value."""
    derive = {"kind": {"first_match": [{"when": {"sparse": True}, "value": 1}, {"value": 2}]}}
    entries = (sparse(build, BY_ANOTHER), dense(build, "flash"), dense(build, "triton"))
    for condition in ({"sparse": False}, {"kind": 2}):
        priorities = [
            {"when": condition, "prefill": ["triton"], "reason": "For dense layers."},
            {"order": ["sparse", "flash"], "reason": "Otherwise."},
        ]
        selector = build.selector(*entries, priorities=priorities, derive=derive)
        assert selector.bind("9.0", layer(build)).resolve(8, 8).prefill.by == "triton"


def test_whether_a_backend_for_it_is_there_may_be_unknown(build: Build) -> None:
    flash = dense(build, "flash", requires={"probe": True})
    selector = build.selector(sparse(build, BY_ANOTHER), flash, facts=PROBE)
    prefill = selector.bind("9.0", layer(build)).resolve(8, 8).prefill
    assert (prefill.path, prefill.by) == (None, None)
    assert prefill.paths == ("dense_mha", "sparse_mqa")
    assert prefill.path_rules == lines(selector, 0, 1)
    with_triton = (sparse(build, BY_ANOTHER), flash, dense(build, "triton"))
    selector = build.selector(*with_triton, facts=PROBE)
    assert selector.bind("9.0", layer(build)).resolve(8, 8).prefill.path == "dense_mha"


def test_who_computes_it_is_not_said_while_that_is_unknown(build: Build) -> None:
    flash = dense(build, "flash", requires={"probe": True})
    entries = (sparse(build, BY_ANOTHER), flash, dense(build, "triton"))
    selector = build.selector(*entries, facts=PROBE)
    certain = selector.bind("9.0", layer(build)).resolve(8, 8).prefill.by
    without = selector.bind("9.0", layer(build), Facts({"probe": False})).resolve(8, 8)
    assert certain in (None, without.prefill.by)


def test_a_rule_that_holds_for_certain_says_who_computes_it(build: Build) -> None:
    flash = dense(build, "flash", requires={"probe": True})
    selector = build.selector(sparse(build, BY_ANOTHER, DENSE), flash, facts=PROBE)
    prefill = selector.bind("9.0", layer(build)).resolve(8, 8).prefill
    assert (prefill.path, prefill.by) == ("dense_mha", None)


def test_every_list_that_may_be_the_first_must_have_a_backend_for_it(build: Build) -> None:
    priorities = [
        {"when": {"probe": True}, "prefill": ["refused"], "reason": "With the switch."},
        {"order": ["sparse", "flash"], "reason": "Without it."},
    ]
    refused = dense(build, "refused", accepts={"head_size": 64})
    entries = (sparse(build, BY_ANOTHER), dense(build, "flash"), refused)
    selector = build.selector(*entries, priorities=priorities, facts=PROBE)
    policy = Policy(backend="sparse")
    for said, paths in (
        ({}, ("dense_mha", "sparse_mqa")),
        ({"probe": True}, ("sparse_mqa",)),
        ({"probe": False}, ("dense_mha",)),
    ):
        bound = selector.bind("9.0", layer(build), Facts(said), policy)
        assert bound.resolve(8, 8).prefill.paths == paths


def test_a_backend_for_it_does_not_help_a_rule_that_may_not_hold(build: Build) -> None:
    short = {**BY_ANOTHER, "when": {"seq_len": {"max": 64}}}
    selector = build.selector(sparse(build, short), dense(build, "flash"))
    bound = selector.bind("9.0", layer(build))
    for seq_len, paths, by in (
        (64, ("dense_mha",), "flash"),
        (65, ("sparse_mqa",), None),
        (None, ("dense_mha", "sparse_mqa"), None),
    ):
        prefill = bound.resolve(8, seq_len).prefill
        assert (prefill.paths, prefill.by) == (paths, by)


def test_who_computes_a_path_of_the_whole_batch_sees_the_whole_batch(build: Build) -> None:
    alone = dense(build, "alone", accepts={"num_prefills": 1})
    for scope, by in (("batch", "triton"), ("request", "alone")):
        entries = (sparse(build, {**BY_ANOTHER, "scope": scope}), alone, dense(build, "triton"))
        bound = build.selector(*entries).bind("9.0", layer(build))
        assert bound.resolve(8, 8).prefill.by == "alone"
        answers = bound.resolve_batch([Request(8, 8), Request(9, 9)])
        assert [a.prefill.by for a in answers] == [by, by]


def test_a_decode_is_computed_by_nobody_else(build: Build) -> None:
    selector = build.selector(sparse(build, BY_ANOTHER), dense(build, "flash"))
    answer = selector.bind("9.0", layer(build)).resolve(1, 8)
    assert (answer.phase, answer.prefill.path) == (Phase.DECODE, "sparse_mqa")
    for choice in (answer.prefill, answer.decode):
        assert (choice.by, choice.path_rules) == (None, ())


# -- which rule ----------------------------------------------------------------------------------


def test_each_path_has_the_rule_that_gives_it(build: Build) -> None:
    """Where two give the same path, the first that can hold."""
    short = {**DENSE, "when": {"seq_len": {"max": 64}}}
    longer = {**DENSE, "when": {"seq_len": {"max": 128}}}
    masked = {**DENSE, "path": "masked_mha", "when": {"query_len": {"min": 8}}}
    selector = build.selector(sparse(build, short, masked, longer))
    bound = selector.bind("9.0", layer(build))
    for lengths, places in (
        ((4, 64), (0,)),
        ((4, 128), (2,)),
        ((8, 128), (1,)),
        ((4, 129), (3,)),
        ((4, None), (0, 3)),
        ((8, None), (0, 1)),
        ((None, 128), (1, 2)),
    ):
        prefill = bound.resolve(*lengths).prefill
        assert prefill.path_rules == lines(selector, *places)
        assert len(prefill.paths) == len(places)


# -- what switches a dense path off --------------------------------------------------------------

PACKED = {
    "when": {"kv_cache_dtype": "fp8_ds_mla"},
    "reason": "Its cache is packed.",
    "source": "a class",
}


@pytest.mark.parametrize(
    ("stored", "paths", "reasons"),
    [
        ("auto", ("dense_mha",), []),
        ("fp8_ds_mla", ("sparse_mqa",), ["Its cache is packed."]),
        (..., ("dense_mha", "sparse_mqa"), []),
    ],
)
def test_an_entry_that_may_compute_densely_has_exceptions(
    build: Build, stored: Any, paths: tuple[str, ...], reasons: list[str]
) -> None:
    selector = build.selector(sparse(build, DENSE, dense_prefill_except=[PACKED]))
    answer = selector.bind("9.0", layer(build, kv_cache_dtype=stored)).resolve(8, 8)
    assert answer.prefill.paths == paths
    (rule,) = selector.manifest.entries["sparse"].dense_prefill_except
    assert [o.rationale for o in answer.off] == reasons
    for off in answer.off:
        assert (off.path, off.outcome) == ("dense_mha", Outcome.UNSUPPORTED)
        assert off.position == rule.position


def test_an_exception_sees_what_the_backend_really_uses(build: Build) -> None:
    stores = {"kv_cache_dtype": [{"value": "fp8_ds_mla", "reason": "It packs."}]}
    entry = sparse(build, DENSE, dense_prefill_except=[PACKED], coerce=stores)
    answer = build.selector(entry).bind("9.0", layer(build)).resolve(8, 8)
    assert answer.prefill.path == "sparse_mqa"
    assert [o.rationale for o in answer.off] == ["Its cache is packed."]


def test_a_path_sees_what_the_backend_really_uses(build: Build) -> None:
    stores = {"kv_cache_dtype": [{"value": "fp8_ds_mla", "reason": "It packs."}]}
    unpacked = {**DENSE, "when": {"kv_cache_dtype": "auto"}}
    for scope in ("request", "batch"):
        for coerce, path in ((stores, "sparse_mqa"), ({}, "dense_mha")):
            entry = sparse(build, {**unpacked, "scope": scope}, coerce=coerce)
            bound = build.selector(entry).bind("9.0", layer(build))
            answers = bound.resolve_batch([Request(8, 8), Request(9, 9)])
            assert [a.prefill.path for a in answers] == [path, path]


def test_the_first_exception_that_holds_says_why_once_for_each_path(build: Build) -> None:
    exceptions = [
        {"when": {"sink": True}, "reason": "No sinks."},
        PACKED,
        {"when": {"mla": True}, "reason": "Never."},
    ]
    masked = {**DENSE, "path": "masked_mha"}
    entry = sparse(build, DENSE, masked, DENSE, dense_prefill_except=exceptions)
    bound = build.selector(entry).bind("9.0", layer(build, kv_cache_dtype="fp8_ds_mla"))
    off = [(o.path, o.rationale) for o in bound.resolve(8, 8).off]
    assert off == [("dense_mha", PACKED["reason"]), ("masked_mha", PACKED["reason"])]


def test_the_word_of_the_layer_is_said_before_an_exception(build: Build) -> None:
    entry = sparse(build, DENSE, dense_prefill_except=[PACKED])
    asked = layer(build, kv_cache_dtype="fp8_ds_mla", dense_prefill=False)
    selector = build.selector(entry)
    (off,) = selector.bind("9.0", asked).resolve(8, 8).off
    assert off.rationale == ("the layer's own contract: its prefill may not be computed densely")
    assert off.position == selector.manifest.entries["sparse"].dense_prefill_at


def test_nothing_is_off_where_nothing_is_sparse(build: Build) -> None:
    selector = build.selector(build.entry(mla=True))
    answer = selector.bind("9.0", build.layer(mla=True, dense_prefill=False)).resolve(8, 8)
    assert (answer.prefill.path, answer.off) == ("mha", ())


def test_a_path_that_an_exception_takes_away_is_off(build: Build) -> None:
    packed = {"kv_cache_dtype": ["fp8_ds_mla"]}
    entry = sparse(build, DENSE, accepts=packed, dense_prefill_except=[PACKED])
    answer = build.selector(entry).bind("9.0", layer(build, kv_cache_dtype=...)).resolve(8, 8)
    assert answer.prefill.path == "sparse_mqa"
    assert [o.path for o in answer.off] == ["dense_mha"]


def test_a_path_that_the_batch_takes_away_is_off(build: Build) -> None:
    many = {"when": {"num_prefills": {"min": 2}}, "reason": "One at a time."}
    entry = sparse(build, {**DENSE, "scope": "batch"}, dense_prefill_except=[many])
    bound = build.selector(entry).bind("9.0", layer(build))
    answer, _ = bound.resolve_batch([Request(8, 8), Request(8, 8)])
    assert answer.prefill.path == "sparse_mqa"
    assert [o.path for o in answer.off] == ["dense_mha"]


# -- what is known because the entry accepts it --------------------------------------------------


@pytest.mark.parametrize(
    ("accepts", "values", "when", "paths"),
    [
        ({"kv_cache_dtype": ["fp8"]}, {}, {"kv_cache_dtype": "fp8"}, ("dense_mha",)),
        ({"kv_cache_dtype": ["fp8"]}, {}, {"kv_cache_dtype": "auto"}, ("sparse_mqa",)),
        (
            {"kv_cache_dtype": ["fp8", "auto"]},
            {},
            {"kv_cache_dtype": "fp8"},
            ("dense_mha", "sparse_mqa"),
        ),
        ({"head_size": [64, 128]}, {}, {"head_size": {"max": 128}}, ("dense_mha",)),
        (
            {"head_size": [64, 128]},
            {"head_size": Domain.of(128, 256)},
            {"head_size": {"min": 65}},
            ("dense_mha",),
        ),
        ({"kv_cache_dtype": ["fp8"]}, {}, {"stored": 8}, ("dense_mha",)),
        (
            {"head_size": {"max": {"field": "index_topk"}}},
            {"index_topk": 512},
            {"head_size": {"max": 512}},
            ("dense_mha",),
        ),
        (  # whatever the bound is
            {"head_size": {"min": 65, "max": {"field": "index_topk"}}},
            {},
            {"head_size": {"min": 65}},
            ("dense_mha",),
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("scope", ["request", "batch"])
def test_a_path_knows_what_the_chosen_entry_accepts(
    build: Build, accepts: Tree, values: Tree, when: Tree, paths: tuple[str, ...], scope: str
) -> None:
    derive = {
        "stored": {"first_match": [{"when": {"kv_cache_dtype": "fp8"}, "value": 8}, {"value": 16}]}
    }
    entry = sparse(build, {**DENSE, "when": when, "scope": scope}, accepts=accepts)
    unknown = {"kv_cache_dtype": ..., "head_size": ..., **values}
    bound = build.selector(entry, derive=derive).bind("9.0", layer(build, **unknown))
    answer, _ = bound.resolve_batch([Request(8, 8), Request(9, 9)])
    assert answer.prefill.paths == paths
    assert answer.layer.get("kv_cache_dtype") is None  # the question is what it was


def test_what_is_accepted_by_cases_says_nothing_of_the_path(build: Build) -> None:
    cases = [{"when": {"tp_size": 8}, "allow": ["auto"]}, {"allow": ["fp8"]}]
    rule = {**DENSE, "when": {"kv_cache_dtype": "fp8"}}
    entry = sparse(build, rule, accepts={"kv_cache_dtype": {"cases": cases}})
    answer = build.selector(entry).bind("9.0", layer(build, kv_cache_dtype=...)).resolve(8, 8)
    assert answer.prefill.paths == ("dense_mha", "sparse_mqa")


def test_what_the_prefill_phase_accepts_is_what_counts(build: Build) -> None:
    phases = {
        "prefill": {"accepts": {"kv_cache_dtype": ["fp8"]}},
        "decode": {"accepts": {"kv_cache_dtype": ["auto"]}},
    }
    rule = {**DENSE, "when": {"kv_cache_dtype": "fp8"}}
    selector = build.selector(sparse(build, rule, phases=phases))
    answer = selector.bind("9.0", layer(build, kv_cache_dtype=...)).resolve(8, 8)
    assert answer.prefill.path == "dense_mha"


def test_what_is_accepted_of_a_request_says_nothing_of_the_batch(build: Build) -> None:
    """The first may be a decode; if it is none, there are two prefills."""
    cases = {"cases": [{"when": {"num_heads": {"max": 16}}, "value": 8}, {"value": 1}]}
    rule = {**DENSE, "when": {"num_prefills": 1}, "scope": "batch"}
    selector = build.selector(
        sparse(build, rule, accepts={"num_prefills": 1}, decode_threshold=cases)
    )

    def paths(**values: Any) -> tuple[str, ...]:
        bound = selector.bind("9.0", layer(build, **values))
        _, answer = bound.resolve_batch([Request(8, 8), Request(9, 9)])
        found: tuple[str, ...] = answer.prefill.paths
        return found

    assert paths(num_heads=8) == ("dense_mha",)
    assert paths(num_heads=32) == ("sparse_mqa",)
    assert paths() == ("dense_mha", "sparse_mqa")


def test_a_plan_tells_apart_values_that_a_backend_leaves_as_they_are(build: Build) -> None:
    """The dense backend is the one for what the sparse backend makes of the layer."""
    keeps = {"kv_cache_dtype": [{"when": {"sink": True}, "value": "fp8"}, {"value": "same"}]}
    selector = build.selector(
        sparse(build, BY_ANOTHER, coerce=keeps, accepts={"sink": "any"}),
        dense(build, "flash", accepts={"kv_cache_dtype": "bfloat16"}),
        dense(build, "triton", accepts={"kv_cache_dtype": ["float16", "fp8"], "sink": "any"}),
    )
    plan, device, facts = Plan(selector.manifest), Device("cuda", "9.0"), Facts()
    found = []
    for dtype, sink in (("bfloat16", False), ("float16", False), ("bfloat16", True)):
        one = layer(build, kv_cache_dtype=dtype, sink=sink)
        pick = plan.resolve(device, one, facts, Request(8, 8))
        assert pick == Pick.of(selector.bind("9.0", one).resolve(8, 8))
        found.append(pick.by)
    assert found == ["flash", "triton", "triton"]


def test_a_plan_leaves_a_path_open_where_its_dense_backend_is_not_certain(build: Build) -> None:
    """It may be missing, and then the rule does not hold."""
    flash = dense(build, "flash", requires={"probe": True})
    selector = build.selector(sparse(build, BY_ANOTHER), flash, facts=PROBE)
    plan, device, one = Plan(selector.manifest), Device("cuda", "9.0"), layer(build)
    picks = [
        plan.resolve(device, one, Facts(facts), Request(8, 8)) for facts in ({}, {"probe": True})
    ]
    assert [(pick.path, pick.by) for pick in picks] == [(None, None), ("dense_mha", "flash")]
    assert picks[0] == Pick.of(selector.bind("9.0", one).resolve(8, 8))


def test_a_plan_tells_apart_what_bounds_a_derived_value(build: Build) -> None:
    within = {"when": {"grade": {"max": {"field": "tp_size"}}}, "value": 8}
    entry = build.entry("flash", decode_threshold={"cases": [within, {"value": 2}]})
    grade = {"first_match": [{"when": {"dtype": "bfloat16"}, "value": 4}, {"value": 1}]}
    selector = build.selector(entry, derive={"grade": grade})
    plan, device, facts = Plan(selector.manifest), Device("cuda", "9.0"), Facts()
    sizes = (8, 1, 4)
    found = [
        plan.resolve(device, build.layer(tp_size=size), facts, Request(8, 8)).decode_threshold
        for size in sizes
    ]
    assert found == [8, 2, 8]
