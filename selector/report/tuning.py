"""A tuned policy: its regret beside that of the others, and its rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from selector.report.data import to_json
from selector.report.text import BLANK, Line, Part, faint, grid, line, strong
from selector.report.wording import counted, device_words
from selector.tuning.comparing import Compared, PhaseTimings
from selector.tuning.policy import Tuned, priorities_text
from selector.tuning.regret import Regret
from selector.tuning.results import Results

__all__ = ["Answered", "tuning_json", "tuning_lines"]

Answered = tuple[PhaseTimings, Tuned, Sequence[Compared]]
"""The timings of a phase, the lists from them, and the regret of every way to choose."""

_NAMES = {
    "tuned": "tuned",
    "manifest": "the manifest as it is",
    "library": "the library's own default",
    "beyond": "tuned, if rules saw how many requests there are",
}


def tuning_lines(results: Results, answers: Sequence[Answered]) -> list[Line]:
    """The regret of each way to choose in each phase, and the lists to paste."""
    lines = [
        line(
            strong(device_words(results.device)),
            f" · {results.date[:10]} · timings {results.id}",
        ),
        line(faint("Regret: the time of what is chosen over that of the fastest candidate.")),
    ]
    for timings, tuned, compared in answers:
        lines += [BLANK, *_phase_lines(timings, tuned, compared)]
    text = priorities_text(results, [tuned for _, tuned, _ in answers])
    lines += [BLANK, line(strong("priorities"), faint(", to stand before the manifest's own"))]
    return [*lines, *(line(row) for row in text.splitlines())]


def _phase_lines(
    timings: PhaseTimings, tuned: Tuned, compared: Sequence[Compared]
) -> Iterator[Line]:
    shapes = f"{counted(len(timings.seen), 'shape')} to tune, {len(timings.held_out)} held out"
    rules = counted(len(tuned.lists), "rule")
    yield line(strong(str(timings.phase)), f"  {shapes}; {rules}")
    rows: list[list[Part]] = [["", "tuned on", "", "held out", ""], ["", *("mean", "worst") * 2]]
    for one in compared:
        name = _NAMES.get(one.name, one.name)
        rows.append([name, *_cells(one.seen), *_cells(one.held_out), faint(_unserved(one))])
    yield from grid(rows, indent=2, gap=2)
    worst = compared[0].held_out
    if worst.worst_shape is not None and worst.worst is not None:
        yield line(faint(f"  worst of tuned, held out: {worst.worst_shape}"))
    for name, why in timings.left_out.items():
        yield line(faint(f"  not counted: {name} {why}"))


def _cells(regret: Regret) -> list[Part]:
    if regret.mean is None or regret.worst is None:
        return ["–", "–"]
    return [f"{regret.mean:.3f}", f"{regret.worst:.2f}"]


def _unserved(one: Compared) -> str:
    unserved = one.seen.unserved + one.held_out.unserved
    return f"runs all but {counted(unserved, 'shape')}" if unserved else ""


def tuning_json(results: Results, answers: Sequence[Answered]) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "timings": results.id,
        "device": to_json(results.device),
        "date": results.date,
        "phases": [
            {
                "phase": str(timings.phase),
                "candidates": list(timings.candidates),
                "left_out": timings.left_out,
                "seen": len(timings.seen),
                "held_out": len(timings.held_out),
                "regret": [to_json(one) for one in compared],
                "lists": [to_json(one) for one in tuned.lists],
            }
            for timings, tuned, compared in answers
        ],
        "priorities": priorities_text(results, [tuned for _, tuned, _ in answers]),
    }
