"""What two manifests decide differently: as text, and as a comment on a pull request."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from selector.analysis.comparing import Change, Drawn, Region
from selector.analysis.paths import PathChange
from selector.analysis.rerouting import DrawnPaths, ModelChange
from selector.analysis.tails import Way
from selector.report.counts import (
    number_words,
    percent_words,
    question_line,
    questions_words,
    share_words,
)
from selector.report.differences import Diff, aside_words, change_words, split_regions
from selector.report.markdown import code, prose
from selector.report.showing import Shown, path_places, reason_words
from selector.report.text import BLANK, GLUE, Line, faint, good, grid, line, markdown_table, strong
from selector.report.wording import Places, capabilities_words, counted, listed

__all__ = ["diff_lines"]


def _summary(diff: Diff) -> str:
    """The first line: which share of the questions, and how many of how many."""
    found = diff.found
    if found.space is None:
        return "the same: only comments, order or anchors can differ"
    lead = f"none of {questions_words(found.able)} is decided differently"
    if found.totals:
        lead = (
            f"{share_words(found.changed, found.able)} of all questions are decided differently: "
            f"{number_words(found.changed)} of {number_words(found.able)}"
        )
    lead = f"{lead}, of those that could be counted" if found.drawn else lead
    if found.is_different and not found.totals:
        return f"{lead}; what may differ all the same stands below"
    return lead


def _drawn_words(drawn: Drawn) -> str:
    """What was drawn instead of counted, with its bound."""
    return (
        f"{questions_words(drawn.of)} not counted: {drawn.why}; {drawn.seen:,} of "
        f"{drawn.number:,} random ones changed: {_bound_words(drawn)}"
    )


class _Group(msgspec.Struct, frozen=True):
    """Regions of a change that it comes to for the same reasons.

    Attributes:
        why: the reasons, each with the lines that say so.
        places: each region's words, how many of its questions change, and a command.
    """

    why: tuple[tuple[str, str], ...]
    places: list[tuple[str, str, str]]


def _groups(
    diff: Diff, regions: Sequence[Region], whole: int, at: Places
) -> tuple[str | None, list[_Group]]:
    """What regions have in common, if anything; and each of them, by what it comes from."""
    shared, left = split_regions(regions)
    groups: dict[tuple[tuple[str, str], ...], _Group] = {}
    for region, rest in zip(regions, left, strict=True):
        shown = diff.shown(region.one, region.change, [*region.sides])
        why, command = _example(shown, at)
        said = (diff.brief(rest), _count_words(region, whole), command)
        groups.setdefault(why, _Group(why, [])).places.append(said)
    return None if shared is None else diff.brief(shared), [*groups.values()]


def _example(shown: Shown | None, at: Places) -> tuple[tuple[tuple[str, str], ...], str]:
    """Why the answers differ, and the command for the new manifest."""
    if shown is None:
        return (), _NO_WITNESS
    return tuple(reason_words(shown, at)), shown.commands[1]


def _count_words(region: Region, whole: int) -> str:
    """``30 %, 1,200``; ``…, part of 2,400`` where not all that a region holds changes so."""
    words = f"{share_words(region.count, whole)}, {number_words(region.count)}"
    part = region.count != region.holds
    return f"{words}, part of {number_words(region.holds)}" if part else words


_ASIDE = {
    "together": "requests that run together",
    "becomes": "what {} becomes",
    "capability": "compute capability {}, which no known architecture has",
}
"""What was not compared, and may be answered otherwise."""


def _beside(diff: Diff) -> Iterator[tuple[str, str]]:
    """Yields what else differs: a title, and what it is."""
    stated = diff.found.stated
    for title, names in (("added", stated.added), ("removed", stated.removed)):
        if names:
            yield title, ", ".join(names)
    for title, pins in (("pinned", stated.pinned), ("no longer pinned", stated.unpinned)):
        if pins:
            yield title, ", ".join(f"{backend} {what}" for backend, what in pins)
    if stated.defaults:
        yield "defaults", f"of {', '.join(stated.defaults)}: questions that leave them out"
    if stated.space:
        yield "space", "what can exist is ruled otherwise; what both allow was compared"
    for aside in diff.found.asides:
        what, backends, words = aside_words(aside)
        yield "not compared", f"{_ASIDE[what].format(words)} ({', '.join(backends)})"
    if diff.found.left_out:
        names = diff.found.left_out
        yield "left out", f"values of {', '.join(names)} that only one of them knows"
    by_words: dict[str, list[str]] = {}
    for where, statements in stated.worded:
        for statement in statements:
            by_words.setdefault(statement, []).append(where)
    said = []
    for statement, places in by_words.items():
        where = ", ".join(places) if len(places) < 4 else f"{len(places)} backends"
        said.append(f"{statement} ({where})")
    if said:
        yield "no decision changes by", "; ".join(said)


def _way_words(way: Way) -> str:
    by = f" by {way.by}" if way.by else ""
    return f"{way.path or 'a path that depends on what is unknown'}{by}"


def _path_words(change: PathChange) -> str:
    names = listed([n for n in dict.fromkeys(change.backends) if n is not None], "and")
    before, after = change.before, change.after
    if before.phase == after.phase:
        return f"{names}: {_way_words(before)} → {_way_words(after)}"
    phases = [f"as {way.phase or 'either phase'}" for way in (before, after)]
    return f"{names}: {_way_words(before)} {phases[0]} → {_way_words(after)} {phases[1]}"


def _drawn_paths_words(drawn: DrawnPaths) -> str:
    """What was drawn of paths instead of counted, with its bound."""
    return (
        f"paths of {questions_words(drawn.of)} not counted: {drawn.why}; {drawn.seen:,} of "
        f"{drawn.number:,} random ones are computed in another way at some lengths: "
        f"{_bound_words(drawn)}"
    )


def _bound_words(drawn: Drawn | DrawnPaths) -> str:
    return f"at most {percent_words(drawn.at_most)} with 95 % confidence"


def _paths_summary(diff: Diff) -> list[str]:
    """What was looked at where only paths can differ."""
    found = diff.found
    said = [_drawn_paths_words(drawn) for drawn in found.drawn_paths]
    if found.able_of_paths and not found.paths:
        number = questions_words(found.able_of_paths)
        said.append(f"none of {number} that keep their backends is computed in another way")
    return said


def _path_share(change: PathChange) -> str:
    """How many questions are computed in another way, of how many."""
    if not change.regions:
        return f"{change.count:,} of {change.asked:,} drawn"
    share = share_words(change.count, change.asked)
    counts = f"{number_words(change.count)} of {number_words(change.asked)}"
    return f"{share} of the questions that keep them, {counts}"


def _path_groups(
    diff: Diff, change: PathChange, at: Places
) -> tuple[str | None, str, list[tuple[str, str, str]]]:
    """What the regions have in common, the lines that give the paths, and each region.

    A region has its words, how many of its questions change, and a command.
    """
    regions = change.regions[: diff.limit]
    if not regions:
        shown = diff.shown_path(change)
        places = [("", "", _example(shown, at)[1])]
        return None, path_places(shown, at) if shown is not None else "", places
    shared, left = split_regions(regions)
    every = [diff.shown_path(change, region) for region in regions]
    where = next((path_places(shown, at) for shown in every if shown is not None), "")
    places = [
        (diff.brief(rest), _count_words(region, change.count), _example(shown, at)[1])
        for region, rest, shown in zip(regions, left, every, strict=True)
    ]
    return None if shared is None else diff.brief(shared), where, places


def _model_rows(models: Sequence[ModelChange]) -> list[list[str]]:
    """What changes where, and for which models; the most models first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in models:
        change = change_words((one.before, one.after))
        if one.paths is not None:
            change = f"{one.before[0]}: {one.paths[0]} → {one.paths[1]}"
        cuda = ", ".join(arch for arch in one.archs if arch[:1].isdigit())
        rest = [arch for arch in one.archs if not arch[:1].isdigit()]
        where = ", ".join([*([capabilities_words(cuda)] if cuda else []), *rest])
        groups.setdefault((where, change), []).append(f"{one.model} ({one.group})")
    ranked = sorted(groups.items(), key=lambda group: -len(group[1]))
    rows = []
    for (where, change), names in ranked[:_MOST_ROWS]:
        more = f" and {len(names) - 2} more" if len(names) > 3 else ""
        rows.append([", ".join(names[: 2 if more else 3]) + more, where, change])
    if (left := sum(len(names) for _, names in ranked[_MOST_ROWS:])) > 0:
        rows.append([f"and {left} more", "", "--format json lists all"])
    return rows


