"""The resolver, form by form: what is asked, what comes out, and why."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from selector import Facts, Layer, Outcome, Phase, Policy, Request, Resolution
from selector.domains import Domain
from selector.errors import ContradictionError, UnknownBackendError
from selector.values import Candidate, Condition, Rejection, Verdict

Build = Any  # the fixture of tests/conftest.py


def candidate(answer: Resolution, name: str) -> Candidate:
    (found,) = (c for c in answer.candidates if c.backend == name)
    return found


def refusal(verdict: Verdict) -> Rejection:
    """The only reason of a verdict."""
    (found,) = verdict.rejections
    return found


def words(conditions: tuple[Condition, ...]) -> list[str]:
    return [f"{c.field} {c.allowed}" for c in conditions]


def with_sets(layer: Layer, **sets: Domain) -> Layer:
    """The layer with some fields known to be within a set."""
    return Layer(MappingProxyType({**layer.fields, **sets}))


DECODE_ONLY = {"decode": {}}
PREFILL_ONLY = {"prefill": {}}
PROBES = {
    "probe": {"type": "boolean", "description": "A switch."},
    "other": {"type": "boolean", "description": "Another."},
    "mylib": {"type": "version", "description": "A library."},
}


# -- every outcome -------------------------------------------------------------------------------


def test_every_outcome(build: Build) -> None:
    pinned = {"disabled": True, "rationale": "It crashes.", "revisit_when": "mylib 3 is out."}
    selector = build.selector(
        build.entry("best"),
        build.entry("second"),
        build.entry("cannot", accepts={"head_size": [64, 256]}),
        build.entry("old", requires={"mylib": ">=2"}),
        build.entry("missing", requires={"probe": True}),
        build.entry("depends", requires={"other": True}),
        build.entry("denied_here"),
        build.entry("denied_by_caller"),
        build.entry("broken", phases={"prefill": pinned, "decode": {}}),
        facts=PROBES,
        deny=[{"backend": "denied_here", "when": {"capability": "9.x"}, "reason": "Slow here."}],
    )
    facts = Facts({"mylib": "1.9", "probe": False})
    policy = Policy({"denied_by_caller": "not today"})
    answer = selector.bind("9.0", build.layer(), facts, policy).resolve(8, 8)
    outcomes = {c.backend: (c.prefill.outcome, c.decode.outcome) for c in answer.candidates}
    assert outcomes == {
        "best": (Outcome.SELECTED, Outcome.SELECTED),
        "second": (Outcome.ELIGIBLE, Outcome.ELIGIBLE),
        "cannot": (Outcome.UNSUPPORTED, Outcome.UNSUPPORTED),
        "old": (Outcome.UNAVAILABLE, Outcome.UNAVAILABLE),
        "missing": (Outcome.UNAVAILABLE, Outcome.UNAVAILABLE),
        "depends": (Outcome.CONDITIONAL, Outcome.CONDITIONAL),
        "denied_here": (Outcome.DENIED, Outcome.DENIED),
        "denied_by_caller": (Outcome.DENIED, Outcome.DENIED),
        "broken": (Outcome.PINNED, Outcome.ELIGIBLE),
    }
    assert {o for pair in outcomes.values() for o in pair} == set(Outcome)
    assert refusal(candidate(answer, "denied_here").prefill).reason == "Slow here."
    assert refusal(candidate(answer, "denied_by_caller").prefill).reason == "not today"
    assert refusal(candidate(answer, "broken").prefill).reason == "It crashes."
    assert words(candidate(answer, "depends").prefill.conditions) == ["other true"]
    assert answer.backend == "best"


def test_a_refusal_says_what_was_seen_what_is_allowed_and_what_is_nearest(build: Build) -> None:
    selector = build.selector(build.entry(accepts={"head_size": [64, 256, {"multiple_of": 512}]}))
    answer = selector.bind("9.0", build.layer(head_size=200)).resolve(1, 1)
    rejection = refusal(answer.candidates[0].decode)
    assert rejection.code == "HEAD_SIZE"
    assert rejection.field == "head_size"
    assert (rejection.observed, rejection.allowed) == ("200", "multiples of 512, 64, 256")
    assert rejection.nearest == "256"
    assert rejection.position.file == "test.yaml"
    assert (answer.backend, answer.phase) == (None, None)


def test_all_reasons_are_given_not_the_first(build: Build) -> None:
    entry = build.entry(
        accepts={"head_size": [64], "dtype": "float16", "capability": "12.x"},
        requires={"mylib": ">=2", "probe": True},
        constraints=[
            {"when": {"capability": "9.0"}, "code": "NOT_HERE", "reason": "Not on Hopper."}
        ],
    )
    selector = build.selector(entry, facts=PROBES)
    facts = Facts({"mylib": None, "probe": False})
    answer = selector.bind("9.0", build.layer(), facts).resolve(1, 1)
    verdict = answer.candidates[0].prefill
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert [r.code for r in verdict.rejections] == [
        "CAPABILITY",
        "HEAD_SIZE",
        "DTYPE",
        "NOT_HERE",
        "NOT_INSTALLED",
        "NOT_INSTALLED",
    ]


# -- what must be installed ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "outcome", "code", "observed"),
    [
        ("1.9", Outcome.UNAVAILABLE, "VERSION", "1.9"),
        ("2.0", Outcome.SELECTED, "", ""),
        ("2.1.dev3+cu130", Outcome.SELECTED, "", ""),
        (None, Outcome.UNAVAILABLE, "NOT_INSTALLED", "not installed"),
    ],
)
def test_a_version(
    build: Build, version: str | None, outcome: Outcome, code: str, observed: str
) -> None:
    selector = build.selector(build.entry(requires={"mylib": ">=2"}), facts=PROBES)
    answer = selector.bind("9.0", build.layer(), Facts({"mylib": version})).resolve(1, 1)
    verdict = answer.candidates[0].decode
    assert verdict.outcome is outcome
    if code:
        rejection = refusal(verdict)
        assert (rejection.code, rejection.observed, rejection.allowed) == (code, observed, ">=2")


def test_what_is_not_known_to_be_installed_is_a_condition(build: Build) -> None:
    selector = build.selector(
        build.entry("one", requires={"mylib": ">=2", "probe": True}),
        build.entry("two"),
        facts=PROBES,
    )
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert answer.decode.backend == "one"
    assert words(answer.decode.conditions) == ["mylib >=2", "probe true"]
    assert answer.decode.possible == ("one", "two")
    closed = selector.bind("9.0", build.layer(), closed_world=True).resolve(1, 1)
    assert closed.decode.backend == "two"
    assert closed.decode.conditions == ()
    assert candidate(closed, "one").decode.outcome is Outcome.UNAVAILABLE


# -- first matches and the unknown ---------------------------------------------------------------


def test_a_case_that_may_apply_is_a_condition_even_if_the_last_case_accepts(build: Build) -> None:
    cases = [{"when": {"probe": True}, "allow": [64]}, {"allow": [128]}]
    selector = build.selector(
        build.entry("one", accepts={"head_size": {"cases": cases}}), facts=PROBES
    )
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert candidate(answer, "one").decode.conditions[0].field == "probe"
    assert words(answer.decode.conditions) == ["probe not true"]
    on = selector.bind("9.0", build.layer(), Facts({"probe": True})).resolve(1, 1)
    assert on.decode.backend is None
    assert refusal(on.candidates[0].decode).allowed == "64"


def test_a_case_that_may_apply_is_a_condition_if_the_last_case_refuses(build: Build) -> None:
    cases = [{"when": {"probe": True}, "allow": [128]}, {"allow": [64]}]
    selector = build.selector(
        build.entry("one", accepts={"head_size": {"cases": cases}}), facts=PROBES
    )
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert words(answer.decode.conditions) == ["probe true"]


def test_cases_that_agree_leave_no_condition(build: Build) -> None:
    cases = [{"when": {"probe": True}, "allow": [64, 128]}, {"allow": [128, 256]}]
    selector = build.selector(
        build.entry("one", accepts={"head_size": {"cases": cases}}), facts=PROBES
    )
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert answer.decode.conditions == ()
    refused = selector.bind("9.0", build.layer(head_size=96)).resolve(1, 1)
    assert refused.candidates[0].decode.outcome is Outcome.UNSUPPORTED


def test_an_unknown_field_makes_its_set_a_condition(build: Build) -> None:
    selector = build.selector(build.entry(accepts={"head_size": [64, 128], "dtype": "any"}))
    answer = selector.bind("9.0", build.layer(head_size=..., dtype=...)).resolve(1, 1)
    assert words(answer.decode.conditions) == ["head_size 64, 128"]


def test_possible_values_that_all_fit_leave_no_condition(build: Build) -> None:
    selector = build.selector(build.entry(accepts={"head_size": {"multiple_of": 8, "max": 256}}))
    layer = with_sets(build.layer(), head_size=Domain.of(64, 128))
    assert selector.bind("9.0", layer).resolve(1, 1).decode.conditions == ()
    layer = with_sets(build.layer(), head_size=Domain.of(100, 128))
    answer = selector.bind("9.0", layer).resolve(1, 1)
    assert words(answer.decode.conditions) == ["head_size 128"]
    layer = with_sets(build.layer(), head_size=Domain.of(100, 300))
    answer = selector.bind("9.0", layer).resolve(1, 1)
    assert refusal(answer.candidates[0].decode).observed == "100, 300"


def test_a_list_that_may_be_the_first_to_hold(build: Build) -> None:
    """If it is the first and holds nothing that can be used, the second is not tried."""
    priorities = [
        {"when": {"probe": True}, "order": ["one"], "reason": "With the switch."},
        {"order": ["two"], "reason": "Without it."},
    ]
    entries = (build.entry("one"), build.entry("two"))
    selector = build.selector(*entries, priorities=priorities, facts=PROBES)
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert (answer.decode.backend, answer.decode.possible) == ("one", ("one", "two"))
    assert words(answer.decode.conditions) == ["probe true"]
    assert answer.decode.reason == "With the switch."
    refused = (build.entry("one", accepts={"head_size": 64}), build.entry("two"))
    selector = build.selector(*refused, priorities=priorities, facts=PROBES)
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert (answer.decode.backend, answer.decode.possible) == ("two", ("two",))
    assert words(answer.decode.conditions) == ["probe not true"]


def test_lists_that_lead_to_the_same_choice_leave_no_condition(build: Build) -> None:
    priorities = [
        {"when": {"probe": True}, "order": ["two", "one"], "reason": "With the switch."},
        {"order": ["two"], "reason": "Without it."},
    ]
    entries = (build.entry("one"), build.entry("two"))
    selector = build.selector(*entries, priorities=priorities, facts=PROBES)
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert (answer.decode.backend, answer.decode.conditions) == ("two", ())


def test_when_perhaps_no_list_holds_the_choice_depends_on_it(build: Build) -> None:
    priorities = [{"when": {"probe": True}, "order": ["one"], "reason": "With the switch."}]
    selector = build.selector(build.entry("one"), priorities=priorities, facts=PROBES)
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert words(answer.decode.conditions) == ["probe true"]
    off = selector.bind("9.0", build.layer(), Facts({"probe": False})).resolve(1, 1)
    assert (off.decode.backend, off.prefill.backend) == (None, None)
    assert candidate(off, "one").decode.outcome is Outcome.ELIGIBLE


def test_an_entry_in_no_list_is_judged_but_not_chosen(build: Build) -> None:
    priorities = [{"order": ["one"], "reason": "Only this one."}]
    selector = build.selector(build.entry("one"), build.entry("two"), priorities=priorities)
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert answer.decode.possible == ("one",)
    assert candidate(answer, "two").decode.outcome is Outcome.ELIGIBLE


def test_a_choice_says_which_list_and_which_place(build: Build) -> None:
    selector = build.selector(
        build.entry("one", accepts={"head_size": 64}), build.entry("two"), build.entry("three")
    )
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert (answer.decode.rank, answer.decode.of) == (2, 3)
    assert answer.decode.reason == "As listed."
    assert answer.decode.rule is not None


def test_lists_per_phase(build: Build) -> None:
    priorities = [{"order": ["one"], "decode": ["two"], "reason": "Two decodes faster."}]
    selector = build.selector(build.entry("one"), build.entry("two"), priorities=priorities)
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == ("one", "two")
    assert answer.backend == "one"


# -- denials -------------------------------------------------------------------------------------


def test_a_denial_that_may_apply_is_a_condition(build: Build) -> None:
    deny = [{"backend": "one", "when": {"probe": True}, "reason": "Driver bug."}]
    selector = build.selector(build.entry("one"), build.entry("two"), deny=deny, facts=PROBES)
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert answer.decode.possible == ("one", "two")
    assert words(answer.decode.conditions) == ["probe not true"]
    off = selector.bind("9.0", build.layer(), Facts({"probe": False})).resolve(1, 1)
    assert (off.decode.backend, off.decode.conditions) == ("one", ())
    on = selector.bind("9.0", build.layer(), Facts({"probe": True})).resolve(1, 1)
    assert on.decode.backend == "two"
    assert refusal(candidate(on, "one").decode).code == "DENIED"


def test_a_denial_without_condition_always_applies(build: Build) -> None:
    deny = [{"backend": "one", "reason": "Broken."}]
    selector = build.selector(build.entry("one"), deny=deny)
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert candidate(answer, "one").prefill.outcome is Outcome.DENIED


def test_what_cannot_apply_asks_for_nothing(build: Build) -> None:
    """One part that is known not to hold is enough, whatever the other part is."""
    elsewhere = {"capability": "12.x", "probe": True}
    met = {"when": {"probe": True}, "require": {"tp_size": 1}, "code": "TP", "reason": "One."}
    selector = build.selector(
        build.entry("one", constraints=[met]),
        deny=[{"backend": "one", "when": elsewhere, "reason": "Driver bug."}],
        facts=PROBES,
    )
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert answer.decode.conditions == ()
    there = selector.bind("12.0", build.layer()).resolve(1, 1)
    assert words(there.decode.conditions) == ["probe not true"]
    on_two = selector.bind("9.0", build.layer(tp_size=2)).resolve(1, 1)
    assert words(on_two.decode.conditions) == ["probe not true"]


# -- forced backends -----------------------------------------------------------------------------


def test_a_forced_backend_is_taken_whatever_the_lists_say(build: Build) -> None:
    selector = build.selector(build.entry("one"), build.entry("two"))
    bound = selector.bind("9.0", build.layer(), policy=Policy(backend="two"))
    answer = bound.resolve(1, 1)
    assert (answer.prefill.backend, answer.decode.backend) == ("two", "two")
    assert answer.decode.reason == "forced by the caller"
    assert (answer.decode.rank, answer.decode.of) == (0, 1)
    assert candidate(answer, "one").decode.outcome is Outcome.ELIGIBLE


def test_a_forced_backend_that_cannot_run_is_not_replaced(build: Build) -> None:
    selector = build.selector(build.entry("one"), build.entry("two", accepts={"head_size": 64}))
    bound = selector.bind("9.0", build.layer(), policy=Policy(backend="two"))
    answer = bound.resolve(1, 1)
    assert (answer.prefill.backend, answer.decode.backend) == (None, None)
    assert refusal(candidate(answer, "two").decode).nearest == "64"


def test_a_forced_backend_that_serves_one_phase_leaves_the_other_to_the_lists(
    build: Build,
) -> None:
    selector = build.selector(build.entry("one"), build.entry("two", phases=DECODE_ONLY))
    bound = selector.bind("9.0", build.layer(), policy=Policy(backend="two"))
    answer = bound.resolve(1, 1)
    assert (answer.prefill.backend, answer.decode.backend) == ("one", "two")


def test_a_backend_forced_for_a_phase_it_does_not_serve_is_not_replaced(build: Build) -> None:
    selector = build.selector(build.entry("one"), build.entry("two", phases=DECODE_ONLY))
    for policy in (
        Policy(prefill_backend="two"),
        Policy(backend="one", prefill_backend="two"),
    ):
        answer = selector.bind("9.0", build.layer(), policy=policy).resolve(1, 1)
        assert (answer.prefill.backend, answer.decode.backend) == (None, "one")
        assert refusal(candidate(answer, "two").prefill).code == "PHASE"


def test_one_backend_forced_for_each_phase(build: Build) -> None:
    selector = build.selector(build.entry("one"), build.entry("two"), build.entry("three"))
    policy = Policy(backend="one", prefill_backend="two", decode_backend="three")
    answer = selector.bind("9.0", build.layer(), policy=policy).resolve(1, 1)
    assert (answer.prefill.backend, answer.decode.backend) == ("two", "three")


@pytest.mark.parametrize(
    "policy",
    [
        Policy({"fo": "typo"}),
        Policy(backend="fo"),
        Policy(prefill_backend="fo"),
        Policy(decode_backend="fo"),
    ],
)
def test_a_policy_that_names_no_backend_is_refused(build: Build, policy: Policy) -> None:
    selector = build.selector(build.entry("foo"))
    bound = selector.bind("9.0", build.layer(), policy=policy)
    with pytest.raises(UnknownBackendError, match='no backend is called "fo"; did you mean foo'):
        bound.resolve(1, 1)
    with pytest.raises(UnknownBackendError):
        bound.resolve_batch([Request(1, 1)])


def test_a_name_like_no_other_has_no_suggestion(build: Build) -> None:
    bound = build.selector().bind("9.0", build.layer(), policy=Policy(backend="zzzzzz"))
    with pytest.raises(UnknownBackendError, match=r'^no backend is called "zzzzzz"$'):
        bound.resolve(1, 1)


# -- two backends on one cache -------------------------------------------------------------------

SAME_LAYOUT = [{"same": ["kv_layout"], "reason": "One cache."}]


def test_the_next_prefill_is_tried_when_layouts_clash(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=PREFILL_ONLY, kv_layout=["HND"]),
        build.entry("two", phases=PREFILL_ONLY, kv_layout=["NHD", "HND"]),
        build.entry("three", phases=DECODE_ONLY, kv_layout=["NHD"]),
        joint=SAME_LAYOUT,
    )
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == ("two", "three")
    assert answer.prefill.conditions == ()
    verdict = candidate(answer, "one").prefill
    assert verdict.outcome is Outcome.UNSUPPORTED
    rejection = refusal(verdict)
    assert (rejection.code, rejection.field, rejection.reason) == (
        "JOINT",
        "kv_layout",
        "One cache.",
    )
    assert (rejection.observed, rejection.allowed) == ("HND", "NHD (decode runs three)")


def test_a_decode_that_no_prefill_goes_with_is_passed_over(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, kv_layout=["HND"]),
        build.entry("two", phases=DECODE_ONLY, kv_layout=["NHD"]),
        build.entry("three", phases=PREFILL_ONLY, kv_layout=["NHD"]),
        joint=SAME_LAYOUT,
    )
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == ("three", "two")
    rejection = refusal(candidate(answer, "one").decode)
    assert (rejection.observed, rejection.allowed) == ("HND", "NHD (prefill runs three)")


def test_without_any_pair_decode_is_chosen_alone(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, kv_layout=["HND"]),
        build.entry("two", phases=PREFILL_ONLY, kv_layout=["NHD"]),
        joint=SAME_LAYOUT,
    )
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == (None, "one")
    assert refusal(candidate(answer, "two").prefill).code == "JOINT"
    assert candidate(answer, "one").decode.outcome is Outcome.SELECTED


def test_an_entry_without_a_layout_goes_with_every_layout(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, kv_layout=["HND"]),
        build.entry("two", phases=PREFILL_ONLY),
        joint=SAME_LAYOUT,
    )
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == ("two", "one")


def test_a_clash_with_a_decode_that_is_not_certain_is_no_refusal(build: Build) -> None:
    """If the first decode is not there, the second one's layout counts."""
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, kv_layout=["HND"], requires={"probe": True}),
        build.entry("two", phases=DECODE_ONLY, kv_layout=["NHD"]),
        build.entry("three", phases=PREFILL_ONLY, kv_layout=["NHD"]),
        build.entry("four", phases=PREFILL_ONLY, kv_layout=["HND"]),
        joint=SAME_LAYOUT,
        facts=PROBES,
    )
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == ("four", "one")
    assert candidate(answer, "three").prefill.outcome is Outcome.ELIGIBLE
    assert answer.prefill.possible == ("four", "three")
    assert words(answer.prefill.conditions) == ["probe true"]
    off = selector.bind("9.0", build.layer(), Facts({"probe": False})).resolve(9, 9)
    assert (off.prefill.backend, off.decode.backend) == ("three", "two")


