"""Rows that are batches, and the columns of an answer that say what became of them."""

from __future__ import annotations

from typing import Any

import pytest

from selector import Request
from selector.tables.answers import ANSWER_COLUMNS
from selector.tables.rows import RowReader

from .sparse import BY_ANOTHER, DENSE, KIND, PROBE, Build, Tree, dense, sparse

ROW: Tree = {
    "arch": "9.0",
    "head_size": 128,
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "attn_type": "decoder",
}


def answer(rows: RowReader, *names: str, **values: Any) -> tuple[Any, ...]:
    found = rows.answer(ROW | values)
    assert found["error"] is None
    return tuple(found[name] for name in names)


def error(rows: RowReader, **values: Any) -> str:
    found = rows.answer(ROW | values)
    assert all(found[k] is None for k in ANSWER_COLUMNS if k != "error")
    assert isinstance(found["error"], str)
    return found["error"]


# -- requests that run together ------------------------------------------------------------------

SHORT: Tree = {**DENSE, "when": {"seq_len": {"max": 64}, "num_prefills": {"max": 2}}}


@pytest.fixture
def rows(build: Build) -> RowReader:
    """One backend: dense for two short prefills, decodes up to four tokens."""
    entry = sparse(build, {**SHORT, "scope": "batch"}, decode_threshold=4)
    return RowReader(build.selector(entry))


@pytest.mark.parametrize(
    ("lengths", "phase", "path", "decodes"),
    [
        ({"query_len": 8, "seq_len": 64}, "prefill", "dense_mha", 0),
        ({"query_len": 8, "seq_len": 64, "num_reqs": None}, "prefill", "dense_mha", 0),
        ({"query_len": 8, "seq_len": 64, "num_reqs": 1}, "prefill", "dense_mha", 0),
        ({"query_len": 8, "seq_len": 64, "num_reqs": 2}, "prefill", "dense_mha", 0),
        ({"query_len": 8, "seq_len": 64, "num_reqs": 2.0}, "prefill", "dense_mha", 0),
        ({"query_len": 8, "seq_len": 64, "num_reqs": 3}, "prefill", "sparse_mqa", 0),
        ({"query_len": 4, "seq_len": 64, "num_reqs": 4096}, "decode", "sparse_mqa", 4096),
        ({"query_len": 5, "seq_len": 9, "speculative_tokens": 4}, "decode", "sparse_mqa", 1),
        ({"query_lens": [8], "seq_lens": [64]}, "prefill", "dense_mha", 0),
        ({"query_lens": [8, 9], "seq_lens": [64, 64]}, "prefill", "dense_mha", 0),
        ({"query_lens": [8, 9], "seq_lens": [64, 65]}, "prefill", "sparse_mqa", 0),
        ({"query_lens": [1, 8, 2], "seq_lens": [900, 64, 900]}, "prefill", "dense_mha", 2),
        ({"query_lens": [1, 2], "seq_lens": [900, 64]}, "decode", "sparse_mqa", 2),
        ({"query_lens": [5.0], "seq_lens": [9.0], "speculative_tokens": 4}, "decode", ..., 1),
        ({"query_lens": [8], "seq_lens": [64], "num_reqs": None}, "prefill", "dense_mha", 0),
        ({"query_lens": None, "seq_lens": None, "query_len": 8}, "prefill", None, 0),
        ({"query_lens": [8], "seq_lens": [None]}, "prefill", None, 0),
        ({}, None, None, None),
    ],
    ids=str,
)
def test_requests_of_a_row_run_together(
    rows: RowReader, lengths: Tree, phase: str | None, path: Any, decodes: int | None
) -> None:
    """The answer is that of the first which is no decode."""
    path = "sparse_mqa" if path is ... else path
    said = ("phase", "prefill_path", "num_decodes")
    assert answer(rows, *said, **KIND, **lengths) == (phase, path, decodes)


