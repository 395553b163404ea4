"""Writes ``tests/parity/``: the part of vLLM's recorded decisions that comes with the tests.

    python tools/extract_oracle.py ORACLE_DIR OUT_DIR

Sentences become codes (``tools/vllm_reasons.py``), errors the name of the exception's class;
columns keep their names. What must be there is taken first: every value of every column, every
capability, mode and selected backend, every code with which a backend refuses, both sides of every
threshold. The rest is spread evenly. The order of taking is a checksum of the row's name, so the
same input gives the same bytes, as long as the version of pyarrow is the same.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
from vllm_reasons import class_of, codes_of, prefill_codes_of

LIMIT = 900_000
GRID_ROWS = 20_000
RANDOM_ROWS = 28_000
EXPLICIT_ROWS = 3_700
PATH_ROWS = 40_000
MIXED_ROWS = 4_000

Columns = dict[str, list[Any]]
Rows = list[int]

OVERRIDE = "override_supports_dense_mha_prefill"
COMBINATION = ("backend", "cap_major", "cap_minor", "model", "tp_size", "kv_cache_dtype", OVERRIDE)
UNCOUNTED = {"case_id", "num_decode_tokens", "prefill_max_seq_len"}
"""Columns of which not every value must be there; nor must every list."""
BY_KIND = ("use_mla", "use_sparse", "attn_type", "cap_major", "cap_minor", "case_id")
SETTINGS = ("cubins", "jit_only", "unusable")


def read(path: Path) -> pa.Table:
    """A table of the oracle with codes in place of sentences."""
    table = pq.read_table(path)
    for name in table.column_names:
        encode = encoding(name)
        if encode:
            kind = table.schema.field(name).type
            coded = pa.array([encode(cell) for cell in table[name].to_pylist()], kind)
            table = table.set_column(table.column_names.index(name), name, coded)
    return table.drop_columns([n for n in ("simulation_failure",) if n in table.column_names])


def encoding(name: str) -> Callable[[Any], Any] | None:
    """What turns a column's cells into codes; None when they hold no sentence."""
    if name == "reasons":
        return lambda cell: [codes_of(one) for one in cell]
    if name == "class_reasons" or name.startswith("r_"):
        return lambda cell: codes_of(cell or ())
    if name in ("error", "impl_error") or name.startswith("ctor_"):
        return class_of
    if name == "not_candidates":
        return lambda cell: [": ".join((b, "; ".join(c))) for b, c in map(prefill_codes_of, cell)]
    return None


def choose(
    units: Mapping[Hashable, Rows],
    told: Callable[[int], Iterable[Hashable]],
    group: Callable[[Rows], Hashable],
    count: int,
) -> Rows:
    """About ``count`` rows, in their order: whole units that tell all there is, then an even mix.

    Args:
        units: Rows that stay together.
        told: What a row shows; everything shown by any row is shown by a chosen one.
        group: What the mix is even over.
        count: No unit is added to this many rows.
    """
    order = sorted(units, key=lambda unit: (crc32(repr(unit).encode()), repr(unit)))
    shown: set[Hashable] = set()
    chosen: dict[Hashable, Rows] = {}
    for unit in order:
        new = {one for row in units[unit] for one in told(row)} - shown
        if new:
            shown |= new
            chosen[unit] = units[unit]
    groups: dict[Hashable, list[Hashable]] = defaultdict(list)
    for unit in order:
        if unit not in chosen:
            groups[group(units[unit])].append(unit)
    size = sum(map(len, chosen.values()))
    for unit in _alternate(list(groups.values())):
        if size >= count:
            break
        chosen[unit] = units[unit]
        size += len(units[unit])
    return sorted(row for rows in chosen.values() for row in rows)


def _alternate(groups: Sequence[Sequence[Hashable]]) -> Iterator[Hashable]:
    for turn in range(max(map(len, groups), default=0)):
        yield from (group[turn] for group in groups if turn < len(group))


def gather(columns: Columns, *names: str) -> dict[Hashable, Rows]:
    """The rows by their values in the columns of these names."""
    units: dict[Hashable, Rows] = defaultdict(list)
    for row, key in enumerate(zip(*(columns[name] for name in names), strict=True)):
        units[key].append(row)
    return units


def values(columns: Columns, row: int) -> Iterator[Hashable]:
    """Yields a row's value in every column that counts, and its capability."""
    yield columns["cap_major"][row], columns["cap_minor"][row]
    for name, cells in columns.items():
        if name not in UNCOUNTED and not isinstance(cells[row], list):
            yield name, cells[row]


