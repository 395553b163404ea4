"""A document and a selection → findings."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from selector.document import Document
from selector.lint.catalogue import codes, find_rule
from selector.lint.context import Context
from selector.lint.suppressing import without_suppressed
from selector.loading import read
from selector.overlay import apply_overlay
from selector.values import Finding, Severity

__all__ = ["Selection", "lint"]


class Selection(msgspec.Struct, frozen=True):
    """Which rules are looked at; errors found while reading are always told.

    Attributes:
        select: codes; ``None``: all.
        ignore: codes that are left out.
    """

    select: frozenset[str] | None = None
    ignore: frozenset[str] = frozenset()

    def takes(self, code: str) -> bool:
        """Whether a rule is looked at."""
        return (self.select is None or code in self.select) and code not in self.ignore


def lint(
    document: Document, overlays: Sequence[Document] = (), selection: Selection | None = None
) -> list[Finding]:
    """What is wrong with a manifest, in order of place.

    Args:
        document: as it was read, without the overlays.
        overlays: are applied to it, in order.
        selection: of rules; all by default.
    """
    chosen = selection or Selection()
    texts = {one.file: one.text for one in (document, *overlays)}
    for overlay in overlays:
        document = apply_overlay(document, overlay)
    manifest, document = read(document)
    found = [f for f in document.findings if _stays(f, chosen)]
    if manifest is not None:
        context = Context(document, manifest, overlays)
        for code in codes():
            if chosen.takes(code) and not code.startswith("CAP0"):
                rule = find_rule(code)
                found += rule.check(context) if rule.check else ()
    return sorted(without_suppressed(dict.fromkeys(found), texts, chosen.takes))


def _stays(finding: Finding, chosen: Selection) -> bool:
    return finding.severity is Severity.ERROR or chosen.takes(finding.code)
