"""Choosing: lists that decide one phase alone, which list decided, and one backend for both."""

from __future__ import annotations

from typing import Any

import pytest

from selector import Facts, Outcome, Policy, Resolution
from selector.values import Verdict

Build = Any  # the fixture of tests/conftest.py
Tree = dict[str, Any]
PROBE = {"probe": {"type": "boolean", "description": "A switch."}}


def verdicts(answer: Resolution, name: str) -> tuple[Verdict, Verdict]:
    """What became of a candidate in prefill and in decode."""
    (found,) = (c for c in answer.candidates if c.backend == name)
    return found.prefill, found.decode


def outcomes(answer: Resolution, name: str) -> tuple[Outcome, Outcome]:
    prefill, decode = verdicts(answer, name)
    return prefill.outcome, decode.outcome


def three(build: Build, *lists: Tree, **accepts: Any) -> Resolution:
    """The answer for entries one, two and three by these lists; ``one`` accepts only this."""
    entries = [build.entry("one", accepts=accepts), build.entry("two"), build.entry("three")]
    priorities = [{"reason": f"List {i}.", **stated} for i, stated in enumerate(lists, 1)]
    selector = build.selector(*entries, priorities=priorities)
    answer: Resolution = selector.bind("9.0", build.layer()).resolve(9, 9)
    return answer


# -- lists of one phase --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lists", "prefill", "decode"),
    [
        ([{"prefill": ["one"]}, {"decode": ["two"]}], ("one", 1), ("two", 2)),
        ([{"decode": ["one"]}, {"order": ["two"]}], ("two", 2), ("one", 1)),
        ([{"prefill": ["one"]}, {"order": ["two"]}], ("one", 1), ("two", 2)),
        ([{"order": ["one"]}, {"prefill": ["two"]}], ("one", 1), ("one", 1)),
        ([{"prefill": ["one"], "decode": ["two"]}], ("one", 1), ("two", 1)),
        ([{"prefill": ["one"], "order": ["two"]}], ("one", 1), ("two", 1)),
        (
            [{"when": {"mla": True}, "prefill": ["one"]}, {"order": ["two"]}],
            ("two", 2),
            ("two", 2),
        ),
        ([{"prefill": []}, {"order": ["two"]}], (None, 0), ("two", 2)),
        ([{"prefill": ["one"]}], ("one", 1), (None, 0)),
        ([{"decode": ["one"]}], (None, 0), ("one", 1)),
    ],
    ids=str,
)
def test_a_list_of_one_phase_says_nothing_of_the_other(
    build: Build, lists: list[Tree], prefill: tuple[str | None, int], decode: tuple[str | None, int]
) -> None:
    answer = three(build, *lists)
    for choice, (backend, place) in ((answer.prefill, prefill), (answer.decode, decode)):
        assert choice.backend == backend
        assert choice.reason == (f"List {place}." if place else None)


def test_the_first_list_of_a_phase_decides_it_even_if_nothing_in_it_fits(build: Build) -> None:
    answer = three(build, {"prefill": ["one"]}, {"order": ["two"]}, head_size=64)
    assert (answer.prefill.backend, answer.decode.backend) == (None, "two")
    assert answer.prefill.tried == ("one",)
    assert outcomes(answer, "two") == (Outcome.ELIGIBLE, Outcome.SELECTED)


def test_a_list_of_one_phase_that_may_hold_leaves_the_other_phase_certain(build: Build) -> None:
    priorities = [
        {"when": {"probe": True}, "prefill": ["two"], "reason": "With the switch."},
        {"order": ["one"], "reason": "Without it."},
    ]
    entries = (build.entry("one"), build.entry("two"))
    selector = build.selector(*entries, priorities=priorities, facts=PROBE)
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert answer.prefill.possible == ("two", "one")
    assert [c.field for c in answer.prefill.conditions] == ["probe"]
    assert (answer.decode.possible, answer.decode.conditions) == (("one",), ())


# -- which list decided --------------------------------------------------------------------------


def test_a_choice_says_what_was_tried(build: Build) -> None:
    """All of its list, taken or not; of those, the ones that serve the phase."""
    entries = (
        build.entry("one", accepts={"head_size": 64}),
        build.entry("two", phases={"decode": {}}),
        build.entry("three"),
        build.entry("elsewhere"),
    )
    priorities = [{"order": ["one", "two", "three"], "reason": "As listed."}]
    answer = (
        build.selector(*entries, priorities=priorities).bind("9.0", build.layer()).resolve(9, 9)
    )
    assert answer.prefill.tried == ("one", "three")
    assert answer.decode.tried == ("one", "two", "three")
    assert (answer.prefill.rank, answer.prefill.of) == (2, 2)


@pytest.mark.parametrize(
    ("said", "tried"),
    [({}, None), ({"probe": True}, ("one",)), ({"probe": False}, ())],
)
def test_what_is_tried_is_unknown_when_several_lists_can_decide(
    build: Build, said: dict[str, bool], tried: tuple[str, ...] | None
) -> None:
    priorities = [{"when": {"probe": True}, "order": ["one"], "reason": "With the switch."}]
    selector = build.selector(build.entry("one"), priorities=priorities, facts=PROBE)
    answer = selector.bind("9.0", build.layer(), Facts(said)).resolve(9, 9)
    assert (answer.prefill.tried, answer.decode.tried) == (tried, tried)