def test_requests_of_a_row_are_answered_as_the_library_answers(
    build: Build, rows: RowReader
) -> None:
    lengths = [(1, 900), (8, 64), (9, 60), (2, 9)]
    row = {**KIND, "query_lens": [q for q, _ in lengths], "seq_lens": [s for _, s in lengths]}
    answers = rows.bind(ROW | row).resolve_batch([Request(*pair) for pair in lengths])
    same = answers[1]
    assert answer(rows, "prefill_path", "phase", "decode_threshold", "num_decodes", **row) == (
        same.prefill.path,
        str(same.phase),
        same.decode.decode_threshold,
        2,
    )


def test_what_may_be_a_decode_is_not_counted(build: Build) -> None:
    cases = {"cases": [{"when": {"num_heads": {"max": 16}}, "value": 8}, {"value": 1}]}
    rows = RowReader(build.selector(build.entry(decode_threshold=cases)))
    said = ("phase", "num_decodes", "decode_threshold")
    assert answer(rows, *said, query_lens=[1, 8, 9], seq_lens=[9, 9, 9]) == (None, None, None)
    assert answer(rows, *said, query_lens=[1, 9], seq_lens=[9, 9]) == ("prefill", 1, None)
    few = {"num_heads": 16, "query_lens": [1, 8, 9], "seq_lens": [9, 9, 9]}
    assert answer(rows, *said, **few) == ("prefill", 2, 8)


def test_only_leading_decodes_of_one_length_are_counted_where_they_must_be_uniform(
    build: Build,
) -> None:
    lengths = {"query_lens": [2, 2, 1, 2], "seq_lens": [9, 9, 9, 9]}
    for uniform, decodes in ((True, 2), (False, 4)):
        entry = build.entry(decode_threshold=4, uniform_decodes=uniform)
        assert answer(RowReader(build.selector(entry)), "num_decodes", **lengths) == (decodes,)


TWO_LISTS = "query_lens and seq_lens are two lists of the same length"


