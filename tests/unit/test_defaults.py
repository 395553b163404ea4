"""What a question takes for granted: defaults, facts that are standard, values of a request."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from selector import Device, Facts, Layer, Outcome, Request
from selector.asking import ask, with_request
from selector.binding import Bound
from selector.domains import Domain
from selector.rules import Question

Build = Any  # the fixture of tests/conftest.py
Tree = dict[str, Any]
FIELDS = {
    "mode": {
        "type": "name",
        "role": "context",
        "values": ["fast", "safe"],
        "symbols": ["unset"],
        "description": "A switch.",
    },
    "depth": {"type": "integer", "role": "context", "low": 1, "description": "How deep."},
}
DEFAULTS = {"mode": {"value": "fast"}, "num_kv_heads": {"field": "num_heads"}}


def bound(build: Build, layer: Tree, *, closed_world: bool = False, **sections: Any) -> Bound:
    """A plain manifest with these sections, bound to a plain layer with these values."""
    selector = build.selector(**{"fields": FIELDS, "defaults": DEFAULTS, **sections})
    sets = {k: v for k, v in layer.items() if isinstance(v, Domain)}
    plain = build.layer(selector, **{k: v for k, v in layer.items() if k not in sets})
    asked = Layer(MappingProxyType({**plain.fields, **sets}))
    found = selector.bind("9.0", asked, closed_world=closed_world)
    assert isinstance(found, Bound)
    return found


def asked(build: Build, layer: Tree, **sections: Any) -> Question:
    return bound(build, layer, **sections).question


# -- defaults ------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed_world", [False, True])
@pytest.mark.parametrize(
    ("layer", "name", "value"),
    [
        ({}, "mode", "fast"),
        ({"mode": "safe"}, "mode", "safe"),
        ({"mode": None}, "mode", "unset"),
        ({"num_heads": 8}, "num_kv_heads", 8),
        ({"num_heads": 8, "num_kv_heads": 2}, "num_kv_heads", 2),
        ({"num_heads": None}, "num_kv_heads", "unset"),
    ],
    ids=str,
)
def test_a_default_stands_in_where_nobody_says_it(
    build: Build, layer: Tree, name: str, value: Any, closed_world: bool
) -> None:
    assert asked(build, layer, closed_world=closed_world).known(name) == value


@pytest.mark.parametrize("closed_world", [False, True])
def test_a_default_does_not_stand_in_for_what_is_said_to_be_unknown(
    build: Build, closed_world: bool
) -> None:
    anything = Domain.of("fast", "safe", "unset")
    some = Domain.of(1, 2)
    question = asked(
        build,
        {"mode": anything, "num_kv_heads": some, "num_heads": 8},
        closed_world=closed_world,
    )
    assert question.possible("mode") == anything
    assert question.possible("num_kv_heads") == some


def test_a_default_from_another_field_is_as_unknown_as_that_one(build: Build) -> None:
    assert asked(build, {}).known("num_kv_heads") is None
    some = Domain.of(8, 16)
    assert asked(build, {"num_heads": some}).possible("num_kv_heads") == some
    assert asked(build, {}, closed_world=True).known("num_kv_heads") == "unset"


def test_what_follows_from_a_default(build: Build) -> None:
    derive = {"grade": {"first_match": [{"when": {"mode": "fast"}, "value": 1}, {"value": 2}]}}
    entry = build.entry(accepts={"mode": "safe"})
    for said, grade, backend in (({}, 1, None), ({"mode": "safe"}, 2, "one")):
        plain = bound(build, said, derive=derive, backends=[entry])
        assert plain.question.known("grade") == grade
        assert plain.resolve(9, 9).prefill.backend == backend


def test_a_default_stands_in_for_a_field_that_another_default_gave(build: Build) -> None:
    defaults = {"mode": {"value": "safe"}, "depth": {"field": "num_heads"}}
    defaults["index_topk"] = {"field": "depth"}
    assert asked(build, {"num_heads": 8}, defaults=defaults).known("index_topk") == 8


@pytest.mark.parametrize("name", ["block_size", "v_head_size", "tp_size", "dcp_size"])
def test_a_default_of_a_field_that_is_never_unknown_is_used_or_refused(
    build: Build, name: str
) -> None:
    defaults = {name: {"value": 16}}
    assert (
        build.findings(defaults=defaults) or asked(build, {}, defaults=defaults).known(name) == 16
    )


def test_a_default_number_of_heads_gives_the_group(build: Build) -> None:
    question = asked(build, {"num_heads": 32})
    assert (question.known("num_kv_heads"), question.known("gqa_group")) == (32, 1)


def test_a_default_from_a_field_of_another_type_is_a_finding(build: Build) -> None:
    assert build.findings(defaults={"num_kv_heads": {"field": "dtype"}})


# -- an answer does not repeat what is taken for granted -----------------------------------------


@pytest.mark.parametrize(
    ("layer", "shown"),
    [
        ({}, {}),
        ({"mode": "fast"}, {}),
        ({"mode": "safe"}, {"mode": "safe"}),
        ({"mode": None}, {"mode": "unset"}),
        ({"mode": Domain.of("fast", "safe")}, {"mode": "fast, safe"}),
        ({"num_heads": 8}, {"num_heads": 8}),
        ({"num_heads": 8, "num_kv_heads": 8}, {"num_heads": 8}),
        ({"num_heads": 8, "num_kv_heads": 2}, {"num_heads": 8, "num_kv_heads": 2}),
        ({"num_kv_heads": 2}, {"num_kv_heads": 2}),
    ],
    ids=str,
)
def test_the_answer_hides_what_is_as_it_is_by_default(
    build: Build, layer: Tree, shown: Tree
) -> None:
    answer = bound(build, layer).resolve(9, 9)
    names = ("mode", "num_heads", "num_kv_heads")
    assert {n: answer.layer[n] for n in names if n in answer.layer} == shown


def test_a_default_says_what_it_stands_for(build: Build) -> None:
    plain = bound(build, {"num_heads": 8})
    mode, heads = (plain.manifest.defaults[n] for n in ("mode", "num_kv_heads"))
    assert (mode.of(plain.question), heads.of(plain.question)) == ("fast", 8)
    silent = bound(build, {}).question
    assert (mode.of(silent), heads.of(silent)) == ("fast", None)


# -- facts that are standard ---------------------------------------------------------------------

STANDARD = {
    "wheel": {"type": "boolean", "standard": True, "description": "Part of the wheel."},
    "extra": {"type": "boolean", "description": "Not part of it."},
}


@pytest.mark.parametrize(
    ("said", "closed_world", "wheel", "extra"),
    [
        ({}, False, None, None),
        ({}, True, True, False),
        ({"wheel": False, "extra": True}, True, False, True),
        ({"wheel": None}, True, False, False),
        ({"wheel": True}, False, True, None),
        ({"wheel": None}, False, False, None),
    ],
    ids=str,
)
def test_a_standard_fact_is_there_in_a_closed_world_unless_something_else_is_said(
    build: Build, said: Tree, closed_world: bool, wheel: bool | None, extra: bool | None
) -> None:
    """For rules that ask it as a field, and for entries that require it."""
    entries = [build.entry(name, requires={name: True}) for name in STANDARD]
    selector = build.selector(*entries, facts=STANDARD)
    plain = selector.bind("9.0", build.layer(), Facts(said), closed_world=closed_world)
    assert (plain.question.known("wheel"), plain.question.known("extra")) == (wheel, extra)
    outcomes = {None: Outcome.CONDITIONAL, True: Outcome.ELIGIBLE, False: Outcome.UNAVAILABLE}
    for found, there in zip(plain.resolve(9, 9).candidates, (wheel, extra), strict=True):
        selected = found.prefill.outcome is Outcome.SELECTED
        assert selected or found.prefill.outcome is outcomes[there]
        assert not selected or there is not False


@pytest.mark.parametrize(("closed_world", "wheel"), [(True, True), (False, None)])
def test_a_question_knows_what_is_standard_by_itself(
    build: Build, closed_world: bool, wheel: bool | None
) -> None:
    manifest = build.selector(facts=STANDARD).manifest
    device = Device("cuda", "9.0")
    question = ask(manifest, device, build.layer(), Facts(), closed_world=closed_world)
    assert question.known("wheel") is wheel


def test_a_version_is_no_standard_fact(build: Build) -> None:
    facts = {"mylib": {"type": "version", "standard": True, "description": "A library."}}
    assert build.findings(facts=facts)


# -- what changes with the request ---------------------------------------------------------------

MEASURE = {"kind": "mask_words", "small_tile": 128, "large_tile": 256, "word_align": 4}
DERIVE: Tree = {
    "fixed": {"first_match": [{"when": {"head_size": 128}, "value": 1}, {"value": 2}]},
    "long": {"first_match": [{"when": {"seq_len": {"min": 65}}, "value": 1}, {"value": 2}]},
    "both": {"first_match": [{"when": {"long": 1, "fixed": 1}, "value": 1}, {"value": 2}]},
    "wide": {"first_match": [{"when": {"words": {"min": 513}}, "value": 1}, {"value": 2}]},
}


def test_only_what_follows_from_a_request_is_derived_anew(build: Build) -> None:
    plain = bound(build, {}, derive=DERIVE, measures={"words": MEASURE})
    assert set(plain.manifest.changing) == {"long", "both", "wide"}
    assert list(plain.manifest.changing) == [
        n for n in plain.manifest.derive if n in ("long", "both", "wide")
    ]
    names = ("fixed", "long", "both", "wide")
    unknown = [plain.question.known(n) for n in names]
    assert unknown == [1, None, None, None]
    for lengths, values in (
        ((8, 64), [1, 2, 2, 2]),
        ((8, 65), [1, 1, 1, 2]),
        ((129, 640), [1] * 4),
    ):
        one = with_request(plain.manifest, plain.question, Request(*lengths))
        assert [one.known(n) for n in names] == values


def test_one_request_leaves_nothing_behind_for_the_next(build: Build) -> None:
    entry = build.entry("one", accepts={"both": 1})
    plain = bound(build, {}, derive=DERIVE, measures={"words": MEASURE}, backends=[entry])
    for seq_len, backend in ((65, "one"), (64, None), (65, "one"), (None, "one")):
        assert plain.resolve(8, seq_len).prefill.backend == backend
    assert [c.field for c in plain.resolve(8).prefill.conditions] == ["both"]
