"""What a rule answers: yes, no or maybe; and what it says when it is not yes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from selector import Layer, Outcome, Selector
from selector.domains import Domain
from selector.errors import ContradictionError
from selector.fields import Vocabulary
from selector.rules import Allowed, Answer, Bound, Question, Steps, Test, When
from selector.values import Condition, Position, Rejection, Verdict

Build = Any  # the fixture of tests/conftest.py
HERE = Position("m.yaml", 1, 1)
NO, MAYBE, YES = Answer.NO, Answer.MAYBE, Answer.YES


def question(**values: Any) -> Question:
    return Question(Vocabulary(), values)


def within(field: str, *values: Any, bounds: tuple[Bound, ...] = ()) -> Test:
    return Test(field, Allowed(Domain.of(*values), bounds), HERE)


# -- questions -----------------------------------------------------------------------------------


def test_a_question_is_never_changed() -> None:
    asked = question(head_size=64)
    more = asked.plus({"head_size": 128, "sink": Domain.of(True, False)})
    assert asked.known("head_size") == 64
    assert more.known("head_size") == 128
    assert (more.known("sink"), more.text("sink")) == (None, "any")
    assert [name for name, _ in more.items()] == ["head_size", "sink"]
    assert (asked.text("head_size"), asked.text("sink")) == ("64", "unknown")
    assert question(query_len=3300).text("query_len") == "3,300"


def test_a_set_of_one_is_a_value() -> None:
    asked = question(head_size=Domain.of(64), sink=Domain.of(False))
    assert asked.known("head_size") == 64
    assert asked.known("sink") is False


# -- one test ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"head_size": 64}, YES),
        ({"head_size": 96}, NO),
        ({"head_size": Domain.of(64, 128)}, YES),
        ({"head_size": Domain.of(64, 96)}, MAYBE),
        ({"head_size": Domain.of(96, 97)}, NO),
        ({"head_size": Domain.between(65, 127)}, NO),
        ({}, MAYBE),
    ],
)
def test_a_set_of_possible_values_lies_in_a_set_wholly_partly_or_not(
    asked: dict[str, Any], answer: Answer
) -> None:
    assert within("head_size", 64, 128).answer(question(**asked)) is answer


def test_true_is_not_one() -> None:
    assert within("sink", True).answer(question(sink=True)) is YES
    assert within("tp_size", 1).answer(question(tp_size=1)) is YES
    assert within("tp_size", True).answer(question(tp_size=1)) is NO
    assert within("sink", 1).answer(question(sink=True)) is NO


def test_everything_and_nothing() -> None:
    assert within("head_size").answer(question()) is NO
    anything = Test("head_size", Allowed(Domain.between(None, None)), HERE)
    assert anything.answer(question()) is YES  # a head size is a number
    anything = Test("block_size", Allowed(Domain.between(None, None)), HERE)
    assert anything.answer(question()) is MAYBE  # a block size can be unset
    assert anything.answer(question(block_size="unset")) is NO


TOPK = Bound(high="index_topk")


@pytest.mark.parametrize(
    ("bound", "asked", "answer"),
    [
        (TOPK, {"seq_len": 2048, "index_topk": 2048}, YES),
        (TOPK, {"seq_len": 2049, "index_topk": 2048}, NO),
        (TOPK, {"seq_len": 2049, "index_topk": "absent"}, NO),
        (TOPK, {"seq_len": 2049}, MAYBE),
        (TOPK, {"seq_len": 2049, "index_topk": Domain.of(2048, 4096)}, MAYBE),
        (TOPK, {"index_topk": 2048}, MAYBE),
        (TOPK, {"seq_len": Domain.of(1, 2), "index_topk": 2048}, YES),
        (Bound("index_topk"), {"seq_len": 2048, "index_topk": 2048}, YES),
        (Bound("index_topk"), {"seq_len": 2047, "index_topk": 2048}, NO),
        (Bound("index_topk"), {"seq_len": 2047, "index_topk": "absent"}, NO),
        (Bound(9, "index_topk"), {"seq_len": 8}, NO),
        (Bound(9, "index_topk"), {"seq_len": 9}, MAYBE),
        (Bound(None, "index_topk", 8), {"seq_len": 9}, NO),
        (Bound("tp_size", "index_topk"), {"seq_len": 5, "tp_size": 4, "index_topk": 8}, YES),
        (Bound("tp_size", "index_topk"), {"seq_len": 5, "tp_size": 8, "index_topk": 4}, NO),
    ],
)
def test_a_bound_taken_from_another_field(
    bound: Bound, asked: dict[str, Any], answer: Answer
) -> None:
    assert within("seq_len", bounds=(bound,)).answer(question(**asked)) is answer


def test_a_bound_beside_values() -> None:
    either = within("block_size", "unset", 16, bounds=(Bound(high="index_topk"),))
    asked = {"index_topk": 8}
    assert either.answer(question(block_size="unset", **asked)) is YES
    assert either.answer(question(block_size=16)) is YES
    assert either.answer(question(block_size=8, **asked)) is YES
    assert either.answer(question(block_size=9, **asked)) is NO
    assert either.answer(question(block_size=9)) is MAYBE
    assert Bound("tp_size", 9).ends == ("tp_size",)


# -- what a refusal says -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "asked", "observed", "allowed", "nearest"),
    [
        (within("head_size", 64, 128), {"head_size": 96}, "96", "64, 128", "64"),
        (within("head_size", 64, 128), {"head_size": Domain.of(1, 2)}, "1, 2", "64, 128", None),
        (within("dtype", "float16"), {"dtype": "bfloat16"}, "bfloat16", "float16", "float16"),
        (within("block_size", "unset"), {"block_size": 16}, "16", "unset", "unset"),
        (within("block_size"), {"block_size": 16}, "16", "nothing", None),
        (within("sink", False), {"sink": True}, "true", "false", "false"),
        (within("capability", 900), {"capability": 1200}, "12.0", "9.0", "9.0"),
        (
            Test("head_size", Allowed(Domain.between(None, None, 8)), HERE),
            {"head_size": 3},
            "3",
            "multiples of 8",
            "8",
        ),
        (
            within("seq_len", bounds=(TOPK,)),
            {"seq_len": 3300, "index_topk": 2048},
            "3,300",
            "up to 2,048",
            "2,048",
        ),
    ],
)
def test_a_refusal_says_what_was_seen_allowed_and_nearest(
    of: Test, asked: dict[str, Any], observed: str, allowed: str, nearest: str | None
) -> None:
    rejection = of.rejection(question(**asked), reason="So it is.")
    assert (rejection.observed, rejection.allowed) == (observed, allowed)
    assert rejection.nearest == nearest
    assert rejection.code == of.field.upper()
    assert (rejection.field, rejection.position) == (of.field, HERE)
    assert rejection.reason == "So it is."


def test_a_condition_says_what_is_possible_and_allowed() -> None:
    asked = question(head_size=Domain.of(64, 96))
    assert within("head_size", 64, 128).condition(asked) == Condition("head_size", "64", HERE)
    assert within("head_size", 64, 128).counter(asked) == Condition("head_size", "not 64", HERE)


# -- several tests -------------------------------------------------------------------------------


def test_all_must_hold() -> None:
    when = When((within("sink", True), within("tp_size", 8)))
    assert when.answer(question(sink=True, tp_size=8)) is YES
    assert when.answer(question(sink=True)) is MAYBE
    assert when.answer(question(sink=False)) is NO
    assert [t.field for t in when.doubtful(question(sink=True))] == ["tp_size"]
    assert When().answer(question()) is YES


STEPS = Steps("seq_len", "query_len", ((64, 8), (128, 32)), HERE)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ({"seq_len": 64, "query_len": 8}, YES),
        ({"seq_len": 64, "query_len": 7}, NO),
        ({"seq_len": 65, "query_len": 31}, NO),
        ({"seq_len": 65, "query_len": 32}, YES),
        ({"seq_len": 128, "query_len": 32}, YES),
        ({"seq_len": 129, "query_len": 129}, NO),
        ({"seq_len": 64}, MAYBE),
        ({"query_len": 9}, MAYBE),
        ({"query_len": 7}, NO),
        ({"seq_len": Domain.between(1, 64), "query_len": 8}, YES),
        ({"seq_len": Domain.between(129, None)}, NO),
    ],
)
def test_the_first_row_that_is_long_enough_decides(asked: dict[str, Any], answer: Answer) -> None:
    assert STEPS.answer(question(**asked)) is answer


def test_a_later_row_does_not_help_where_an_earlier_one_decides() -> None:
    steps = Steps("seq_len", "query_len", ((64, 32), (128, 8)), HERE)
    assert steps.answer(question(seq_len=64, query_len=31)) is NO
    assert steps.answer(question(seq_len=65, query_len=31)) is YES
    assert steps.answer(question(seq_len=1, query_len=32)) is YES


# -- constraints, as an entry states them --------------------------------------------------------

PROBES = {p: {"type": "boolean", "description": "A switch."} for p in ("probe", "other")}


def judged(build: Build, rule: dict[str, Any], **layer: Any) -> Verdict:
    """What an entry with this constraint says to a layer; the probes are unknown."""
    entry = build.entry(constraints=[{"code": "CLASH", "reason": "They clash.", **rule}])
    selector: Selector = build.selector(entry, facts=PROBES)
    sets = {k: v for k, v in layer.items() if isinstance(v, Domain)}
    plain = {k: v for k, v in layer.items() if k not in sets}
    whole = Layer(MappingProxyType({**build.layer(**plain).fields, **sets}))
    (candidate,) = selector.bind("9.0", whole).resolve(1, 1).candidates
    return candidate.decode


def only(verdict: Verdict) -> Rejection:
    assert verdict.outcome is Outcome.UNSUPPORTED
    (rejection,) = verdict.rejections
    assert (rejection.code, rejection.reason) == ("CLASH", "They clash.")
    return rejection


def words(verdict: Verdict) -> list[str]:
    assert verdict.conditions
    return [f"{c.field} {c.allowed}" for c in verdict.conditions]


def test_never(build: Build) -> None:
    rule = {"when": {"tp_size": 8}}
    rejection = only(judged(build, rule, tp_size=8))
    assert (rejection.field, rejection.observed, rejection.allowed) == (None, "tp_size 8", "never")
    assert judged(build, rule, tp_size=4) == Verdict(Outcome.SELECTED)
    both = {"when": {"tp_size": 8, "pp_size": 2}}
    rejection = only(judged(build, both, tp_size=8, pp_size=2))
    assert (rejection.observed, rejection.allowed) == ("tp_size 8, pp_size 2", "never together")
    maybe = judged(build, both, tp_size=8, pp_size=Domain.of(1, 2))
    assert words(maybe) == ["pp_size not 2"]


def test_require(build: Build) -> None:
    rule = {"when": {"tp_size": 8}, "require": {"num_heads": [8, 16], "pp_size": 1}}
    assert judged(build, rule, tp_size=4, num_heads=9) == Verdict(Outcome.SELECTED)
    assert judged(build, rule, tp_size=8, num_heads=16) == Verdict(Outcome.SELECTED)
    assert judged(build, rule, tp_size=4) == Verdict(Outcome.SELECTED)  # heads do not matter
    rejection = only(judged(build, rule, tp_size=8, num_heads=9))
    assert (rejection.field, rejection.observed) == ("num_heads", "9")
    assert (rejection.allowed, rejection.nearest) == ("8, 16", "8")
    several = judged(build, rule, tp_size=8, num_heads=9, pp_size=2)
    assert [r.field for r in several.rejections] == ["num_heads", "pp_size"]


def test_require_of_what_is_unknown(build: Build) -> None:
    rule = {"when": {"tp_size": 8}, "require": {"num_heads": [8, 16], "probe": True}}
    assert words(judged(build, rule, tp_size=8)) == ["num_heads 8, 16", "probe true"]
    # what is refused for certain is no condition, and what may be met is no refusal
    rejection = only(judged(build, rule, tp_size=8, num_heads=9))
    assert rejection.field == "num_heads"
    # refused if the rule applies: then it must not
    maybe = judged(build, rule, tp_size=Domain.of(4, 8), num_heads=9)
    assert words(maybe) == ["tp_size not 8"]


def test_one_of_several_must_hold(build: Build) -> None:
    rule = {
        "when": {"tp_size": 8},
        "require": {"any_of": [{"num_heads": 8}, {"num_heads": 16, "pp_size": 1}]},
    }
    assert judged(build, rule, tp_size=8, num_heads=8, pp_size=2) == Verdict(Outcome.SELECTED)
    assert judged(build, rule, tp_size=8, num_heads=16) == Verdict(Outcome.SELECTED)
    rejection = only(judged(build, rule, tp_size=8, num_heads=32))
    assert (rejection.field, rejection.allowed, rejection.nearest) == ("num_heads", "8, 16", "16")
    several = judged(build, rule, tp_size=8, num_heads=16, pp_size=2)
    assert [(r.field, r.allowed) for r in several.rejections] == [
        ("num_heads", "8"),
        ("pp_size", "1"),
    ]


def test_one_of_several_that_are_unknown(build: Build) -> None:
    ways = [{"probe": True}, {"num_heads": 8, "other": True}]
    rule = {"when": {"tp_size": 8}, "require": {"any_of": ways}}
    assert words(judged(build, rule, tp_size=8, num_heads=9)) == ["probe true"]
    assert words(judged(build, rule, tp_size=8, num_heads=8)) == ["probe true", "other true"]
    both = {"when": {"tp_size": 8}, "require": {"pp_size": 1, "any_of": ways}}
    assert words(judged(build, both, tp_size=8, num_heads=9)) == ["probe true"]
    assert only(judged(build, both, tp_size=8, pp_size=2)).field == "pp_size"


def test_alternatives_of_one_field_keep_their_bounds(build: Build) -> None:
    ways = [{"num_heads": {"max": {"field": "index_topk"}}}, {"num_heads": 64}]
    rule = {"when": {"tp_size": 8}, "require": {"any_of": ways}}
    rejection = only(judged(build, rule, tp_size=8, num_heads=32, index_topk=16))
    assert (rejection.allowed, rejection.nearest) == ("up to 16, 64", "16")


# -- which requests exist ------------------------------------------------------------------------


def test_a_layer_that_breaks_a_rule_of_space_does_not_exist(build: Build) -> None:
    space = [
        {
            "when": {"mla": False},
            "require": {"kv_lora_rank": "absent"},
            "reason": "Only MLA layers have a KV latent.",
        },
        {"require": {"tp_size": [1, 2, 4, 8]}, "reason": "Ranks come in powers of two."},
    ]
    selector = build.selector(space=space)
    assert selector.bind("9.0", build.layer()).resolve(1, 1).decode.backend == "one"
    with pytest.raises(ContradictionError) as caught:
        selector.bind("9.0", build.layer(mla=False, kv_lora_rank=512))
    assert str(caught.value).startswith(
        "mla false with kv_lora_rank 512 (must be absent): Only MLA layers have a KV latent. "
        "[test.yaml:1:"
    )
    with pytest.raises(ContradictionError, match=r"^tp_size 3 \(must be 1, 2, 4, 8\): Ranks"):
        selector.bind("9.0", build.layer(tp_size=3))


def test_a_rule_of_space_that_forbids(build: Build) -> None:
    space = [{"when": {"sink": True, "alibi": True}, "require": {}, "reason": "Not both."}]
    with pytest.raises(ContradictionError, match=r"^sink true with alibi true: Not both"):
        build.selector(space=space).bind("9.0", build.layer(sink=True, alibi=True))