def test_a_decode_depends_on_the_prefill_it_needs(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, kv_layout=["HND"]),
        build.entry("two", phases=DECODE_ONLY, kv_layout=["NHD"]),
        build.entry("three", phases=PREFILL_ONLY, kv_layout=["HND"], requires={"probe": True}),
        build.entry("four", phases=PREFILL_ONLY, kv_layout=["NHD"]),
        joint=SAME_LAYOUT,
        facts=PROBES,
    )
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == ("three", "one")
    assert words(answer.decode.conditions) == ["probe true"]
    assert answer.decode.possible == ("one", "two")


def test_no_prefill_is_left_unless_decode_is_not_there_either(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, kv_layout=["HND"], requires={"probe": True}),
        build.entry("two", phases=PREFILL_ONLY, kv_layout=["NHD"]),
        joint=SAME_LAYOUT,
        facts=PROBES,
    )
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.prefill.possible) == (None, ("two",))
    assert words(answer.prefill.conditions) == ["probe true"]
    off = selector.bind("9.0", build.layer(), Facts({"probe": False})).resolve(9, 9)
    assert off.prefill.backend == "two"


def test_a_joint_rule_that_may_apply_is_a_condition(build: Build) -> None:
    joint = [{**SAME_LAYOUT[0], "when": {"probe": True}}]
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, kv_layout=["HND"]),
        build.entry("two", phases=PREFILL_ONLY, kv_layout=["NHD"]),
        joint=joint,
        facts=PROBES,
    )
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == ("two", "one")
    assert words(answer.prefill.conditions) == ["probe not true"]
    assert answer.decode.conditions == ()
    off = selector.bind("9.0", build.layer(), Facts({"probe": False})).resolve(9, 9)
    assert off.prefill.conditions == ()


