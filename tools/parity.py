"""Compares ``manifests/vllm-0.33.0.yaml`` with what vLLM 0.33.0 itself decided, row by row.

Run as ``parity.py DIRECTORY [--table NAME]… [--json FILE]``. The directory holds the recorded
decisions, whole or the committed part of them (``tests/parity``). Exits with 1 on any difference.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as parquet
from vllm_reasons import codes_of, prefill_codes_of

from selector.asking import with_request
from selector.binding import Bound, Selector
from selector.choose import choose, dense_backend
from selector.judge import Judged, judge
from selector.manifest import Entry, Manifest
from selector.rules import Answer, Question
from selector.tables.rows import RowReader
from selector.values import Outcome, Phase, Policy, Request, Verdict

ROOT = Path(__file__).parent.parent
PREFILL = "_MLA_PREFILL"
"""What the manifest adds to the names of MLA prefill backends, which are those of others too."""

RAISES = "CHECK_RAISES"
CHUNK = 4000
THROUGH_THE_FRONT_DOOR = 49
"""Every so many rows are also answered as ``attnsel batch`` does; odd, as modes alternate."""

FACTS = {
    "cubins": {},
    "jit_only": {"has_trtllm_cubins": False},
    "unusable": dict.fromkeys(
        (
            "has_flashinfer",
            "has_trtllm_cubins",
            "has_flashinfer_sm90_mla",
            "has_flashinfer_sm120_sparse",
        ),
        False,
    ),
}
"""What the settings of the sensitivity table switch off."""

SIZES = {
    576: {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128},
    512: {"kv_lora_rank": 512, "qk_nope_head_dim": 256, "qk_rope_head_dim": 0, "v_head_dim": 256},
}
"""The models of the constructor table, by head size: DeepSeek V3, and GLM without rotary part."""

MODEL_COLUMNS = re.compile(r"m_")

Row = dict[str, Any]
Counts = Counter[str]


class Difference(NamedTuple):
    """One row on which the manifest and vLLM disagree."""

    what: str
    ours: object
    theirs: object
    row: Row


class Table(NamedTuple):
    """One recorded table: its file, whole and committed, and how a row is compared."""

    whole: str
    part: str
    compare: Callable[[Row, Counts, int], Iterator[Difference]]


# -- what vLLM said ------------------------------------------------------------------------------


def codes(reasons: Sequence[str]) -> list[str]:
    """Reasons as codes; the committed tables hold codes already."""
    return codes_of(r for r in reasons if not r.isupper()) + [r for r in reasons if r.isupper()]


# -- what the manifest says ----------------------------------------------------------------------


@cache
def reader(as_claimed: bool = True, closed_world: bool = True) -> RowReader:
    """Reads rows of the tables."""
    path = ROOT / "manifests" / "vllm-0.33.0.yaml"
    selector = Selector.load(path, as_claimed=as_claimed)
    return RowReader(selector, closed_world=closed_world)


def ask(bound: Bound, request: Request | None = None) -> Question:
    """The whole question of a bound row."""
    return with_request(bound.manifest, bound.question, request or Request())


def verdict_of(bound: Bound, name: str, asked: Question, phase: Phase = Phase.DECODE) -> Verdict:
    """What an entry says to a question in a phase, by itself."""
    entry = bound.manifest.entries[name]
    return judge(bound.manifest, entry, asked, bound.facts, bound.policy)[phase]


def reported(entry: Entry, verdict: Verdict, asked: Question, phase: Phase) -> set[str]:
    """The codes that vLLM reports: of constraints, only the first that is broken."""
    if not verdict.rejections:
        return set()
    constraints = entry.phases[phase].constraints
    broken = [c for c in constraints if c.violated(asked) is Answer.YES]
    later = sum(len(c.rejections(asked)) for c in broken)
    said = [r.code for r in verdict.rejections if r.code not in ("NOT_INSTALLED", "VERSION")]
    fields = said[: len(said) - later]
    missing = ["UNAVAILABLE"] if len(said) < len(verdict.rejections) else []
    return {*fields, *missing, *(c.code for c in broken[:1])}


def is_accepted(verdict: Verdict) -> bool:
    """Whether an entry can run the layer, as far as is known."""
    return verdict.outcome in (Outcome.ELIGIBLE, Outcome.CONDITIONAL)


# -- selection -----------------------------------------------------------------------------------


def compare_selection(row: Row, counts: Counts, number: int) -> Iterator[Difference]:
    """The selected backend, the order, and each candidate's verdict and reasons."""
    if row["error"] is not None:
        counts["rows where vLLM raised, left out"] += 1
        return
    bound = reader().bind(row | FACTS[row.get("setting", "cubins")])
    asked = ask(bound)
    judged = judge_listed(row, bound, asked)
    for name, reasons in zip(row["candidates"], row["reasons"], strict=True):
        verdict = judged[name][Phase.DECODE]
        yield from compare_verdict(row, counts, bound, asked, name, verdict, reasons)
    yield from compare_choice(row, counts, bound, asked, judged)
    if (
        row["mode"] == "model"
        and "setting" not in row
        and ("base" in row or row["case_id"] % 2 == 0)
    ):
        yield from compare_unknown(row, counts)  # of the random table, every other row
    if number % THROUGH_THE_FRONT_DOOR == 0:
        counts["rows answered as by attnsel batch"] += 1
        answer = reader().answer(row | FACTS[row.get("setting", "cubins")])
        if (answer["decode_backend"], answer["candidates"]) != (row["selected"], row["candidates"]):
            yield Difference("batch", answer["decode_backend"], row["selected"], row)


