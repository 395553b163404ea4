"""Measures figures, each with an id; prints them, and writes them down with machine and date."""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import timeit
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

__all__ = ["Figure", "median_of", "once", "report"]


class Figure(NamedTuple):
    """One measured figure.

    Attributes:
        id: stays the same for ever.
        what: was measured.
        value: in ``unit``.
        unit: of the value.
        bound: what it must not exceed; ``None``: it stands for comparison.
    """

    id: str
    what: str
    value: float
    unit: str
    bound: float | None = None


def median_of(call: Callable[[], object], number: int = 2000, repeat: int = 15) -> float:
    """The median time of a call, in nanoseconds, without the time of calling nothing.

    It is the processor's time: others may be at work beside it.
    """

    def median(one: Callable[[], object]) -> float:
        found = timeit.repeat(one, timer=time.process_time, number=number, repeat=repeat)
        return sorted(found)[repeat // 2] / number

    return max(0.0, median(call) - median(_nothing)) * 1e9


def _nothing() -> None:
    return None


def once(call: Callable[[], object]) -> float:
    """The time of one call, in nanoseconds."""
    begin = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begin


def report(figures: Iterable[Figure], folder: Path) -> bool:
    """Prints figures and writes them to a file; whether all are within their bounds."""
    found = []
    for figure in figures:
        found.append(figure)
        bound = "" if figure.bound is None else f"at most {figure.bound:,.10g}"
        over = "  OVER" if _is_over(figure) else ""
        print(f"{figure.id:8}{figure.what:52}{figure.value:>12,.1f} {figure.unit:4}{bound}{over}")
        sys.stdout.flush()
    folder.mkdir(parents=True, exist_ok=True)
    at = datetime.now(UTC)
    file = folder / f"{at:%Y-%m-%dT%H%M%S}.json"
    said = {
        "date": at.isoformat(timespec="seconds"),
        "machine": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "load": os.getloadavg()[0],
        },
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("attnsel", "msgspec", "numpy", "pyarrow")},
        },
        "figures": [figure._asdict() for figure in found],
    }
    file.write_text(json.dumps(said, indent=1, ensure_ascii=False) + "\n")
    print(f"written to {file}")
    return not any(map(_is_over, found))


def _is_over(figure: Figure) -> bool:
    return figure.bound is not None and figure.value > figure.bound


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":")[1].strip() for line in lines if "model name" in line), "")
