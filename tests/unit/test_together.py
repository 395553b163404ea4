"""How many requests run together: what says it, and what reads it."""

from __future__ import annotations

from typing import Any

import pytest

from selector import Layer, Request, Resolution, Selector
from selector.domains import Domain
from selector.errors import ContradictionError, ValueRefusedError
from selector.tables.rows import RowReader

Build = Any  # the fixture of tests/conftest.py
Tree = dict[str, Any]

MANY: Tree = {"num_reqs": {"min": 3}}
LISTS: list[Tree] = [
    {"when": MANY, "order": ["two", "one"], "reason": "For many."},
    {"order": ["one", "two"], "reason": "For few."},
]
REQUEST = Request(9, 9)
ROW: Tree = {"arch": "9.0", "head_size": 128, "dtype": "bfloat16", "kv_cache_dtype": "auto"}
ROW |= {"attn_type": "decoder"}


@pytest.fixture
def selector(build: Build) -> Selector:
    """A manifest whose lists read how many requests run together."""
    found: Selector = build.selector(build.entry("one"), build.entry("two"), priorities=LISTS)
    return found


def backends(answers: tuple[Resolution, ...]) -> list[str | None]:
    return [answer.backend for answer in answers]


# -- what says it --------------------------------------------------------------------------------


def test_one_request_runs_alone_unless_the_layer_says_otherwise(
    build: Build, selector: Selector
) -> None:
    for said, backend in (({}, "one"), ({"num_reqs": 2}, "one"), ({"num_reqs": 3}, "two")):
        answer = selector.bind("9.0", build.layer(**said)).resolve_one(REQUEST)
        assert answer.backend == backend
        assert not answer.decode.conditions
        assert answer.layer.get("num_reqs") == said.get("num_reqs")


def test_requests_that_run_together_are_counted(build: Build, selector: Selector) -> None:
    bound = selector.bind("9.0", build.layer())
    assert backends(bound.resolve_batch([REQUEST] * 2)) == ["one"] * 2
    assert backends(bound.resolve_batch([REQUEST, Request(1, 8), REQUEST])) == ["two"] * 3
    assert backends(bound.resolve_batch([REQUEST])) == ["one"]
    assert bound.resolve_batch([]) == ()


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_what_the_layer_says_holds_however_many_are_asked_about(
    build: Build, selector: Selector, count: int
) -> None:
    few, many = (selector.bind("9.0", build.layer(num_reqs=said)) for said in (1, 32))
    assert backends(few.resolve_batch([REQUEST] * count)) == ["one"] * count
    assert backends(many.resolve_batch([REQUEST] * count)) == ["two"] * count
    some = selector.bind("9.0", build.layer().replace(num_reqs=Domain.between(1, 4)))
    (answer, *_) = some.resolve_batch([REQUEST] * count)
    assert {*answer.decode.possible} == {"one", "two"}
    assert [one.field for one in answer.decode.conditions] == ["num_reqs"]


@pytest.mark.parametrize("wrong", [0, -1, "unset", None, True])
def test_what_is_no_number_of_requests_is_refused(wrong: object) -> None:
    with pytest.raises(ValueRefusedError, match="num_reqs"):
        Layer.of(num_reqs=wrong)


@pytest.mark.parametrize(
    ("said", "backend"),
    [
        ({"query_len": 9, "seq_len": 9}, "one"),
        ({"query_len": 9, "seq_len": 9, "num_reqs": None}, "one"),
        ({"query_len": 9, "seq_len": 9, "num_reqs": 2}, "one"),
        ({"query_len": 9, "seq_len": 9, "num_reqs": 3}, "two"),
        ({"query_lens": [9], "seq_lens": [9]}, "one"),
        ({"query_lens": [9, 1], "seq_lens": [9, 9]}, "one"),
        ({"query_lens": [9, 1, 1], "seq_lens": [9, 9, 9]}, "two"),
    ],
)
def test_a_row_says_it_by_its_count_or_by_its_lists(
    selector: Selector, said: Tree, backend: str
) -> None:
    found = RowReader(selector).answer(ROW | said)
    assert (found["decode_backend"], found["error"]) == (backend, None)


# -- what reads it -------------------------------------------------------------------------------


def test_what_follows_from_it_is_computed_anew(build: Build) -> None:
    derive = {"load": {"first_match": [{"when": MANY, "value": "full_"}, {"value": "light_"}]}}
    rules = [{"when": {"load": "full_"}, "order": ["two"], "reason": "Full."}, LISTS[1]]
    entries = (build.entry("one"), build.entry("two"))
    bound = build.selector(*entries, derive=derive, priorities=rules).bind("9.0", build.layer())
    assert backends(bound.resolve_batch([REQUEST] * 2)) == ["one"] * 2
    assert backends(bound.resolve_batch([REQUEST] * 3)) == ["two"] * 3


def test_a_path_reads_it_in_a_request_rule_too(build: Build) -> None:
    paths = [{"path": "mqa", "when": MANY, "reason": "Many."}, {"path": "mha", "reason": "Few."}]
    entry = build.entry("one", prefill_paths=paths)
    bound = build.selector(entry).bind("9.0", build.layer())
    for count, path in ((1, "mha"), (2, "mha"), (3, "mqa")):
        assert {route.path.path for route in bound.routes([REQUEST] * count, "one")} == {path}
        answers = bound.resolve_batch([REQUEST] * count)
        assert {answer.prefill.path for answer in answers} == {path}


def test_more_than_can_run_together_are_refused(build: Build) -> None:
    space = [{"require": {"num_reqs": {"max": 2}}, "reason": "The engine runs two."}]
    selector = build.selector(build.entry("one"), space=space)
    bound = selector.bind("9.0", build.layer())
    assert backends(bound.resolve_batch([REQUEST] * 2)) == ["one"] * 2
    for ask in (bound.resolve_batch, lambda requests: bound.routes(requests, "one")):
        with pytest.raises(ContradictionError, match=r"num_reqs 3 .*The engine runs two"):
            ask([REQUEST] * 3)
    with pytest.raises(ContradictionError, match="num_reqs 3 "):
        selector.bind("9.0", build.layer(num_reqs=3))


def test_a_manifest_that_does_not_read_it_says_nothing_of_it(build: Build) -> None:
    selector = build.selector(build.entry("one"))
    assert "num_reqs" not in selector.manifest.names
    bound = selector.bind("9.0", build.layer())
    assert bound.resolve_batch([REQUEST] * 3) == (bound.resolve_one(REQUEST),) * 3


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        (
            {"defaults": {"num_reqs": {"value": 8, "source": "here"}}},
            "CAP010 num_reqs needs no default",
        ),
        (
            {"defaults": {"index_topk": {"field": "num_reqs", "source": "here"}}},
            "CAP010 num_reqs cannot stand in for index_topk",
        ),
        (
            {"columns": {"users": {"field": "num_reqs"}}},
            "CAP010 a column cannot say this of num_reqs",
        ),
    ],
    ids=["a default of it", "a default from it", "a column of another name"],
)
def test_nothing_else_says_it(build: Build, sections: Tree, said: str) -> None:
    (found,) = build.findings(build.entry("one"), **sections)
    assert found.startswith(said)


def test_no_backend_changes_it(build: Build) -> None:
    entry = build.entry("one", coerce={"num_reqs": [{"value": 1}]})
    (found,) = build.findings(entry)
    assert found.startswith("CAP028")
