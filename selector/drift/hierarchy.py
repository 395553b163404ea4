"""The order in which a class and its ancestors are asked for a member, and what they answer."""

from __future__ import annotations

import ast
from abc import ABCMeta
from collections.abc import Sequence
from typing import Any

import msgspec

from selector.drift.env import UNBOUND
from selector.drift.terms import ClassTerm, External, Place, RaisedError, Unknown
from selector.drift.world import Frame, GaveUpError, World
from selector.values import Finding, Severity

__all__ = [
    "Member",
    "ancestors",
    "find_member",
    "is_enum",
    "is_named_tuple",
    "is_quiet",
    "lacks",
    "members_of",
    "order",
    "own_member",
]

Ancestor = ClassTerm | External | Unknown

ANCESTORS = 200
"""A class with more ancestors is not read."""
GENERATIONS = 80
"""A class with more ancestors in one line is not read."""

_QUIET = frozenset({
    "abc.ABC",
    "builtins.Exception",
    "builtins.int",
    "builtins.object",
    "builtins.str",
    "enum.Enum",
    "enum.Flag",
    "enum.IntEnum",
    "enum.IntFlag",
    "enum.StrEnum",
    "typing.Generic",
    "typing.NamedTuple",
    "typing.Protocol",
    "typing_extensions.Protocol",
})  # fmt: skip
"""Classes of the standard library that define no capability."""
_ENUMS = frozenset({"enum.Enum", "enum.Flag", "enum.IntEnum", "enum.IntFlag", "enum.StrEnum"})
_META_QUIET = frozenset({"abc.ABCMeta", "builtins.type", "enum.EnumMeta", "enum.EnumType"})
_META_LOUD = frozenset({
    "__new__", "__init__", "__call__", "__prepare__", "__getattribute__", "__getattr__",
    "__setattr__", "mro",
})  # fmt: skip


class Member(msgspec.Struct, frozen=True):
    """A member as the order of classes gives it.

    Attributes:
        value: a value, a function, or an unknown.
        owner: the class that defines it; ``None``: where it comes from is not known.
        place: where.
    """

    value: Any
    owner: ClassTerm | None
    place: Place


def order(world: World, cls: ClassTerm) -> Sequence[Ancestor] | None:
    """A class and its ancestors, as Python orders them; ``None``: there is no order."""
    if cls.linear is not None:
        return cls.linear or None

    def compute() -> Sequence[Ancestor] | None:
        world.generations += 1
        try:
            if world.generations <= GENERATIONS:
                return _linearize(world, cls)
        finally:
            world.generations -= 1
        _report(world, cls, f"{cls.name} is behind more than {GENERATIONS} generations of classes")
        return None

    def cyclic() -> None:
        _report(world, cls, f"{cls.name} is its own ancestor; what it inherits is not known")

    found = world.remember(("order", id(cls)), lambda: compute() or (), cyclic)
    cls.linear = found or ()
    return found or None


def ancestors(world: World, cls: ClassTerm) -> Sequence[Ancestor]:
    """The direct bases of a class."""
    if cls.bases is None:
        frame = Frame(cls.module, cls.then)
        cls.bases = tuple(_read_bases(world, cls, frame))
    return cls.bases


def _read_bases(world: World, cls: ClassTerm, frame: Frame) -> list[Ancestor]:
    nodes = cls.node.bases
    found: list[Ancestor] = []
    for number, node in enumerate(nodes):
        if isinstance(node, ast.Starred):
            found.append(frame.unknown(node, "is not read as a base"))
            continue
        inner = node.value if isinstance(node, ast.Subscript) else node
        try:
            value = world.evaluate(inner, frame)
        except GaveUpError as error:
            value = error.unknown
        except RaisedError as error:
            value = Unknown(error.place, inner, f"raises {error.name}")
        later = any(isinstance(one, ast.Subscript) for one in nodes[number + 1 :])
        if isinstance(value, External) and value.path == "typing.Generic" and later:
            continue  # a later base brings it
        if not isinstance(value, (ClassTerm, External, Unknown)):
            value = frame.unknown(node, "is no class")
        made = isinstance(value, ClassTerm) and "__class_getitem__" in value.scope.names
        if made and inner is not node:
            value = frame.unknown(node, "is made by the class's __class_getitem__")
        found.append(value)
    if any(type(part).__name__ == "TypeVar" for part in getattr(cls.node, "type_params", ())):
        found.append(External("typing.Generic", cls.place))
    return found


