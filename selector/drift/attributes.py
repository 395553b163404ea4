"""What a dot gives: members of classes, modules, enumerations, objects, and of texts and lists."""

from __future__ import annotations

import ast
from typing import Any

from selector.drift.hierarchy import Member, find_member, is_enum, lacks, own_member
from selector.drift.terms import (
    AutoTerm,
    BoundMethod,
    ClassTerm,
    EnumMember,
    External,
    FunctionTerm,
    Given,
    Instance,
    ModuleTerm,
    Place,
    PropertyTerm,
    SuperTerm,
    Unknown,
    defines,
    same,
)
from selector.drift.world import Frame, World

__all__ = ["PlainMethod", "attribute", "class_attribute", "enum_member"]

MISSING = "has no such member that can be read"


class PlainMethod:
    """A method of a text, list, dict or set, with what it is called on."""

    __slots__ = ("name", "receiver")

    def __init__(self, receiver: Any, name: str) -> None:
        self.receiver, self.name = receiver, name


def attribute(world: World, base: Any, name: str, node: ast.AST, frame: Frame) -> Any:
    """``base.name``."""
    if isinstance(base, Given) and name in base.fields:
        return base.fields[name]
    if isinstance(base, Unknown):
        return base.blank()
    if isinstance(base, ClassTerm):
        return class_attribute(world, base, name, node, frame)
    if isinstance(base, SuperTerm):
        return _super_attribute(world, base, name, node, frame)
    if isinstance(base, Instance):
        return _instance_attribute(world, base, name, node, frame)
    if isinstance(base, ModuleTerm):
        return _module_attribute(world, base, name, node, frame)
    if isinstance(base, External):
        path = f"{base.path}.{name}"
        given = world.supposed.get(path)
        return given(world) if given else External(path, Place.of(frame.module, node))
    if isinstance(base, EnumMember):
        return _member_attribute(world, base, name, node, frame)
    if isinstance(base, (str, list, tuple, dict, set, frozenset)):
        return PlainMethod(base, name)
    if isinstance(base, FunctionTerm) and name == "__name__":
        return base.name
    return frame.unknown(node, MISSING)


def class_attribute(world: World, cls: ClassTerm, name: str, node: ast.AST, frame: Frame) -> Any:
    """A member of a class, bound to it as Python binds it."""
    if name in ("__qualname__", "__module__", "__name__") and name in cls.scope.names:
        return frame.unknown(node, "is what the class itself says")
    if name in ("__name__", "__qualname__"):
        text = cls.overrides.get(name, cls.name)
        return text.rpartition(".")[2] if name == "__name__" and isinstance(text, str) else text
    if name == "__module__":
        return cls.overrides.get(name, cls.module_name)
    if is_enum(world, cls) and (found := enum_member(world, cls, name)) is not None:
        return found
    member = find_member(world, cls, name)
    if member is None:
        return _missing(world, cls, name, node, frame)
    return _bind(member, cls, node, frame, on_class=True)


def _missing(
    world: World,
    cls: ClassTerm,
    name: str,
    node: ast.AST,
    frame: Frame,
    after: ClassTerm | None = None,
) -> Unknown:
    """What asking for a member gives that no class of the source has."""
    if lacks(world, cls, name, after):
        raise frame.fails(node, AttributeError(name))
    return frame.unknown(node, f"{cls.name} {MISSING}")


def _bind(member: Member, receiver: Any, node: ast.AST, frame: Frame, *, on_class: bool) -> Any:
    value = member.value
    if not isinstance(value, FunctionTerm):
        return value
    if value.kind == "unknown":
        return Unknown(value.place, value.name, "has a decorator that is not read")
    if value.kind == "class":
        return BoundMethod(value, receiver)
    if value.kind == "static" or on_class:
        return PropertyTerm(value) if value.kind == "property" else value
    return BoundMethod(value, receiver)


def _super_attribute(world: World, base: SuperTerm, name: str, node: ast.AST, frame: Frame) -> Any:
    receiver = base.receiver
    cls = receiver.cls if isinstance(receiver, Instance) else receiver
    if not isinstance(cls, ClassTerm):
        return frame.unknown(node, "is asked of what cannot be read")
    member = find_member(world, cls, name, after=base.after)
    if member is None:
        return _missing(world, cls, name, node, frame, base.after)
    on_class = isinstance(receiver, ClassTerm)
    bound = _bind(member, receiver, node, frame, on_class=on_class)
    if isinstance(member.value, FunctionTerm) and member.value.kind == "property":
        return frame.unknown(node, "is a property")
    return bound


def _instance_attribute(
    world: World, base: Instance, name: str, node: ast.AST, frame: Frame
) -> Any:
    if name in base.fields:
        return base.fields[name]
    if name in base.supposed:
        return PlainMethod(base, name)
    if name == "__class__":
        return base.cls
    member = find_member(world, base.cls, name)
    if member is None:
        return frame.unknown(node, MISSING)  # a constructor may have set it
    if isinstance(member.value, FunctionTerm) and member.value.kind == "property":
        return world.call(BoundMethod(member.value, base), [], {}, (frame, node))
    return _bind(member, base, node, frame, on_class=False)


def _module_attribute(
    world: World, base: ModuleTerm, name: str, node: ast.AST, frame: Frame
) -> Any:
    place = Place.of(frame.module, node)
    path = f"{base.name}.{name}"
    if path in world.supposed:
        return world.supposed[path](world)
    if name in frame.module.class_stores:
        return frame.unknown(node, "is set or changed after it was defined")
    module = world.modules.get(base.name)
    if module is not None:
        value = world.global_name(module, name, place)
        if isinstance(value, External) and value.path == f"builtins.{name}":
            return frame.unknown(node, MISSING)
        return value
    if world.modules.has(path):
        return ModuleTerm(path)
    return External(path, place)


def _member_attribute(
    world: World, base: EnumMember, name: str, node: ast.AST, frame: Frame
) -> Any:
    if name in ("name", "_name_"):
        return frame.unknown(node, "is the name of another") if is_alias(world, base) else base.name
    if name in ("value", "_value_"):
        made = defines(base.cls, "__new__", "__init__", "_value_")
        return frame.unknown(node, "is made by the enumeration") if made else base.value
    member = find_member(world, base.cls, name)
    if member is not None and isinstance(member.value, FunctionTerm):
        if member.value.kind == "property":
            return world.call(BoundMethod(member.value, base), [], {}, (frame, node))
        return _bind(member, base, node, frame, on_class=False)
    if base.text and isinstance(base.value, str):
        return PlainMethod(base.value, name)
    return frame.unknown(node, MISSING)


def enum_member(world: World, cls: ClassTerm, name: str) -> Any:
    """A member of an enumeration by its name; ``None`` where the name is none."""
    if name.startswith("_") or name not in cls.scope.names:
        return None
    member = own_member(world, cls, name)  # an enumeration lets nobody set its members again
    if member is None or isinstance(member.value, (FunctionTerm, ClassTerm)):
        return None
    value = member.value
    if isinstance(cls.scope.names[name][-1].node, (ast.FunctionDef, ast.ClassDef)):
        return None
    if isinstance(value, External):
        value = Unknown(value.place, value.path, "is a value of another package")
    kind = _kind(cls)
    if kind is not None and type(value) is not kind and not isinstance(value, Unknown):
        value = Unknown(member.place, f"{cls.name}.{name}", f"is made a {kind.__name__}")
    if "_ignore_" in cls.scope.names:
        return Unknown(member.place, f"{cls.name}.{name}", "may be ignored")
    return EnumMember(cls, name, value, kind is str)


def is_alias(world: World, member: EnumMember) -> bool:
    """Whether a member may be another name of one that stands before it."""
    for name in member.cls.scope.names:
        if name == member.name:
            return False
        other = enum_member(world, member.cls, name)
        if isinstance(other, EnumMember):
            numbered = isinstance(other.value, AutoTerm) != isinstance(member.value, AutoTerm)
            if numbered or same(other.value, member.value) is True:
                return True
    return False


def _kind(cls: ClassTerm) -> type | None:
    """What members are besides: texts of ``class X(str, Enum)`` or ``StrEnum``, or numbers."""
    paths = {one.path for one in cls.linear or () if isinstance(one, External)}
    if paths & {"builtins.str", "enum.StrEnum"}:
        return str
    return int if paths & {"builtins.int", "enum.IntEnum", "enum.IntFlag"} else None