def judgements(columns: Columns, row: int) -> Iterator[tuple[Hashable, Hashable, Hashable]]:
    """Yields what a row decides: each backend's codes, by capability, and what is selected."""
    capability = columns["cap_major"][row], columns["cap_minor"][row]
    judged: Iterable[tuple[str, list[str]]]
    if "reasons" in columns:
        judged = zip(columns["candidates"][row], columns["reasons"][row], strict=True)
        yield "selected", columns["selected"][row], columns["mode"][row]
    else:
        judged = ((name, columns[name][row]) for name in columns if name.startswith("r_"))
    for backend, codes in judged:
        yield from ((backend, code, capability) for code in codes or ("accepted",))


def choose_grid(columns: Columns) -> Rows:
    """All base models as they are, each field of each changed, and every pair of changes once.

    A case stays whole; of a pair of changes only what belongs to one capability stays together.
    """
    where = zip(columns["kind"], columns["cap_major"], columns["cap_minor"], strict=True)
    parts = [capability if kind == "pair" else () for kind, *capability in where]
    units = gather({**columns, "part": list(map(tuple, parts))}, "case_id", "part")

    def told(row: int) -> Iterator[Hashable]:
        yield from values(columns, row)
        yield from judgements(columns, row)
        if columns["kind"][row] == "base":
            yield columns["case_id"][row]
        if columns["kind"][row] != "pair":
            yield columns["changed"][row], columns["base"][row]

    def group(rows: Rows) -> Hashable:
        return columns["base"][rows[0]], columns["kind"][rows[0]]

    return choose(units, told, group, GRID_ROWS)


def choose_random(columns: Columns) -> Rows:
    """Whole cases, that is both modes, evenly over what was selected where."""

    def told(row: int) -> Iterator[Hashable]:
        yield from values(columns, row)
        yield from judgements(columns, row)

    def group(rows: Rows) -> Hashable:
        selected = tuple(columns["selected"][row] for row in rows)
        capability = columns["cap_major"][rows[0]], columns["cap_minor"][rows[0]]
        return columns["stratum"][rows[0]], selected, capability

    return choose(gather(columns, "case_id"), told, group, RANDOM_ROWS)


def choose_explicit(columns: Columns) -> Rows:
    """Rows evenly over capabilities, modes and how many backends accept."""

    def told(row: int) -> Iterator[Hashable]:
        yield from values(columns, row)
        yield from judgements(columns, row)

    def group(rows: Rows) -> Hashable:
        row = rows[0]
        accepting = sum(not columns[name][row] for name in columns if name.startswith("r_"))
        where = columns["cap_major"][row], columns["cap_minor"][row], columns["mode"][row]
        return (*where, min(accepting, 3))

    return choose(gather(columns, "case_id"), told, group, EXPLICIT_ROWS)


def choose_paths(columns: Columns) -> Rows:
    """Every combination, each outcome of each, and both sides of every threshold."""
    edges = find_edges(columns)
    combined = list(zip(*(columns[name] for name in COMBINATION), strict=True))

    def told(row: int) -> Iterator[Hashable]:
        yield from values(columns, row)
        yield combined[row], columns["path"][row], columns["treated_as_decode"][row]
        if row in edges or columns["impl_error"][row]:
            yield row

    def group(rows: Rows) -> Hashable:
        return combined[rows[0]]

    return choose({row: [row] for row in range(len(combined))}, told, group, PATH_ROWS)


def find_edges(columns: Columns) -> set[int]:
    """Rows whose neighbour, along one measure of the batch, has another outcome."""
    setting = [*COMBINATION, "sparse_mla_force_mqa"]
    sizes = zip(columns["query_len"], columns["seq_len"], strict=True)
    context = [(seq or 0) - (query or 0) for query, seq in sizes]
    measured = {**columns, "context": context}
    edges: set[int] = set()
    for along, fixed in (
        ("seq_len", ("query_len", "num_reqs")),
        ("query_len", ("context", "num_reqs")),
        ("num_reqs", ("query_len", "seq_len")),
    ):
        for rows in gather(measured, *setting, *fixed).values():
            line = sorted(rows, key=lambda row: columns[along][row] or 0)
            for one, other in pairwise(line):
                if any(columns[n][one] != columns[n][other] for n in ("path", "treated_as_decode")):
                    edges |= {one, other}
    return edges