def judge_listed(row: Row, bound: Bound, asked: Question) -> Judged:
    """What the candidates of a row say, and the MLA prefill backends beside them."""
    names = {*row["candidates"], *(n for n in listed() if row["use_mla"] and n.endswith(PREFILL))}
    return {
        n: judge(bound.manifest, bound.manifest.entries[n], asked, bound.facts, bound.policy)
        for n in names
    }


@cache
def listed() -> frozenset[str]:
    """Every backend in some priority list."""
    orders = (o for p in reader().selector.manifest.priorities for o in p.orders.values())
    return frozenset(name for order in orders for name in order)


def compare_choice(
    row: Row, counts: Counts, bound: Bound, asked: Question, judged: Judged
) -> Iterator[Difference]:
    """The selected backend and the order in which backends are tried."""
    nothing = Verdict(Outcome.UNSUPPORTED)
    others = {n: dict.fromkeys(Phase, nothing) for n in listed() - judged.keys()}
    _, decode = choose(bound.manifest, asked, judged | others, bound.policy)
    counts["selected backend"] += 1
    if decode.backend != row["selected"]:
        yield Difference("selected backend", decode.backend, row["selected"], row)
    counts["order"] += 1
    if decode.tried != tuple(row["candidates"]):
        yield Difference("order", decode.tried, row["candidates"], row)


def compare_verdict(
    row: Row,
    counts: Counts,
    bound: Bound,
    asked: Question,
    name: str,
    verdict: Verdict,
    reasons: Sequence[str],
) -> Iterator[Difference]:
    """One candidate's verdict and set of reasons."""
    theirs = set(codes(reasons))
    counts["verdicts"] += 1
    if is_accepted(verdict) is bool(theirs) or verdict.outcome is Outcome.CONDITIONAL:
        yield Difference(f"verdict of {name}", verdict.outcome, reasons, row)
    if RAISES in theirs:
        counts["checks that raise, verdict only"] += 1
        return
    counts["sets of reasons"] += 1
    ours = reported(bound.manifest.entries[name], verdict, asked, Phase.DECODE)
    if ours != theirs:
        yield Difference(f"reasons of {name}", sorted(ours), sorted(theirs), row)


def compare_unknown(row: Row, counts: Counts) -> Iterator[Difference]:
    """Verdicts when nothing is known of the model: they must leave room for what is true."""
    blind = {k: None if MODEL_COLUMNS.match(k) else v for k, v in row.items()}
    bound = reader(closed_world=False).bind(blind | {"mode": "nomodel"} | known_facts())
    asked = ask(bound)
    for name, reasons in zip(row["candidates"], row["reasons"], strict=True):
        verdict = verdict_of(bound, name, asked)
        counts["verdicts without a model"] += 1
        if verdict.outcome is Outcome.CONDITIONAL:
            counts["of which undecided"] += 1
        elif is_accepted(verdict) is bool(reasons):
            yield Difference(f"unsound: {name}", verdict.outcome, reasons, row)


