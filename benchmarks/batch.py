"""How long a row of a table takes, of few layers or unlike all others; what the command keeps."""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet

from selector import Selector
from selector.tables.batch import TableReader, resolve_table
from selector.tables.rows import RowReader

from .harness import Figure

MANIFEST = "vllm-0.33.0"
ROWS = 1_000_000
LAYERS = 200
ODD_ROWS = 100_000
_COMMAND = "import sys; from cli.main import main; sys.exit(main(sys.argv[1:]))"


def figures() -> list[Figure]:
    """All figures of this file; of one thread's own time, but for the command."""
    return [*rows(), *different(), *odd(), *memory()]


def rows() -> list[Figure]:
    """A million rows of 200 layers with random lengths."""
    selector, table = Selector.load(MANIFEST), a_table(ROWS)
    lengths = [table[name].to_numpy() for name in ("query_len", "seq_len")]
    bare = min(_taken(lambda: sum(int((c * 3 + 1).sum()) for c in lengths)) for _ in range(5))
    found = [
        Figure("BATCH00", "bare NumPy: two columns times 3, plus 1, summed", bare / ROWS, "ns")
    ]
    first = _taken(lambda: resolve_table(selector, table, closed_world=True)) / ROWS
    found.append(Figure("BATCH10", "a row of a million, nothing kept", first, "ns"))
    for place, reasons in enumerate((False, True), 1):
        reader = TableReader(RowReader(selector, closed_world=True), reasons)
        _answer(reader, table)
        warm = min(_taken(partial(_answer, reader, table)) for _ in range(7)) / ROWS
        what = f"a row of a million{', with reasons' if reasons else ''}"
        found.append(Figure(f"BATCH1{place}", what, warm, "ns", None if reasons else 100))
    some = table.slice(0, 300).to_pylist()
    plain = RowReader(selector, closed_world=True)
    naive = _taken(lambda: [_defined(plain, row) for row in some]) / len(some)
    return [*found, Figure("BATCH20", "a row by the definition", naive / 1e3, "µs")]


def different() -> list[Figure]:
    """Rows that have nothing in common."""
    selector = Selector.load(MANIFEST)
    layers = pyarrow.Table.from_pylist([_layer(random.Random(n)) for n in range(6000)])
    table = layers.append_column("num_reqs", pyarrow.array([1] * len(layers)))
    table = table.append_column("query_len", pyarrow.array(range(1, len(layers) + 1)))
    table = table.append_column("seq_len", pyarrow.array([9000] * len(layers)))
    found = []
    for place, reasons in enumerate((False, True), 1):
        reader = TableReader(RowReader(selector, closed_world=True), reasons)
        _answer(reader, table.slice(0, 2000))
        each = _taken(partial(_answer, reader, table.slice(2000))) / (len(table) - 2000)
        what = f"a row unlike others{', with reasons' if reasons else ''}"
        found.append(Figure(f"BATCH3{place}", what, each / 1e3, "µs"))
    return found


def odd() -> list[Figure]:
    """Few layers; a tenth of the rows are no plain requests, or all are."""
    selector, table = Selector.load(MANIFEST), a_table(ODD_ROWS)
    draw = numpy.random.default_rng(3)
    hit = draw.random(ODD_ROWS) < 0.1
    query, seq = (table[name].to_numpy() for name in ("query_len", "seq_len"))
    several = numpy.where(hit, draw.integers(2, 6, ODD_ROWS), 1)
    kinds: tuple[tuple[str, dict[str, Any], int | None], ...] = (
        (
            "a tenth have query_len above seq_len",
            {"query_len": numpy.where(hit, seq + 1, query)},
            1,
        ),
        ("a tenth have no seq_len", {"seq_len": pyarrow.array(seq, mask=hit)}, 1),
        ("a tenth have no query_len", {"query_len": pyarrow.array(query, mask=hit)}, 1),
        ("seq_len is no column", {"seq_len": None}, 1),
        ("a tenth are 2 to 5 requests", {"num_reqs": several}, None),
        ("a tenth are lists of 4 requests", _lists(draw, hit, query, seq), None),
    )
    found = []
    for place, (what, changed, bound) in enumerate(kinds, 1):
        columns = {name: table[name] for name in table.schema.names} | changed
        rows = pyarrow.table({name: one for name, one in columns.items() if one is not None})
        reader = TableReader(RowReader(selector, closed_world=True))
        _answer(reader, rows)
        warm = min(_taken(partial(_answer, reader, rows)) for _ in range(5)) / ODD_ROWS
        found.append(Figure(f"BATCH6{place}", f"a row where {what}", warm / 1e3, "µs", bound))
    return found


