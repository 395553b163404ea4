"""How long ``attnsel preflight`` and ``attnsel explain --log`` take, cold and warm.

Cold is a process of its own, started, answered and ended. Warm is one more command in a process
that has loaded the manifest: reading the line, the model's config, the answer, and the change.
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from selector.binding import Selector
from selector.devices import find_gpu
from selector.errors import AttnselError
from selector.models import load_model, presets
from selector.report.preflight import preflight_json
from selector.serving.commands import read_command, split_line
from selector.serving.diagnosis.answer import diagnose
from selector.serving.logs.log import read_log
from selector.serving.preflight.answer import Engine, preflight

from .harness import Figure

_SERVING = Path(__file__).parents[1] / "tests" / "unit" / "serving"
_MANIFEST = "vllm-0.33.0"
_GPUS = ("T4", "A100", "H200", "B200", "RTX PRO 6000")
_COLD = "import sys; from cli.main import main; sys.exit(main(sys.argv[1:]))"
_COLD_RUNS = 6
_MOST_ANSWERS = 12


class Timed(NamedTuple):
    """One run: what it was about, how it ended, and how long it took."""

    shown: str
    ended: str
    took_s: float
    arguments: tuple[str, ...] = ()


def _lines() -> list[str]:
    text = (_SERVING / "commands" / "commands.jsonl").read_text("utf-8")
    rows = map(json.loads, text.splitlines())
    return [row["line"] for row in rows if row.get("line")]


def _warm_commands() -> Iterator[Timed]:
    """Yields every line that can be read, on each GPU, with one model after another."""
    engine = Engine.load(_MANIFEST)
    models = presets()
    for number, line in enumerate(_lines()):
        for place, gpu in enumerate(_GPUS):
            model = models[(number * len(_GPUS) + place) % len(models)]
            device = find_gpu(gpu)
            began = time.perf_counter()
            try:
                variables, argv = split_line(line)
                command = read_command(argv, variables)
                found = preflight(command, load_model(model), device, engine)
            except AttnselError:
                continue
            json.dumps(preflight_json([found]))
            took_s = time.perf_counter() - began
            mended = "fails, mended" if found.mended else "fails, nothing helps"
            arguments = ("preflight", "--gpu", gpu, "--model", model, "--", line)
            shown = f"{gpu}, {model}: {line}"
            yield Timed(shown, "starts" if found.will_start else mended, took_s, arguments)


def _warm_logs() -> Iterator[Timed]:
    """Yields every log, and all of them in one."""
    selector = Selector.load(_MANIFEST)
    texts = {path.name: path.read_text("utf-8") for path in sorted(_SERVING.glob("logs/*.log"))}
    texts["all of them"] = "".join(texts.values())
    for name, text in texts.items():
        began = time.perf_counter()
        log = read_log(text, selector.manifest.vocabulary)
        for error in log.errors[:_MOST_ANSWERS]:
            diagnose(error, log, selector)
        yield Timed(f"{name} ({len(log.errors)} errors)", "explained", time.perf_counter() - began)


def _cold(runs: Sequence[tuple[str, ...]], ended: str) -> Iterator[Timed]:
    for arguments in runs:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", _COLD, *arguments], capture_output=True, check=False)
        yield Timed(shlex.join(arguments), ended, time.perf_counter() - began)


def figures() -> list[Figure]:
    """All figures of this file."""
    commands, logs = [*_warm_commands()], [*_warm_logs()]
    found = [*_figures("SERVE1", "preflight, warm", commands, 100)]
    found += _figures("SERVE2", "explain --log, warm", logs, None)
    slowest = sorted(commands, key=lambda one: -one.took_s)
    cold: list[Timed] = []
    for ended in dict.fromkeys(one.ended for one in commands):
        some = [one.arguments for one in slowest if one.ended == ended][:_COLD_RUNS]
        cold += _cold(some, ended)
    found += _figures("SERVE3", "preflight, cold", cold, 1000)
    files = sorted(str(path) for path in _SERVING.glob("logs/*.log"))
    runs = [("explain", "--log", file) for file in files[:_COLD_RUNS]]
    return [*found, *_figures("SERVE4", "explain --log, cold", [*_cold(runs, "explained")], 1000)]


def _figures(id_: str, title: str, timed: Sequence[Timed], bound: float | None) -> Iterator[Figure]:
    """Yields the median of each way that runs end; the worst stands beside, for scale."""
    for place, ended in enumerate(dict.fromkeys(one.ended for one in timed), 1):
        times = sorted(one.took_s * 1e3 for one in timed if one.ended == ended)
        what = f"{title}: {ended}, {len(times)} runs"
        yield Figure(f"{id_}{place}", what, statistics.median(times), "ms", bound)
        yield Figure(f"{id_}{place}w", f"{title}: {ended}, the worst", times[-1], "ms")
