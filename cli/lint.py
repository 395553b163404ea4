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
            metavar="PATH", help="Manifests; - reads one from stdin. Default: the shipped one."
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
    unreadable = 0
    for path in paths or [str(resource(DEFAULT_MANIFEST))]:
        try:
            documents.append(_checked(path, overlay or []))
        except OSError as error:
            complain(f"{path}: {(error.strerror or str(error)).lower()}")
            unreadable += 1
    findings = sorted(finding for document in documents for finding in document.findings)
    if form is LintFormat.JSON:
        show_json(findings_json(findings))
    elif documents:
        texts = {document.file: document.text for document in documents}
        texts |= {file: Path(file).read_text("utf-8", "replace") for file in overlay or []}
        where = places(*texts)
        names = [where.file(document.file) for document in documents]
        show([*finding_lines(findings, texts, where), summary_line(findings, names)], whole=True)
    if unreadable:
        raise typer.Exit(Exit.USAGE)
    if any(finding.severity is Severity.ERROR for finding in findings):
        raise typer.Exit(Exit.FINDINGS)


def _checked(path: str, overlays: list[str]) -> Document:
    """The document at a path with the overlays applied, with all its findings."""
    from selector.document import LIMITS, read_document, read_text
    from selector.loading import read
    from selector.overlay import apply_overlay

    if path == "-":
        document = read_text(sys.stdin.buffer.read(LIMITS.size_bytes + 1), "<stdin>")
    else:
        document = read_document(Path(path))
    for overlay in overlays:
        document = apply_overlay(document, read_document(Path(overlay)))
    return read(document)[1]
