"""The object that calling a class gives: an enumeration's, a named tuple's, a dataclass's."""

from __future__ import annotations

import ast
from typing import Any

from selector.drift.attributes import enum_member
from selector.drift.hierarchy import find_member, is_enum, is_named_tuple, order
from selector.drift.terms import ClassTerm, EnumMember, Instance, defines, same
from selector.drift.world import Frame, World

__all__ = ["make_object"]

At = tuple[Frame, ast.AST]


def make_object(
    world: World, cls: ClassTerm, given: list[Any], named: dict[str, Any], at: At
) -> Any:
    """An object: of an enumeration by value, of a named tuple or dataclass by its fields."""
    frame, node = at
    if is_enum(world, cls):
        return _member_of_value(world, cls, given, named, at)
    is_tuple = is_named_tuple(world, cls)
    if not is_tuple and (not _is_dataclass(cls) or _is_made_otherwise(cls)):
        return frame.unknown(node, f"makes a {cls.name}, which is not read")
    for name in ("__new__", "__init__", "__post_init__"):
        if find_member(world, cls, name) is not None:
            return frame.unknown(node, f"makes a {cls.name}, whose {name} is not read")
    if given and _takes_names_only(cls):
        return frame.unknown(node, f"gives {cls.name} what it does not take")
    fields = _fields(world, cls, is_tuple)
    if fields is None or len(given) > len(fields) or not named.keys() <= fields.keys():
        return frame.unknown(node, f"makes a {cls.name} from what cannot be read")
    values = dict(zip(fields, given, strict=False))
    if values.keys() & named.keys():
        return frame.unknown(node, f"gives a field of {cls.name} twice")
    values |= named
    for name, default in fields.items():
        if name not in values:
            if default is _REQUIRED:
                return frame.unknown(node, f"leaves out the field {name} of {cls.name}")
            values[name] = world.evaluate(default, Frame(cls.module, cls.then, cls))
    return Instance(cls, {name: values[name] for name in fields}, is_tuple)


_REQUIRED = object()


def _is_dataclass(cls: ClassTerm) -> bool:
    for decorator in cls.node.decorator_list:
        inner = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")
        if name == "dataclass":
            return True
    return False


def _is_made_otherwise(cls: ClassTerm) -> bool:
    """Whether a dataclass says that its constructor is not the usual one."""
    usual = {"frozen", "slots", "order", "repr", "eq", "unsafe_hash", "kw_only"}
    return not _said_of_dataclass(cls) <= usual


def _takes_names_only(cls: ClassTerm) -> bool:
    return "kw_only" in _said_of_dataclass(cls)


def _said_of_dataclass(cls: ClassTerm) -> set[str | None]:
    """The keywords of the decorators of a class."""
    calls = (one for one in cls.node.decorator_list if isinstance(one, ast.Call))
    return {keyword.arg for call in calls for keyword in call.keywords}


def _fields(world: World, cls: ClassTerm, is_tuple: bool) -> dict[str, Any] | None:
    """The fields of a dataclass or named tuple, in order, with their defaults."""
    fields: dict[str, Any] = {}
    chain = [one for one in order(world, cls) or () if isinstance(one, ClassTerm)]
    if is_tuple and len(chain) > 1:
        return None
    for one in reversed(chain):
        if one is not cls and not is_tuple and not _is_dataclass(one):
            continue
        for statement in one.node.body:
            if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
                annotation = ast.dump(statement.annotation)
                if "ClassVar" in annotation:
                    continue
                if "InitVar" in annotation or "KW_ONLY" in annotation:
                    return None
                if len(one.scope.names.get(statement.target.id, ())) > 1:
                    return None
                value = statement.value
                if isinstance(value, ast.Call):
                    return None  # field(default_factory=…)
                fields[statement.target.id] = _REQUIRED if value is None else value
            elif isinstance(statement, (ast.If, ast.Try, ast.For, ast.While, ast.With)):
                return None
    return fields


def _member_of_value(
    world: World, cls: ClassTerm, given: list[Any], named: dict[str, Any], at: At
) -> Any:
    frame, node = at
    if len(given) == 1 and not named and not defines(cls, "_missing_"):
        if isinstance(given[0], EnumMember):
            return given[0] if given[0].cls.path == cls.path else frame.unknown(node, "is none")
        for name in cls.scope.names:
            member = enum_member(world, cls, name)
            if isinstance(member, EnumMember) and same(member.value, given[0]) is True:
                return member
    return frame.unknown(node, f"asks {cls.name} for what cannot be read")
