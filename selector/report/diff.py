"""What two manifests decide differently: as text, and as a comment on a pull request."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import groupby

from selector.analysis.comparing import Drawn, Region
from selector.analysis.rerouting import ModelChange, PathChange, Way
from selector.report.differences import Commands, Diff, change_words
from selector.report.text import BLANK, GLUE, Line, faint, good, grid, line, markdown_table, strong
from selector.report.wording import capabilities_words, counted, listed

__all__ = ["diff_lines"]


def _share(part: int, whole: int) -> str:
    """``12 %``; never a rounded 0 % or 100 %."""
    percent = 100 * part / whole if whole else 0.0
    if part == whole:
        return "100 %"
    if percent < 0.01:
        return "less than 0.01 %"
    return "more than 99.99 %" if percent > 99.99 else f"{percent:.2g} %"


def _summary(diff: Diff) -> str:
    """The first line: how many questions, of how many."""
    found = diff.found
    if found.space is None:
        return "the same: only comments, order or anchors can differ"
    counted_ = counted(found.able, "question")
    if found.totals:
        share = _share(found.changed, found.able)
        lead = f"{found.changed:,} of {counted_} decide differently ({share})"
    else:
        lead = f"none of {counted_} decides differently"
    return f"{lead}, of those that could be counted" if found.drawn else lead


def _drawn_words(drawn: Drawn) -> str:
    """What was drawn instead of counted, with its bound."""
    return (
        f"{counted(drawn.of, 'question')} not counted: {drawn.why}; {drawn.seen:,} of "
        f"{drawn.number:,} random ones changed: at most {100 * drawn.at_most:.2g} % with 95 % "
        "confidence"
    )


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


def _paths_summary(diff: Diff) -> str | None:
    """What was looked at where only paths can differ; ``None``: nowhere."""
    asked = diff.found.asked_of_paths
    if not asked or diff.found.paths:
        return None
    most = Drawn(0, "", asked, {}, {}).at_most
    return (
        f"paths: 0 of {asked:,} random requests that keep their backends are computed in another "
        f"way: at most {100 * most:.2g} % with 95 % confidence"
    )


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


def diff_lines(diff: Diff, markdown: bool = False) -> Iterator[Line]:
    """Yields what changes, the most frequent first, and what does not."""
    if markdown:
        yield from _markdown_lines(diff)
        return
    found = diff.found
    yield line(strong(f"{diff.old.name} → {diff.new.name}"), ": ", _summary(diff))
    if found.space is None:
        return
    for drawn in found.drawn:
        yield line("  ", _drawn_words(drawn), hang=4)
    for change, number, regions in diff.changes[: diff.limit]:
        yield BLANK
        share = _share(number, found.changed)
        yield line(
            "  ", strong(change_words(change)), f"   {number:,}  ", faint(f"{share} of them")
        )
        for region in regions[: diff.limit]:
            yield from _region_lines(diff, region)
        if (left := len(regions) - diff.limit) > 0:
            yield line("    ", faint(f"and {counted(left, 'smaller region')}"))
    yield from _rest_lines(diff)
    for drawn in found.drawn:
        for change, number in drawn.changes.items():
            yield line(
                "  ", strong(change_words(change)), f"   {number:,} of {drawn.number:,} drawn"
            )
            yield _example_line(diff.commands(drawn.ones[change], change))
    yield from _path_lines(diff)
    yield from _tail_lines(diff)


def _region_lines(diff: Diff, region: Region) -> Iterator[Line]:
    words = diff.brief(region)
    number = f"{region.count:,}"
    if region.count != region.holds:
        number = f"part of: {region.count:,} of {region.holds:,}"
    yield line("    ", words, "   ", good(number), hang=6)
    yield _example_line(diff.commands(region.one, region.change, [*region.sides]))


def _example_line(commands: Commands | None) -> Line:
    if commands is None:
        return line("      ", faint(_NO_WITNESS), hang=8)
    return line("      e.g. ", faint(commands[1].replace(" ", GLUE)), hang=8)


def _rest_lines(diff: Diff) -> Iterator[Line]:
    """Yields the changes beyond the limit, one line for each."""
    rest = diff.changes[diff.limit :]
    if rest:
        yield BLANK
        rows = [[change_words(change), f"{number:,}"] for change, number, _ in rest[:_MOST_OTHERS]]
        yield from grid(rows, indent=2)
        if (left := len(rest) - _MOST_OTHERS) > 0:
            yield line("  ", f"and {counted(left, 'smaller change')}")
        yield line("  ", faint(f"--limit {len(diff.changes)} shows the regions of all"))
    if diff.found.totals:
        yield BLANK
        old = shlex.join(diff.old.chosen) or "no --manifest"
        yield line("  ", faint(f"each question is put to the new one; with {old}, to the old one"))


def _path_lines(diff: Diff) -> Iterator[Line]:
    if (words := _paths_summary(diff)) is not None:
        yield BLANK
        yield line("  ", words, hang=4)
    if diff.found.paths:
        yield BLANK
        yield line(strong("Same backends, computed in another way"))
    for change in diff.found.paths[: max(diff.limit, 1)]:
        drawn = f"   {change.count:,} of {change.asked:,} random requests"
        yield line("  ", _path_words(change), faint(drawn), hang=4)
        yield _example_line(diff.path_commands(change))


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


def _markdown_lines(diff: Diff) -> Iterator[Line]:
    found = diff.found
    yield line(f"### `{diff.old.name}` → `{diff.new.name}`")
    yield BLANK
    yield line(f"**{_summary(diff)}**")
    if found.space is None:
        return
    for drawn in found.drawn:
        yield BLANK
        yield line(_drawn_words(drawn))
    if found.totals:
        yield BLANK
        rows = [
            [f"`{change_words(change)}`", f"{number:,}", _share(number, found.changed)]
            for change, number, _ in diff.changes[: diff.limit]
        ]
        if (left := len(diff.changes) - len(rows)) > 0:
            rest = sum(number for _, number, _ in diff.changes[diff.limit :])
            rows.append(
                [f"{counted(left, 'more change')}", f"{rest:,}", _share(rest, found.changed)]
            )
        yield from markdown_table(["change", "questions", "share"], rows)
        yield from _folded("Where, with a question to paste for each", _markdown_regions(diff))
    if found.models:
        rows = _model_rows(found.models)
        title = f"Known models × GPUs that change ({len(found.models)})"
        table = markdown_table(["models", "architectures", "change"], rows)
        yield from _folded(title, table)
    else:
        yield BLANK
        yield line(_NO_MODEL)
    if found.paths:
        yield from _folded("Same backends, computed in another way", _markdown_paths(diff))
    elif (words := _paths_summary(diff)) is not None:
        yield BLANK
        yield line(words)
    if beside := [*_beside(diff)]:
        yield from _folded("Beside", [line(f"- {title}: {words}") for title, words in beside])


def _folded(title: str, lines: Sequence[Line] | Iterator[Line]) -> Iterator[Line]:
    yield BLANK
    yield line(f"<details><summary>{title}</summary>")
    yield BLANK
    yield from lines
    yield BLANK
    yield line("</details>")


def _markdown_regions(diff: Diff) -> Iterator[Line]:
    shown = [
        (change, region)
        for change, _, regions in diff.changes[: diff.limit]
        for region in regions[: diff.limit]
    ]
    for change, group in groupby(shown, key=lambda one: one[0]):
        yield line(f"**{change_words(change)}**")
        yield BLANK
        for _, region in group:
            words = diff.brief(region)
            exact = region.count == region.holds
            number = (
                f"{region.count:,}" if exact else f"part of: {region.count:,} of {region.holds:,}"
            )
            yield line(f"- {words}: {number}")
            commands = diff.commands(region.one, region.change, [*region.sides])
            yield line(f"  `{commands[1]}`" if commands else f"  {_NO_WITNESS}")
        yield BLANK


def _markdown_paths(diff: Diff) -> Iterator[Line]:
    for change in diff.found.paths[: max(diff.limit, 1)]:
        yield line(f"- {_path_words(change)}: {change.count:,} of {change.asked:,} random requests")
        commands = diff.path_commands(change)
        yield line(f"  `{commands[1]}`" if commands else f"  {_NO_WITNESS}")
