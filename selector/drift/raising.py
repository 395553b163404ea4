"""Whether a function certainly raises on a machine, whatever else it is given.

Tests that are known are followed; what is not known may hold or not. A function that is called as a
statement of its own is looked into. What may return, or catch, or is not read, ends the certainty.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from selector.drift.env import Env
from selector.drift.evaluating import ask
from selector.drift.statements import follow
from selector.drift.terms import (
    BoundMethod,
    ClassTerm,
    EnumMember,
    External,
    FunctionTerm,
    Place,
    RaisedError,
    Unknown,
    truth,
)
from selector.drift.world import Frame, GaveUpError, World

__all__ = ["find_raise"]

CALLS = 8
"""Functions are looked into so deep."""

Outcome = Place | bool
"""Where it certainly raises; true: it goes on; false: it may end in another way."""


def find_raise(world: World, function: FunctionTerm | BoundMethod) -> Place | None:
    """Where a function certainly raises, its arguments being unknown; ``None``: it may not."""
    found = ask(world, lambda frame: _enter(world, function, {}, CALLS))
    return found if isinstance(found, Place) else None


def _enter(
    world: World, function: FunctionTerm | BoundMethod, given: dict[str, object], left: int
) -> Outcome:
    inner = function.function if isinstance(function, BoundMethod) else function
    node = inner.node
    if isinstance(node, ast.Lambda) or world.modules.look("waits", node, lambda: _waits(node)):
        return True
    names: dict[str, object] = {
        one: given.get(one, Unknown(inner.place, one, "is whatever the caller gives"))
        for one in _parameters(inner)
    }
    receiver = None
    if isinstance(function, BoundMethod) and names:
        receiver = names[next(iter(names))] = function.receiver
    env = Env(names, inner.outer)
    frame = Frame(inner.module, env, None, inner.owner, receiver)
    return _walk(world, node.body, frame, left)


def _waits(node: ast.AST) -> bool:
    """Whether a call does not run the body at once, or the body changes other names."""
    kinds = (ast.AsyncFunctionDef, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)
    return any(isinstance(one, kinds) for one in ast.walk(node))


def _parameters(function: FunctionTerm) -> list[str]:
    takes = function.node.args
    rest = (takes.vararg, takes.kwarg)
    named = [*takes.posonlyargs, *takes.args, *takes.kwonlyargs, *(one for one in rest if one)]
    return [one.arg for one in named]


def _walk(world: World, body: list[ast.stmt], frame: Frame, left: int) -> Outcome:
    for statement in body:
        handler = _HANDLERS.get(type(statement), _skip)
        found = handler(world, statement, frame, left)
        if found is not True:
            return found
    return True


def _raise(world: World, node: ast.Raise, frame: Frame, left: int) -> Outcome:
    return Place.of(frame.module, node)


def _return(world: World, node: ast.Return, frame: Frame, left: int) -> Outcome:
    found = _look_into(world, node.value, frame, left)
    return found if isinstance(found, Place) else False


def _if(world: World, node: ast.If, frame: Frame, left: int) -> Outcome:
    try:
        known = truth(world.evaluate(node.test, frame))
    except GaveUpError:
        known = None
    except RaisedError as error:
        return error.place
    if known is not None:
        return _walk(world, node.body if known else node.orelse, frame, left)
    before = frame.env
    assert before is not None
    if before.captured:
        return False
    frame.env, other = before.fork(), before.fork()
    one = _walk(world, node.body, frame, left)
    after, frame.env = frame.env, other
    two = _walk(world, node.orelse, frame, left)
    if isinstance(two, Place) and one is True:
        frame.env = after
    elif one is True and two is True:
        frame.env = before
        _forget([*node.body, *node.orelse], frame)
    if False in (one, two):
        return False
    return one if isinstance(one, Place) and isinstance(two, Place) else True


def _try(world: World, node: ast.Try, frame: Frame, left: int) -> Outcome:
    """An error may be caught, unless every handler raises, too."""
    if any(_leaves(one) for one in node.finalbody):
        return False
    found = _walk(world, node.body, frame, left)
    _forget(node.body, frame)
    caught = [_walk(world, one.body, frame, left) for one in node.handlers]
    if any(one is False for one in (found, *caught)):
        return False
    if isinstance(found, Place):
        if all(isinstance(one, Place) for one in caught):
            return found
    else:
        found = _walk(world, node.orelse, frame, left)
    _forget([*node.orelse, *(part for one in node.handlers for part in one.body)], frame)
    if isinstance(found, Place) and not node.handlers:
        return found
    return False if found is False else _walk(world, node.finalbody, frame, left)


def _skip(world: World, node: ast.stmt, frame: Frame, left: int) -> Outcome:
    """A loop, ``with`` or ``match``: what it binds is unknown, and it may return."""
    if _leaves(node):
        return False
    _forget([node], frame)
    return True


def _simple(world: World, node: ast.stmt, frame: Frame, left: int) -> Outcome:
    found = _look_into(world, getattr(node, "value", None), frame, left)
    if isinstance(found, Place):
        return found
    assert frame.env is not None
    try:
        ends = follow(world, [node], frame.env, frame)
    except GaveUpError:
        ends = []
    if ends and all(end.kind == "raise" for end in ends):
        return ends[0].value.place  # type: ignore[no-any-return]
    if len(ends) == 1 and ends[0].kind == "next":
        frame.env = ends[0].env
    else:
        _forget([node], frame)
    return True


def _look_into(world: World, node: ast.AST | None, frame: Frame, left: int) -> Outcome:
    """Whether a call that is a statement of its own, or all of a value, certainly raises."""
    if not isinstance(node, ast.Call) or left == 0:
        return True
    try:
        function = world.evaluate(node.func, frame)
        inner = function.function if isinstance(function, BoundMethod) else function
        if not isinstance(inner, FunctionTerm) or inner.kind == "unknown":
            return True
        names = _parameters(inner)
        if isinstance(function, BoundMethod):
            names = names[1:]
        pairs = [*zip(names, node.args, strict=False)]
        pairs += [(one.arg, one.value) for one in node.keywords if one.arg is not None]
        if any(isinstance(one, ast.Starred) for one in node.args):
            pairs = []
        given = {name: world.evaluate(value, frame) for name, value in pairs}
    except GaveUpError:
        return True
    except RaisedError as error:
        return error.place
    if any(one.arg is None for one in node.keywords):
        given = {}
    return _enter(world, function, given, left - 1)


def _leaves(node: ast.AST) -> bool:
    return any(isinstance(one, (ast.Return, ast.Break, ast.Continue)) for one in ast.walk(node))


def _forget(nodes: list[ast.stmt], frame: Frame) -> None:
    """Names that may have been bound are unknown, and whatever may have been changed in place."""
    assert frame.env is not None
    names = {name: node for node in nodes for name in _bound(node)}
    names |= {name: nodes[0] for name, one in frame.env.names.items() if nodes and not _fixed(one)}
    for name, node in names.items():
        frame.env.names[name] = frame.unknown(node, f"may have bound or changed {name}")


_NAMING = (ast.FunctionDef, ast.ClassDef, ast.ExceptHandler, ast.MatchAs, ast.MatchStar)


def _bound(statement: ast.stmt) -> Iterator[str]:
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.alias):
            yield node.asname or node.name.split(".")[0]
        elif isinstance(node, ast.MatchMapping) and node.rest:
            yield node.rest
        elif isinstance(node, _NAMING) and node.name:
            yield node.name


def _fixed(value: object) -> bool:
    """Whether nothing can change a value in place."""
    if isinstance(value, tuple):
        return all(_fixed(one) for one in value)
    return value is None or isinstance(
        value, (bool, int, float, str, ClassTerm, EnumMember, External, FunctionTerm, Unknown)
    )


_HANDLERS: dict[type[ast.stmt], Callable[..., Outcome]] = {
    ast.If: _if,
    ast.Raise: _raise,
    ast.Return: _return,
    ast.Try: _try,
    **dict.fromkeys(
        (
            ast.AnnAssign, ast.Assert, ast.Assign, ast.AugAssign, ast.ClassDef, ast.Delete,
            ast.Expr, ast.FunctionDef, ast.Import, ast.ImportFrom, ast.Pass,
        ),
        _simple,
    ),
}  # fmt: skip
