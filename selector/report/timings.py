"""What was timed, and what was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from selector.report.text import BLANK, Line, Part, bad, faint, grid, line, strong
from selector.report.wording import counted, device_words
from selector.tuning.results import Results
from selector.values import Device

__all__ = ["bench_lines", "nothing_timed_words", "timing_words"]


def timing_words(shapes: int, candidates: int, device: Device) -> str:
    """What will run: ``timing 240 shapes, 5 backends, on H200 (9.0)``."""
    return f"timing {counted(shapes, 'shape')}, {counted(candidates, 'backend')}, on {device}"


def nothing_timed_words(not_run: Mapping[str, str]) -> str:
    """Why there is nothing to time here."""
    reasons = Counter(not_run.values())
    most = "; ".join(
        f"{why} ({counted(n, 'entry', 'entries')})" for why, n in reasons.most_common(3)
    )
    return f"no entry of this manifest can be timed here: {most or 'it has none'}"


def bench_lines(results: Results, file: str) -> list[Line]:
    """What ran, candidate by candidate, what did not, and where the times are.

    Args:
        results: the timings.
        file: where they were written.
    """
    lines = [
        line(
            strong(device_words(results.device)),
            f" · {results.date[:10]} · grid {results.grid}, "
            f"{counted(len(results.measured), 'shape')}",
        ),
        BLANK,
        *grid(list(_rows(results)), indent=2, gap=2),
    ]
    troubles = list(_troubles(results))
    if troubles:
        lines += [BLANK, *troubles]
    if results.left:
        left = counted(results.left, "shape")
        lines += [BLANK, line(f"{left} not reached; the same command with --resume goes on")]
    return [*lines, BLANK, line(f"timings are in {file}")]


def _rows(results: Results) -> Iterator[list[Part]]:
    """One row for each candidate: how many shapes it ran and was the fastest for."""
    ran: Counter[str] = Counter()
    first: Counter[str] = Counter()
    for one in results.measured:
        times = one.times
        ran.update(times.keys())
        if times:
            first[min(times, key=lambda name: times[name])] += 1
    for name, runner in results.runners.items():
        copies = "" if runner.reads_pages else "copies K and V out of their pages"
        yield [
            name,
            counted(ran[name], "shape"),
            f"fastest for {first[name]:,}",
            faint(copies),
        ]
    for name, why in results.not_run.items():
        yield [faint(name), "", "", faint(f"not run: {why}")]


def _troubles(results: Results) -> Iterator[Line]:
    """Refusals, faults and outputs that differ; each kind once for a candidate, with an example."""
    seen: dict[tuple[str, str], list[str]] = {}
    for one in results.measured:
        for timing in one.timings:
            if timing.refused:
                seen.setdefault((timing.candidate, f"refused: {timing.refused}"), []).append(
                    str(one.shape)
                )
            if timing.fault:
                seen.setdefault((timing.candidate, f"fault: {timing.fault}"), []).append(
                    str(one.shape)
                )
            if timing.disagrees_with:
                others = ", ".join(timing.disagrees_with)
                what = f"its output is not that of {others}"
                seen.setdefault((timing.candidate, what), []).append(str(one.shape))
    for (name, what), shapes in seen.items():
        more = f" and {len(shapes) - 1} more" if len(shapes) > 1 else ""
        yield line(bad(name), f"  {what}  ", faint(f"({shapes[0]}{more})"))
