"""``attnsel lint``: what is wrong with a manifest, where, and what to write instead."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exits import Exit
from cli.options import OverlayOption

if TYPE_CHECKING:
    from selector.document import Document

__all__ = ["lint"]


class LintFormat(StrEnum):
    """Form of the output."""

    TEXT = "text"
    JSON = "json"


def lint(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME|PATH",
            help="Manifests; - reads one from stdin. Default: the shipped one.",
        ),
    ] = None,
    overlay: OverlayOption = None,
    form: Annotated[
        LintFormat, typer.Option("--format", help="Form of the output.")
    ] = LintFormat.TEXT,
) -> None:
    """Check manifests and show what to correct.

    Example: attnsel lint capabilities.yaml
    """
    from cli.terminal import complain, places, show, show_json
    from selector.report.findings import finding_lines, findings_json, summary_line
    from selector.resources import DEFAULT_MANIFEST, resource
    from selector.values import Severity

    documents: list[Document] = []
    texts: dict[str, str] = {}
    unreadable = 0
    for path in paths or [str(resource(DEFAULT_MANIFEST))]:
        try:
            documents.append(_checked(path, overlay or [], texts))
        except OSError as error:
            complain(_unreadable(error, path))
            unreadable += 1
    findings = sorted(finding for document in documents for finding in document.findings)
    if form is LintFormat.JSON:
        show_json(findings_json(findings))
    elif documents:
        where = places(*texts)
        names = [where.file(document.file) for document in documents]
        show([*finding_lines(findings, texts, where), summary_line(findings, names)], whole=True)
    if unreadable:
        raise typer.Exit(Exit.USAGE)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(Exit.FINDINGS)


def _unreadable(error: OSError, path: str) -> str:
    """What is wrong with a file: for a manifest that is none, which one may be meant."""
    from selector.loading import not_found

    named = error.filename or path
    if isinstance(error, FileNotFoundError) and named == path:
        return str(not_found(path))
    return f"{named}: {(error.strerror or str(error)).lower()}"


def _checked(path: str, overlays: list[str], texts: dict[str, str]) -> Document:
    """The document at a path with the overlays applied, with all its findings.

    The texts that were read are put into ``texts``, by file.
    """
    from selector.document import LIMITS, read_document, read_text
    from selector.loading import read
    from selector.overlay import apply_overlay
    from selector.resources import manifest_path

    if path == "-":
        data = sys.stdin.buffer.read(LIMITS.size_bytes + 1) if sys.stdin else b""
        document = read_text(data, "<stdin>")
    else:
        document = read_document(manifest_path(path))
    texts[document.file] = document.text
    for overlay in overlays:
        change = read_document(Path(overlay))
        texts[change.file] = change.text
        document = apply_overlay(document, change)
    return read(document)[1]
