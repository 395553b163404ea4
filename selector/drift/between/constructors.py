"""What constructors refuse, against what they did in the other version."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from selector.drift.between.answers import compare_values
from selector.drift.between.changes import Change, GuardChange, Kind, Refusal, Side, What
from selector.drift.between.classes import Classes
from selector.drift.between.members import Found, grouped, made
from selector.drift.reading import Answer, ClassReading, Dynamic, Guard
from selector.drift.saying import answer_on, takes

__all__ = ["compare_arguments", "compare_guards"]


def compare_arguments(classes: Classes) -> Found:
    """Argument → which of its values constructors refuse now, or no longer.

    All guards of a class together: what one of them certainly refuses is refused.
    """
    asked: dict[str, list[Any]] = {}
    for guard in (*classes.before.guards, *classes.after.guards):
        for refused in guard.refuses:
            values = asked.setdefault(refused.name, [])
            values += [value for value in refused.asked if value not in values]
    return {name: [*_argument(classes, name, values)] for name, values in asked.items()}


def _argument(classes: Classes, name: str, asked: list[Any]) -> Iterator[Change]:
    old, new = classes.before, classes.after
    deltas = grouped(
        (capability, delta)
        for capability in classes.capabilities
        for delta in compare_values(
            _passes(old.guards, name, asked, capability),
            _passes(new.guards, name, asked, capability),
            asked,
        )
    )
    for delta, where in deltas:
        told = delta.gained or delta.lost or asked
        sides = (_side(old, name, told, where[0]), _side(new, name, told, where[0]))
        yield made(classes, What.ARGUMENT, name, sides, delta, where)


def _passes(guards: Sequence[Guard], name: str, asked: list[Any], capability: str) -> Answer:
    """Which values no guard refuses, and of which that is not known."""
    passing: list[Any] = []
    open_: list[Any] = []
    why: Dynamic | None = None
    for value in asked:
        said = [(_refuses(guard, name, value, capability), guard) for guard in guards]
        if any(refuses for refuses, _ in said):
            continue
        doubts = [guard for refuses, guard in said if refuses is None]
        (open_ if doubts else passing).append(value)
        if doubts and why is None:
            why = Dynamic(doubts[0].at, " and ".join(doubts[0].tests), "is not known from the code")
    return Answer(value=passing, dynamic=why, undecided=tuple(open_))


def _refuses(guard: Guard, name: str, value: Any, capability: str) -> bool | None:
    """Whether a guard certainly refuses a value; ``None``: not known."""
    for refused in guard.refuses:
        if refused.name == name:
            if value not in refused.asked:
                return None
            return takes(answer_on(refused, capability), value)
    return None if name in guard.arguments else False


def _side(cls: ClassReading, name: str, told: Sequence[Any], capability: str) -> Side:
    """The guard that refuses such a value, else one that reads the argument, else the class."""
    reading = [one for one in cls.guards if name in one.arguments]
    refusing = [
        one for one in reading if any(_refuses(one, name, value, capability) for value in told)
    ]
    for guard in (*refusing, *reading):
        return Side(guard.by, guard.at)
    return Side(cls.path, cls.at)


def compare_guards(classes: Classes) -> Iterator[GuardChange]:
    """Yields the guards that came, went, or have other tests."""
    before = [*classes.before.guards]
    after = [*classes.after.guards]
    for keep_tests in (True, False):
        for old in [*before]:
            new = next((one for one in after if _alike(classes, old, one, keep_tests)), None)
            if new is None:
                continue
            before.remove(old)
            after.remove(new)
            if not keep_tests:
                yield _made(classes, Kind.CHANGED, old, new)
    for old in before:
        yield _made(classes, Kind.REMOVED, old, None)
    for new in after:
        yield _made(classes, Kind.ADDED, None, new)


def _alike(classes: Classes, old: Guard, new: Guard, with_tests: bool) -> bool:
    same = classes.is_same(old.by, new.by) and old.exception == new.exception
    return same and old.message == new.message and (not with_tests or old.tests == new.tests)


def _made(classes: Classes, kind: Kind, old: Guard | None, new: Guard | None) -> GuardChange:
    return GuardChange(kind, classes.role, _refusal(old), _refusal(new), (classes.backend,))


def _refusal(guard: Guard | None) -> Refusal | None:
    if guard is None:
        return None
    return Refusal(guard.by, guard.at, guard.exception, guard.message, guard.tests, guard.arguments)
