"""Safe fixes: edits that the rules propose → new text, kept only where it reads better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from selector.document import Document, read_text
from selector.lint.catalogue import Edit, codes, find_rule
from selector.lint.lines import lines_of
from selector.lint.page import Page
from selector.lint.running import ALL, Selection, lint
from selector.values import Finding, Severity

__all__ = ["Mended", "fixable", "mend"]

_ROUNDS = 100
"""A round mends all that can be mended at once; more than a few are needed only for clashes."""

Sources = tuple[tuple[str, bytes], ...]


class Mended(msgspec.Struct, frozen=True):
    """What became of some files.

    Attributes:
        data: file → its bytes, mended.
        fixed: how many findings were mended.
        documents: what was read of them, the manifest first.
        findings: what is left.
    """

    data: Mapping[str, bytes]
    fixed: int
    documents: tuple[Document, ...]
    findings: tuple[Finding, ...]


class _State(msgspec.Struct, frozen=True):
    """Files as they are, and what is wrong with them."""

    sources: Sources
    documents: tuple[Document, ...]
    findings: tuple[Finding, ...]

    @property
    def worth(self) -> tuple[int, int]:
        """How well it reads: as far as possible, then with as few findings as possible."""
        if any(document.tree is None for document in self.documents):
            return 0, -len(self.findings)
        wrong = any(f.severity is Severity.ERROR and f.code < "CAP1" for f in self.findings)
        return 1 if wrong else 2, -len(self.findings)


def mend(
    sources: Sequence[tuple[str, bytes]],
    selection: Selection = ALL,
    keep: frozenset[str] = frozenset(),
) -> Mended:
    """Files with all that is safe to mend mended; everything else in them is kept.

    Args:
        sources: names and bytes of a manifest and of its overlays.
        selection: of rules.
        keep: names of files that stay as they are.
    """
    state, fixed = _look(tuple(sources), selection), 0
    refused: set[Finding] = set()
    for _ in range(_ROUNDS):
        pages = _pages(state.documents)
        proposed = {
            finding: edits
            for finding in state.findings
            if finding.file not in keep
            and finding not in refused
            and selection.takes(finding.code)
            and (edits := _edits(finding, pages))
        }
        if not proposed:
            break
        better = _better(state, proposed, selection)
        if better is None and len(proposed) > 1:  # one of them may be at fault
            finding = min(proposed)
            better = _better(state, {finding: proposed[finding]}, selection)
        if better is None:
            refused.add(min(proposed))
            continue
        state = better[0]
        fixed += better[1]
    return Mended(dict(state.sources), fixed, state.documents, state.findings)


def fixable(findings: Sequence[Finding], documents: Sequence[Document]) -> list[Finding]:
    """Those of some findings about documents that are safe to mend."""
    pages = _pages(documents)
    return [finding for finding in findings if _edits(finding, pages)]


def _pages(documents: Sequence[Document]) -> dict[str, Page]:
    return {document.file: Page(document) for document in reversed(documents)}


def _look(sources: Sources, selection: Selection) -> _State:
    documents = tuple(read_text(data, name) for name, data in sources)
    findings = tuple(lint(documents[0], documents[1:], selection))
    return _State(sources, documents, findings)


def _edits(finding: Finding, pages: Mapping[str, Page]) -> Sequence[Edit]:
    if finding.code not in codes() or (fix := find_rule(finding.code).fix) is None:
        return ()
    page = pages.get(finding.file)
    return fix(finding, page) if page is not None and page.document.text else ()


def _better(
    state: _State, proposed: Mapping[Finding, Sequence[Edit]], selection: Selection
) -> tuple[_State, int] | None:
    """The files with edits made, if they then read better, and how many findings they mend."""
    changed, made = [], 0
    for name, data in state.sources:
        groups = [edits for finding, edits in proposed.items() if finding.file == name]
        taken, count = _apart(groups)
        made += count
        changed.append((name, _edited(data, taken) if taken else data))
    after = _look(tuple(changed), selection)
    return (after, made) if after.worth > state.worth else None


def _apart(groups: Sequence[Sequence[Edit]]) -> tuple[list[Edit], int]:
    """Edits of which none touches another, of the first groups, and of how many groups."""
    taken: list[Edit] = []
    count = 0
    for group in sorted(map(list, groups)):
        if not any(_clash(one, other) for one in group for other in taken):
            taken += group
            count += 1
    return taken, count


def _edited(data: bytes, edits: Sequence[Edit]) -> bytes:
    """A file with edits made; none touches another."""
    lines = lines_of(data.decode("utf-8"))
    for edit in sorted(edits, reverse=True):
        # the mark before the text counts in no position
        marked = edit.line == 1 and lines[0].startswith("\ufeff")
        begin, end = (at - 1 + marked for at in (edit.start, edit.end))
        line = lines[edit.line - 1]
        lines[edit.line - 1] = line[:begin] + edit.text + line[end:]
    return "".join(lines).encode("utf-8")


def _clash(one: Edit, other: Edit) -> bool:
    return one.line == other.line and one.start < other.end and other.start < one.end