# -- text ----------------------------------------------------------------------------------------

_MOST_ROWS = 12
"""Rows of known models."""

_MOST_OTHERS = 15
"""Changes beyond the limit that are still named."""

_NO_MODEL = (
    "Of the known models with nothing set, none is given anything else on a known architecture."
)
_NO_WITNESS = "no question to paste could be made of it"


def diff_lines(diff: Diff, places: Places, markdown: bool = False) -> Iterator[Line]:
    """Yields what changes, the most frequent first, and what does not.

    Args:
        diff: what is said.
        places: how lines of the two manifests are named.
        markdown: as a comment on a pull request, of bounded length.
    """
    yield from _markdown_lines(diff, places) if markdown else _text_lines(diff, places)


def _text_lines(diff: Diff, at: Places) -> Iterator[Line]:
    found = diff.found
    yield line(strong(f"{diff.old.name} → {diff.new.name}"), ": ", _summary(diff), hang=2)
    if found.space is None:
        return
    yield question_line()
    for drawn in found.drawn:
        yield line("  ", _drawn_words(drawn), hang=4)
    for change, number, regions in diff.changes[: diff.limit]:
        yield from _change_lines(diff, change, number, regions, at)
    yield from _rest_lines(diff)
    for drawn in found.drawn:
        for change, number in drawn.changes.items():
            yield line(
                "  ", strong(change_words(change)), f"   {number:,} of {drawn.number:,} drawn"
            )
            why, command = _example(diff.shown(drawn.ones[change], change), at)
            yield from _why_lines(why)
            yield _command_line(command)
    yield from _path_lines(diff, at)
    yield from _tail_lines(diff)


