"""What the checks look at; what costs time is worked out once, when a check first asks for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from selector.devices import architectures
from selector.document import Document
from selector.document import Mapping as Tree
from selector.errors import TooManyTermsError
from selector.manifest import Manifest
from selector.plan.plan import Plan

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
    def plan(self) -> Plan | None:
        """The manifest compiled; ``None``: it is too large for that."""
        try:
            return Plan(self.manifest)
        except TooManyTermsError:
            return None

    @cached_property
    def architectures(self) -> tuple[Mapping[str, object], ...]:
        """The known architectures, as ``architectures.json`` lists them."""
        return tuple(architectures())