@cache
def known_facts() -> dict[str, bool]:
    """Facts of the recorded runs: those of an ordinary installation, and no others."""
    manifest = reader().selector.manifest
    return {name: name in manifest.standard for name in manifest.facts}


def compare_explicit(row: Row, counts: Counts, number: int) -> Iterator[Difference]:
    """Every backend's verdict and reasons, whatever the order."""
    bound = reader().bind(row)
    asked = ask(bound)
    for column, reasons in row.items():
        if column.startswith("r_"):
            verdict = verdict_of(bound, column[2:], asked)
            yield from compare_verdict(row, counts, bound, asked, column[2:], verdict, reasons)


def compare_mla_prefill(row: Row, counts: Counts, number: int) -> Iterator[Difference]:
    """The MLA prefill backend, the order, and why not the others."""
    bound = reader().bind(row)
    asked = ask(bound)
    there, first = dense_backend(bound.manifest, asked, bound.facts, Policy())
    counts["MLA prefill backend"] += 1
    wanted = row["selected"] and row["selected"] + PREFILL
    if first != wanted or (there is Answer.YES) is not bool(wanted):
        yield Difference("MLA prefill backend", first, wanted, row)
    if number % 10 == 0:
        counts["rows answered as by attnsel batch"] += 1
        answer = reader().answer(row)
        if answer["prefill_backend"] != wanted:
            yield Difference("batch", answer["prefill_backend"], wanted, row)
    lists = (p for p in bound.manifest.priorities if Phase.PREFILL in p.orders)
    order = next(p.orders[Phase.PREFILL] for p in lists if p.when.answer(asked) is Answer.YES)
    ours = [name.removesuffix(PREFILL) for name in order if name.endswith(PREFILL)]
    counts["order"] += 1
    if ours != row["candidates"]:
        yield Difference("order", ours, row["candidates"], row)
    said = dict(zip(row["candidates"], map(codes, row["reasons"]), strict=True))
    for refused in row["not_candidates"]:
        name, _, rest = refused.partition(": ")
        parts = rest.split("; ")
        said[name] = parts if parts[0].isupper() else prefill_codes_of(refused)[1]
    for name, reasons in said.items():
        entry = bound.manifest.entries[name + PREFILL]
        verdict = verdict_of(bound, entry.name, asked, Phase.PREFILL)
        counts["sets of reasons"] += 1
        mine = reported(entry, verdict, asked, Phase.PREFILL)
        if mine != set(reasons):
            yield Difference(f"reasons of {name}", sorted(mine), sorted(reasons), row)


# -- paths ---------------------------------------------------------------------------------------


def compare_path(row: Row, counts: Counts, number: int) -> Iterator[Difference]:
    """The path of uniform batches, the threshold, the coerced cache and the prefill backend."""
    if row["impl_error"] is not None:
        counts["rows that a constructor refused, left out"] += 1
        return
    bound = reader().bind(row)
    request = Request(row["query_len"], row["seq_len"])
    (route, *_) = bound.routes([request] * row["num_reqs"], row["backend"])
    counts["path"] += 1
    if route.path.path != row["path"]:
        yield Difference("path", route.path, row["path"], row)
    counts["decode threshold"] += 1
    if route.threshold != row["decode_threshold"]:
        yield Difference("decode threshold", route.threshold, row["decode_threshold"], row)
    counts["counts as a decode"] += 1
    if (route.phase is Phase.DECODE) is not row["treated_as_decode"]:
        yield Difference("counts as a decode", route.phase, row["treated_as_decode"], row)
    yield from compare_pins(row, counts, route.path.path)
    yield from compare_state(row, counts, bound, ask(bound, request))
    if number % THROUGH_THE_FRONT_DOOR == 0:
        counts["rows answered as by attnsel batch"] += 1
        answer = reader().answer(row)
        if answer["prefill_path"] != row["path"]:
            yield Difference("batch", answer["prefill_path"], row["path"], row)


