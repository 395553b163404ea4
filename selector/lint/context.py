"""What the checks look at; what costs time is worked out once, when a check first asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from selector.devices import architectures
from selector.document import Document
from selector.document import Mapping as Tree
from selector.evidence import Evidence, find_evidence
from selector.lint.covering import Covering
from selector.lint.questions import Questions
from selector.lint.reaching import Reaching
from selector.lint.solving import OverBudgetError
from selector.manifest import Manifest, Priority
from selector.values import Phase, Position

__all__ = ["Context"]


class Context:
    """One manifest that has no errors, with everything that it was read from.

    Attributes:
        document: what was read, with the overlays applied.
        manifest: what it means.
        overlays: the overlays as they were read, in order.
        texts: file → its text.
    """

    def __init__(
        self,
        document: Document,
        manifest: Manifest,
        overlays: Sequence[Document] = (),
    ) -> None:
        self.document = document
        self.manifest = manifest
        self.overlays = tuple(overlays)
        self.texts: Mapping[str, str] = {one.file: one.text for one in (document, *overlays)}

    @property
    def tree(self) -> Tree:
        """The document's tree, with positions."""
        assert self.document.tree is not None
        return self.document.tree

    @cached_property
    def questions(self) -> Questions | None:
        """All questions to the manifest, whatever ``deny`` says; ``None``: they are too many."""
        return self._questions(without_denials(self.manifest))

    @cached_property
    def policed(self) -> Questions | None:
        """All questions to the manifest; ``None``: they are too many."""
        return self._questions(self.manifest) if self.manifest.deny else self.questions

    @cached_property
    def claimed(self) -> Questions | None:
        """The same of what engines claim, whatever ``deny`` says."""
        if all(entry.claimed is None for entry in self.manifest.entries.values()):
            return self.questions
        return self._questions(without_denials(self.manifest.as_claimed()))

    def _questions(self, manifest: Manifest) -> Questions | None:
        try:
            return Questions(manifest)
        except OverBudgetError:
            return None

    @cached_property
    def reaching(self) -> Reaching | None:
        """What the lists reach, whatever ``deny`` says; ``None``: that cannot be told."""
        return None if self.questions is None else Reaching(self.questions)

    @cached_property
    def reaching_policed(self) -> Reaching | None:
        """What the lists reach; ``None``: that cannot be told."""
        if not self.manifest.deny:
            return self.reaching
        return None if self.policed is None else Reaching(self.policed)

    @cached_property
    def covering(self) -> Covering | None:
        """Where lists and entries run, whatever ``deny`` says; ``None``: that cannot be told."""
        return None if self.questions is None else Covering(self.questions)

    @cached_property
    def covering_policed(self) -> Covering | None:
        """Where lists and entries run; ``None``: that cannot be told."""
        if not self.manifest.deny:
            return self.covering
        return None if self.policed is None else Covering(self.policed)

    @cached_property
    def evidence(self) -> Mapping[str, Evidence] | None:
        """The evidence beside the manifest, by id; ``None``: it keeps none there."""
        return find_evidence(self.manifest.ref.file)

    # -- places -----------------------------------------------------------------------------------

    @property
    def start(self) -> Position:
        """Where the manifest says its name."""
        found: Position = self.tree.values_at["name"]
        return found

    def is_own(self, at: Position) -> bool:
        """Whether a line is the business of this run: with overlays, only theirs are."""
        return not self.overlays or any(at.file == one.file for one in self.overlays)

    def own_lists(self) -> Iterator[tuple[int, Priority]]:
        """Yields the priority lists that are the business of this run, with their places."""
        for index, one in enumerate(self.manifest.priorities):
            if self.is_own(one.position):
                yield index, one

    def name_at(self, index: int, phase: Phase, name: str) -> Position:
        """Where a priority list names an entry for a phase."""
        raw = self.tree["priorities"][index]
        names = raw[phase.value if phase.value in raw else "order"]
        found: Position = names.items_at[names.index(name)]
        return found

    @cached_property
    def architectures(self) -> tuple[Mapping[str, object], ...]:
        """The known architectures, as ``architectures.json`` lists them."""
        return tuple(architectures())


def without_denials(manifest: Manifest) -> Manifest:
    """The manifest as if its ``deny`` said nothing."""
    return msgspec.structs.replace(manifest, deny=()) if manifest.deny else manifest
