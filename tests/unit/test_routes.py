"""What a backend would make of requests that run together, and requests that are alike."""

from __future__ import annotations

from typing import Any

import pytest

from selector import Facts, Layer, Phase, Policy, Request
from selector.domains import Domain
from selector.errors import ContradictionError, UnknownBackendError
from selector.resolve import Route

from .sparse import BY_ANOTHER, DENSE, PROBE, Build, Tree, dense, layer, sparse

# -- what a backend would make of requests -------------------------------------------------------


@pytest.mark.parametrize(
    ("uniform", "threshold"),
    [
        (False, 4),
        (True, 4),
        (True, {"cases": [{"when": {"num_heads": {"max": 16}}, "value": 8}, {"value": 1}]}),
    ],
)
def test_a_backend_makes_of_a_layer_what_the_answer_says(
    build: Build, uniform: bool, threshold: Any
) -> None:
    rules = [
        {**BY_ANOTHER, "when": {"seq_len": {"max": 64}}, "scope": "batch"},
        {**DENSE, "path": "masked_mha", "when": {"query_len": {"max": 9}}},
    ]
    entry = sparse(build, *rules, uniform_decodes=uniform, decode_threshold=threshold)
    bound = build.selector(entry, dense(build, "flash")).bind("9.0", layer(build))
    for lengths in (
        [(2, 9), (2, 9), (1, 9), (2, 9), (8, 8)],
        [(8, 8), (9, 9), (8, 8)],
        [(8, 8), (9, 900), (10, 900)],
    ):
        requests = [Request(*pair) for pair in lengths]
        routes = bound.routes(requests, "sparse")
        for route, answer in zip(routes, bound.resolve_batch(requests), strict=True):
            prefill, decode = answer.prefill, answer.decode
            assert (route.phase, route.threshold) == (answer.phase, decode.decode_threshold)
            assert (route.path.path, route.path.paths) == (prefill.path, prefill.paths)
            assert (route.path.path_rules, route.path.by) == (prefill.path_rules, prefill.by)


def route_of(build: Build, entry: Tree, asked: Layer, *lengths: int) -> Route:
    """What the sparse entry would make of one request for a layer it refuses."""
    selector = build.selector(entry, dense(build, "flash"))
    bound = selector.bind("9.0", asked)
    assert bound.resolve(*lengths).prefill.backend is None
    (route,) = bound.routes([Request(*lengths)], "sparse")
    assert isinstance(route, Route)
    return route


def test_whether_it_accepts_the_layer_is_not_asked(build: Build) -> None:
    entry = sparse(build, BY_ANOTHER, accepts={"head_size": 64}, decode_threshold=4)
    route = route_of(build, entry, layer(build), 8, 8)
    assert (route.phase, route.threshold) == (Phase.PREFILL, 4)
    assert (route.path.path, route.path.by) == ("dense_mha", "flash")
    route = route_of(build, entry, layer(build), 4, 8)
    assert (route.phase, route.path.path) == (Phase.DECODE, "sparse_mqa")


@pytest.mark.parametrize(
    ("when", "path"), [({"min": 128}, "dense_mha"), ({"max": 127}, "sparse_mqa")]
)
def test_what_it_refuses_is_not_taken_for_what_it_accepts(
    build: Build, when: Tree, path: str
) -> None:
    """Nothing that the layer can be is accepted, so the layer stays what it is."""
    rule = {**DENSE, "when": {"head_size": when}}
    entry = sparse(build, rule, accepts={"head_size": [64]})
    asked = layer(build, head_size=Domain.of(128, 256))
    assert route_of(build, entry, asked, 8, 8).path.path == path


def test_drafts_are_verified_with_a_decode(build: Build) -> None:
    bound = build.selector(build.entry(decode_threshold=4)).bind("9.0", build.layer())
    requests = [Request(5, 9), Request(5, 9, 4), Request(5, 9, 3)]
    routes = bound.routes(requests, "one")
    assert [(str(r.phase), r.threshold) for r in routes] == [
        ("prefill", 4),
        ("decode", 5),
        ("prefill", 4),
    ]


