"""Gaps, idle entries and overlaps: as JSON values and as text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from selector.analysis.gaps import Gap, Gaps, Idle, Overlap, Rivals, Totals
from selector.report.counts import number_words, question_line, questions_words, share_words
from selector.report.data import to_json
from selector.report.text import BLANK, Line, Part, faint, grid, line, strong
from selector.report.wording import (
    Places,
    capabilities_words,
    counted,
    device_words,
    kind_words,
    listed,
    manifest_words,
)
from selector.values import Device, Phase

__all__ = ["gaps_json", "gaps_lines", "rivals_json", "rivals_words"]

_FIRST = 20
_NAMED = 3


def gaps_json(gaps: Gaps, device: Device | None = None) -> dict[str, Any]:
    """Everything, as JSON values; of one device, if only that was looked at."""
    totals = gaps.totals
    return {
        "manifest": to_json(gaps.manifest),
        "device": None if device is None else device.capability or device.platform,
        "questions": totals.questions,
        "unserved": {phase.value: totals.unserved.get(phase, 0) for phase in Phase},
        "open": totals.open,
        "drawn": totals.drawn,
        "gaps": to_json(gaps.gaps),
        "idle": [_idle_json(idle) for idle in gaps.idle],
        "overlaps": to_json(gaps.overlaps),
    }


def _idle_json(idle: Idle) -> dict[str, Any]:
    rivals = rivals_json(idle.rivals)
    del rivals["chosen"]
    plain = {"backend": idle.backend, "position": idle.position, "phase": idle.phase}
    return {**to_json(plain), "named": idle.named, **rivals}


def rivals_json(rivals: Rivals) -> dict[str, Any]:
    """What is chosen for the questions that an entry accepts, as lists: nothing can be chosen."""
    pairs = {"before": rivals.before.items(), "aside": rivals.aside.items()}
    lists = {
        key: [{"backend": name, "questions": number} for name, number in found]
        for key, found in pairs.items()
    }
    counts = {"accepted": rivals.accepted, "chosen": rivals.chosen, "drawn": rivals.drawn}
    return {**counts, **lists}


def gaps_lines(gaps: Gaps, places: Places, device: Device | None = None) -> Iterator[Line]:
    """Yields the three lists; of one device, if only that was looked at."""
    on = "" if device is None else f" · {device_words(device)} only"
    yield line(strong(manifest_words(gaps.manifest, places)), on)
    yield question_line()
    yield from _drawn_lines(gaps.totals)
    yield from _section("layers that no list gives a backend, and where", _gap_rows(gaps.gaps))
    foreign = [one for one in gaps.idle if device is not None and not one.rivals.accepted]
    idle = [one for one in gaps.idle if one not in foreign]
    yield from _section("backends that are never chosen", _idle_rows(idle, places))
    if foreign:
        names = dict.fromkeys(one.backend for one in foreign)
        yield line("  ", faint("made for other devices: "), ", ".join(names), hang=4)
    rows = _overlap_rows(gaps.overlaps)
    title = "both could run and only their order in a list decides, in so many questions"
    yield from _section(title, rows[:_FIRST])
    if len(rows) > _FIRST:
        yield line("  ", faint(f"… and {len(rows) - _FIRST} more: --format json lists all"))


def _drawn_lines(totals: Totals) -> Iterator[Line]:
    if totals.kinds_drawn:
        yield line(
            f"{counted(totals.kinds_drawn, 'kind')} of layers and devices have too many questions "
            f"to look at: of those, {counted(totals.drawn, 'question')} were drawn, and nothing "
            "that rests on them is certain (marked ~)"
        )
    if totals.open:
        yield line(f"{questions_words(totals.open)} only the definition can tell, one by one")


def _section(title: str, rows: Sequence[Sequence[Part]]) -> Iterator[Line]:
    yield BLANK
    yield line(title)
    yield from grid(rows, indent=2) if rows else (line("  ", faint("nothing")),)


def _phases_words(phases: Iterable[Phase]) -> str:
    return listed([str(phase) for phase in phases], "and")


def _gap_rows(gaps: Sequence[Gap]) -> list[list[Part]]:
    return [
        [
            strong(kind_words(gap.mla, gap.sparse)),
            ", ".join(gap.attn_types) or "all types",
            f"{'~ ' if gap.drawn else ''}{_phases_words(gap.phases)}",
            capabilities_words(", ".join(gap.devices)),
        ]
        for gap in gaps
    ]


def _idle_rows(idle: Sequence[Idle], places: Places) -> list[list[Part]]:
    """One row for an entry, with both phases where they are alike."""
    alike: dict[tuple[str, str], list[Idle]] = {}
    for one in idle:
        alike.setdefault((one.backend, _why(one)), []).append(one)
    return [
        [
            strong(name),
            _phases_words(one.phase for one in found),
            why,
            faint(places.at(found[0].position)),
        ]
        for (name, why), found in alike.items()
    ]


def _why(idle: Idle) -> str:
    sure = "~ " if idle.rivals.drawn else ""
    if idle.named or not idle.rivals.accepted:
        return f"{sure}{rivals_words(idle.rivals)}"
    return f"{sure}no list names it"


def rivals_words(rivals: Rivals) -> str:
    """What is chosen for the questions that an entry accepts."""
    if not rivals.accepted and rivals.drawn:
        return "none of the questions that were drawn is one that it accepts"
    if not rivals.accepted:
        return "it accepts nothing that can exist: its own rules, or those of `space`, exclude it"
    if len(rivals.before) == 1 and not sum(rivals.aside.values()):
        (name,) = rivals.before
        all_ = questions_words(rivals.accepted)
        return f"{name} stands before it in all {all_} that it accepts"
    words = [
        f"{name} stands before it ({share_words(number, rivals.accepted)})"
        for name, number in list(rivals.before.items())[:_NAMED]
    ]
    if more := sum(list(rivals.before.values())[_NAMED:]):
        words.append(f"others stand before it ({share_words(more, rivals.accepted)})")
    if aside := sum(rivals.aside.values()):
        words.append(
            "the list that decides does not name it, or its partner for the other phase cannot be "
            f"({share_words(aside, rivals.accepted)})"
        )
    return f"{questions_words(rivals.accepted)} would do: {listed(words, 'and')}"


def _overlap_rows(overlaps: Sequence[Overlap]) -> list[list[Part]]:
    """One row for a pair, with both phases where they are alike; the largest first."""
    alike: dict[tuple[str, str, int, bool], list[Phase]] = {}
    for one in overlaps:
        key = (one.winner, one.loser, one.questions, one.drawn)
        alike.setdefault(key, []).append(one.phase)
    ordered = sorted(alike.items(), key=lambda pair: -pair[0][2])
    return [
        [
            strong(winner),
            f"before {loser}",
            f"{'~ ' if drawn else ''}{number_words(number)}",
            _phases_words(phase for phase in Phase if phase in phases),
        ]
        for (winner, loser, number, drawn), phases in ordered
    ]
