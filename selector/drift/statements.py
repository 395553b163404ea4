"""What a function gives: its statements are followed on every path that cannot be excluded.

Paths part where a test is unknown. If all of them end alike, that is the answer; else it is
unknown, with the place of the first such test.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

import msgspec

from selector.drift.attributes import PlainMethod
from selector.drift.env import Env
from selector.drift.expressions import binary, bind_target
from selector.drift.items import items_of
from selector.drift.terms import (
    BoundMethod,
    ClassTerm,
    External,
    Instance,
    Items,
    Place,
    RaisedError,
    Unknown,
    truth,
)
from selector.drift.world import ANY, ASSERT, IMPORT, Frame, GaveUpError, World, absolute

__all__ = ["At", "End", "follow", "message_of"]

PATHS = 24
"""A function with more open paths than this is not followed."""
ROUNDS = 4_096
"""A loop over more items than this is not followed."""

At = tuple[Frame, ast.AST]


class End(msgspec.Struct, frozen=True):
    """How one path through statements ends.

    Attributes:
        kind: ``next`` (goes on), ``return``, ``raise``, ``break``, ``continue``.
        value: what is returned, or the error.
        env: the local names then.
    """

    kind: str
    value: Any
    env: Env


def follow(world: World, statements: list[ast.stmt], env: Env, frame: Frame) -> list[End]:
    """All ways in which statements can end."""
    live: list[Env] = [env]
    done: list[End] = []
    for statement in statements:
        following: list[Env] = []
        for one in live:
            frame.env = one
            for end in _statement(world, statement, frame):
                if end.kind == "next":
                    following.append(end.env)
                else:
                    done.append(end)
        live = following
        if len(live) + len(done) > PATHS:
            raise GaveUpError(frame.unknown(statement, "is reached on too many paths"))
        if not live:
            break
    return [*done, *(End("next", None, one) for one in live)]


def _statement(world: World, node: ast.stmt, frame: Frame) -> list[End]:
    world.tick(node, frame)
    env = frame.env
    assert env is not None
    handler = _HANDLERS.get(type(node))
    if handler is None:
        what = type(node).__name__.lower()
        raise GaveUpError(frame.unknown(node, f"is a {what} statement, which is not followed"))
    try:
        return handler(world, node, frame, env)
    except RaisedError as error:
        return [End("raise", error, env)]


def _fork(frame: Frame, env: Env, doubt: Unknown) -> Env:
    """A second set of local names, for the other path."""
    if env.captured:
        raise GaveUpError(doubt)
    if frame.fork is None:
        frame.fork = doubt
    return env.fork()


def _doubt(value: Any, node: ast.AST, frame: Frame) -> Unknown:
    why = "is a value of another package, which may count as true or false"
    return value if isinstance(value, Unknown) else frame.unknown(node, why)


def _return(world: World, node: ast.Return, frame: Frame, env: Env) -> list[End]:
    value = None if node.value is None else world.evaluate(node.value, frame)
    return [End("return", value, env)]


def _pass(world: World, node: ast.stmt, frame: Frame, env: Env) -> list[End]:
    return [End("next", None, env)]


def _break(world: World, node: ast.Break, frame: Frame, env: Env) -> list[End]:
    return [End("break", None, env)]


def _continue(world: World, node: ast.Continue, frame: Frame, env: Env) -> list[End]:
    return [End("continue", None, env)]


def _if(world: World, node: ast.If, frame: Frame, env: Env) -> list[End]:
    test = world.evaluate(node.test, frame)
    known = truth(test)
    if known is not None:
        return follow(world, node.body if known else node.orelse, env, frame)
    other = _fork(frame, env, _doubt(test, node.test, frame))
    return [*follow(world, node.body, env, frame), *follow(world, node.orelse, other, frame)]


_GONE_THROUGH = "for"
"""The local name, which no code can have, of the collections that loops go through."""


def _for(world: World, node: ast.For, frame: Frame, env: Env) -> list[End]:
    source = world.evaluate(node.iter, frame)
    items = items_of(world, source, node.iter, frame)
    if len(items) > ROUNDS:
        raise GaveUpError(frame.unknown(node.iter, "has too many items"))
    live: list[Env] = [env]
    done: list[End] = []
    after: list[End] = []
    for item in items:
        following: list[Env] = []
        for one in live:
            frame.env = one
            one.names[_GONE_THROUGH] = (source, one.names.get(_GONE_THROUGH))
            bind_target(world, node.target, item, frame)
            for end in follow(world, node.body, one, frame):
                end.env.names[_GONE_THROUGH] = end.env.names[_GONE_THROUGH][1]
                if end.kind in ("next", "continue"):
                    following.append(end.env)
                else:
                    (after if end.kind == "break" else done).append(end)
        live = following
        if len(live) + len(done) + len(after) > PATHS:
            raise GaveUpError(frame.unknown(node, "is left on too many paths"))
    for one in live:
        done += follow(world, node.orelse, one, frame)
    return [*done, *(End("next", None, end.env) for end in after)]


def _raise(world: World, node: ast.Raise, frame: Frame, env: Env) -> list[End]:
    if node.exc is None:
        raise GaveUpError(frame.unknown(node, "raises what was caught"))
    call = node.exc if isinstance(node.exc, ast.Call) else None
    kind = world.evaluate(call.func if call else node.exc, frame)
    if isinstance(kind, External) and kind.path.startswith("builtins."):
        name = kind.path.removeprefix("builtins.")
    elif isinstance(kind, ClassTerm):
        name = kind.path
    else:
        raise GaveUpError(frame.unknown(node, "raises what cannot be read"))
    message = message_of(call.args[0]) if call and call.args else ""
    return [End("raise", RaisedError(name, message, Place.of(frame.module, node)), env)]


def message_of(node: ast.expr) -> str:
    """The constant parts of a message."""
    parts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return "".join(part for part in parts if isinstance(part, str))[:300]


def _assert(world: World, node: ast.Assert, frame: Frame, env: Env) -> list[End]:
    known = truth(world.evaluate(node.test, frame))
    if known is False:
        raise RaisedError("AssertionError", "", Place.of(frame.module, node))
    if known is None:
        frame.may_raise |= ASSERT
    return [End("next", None, env)]


def _import(world: World, node: ast.Import | ast.ImportFrom, frame: Frame, env: Env) -> list[End]:
    frame.may_raise |= IMPORT
    if isinstance(node, ast.ImportFrom) and absolute(frame.module, node) in world.foreign:
        why = "is made for another platform, and may not be imported on this one"
        raise GaveUpError(frame.unknown(node, why))
    for alias in node.names:
        if alias.name == "*":
            raise GaveUpError(frame.unknown(node, "is not followed"))
        name = alias.asname or alias.name.split(".")[0]
        env.names[name] = world.imported(node, alias, frame)
    return [End("next", None, env)]


def _define(
    world: World, node: ast.FunctionDef | ast.ClassDef, frame: Frame, env: Env
) -> list[End]:
    if isinstance(node, ast.ClassDef):
        env.names[node.name] = world.define_class(node, frame, None)
    else:
        env.names[node.name] = world.function(node, frame, None)
    return [End("next", None, env)]


def _assign(world: World, node: ast.Assign, frame: Frame, env: Env) -> list[End]:
    value = world.evaluate(node.value, frame)
    for target in node.targets:
        _store(world, target, value, frame, env)
    return [End("next", None, env)]


def _store(world: World, target: ast.expr, value: Any, frame: Frame, env: Env) -> None:
    if isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
        holder = env.names.get(target.value.id)
        key = world.evaluate(target.slice, frame)
        if isinstance(holder, dict) and isinstance(key, (str, int, float, tuple, type(None))):
            return _replace(holder, {**holder, key: value}, target, frame, env)
    if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
        holder = env.names.get(target.value.id)
        if isinstance(holder, ClassTerm) and holder.outer is env and frame.fork is None:
            holder.overrides[target.attr] = value  # a class of this function, just defined
            return None
    bind_target(world, target, value, frame)
    return None


def _replace(holder: Any, changed: Any, node: ast.AST, frame: Frame, env: Env) -> None:
    """Puts a changed copy in the place of a collection that only this function can see."""
    if id(holder) not in frame.owned or env.captured or _is_inside(holder, env):
        raise GaveUpError(frame.unknown(node, "changes a collection that others may see"))
    frame.owned[id(changed)] = changed
    for name, value in env.names.items():
        if value is holder:
            env.names[name] = changed


def _is_inside(holder: Any, env: Env) -> bool:
    """Whether another local collection holds this one."""
    pending = [value for value in env.names.values() if value is not holder]
    looked = 0
    while pending:
        value = pending.pop()
        looked += 1
        if value is holder or looked > 10_000:
            return True
        if isinstance(value, (list, tuple)):
            pending += value
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, Instance):
            pending += value.fields.values()
        elif isinstance(value, Items):
            pending += [value.holder, *value.values]
        elif isinstance(value, (PlainMethod, BoundMethod)):
            pending.append(value.receiver)
    return False


def _ann_assign(world: World, node: ast.AnnAssign, frame: Frame, env: Env) -> list[End]:
    if node.value is not None:
        _store(world, node.target, world.evaluate(node.value, frame), frame, env)
    return [End("next", None, env)]


def _aug_assign(world: World, node: ast.AugAssign, frame: Frame, env: Env) -> list[End]:
    if not isinstance(node.target, ast.Name):
        raise GaveUpError(frame.unknown(node, "changes what others may see"))
    bound, value = env.find(node.target.id)
    if not bound or isinstance(value, (list, set, dict)):
        raise GaveUpError(frame.unknown(node, "changes what others may see"))
    other = world.evaluate(node.value, frame)
    doubt = next((one for one in (value, other) if isinstance(one, Unknown)), None)
    env.names[node.target.id] = (
        doubt.blank() if doubt is not None else binary(value, other, node.op, node, frame)
    )
    return [End("next", None, env)]


def _expression(world: World, node: ast.Expr, frame: Frame, env: Env) -> list[End]:
    call = node.value
    match call:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name))):
            holder = env.names.get(name)
            if isinstance(holder, (list, set, dict)):
                _change(world, call, holder, frame, env)
                return [End("next", None, env)]
    world.evaluate(call, frame)
    return [End("next", None, env)]


def _change(world: World, call: ast.Call, holder: Any, frame: Frame, env: Env) -> None:
    """``append``, ``extend``, ``add`` and ``update`` of a local collection."""
    assert isinstance(call.func, ast.Attribute)
    given = [world.evaluate(one, frame) for one in call.args]
    name = call.func.attr
    changed: Any = None
    if len(given) == 1 and not call.keywords:
        if isinstance(holder, list) and name == "append":
            changed = [*holder, given[0]]
        elif isinstance(holder, list) and name == "extend":
            changed = [*holder, *items_of(world, given[0], call, frame)]
        elif isinstance(holder, set) and name == "add" and isinstance(given[0], (int, str)):
            changed = {*holder, given[0]}
        elif isinstance(holder, dict) and name == "update" and isinstance(given[0], dict):
            changed = {**holder, **given[0]}
    if changed is None:
        raise GaveUpError(frame.unknown(call, "changes a collection in a way that is not read"))
    _replace(holder, changed, call, frame, env)


def _delete(world: World, node: ast.Delete, frame: Frame, env: Env) -> list[End]:
    names = [
        name
        for target in node.targets
        for name in (target.elts if isinstance(target, ast.Tuple) else [target])
    ]
    for name in names:
        if not isinstance(name, ast.Name):
            raise GaveUpError(frame.unknown(node, "deletes what others may see"))
        env.names.pop(name.id, None)
    return [End("next", None, env)]


def _try(world: World, node: ast.Try, frame: Frame, env: Env) -> list[End]:
    if node.finalbody:
        raise GaveUpError(frame.unknown(node, "has a finally, which is not followed"))
    before, outer = env.fork(), frame.may_raise
    frame.may_raise = 0
    ends = follow(world, node.body, env, frame)
    could, frame.may_raise = frame.may_raise, outer
    done: list[End] = []
    for end in ends:
        if end.kind == "raise":
            done += _caught(world, node, end, frame)
        elif end.kind == "next":
            done += follow(world, node.orelse, end.env, frame)
        else:
            done.append(end)
    for handler in node.handlers:
        if could and _could_catch(world, handler, could, frame):
            doubt = frame.unknown(node.body[0], "is tried, and may raise")
            _fork(frame, env, doubt)
            other = before.fork()
            for name in world.modules.look("stored", node, lambda: _stored(node.body)):
                other.names[name] = frame.unknown(node, f"may not have bound {name}")
            done += _handle(world, handler, other, frame)
    frame.may_raise |= could
    return done


def _stored(body: list[ast.stmt]) -> set[str]:
    names: set[str] = set()
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                names.add(node.id)
            elif isinstance(node, ast.alias):
                names.add(node.asname or node.name.split(".")[0])
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
    return names


def _handle(world: World, handler: ast.ExceptHandler, env: Env, frame: Frame) -> list[End]:
    if handler.name:
        env.names[handler.name] = frame.unknown(handler, "is what was raised")
    return follow(world, handler.body, env, frame)


def _kinds(world: World, handler: ast.ExceptHandler, frame: Frame) -> list[type | None]:
    """The built-in exceptions that a handler catches; ``None`` for others."""
    if handler.type is None:
        return [BaseException]
    value = world.evaluate(handler.type, frame)
    found: list[type | None] = []
    for one in value if isinstance(value, tuple) else (value,):
        name = one.path.removeprefix("builtins.") if isinstance(one, External) else ""
        kind = getattr(builtins, name, None) if name else None
        found.append(kind if isinstance(kind, type) else None)
    return found


def _could_catch(world: World, handler: ast.ExceptHandler, could: int, frame: Frame) -> bool:
    kinds = _kinds(world, handler, frame)
    if could & ANY or None in kinds:
        return True
    possible = [ImportError] if could & IMPORT else []
    possible += [AssertionError] if could & ASSERT else []  # type: ignore[list-item]
    return any(
        issubclass(one, kind) or issubclass(kind, one) for one in possible for kind in kinds if kind
    )


def _caught(world: World, node: ast.Try, end: End, frame: Frame) -> list[End]:
    """What follows an error that is certainly raised in a ``try``."""
    raised = getattr(builtins, end.value.name, None)
    for handler in node.handlers:
        kinds = _kinds(world, handler, frame)
        if not isinstance(raised, type) or None in kinds:
            raise GaveUpError(frame.unknown(handler, "may catch what is raised"))
        if any(issubclass(raised, kind) for kind in kinds if kind):
            return _handle(world, handler, end.env, frame)
    return [end]


_HANDLERS: dict[type[ast.stmt], Callable[[World, Any, Frame, Env], list[End]]] = {
    ast.AnnAssign: _ann_assign,
    ast.Assert: _assert,
    ast.Assign: _assign,
    ast.AugAssign: _aug_assign,
    ast.Break: _break,
    ast.ClassDef: _define,
    ast.Continue: _continue,
    ast.Delete: _delete,
    ast.Expr: _expression,
    ast.For: _for,
    ast.FunctionDef: _define,
    ast.If: _if,
    ast.Import: _import,
    ast.ImportFrom: _import,
    ast.Pass: _pass,
    ast.Raise: _raise,
    ast.Return: _return,
    ast.Try: _try,
}
