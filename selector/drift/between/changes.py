"""What changed between two versions of an engine's code: plain frozen data."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from selector.drift.reading import Answer, Assigned
from selector.values import Finding, Position

__all__ = [
    "BackendChange",
    "Change",
    "EngineDifference",
    "GuardChange",
    "Kind",
    "Refusal",
    "Side",
    "Version",
    "What",
]


class Kind(StrEnum):
    """In which way something changed. What is said of values holds for what is accepted."""

    ADDED = "added"
    REMOVED = "removed"
    RENAMED = "renamed"
    WIDENED = "widened"
    NARROWED = "narrowed"
    CHANGED = "changed"
    STATED = "stated"  # the same value: a backend's own class says it now, and did not
    UNSTATED = "unstated"  # the same value: a backend's own class said it, and inherits it now
    MOVED = "moved"  # the same value, from another ancestor; or a class in another module
    OPENED = "opened"  # was known, and is not
    SETTLED = "settled"  # was not known, and is
    UNCOMPARED = "uncompared"  # known in neither

    @property
    def opposite(self) -> Kind:
        """What it is in the other direction."""
        return _OPPOSITES.get(self, self)


_PAIRS = (
    (Kind.ADDED, Kind.REMOVED),
    (Kind.WIDENED, Kind.NARROWED),
    (Kind.STATED, Kind.UNSTATED),
    (Kind.OPENED, Kind.SETTLED),
)
_OPPOSITES = dict(_PAIRS) | {after: before for before, after in _PAIRS}


class What(StrEnum):
    """What is said otherwise."""

    CLAIM = "claim"
    METHOD = "method"
    ARGUMENT = "argument"  # of constructors: which of its values they do not refuse
    OPERATOR = "operator"  # what a function, or the class that plans one, declares


class Side(msgspec.Struct, frozen=True):
    """What one version says.

    Attributes:
        defined_in: the class that says it, dotted; empty: not known.
        at: where.
        answer: what it says; ``None`` where it depends on the architecture, or where the values
            that were gained and lost say it. Of a method, which exception it only raises.
        assigned: where constructors set it on the object, so that this is not the last word.
        missing: what a method reads of its object that no class of the hierarchy sets.
    """

    defined_in: str
    at: Position
    answer: Answer | None = None
    assigned: tuple[Assigned, ...] = ()
    missing: tuple[str, ...] = ()


class Change(msgspec.Struct, frozen=True):
    """One change, told once for all backends that it reaches.

    Attributes:
        kind: in which way.
        what: a claim, a method that does the work, an argument of constructors, or what an
            operator declares.
        role: the class of the backend that is asked: ``backend``, ``impl``, ``builder``; or
            ``operator``.
        name: of the attribute, method, argument or declaration.
        before, after: both versions; ``None``: no class of that version says anything.
        capabilities: the architectures on which it changes so.
        gained, lost: values that are accepted now, or no longer, of those both were asked with.
        by: the list that the method looks into, in both versions, where that changed.
        backends: those that it reaches, in the registry's order; or the operators.
        own_before, own_after: those of them whose own class says it; the others inherit it.
        overridden_by: backends that have the same class among their ancestors and say it
            otherwise, so that they are not reached.
    """

    kind: Kind
    what: What
    role: str
    name: str
    before: Side | None
    after: Side | None
    capabilities: tuple[str, ...]
    gained: tuple[Any, ...] = ()
    lost: tuple[Any, ...] = ()
    by: tuple[Side, Side] | None = None
    backends: tuple[str, ...] = ()
    own_before: tuple[str, ...] = ()
    own_after: tuple[str, ...] = ()
    overridden_by: tuple[str, ...] = ()


class Refusal(msgspec.Struct, frozen=True):
    """A guard of a constructor.

    Attributes:
        by: the class whose constructor refuses, dotted.
        at: where.
        exception: the class that is raised.
        message: the constant parts of its text.
        tests: the conditions around it, as written; all must hold.
        arguments: the constructor's arguments that the tests read.
    """

    by: str
    at: Position
    exception: str
    message: str
    tests: tuple[str, ...]
    arguments: tuple[str, ...]


class GuardChange(msgspec.Struct, frozen=True):
    """A constructor refuses something anew, no longer, or under other tests.

    Attributes:
        kind: ``added``, ``removed``, or ``changed``: other tests around the same text.
        role: the class that is made: ``impl`` or ``builder``.
        before, after: the refusal; which values it refuses, changes of arguments say.
        backends: those whose objects are made by it.
    """

    kind: Kind
    role: str
    before: Refusal | None
    after: Refusal | None
    backends: tuple[str, ...]


class BackendChange(msgspec.Struct, frozen=True):
    """A backend, or one of its classes, is another one or cannot be read.

    Attributes:
        kind: ``added``, ``removed``, ``renamed``, ``changed`` (another class), ``moved`` (the class
            is in another module), ``opened``, ``settled``, ``uncompared``.
        name: of the backend, the new one where it has two.
        role: ``registry``: the backend itself; else which of its classes; or ``operator``.
        before, after: the class, or why it is not known; of ``renamed``, the names.
        before_at, after_at: where; ``None`` where it is not there.
    """

    kind: Kind
    name: str
    role: str
    before: str
    after: str
    before_at: Position | None
    after_at: Position | None


class Version(msgspec.Struct, frozen=True):
    """A source that was read.

    Attributes:
        engine: the reader's name.
        version: as the source states it; empty: it does not.
        source: as it was given.
        backends: how many it has.
        operators: how many declare their own capabilities.
        findings: what could not be read.
    """

    engine: str
    version: str
    source: str
    backends: int
    operators: int
    findings: tuple[Finding, ...]


class EngineDifference(msgspec.Struct, frozen=True):
    """What two versions of an engine say differently.

    Attributes:
        old, new: the versions.
        capabilities: the architectures that both were asked about.
        shared: the backends that are in both.
        shared_operators: the operators that are in both.
        backends: those that came, went or have other classes, and operators that came or went.
        changes: of claims, methods, arguments and declarations; those that reach the most
            backends first.
        guards: refusals of constructors that came, went or have other tests.
        same: how many claims, methods, arguments and declarations say the same.
        uncompared: those that are known in neither version, so that nothing is said of them.
        unread: classes that could be read in neither.
    """

    old: Version
    new: Version
    capabilities: tuple[str, ...]
    shared: tuple[str, ...]
    shared_operators: tuple[str, ...]
    backends: tuple[BackendChange, ...]
    changes: tuple[Change, ...]
    guards: tuple[GuardChange, ...]
    same: int
    uncompared: tuple[Change, ...]
    unread: tuple[BackendChange, ...]

    @property
    def is_different(self) -> bool:
        """Whether anything changed, as far as it could be compared."""
        return bool(self.backends or self.changes or self.guards)

    @property
    def is_readable(self) -> bool:
        """Whether both have backends or operators: else nothing was compared."""
        return all(one.backends or one.operators for one in (self.old, self.new))