def test_both_phases_by_one_backend(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY),
        build.entry("two"),
        joint=[{"same": ["backend"], "reason": "One engine."}],
    )
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == ("two", "two")
    assert refusal(candidate(answer, "one").decode).allowed == "two (prefill runs two)"


TO_FP8 = {"kv_cache_dtype": [{"value": "fp8_e4m3", "reason": "What it stores."}]}
SAME_KIND = [{"same": ["kv_cache_dtype"], "reason": "One cache."}]


def test_what_is_stored_must_be_the_same(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, coerce=TO_FP8),
        build.entry("two", phases=PREFILL_ONLY),
        build.entry("three", phases=PREFILL_ONLY, coerce=TO_FP8),
        joint=SAME_KIND,
    )
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == ("three", "one")
    rejection = refusal(candidate(answer, "two").prefill)
    assert (rejection.observed, rejection.allowed) == ("auto", "fp8_e4m3 (decode runs one)")
    answer = selector.bind("9.0", build.layer(kv_cache_dtype="fp8_e4m3")).resolve(9, 9)
    assert answer.prefill.backend == "two"


def test_what_is_stored_may_be_the_same(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, coerce=TO_FP8),
        build.entry("two", phases=PREFILL_ONLY),
        joint=SAME_KIND,
    )
    answer = selector.bind("9.0", build.layer(kv_cache_dtype=...)).resolve(9, 9)
    assert answer.prefill.backend == "two"
    assert words(answer.prefill.conditions) == ["kv_cache_dtype fp8_e4m3 for two"]