def choose_mixed(columns: Columns) -> Rows:
    """Every combination with each of its paths."""
    combined = list(zip(*(columns[name] for name in COMBINATION), strict=True))

    def told(row: int) -> Iterator[Hashable]:
        yield from values(columns, row)
        yield combined[row], columns["path_of_prefills"][row]

    def group(rows: Rows) -> Hashable:
        row = rows[0]
        return columns["backend"][row], columns["cap_major"][row], columns["path_of_prefills"][row]

    return choose({row: [row] for row in range(len(combined))}, told, group, MIXED_ROWS)


def read_sensitivity(path: Path, grid: pa.Table) -> pa.Table:
    """The grid's rows of which FlashInfer's state changes an answer, one row for each state."""
    columns = grid.to_pydict()
    found: dict[Hashable, int] = {}
    for row, (mode, changed) in enumerate(zip(columns["mode"], columns["changed"], strict=True)):
        if mode == "model" and changed in ("", "kv_cache_dtype"):
            capability = f"{columns['cap_major'][row]}.{columns['cap_minor'][row]}"
            found[columns["base"][row], capability, columns["kv_cache_dtype"][row]] = row
    rows: list[dict[str, Any]] = []
    for differing in json.loads(path.read_text("utf-8"))["rows_that_differ"]:
        row = found[differing["base"], differing["capability"], differing["kv_cache_dtype"]]
        as_recorded = {name: cells[row] for name, cells in columns.items()}
        rows.extend(_in_state(as_recorded, state, differing[state]) for state in SETTINGS)
        if any(rows[-len(SETTINGS)][name] != cell for name, cell in as_recorded.items()):
            raise SystemExit(f"{path.name}: the grid answers otherwise in row {row}")
    return pa.Table.from_pylist(rows, grid.schema.append(pa.field("setting", pa.string())))


def _in_state(row: Mapping[str, Any], state: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "setting": state,
        "selected": answer["selected"],
        "candidates": list(answer["reasons"]),
        "reasons": [codes_of(sentences) for sentences in answer["reasons"].values()],
        "error": class_of(answer["error"]),
    }


def write(table: pa.Table, path: Path, order: Sequence[str]) -> None:
    """Writes the table sorted by columns, as small as Parquet can."""
    if order:
        table = table.sort_by([(name, "ascending") for name in order])
    plain = {"case_id": "DELTA_BINARY_PACKED"} if "case_id" in table.column_names else {}
    pq.write_table(
        table,
        path,
        compression="zstd",
        compression_level=22,
        use_dictionary=_paths(table, skip={"case_id", "reasons"}),
        column_encoding=plain or None,
        data_page_size=2**27,
        store_schema=False,
        write_statistics=False,
    )


def _paths(table: pa.Table, skip: set[str]) -> list[str]:
    """The leaves of the columns as Parquet names them."""
    paths = []
    for field in table.schema:
        inside, kind = "", field.type
        while pa.types.is_list(kind):
            inside, kind = inside + ".list.element", kind.value_type
        if field.name not in skip:
            paths.append(field.name + inside)
    return paths


def extract(oracle: Path, target: Path) -> Iterator[Path]:
    """Yields each file once it is written."""
    chosen: tuple[tuple[str, str, Callable[[Columns], Rows] | None, Sequence[str]], ...] = (
        ("grid_dev", "grid", choose_grid, ("use_mla", "case_id", "mode")),
        ("random_dev", "random", choose_random, ("use_mla", "case_id", "mode")),
        ("explicit_dev", "explicit", choose_explicit, BY_KIND),
        ("mla_prefill_backend", "mla_prefill", None, ()),
        ("prefill_path_dev", "paths", choose_paths, ()),
        ("prefill_path_mixed_dev", "mixed", choose_mixed, ()),
        ("impl_constructor", "constructor", None, ()),
    )
    for source, name, pick, order in chosen:
        table = read(oracle / f"{source}.parquet")
        if name == "grid":
            path = target / "sensitivity.parquet"
            differing = read_sensitivity(oracle / "sensitivity_flashinfer_dev.json", table)
            write(differing, path, ("use_mla", "case_id", "cap_major", "cap_minor", "setting"))
            yield path
        path = target / f"{name}.parquet"
        write(table.take(pick(table.to_pydict())) if pick else table, path, order)
        yield path


def main(oracle: Path, target: Path) -> int:
    """Writes the files and prints their sizes; exit code 1 when they are too large together."""
    target.mkdir(parents=True, exist_ok=True)
    total = 0
    for path in extract(oracle, target):
        size = path.stat().st_size
        total += size
        print(f"{path.name:<22}{pq.read_metadata(path).num_rows:>8} rows{size:>9} bytes")
    print(f"{'together':<35}{total:>9} bytes")
    return 0 if total <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