def test_a_threshold_that_is_unknown_is_not_given(build: Build) -> None:
    cases = {"cases": [{"when": {"num_heads": {"max": 16}}, "value": 8}, {"value": 1}]}
    entry = sparse(build, accepts={"head_size": 64}, decode_threshold=cases)
    for query_len, phase in ((8, None), (1, Phase.DECODE), (9, Phase.PREFILL)):
        route = route_of(build, entry, layer(build), query_len, 9)
        assert (route.phase, route.threshold) == (phase, None)


def test_a_backend_without_prefill_has_no_path_for_it(build: Build) -> None:
    selector = build.selector(build.entry(phases={"decode": {}}, accepts={"head_size": 64}))
    bound = selector.bind("9.0", build.layer())
    decode, prefill = bound.routes([Request(1, 9), Request(9, 9)], "one")
    assert (decode.phase, decode.path.path) == (Phase.DECODE, "mha")
    assert (prefill.phase, prefill.path.paths) == (Phase.PREFILL, ())


def test_routes_need_a_backend_and_all_lengths(build: Build) -> None:
    bound = build.selector().bind("9.0", build.layer())
    with pytest.raises(UnknownBackendError, match='no backend is called "on"; did you mean one'):
        bound.routes([Request(1, 1)], "on")
    for request in (Request(), Request(1), Request(None, 1)):
        with pytest.raises(ContradictionError, match="query_len and seq_len of every request"):
            bound.routes([Request(1, 1), request], "one")
    assert bound.routes([], "one") == ()


def test_what_the_caller_denies_computes_no_path_of_a_backend(build: Build) -> None:
    entries = (sparse(build, BY_ANOTHER), dense(build, "flash"), dense(build, "triton"))
    bound = build.selector(*entries).bind("9.0", layer(build), policy=Policy({"flash": "bug"}))
    (route,) = bound.routes([Request(8, 8)], "sparse")
    assert route.path.by == bound.resolve(8, 8).prefill.by == "triton"


# -- requests that are alike ---------------------------------------------------------------------


class Unlike(Request, frozen=True, eq=False):
    """A request that equals no other: nothing of it can be shared."""


@pytest.mark.parametrize("uniform", [True, False])
@pytest.mark.parametrize(
    "lengths",
    [
        [(8, 8)] * 3,
        [(2, 9), (2, 9), (8, 8), (2, 9), (8, 8), (8, 70)],
        [(1, 9), (2, 9), (1, 9), (2, 9)],
        [(5, 9), (9, 9), (5, 9), (1, 9), (1, 9)],
    ],
    ids=str,
)
def test_requests_that_are_alike_get_what_they_would_get_without_it(
    build: Build, lengths: list[tuple[int, int]], uniform: bool
) -> None:
    rules = [
        {**DENSE, "when": {"num_prefills": {"max": 2}}, "scope": "batch"},
        {**DENSE, "path": "masked_mha", "when": {"seq_len": {"max": 64}}, "scope": "batch"},
    ]
    cases = [{"when": {"num_heads": {"max": 16}}, "value": 8}, {"value": 2}]
    for threshold in (2, {"cases": cases}):
        entry = sparse(build, *rules, uniform_decodes=uniform, decode_threshold=threshold)
        bound = build.selector(entry).bind("9.0", layer(build))
        alike = bound.resolve_batch([Request(*pair) for pair in lengths])
        apart = bound.resolve_batch([Unlike(*pair) for pair in lengths])
        for one, other in zip(alike, apart, strict=True):
            assert (one.phase, one.prefill, one.decode) == (
                other.phase,
                other.prefill,
                other.decode,
            )


def test_what_comes_after_a_request_that_may_be_a_decode_may_be_one_too(build: Build) -> None:
    cases = [{"when": {"seq_len": {"max": 64}, "probe": True}, "value": 1}, {"value": 4}]
    entry = build.entry(decode_threshold={"cases": cases}, uniform_decodes=True)
    selector = build.selector(entry, facts=PROBE)
    requests = [Request(2, 10), Request(2, 100)]

    def phases(**facts: Any) -> list[Phase | None]:
        bound = selector.bind("9.0", build.layer(), Facts(facts))
        return [a.phase for a in bound.resolve_batch(requests)]

    assert phases(probe=False) == [Phase.DECODE, Phase.DECODE]
    assert phases() == [None, None]
