"""How long exact answers about whole manifests take: diff, verify, gaps."""

from __future__ import annotations

import time
from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage

from selector import Selector
from selector.analysis.comparing import compare
from selector.analysis.gaps import find_gaps
from selector.analysis.proving import prove_all
from tests.unit.analysis.drawing import drawn

from .harness import Figure

_SHIPPED = "vllm-0.33.0"


def figures() -> list[Figure]:
    """All figures of this file, of the processor's time."""
    claims, truth = Selector.load(_SHIPPED, as_claimed=True), Selector.load(_SHIPPED)
    parts: list[tuple[str, str, float | None, Callable[[], object]]] = [
        (
            "ANA01",
            f"{_SHIPPED}: claims and truth compared",
            None,
            lambda: compare(claims.manifest, truth.manifest),
        ),
        ("ANA02", f"{_SHIPPED}: every promise proved", None, lambda: prove_all(truth.manifest)),
        ("ANA03", f"{_SHIPPED}: gaps", None, lambda: find_gaps(truth.manifest)),
    ]
    for seed in range(3):
        old = Selector.loads(drawn(seed, 60, 40)).manifest
        new = Selector.loads(drawn(seed, 60, 40, changes=6)).manifest
        parts += [
            (
                f"ANA1{seed}",
                f"60 entries, 40 constraints (drawing {seed}): diff",
                10,
                lambda old=old, new=new: compare(old, new),
            ),
            (
                f"ANA2{seed}",
                f"60 entries, 40 constraints (drawing {seed}): verify",
                10,
                lambda new=new: prove_all(new),
            ),
            (
                f"ANA3{seed}",
                f"60 entries, 40 constraints (drawing {seed}): gaps",
                10,
                lambda new=new: find_gaps(new),
            ),
        ]
    found = [Figure(id_, what, _taken(call), "s", bound) for id_, what, bound, call in parts]
    most = getrusage(RUSAGE_SELF).ru_maxrss / 1024
    return [*found, Figure("ANA40", "most memory of all these in one process", most, "MiB", 1024)]


def _taken(call: Callable[[], object]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin
