"""What a manifest chooses within a region of questions: exactly, or by samples beyond a budget."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy

import msgspec

from selector.analysis.counting import Counts
from selector.analysis.diagram import Decision, Diagram, Outcome, OverBudgetError, order_of
from selector.analysis.leaving import left_of
from selector.analysis.space import KindOf, Space
from selector.domains import Domain
from selector.manifest import Manifest
from selector.plan.agreeing import agreement
from selector.plan.kind import Kind
from selector.plan.terms import KIND_FIELDS, Term, UndecidedError
from selector.rules import When

__all__ = ["BUDGET", "Part", "Region", "Survey"]

BUDGET = 2_000_000
"""Steps that are taken in all, before questions are drawn instead: 30 s on a slow core."""

_SAMPLES, _FEWEST = 1_000, 100
"""Questions that are drawn of each kind beyond the budget, at first and at last."""

_MOST_DRAWN = 100_000
"""Questions that are drawn in all, before so few are drawn of each kind."""

_FEW_KINDS = 2
"""Kinds of a small region that are drawn from once the budget is spent."""

Choose = Callable[[Kind, int], tuple[str | None, ...]]
"""Kind and settled mask → what is chosen: the prefill and the decode backend, or more of them.

Raises:
    UndecidedError: only the definition knows.
"""

One = Callable[[Callable[[Outcome | None], bool]], Mapping[str, Domain] | None]
"""Which outcomes are wanted → the classes of a question with one of them."""


class Region(msgspec.Struct, frozen=True):
    """Some of all questions.

    Attributes:
        within: what holds of all of them.
        outside: what holds of none.
    """

    within: tuple[Term, ...] = ()
    outside: tuple[Term, ...] = ()

    @property
    def shut_out(self) -> tuple[Term, ...]:
        """What holds of no question in the region, each by itself."""
        sides = ({name: ~values} for term in self.within for name, values in term.items())
        return (*sides, *self.outside)

    @property
    def known(self) -> Term:
        """The values that single fields have."""
        found: dict[str, Domain] = {}
        for term in self.within:
            for name, values in term.items():
                found[name] = found[name] & values if name in found else values
        return found


class Part(msgspec.Struct, frozen=True):
    """The questions of one kind that lie in a region.

    Attributes:
        kind: device and kind of layer.
        total: outcome → how many, without what no layer can be. An outcome ``(None,)`` is one
            that only the definition can tell.
        one: gives the classes of a question with a wanted outcome.
        drawn: how many questions were drawn, beyond the budget; 0: ``total`` is exact.
    """

    kind: KindOf
    total: Mapping[Outcome, int]
    one: One
    drawn: int = 0


class Survey:
    """The questions to one manifest, region by region.

    Args:
        manifest: what is asked.
        whens: conditions that regions are made of; ``terms`` has them in the same order.
        budget: places that may be looked at in all.
    """

    def __init__(
        self, manifest: Manifest, whens: Sequence[When] = (), budget: int = BUDGET
    ) -> None:
        self.manifest = manifest
        self.space = Space((manifest,), whens)
        self.terms = self.space.terms
        self.left = budget
        self._enough = budget // 64
        self._drawn = _MOST_DRAWN
        self._agree = agreement(manifest)

    def chosen(self, kind: Kind, mask: int) -> Decision:
        """The prefill and the decode backend.

        Raises:
            UndecidedError: only the definition knows.
        """
        return kind.choices(mask).pair(mask, self._agree)

    def parts(self, region: Region, choose: Choose | None = None) -> Iterator[Part]:
        """Yields every kind of question that has some in the region."""
        for kind, space in self._kinds(region):
            part = self._part(space, kind, region, choose or self.chosen)
            if part.total or part.drawn:
                yield part

    def few_parts(self, region: Region, choose: Choose | None = None) -> Iterator[Part]:
        """Yields the same; a few of them only, once the budget is spent."""
        for number, part in enumerate(self.parts(region, choose)):
            yield part
            if number + 1 >= _FEW_KINDS and self._is_spent:
                return

    @property
    def _is_spent(self) -> bool:
        return self.left <= self._enough

    def _kinds(self, region: Region) -> Iterator[tuple[KindOf, Space]]:
        """Yields the kinds of questions in a region, and the space that is left of it."""
        space = copy(self.space)
        (rules,) = space.rules
        shut_out = region.shut_out
        outside = (*rules.impossible, *shut_out)
        left = left_of(rules, shut_out, self.space.sides)
        space.rules = (msgspec.structs.replace(left, impossible=outside),)
        known = region.known
        for kind in space.kinds({name: known[name] for name in KIND_FIELDS if name in known}):
            if not _never(kind.kinds[0]):
                yield kind, space

    def _part(self, space: Space, kind: KindOf, region: Region, choose: Choose) -> Part:
        def decide(_: int, kind: Kind, mask: int) -> Decision | None:
            try:
                return choose(kind, mask)  # type: ignore[return-value]  # told apart, no more
            except UndecidedError:
                return None

        if not self._is_spent:
            try:
                counts = Counts(Diagram.of(space, kind, decide, self.left // 2))
            except OverBudgetError:
                self.left -= self.left // 2  # another kind may be smaller
            else:
                self.left -= counts.diagram.work
                total = {o: n for o, n in counts.total.items() if o is not None and n}
                return Part(kind, total, counts.one)
        number = max(_FEWEST, min(_SAMPLES, self._drawn // 20))
        self._drawn -= number
        self.left -= kind.kinds[0].everything.bit_length()
        return _sampled(space, kind, region, choose, number)


def _never(kind: Kind) -> bool:
    """Whether no layer is of this kind."""
    looked_at = 0
    for masks in kind.masks.values():
        looked_at |= masks.bits
    return bool(kind.impossible & ~looked_at)


def _sampled(space: Space, kind: KindOf, region: Region, choose: Choose, number: int) -> Part:
    """What is chosen for questions drawn from a kind."""
    (rules,) = kind.kinds
    drawn = random.Random(0)
    levels = []
    for level in order_of(space.classes, kind.kinds):
        if not level.classes:
            continue
        inside = region.known.get(level.name)
        both = zip(level.classes, space.sides.masks(rules, level.name), strict=True)
        able = [(c, m) for c, m in both if inside is None or not (c & inside).is_empty()]
        levels.append((level.name, able))
    total: Counter[Outcome] = Counter()
    seen: dict[Outcome, dict[str, Domain]] = {}
    for _ in range(number):
        mask, classes_of = rules.everything, dict(kind.classes)
        for name, choices in levels:
            classes_of[name], bits = choices[int(drawn.random() * len(choices))]
            mask &= bits
        mask = rules.settled(mask)
        if mask & rules.impossible:
            continue
        try:
            outcome: Outcome = (choose(rules, mask),)  # type: ignore[assignment]
        except UndecidedError:
            outcome = (None,)
        total[outcome] += 1
        seen.setdefault(outcome, classes_of)

    def one(wanted: Callable[[Outcome | None], bool]) -> Mapping[str, Domain] | None:
        return next((classes for outcome, classes in seen.items() if wanted(outcome)), None)

    return Part(kind, total, one, max(1, total.total()))