def _change_lines(
    diff: Diff, change: Change, number: int, regions: Sequence[Region], at: Places
) -> Iterator[Line]:
    yield BLANK
    share = f"{share_words(number, diff.found.changed)} of what changes, {number_words(number)}"
    yield line("  ", strong(change_words(change)), "   ", faint(share))
    shared, groups = _groups(diff, regions[: diff.limit], number, at)
    if shared is not None:
        yield line("    ", faint("in all of these: "), shared, hang=6)
    for group in groups:
        yield from _why_lines(group.why)
        for words, count, command in group.places:
            yield line("      ", good(count), "   ", words, hang=8)
            yield _command_line(command)
    if (left := len(regions) - diff.limit) > 0:
        yield line("    ", faint(f"and {counted(left, 'smaller region')}"))


def _why_lines(why: Iterable[tuple[str, str]]) -> Iterator[Line]:
    for words, places in why:
        yield line("    ", words, "   ", faint(places), hang=6)


def _command_line(words: str) -> Line:
    return line("      ", faint(words.replace(" ", GLUE)))  # to be copied as it is


def _rest_lines(diff: Diff) -> Iterator[Line]:
    """Yields the changes beyond the limit, one line for each."""
    rest = diff.changes[diff.limit :]
    if rest:
        yield BLANK
        rows = [
            [change_words(change), share_words(number, diff.found.changed), number_words(number)]
            for change, number, _ in rest[:_MOST_OTHERS]
        ]
        yield from grid(rows, indent=2)
        if (left := len(rest) - _MOST_OTHERS) > 0:
            yield line("  ", f"and {counted(left, 'smaller change')}")
        yield line("  ", faint(f"--limit {len(diff.changes)} shows the regions of all"))
    if diff.found.totals:
        yield BLANK
        old = shlex.join(diff.old.chosen) or "no --manifest"
        yield line("  ", faint(f"the commands ask the new one; with {old}, the old one"), hang=2)


def _path_lines(diff: Diff, at: Places) -> Iterator[Line]:
    for words in _paths_summary(diff):
        yield BLANK
        yield line("  ", words, hang=4)
    if diff.found.paths:
        yield BLANK
        yield line(strong("Same backends, computed in another way"))
    for change in diff.found.paths[: diff.limit]:
        yield line("  ", _path_words(change), "   ", faint(_path_share(change)), hang=4)
        shared, where, places = _path_groups(diff, change, at)
        if where:
            yield line("    ", faint(where), hang=6)
        if shared is not None:
            yield line("    ", faint("in all of these: "), shared, hang=6)
        for words, count, command in places:
            if words:
                yield line("      ", good(count), "   ", words, hang=8)
            yield _command_line(command)
        if (left := len(change.regions) - diff.limit) > 0:
            yield line("    ", faint(f"and {counted(left, 'smaller region')}"))
    if (more := len(diff.found.paths) - diff.limit) > 0:
        yield line("  ", faint(f"and {counted(more, 'smaller change')}"))


def _tail_lines(diff: Diff) -> Iterator[Line]:
    found = diff.found
    yield BLANK
    if found.models:
        yield line(strong("Known models × GPUs that change"))
        head = [faint(title) for title in ("models", "architectures", "change")]
        yield from grid([head, *_model_rows(found.models)], indent=2, gap=2)
    else:
        yield line(_NO_MODEL)
    beside = [*_beside(diff)]
    if beside:
        yield BLANK
        yield from grid([[faint(title), words] for title, words in beside], indent=0)


