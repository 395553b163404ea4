"""A document and a selection → findings."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from selector.anchors import gathered
from selector.document import Document
from selector.lint.catalogue import codes, find_rule
from selector.lint.suppressing import without_suppressed
from selector.loading import read
from selector.overlay import apply_overlay
from selector.parsing import locate
from selector.schema import check
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


ALL = Selection()


def lint(
    document: Document, overlays: Sequence[Document] = (), selection: Selection = ALL
) -> list[Finding]:
    """What is wrong with a manifest, in order of place.

    An overlay can be given in a manifest's place; then its own form is checked.

    Args:
        document: as it was read, without the overlays.
        overlays: are applied to it, in order.
        selection: of rules; all by default.
    """
    texts = {one.file: one.text for one in (document, *overlays) if one.tree is not None}
    if _is_overlay(document) and not overlays:
        found, complete = _overlay_findings(document), False
    else:
        found, complete = _manifest_findings(document, overlays, selection)
    placed = dict.fromkeys(_placed(f, document.file) for f in found)
    judged = frozenset(one.file for one in overlays or (document,)) if complete else frozenset()
    return sorted(without_suppressed(placed, texts, _looked_at(selection), judged))


def _looked_at(selection: Selection) -> Callable[[str], bool]:
    """Whether a code is one of lint's, and looked at; a comment may be for drift."""
    return lambda code: code in codes() and selection.takes(code)


def _is_overlay(document: Document) -> bool:
    return document.tree is not None and "overlay" in document.tree and "name" not in document.tree


def _overlay_findings(document: Document) -> list[Finding]:
    assert document.tree is not None
    alone = Document(document.file, findings=[*document.findings])
    for fault in check(document.tree, "overlay"):
        at = locate(document.tree, fault.path, fault.at_key)
        alone.report(fault.code, at, fault.message, fault.fix)
        if alone.full:
            break
    return alone.findings


def _manifest_findings(
    document: Document, overlays: Sequence[Document], selection: Selection
) -> tuple[list[Finding], bool]:
    """The findings, and whether the rules could be asked."""
    for overlay in overlays:
        document = apply_overlay(document, overlay)
    manifest, document = read(document)
    found = [
        f for f in document.findings if f.severity is Severity.ERROR or selection.takes(f.code)
    ]
    if manifest is None:
        return found, False
    from selector.lint.context import Context  # what analysis needs imports slowly

    context = Context(document, manifest, overlays)
    of_rules: list[Finding] = []
    for code in codes():
        if selection.takes(code) and not code.startswith(("CAP0", "CAP9")):
            rule = find_rule(code)
            of_rules += rule.check(context) if rule.check else ()
    return found + gathered(of_rules, document.anchors), True


def _placed(finding: Finding, file: str) -> Finding:
    """The finding; one that is about no place stands at the first line of the manifest."""
    if finding.file and finding.line > 0 and finding.column > 0:
        return finding
    return msgspec.structs.replace(
        finding, file=finding.file or file, line=max(finding.line, 1), column=max(finding.column, 1)
    )