def test_what_is_stored_is_the_same_when_nobody_changes_it(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY),
        build.entry("two", phases=PREFILL_ONLY),
        joint=SAME_KIND,
    )
    answer = selector.bind("9.0", build.layer(kv_cache_dtype=...)).resolve(9, 9)
    assert (answer.prefill.backend, answer.prefill.conditions) == ("two", ())


def test_each_phase_depends_on_its_own_needs(build: Build) -> None:
    """Where nothing is shared, what one phase needs is no condition of the other."""
    entries = (
        build.entry("one", phases=DECODE_ONLY, requires={"probe": True}),
        build.entry("two", phases=PREFILL_ONLY, requires={"other": True}),
        build.entry("three"),
    )
    for joint in ([], SAME_LAYOUT):
        selector = build.selector(*entries, facts=PROBES, joint=joint)
        answer = selector.bind("9.0", build.layer()).resolve(9, 9)
        assert words(answer.decode.conditions) == ["probe true"]
        assert words(answer.prefill.conditions) == ["other true"]


def test_a_joint_rule_that_does_not_apply_asks_for_nothing(build: Build) -> None:
    joint = [{"when": {"tp_size": 8}, "same": ["kv_cache_dtype"], "reason": "One cache."}]
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, coerce=TO_FP8),
        build.entry("two", phases=PREFILL_ONLY),
        joint=joint,
    )
    for tp_size, conditions in ((1, []), (8, ["kv_cache_dtype fp8_e4m3 for two"])):
        layer = build.layer(kv_cache_dtype=..., tp_size=tp_size)
        answer = selector.bind("9.0", layer).resolve(9, 9)
        assert words(answer.prefill.conditions) == conditions


