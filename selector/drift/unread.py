"""Arguments that a constructor takes and that no code of its classes reads."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from selector.drift.constructors import constructors_of
from selector.drift.evaluating import Worlds, ancestry, position
from selector.drift.reading import Need
from selector.drift.terms import ClassTerm, Place

__all__ = ["read_unread"]


def read_unread(worlds: Worlds, cls: ClassTerm, names: Sequence[str]) -> tuple[Need, ...]:
    """The arguments of these names that are taken and dropped, or kept and never read again.

    A name that the modules of the class and its ancestors read of any object counts as read, and
    so does an argument that is handed on.
    """
    world = worlds.first
    modules = {
        id(one.module): one.module.tree
        for one in ancestry(world, cls)
        if isinstance(one, ClassTerm)
    }
    found = []
    for name in names:
        for body in constructors_of(world, cls):
            takes = (*body.function.args.args, *body.function.args.kwonlyargs)
            if (argument := next((one for one in takes if one.arg == name), None)) is None:
                continue
            kept, read = _uses(body.function, name)
            if not read and not any(_reads(tree, kept) for tree in modules.values()):
                found.append(Need(name, position(Place.of(body.module, argument))))
            break
    return tuple(found)


def _uses(function: ast.AST, name: str) -> tuple[set[str], bool]:
    """The attributes that hold an argument, and whether the constructor does more with it."""
    kept: set[str] = set()
    plain = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or not _is_name(node.value, name):
            continue
        targets = [one.attr for one in node.targets if isinstance(one, ast.Attribute)]
        if len(targets) == len(node.targets):
            kept.update(targets)
            plain.add(id(node.value))
    return kept, any(_is_name(node, name) and id(node) not in plain for node in ast.walk(function))


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)


def _reads(tree: ast.AST, names: set[str]) -> bool:
    """Whether a module reads one of these attributes, of whatever object, or names it in a text."""
    return bool(names) and any(True for _ in _read(tree, names))


def _read(tree: ast.AST, names: set[str]) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Load()) if name in names:
                yield node
            case ast.Constant(value=str(name)) if name in names:
                yield node
