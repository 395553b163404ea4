"""Diagrams of one kind of question from small ones: each over its own fields, joined at the end.

What chooses backends, what they make of a request and which lengths go together look at different
fields. Each is brought to its smallest form first, so that few places are left once all are joined.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from selector.analysis.diagram import Diagram, Level, OverBudgetError, Walk, Walks
from selector.analysis.regions import Net, Steps
from selector.analysis.space import KindOf
from selector.plan.kind import Kind

__all__ = ["Grower"]

Ends = Callable[[tuple[int, ...]], Hashable]
"""The last states → what the end is called; ``None``: no question that matters comes there."""


class Grower:
    """Grows diagrams whose fields are in one order.

    Args:
        kind: the questions.
        order: all fields.
        budget: how many places may be looked at in all.

    Attributes:
        work: how many steps it took.
    """

    def __init__(self, kind: KindOf, order: Sequence[Level], budget: int) -> None:
        self.kind = kind
        self.order = order
        self.work = 0
        self._budget = budget

    def net(
        self,
        kinds: Sequence[Kind],
        end: Ends,
        needed: Sequence[int] | None = None,
        unsure: Sequence[int] | None = None,
    ) -> Net:
        """Where questions end in masks.

        Args:
            kinds: the masks.
            end: what the ends are called.
            needed: for each kind, flags without which a question does not matter.
            unsure: for each kind, flags of entries that may yet be refused.

        Raises:
            OverBudgetError: there are more places than the budget.
        """
        nothing = (0,) * len(kinds)
        looked = {name for one in kinds for name in one.masks}
        order = [level for level in self.order if level.name in looked]
        flags = zip(kinds, needed or nothing, unsure or nothing, strict=True)
        return self.grown(order, [Walk(one, order, some, open_) for one, some, open_ in flags], end)

    def joined(self, nets: Sequence[Net], end: Callable[..., Hashable]) -> Net:
        """Where questions end in several nets at once.

        Args:
            nets: of the same questions.
            end: what the ends of each come to, taken together.

        Raises:
            OverBudgetError: there are more places than the budget.
        """
        looked = {name for net in nets for name in net.names}
        order = [level for level in self.order if level.name in looked]

        def called(places: tuple[int, ...]) -> Hashable:
            return end(*(net.ends[place] for net, place in zip(nets, places, strict=True)))

        if any(net.root < 0 for net in nets):
            return self.grown([], [], lambda _: None)
        return self.grown(order, [Steps(net, order) for net in nets], called)

    def grown(self, order: Sequence[Level], walks: Sequence[Walks], end: Ends) -> Net:
        """Where questions end.

        Raises:
            OverBudgetError: there are more places than the budget.
        """

        def outcome(states: tuple[int, ...]) -> tuple[Hashable] | None:
            called = end(states)
            return None if called is None else (called,)

        if self.work >= self._budget:
            raise OverBudgetError
        left = self._budget - self.work
        diagram = Diagram(self.kind, order, walks, outcome, left)  # type: ignore[arg-type]
        self.work += diagram.work
        return Net(diagram, lambda outcome: outcome[0])