def test_a_joint_rule_that_may_apply_asks_for_nothing_that_holds(build: Build) -> None:
    joint = [{**SAME_LAYOUT[0], "when": {"probe": True}}]
    entries = (
        build.entry("one", phases=DECODE_ONLY, kv_layout=["HND"]),
        build.entry("two", phases=PREFILL_ONLY, kv_layout=["HND"]),
    )
    selector = build.selector(*entries, joint=joint, facts=PROBES)
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.prefill.conditions) == ("two", ())


FP8_BY_NAME = {"kv_cache_dtype": [{"when": {"kv_cache_dtype": "fp8"}, "value": "fp8_e4m3"}]}
FP8_BY_NAME["kv_cache_dtype"].append({"value": "same"})
AUTO_TO_FP8 = {"kv_cache_dtype": [{"when": {"kv_cache_dtype": "auto"}, "value": "fp8"}]}
AUTO_TO_FP8["kv_cache_dtype"].append({"value": "same"})


def test_what_is_stored_is_compared_as_each_backend_changes_it(build: Build) -> None:
    selector = build.selector(
        build.entry("one", phases=DECODE_ONLY, coerce=FP8_BY_NAME),
        build.entry("two", phases=PREFILL_ONLY, coerce=TO_FP8),
        build.entry("three", phases=PREFILL_ONLY, coerce=AUTO_TO_FP8),
        joint=SAME_KIND,
    )
    both = selector.bind("9.0", build.layer(kv_cache_dtype="fp8")).resolve(9, 9)
    assert (both.prefill.backend, both.prefill.conditions) == ("two", ())
    assert refusal(candidate(both, "three").prefill).observed == "fp8"
    other = selector.bind("9.0", build.layer(kv_cache_dtype="nvfp4")).resolve(9, 9)
    assert (other.prefill.backend, other.prefill.conditions) == ("three", ())
    # each can store either of two, and not the same one for the same request
    some = with_sets(build.layer(), kv_cache_dtype=Domain.of("auto", "nvfp4"))
    maybe = selector.bind("9.0", some).resolve(9, 9)
    assert maybe.prefill.backend == "three"
    assert [c.field for c in maybe.prefill.conditions] == ["kv_cache_dtype"]


# -- invariants ----------------------------------------------------------------------------------


def test_an_answer_that_breaks_an_invariant_says_so(build: Build) -> None:
    never = {"name": "no mha on eight", "when": {"tp_size": 8}, "never": {"path": ["mha"]}}
    nor_two = {"name": "no two", "never": {"backend": ["two"]}}
    invariants = [{**never, "reason": "It hangs."}, {**nor_two, "reason": "It leaks."}]
    selector = build.selector(build.entry("one"), build.entry("two"), invariants=invariants)
    broken = 'breaks the invariant "no mha on eight": It hangs.'
    for tp_size, policy, notes in (
        (1, Policy(), ()),
        (8, Policy(), (broken,)),
        (..., Policy(), ()),
        (1, Policy(backend="two"), ('breaks the invariant "no two": It leaks.',)),
        (1, Policy(decode_backend="two"), ('breaks the invariant "no two": It leaks.',)),
    ):
        layer = build.layer() if tp_size is ... else build.layer(tp_size=tp_size)
        if tp_size is ...:
            layer = with_sets(layer, tp_size=Domain.of(1, 8))
        assert selector.bind("9.0", layer, policy=policy).resolve(9, 9).notes == notes


# -- phases and thresholds -----------------------------------------------------------------------


def test_a_phase_that_is_not_listed_is_not_there(build: Build) -> None:
    selector = build.selector(build.entry("one", phases=DECODE_ONLY))
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert answer.prefill.backend is None
    assert answer.decode.backend == "one"
    rejection = refusal(candidate(answer, "one").prefill)
    assert (rejection.code, rejection.reason) == ("PHASE", "does not serve prefill")


def test_a_phase_has_its_own_sets_and_more_constraints(build: Build) -> None:
    no_sink = {"when": {"sink": True}, "code": "SINKS", "reason": "No sinks in decode."}
    entry = build.entry(
        accepts={"head_size": [64, 128], "sink": "any"},
        constraints=[
            {"when": {"tp_size": 8}, "require": {"num_heads": {"min": 8}}, "code": "FEW_HEADS"}
            | {"reason": "Eight at least."}
        ],
        phases={"prefill": {"accepts": {"head_size": [256]}}, "decode": {"constraints": [no_sink]}},
    )
    bound = build.selector(entry).bind("9.0", build.layer(sink=True, tp_size=8, num_heads=4))
    (found,) = bound.resolve(1, 1).candidates
    assert [r.code for r in found.prefill.rejections] == ["HEAD_SIZE", "FEW_HEADS"]
    assert [r.code for r in found.decode.rejections] == ["FEW_HEADS", "SINKS"]


@pytest.mark.parametrize(
    ("query_len", "more", "phase"),
    [(1, 0, Phase.DECODE), (4, 0, Phase.DECODE), (5, 0, Phase.PREFILL), (5, 4, Phase.DECODE)],
)
def test_a_decode_is_no_longer_than_the_threshold(
    build: Build, query_len: int, more: int, phase: Phase
) -> None:
    selector = build.selector(build.entry(decode_threshold=4))
    answer = selector.bind("9.0", build.layer()).resolve(query_len, 9, speculative_tokens=more)
    assert answer.phase is phase
    assert answer.decode.decode_threshold == max(4, 1 + more)


