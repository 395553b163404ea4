"""What a class accepts, value by value and architecture by architecture, as sets of a manifest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from selector.domains import Value
from selector.drift.drafting_yaml import Block, Node, Plain, Rows
from selector.drift.reading import Attribute
from selector.drift.saying import FUTURE, answer_on, takes, value_of
from selector.errors import ValueRefusedError
from selector.fields import UNSET, Field

__all__ = ["ANY", "Accepted", "by_capability", "capability_set", "feature_set", "read_set"]

ANY = "any"
_MULTIPLE = re.compile(r"\w*MultipleOf\(base=([1-9][0-9]*)\)", re.ASCII)
"""An item of a list that stands for all its multiples."""


class Accepted(NamedTuple):
    """What is accepted of a field on one architecture.

    Attributes:
        allow: as a manifest writes it.
        values: those of the values asked that are certainly accepted.
        unknown: those of which that is not known.
        whole: whether ``allow`` is all that is accepted, and not only what was asked.
        by_list: whether the class's own list says it.
        foreign: what the class accepts and a manifest has no word for.
    """

    allow: Plain
    values: tuple[Value, ...] = ()
    unknown: tuple[Value, ...] = ()
    whole: bool = True
    by_list: bool = False
    foreign: tuple[str, ...] = ()

    def without(self, field: Field, refused: Iterable[Value]) -> Accepted:
        """What is left when these values are refused."""
        away = set(refused).intersection(self.values)
        if not away:
            return self
        kept = tuple(one for one in self.values if one not in away)
        if field.role == "feature":
            return self._replace(allow=_off(field), values=kept)
        if isinstance(self.allow, list) and not any(isinstance(one, dict) for one in self.allow):
            allow = [one for one in self.allow if one not in away]
            return self._replace(allow=allow, values=kept)
        whole = self.whole and set(self.values) >= set(field.names())
        return self._replace(allow=[*kept], values=kept, whole=whole)


def _off(field: Field) -> Plain:
    return field.off if field.off is not None else False


def feature_set(field: Field, attribute: Attribute, value: Any, capability: str) -> Accepted:
    """What a class that says yes or no accepts of a feature."""
    answer = answer_on(attribute, capability)
    known = answer is not None and answer.known and not answer.raises
    said = answer.value if known and answer is not None else None
    if said is True:
        return Accepted(ANY, (value,))
    return Accepted(_off(field), (), () if said is False else (value,))


def read_set(
    field: Field, attribute: Attribute, listing: Attribute | None, capability: str
) -> Accepted:
    """What a method accepts that was asked with values, as the class's list says it, if one does.

    Args:
        field: of the manifest.
        attribute: the method.
        listing: the list that it may look into.
        capability: the architecture.
    """
    answer = answer_on(attribute, capability)
    said = {value_of(raw): takes(answer, raw) for raw in attribute.asked}
    words = {value: _word(field, value) for value in said}
    yes = tuple(value for value, one in said.items() if one and words[value] is not None)
    unknown = tuple(value for value, one in said.items() if one is None)
    foreign = [str(value) for value, one in said.items() if one and words[value] is None]
    stated = _listed(field, listing, capability) if not unknown else None
    if stated is not None:
        known, strange = stated
        asked = {value: one for value, one in said.items() if words[value] not in (None, UNSET)}
        for rule in _readings(known):
            allow = rule.written(unset=UNSET in yes)
            if allow == ANY and said.get(UNSET) is False:
                continue
            if all(rule.admits(value) is one for value, one in asked.items()):
                names = [*dict.fromkeys([*foreign, *strange])]
                return Accepted(allow, yes, (), by_list=True, foreign=tuple(names))
    allow = ANY if said and all(said.values()) else _ordered(yes)
    return Accepted(
        allow, yes, unknown, _all_asked(field, said, yes, unknown), False, tuple(foreign)
    )


def _all_asked(
    field: Field, asked: Iterable[Value], yes: Sequence[Value], unknown: Sequence[Value]
) -> bool:
    """Whether nothing that was not asked could be accepted too, but for what is told anyway."""
    if field.type == "name":
        return bool(unknown) or set(asked) >= set(field.names())
    return not any(isinstance(one, int) for one in yes)


def _word(field: Field, value: Value) -> Value | None:
    """A value in the manifest's vocabulary; ``None``: it has no word for it."""
    try:
        read = field.read(value)
    except ValueRefusedError:
        return None
    return value if read == value and not isinstance(read, bool) else None


