"""Two manifests compared: what changes, what does not, and what could not be counted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from selector import Selector
from selector.analysis.comparing import (
    IncomparableError,
    Limits,
    compare,
    decision_of,
    pick_of,
)
from selector.analysis.rerouting import way_of
from selector.manifest import Manifest

from .drawing import drawn

SMALL = (Path(__file__).parents[1] / "cli" / "small.yaml").read_text("utf-8")


def changed(*pairs: tuple[str, str], text: str = SMALL) -> Manifest:
    """The small manifest with texts replaced, each where it stands first."""
    for before, after in pairs:
        assert before in text, before
        text = text.replace(before, after, 1)
    return Selector.loads(text, "changed.yaml").manifest


OLD = changed()


@pytest.mark.parametrize("name", [None, "vllm-0.33.0"])
def test_a_manifest_differs_from_itself_in_nothing(name: str | None) -> None:
    manifest = Selector.load(name).manifest
    found = compare(manifest, manifest)
    assert not found.is_different
    assert not found.totals


def test_comments_order_and_anchors_change_nothing() -> None:
    same = changed(
        ('version: "1"\n', 'version: "1"  # the first\n'),
        ("    mla: false\n    sparse: false\n", "    sparse: false\n    mla: false\n"),
    )
    assert compare(OLD, same).space is None


def test_words_are_no_decisions() -> None:
    found = compare(OLD, changed(("Decode only.", "For decodes."), ("The only way.", "It is one.")))
    assert found.able > 0
    assert not found.is_different
    assert dict(found.stated.worded)["xqa"] == ("description",)
    assert dict(found.stated.worded)["math"] == ("reasons of prefill_paths",)


def test_one_statement_changes_what_it_is_about() -> None:
    new = changed(("head_size: [64, 128, 256]", "head_size: [64, 128]"))
    found = compare(OLD, new)
    assert set(found.totals) >= {(("fa2", "fa2"), ("math", "math"))}
    assert all("fa2" in before and "fa2" not in after for before, after in found.totals)
    for region in found.regions:
        assert region.sides["head_size"].only() == 256
        asked = found.witness(region.one, region.change)
        assert asked is not None
        assert (decision_of(OLD, asked), decision_of(new, asked)) == region.change


def test_what_is_removed_and_added() -> None:
    renamed = SMALL.replace("fa2", "fa9")
    found = compare(OLD, Selector.loads(renamed).manifest)
    assert found.stated.added == ("fa9",)
    assert found.stated.removed == ("fa2",)
    assert (("fa2", "fa2"), ("fa9", "fa9")) in found.totals


def test_a_path_that_is_switched_off_is_found_though_backends_stay() -> None:
    new = changed(
        ("    dense_prefill: true\n", "    dense_prefill: false\n    rationale: It crashed.\n")
    )
    found = compare(OLD, new)
    assert not found.totals
    assert found.is_different
    assert found.stated.paths == ("sparse_sm100",)
    (change,) = (one for one in found.paths if one.after.path == "sparse_mqa")
    assert change.before.path == "dense_mha"
    assert change.backends == ("sparse_sm100", "sparse_sm100")
    assert change.regions
    for region in change.regions:
        asked = found.path_witness(change, region)
        assert asked is not None
        picks = [pick_of(manifest, asked) for manifest in (OLD, new)]
        assert [pick and way_of(pick) for pick in picks] == [change.before, change.after]
    assert {one.model for one in found.models} >= {"glm-5.2-fp8", "deepseek-v3.2"}
    assert all(one.paths == ("dense_mha", "sparse_mqa") for one in found.models)


def test_a_derived_value_that_only_one_looks_at() -> None:
    """Levels of a diagram are those of both manifests."""
    derive = (
        "derive:\n"
        "  wide:\n"
        "    first_match:\n"
        "      - {when: {head_size: {min: 129}}, value: yes_}\n"
        "      - {value: no_}\n"
        "space:\n"
    )
    old = changed(("space:\n", derive))
    new = changed(
        ("space:\n", derive),
        ("      - when: {sliding_window: {min: 1}, kv", "      - when: {wide: [yes_], kv"),
    )
    for one, other in ((old, new), (new, old)):
        found = compare(one, other)
        assert found.totals
        assert all(found.witness(r.one, r.change) is not None for r in found.regions)


def test_manifests_that_cannot_be_asked_the_same() -> None:
    given = changed(
        ("space:\n", "fields:\n  wide: {type: name, role: context, description: W.}\nspace:\n")
    )
    follows = changed(("space:\n", "derive:\n  wide:\n    first_match: [{value: yes_}]\nspace:\n"))
    with pytest.raises(IncomparableError, match="wide follows from other fields"):
        compare(given, follows)


def test_values_that_only_one_knows_are_left_out_and_named() -> None:
    def kinds(values: str) -> Manifest:
        field = (
            f"fields:\n  part: {{type: name, role: context, values: {values}, description: R.}}\n"
        )
        text = SMALL.replace("space:\n", field + "space:\n", 1)
        return Selector.loads(
            text.replace("      platform:", "      part: [a]\n      platform:")
        ).manifest

    found = compare(kinds("[a, b]"), kinds("[a, c]"))
    assert found.left_out == ("part",)
    assert not found.totals


# -- what is not counted -------------------------------------------------------------------------

PHASES = "    phases:\n      prefill: {}\n      decode: {}\n    prefill_paths:\n"
MATH = f"    decode_threshold: 1\n{PHASES}"
BATCHED = (
    f"    decode_threshold: 1\n    uniform_decodes: true\n{PHASES}"
    "      - {path: mqa, scope: batch, when: {num_prefills: {min: 2}}, reason: Many.}\n"
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("num_prefills: {min: 2}", "num_prefills: {min: 3}"),
        ("uniform_decodes: true", "uniform_decodes: false"),
        ("scope: batch", "scope: request"),
    ],
)
def test_requests_that_run_together_are_never_said_to_be_the_same(before: str, after: str) -> None:
    text = SMALL.replace(MATH, BATCHED, 1)
    assert before in text
    old, new = Selector.loads(text).manifest, Selector.loads(text.replace(before, after)).manifest
    found = compare(old, new)
    assert [aside.backends for aside in found.asides] == [("math",)]
    assert found.is_different
    assert not compare(old, changed(("Decode only.", "For decodes."), text=text)).asides


def test_what_a_value_becomes_is_never_said_to_be_the_same() -> None:
    found = compare(OLD, changed(("value: fp8_e4m3", "value: fp8_e5m2")))
    (aside,) = found.asides
    assert (aside.backends, aside.coerced) == (("fa2",), ("kv_cache_dtype",))
    assert found.is_different


@pytest.mark.parametrize(
    ("after", "admitted", "refused"),
    [('[">=8.0"]', 1202, 1201), ('["8.0..12.1", "13.0"]', 1300, 1301)],
)
def test_capabilities_that_no_architecture_has(after: str, admitted: int, refused: int) -> None:
    found = compare(OLD, changed(('["8.0..12.1"]', after)))
    assert not found.totals
    (aside,) = found.asides
    assert aside.backends == ("fa2",)
    assert aside.capabilities is not None
    assert aside.capabilities.admits(admitted)
    assert not aside.capabilities.admits(refused)
    assert found.is_different


def test_what_is_taken_where_nothing_is_said_is_a_difference() -> None:
    fact = "type: boolean, description: Whether"
    found = compare(OLD, changed((fact, f"standard: true, {fact}")))
    assert found.stated.defaults == ("jit",)
    assert found.is_different


# -- beyond the limit ----------------------------------------------------------------------------


def test_beyond_the_limit_questions_are_drawn_and_nothing_is_ruled_out() -> None:
    new = changed(("Decode only.", "For decodes."))
    found = compare(OLD, new, Limits(steps=10, draws=2_000))
    assert not found.totals
    (drawn_,) = found.drawn
    assert drawn_.seen == 0
    assert 0 < drawn_.at_most < 0.02
    assert found.is_different  # not ruled out


def test_what_is_drawn_shows_changes_that_hold() -> None:
    old = Selector.loads(drawn(1, 6, 4)).manifest
    new = Selector.loads(drawn(1, 6, 4, changes=6)).manifest
    exact = compare(old, new)
    found = compare(old, new, Limits(steps=10, draws=60_000))
    (one,) = found.drawn
    assert one.seen > 0
    assert set(one.changes) <= set(exact.totals)
    assert one.at_most > exact.changed / exact.able
    for change, classes in one.ones.items():
        assert found.witness(classes, change) is not None


# -- size ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [1, 2])
def test_a_manifest_of_60_entries_and_40_constraints(seed: int) -> None:
    old = Selector.loads(drawn(seed, 60, 40)).manifest
    new = Selector.loads(drawn(seed, 60, 40, changes=6)).manifest
    start = time.process_time()
    found = compare(old, new)
    assert time.process_time() - start < 20  # 2 s on an idle core
    assert not found.drawn
    assert found.totals
    assert found.changed == sum(region.count for region in found.regions)


def test_claims_and_truth_of_vllm() -> None:
    truth = Selector.load("vllm-0.33.0").manifest
    claims = truth.as_claimed()
    found = compare(claims, truth)
    assert found.space is not None
    assert not found.drawn
    assert (("FLASH_ATTN", "FLASH_ATTN"), ("TRITON_ATTN", "TRITON_ATTN")) in found.totals
    assert all(before != after and after[1] != "FLASHINFER_MLA" for before, after in found.totals)
    assert found.changed == sum(region.count for region in found.regions)
    for change in found.totals:
        region = next(region for region in found.regions if region.change == change)
        assert found.witness(region.one, change) is not None
