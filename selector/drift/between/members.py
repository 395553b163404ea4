"""What a class claims and which methods it has, against what it did in the other version."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from selector.drift.between.answers import Delta, compare_answers
from selector.drift.between.changes import Change, Kind, Side, What
from selector.drift.between.classes import Classes
from selector.drift.reading import Answer, Attribute, ClassReading, Method
from selector.drift.saying import answer_on

__all__ = ["Found", "Sides", "compare_claims", "compare_methods", "grouped", "made"]

Found = dict[str, list[Change]]
"""Name → how it changed; nothing where both say the same."""
Sides = tuple[Side | None, Side | None]


def compare_claims(classes: Classes) -> Found:
    """How the attributes of a class changed."""
    before, after = classes.before.attributes, classes.after.attributes
    found = {
        name: [*_claim(classes, name, before.get(name), after.get(name))]
        for name in sorted(before.keys() | after.keys())
        if not _names_class(classes, before.get(name), after.get(name))
    }
    for method, name in classes.lists.items():
        _fold(classes, found, method, name)
    return found


def _names_class(classes: Classes, *attributes: Attribute | None) -> bool:
    """Whether it only names the classes of the backend."""
    answers = [one.answer for one in attributes if one is not None]
    return all(
        one is not None and isinstance(one.value, str) and one.value in classes.names
        for one in answers
    )


def _fold(classes: Classes, found: Found, method: str, name: str) -> None:
    """What a list changes is told of the method that looks into it, and told once."""
    told = found.get(method, [])
    decided = [one for one in told if one.kind is not Kind.UNCOMPARED]
    lists = [one.attributes.get(name) for one in (classes.before, classes.after)]
    before, after = (
        _side(one, cls, one.answer if one is not None else None)
        for one, cls in zip(lists, (classes.before, classes.after), strict=True)
    )
    if before is None or after is None or before.answer is None or after.answer is None:
        return
    if decided and found.get(name):
        by = (before, after)
        found[method] = [
            msgspec.structs.replace(one, by=by) if one in decided else one for one in told
        ]
        del found[name]


def _claim(
    classes: Classes, name: str, before: Attribute | None, after: Attribute | None
) -> Iterator[Change]:
    sides = (_side(before, classes.before), _side(after, classes.after))
    if before is None or after is None:
        deltas = grouped(_whole(classes, before, after))
    else:
        asked = [value for value in after.asked if value in before.asked]
        deltas = grouped(
            (capability, delta)
            for capability in classes.capabilities
            if (old := answer_on(before, capability)) and (new := answer_on(after, capability))
            for delta in compare_answers(name, old, new, asked)
        )
    for delta, where in deltas:
        yield made(classes, What.CLAIM, name, sides, delta, where)
    if all(delta.kind is Kind.UNCOMPARED for delta, _ in deltas):  # no other value is known
        yield from _supplied(classes, name, sides, _same_answer(before), _same_answer(after))


def _same_answer(attribute: Attribute | None) -> Answer | None:
    """What it says on all architectures alike, if it does."""
    return attribute.answer if attribute is not None else None


def _whole(
    classes: Classes, before: Attribute | None, after: Attribute | None
) -> Iterator[tuple[str, Delta]]:
    """What is said by one version only."""
    kind = Kind.ADDED if before is None else Kind.REMOVED
    for one in classes.capabilities:
        old = answer_on(before, one) if before is not None else None
        new = answer_on(after, one) if after is not None else None
        yield one, Delta(kind, old, new)


def _supplied(
    classes: Classes, name: str, sides: Sides, old: Answer | None, new: Answer | None
) -> Iterator[Change]:
    """Whether another class says the same, or constructors set it otherwise."""
    before, after = sides
    if before is None or after is None:
        return
    if not classes.is_same(before.defined_in, after.defined_in):
        kind = Kind.MOVED
    elif _settings(before, classes.moves) != _settings(after, {}):
        kind = Kind.CHANGED
    else:
        return
    yield made(classes, What.CLAIM, name, sides, Delta(kind, old, new), classes.capabilities)


def _settings(side: Side, moves: Mapping[str, str]) -> set[tuple[str, str]]:
    return {(moves.get(one.by, one.by), one.expression) for one in side.assigned}


def _side(
    attribute: Attribute | None, cls: ClassReading, answer: Answer | None = None
) -> Side | None:
    if attribute is None:
        return None
    assigned = tuple(one for one in cls.assigned if one.name == attribute.name)
    at = attribute.at if attribute.at.file else cls.at
    return Side(attribute.defined_in, at, answer, assigned)


def compare_methods(classes: Classes) -> Found:
    """How the methods that do the work changed."""
    before, after = classes.before.methods, classes.after.methods
    return {
        name: [*_method(classes, name, before.get(name), after.get(name))]
        for name in sorted(before.keys() | after.keys())
    }


def _method(
    classes: Classes, name: str, before: Method | None, after: Method | None
) -> Iterator[Change]:
    sides = (_method_side(before), _method_side(after))
    old, new = sides
    if old is None or new is None:
        delta = Delta(Kind.ADDED if old is None else Kind.REMOVED)
        yield made(classes, What.METHOD, name, sides, delta, classes.capabilities)
        return
    works = (old.answer is None, new.answer is None)
    if works[0] != works[1]:
        kind = Kind.WIDENED if works[1] else Kind.NARROWED
    elif old.answer != new.answer or old.missing != new.missing:
        kind = Kind.CHANGED
    elif not classes.is_same(old.defined_in, new.defined_in):
        kind = Kind.MOVED
    else:
        return
    yield made(classes, What.METHOD, name, sides, Delta(kind), classes.capabilities)


def _method_side(method: Method | None) -> Side | None:
    """A method; the answer says which exception it only raises, an abstract one too."""
    if method is None:
        return None
    raises = method.raises or ("NotImplementedError" if method.abstract else "")
    missing = tuple(dict.fromkeys(need.name for need in method.missing))
    answer = Answer(raises=raises) if raises else None
    return Side(method.defined_in, method.at, answer, (), missing)


def grouped(deltas: Iterable[tuple[str, Delta]]) -> list[tuple[Delta, tuple[str, ...]]]:
    """Each difference, with the architectures on which it is that one."""
    where: defaultdict[bytes, list[str]] = defaultdict(list)
    known: dict[bytes, Delta] = {}
    for capability, delta in deltas:
        key = msgspec.json.encode(delta)
        where[key].append(capability)
        known[key] = delta
    return [(delta, tuple(where[key])) for key, delta in known.items()]


def made(
    classes: Classes, what: What, name: str, sides: Sides, delta: Delta, where: tuple[str, ...]
) -> Change:
    """A change of one backend."""
    before, after = (
        msgspec.structs.replace(side, answer=answer) if side is not None and answer else side
        for side, answer in zip(sides, (delta.before, delta.after), strict=True)
    )
    own = (classes.before.path, classes.after.path)
    owns = [
        (classes.backend,) if side is not None and side.defined_in == path else ()
        for side, path in zip(sides, own, strict=True)
    ]
    return Change(
        delta.kind, what, classes.role, name, before, after, where, delta.gained, delta.lost,
        backends=(classes.backend,), own_before=owns[0], own_after=owns[1],
    )  # fmt: skip
