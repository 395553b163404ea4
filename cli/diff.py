"""``attnsel diff``: for which questions two manifests decide differently, from what to what."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.options import complete_manifest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from selector.report.showing import Side

__all__ = ["diff"]


class DiffFormat(StrEnum):
    """Form of the output."""

    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


class Claimed(StrEnum):
    """Whose claims stand in place of its truth."""

    OLD = "old"
    NEW = "new"
    BOTH = "both"


def diff(
    old: Annotated[
        str,
        typer.Argument(
            metavar="OLD",
            help="Name or path of the manifest that is compared with.",
            autocompletion=complete_manifest,
        ),
    ],
    new: Annotated[
        str,
        typer.Argument(
            metavar="NEW",
            help="Name or path of the other; the same one with --as-claimed or --overlay.",
            autocompletion=complete_manifest,
        ),
    ],
    overlay: Annotated[
        list[str] | None,
        typer.Option("--overlay", metavar="PATH", help="Local changes to NEW. Repeatable."),
    ] = None,
    as_claimed: Annotated[
        Claimed | None,
        typer.Option(
            "--as-claimed", help="Take what engines claim, not what is true, of one side or both."
        ),
    ] = None,
    limit: Annotated[
        int,
        typer.Option(
            "--limit", metavar="N", min=1, help="Changes to show, and regions of each of them."
        ),
    ] = 3,
    form: Annotated[
        DiffFormat, typer.Option("--format", help="Form of the output.")
    ] = DiffFormat.TEXT,
) -> None:
    """Say for which questions two manifests decide differently, from what to what.

    Ends with 4 when a decision or a path changes, or when that could not be ruled out.

    Example: attnsel diff vllm-0.33.0 vllm-0.33.0 --as-claimed old
    """
    from cli.terminal import places, show, show_json
    from selector.analysis.comparing import compare
    from selector.report.diff import diff_lines
    from selector.report.differences import Diff, diff_json

    before = _side(old, (), as_claimed in (Claimed.OLD, Claimed.BOTH))
    after = _side(new, overlay or (), as_claimed in (Claimed.NEW, Claimed.BOTH))
    found = Diff(before, after, compare(before.manifest, after.manifest), limit)
    if form is DiffFormat.JSON:
        show_json(diff_json(found))
    else:
        markdown = form is DiffFormat.MARKDOWN
        where = places(before.manifest.ref.file, after.manifest.ref.file)
        show(diff_lines(found, where, markdown), whole=markdown)
    if found.found.is_different:
        raise typer.Exit(Exit.DIFFERENT)


def _side(reference: str, overlays: Sequence[str], as_claimed: bool) -> Side:
    """A manifest, and the words of a command that choose it."""
    from selector.binding import Selector
    from selector.report.asking import chosen_words
    from selector.report.showing import Side

    loaded = Selector.load(reference, overlays=overlays, as_claimed=as_claimed)
    chosen = chosen_words(reference, overlays, as_claimed)
    return Side(loaded.manifest, chosen, as_claimed)