def _lists(draw: Any, hit: Any, query: Any, seq: Any) -> dict[str, Any]:
    """Columns where some rows are lists of requests instead of one."""
    lists = {"query_lens": draw.integers(1, 9000, (len(hit), 4))}
    lists["seq_lens"] = lists["query_lens"] + draw.integers(0, 60_000, (len(hit), 4))
    one = {"query_len": query, "seq_len": seq}
    return {
        **{name: pyarrow.array(values, mask=hit) for name, values in one.items()},
        **{name: pyarrow.array([*values], mask=~hit) for name, values in lists.items()},
    }


def memory() -> list[Figure]:
    """What the command takes for a table that it streams, of one and of two million rows."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for place, millions in enumerate((1, 2), 1):
            file, out = Path(folder, "rows.parquet"), Path(folder, "answers.parquet")
            table = a_table(ROWS)
            with pyarrow.parquet.ParquetWriter(file, table.schema) as writer:
                for _ in range(millions):
                    writer.write_table(table, row_group_size=ROWS // 4)
            used = _run("batch", file, "--manifest", MANIFEST, "--closed-world", "--out", out)
            what = f"attnsel batch, {millions} million rows"
            most, took = used.ru_maxrss / 1024, (used.ru_utime + used.ru_stime) / millions
            found.append(Figure(f"BATCH4{place}", f"{what}: most memory", most, "MiB", 1024))
            found.append(Figure(f"BATCH5{place}", f"{what}: a row", took, "µs"))
    return found


def _run(*arguments: object) -> resource.struct_rusage:
    """What a command used, alone."""
    command = [sys.executable, "-c", _COMMAND, *map(str, arguments)]
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)
    return used


def a_table(rows: int) -> Any:
    """Rows of few layers with random lengths; text is encoded as a dictionary."""
    draw, numbers = random.Random(2), numpy.random.default_rng(1)
    layers = pyarrow.Table.from_pylist([_layer(draw) for _ in range(LAYERS)])
    which = pyarrow.array(numbers.integers(0, LAYERS, rows))
    columns = {}
    for name in layers.schema.names:
        column = layers[name].combine_chunks()
        if column.type == pyarrow.string():
            column = column.dictionary_encode()
            indices = column.indices.take(which)
            columns[name] = pyarrow.DictionaryArray.from_arrays(indices, column.dictionary)
        else:
            columns[name] = column.take(which)
    query = numpy.where(numbers.random(rows) < 0.5, 1, numbers.integers(1, 70_000, rows))
    seq = query + numbers.integers(0, 60_000, rows)
    return pyarrow.table({**columns, "query_len": query, "seq_len": seq})


def _layer(draw: random.Random) -> dict[str, Any]:
    mla = draw.random() < 0.5
    sparse = mla and draw.random() < 0.6
    return {
        "arch": draw.choice(("8.0", "9.0", "10.0", "12.0")),
        "mla": mla,
        "sparse": sparse,
        "head_size": 576 if mla else draw.randrange(8, 512, 8),
        "dtype": draw.choice(("bfloat16", "float16")),
        "kv_cache_dtype": draw.choice(("auto", "fp8", "fp8_e4m3")),
        "block_size": draw.choice((16, 32, 64, None)),
        "sink": draw.random() < 0.2,
        "num_heads": draw.choice((8, 16, 64, 128)),
        "tp_size": draw.choice((1, 2, 8)),
        "kv_lora_rank": 512 if mla else None,
        "qk_rope_head_dim": 64 if mla else None,
        "index_topk": 2048 if sparse else None,
    }


def _answer(reader: TableReader, table: Any) -> None:
    names = ("decode_backend", "prefill_backend", "prefill_path", "prefill_by", "phase")
    for batch in table.to_batches():
        for answers in reader.answer(batch):
            for name in (*names, "num_decodes", "decode_threshold", "error"):
                answers.encoded(name)


def _defined(reader: RowReader, row: dict[str, Any]) -> None:
    reader.bind(row).resolve(row["query_len"], row["seq_len"])


def _taken(call: Callable[[], object]) -> float:
    """The processor's time for a call, in nanoseconds: others may be at work beside it."""
    begin = time.process_time_ns()
    call()
    return time.process_time_ns() - begin
