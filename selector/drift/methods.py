"""The methods that do the work: which class has them, whether they only raise, what they need."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from selector.drift.evaluating import Worlds, ancestry, ask, label, position
from selector.drift.hierarchy import Member, find_member, is_quiet
from selector.drift.modules import Modules
from selector.drift.reading import Method, Need
from selector.drift.terms import ClassTerm, FunctionTerm, Place
from selector.drift.world import Frame

__all__ = ["read_methods"]

Function = ast.FunctionDef | ast.AsyncFunctionDef


def read_methods(worlds: Worlds, cls: ClassTerm, names: Sequence[str]) -> dict[str, Method]:
    """The methods of these names that a class has."""
    world = worlds.first
    chain = [*ancestry(world, cls)] or [cls]
    found: dict[str, Method] = {}
    for name in names:

        def question(frame: Frame, name: str = name) -> Any:
            return find_member(world, cls, name)

        member = ask(world, question)
        if isinstance(member, Member) and isinstance(member.value, FunctionTerm):
            found[name] = _read(worlds.first.modules, name, member, chain)
    return found


def _read(modules: Modules, name: str, member: Member, chain: list[Any]) -> Method:
    function, owner = member.value, member.owner
    node = function.node
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    abstract = any("abstractmethod" in ast.dump(one) for one in node.decorator_list)
    missing = tuple(_missing(modules, node, owner, chain)) if owner is not None else ()
    place = position(member.place)
    owned = label(owner) if owner is not None else ""
    return Method(name, owned, place, abstract, _raises(node), missing)


def _raises(node: Function) -> str:
    """The exception that a method raises and does nothing else."""
    body = [
        statement
        for statement in node.body
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
    if len(body) != 1 or not isinstance(body[0], ast.Raise) or body[0].exc is None:
        return ""
    raised = body[0].exc
    return ast.unparse(raised.func if isinstance(raised, ast.Call) else raised)[:100]


def _missing(
    modules: Modules, node: Function, owner: ClassTerm, chain: list[Any]
) -> Iterator[Need]:
    """Attributes that a method reads of its object, and that no class of the hierarchy sets."""
    if not all(isinstance(one, ClassTerm) or is_quiet(one) for one in chain):
        return
    classes = [one for one in chain if isinstance(one, ClassTerm)]
    known: set[str] = set(dir(object))
    for one in classes:
        names, all_seen = modules.look("sets", one.node, partial(_sets, one))
        if not all_seen:
            return
        known |= names | one.overrides.keys()
    receiver = node.args.args[0].arg if node.args.args else ""
    told: set[str] = set()
    for part in ast.walk(node):
        match part:
            case ast.Attribute(value=ast.Name(id=base), attr=name, ctx=ast.Load()):
                if base == receiver and name not in known | told:
                    told.add(name)
                    yield Need(name, position(Place.of(owner.module, part)))


def _sets(cls: ClassTerm) -> tuple[set[str], bool]:
    """The attributes that a class body or its methods set; whether all of them are seen."""
    names = set(cls.scope.names)
    if cls.scope.tricks or "__getattr__" in names or "__getattribute__" in names:
        return names, False
    for node in ast.walk(cls.node):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.Call(func=ast.Name(id="setattr"), args=[_, ast.Constant(value=str(name)), _]):
                names.add(name)
            case ast.Call(func=ast.Name(id="setattr")) | ast.Attribute(attr="__dict__"):
                return names, False
    return names, True
