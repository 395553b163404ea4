"""Tables: the same answers as row by row, in order, whatever the columns are; little is kept."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

pytest.importorskip("numpy")
pyarrow = pytest.importorskip("pyarrow")

from selector import Selector  # noqa: E402
from selector.devices import find_device  # noqa: E402
from selector.tables import batch  # noqa: E402
from selector.tables.answers import ANSWER_COLUMNS, PLAIN_COLUMNS  # noqa: E402
from selector.tables.batch import TableReader, resolve_table  # noqa: E402
from selector.tables.rows import RowReader  # noqa: E402

from ...laws.test_tables import Row, answers, defined  # noqa: E402

# -- real layers ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def selector() -> Selector:
    return Selector.load()


DENSE: Row = {"arch": "9.0", "mla": False, "sparse": False, "head_size": 128, "dtype": "bfloat16"}
SPARSE: Row = {"arch": "12.0", "mla": True, "sparse": True, "head_size": 576, "dtype": "bfloat16"}
SPARSE |= {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_topk": 2048}
LAYERS = tuple(
    {"kv_cache_dtype": "auto", "attn_type": "decoder", "kv_lora_rank": None}
    | {"qk_rope_head_dim": None, "index_topk": None}
    | layer
    for layer in (DENSE, SPARSE, DENSE | {"head_size": 96}, DENSE | {"head_size": 1000})
)


def lengths(draw: random.Random) -> Row:
    query_len = draw.choice((1, 2, 128, 129, 3300))
    return {"query_len": query_len, "seq_len": query_len + draw.choice((0, 5000))}


def a_table(rows: int) -> Any:
    draw = random.Random(3)
    return pyarrow.Table.from_pylist([draw.choice(LAYERS) | lengths(draw) for _ in range(rows)])


def same(selector: Selector, table: Any, **more: Any) -> None:
    found = resolve_table(selector, table, **more).to_pylist()
    rows = pyarrow.table(dict(table) if isinstance(table, dict) else table).to_pylist()
    for row, answer in zip(rows, found, strict=True):
        want = defined(selector, row)
        want["rejections"] = None if want["rejections"] is None else json.dumps(want["rejections"])
        assert answer == {name: want[name] for name in answer}


@pytest.mark.parametrize("reasons", [True, False])
def test_columns_have_the_types_that_are_promised(selector: Selector, reasons: bool) -> None:
    table = a_table(60)
    found = resolve_table(selector, table, reasons=reasons)
    assert found.schema.names == [*(ANSWER_COLUMNS if reasons else PLAIN_COLUMNS)]
    words = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    assert {found.schema.field(n).type for n in ("phase", "error", "prefill_by")} == {words}
    assert found.schema.field("decode_threshold").type == pyarrow.int64()
    same(selector, table, reasons=reasons)


def test_no_rows_have_no_answers_and_the_same_columns(selector: Selector) -> None:
    table = a_table(5)
    assert (
        resolve_table(selector, table.slice(0, 0)).schema == resolve_table(selector, table).schema
    )


def test_the_spelling_of_columns_does_not_matter(selector: Selector) -> None:
    table = a_table(40)
    small = {n: table[n].cast(pyarrow.int16()) for n in ("query_len", "seq_len", "head_size")}
    real = {n: table[n].cast(pyarrow.float64()) for n in ("query_len", "seq_len", "index_topk")}
    words = {n: table[n].dictionary_encode() for n in ("arch", "dtype")}
    plain = resolve_table(selector, table)
    for changed in (small, real, words):
        columns = {n: changed.get(n, table[n]) for n in table.schema.names}
        assert resolve_table(selector, columns).equals(plain)
    arrays = {n: table[n].to_numpy() for n in ("query_len", "seq_len")}
    columns = {n: arrays.get(n, table[n]) for n in table.schema.names}
    assert resolve_table(selector, columns).equals(plain)
    (rows,) = table.slice(7, 9).combine_chunks().to_batches()
    assert resolve_table(selector, rows).to_pylist() == plain.slice(7, 9).to_pylist()


@pytest.mark.parametrize(
    "lengths",
    [
        {"query_len": [1.0, 2.5, None, float("nan"), float("inf"), 1e300], "seq_len": [9] * 6},
        {"query_len": [1, 2**40, None, 0, -1, 9], "seq_len": [2**41, 2**41, 5, 5, None, 8]},
        {"query_len": ["1", "2", None, "x", "", "9"], "seq_len": [9] * 6},
        {"query_len": [True, False, None, True, True, True], "seq_len": [9] * 6},
        {"query_len": [1] * 6, "seq_len": [9] * 6, "num_reqs": [1, None, 2, 0, -1, 9999]},
        {"query_len": [5] * 6, "seq_len": [9] * 6, "speculative_tokens": [1, None, 2, 0, -1, 4]},
        {"query_lens": [[1, 2], [1], None, [], [3], [1]], "seq_lens": [[9, 9], [9], [1]] * 2},
        {"query_len": [None] * 6},
        {},
    ],
    ids=str,
)
def test_odd_lengths_are_read_as_those_of_a_row(selector: Selector, lengths: Row) -> None:
    layer = {name: [value] * 6 for name, value in DENSE.items()}
    for kind in (None, pyarrow.uint64()):
        try:
            columns = {
                n: pyarrow.array(v, kind and n in lengths and kind) for n, v in lengths.items()
            }
        except (pyarrow.ArrowException, OverflowError, TypeError):
            continue
        same(selector, pyarrow.table({**layer, **columns}), reasons=True)


def test_errors_stay_with_their_rows(selector: Selector) -> None:
    rows = [DENSE | {"arch": arch, "query_len": 5, "seq_len": 9} for arch in ("9.0", "x", "8.0")]
    found = resolve_table(selector, pyarrow.Table.from_pylist(rows * 4))
    assert [error is not None for error in found["error"].to_pylist()] == [False, True, False] * 4
    assert found["phase"].to_pylist() == ["prefill", None, "prefill"] * 4
    same(selector, pyarrow.Table.from_pylist(rows * 4))


def test_the_default_device_is_for_rows_that_name_none(selector: Selector) -> None:
    table = a_table(9).drop_columns(["arch"])
    assert None not in resolve_table(selector, table)["error"].to_pylist()
    found = resolve_table(selector, table, default=find_device("9.0"))
    assert set(found["error"].to_pylist()) == {None}


# -- what is kept --------------------------------------------------------------------------------


def test_each_cell_is_asked_once(selector: Selector, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = TableReader(RowReader(selector), reasons=False)
    table = a_table(400)
    first = [*answers(reader, table)]
    monkeypatch.setattr("selector.tables.asked.Asked.choose", None)
    assert [*answers(reader, table)] == first


def test_layers_and_answers_that_are_kept_are_few(
    selector: Selector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many rows there are; and what is forgotten is answered the same again."""
    monkeypatch.setattr("selector.tables.rows._MOST_ASKED", 8)
    monkeypatch.setattr("selector.tables.compiled._MOST_ANSWERS", 16)
    monkeypatch.setattr(batch, "_MOST_LAYERS", 4)
    draw = random.Random(5)
    rows = [DENSE | {"head_size": 8 * n, **lengths(draw)} for n in range(1, 60)] * 3
    table = pyarrow.Table.from_pylist(rows)
    reader = RowReader(selector)
    pieces = [piece for rows_ in table.to_batches() for piece in TableReader(reader).answer(rows_)]
    assert max(piece.rows.num_rows for piece in pieces) <= 4
    assert len(reader._asked) == 8
    assert reader._compiled.answers <= 16
    assert reader._compiled.emptied > 1
    assert len(reader._compiled._seen) <= 16
    found = [piece.different[which] for piece in pieces for which in piece.which]
    assert found == [defined(selector, row) for row in rows]


@pytest.mark.parametrize("speculative", [0, 3, None])
def test_draft_tokens_widen_what_counts_as_a_decode(
    selector: Selector, speculative: int | None
) -> None:
    columns = {name: [value] * 18 for name, value in DENSE.items()}
    columns |= {"query_len": [*range(1, 10)] * 2, "seq_len": [9] * 18}
    found = resolve_table(selector, columns | {"speculative_tokens": [speculative] * 18})
    decodes = 1 + (speculative or 0)
    phases = ["decode"] * decodes + ["prefill"] * (9 - decodes)
    assert found["phase"].to_pylist() == phases * 2
