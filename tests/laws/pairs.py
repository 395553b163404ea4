"""``make pairs``: a million random questions to random manifests, asked of plan and definition.

The manifests use the whole language, the questions know all, or some, or only sets of values.
Stops at the first difference and prints it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat

from selector import ManifestError, Request, Selector
from selector.errors import ContradictionError
from selector.loading import loads
from selector.manifest import Manifest
from selector.plan.cells import Cells
from selector.plan.plan import Plan
from selector.plan.tail import Pick
from tests.laws.drawing import (
    LENGTHS,
    Asked,
    Choices,
    Fields,
    a_doubt,
    a_manifest,
    a_question,
    question,
    request,
    widened,
    with_sizes,
)

EACH = 200
"""Questions to one manifest."""


def main() -> int:
    """Runs the check; the exit code is 1 at a difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.laws.pairs", description=__doc__)
    parser.add_argument("--pairs", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, help="another one gives other cases")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    started, total = time.monotonic(), Counter[str]()
    with ProcessPoolExecutor(args.workers) as pool:
        rounds = range(-(-args.pairs // EACH))
        for found in pool.map(one_manifest, repeat(args.seed), rounds, chunksize=8):
            before = total["pairs"] // 100_000
            total.update(found)
            if total["pairs"] // 100_000 > before:
                print(f"{total['pairs']:,} pairs", file=sys.stderr)
    for name, number in sorted(total.items()):
        print(f"{number:>10,} {name}")
    print(f"{time.monotonic() - started:10.0f} seconds")
    return 1 if total["differences"] else 0


def one_manifest(seed: int, number: int) -> Counter[str]:
    """All questions to one drawn manifest; what came of them."""
    source = random.Random(f"{seed} {number}")
    found = Counter[str]()
    while True:
        pick = Choices(source.randbytes(700))
        tree = widened(pick, a_manifest(pick))
        try:
            manifest = loads(json.dumps(tree))
            break
        except ManifestError:
            found["manifests refused"] += 1
    found["manifests"] += 1
    plan = Plan(manifest)
    for turn in range(EACH):
        pick = Choices(source.randbytes(200))
        asked = with_sizes(pick, a_question(pick, tree))
        doubt = a_doubt(pick) if turn % 4 == 0 else (frozenset[str](), {})
        said = _one(plan, manifest, turn, asked, *doubt)
        found["pairs"] += 1
        found[said] += 1
        if said == "differences":
            print(json.dumps({"manifest": tree, "asked": str(asked), "unknown": str(doubt)}))
            break
    return found


def _one(
    plan: Plan, manifest: Manifest, turn: int, asked: Asked, unknown: frozenset[str], sets: Fields
) -> str:
    device, layer, facts = question(manifest, asked, unknown, sets)
    one = request(asked, unknown)
    closed = turn % 8 == 0  # an eighth of all, and half of those of which something is unknown
    try:
        bound = Selector(manifest).bind(device, layer, facts, closed_world=closed)
        wanted = Pick.of(bound.resolve_one(one))
    except ContradictionError:
        try:
            plan.resolve(device, layer, facts, one, closed_world=closed)
        except ContradictionError:
            return "no such layer"
        return "differences"
    if plan.resolve(device, layer, facts, one, closed_world=closed) != wanted:
        return "differences"
    if (
        one.query_len is not None
        and one.seq_len is not None
        and hash(asked.fields["mode"]) % 4 == 0
    ):
        cells = Cells(bound)
        for query_len, seq_len in (*LENGTHS[::3], (asked.query_len, asked.seq_len)):
            there = Pick.of(bound.resolve_one(Request(query_len, seq_len, one.speculative_tokens)))
            if cells.resolve(query_len, seq_len, one.speculative_tokens) != there:
                return "differences"
    if wanted.prefill is None and wanted.decode is None:
        return "nothing chosen"
    return "something chosen"


if __name__ == "__main__":
    sys.exit(main())