# -- markdown ------------------------------------------------------------------------------------

_ROOM = {"regions": 30_000, "paths": 8_000, "beside": 6_000, "changes": 6_000, "models": 6_000}
"""Characters of each part; a forge takes 65,536 in one comment."""

_MOST_CHARACTERS = 300
"""Of one cell or item that names many things."""


def _markdown_lines(diff: Diff, at: Places) -> Iterator[Line]:
    found = diff.found
    yield line(f"### {code(_clipped(diff.old.name))} → {code(_clipped(diff.new.name))}")
    yield BLANK
    yield line(f"**{_summary(diff)}**")
    if found.space is None:
        return
    yield BLANK
    yield question_line(0)
    for drawn in found.drawn:
        yield BLANK
        yield line(_drawn_words(drawn))
    if found.totals:
        yield BLANK
        yield from _within("changes", ([row] for row in _markdown_changes(diff)))
        yield from _folded(
            "Why and where, with a question to paste for each",
            _within("regions", _markdown_regions(diff, at)),
        )
    if found.models:
        rows = [[_clipped(cell) for cell in row] for row in _model_rows(found.models)]
        title = f"Known models × GPUs that change ({len(found.models)})"
        table = markdown_table(["models", "architectures", "change"], rows)
        yield from _folded(title, _within("models", ([row] for row in table)))
    else:
        yield BLANK
        yield line(_NO_MODEL)
    if found.paths:
        title = "Same backends, computed in another way"
        yield from _folded(title, _within("paths", _markdown_paths(diff, at)))
    for words in _paths_summary(diff):
        yield BLANK
        yield line(words)
    if beside := [*_beside(diff)]:
        items = ([line(f"- {title}: {prose(_clipped(words))}")] for title, words in beside)
        yield from _folded("Beside", _within("beside", items))


def _within(part: str, blocks: Iterable[Sequence[Line]]) -> Iterator[Line]:
    """Yields blocks of lines while a part has room for them, and says where it has not."""
    left = _ROOM[part]
    for block in blocks:
        left -= sum(one.width + 1 for one in block)
        if left < 0:
            yield BLANK
            yield line("… cut to fit a comment: `--format text` or `json` has more")
            return
        yield from block


def _clipped(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 1]}…"


def _folded(title: str, lines: Iterable[Line]) -> Iterator[Line]:
    yield BLANK
    yield line(f"<details><summary>{title}</summary>")
    yield BLANK
    yield from lines
    yield BLANK
    yield line("</details>")


def _markdown_changes(diff: Diff) -> list[Line]:
    found = diff.found
    shown, rest = diff.changes[: diff.limit], diff.changes[diff.limit :]
    numbers = [(code(change_words(change)), number) for change, number, _ in shown]
    if rest:
        words = counted(len(rest), "more change")
        numbers.append((words, sum(number for _, number, _ in rest)))
    rows = [[words, share_words(n, found.changed), number_words(n)] for words, n in numbers]
    return markdown_table(["change", "share", "questions"], rows)


def _markdown_regions(diff: Diff, at: Places) -> Iterator[list[Line]]:
    """Yields blocks: the regions of each change, by what they come from."""
    for change, number, regions in diff.changes[: diff.limit]:
        shared, groups = _groups(diff, regions[: diff.limit], number, at)
        lead = [line(f"**{change_words(change)}**{f': {prose(shared)}' if shared else ''}"), BLANK]
        for group in groups:
            why = [f"{prose(words)} {code(where)}" for words, where in group.why]
            lead.append(line(f"- {'; '.join(why) or 'for'}"))
            for words, count, command in group.places:
                pasted = command if command == _NO_WITNESS else code(command)
                yield [*lead, line(f"  - {prose(words)}: {count}  "), line("    ", pasted)]
                lead = []
        yield [BLANK]


def _markdown_paths(diff: Diff, at: Places) -> Iterator[list[Line]]:
    for change in diff.found.paths[: diff.limit]:
        shared, where, places = _path_groups(diff, change, at)
        lead = f"- {_path_words(change)}: {_path_share(change)}{f' ({where})' if where else ''}"
        block = [line(prose(f"{lead}{f'; in all of these: {shared}' if shared else ''}"))]
        for words, count, command in places:
            pasted = command if command == _NO_WITNESS else code(command)
            said = f"{prose(words)}: {count}  " if words else "drawn  "
            yield [*block, line(f"  - {said}"), line("    ", pasted)]
            block = []