def compare_pins(row: Row, counts: Counts, path: str | None) -> Iterator[Difference]:
    """No request on 12.x takes a dense path, unless the row supposes that there is one."""
    if row["cap_major"] == 12 and path in ("dense_mha", "masked_mha"):
        counts["dense prefills on 12.x, all supposed"] += 1
        if not row["override_supports_dense_mha_prefill"]:
            yield Difference("dense prefill on 12.x", path, row["path"], row)


def compare_state(row: Row, counts: Counts, bound: Bound, asked: Question) -> Iterator[Difference]:
    """The cache dtype once coerced, and the backend that computes dense paths."""
    effective = bound.manifest.entries[row["backend"]].coerced(asked).known("kv_cache_dtype")
    counts["coerced cache dtype"] += 1
    if effective != row["kv_cache_dtype_effective"]:
        yield Difference("cache dtype", effective, row["kv_cache_dtype_effective"], row)
    if row["prefill_backend"] is not None:
        counts["backend of dense paths"] += 1
        runs = dense_backend_of(bound)
        if runs != row["prefill_backend"] + PREFILL:
            yield Difference("backend of dense paths", runs, row["prefill_backend"], row)


@cache
def dense_backend_of(bound: Bound) -> str | None:
    """The backend of dense paths: the same for all lengths of a layer."""
    known = ask(bound).plus({"dtype": "bfloat16"})
    return dense_backend(bound.manifest, known, bound.facts, Policy())[1]


def compare_mixed(row: Row, counts: Counts, number: int) -> Iterator[Difference]:
    """The path of batches of different requests, and how many count as decodes."""
    bound = reader().bind(row)
    requests = [Request(q, s) for q, s in zip(row["query_lens"], row["seq_lens"], strict=True)]
    routes = bound.routes(requests, row["backend"])
    decodes = sum(route.phase is Phase.DECODE for route in routes)
    counts["decodes"] += 1
    if decodes != row["num_decodes"]:
        yield Difference("decodes", decodes, row["num_decodes"], row)
    paths = {route.path.path for route in routes if route.phase is not Phase.DECODE}
    counts["path of prefills"] += 1
    if paths not in (set(), {row["path_of_prefills"]}):
        yield Difference("path of prefills", sorted(map(str, paths)), row["path_of_prefills"], row)
    if number % THROUGH_THE_FRONT_DOOR == 0:
        counts["rows answered as by attnsel batch"] += 1
        answer = reader().answer(row)
        path = answer["prefill_path"] if paths else row["path_of_prefills"]
        if (path, answer["num_decodes"]) != (row["path_of_prefills"], row["num_decodes"]):
            yield Difference("batch", path, row["path_of_prefills"], row)


# -- constructors --------------------------------------------------------------------------------


def compare_constructor(row: Row, counts: Counts, number: int) -> Iterator[Difference]:
    """What a class claims, and what its constructor then takes."""
    wanted = {True: row["class_accepts"], False: row["class_accepts"] and takes(row)}
    for as_claimed, theirs in wanted.items():
        verdict = judge_kind(row, reader(as_claimed).selector.manifest, as_claimed)
        what = "classes" if as_claimed else "constructors"
        counts[what] += 1
        if is_accepted(verdict) is not theirs:
            yield Difference(what, verdict, theirs, row)
    if row["class_accepts"] and not takes(row):
        counts["claims that a constructor refuses"] += 1


def takes(row: Row) -> bool:
    """Whether the constructor takes what the class accepted."""
    return bool(row["ctor_with_effective_dtype"] == "ok")


def judge_kind(row: Row, manifest: Manifest, as_claimed: bool) -> Verdict:
    """The entry's verdict; the table leaves out what kind of layer it is, and the model's sizes."""
    entry = manifest.entries[row["backend"]]
    sizes = SIZES.get(row["head_size"], {}) if entry.mla else {}
    kind = {"use_mla": entry.mla, "use_sparse": entry.sparse} | sizes
    bound = reader(as_claimed, closed_world=False).bind(row | kind | known_facts())
    return verdict_of(bound, entry.name, ask(bound))