def _linearize(world: World, cls: ClassTerm) -> Sequence[Ancestor] | None:
    rows: list[list[Ancestor]] = []
    bases = list(ancestors(world, cls))
    for base in bases:
        if isinstance(base, ClassTerm):
            row = order(world, base)
            if row is None:
                return None
            rows.append(list(row))
        elif isinstance(base, External) and base.path.endswith(".Protocol"):
            rows.append([base, External("typing.Generic", base.place)])
        else:
            rows.append([base])
    rows.append(bases)
    merged = _merge(rows)
    if merged is None or len(merged) > ANCESTORS:
        _report(world, cls, f"the bases of {cls.name} have no order that keeps each one's own")
        return None
    return (cls, *merged)


def _key(ancestor: Ancestor) -> Any:
    return ancestor.path if isinstance(ancestor, External) else id(ancestor)


def _merge(rows: list[list[Ancestor]]) -> list[Ancestor] | None:
    """C3, as in https://docs.python.org/3/howto/mro.html."""
    merged: list[Ancestor] = []
    rows = [row for row in rows if row]
    while rows:
        for row in rows:
            head = _key(row[0])
            if not any(head == _key(later) for other in rows for later in other[1:]):
                break
        else:
            return None
        merged.append(row[0])
        rows = [[one for one in other if _key(one) != head] for other in rows]
        rows = [other for other in rows if other]
    return merged


def _report(world: World, cls: ClassTerm, message: str) -> None:
    place = cls.place
    finding = Finding(place.path, place.line, place.column, "DRF106", Severity.ERROR, message)
    if finding not in world.modules.findings:
        world.modules.findings.append(finding)


def find_member(
    world: World, cls: ClassTerm, name: str, after: ClassTerm | None = None
) -> Member | None:
    """The member that a class has under a name, and the class that defines it.

    Args:
        world: where it is asked.
        cls: the class that is asked.
        name: of the member.
        after: begin behind this class, as ``super()`` does.

    Returns:
        ``None`` where no class defines it.
    """
    linear = order(world, cls)
    if linear is None:
        return _unknown_member(cls.place, cls.name, "its ancestors have no order")
    if (problem := _disturbed(world, cls, linear, name)) is not None:
        classes = [one for one in linear if isinstance(one, ClassTerm)]
        owner = next((one for one in classes if name in one.scope.names), None)
        return Member(problem, owner, problem.place)
    started = after is None
    for ancestor in linear:
        if not started:
            started = ancestor is after
            continue
        if isinstance(ancestor, Unknown):
            return Member(ancestor, None, ancestor.place)
        if isinstance(ancestor, External):
            if not is_quiet(ancestor):
                why = f"may be defined by {ancestor.path}, which is not in the source"
                return _unknown_member(ancestor.place, name, why)
            continue
        found = own_member(world, ancestor, name)
        if found is not None:
            return found
    return None


def _unknown_member(place: Place, text: str, why: str) -> Member:
    return Member(Unknown(place, text, why), None, place)


def own_member(world: World, cls: ClassTerm, name: str) -> Member | None:
    """What a class's own body binds a name to."""
    if name in cls.overrides:
        return Member(cls.overrides[name], cls, cls.place)
    if cls.scope.tricks:
        why = "the class body binds names in a way that is not read"
        return Member(Unknown(cls.place, cls.name, why), cls, cls.place)
    bindings = cls.scope.names.get(name)
    if not bindings:
        return None
    place = Place.of(cls.module, bindings[-1].node)
    frame = Frame(cls.module, cls.then, cls)

    def read() -> Any:
        try:
            return world.bound(cls.scope, name, frame, cls)
        except GaveUpError as error:
            return error.unknown
        except RaisedError as error:
            return Unknown(error.place, name, f"raises {error.name} when the class is made")

    def cyclic() -> Any:
        return Unknown(place, name, "is defined by itself")

    value = world.remember(("member", id(cls), name), read, cyclic)
    return None if value is UNBOUND else Member(value, cls, place)