@pytest.mark.parametrize(
    ("lengths", "said"),
    [
        ({"num_reqs": 0}, "num_reqs 0 is not from 1 to 4,096"),
        ({"num_reqs": -1}, "num_reqs -1 is not from 1 to 4,096"),
        ({"num_reqs": 4097}, "num_reqs 4097 is not from 1 to 4,096"),
        ({"num_reqs": 10**30}, "num_reqs 1000000000000000000000000000000 is not from 1 to 4,096"),
        ({"num_reqs": True}, "num_reqs True is not a whole number"),
        ({"num_reqs": "2"}, "num_reqs 2 is not a whole number"),
        ({"num_reqs": 2.5}, "num_reqs 2.5 is not a whole number"),
        ({"num_reqs": 2, "seq_len": None}, "a batch needs query_len and seq_len of every request"),
        ({"query_lens": [1]}, TWO_LISTS),
        ({"seq_lens": [1]}, TWO_LISTS),
        ({"query_lens": [1, 2], "seq_lens": [9]}, TWO_LISTS),
        ({"query_lens": 1, "seq_lens": [9]}, TWO_LISTS),
        ({"query_lens": [1], "seq_lens": "9"}, TWO_LISTS),
        ({"query_lens": [], "seq_lens": []}, "0 requests are not from 1 to 4,096"),
        (
            {"query_lens": [1] * 4097, "seq_lens": [1] * 4097},
            "4,097 requests are not from 1 to 4,096",
        ),
        ({"query_lens": ["1"], "seq_lens": [9]}, "query_lens 1 is not a whole number"),
        ({"query_lens": [1], "seq_lens": [[9]]}, "seq_lens [9] is not a whole number"),
        ({"query_lens": [1, 0], "seq_lens": [9, 9]}, "query_len 0 is not at least 1"),
        ({"query_lens": [1, 10], "seq_lens": [9, 9]}, "query_len 10 is longer than seq_len 9"),
        (
            {"query_lens": [1, None], "seq_lens": [9, 9]},
            "a batch needs query_len and seq_len of every request",
        ),
        (
            {"query_lens": [1], "seq_lens": [9], "speculative_tokens": -1},
            "speculative_tokens -1 is negative",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_requests_that_cannot_be_say_why(rows: RowReader, lengths: Tree, said: str) -> None:
    alone = {} if {"query_lens", "seq_lens"} & lengths.keys() else {"query_len": 1, "seq_len": 9}
    row = {**KIND, **alone, **lengths}
    assert error(rows, **row) == said


@pytest.mark.parametrize("more", [{"num_reqs": 7}, {"query_len": 8}, {"seq_len": 8}], ids=str)
def test_lists_and_lengths_that_contradict_each_other_are_an_error(
    rows: RowReader, more: Tree
) -> None:
    assert error(rows, **KIND, query_lens=[1, 5], seq_lens=[9, 9], **more)


def test_rows_that_differ_only_in_lengths_share_what_they_ask(rows: RowReader) -> None:
    one = rows.bind({**ROW, **KIND, "query_len": 1, "seq_len": 9})
    other = rows.bind({**ROW, **KIND, "query_lens": [1, 5], "seq_lens": [9, 9], "num_reqs": 3})
    assert one is other


def test_what_no_longer_fits_is_asked_again(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are the same; only so many layers are kept."""
    monkeypatch.setattr("selector.tables.rows._MOST_ASKED", 2)
    rows = RowReader(build.selector(build.entry(accepts={"head_size": {"max": 96}})))
    sizes = [64, 96, 128, 64, 64, 128]
    chosen = [answer(rows, "prefill_backend", head_size=n)[0] for n in sizes]
    assert chosen == ["one", "one", None, "one", "one", None]
    kept = rows.bind({**ROW, "head_size": 64})
    assert rows.bind({**ROW, "head_size": 64}) is kept
    for size in (256, 512):
        rows.bind({**ROW, "head_size": size})
    assert rows.bind({**ROW, "head_size": 64}) is not kept


# -- what is said of an answer -------------------------------------------------------------------


def test_a_row_says_who_computes_a_dense_path(build: Build) -> None:
    entries = (sparse(build, {**BY_ANOTHER, "when": {"seq_len": {"max": 64}}}), dense(build, "fa"))
    rows = RowReader(build.selector(*entries))
    for seq_len, said in ((64, ("dense_mha", "fa")), (65, ("sparse_mqa", None))):
        names = ("prefill_path", "prefill_by")
        assert answer(rows, *names, **KIND, query_len=8, seq_len=seq_len) == said


def test_a_row_says_which_backends_were_tried(build: Build) -> None:
    priorities = [
        {"when": {"probe": True}, "order": ["one"], "reason": "With the switch."},
        {"order": ["two", "one"], "reason": "Without it."},
    ]
    entries = (build.entry("one"), build.entry("two", accepts={"head_size": 64}))
    rows = RowReader(build.selector(*entries, priorities=priorities, facts=PROBE))
    names = ("decode_backend", "candidates")
    assert answer(rows, *names, probe=False) == ("one", ["two", "one"])
    assert answer(rows, *names, probe=True) == ("one", ["one"])
    assert answer(rows, *names) == ("one", None)
    assert answer(rows, *names, probe=False, head_size=96, deny="one") == (None, ["two", "one"])
    nothing = RowReader(build.selector(priorities=priorities[:1], facts=PROBE))
    assert answer(nothing, *names, probe=False) == (None, [])


def test_a_row_lists_what_refuses_and_not_that_each_serves_its_own_phase(build: Build) -> None:
    entries = (
        build.entry("chosen"),
        build.entry("idle", phases={"prefill": {}}),
        build.entry("narrow", phases={"prefill": {}}, accepts={"head_size": 64}),
        build.entry("small", accepts={"head_size": 64}),
        build.entry("denied", phases={"decode": {}}),
    )
    rows = RowReader(build.selector(*entries))
    (rejections,) = answer(rows, "rejections", query_len=8, seq_len=9, deny="denied")
    assert rejections == {"narrow": ["HEAD_SIZE"], "small": ["HEAD_SIZE"], "denied": ["DENIED"]}


def test_a_backend_chosen_for_one_phase_is_not_among_the_refused(build: Build) -> None:
    phases = {"prefill": {"accepts": {"head_size": 64}}, "decode": {}}
    rows = RowReader(build.selector(build.entry("one", phases=phases), build.entry("two")))
    names = ("prefill_backend", "decode_backend", "rejections")
    assert answer(rows, *names) == ("two", "one", {})
