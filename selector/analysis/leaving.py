"""What is left of rules among questions of which something never holds."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import TypeVar

import msgspec

from selector.analysis.sides import Sides
from selector.domains import Domain
from selector.plan.terms import Rules, Slot, Term
from selector.values import Phase

__all__ = ["left_of"]

T = TypeVar("T")


def left_of(rules: Rules, never: Sequence[Term], sides: Sides) -> Rules:
    """The rules without what can only hold where something does that never does.

    An entry that is accepted in all questions is refused by nothing any more: whatever stands
    behind it need not be looked at.
    """
    alone: dict[str, Domain] = {}
    together: list[Term] = []
    for term in never:
        if len(term) == 1:
            ((name, values),) = term.items()
            alone[name] = alone[name] | values if name in alone else values
        else:
            together.append(term)

    def is_out(term: Term) -> bool:
        for name, values in term.items():
            if name in alone and sides.within(name, values, alone[name]):
                return True
        return any(
            all(name in term and sides.within(name, term[name], one[name]) for name in one)
            for one in together
        )

    def kept(terms: Iterable[tuple[Term, T]]) -> tuple[tuple[Term, T], ...]:
        return tuple((term, rest) for term, rest in terms if not is_out(term))

    slots = tuple(
        Slot(
            slot.backend,
            slot.phase,
            tuple((n, values) for n, values in slot.alone if not is_out({n: values})),
            tuple(term for term in slot.terms if not is_out(term)),
        )
        for slot in rules.slots
    )
    sure = {(slot.backend, slot.phase) for slot in slots if not slot.alone and not slot.terms}
    joint = kept(rules.joint)
    lists = {phase: kept(terms) for phase, terms in rules.lists.items()}
    if not joint:  # else a later one may be taken for what both phases share
        lists = {
            phase: tuple((term, _up_to(names, phase, sure)) for term, names in terms)
            for phase, terms in lists.items()
        }
    return msgspec.structs.replace(rules, slots=slots, lists=lists, joint=joint)


def _up_to(
    names: tuple[str, ...], phase: Phase, sure: Container[tuple[str, Phase]]
) -> tuple[str, ...]:
    """The names of a list to the first that is sure to be accepted, and others that are."""
    for place, name in enumerate(names):
        if (name, phase) in sure:
            return (*names[:place], *(n for n in names[place:] if (n, phase) in sure))
    return names
