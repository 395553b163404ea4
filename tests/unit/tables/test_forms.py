"""Rows of every form against each kind of rule that reads lengths: a law for each such rule.

The lengths lie on both sides of every number that the rules name; each answer is the definition's.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

pytest.importorskip("numpy")
pyarrow = pytest.importorskip("pyarrow")

from selector.tables.answers import ANSWER_COLUMNS, PLAIN_COLUMNS  # noqa: E402
from selector.tables.batch import TableReader  # noqa: E402
from selector.tables.rows import RowReader  # noqa: E402

from ...laws.test_tables import answers, defined  # noqa: E402
from ..sparse import DENSE, TOP_K, Build, Tree, dense, sparse  # noqa: E402

LAYER: Tree = {"arch": "9.0", "head_size": 128, "dtype": "bfloat16", "kv_cache_dtype": "auto"}
LAYER |= {"attn_type": "decoder", "dense_prefill": True, "mla": True, "sparse": True}
MEASURE: Tree = {
    "words": {"kind": "mask_words", "small_tile": 8, "large_tile": 16, "word_align": 1}
}
LENGTHS = (1, 2, 3, 7, 8, 9, 16, 17, 40, 63, 64, 65, 96, 97, 100, 101, 200)


def never(**when: Any) -> Tree:
    return {"constraints": [{"when": when, "code": "NEVER", "reason": "Not then."}]}


def shared(**when: Any) -> Tree:
    return {**DENSE, "scope": "batch", "when": when}


def long(**when: Any) -> Tree:
    rules = [{"when": when, "value": "long_"}, {"value": "short_"}]
    return {"derive": {"length": {"first_match": rules}}}


MANY: list[Tree] = [
    {"when": {"num_reqs": {"min": 3}}, "order": ["other"], "reason": "For many."},
    {"order": ["sparse", "other", "dense"], "reason": "For few."},
]
FEW: list[Tree] = [{"require": {"num_reqs": {"max": 2}}, "reason": "The engine runs two."}]

RULES: dict[str, tuple[Tree, Tree]] = {
    "an entry refuses long queries": (never(query_len={"min": 65}), {}),
    "an entry refuses some queries": (never(query_len={"multiple_of": 8, "max": 100}), {}),
    "an entry refuses short sequences": (never(seq_len={"max": 100}), {}),
    "an entry refuses some sequences": (never(seq_len={"multiple_of": 16, "max": 100}), {}),
    "decodes may be long": ({"decode_threshold": 8}, {}),
    "decodes are uniform": ({"decode_threshold": 8, "uniform_decodes": True}, {}),
    "a path of few prefills": ({"paths": [shared(num_prefills={"max": 2})]}, {}),
    "a path of short batches": ({"paths": [shared(seq_len={"max": 64})]}, {}),
    "a path of some batches": ({"paths": [shared(query_len={"multiple_of": 8, "max": 96})]}, {}),
    "a path of small masks": (
        {"paths": [shared(words={"max": 100})]},
        {"measures": MEASURE},
    ),
    "what follows from many prefills": (
        {"paths": [shared(length="long_")]},
        long(num_prefills={"min": 3}),
    ),
    "what follows from a mask": (
        {"paths": [shared(length="long_")]},
        {"measures": MEASURE, **long(words={"min": 100})},
    ),
    "an entry refuses many requests": (never(num_reqs={"min": 3}), {}),
    "an entry refuses as few tokens as requests": (
        never(query_len={"max": {"field": "num_reqs"}}),
        {},
    ),
    "a path of requests that run with others": ({"paths": [shared(num_reqs={"min": 2})]}, {}),
    "a list for many requests": ({}, {"priorities": MANY}),
    "what follows from many requests": (
        {"paths": [{**DENSE, "when": {"length": "long_"}}]},
        long(num_reqs={"min": 3}),
    ),
    "no more than two requests run together": ({}, {"space": FEW}),
    "a path by another backend": (
        {"paths": [{**shared(seq_len={"max": 100}), "by": "dense_backend"}]},
        {"dense": never(query_len={"min": 17})},
    ),
}


def forms() -> Iterator[Tree]:
    """Lengths of every form."""
    for query, seq in product(LENGTHS, LENGTHS):
        yield {"query_len": query, "seq_len": seq}
    for length in LENGTHS:
        yield {"query_len": length}
        yield {"seq_len": length}
    yield {}
    for count, query, seq in product((2, 3), (1, 8, 9, 65), (8, 9, 40, 64, 65, 101)):
        yield {"num_reqs": count, "query_len": query, "seq_len": seq}
    yield {"num_reqs": 2, "query_len": 8}
    for place, (query, seq) in enumerate(product(LENGTHS[::2], LENGTHS[1::2])):
        others = (LENGTHS[place % 7], LENGTHS[place % 5 + 3])
        pairs = [(min(query, seq), seq), others, (query, query)][: 2 + place % 2]
        queries, seqs = zip(*((min(pair), max(pair)) for pair in pairs), strict=True)
        yield {"query_lens": [*queries], "seq_lens": [*seqs]}


@pytest.mark.parametrize("rule", [*RULES])
@pytest.mark.parametrize("speculative", [0, 2])
def test_every_form_is_answered_as_the_definition_answers(
    build: Build, rule: str, speculative: int
) -> None:
    keys, sections = (dict(one) for one in RULES[rule])
    first = sparse(build, *keys.pop("paths", ()), **keys)
    other = {**sparse(build), "name": "other", "prefill_paths": [TOP_K]}
    entries = [first, other, dense(build, "dense", **sections.pop("dense", {}))]
    selector = build.selector(*entries, **sections)
    names = ("query_len", "seq_len", "num_reqs", "query_lens", "seq_lens")
    rows = [
        LAYER | {"speculative_tokens": speculative} | dict.fromkeys(names) | form
        for form in forms()
    ]
    wanted = [defined(selector, row) for row in rows]
    assert len({repr(want) for want in wanted}) > 8
    table = pyarrow.Table.from_pylist(rows)
    for columns in (ANSWER_COLUMNS, PLAIN_COLUMNS):
        reader = TableReader(RowReader(selector), columns is ANSWER_COLUMNS)
        for row, found, want in zip(rows, answers(reader, table), wanted, strict=True):
            assert [found[name] for name in columns] == [want[name] for name in columns], row
    alone = RowReader(selector)
    assert [alone.columns(row) for row in rows[::-1]] == wanted[::-1]
