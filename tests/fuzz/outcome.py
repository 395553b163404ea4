"""One command line of attnsel, run in this process: what came out, and in what time."""

from __future__ import annotations

import io
import json
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from typing import Any, NamedTuple

from cli.main import main
from selector.binding import Selector
from selector.models import load_model
from selector.serving.preflight.answer import Engine

__all__ = ["LONGEST_S", "Outcome", "Tally", "attempt", "cached_model", "engine", "warm_up"]

LONGEST_S = 2.0

engine = cache(Engine.load)
cached_model = cache(load_model)


class Outcome(NamedTuple):
    """What one run gave.

    Attributes:
        code: the exit code; ``None``: it raised.
        out: what it printed.
        err: what it complained of.
        trouble: why this is neither an answer nor a one-line error; empty when it is.
        took_s: processor time, since others may use the machine.
    """

    code: int | None
    out: str
    err: str
    trouble: str
    took_s: float

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def warm_up() -> None:
    """Lets every run share one engine, as a service would; a bug raises instead of one line."""
    loaded = cache(Selector.load)

    def load(manifest: str, overlays: Sequence[str] = ()) -> Selector:
        return loaded(manifest, overlays=tuple(overlays))

    Engine.load = staticmethod(engine)  # type: ignore[method-assign,assignment]
    Selector.load = staticmethod(load)  # type: ignore[method-assign,assignment]
    os.environ["ATTNSEL_TRACEBACK"] = "1"
    engine("vllm-0.33.0")
    load("vllm-0.33.0")


def attempt(arguments: Sequence[str], stdin: bytes = b"") -> Outcome:
    """Runs attnsel with these arguments."""
    out, err = io.StringIO(), io.StringIO()
    code, trouble = None, ""
    kept = sys.stdin
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")
    began = time.process_time()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = main(arguments)
    except Exception:
        trouble = traceback.format_exc(limit=-8)
    finally:
        sys.stdin = kept
    took_s = time.process_time() - began
    trouble = trouble or _trouble(code, out.getvalue(), err.getvalue(), took_s)
    return Outcome(code, out.getvalue(), err.getvalue(), trouble, took_s)


def _trouble(code: int | None, out: str, err: str, took_s: float) -> str:
    if took_s > LONGEST_S:
        return f"took {took_s:.1f} s"
    if code == 2:
        one_line = err.startswith("attnsel: ") and err.count("\n") == 1 and err.endswith("\n")
        return "" if one_line and not out else f"no one-line error: {err[:400]!r} {out[:200]!r}"
    if code not in (0, 3):
        return f"exit code {code}: {err[:400]}"
    return "" if out else "no answer"


class Tally:
    """Counts what came out, and keeps the slowest and what failed."""

    def __init__(self, what: str, seed: int) -> None:
        self.what = what
        self.seed = seed
        self.counts: Counter[str] = Counter()
        self.failures: list[tuple[int, str, str]] = []
        self.slowest: list[tuple[float, int, str]] = []

    def add(self, number: int, kind: str, shown: str, outcome: Outcome, broken: str = "") -> None:
        """Counts one run; ``broken`` says which law it breaks."""
        self.counts[kind] += 1
        if (number + 1) % 1000 == 0:
            print(f"{number + 1:,} {self.what}", flush=True)
        self.slowest = sorted([*self.slowest, (outcome.took_s, number, shown)], reverse=True)[:5]
        if outcome.trouble or broken:
            self.failures.append((number, shown, outcome.trouble or broken))
            print(f"FAILED {number}: {_cut(shown, 600)}\n  {outcome.trouble or broken}", flush=True)

    def show(self, say: Callable[[str], object] = print) -> None:
        """Prints the counts, the slowest runs and the failures."""
        say(f"{sum(self.counts.values()):,} {self.what}, seed {self.seed}:")
        for kind, count in self.counts.most_common():
            say(f"  {count:>7,}  {kind}")
        say("  slowest:")
        for took_s, number, shown in self.slowest:
            say(f"  {took_s:7.3f} s  number {number}: {_cut(shown)}")
        say(f"  {len(self.failures)} failures")


def _cut(text: str, most: int = 160) -> str:
    flat = text.encode("ascii", "backslashreplace").decode().replace("\n", "\\n")
    return flat if len(flat) <= most else f"{flat[:most]}… ({len(flat):,} characters)"