def test_a_threshold_by_cases(build: Build) -> None:
    cases = [{"when": {"num_heads": {"max": 16}}, "value": 8}, {"value": 1}]
    selector = build.selector(build.entry(decode_threshold={"cases": cases}))
    few = selector.bind("9.0", build.layer(num_heads=16)).resolve(8, 8)
    assert (few.phase, few.decode.decode_threshold) == (Phase.DECODE, 8)
    many = selector.bind("9.0", build.layer(num_heads=32)).resolve(8, 8)
    assert (many.phase, many.decode.decode_threshold) == (Phase.PREFILL, 1)
    unknown = selector.bind("9.0", build.layer())
    assert unknown.resolve(8, 8).phase is None
    assert unknown.resolve(8, 8).decode.decode_threshold is None
    assert unknown.resolve(1, 8).phase is Phase.DECODE
    assert unknown.resolve(9, 9).phase is Phase.PREFILL


def test_without_lengths_the_phase_is_unknown(build: Build) -> None:
    bound = build.selector().bind("9.0", build.layer())
    answer = bound.resolve()
    assert answer.phase is None
    assert answer.backend == "one"
    assert (answer.prefill.path, answer.decode.path) == ("mha", "mha")
    assert bound.resolve(seq_len=9).phase is None
    assert bound.resolve(query_len=9).phase is Phase.PREFILL


def test_without_a_decode_backend_the_phase_is_unknown(build: Build) -> None:
    selector = build.selector(build.entry(phases=PREFILL_ONLY))
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert (answer.phase, answer.decode.decode_threshold) == (None, None)
    assert (answer.backend, answer.prefill.path) == ("one", "mha")
    (again,) = selector.bind("9.0", build.layer()).resolve_batch([Request(1, 1)])
    assert again == answer


# -- paths ---------------------------------------------------------------------------------------


def sparse_entry(build: Build, paths: list[dict[str, Any]], **keys: Any) -> dict[str, Any]:
    last = {"path": "sparse_mqa", "reason": "The rest."}
    keys = {"dense_prefill": True, "accepts": {"capability": ["9.0"]}, **keys}
    return build.entry(mla=True, sparse=True, prefill_paths=[*paths, last], **keys)


SHORT = {"path": "dense_mha", "when": {"seq_len": {"max": 2048}}, "reason": "Short."}


@pytest.mark.parametrize(
    ("seq_len", "contract", "paths"),
    [
        (2048, True, ("dense_mha",)),
        (2049, True, ("sparse_mqa",)),
        (2048, False, ("sparse_mqa",)),
        (2048, None, ("dense_mha", "sparse_mqa")),
        (None, True, ("dense_mha", "sparse_mqa")),
        (None, False, ("sparse_mqa",)),
    ],
)
def test_a_dense_path_needs_the_word_of_the_entry_and_of_the_layer(
    build: Build, seq_len: int | None, contract: bool | None, paths: tuple[str, ...]
) -> None:
    said = {} if contract is None else {"dense_prefill": contract}
    layer = build.layer(mla=True, sparse=True, **said)
    answer = build.selector(sparse_entry(build, [SHORT])).bind("9.0", layer).resolve(8, seq_len)
    assert answer.prefill.paths == paths
    assert answer.prefill.path == (paths[0] if len(paths) == 1 else None)
    off = [(o.path, o.outcome) for o in answer.off]
    assert off == ([("dense_mha", Outcome.UNSUPPORTED)] if contract is False else [])


@pytest.mark.parametrize("pinned", [True, False])
def test_a_dense_path_that_is_off_is_reported_with_its_rationale(
    build: Build, pinned: bool
) -> None:
    keys: dict[str, Any] = {"dense_prefill": False, "rationale": "It crashes."}
    keys |= {"evidence": ["https://example.org/1"], "revisit_when": "It is written."}
    if pinned:
        keys["pinned"] = ["dense_prefill"]
    layer = build.layer(mla=True, sparse=True, dense_prefill=True)
    bound = build.selector(sparse_entry(build, [SHORT], **keys)).bind("9.0", layer)
    answer = bound.resolve(8, 8)
    assert answer.prefill.path == "sparse_mqa"
    (off,) = answer.off
    assert off.outcome is (Outcome.PINNED if pinned else Outcome.UNSUPPORTED)
    assert (off.rationale, off.revisit_when) == ("It crashes.", "It is written.")
    assert off.evidence == ("https://example.org/1",)
    stated = bound.manifest.entries["one"]
    assert off.position == stated.dense_prefill_at != stated.position


@pytest.mark.parametrize(
    ("paths", "off"),
    [
        ([], ["dense_mha"]),
        ([SHORT], ["dense_mha"]),
        ([{**SHORT, "path": "masked_mha"}], ["masked_mha"]),
        ([SHORT, {**SHORT, "path": "masked_mha"}, SHORT], ["dense_mha", "masked_mha"]),
    ],
)
def test_every_dense_path_of_a_pinned_entry_is_off(
    build: Build, paths: list[dict[str, Any]], off: list[str]
) -> None:
    entry = sparse_entry(build, paths, dense_prefill=False, rationale="It crashes.")
    bound = build.selector(entry).bind("9.0", build.layer(mla=True, sparse=True))
    assert [o.path for o in bound.resolve(8, 8).off] == off


def test_a_last_path_that_is_off_leaves_no_path(build: Build) -> None:
    entry = build.entry(
        mla=True,
        sparse=True,
        dense_prefill=True,
        accepts={"capability": ["9.0"]},
        prefill_paths=[{"path": "masked_mha", "reason": "The only way."}],
    )
    selector = build.selector(entry)
    for contract, path, paths in (
        (True, "masked_mha", ("masked_mha",)),
        (False, None, ()),
        (..., None, ("masked_mha",)),
    ):
        layer = build.layer(mla=True, sparse=True, dense_prefill=contract)
        answer = selector.bind("9.0", layer).resolve(8, 8)
        assert (answer.prefill.path, answer.prefill.paths) == (path, paths)