def _ordered(values: Sequence[Value]) -> list[Value]:
    """Numbers in order, names as they come, ``unset`` first."""
    numbers = sorted(one for one in values if isinstance(one, int))
    names = [one for one in values if isinstance(one, str) and one != UNSET]
    return [*([UNSET] if UNSET in values else []), *numbers, *names]


class _Rule(NamedTuple):
    """What a list may mean: everything, some values, all multiples of some numbers."""

    everything: bool
    values: tuple[Value, ...] = ()
    steps: tuple[int, ...] = ()

    def admits(self, value: Value) -> bool:
        whole = isinstance(value, int) and any(value % step == 0 for step in self.steps)
        return self.everything or whole or value in self.values

    def written(self, *, unset: bool) -> Plain:
        needed = [one for one in self.steps if not any(one % o == 0 for o in self.steps if o < one)]
        if self.everything or 1 in needed:
            return ANY
        alone = not self.values and len(needed) == 1
        if alone:
            step: dict[str, Plain] = {"multiple_of": needed[0]}
            return step | {"or": [UNSET]} if unset else step
        values = _ordered((*self.values, UNSET) if unset else self.values)
        return [*values, *({"multiple_of": one} for one in sorted(needed))]


def _readings(listed: Sequence[Any]) -> tuple[_Rule, ...]:
    """What a list may mean; the answers of the method decide."""
    if not listed:
        return (_Rule(True),)
    steps = [int(found[1]) for one in listed if (found := _MULTIPLE.fullmatch(str(one)))]
    values = [one for one in listed if not _MULTIPLE.fullmatch(str(one))]
    numbers = [one for one in values if isinstance(one, int) and one > 0]
    as_stated = _Rule(False, tuple(dict.fromkeys(values)), tuple(dict.fromkeys(steps)))
    names = tuple(one for one in as_stated.values if one not in numbers)
    as_steps = _Rule(False, names, tuple(dict.fromkeys([*steps, *numbers])))
    return as_stated, as_steps


def _listed(
    field: Field, listing: Attribute | None, capability: str
) -> tuple[list[Any], list[str]] | None:
    """The items of a list that the vocabulary has, and the others; ``None``: there is no list."""
    answer = answer_on(listing, capability) if listing is not None else None
    if answer is None or not answer.known or answer.raises:
        return None
    if not isinstance(answer.value, (list, tuple)):
        return None
    known: list[Any] = []
    strange: list[str] = []
    for raw in answer.value:
        value = value_of(raw)
        fits = isinstance(value, (int, str)) and (
            _MULTIPLE.fullmatch(str(value)) or _word(field, value) is not None
        )
        if fits:
            known.append(value)
        else:
            strange.append(str(value))
    return (known, strange) if known or not strange else None


def capability_set(accepted: Sequence[str], asked: Sequence[str], *, closed: bool) -> Plain:
    """Architectures as a manifest writes them.

    Args:
        accepted: those that are accepted, ``FUTURE`` among them where that has no upper end.
        asked: all that were asked, in order.
        closed: write no open end, whatever is accepted.
    """
    known = [one for one in asked if one != FUTURE]
    kept = [one for one in known if one in accepted]
    if FUTURE not in accepted or closed:
        return kept
    if kept == known:
        return ANY
    tail = 0
    while tail < len(known) and known[-1 - tail] in accepted:
        tail += 1
    if not tail:
        return kept
    at_least = f">={known[len(known) - tail]}"
    return [*kept[:-tail], at_least] if kept[:-tail] else at_least


def by_capability(said: Mapping[str, Plain]) -> Plain | Block:
    """One set, or cases: what is accepted on the highest architecture comes last.

    Args:
        said: compute capability → set, in order.
    """
    groups: dict[str, list[str]] = {}
    for capability, allow in said.items():
        groups.setdefault(repr(allow), []).append(capability)
    if len(groups) == 1:
        return next(iter(said.values()))
    last = groups.pop(repr([*said.values()][-1]))
    left = [*said]
    rows: list[tuple[Node, ...]] = []
    for group in groups.values():
        when: Plain = group if len(group) > 1 else group[0]
        if group == left[: len(group)]:
            when = f"<{left[len(group)]}"
        left = [one for one in left if one not in group]
        rows.append((Node("when", {"capability": when}), Node("allow", said[group[0]])))
    rows.append((Node("allow", said[last[0]]),))
    return Block((Node("cases", Rows(rows)),))
