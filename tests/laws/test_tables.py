"""A table is answered as its rows are, whatever the manifest and the rows say."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("numpy")
pyarrow = pytest.importorskip("pyarrow")

from selector import Selector  # noqa: E402
from selector.errors import AttnselError, ManifestError  # noqa: E402
from selector.loading import loads  # noqa: E402
from selector.tables import batch  # noqa: E402
from selector.tables.answers import ANSWER_COLUMNS, PLAIN_COLUMNS, answer_to, failed  # noqa: E402
from selector.tables.batch import TableReader  # noqa: E402
from selector.tables.rows import RowReader, requests_of  # noqa: E402

from .drawing import VALUES, Choices, a_manifest, a_question  # noqa: E402

Row = dict[str, Any]
QUERIES = (1, 2, 3, 4, 5, 8, 16, 63, 64, 65, 128, 129, 700, 2048)
CACHED = (0, 0, 1, 16, 64, 100, 128, 1000, 1948, 2048, 4096)


def defined(selector: Selector, row: Row, closed_world: bool = False) -> Row:
    """The columns of a row as the definition gives them, with nothing kept from other rows."""
    reader = RowReader(selector, closed_world=closed_world)
    try:
        asked = reader.ask(row)
        bound = asked.bound
        return answer_to(bound, requests_of(row), dense=asked.dense, given=asked.given)
    except AttnselError as error:
        return failed(str(error))


def answers(reader: TableReader, table: Any, size: int = 1 << 20) -> Iterator[Row]:
    """The columns of every row, from record batches of a size."""
    for rows in table.to_batches(max_chunksize=size):
        for piece in reader.answer(rows):
            assert len(piece.which) == piece.rows.num_rows
            yield from (piece.different[number] for number in piece.which)


def some_rows(draw: random.Random, tree: Row, names: list[str], number: int) -> list[Row]:
    """Rows of few layers: most are plain requests; every kind of row that is none is there."""
    backends = [entry["name"] for entry in tree["backends"]]
    layers = [a_layer(draw, tree, names, backends) for _ in range(4)]
    odd = draw.choice(KINDS)
    return [
        draw.choice(layers) | lengths(draw, draw.choice((odd, "plain", *KINDS)))
        for _ in range(number)
    ]


KINDS = ("plain", "no seq_len", "no query_len", "neither", "alike", "mixed", "bad")


def lengths(draw: random.Random, kind: str) -> Row:
    query = draw.choice(QUERIES)
    said: Row = {"query_len": query, "seq_len": query + draw.choice(CACHED)}
    said |= {"speculative_tokens": draw.choice((None, 0, 0, 3)), "num_reqs": None}
    said |= {"query_lens": None, "seq_lens": None}
    if kind == "no seq_len":
        said["seq_len"] = None
    elif kind == "no query_len":
        said["query_len"] = None
    elif kind == "neither":
        said |= {"query_len": None, "seq_len": None, "num_reqs": draw.choice((None, 1, 2))}
    elif kind == "alike":
        said["num_reqs"] = draw.choice((1, 2, 3, 7))
    elif kind == "mixed":
        said |= mixed(draw) | {"query_len": None, "seq_len": None}
    elif kind == "bad":
        said |= draw.choice(
            (
                {"query_len": draw.choice((0, -1, said["seq_len"] + 1))},
                {"seq_len": draw.choice((0, -7, 1 << 40))},
                {"num_reqs": draw.choice((0, -1, 9999))},
                {"num_reqs": 2, "seq_len": None},
                {"speculative_tokens": -1},
                {"query_lens": [1], "seq_lens": [9]},
                mixed(draw) | {"seq_lens": [1], "query_len": None, "seq_len": None},
            )
        )
    return said


def mixed(draw: random.Random) -> Row:
    queries = [draw.choice(QUERIES) for _ in range(draw.choice((1, 2, 2, 3, 4)))]
    seqs: list[int | None] = [query + draw.choice(CACHED) for query in queries]
    if draw.random() < 0.1:
        seqs[-1] = draw.choice((None, 0))
    if draw.random() < 0.1:
        queries, seqs = queries[:1] * 3, seqs[:1] * 3
    return {"query_lens": queries, "seq_lens": seqs}


def a_layer(draw: random.Random, tree: Row, names: list[str], backends: list[str]) -> Row:
    asked = a_question(Choices(draw.randbytes(200)), tree)
    layer = {name: asked.fields.get(name) for name in names} | {"lib": asked.version}
    for name in {"block_size", "sliding_window", "index_topk", "num_heads"} & layer.keys():
        layer[name] = str(layer[name])  # numbers and words in one column
    layer["arch"] = draw.choice(("9.0", "12.0", str(asked.fields["capability"]), "none"))
    layer |= {"deny": None, "backend": None}
    if draw.random() < 0.25:
        layer["backend"] = draw.choice((*backends, "nobody"))
    if draw.random() < 0.2:
        layer["deny"] = [draw.choice((*backends, backends[0], "nobody"))]
    return layer


@pytest.mark.parametrize("seed", range(24))
def test_a_table_is_answered_as_its_rows_are(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By cells and row by row, scalar too; in pieces of any size."""
    draw = random.Random(seed)
    tree, selector = a_selector(draw)
    names = [name for name in VALUES if name != "capability" and draw.random() < 0.8]
    closed_world = draw.random() < 0.5
    rows = some_rows(draw, tree, names, 60)
    left_out = draw.choice(("", "", "seq_len", "query_len", "num_reqs"))
    rows = [{name: value for name, value in row.items() if name != left_out} for row in rows]
    table = pyarrow.Table.from_pylist(rows)
    wanted = [defined(selector, row, closed_world) for row in rows]
    for worth in (1, 1 << 20):
        monkeypatch.setattr(batch, "_WORTH", worth)
        for columns in (ANSWER_COLUMNS, PLAIN_COLUMNS):
            reader = RowReader(selector, closed_world=closed_world)
            found = answers(TableReader(reader, columns is ANSWER_COLUMNS), table, 47)
            for row, answer, want in zip(rows, found, wanted, strict=True):
                assert [answer[n] for n in columns] == [want[n] for n in columns], row
    alone = RowReader(selector, closed_world=closed_world)
    assert [alone.columns(row) for row in rows] == wanted


def a_selector(draw: random.Random) -> tuple[Row, Selector]:
    while True:
        tree: Row = a_manifest(Choices(draw.randbytes(600)))
        try:
            return tree, Selector(loads(json.dumps(tree)))
        except ManifestError:
            continue