def test_a_threshold_table(build: Build) -> None:
    steps = {"over": "seq_len", "least": "query_len"}
    steps["table"] = [{"max": 2048, "min": 512}, {"max": 8192, "min": 4096}]
    rule = {"path": "masked_mha", "steps": steps, "reason": "Measured."}
    layer = build.layer(mla=True, sparse=True, dense_prefill=True)
    bound = build.selector(sparse_entry(build, [rule])).bind("9.0", layer)
    for query, seq, path in (
        (512, 2048, "masked_mha"),
        (511, 2048, "sparse_mqa"),
        (4095, 8192, "sparse_mqa"),
        (4096, 8192, "masked_mha"),
        (8193, 8193, "sparse_mqa"),
    ):
        assert bound.resolve(query, seq).prefill.path == path
    assert bound.resolve(512).prefill.paths == ("masked_mha", "sparse_mqa")
    assert bound.resolve(seq_len=9000).prefill.path == "sparse_mqa"


def test_a_path_that_may_be_taken_twice_is_listed_once(build: Build) -> None:
    rules = [{**SHORT, "path": "sparse_mqa"}]
    layer = build.layer(mla=True, sparse=True)
    answer = build.selector(sparse_entry(build, rules)).bind("9.0", layer).resolve(8)
    assert (answer.prefill.path, answer.prefill.paths) == ("sparse_mqa", ("sparse_mqa",))


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ({"mla": False, "sparse": False}, "mha"),
        ({"mla": True, "sparse": False}, "mqa"),
        ({"mla": True, "sparse": True}, "sparse_mqa"),
        ({"mla": False, "sparse": True}, "sparse_mqa"),
    ],
)
def test_a_request_that_counts_as_a_decode_takes_the_path_of_decode(
    build: Build, kind: dict[str, bool], path: str
) -> None:
    entry = build.entry(decode_threshold=8, **kind)
    answer = build.selector(entry).bind("9.0", build.layer(**kind)).resolve(8, 8)
    assert (answer.phase, answer.prefill.path, answer.decode.path) == (Phase.DECODE, path, path)


# -- batches -------------------------------------------------------------------------------------


def test_a_rule_of_scope_batch_reads_the_longest_prefill(build: Build) -> None:
    rules = [{**SHORT, "scope": "batch"}, {**SHORT, "path": "masked_mha", "scope": "request"}]
    layer = build.layer(mla=True, sparse=True, dense_prefill=True)
    bound = build.selector(sparse_entry(build, rules)).bind("9.0", layer)
    short, long, decode = Request(64, 64), Request(64, 4096), Request(1, 9000)
    assert [a.prefill.path for a in bound.resolve_batch([short, short])] == ["dense_mha"] * 2
    answers = bound.resolve_batch([short, long, decode])
    assert [a.prefill.path for a in answers] == ["masked_mha", "sparse_mqa", "sparse_mqa"]
    assert [a.phase for a in answers] == [Phase.PREFILL, Phase.PREFILL, Phase.DECODE]
    beside_a_decode, _ = bound.resolve_batch([short, decode])
    assert beside_a_decode.prefill.path == "dense_mha"


MEASURE = {"kind": "mask_words", "small_tile": 128, "large_tile": 256, "word_align": 4}


def test_measures_of_a_batch(build: Build) -> None:
    rule = {"path": "masked_mha", "when": {"mask_words": {"max": 4096}}, "scope": "batch"}
    entry = sparse_entry(build, [{**rule, "reason": "The mask fits."}])
    layer = build.layer(mla=True, sparse=True, dense_prefill=True)
    bound = build.selector(entry, measures={"mask_words": MEASURE}).bind("9.0", layer)
    # 128 queries: one tile of 128 rows; 1024 keys: 32 words a row
    assert bound.resolve(128, 1152).prefill.path == "masked_mha"
    assert bound.resolve(128, 1153).prefill.path == "sparse_mqa"  # 33 words, aligned to 36
    assert bound.resolve(129, 640).prefill.path == "masked_mha"  # two hundred fifty-six rows
    assert bound.resolve(129, 642).prefill.path == "sparse_mqa"
    two = [Request(128, 128)] * 32  # 32 tiles of 128 rows of 4 words: 16,384
    assert {a.prefill.path for a in bound.resolve_batch(two)} == {"sparse_mqa"}
    assert bound.resolve(128).prefill.paths == ("masked_mha", "sparse_mqa")


def test_a_batch_has_context_when_one_of_its_prefills_has(build: Build) -> None:
    rules = [
        {"path": "dense_mha", "when": {"has_context": False}, "scope": "batch"},
        {"path": "masked_mha", "when": {"context_len": {"max": 64}}, "scope": "batch"},
    ]
    entry = sparse_entry(build, [{**rule, "reason": "As it is."} for rule in rules])
    layer = build.layer(mla=True, sparse=True, dense_prefill=True)
    bound = build.selector(entry).bind("9.0", layer)
    fresh, some, more = Request(64, 64), Request(64, 128), Request(64, 129)
    for requests, path in (
        ([fresh, fresh], "dense_mha"),
        ([fresh, some], "masked_mha"),
        ([fresh, some, more], "sparse_mqa"),
    ):
        assert {a.prefill.path for a in bound.resolve_batch(requests)} == {path}


def test_a_request_that_may_be_a_decode_may_be_missing_among_the_prefills(build: Build) -> None:
    cases = {"cases": [{"when": {"num_heads": {"max": 16}}, "value": 8}, {"value": 1}]}
    rule = {"path": "dense_mha", "when": {"num_prefills": {"min": 2}}, "scope": "batch"}
    entry = sparse_entry(build, [{**rule, "reason": "Two."}], decode_threshold=cases)
    layer = build.layer(mla=True, sparse=True, dense_prefill=True)
    bound = build.selector(entry).bind("9.0", layer)
    maybe, sure = bound.resolve_batch([Request(8, 8), Request(9, 9)])
    assert (maybe.phase, sure.phase) == (None, Phase.PREFILL)
    assert sure.prefill.paths == ("dense_mha", "sparse_mqa")  # there may be but one
    assert maybe.prefill.path == "dense_mha"  # if it is a prefill, there are two
    one, other = bound.resolve_batch([Request(8, 8), Request(7, 7)])
    assert one.prefill.paths == other.prefill.paths == ("dense_mha", "sparse_mqa")
    (alone,) = bound.resolve_batch([Request(8, 8)])
    assert alone.prefill.path == "sparse_mqa"