def _disturbed(
    world: World, cls: ClassTerm, linear: Sequence[Ancestor], name: str
) -> Unknown | None:
    """Why a member cannot be read from the class bodies alone, if so."""
    for ancestor in linear:
        if not isinstance(ancestor, ClassTerm):
            continue
        stores = ancestor.module.class_stores
        if (line := stores.get(name, stores.get("*"))) is not None:
            place = Place(ancestor.module.path, line, 1)
            return Unknown(place, name, "is set or changed after the class was defined")
        if ancestor is not cls and "__init_subclass__" in ancestor.scope.names:
            return Unknown(ancestor.place, name, f"may be set by {ancestor.name}.__init_subclass__")
        if (why := _metaclass_problem(world, ancestor, name)) is not None:
            return Unknown(ancestor.place, name, why)
    return None


def _metaclass_problem(world: World, cls: ClassTerm, name: str) -> str | None:
    for keyword in cls.node.keywords:
        if keyword.arg == "metaclass":
            try:
                value = world.evaluate(keyword.value, Frame(cls.module, cls.then))
            except (GaveUpError, RaisedError):
                value = None
            if not _is_quiet_metaclass(world, value, name, 0):
                return f"the metaclass of {cls.name} may change what it has"
        elif keyword.arg is None:
            return f"the keywords of {cls.name} are not read"
    return None


def _is_quiet_metaclass(world: World, value: Any, name: str, depth: int) -> bool:
    if isinstance(value, External):
        return value.path in _META_QUIET
    if not isinstance(value, ClassTerm) or depth > 10:
        return False
    if value.scope.tricks or (_META_LOUD | {name}) & value.scope.names.keys():
        return False
    bases = ancestors(world, value)
    return all(_is_quiet_metaclass(world, base, name, depth + 1) for base in bases)


_BARE = frozenset({"abc.ABC", "builtins.object", "typing.Generic", "typing.Protocol"})
_OF_EVERY_CLASS = frozenset(dir(ABCMeta))


def lacks(world: World, cls: ClassTerm, name: str, after: ClassTerm | None = None) -> bool:
    """Whether a class certainly has no member of a name, so that asking for it raises."""
    if name in _OF_EVERY_CLASS or find_member(world, cls, name, after) is not None:
        return False
    return all(
        not any(keyword.arg in ("metaclass", None) for keyword in one.node.keywords)
        if isinstance(one, ClassTerm)
        else isinstance(one, External) and one.path in _BARE
        for one in order(world, cls) or ()
    )


def is_enum(world: World, cls: ClassTerm) -> bool:
    """Whether a class is an enumeration."""
    linear = order(world, cls) or ()
    return any(isinstance(one, External) and one.path in _ENUMS for one in linear)


def is_quiet(ancestor: Any) -> bool:
    """Whether an ancestor outside the source is known to define no capability."""
    return isinstance(ancestor, External) and ancestor.path in _QUIET


def is_named_tuple(world: World, cls: ClassTerm) -> bool:
    """Whether a class is a named tuple."""
    return any(
        isinstance(one, External) and one.path == "typing.NamedTuple"
        for one in order(world, cls) or ()
    )


def members_of(world: World, cls: ClassTerm) -> dict[str, ClassTerm]:
    """The names that a class and its ancestors in the source bind, with the first that does."""
    names: dict[str, ClassTerm] = {}
    for ancestor in order(world, cls) or (cls,):
        if isinstance(ancestor, ClassTerm):
            for name in (*ancestor.scope.names, *ancestor.overrides):
                names.setdefault(name, ancestor)
    return names