TABLES = {
    "grid": Table("grid_dev.parquet", "grid.parquet", compare_selection),
    "random": Table("random_dev.parquet", "random.parquet", compare_selection),
    "explicit": Table("explicit_dev.parquet", "explicit.parquet", compare_explicit),
    "sensitivity": Table("", "sensitivity.parquet", compare_selection),
    "mla_prefill": Table("mla_prefill_backend.parquet", "mla_prefill.parquet", compare_mla_prefill),
    "paths": Table("prefill_path_dev.parquet", "paths.parquet", compare_path),
    "mixed": Table("prefill_path_mixed_dev.parquet", "mixed.parquet", compare_mixed),
    "constructor": Table("impl_constructor.parquet", "constructor.parquet", compare_constructor),
}


# -- running -------------------------------------------------------------------------------------


class Result(NamedTuple):
    """What comparing a table, or a piece of it, gave."""

    counts: Counts
    differences: list[Difference]


def file_of(directory: Path, name: str) -> Path:
    """The table's file: in the directory, whole or in part, or else the committed one."""
    table = TABLES[name]
    candidates = [directory / n for n in (table.whole, table.part) if n]
    return next((p for p in candidates if p.is_file()), ROOT / "tests" / "parity" / table.part)


@cache
def read(path: Path) -> Any:
    """The table, read once a process."""
    return parquet.read_table(path)


def compare_rows(path: Path, name: str, start: int, stop: int) -> Result:
    """Compares some rows of a table."""
    rows = read(path).slice(start, stop - start).to_pylist()
    counts: Counts = Counter(rows=len(rows))
    differences: list[Difference] = []
    for number, row in enumerate(rows, start):
        differences += TABLES[name].compare(row, counts, number)
    return Result(counts, differences)


def compare_tables(directory: Path, names: Sequence[str], workers: int = 1) -> dict[str, Result]:
    """Compares whole tables; several processes share the work."""
    results = {name: Result(Counter(), []) for name in names}
    pieces: list[tuple[str, Path, int, int]] = []
    for name in names:
        path = file_of(directory, name)
        total = parquet.read_metadata(path).num_rows
        cuts = [*range(0, total, CHUNK), total]
        pieces += [(name, path, a, b) for a, b in pairwise(cuts)]
    if workers == 1:
        found = [compare_rows(path, name, a, b) for name, path, a, b in pieces]
    else:
        with ProcessPoolExecutor(workers) as pool:
            tasks = [pool.submit(compare_rows, path, name, a, b) for name, path, a, b in pieces]
            found = [task.result() for task in tasks]
    for (name, *_), result in zip(pieces, found, strict=True):
        results[name].counts.update(result.counts)
        results[name].differences.extend(result.differences)
    return results


def print_results(results: dict[str, Result]) -> None:
    """One line a figure, then the first differences."""
    for name, (counts, differences) in results.items():
        wrong = Counter(d.what.partition(" of ")[0] for d in differences)
        print(f"{name}: {counts['rows']:,} rows, {len(differences):,} differences")
        for what, count in counts.items():
            if what != "rows":
                print(f"  {what:<44} {count:>12,}")
        for what, count in wrong.items():
            print(f"  DIFFERENT  {what:<33} {count:>12,}")
        for difference in differences[:3]:
            row = {k: v for k, v in difference.row.items() if not k.startswith("r_")}
            print(
                f"  {difference.what}: {difference.ours} here, {difference.theirs} there\n    {row}"
            )


def main() -> int:
    """Runs the comparison."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("directory", type=Path)
    options.add_argument("--table", action="append", choices=list(TABLES))
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    started = time.monotonic()
    results = compare_tables(given.directory, given.table or list(TABLES), given.workers)
    print_results(results)
    print(f"{time.monotonic() - started:.0f} s")
    if given.json:
        figures = {
            name: {**r.counts, "differences": len(r.differences)} for name, r in results.items()
        }
        given.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if any(r.differences for r in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