def test_only_leading_decodes_of_one_length_count_where_they_must_be_uniform(
    build: Build,
) -> None:
    lengths = [2, 2, 1, 2]
    requests = [Request(q, 9) for q in lengths]
    for uniform, phases in ((True, "DDPP"), (False, "DDDD")):
        entry = build.entry(decode_threshold=4, uniform_decodes=uniform)
        answers = build.selector(entry).bind("9.0", build.layer()).resolve_batch(requests)
        assert "".join(str(a.phase)[0].upper() for a in answers) == phases
    entry = build.entry(decode_threshold=1, uniform_decodes=True)
    answers = (
        build.selector(entry)
        .bind("9.0", build.layer())
        .resolve_batch([Request(9, 9), Request(1, 9), Request(1, 9)])
    )
    assert [a.phase for a in answers] == [Phase.PREFILL, Phase.DECODE, Phase.DECODE]


def test_uniform_decodes_with_an_unknown_threshold(build: Build) -> None:
    cases = {"cases": [{"when": {"num_heads": {"max": 16}}, "value": 8}, {"value": 1}]}
    entry = build.entry(decode_threshold=cases, uniform_decodes=True)
    bound = build.selector(entry).bind("9.0", build.layer())
    answers = bound.resolve_batch([Request(9, 9), Request(1, 9), Request(2, 9)])
    assert [a.phase for a in answers] == [Phase.PREFILL, None, None]


def test_a_batch_without_decode_or_prefill(build: Build) -> None:
    entry = build.entry(phases=DECODE_ONLY, uniform_decodes=True)
    bound = build.selector(entry).bind("9.0", build.layer())
    answers = bound.resolve_batch([Request(1, 1), Request(9, 9)])
    assert [a.phase for a in answers] == [Phase.DECODE, Phase.PREFILL]
    assert [a.prefill.path for a in answers] == [None, None]
    nothing = build.selector(build.entry(accepts={"head_size": 64}))
    answers = nothing.bind("9.0", build.layer()).resolve_batch([Request(1, 1), Request(9, 9)])
    assert [a.phase for a in answers] == [None, None]


@pytest.mark.parametrize("request_", [Request(), Request(1), Request(None, 1)])
def test_a_batch_needs_all_lengths(build: Build, request_: Request) -> None:
    bound = build.selector().bind("9.0", build.layer())
    with pytest.raises(ContradictionError, match="query_len and seq_len of every request"):
        bound.resolve_batch([Request(1, 1), request_])


def test_an_empty_batch(build: Build) -> None:
    assert build.selector().bind("9.0", build.layer()).resolve_batch([]) == ()


# -- coercions -----------------------------------------------------------------------------------


def coercions(answer: Resolution) -> list[tuple[str, str, str, str]]:
    return [(c.field, c.before, c.after, c.reason) for c in answer.decode.coercions]


def test_a_value_that_is_changed_is_judged_as_asked_and_reported(build: Build) -> None:
    rules = [
        {"when": {"kv_cache_dtype": "fp8"}, "value": "fp8_e4m3", "reason": "Its name for fp8."},
        {"value": "same"},
    ]
    entry = build.entry(
        accepts={"kv_cache_dtype": ["auto", "fp8"]}, coerce={"kv_cache_dtype": rules}
    )
    selector = build.selector(entry)
    answer = selector.bind("9.0", build.layer(kv_cache_dtype="fp8")).resolve(1, 1)
    assert answer.decode.backend == "one"
    assert coercions(answer) == [("kv_cache_dtype", "fp8", "fp8_e4m3", "Its name for fp8.")]
    assert answer.prefill.coercions == answer.decode.coercions
    assert answer.layer["kv_cache_dtype"] == "fp8"
    answer = selector.bind("9.0", build.layer()).resolve(1, 1)
    assert coercions(answer) == []
    answer = selector.bind("9.0", build.layer(kv_cache_dtype="fp8_e4m3")).resolve(1, 1)
    assert answer.candidates[0].decode.outcome is Outcome.UNSUPPORTED


def test_an_unknown_value_is_coerced_as_far_as_it_is_known(build: Build) -> None:
    rules = [{"when": {"kv_cache_dtype": "fp8"}, "value": "fp8_e4m3"}, {"value": "same"}]
    entry = build.entry(coerce={"kv_cache_dtype": rules})
    selector = build.selector(entry)
    answer = selector.bind("9.0", build.layer(kv_cache_dtype=...)).resolve(1, 1)
    assert coercions(answer) == []  # it can still be anything
    some = with_sets(build.layer(), kv_cache_dtype=Domain.of("fp8", "auto"))
    answer = selector.bind("9.0", some).resolve(1, 1)
    assert coercions(answer) == [("kv_cache_dtype", "auto, fp8", "auto, fp8, fp8_e4m3", "")]
    page = build.entry(coerce={"block_size": [{"value": 64}]})
    answer = build.selector(page).bind("9.0", build.layer(block_size=16)).resolve(1, 1)
    assert coercions(answer) == [("block_size", "16", "64", "")]


def test_the_layer_is_shown_as_it_was_asked(build: Build) -> None:
    fields = {
        "least": {"type": "capability", "role": "context", "description": "What it was built for."}
    }
    derive = {"grade": {"first_match": [{"value": 1}]}}
    measures = {"words": MEASURE}
    selector = build.selector(fields=fields, derive=derive, facts=PROBES, measures=measures)
    layer = with_sets(
        build.layer(selector, least="9.0", sliding_window=True), index_topk=Domain.of(1, 2)
    )
    shown = selector.bind("9.0", layer, Facts({"probe": True})).resolve(8, 8).layer
    assert shown["least"] == "9.0"
    assert shown["sliding_window"] == "any number"
    assert shown["index_topk"] == "1, 2"
    assert shown["sink"] is False
    assert shown["head_size"] == 128
    assert not {"grade", "probe", "query_len", "platform", "capability", "words"} & shown.keys()
    one = selector.bind("9.0", with_sets(layer, least=Domain.of(800, 900)), Facts()).resolve(8, 8)
    assert one.layer["least"] == "8.0, 9.0"
