"""The rules of one kind of question as bit masks: one ``&`` for each field decides.

Some fields tell most entries apart (:data:`KIND_FIELDS`); once they are known, few entries, lists
and terms are left. Each of those is one bit:

- a *flag* for each slot: set while nothing refuses it by itself;
- below its flag, a bit for each of its terms: set while all of the term holds so far;
- a bit for each list, each rule of a derived value and each joint rule: the same.

A field's value has a mask, which holds a bit unless the value decides against it. When all masks
are joined by ``&``, one addition carries the terms of every slot that is refused into its flag.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from selector.domains import Domain, Value
from selector.plan.masks import EITHER, Masks
from selector.plan.memo import remember
from selector.plan.terms import Rules, Slot, Term
from selector.values import Phase

__all__ = ["Agree", "Derived", "Kind", "Pair", "narrowed"]

T = TypeVar("T")

Pair = tuple[str | None, str | None]
"""The prefill and the decode backend."""

Agree = Callable[[tuple[str, ...], str, str], bool]
"""What must be shared, a prefill and a decode backend → whether they can share it."""


# -- narrowing -----------------------------------------------------------------------------------


def narrowed(rules: Rules, known: Mapping[str, Value]) -> Rules:
    """What is left of rules once some fields are known."""
    known = dict(known)
    derive = {}
    for name, ways in rules.derive.items():
        left_ways = tuple(_first_lists(ways, known))
        if left_ways and not left_ways[0][0]:
            known[name] = left_ways[0][1]
        else:
            derive[name] = left_ways
    lists = {phase: tuple(_first_lists(rules.lists[phase], known)) for phase in Phase}
    named = {(name, phase) for phase in Phase for _, names in lists[phase] for name in names}
    slots = []
    for slot in rules.slots:
        if (slot.backend, slot.phase) not in named:
            continue
        if any(n in known and v.admits(known[n]) for n, v in slot.alone):
            continue
        terms = [left for term in slot.terms if (left := _left(term, known)) is not None]
        if any(not term for term in terms):
            continue
        alone = tuple((n, v) for n, v in slot.alone if n not in known)
        slots.append(Slot(slot.backend, slot.phase, alone, tuple(terms)))
    joint = tuple(
        (left, same) for term, same in rules.joint if (left := _left(term, known)) is not None
    )
    impossible = [left for term in rules.impossible if (left := _left(term, known)) is not None]
    return Rules(
        tuple(slots),
        lists,
        derive,
        joint,
        rules.relations,
        rules.requirements,
        tuple(impossible),
        rules.strict,
    )


def _first_lists(
    lists: Iterable[tuple[Term, T]], known: Mapping[str, Value]
) -> Iterator[tuple[Term, T]]:
    for term, names in lists:
        left = _left(term, known)
        if left is not None:
            yield left, names
            if not left:
                return


def _left(term: Term, known: Mapping[str, Value]) -> Term | None:
    """What is left of a term; ``None`` when it can hold no more."""
    left = {}
    for name, values in term.items():
        if name not in known:
            left[name] = values
        elif not values.admits(known[name]):
            return None
    return left


# -- masks ---------------------------------------------------------------------------------------


class Derived(NamedTuple):
    """A derived value: the lowest of its bits tells which rule is the first to hold.

    Attributes:
        bits: one for each rule.
        follows: the lowest bit → the mask of the value that follows.
        name: of the value.
        inputs: the fields that its rules look at.
    """

    bits: int
    follows: Mapping[int, int]
    name: str
    inputs: frozenset[str]


class Kind:
    """The masks of rules.

    Attributes:
        tables: field → its masks, for every field of a question that is looked at.
        masks: the same, and those of derived values.
        derived: the derived values that are looked at, in order.
        everything: all bits.
        flags: the flags of all slots.
        terms: the bits of their terms.
        terms_of: flag → the bits of its terms.
        carry: what carries a term's bit into its slot's flag.
        lists: phase → the bit and the names of each list.
        lists_of: the bits of the lists of prefill, and of those of decode.
        list_bits: both.
        flag_of: backend and phase → the flag.
        joint: the bits of joint rules.
        impossible: the bits of what no layer can be.
    """

    def __init__(self, rules: Rules, universes: Mapping[str, Domain]) -> None:
        self._bits = 0
        self._refusing: dict[str, list[tuple[int, Domain]]] = {}
        self._holding: dict[str, list[tuple[int, Domain]]] = {}
        self._strict = rules.strict
        self.flag_of: dict[tuple[str, Phase], int] = {}
        self.terms = self.carry = self.flags = 0
        self.terms_of: dict[int, int] = {}
        for slot in rules.slots:
            self._add_slot(slot)
        self.lists = {
            phase: [(self._add_first(term), names) for term, names in rules.lists[phase]]
            for phase in Phase
        }
        self._joints = [(self._add_first(term), same) for term, same in rules.joint]
        self.impossible = 0
        for term in rules.impossible:
            bit = self._new()
            self._hold(bit, term)
            self.impossible |= bit
        derived = self._add_derived(rules.derive)
        self.everything = (1 << self._bits) - 1
        self._universes = universes
        names = [*self._refusing, *(n for n in self._holding if n not in self._refusing)]
        masks = self.masks = {name: self._masks(name) for name in names}
        self.tables = {name: masks[name] for name in names if name not in rules.derive}
        self.derived = tuple(
            Derived(
                sum(bits),
                {bit: masks[name][value] for bit, value in zip(bits, results, strict=True)},
                name,
                frozenset(field for term, _ in rules.derive[name] for field in term),
            )
            for name, bits, results in derived
        )
        self._decide()

    def _new(self) -> int:
        self._bits += 1
        return 1 << (self._bits - 1)

    def _hold(self, bit: int, term: Term) -> None:
        for name, values in term.items():
            self._holding.setdefault(name, []).append((bit, values))

    def _add_slot(self, slot: Slot) -> None:
        first = self._bits
        for term in slot.terms:
            bit = self._new()
            self._hold(bit, term)
            self.terms |= bit
        flag = self._new()
        self.terms_of[flag] = flag - (1 << first)
        if slot.terms:
            self.carry += flag - (1 << first)
        self.flags |= flag
        self.flag_of[slot.backend, slot.phase] = flag
        for name, values in slot.alone:
            self._refusing.setdefault(name, []).append((flag, values))

    def _add_first(self, term: Term) -> int:
        bit = self._new()
        self._hold(bit, term)
        return bit

    def _add_derived(
        self, derive: Mapping[str, tuple[tuple[Term, Value], ...]]
    ) -> list[tuple[str, list[int], list[Value]]]:
        """Adds the derived values that something looks at, each behind the ones it looks at."""
        found = []
        for name in reversed([*derive]):  # a later one may look at an earlier one
            if name in self._holding or name in self._refusing:
                bits = [self._add_first(term) for term, _ in derive[name]]
                found.append((name, bits, [value for _, value in derive[name]]))
        return found[::-1]

    def _masks(self, name: str) -> Masks:
        return Masks(
            self.everything,
            self._universes.get(name, EITHER),
            self._refusing.get(name, []),
            self._holding.get(name, []),
            name in self._strict,
        )

    def _decide(self) -> None:
        """Lays out what is looked at once all masks are joined."""
        self._orders = {
            phase: {bit: self._order(names, phase) for bit, names in lists}
            for phase, lists in self.lists.items()
        }
        self._prefill_lists, self._decode_lists = (
            sum(bit for bit, _ in self.lists[phase]) for phase in (Phase.PREFILL, Phase.DECODE)
        )
        self.lists_of = (self._prefill_lists, self._decode_lists)
        self.list_bits = self._prefill_lists | self._decode_lists
        self.joint = sum(bit for bit, _ in self._joints)
        self._choices: dict[int, _Choices] = {}
        self._decisive = self.flags | self.list_bits | self.joint
        self._derived_bits = sum(derived.bits for derived in self.derived)
        self._pairs: dict[int, Pair] = {}
        self._follows: dict[int, int] = {}

    def _order(self, names: Sequence[str], phase: Phase) -> tuple[tuple[int, str], ...]:
        flags = ((self.flag_of.get((name, phase)), name) for name in names)
        return tuple((flag, name) for flag, name in flags if flag)

    # -- asking -----------------------------------------------------------------------------------

    def settled(self, mask: int) -> int:
        """A mask of all fields with derived values joined to it, and refused slots taken out."""
        if self.derived:
            key = mask & self._derived_bits
            follows = self._follows.get(key)
            mask &= self._follow(key) if follows is None else follows
        return mask & ~(((mask & self.terms) + self.carry) & self.flags)

    def _follow(self, key: int) -> int:
        """The masks of all derived values, joined; a later value may look at an earlier one."""
        joined = self.everything
        for bits, follows, _, _ in self.derived:
            low = key & joined & bits
            joined &= follows[low & -low]
        return remember(self._follows, key, joined)

    def pair(self, mask: int, agree: Agree) -> Pair:
        """The backends of prefill and decode, as a settled mask says; decode leads.

        Args:
            mask: settled.
            agree: whether two backends can share what they must.
        """
        key = mask & self._decisive
        found = self._pairs.get(key)
        if found is None:
            found = remember(self._pairs, key, self.choices(mask).pair(mask, agree))
        return found

    def choices(self, mask: int) -> _Choices:
        """The lists that hold, and what is shared, as a settled mask says."""
        prefill, decode = mask & self._prefill_lists, mask & self._decode_lists
        key = (prefill & -prefill) | (decode & -decode) | (mask & self.joint)
        found = self._choices.get(key)
        if found is None:
            shared = [name for bit, same in self._joints if mask & bit for name in same]
            found = self._choices[key] = _Choices(
                self._orders[Phase.PREFILL].get(prefill & -prefill, ()),
                self._orders[Phase.DECODE].get(decode & -decode, ()),
                tuple(dict.fromkeys(shared)),
            )
        return found


class _Order:
    """Backends in order of preference, each with its flag."""

    def __init__(self, order: tuple[tuple[int, str], ...]) -> None:
        self.order = order
        flags = [flag for flag, _ in order]
        self._ascends = flags == sorted(flags)
        self._every = sum(flags)
        self._names = dict(order)
        self.flag_of = {name: flag for flag, name in order}

    def first(self, mask: int) -> str | None:
        """The first whose flag is set."""
        if self._ascends:
            low = mask & self._every
            return self._names[low & -low] if low else None
        for flag, name in self.order:
            if mask & flag:
                return name
        return None

    def alive(self, mask: int) -> Iterator[str]:
        """Yields all whose flags are set, in order."""
        if not self._ascends:
            yield from (name for flag, name in self.order if mask & flag)
            return
        left = mask & self._every
        while left:
            low = left & -left
            yield self._names[low]
            left ^= low


class _Choices:
    """What can be chosen from, and what the two choices must share."""

    def __init__(
        self,
        prefill: tuple[tuple[int, str], ...],
        decode: tuple[tuple[int, str], ...],
        shared: tuple[str, ...],
    ) -> None:
        self.prefill = _Order(prefill)
        self.decode = _Order(decode)
        self.shared = shared
        self.same = "backend" in shared

    def pair(self, mask: int, agree: Agree) -> Pair:
        """The backends of prefill and decode; decode leads.

        Args:
            mask: settled.
            agree: whether two backends can share what they must.
        """
        if not self.shared:
            return self.prefill.first(mask), self.decode.first(mask)
        for decode in self.decode.alive(mask):
            if self.same:
                if mask & self.prefill.flag_of.get(decode, 0):
                    return decode, decode
                continue
            for prefill in self.prefill.alive(mask):
                if agree(self.shared, prefill, decode):
                    return prefill, decode
        leader = self.decode.first(mask)
        return (self.prefill.first(mask) if leader is None else None), leader
