"""How many questions come to each outcome, and one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from selector.analysis.diagram import Diagram, Node, Outcome
from selector.domains import Domain

__all__ = ["Counts"]


class Counts:
    """The outcomes of a diagram, with exact counts of combinations of classes.

    Attributes:
        total: outcome → how many; ``None`` counts what no layer can be.
    """

    def __init__(self, diagram: Diagram) -> None:
        self.diagram = diagram
        sizes = [max(1, len(level.classes)) for level in diagram.order]
        self._below = [1] * (len(sizes) + 1)
        for index in range(len(sizes) - 1, -1, -1):
            self._below[index] = self._below[index + 1] * sizes[index]
        self._memo: dict[int, Mapping[Outcome | None, int]] = {}
        found = self.of(diagram.root, 0)
        self.total = {outcome: number * diagram.factor for outcome, number in found.items()}

    def of(self, node: Node | Outcome | None, index: int) -> Mapping[Outcome | None, int]:
        """The counts of what follows from a place; other fields are left out."""
        if node is None:
            return {None: self._below[index]}
        if not isinstance(node, Node):
            return {node: 1}
        known = self._memo.get(id(node))
        if known is None:
            found: dict[Outcome | None, int] = {}
            for following in node.next:
                for outcome, number in self.of(following, index + 1).items():
                    found[outcome] = found.get(outcome, 0) + number
            known = self._memo[id(node)] = found
        return known

    def one(self, wanted: Callable[[Outcome | None], bool]) -> Mapping[str, Domain] | None:
        """The classes of a question with a wanted outcome; ``None``: there is none."""
        node, classes = self.diagram.root, dict(self.diagram.kind.classes)
        for index, level in enumerate(self.diagram.order):
            if not isinstance(node, Node):
                break
            choices = iter(level.classes)
            for following in node.next:
                values = next(choices, None)
                if any(wanted(outcome) for outcome in self.of(following, index + 1)):
                    if values is not None:
                        classes[level.name] = values
                    node = following
                    break
            else:
                return None
        return classes if node is not None and wanted(node) else None  # type: ignore[arg-type]
