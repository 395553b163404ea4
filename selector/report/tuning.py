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
from selector.tuning.timings import Timings

__all__ = ["Answered", "tuning_json", "tuning_lines"]

Answered = tuple[PhaseTimings, Tuned, Sequence[Compared]]
"""The timings of a phase, the lists from them, and the regret of every way to choose."""

_NAMES = {
    "tuned": "tuned",
    "tuned, not told": "tuned, not told how many requests",
    "manifest": "the manifest as it is",
    "library": "the library's own default",
    "one list": "the best order for all",
}


def tuning_lines(timings: Timings, answers: Sequence[Answered]) -> list[Line]:
    """The regret of each way to choose in each phase, and the lists to paste."""
    lines = [
        line(
            strong(device_words(timings.device)),
            f" · {timings.days} · {timings.names}",
        ),
        line(faint("Regret: the time of what is chosen over that of the fastest candidate.")),
    ]
    if timings.again:
        shapes = counted(timings.again, "shape")
        lines.append(line(faint(f"{shapes} measured again: the newer times count.")))
    if timings.left:
        lines.append(line(faint(f"{counted(timings.left, 'shape')} of the grid not reached.")))
    for mine, tuned, compared in answers:
        lines += [BLANK, *_phase_lines(mine, tuned, compared)]
    text = priorities_text(timings, [tuned for _, tuned, _ in answers])
    lines += [BLANK, line(strong("priorities"), faint(", to stand before the manifest's own"))]
    return [*lines, *(line(row) for row in text.splitlines())]


def _phase_lines(mine: PhaseTimings, tuned: Tuned, compared: Sequence[Compared]) -> Iterator[Line]:
    shapes = f"{counted(len(mine.seen), 'shape')} to tune, {len(mine.held_out)} held out"
    rules = counted(len(tuned.lists), "rule")
    yield line(strong(str(mine.phase)), f"  {shapes}; {rules}")
    rows: list[list[Part]] = [["", "tuned on", "", "held out", ""], ["", *("mean", "worst") * 2]]
    for one in compared:
        name = _NAMES.get(one.name, one.name)
        rows.append([name, *_cells(one.seen), *_cells(one.held_out), faint(_unserved(one))])
    yield from grid(rows, indent=2, gap=2)
    worst = compared[0].held_out
    if worst.worst_shape is not None and worst.worst is not None:
        yield line(faint(f"  worst of tuned, held out: {worst.worst_shape}"))
    for name, why in mine.left_out.items():
        yield line(faint(f"  not counted: {name} {why}"))
    if mine.unrun:
        shapes = counted(mine.unrun, "shape")
        yield line(faint(f"  not counted: {shapes} that no candidate ran"))


def _cells(regret: Regret) -> list[Part]:
    if regret.mean is None or regret.worst is None:
        return ["–", "–"]
    return [f"{regret.mean:.3f}", f"{regret.worst:.2f}"]


def _unserved(one: Compared) -> str:
    unserved = one.seen.unserved + one.held_out.unserved
    return f"runs all but {counted(unserved, 'shape')}" if unserved else ""


def tuning_json(timings: Timings, answers: Sequence[Answered]) -> dict[str, Any]:
    """The same as JSON values."""
    return {
        "timings": [*timings.files],
        "device": to_json(timings.device),
        "date": timings.newest.date,
        "phases": [
            {
                "phase": str(mine.phase),
                "candidates": list(mine.candidates),
                "left_out": mine.left_out,
                "seen": len(mine.seen),
                "held_out": len(mine.held_out),
                "unrun": mine.unrun,
                "regret": [to_json(one) for one in compared],
                "lists": [to_json(one) for one in tuned.lists],
            }
            for mine, tuned, compared in answers
        ],
        "priorities": priorities_text(timings, [tuned for _, tuned, _ in answers]),
    }