@pytest.mark.parametrize(
    ("policy", "tried"),
    [
        (Policy(backend="two"), (("two",), ("two",))),
        (Policy(prefill_backend="two"), (("two",), ("one", "two"))),
        (Policy(decode_backend="two"), (("one", "two"), ("two",))),
        (Policy({"one": "not today"}), (("one", "two"), ("one", "two"))),
    ],
    ids=str,
)
def test_what_is_forced_is_all_that_is_tried(
    build: Build, policy: Policy, tried: tuple[tuple[str, ...], ...]
) -> None:
    selector = build.selector(build.entry("one"), build.entry("two", accepts={"head_size": 64}))
    answer = selector.bind("9.0", build.layer(), policy=policy).resolve(9, 9)
    assert (answer.prefill.tried, answer.decode.tried) == tried


# -- one backend for both phases -----------------------------------------------------------------

ONE_ENGINE = [{"same": ["backend"], "reason": "One engine."}]


def test_an_entry_that_would_go_with_itself_is_not_refused(build: Build) -> None:
    """Another one is only preferred."""
    entries = (build.entry("one"), build.entry("two", requires={"probe": True}))
    selector = build.selector(*entries, joint=ONE_ENGINE, facts=PROBE)
    for said, outcome in (({"probe": True}, Outcome.ELIGIBLE), ({}, Outcome.CONDITIONAL)):
        answer = selector.bind("9.0", build.layer(), Facts(said)).resolve(9, 9)
        assert (answer.prefill.backend, answer.decode.backend) == ("one", "one")
        assert outcomes(answer, "two") == (outcome, outcome)
        assert all(v.rejections == () for v in verdicts(answer, "two"))


def test_an_entry_that_can_run_one_phase_only_does_not_go_with_another(build: Build) -> None:
    refuses = {"prefill": {}, "decode": {"accepts": {"head_size": 64}}}
    entries = (build.entry("one"), build.entry("two", phases=refuses))
    selector = build.selector(*entries, joint=ONE_ENGINE)
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    assert outcomes(answer, "two") == (Outcome.UNSUPPORTED, Outcome.UNSUPPORTED)
    prefill, decode = verdicts(answer, "two")
    assert [r.code for r in prefill.rejections] == ["JOINT"]
    assert prefill.rejections[0].allowed == "one (decode runs one)"
    assert [r.code for r in decode.rejections] == ["HEAD_SIZE"]


def test_an_entry_that_clashes_otherwise_is_refused_though_it_goes_with_itself(
    build: Build,
) -> None:
    joint = [{"same": ["kv_layout"], "reason": "One cache."}, *ONE_ENGINE]
    entries = (build.entry("one", kv_layout=["HND"]), build.entry("two", kv_layout=["NHD"]))
    answer = build.selector(*entries, joint=joint).bind("9.0", build.layer()).resolve(9, 9)
    prefill, _ = verdicts(answer, "two")
    assert prefill.outcome is Outcome.UNSUPPORTED
    assert [(r.code, r.field) for r in prefill.rejections] == [("JOINT", "kv_layout")]


@pytest.mark.parametrize(
    ("phases", "backend"),
    [({"decode": {}}, "two"), ({"prefill": {}}, "two"), ({"prefill": {}, "decode": {}}, "one")],
    ids=str,
)
def test_the_first_that_runs_both_phases_runs_them(
    build: Build, phases: Tree, backend: str
) -> None:
    entries = (build.entry("one", phases=phases), build.entry("two"), build.entry("three"))
    answer = build.selector(*entries, joint=ONE_ENGINE).bind("9.0", build.layer()).resolve(9, 9)
    assert (answer.prefill.backend, answer.decode.backend) == (backend, backend)


def test_what_is_unknown_of_one_backend_counts_for_both_phases(build: Build) -> None:
    entries = (build.entry("one", requires={"probe": True}), build.entry("two"))
    selector = build.selector(*entries, joint=ONE_ENGINE, facts=PROBE)
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    for choice in (answer.prefill, answer.decode):
        assert choice.possible == ("one", "two")
        assert [c.field for c in choice.conditions] == ["probe"]


def test_a_refusal_by_policy_or_by_the_other_backend_says_its_source(build: Build) -> None:
    joint = [{"same": ["kv_layout"], "reason": "One cache.", "source": "the code"}]
    deny = [{"backend": "three", "reason": "Broken.", "source": "an issue"}]
    entries = [build.entry("one", kv_layout=["HND"]), build.entry("two", kv_layout=["NHD"])]
    selector = build.selector(*entries, build.entry("three"), joint=joint, deny=deny)
    answer = selector.bind("9.0", build.layer()).resolve(9, 9)
    (clash,) = verdicts(answer, "two")[0].rejections
    (denied,) = verdicts(answer, "three")[0].rejections
    assert (clash.source, denied.source) == ("the code", "an issue")
