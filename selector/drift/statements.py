"""What a function gives: its statements are followed on every path that cannot be excluded.

Paths part where a test is unknown. If all of them end alike, that is the answer; else it is unknown,
with the place of the first such test.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable
from typing import Any

import msgspec

from selector.drift.expressions import bind_target, binary, items_of
from selector.drift.terms import (
    ClassTerm,
    Env,
    EnumMember,
    External,
    FunctionTerm,
    Instance,
    Place,
    RaisedError,
    Unknown,
    same,
    truth,
)
from selector.drift.world import ANY, ASSERT, IMPORT, Frame, GaveUpError, World, absolute

__all__ = ["run_function"]

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


def run_function(
    world: World, function: FunctionTerm, given: list[Any], named: dict[str, Any], at: At
) -> Any:
    """What a function gives for these arguments; the same again is not followed again.

    Raises:
        RaisedError: it certainly raises.
    """
    key = _call_key(function, given, named)
    kept = world.calls.get(key) if key is not None else None
    if kept is None:
        kept = _run(world, function, given, named, at)
        if key is not None and not world.cut:
            world.calls[key] = kept
    world.used_capability = world.used_capability or kept.used_capability
    at[0].may_raise |= kept.may_raise
    if kept.error is not None:
        raise kept.error
    return kept.value


class _Ran(msgspec.Struct, frozen=True):
    """What following a call gave; ``holds`` keeps alive what its key names by identity."""

    value: Any
    error: RaisedError | None
    may_raise: int
    used_capability: bool
    holds: tuple[Any, ...]


def _call_key(function: FunctionTerm, given: list[Any], named: dict[str, Any]) -> Any:
    """What tells a call from another; ``None``: it is not remembered."""
    if function.outer is not None and not function.outer.done:
        return None
    try:
        arguments = tuple(_argument_key(value) for value in given)
        named_too = tuple((name, _argument_key(value)) for name, value in named.items())
    except TypeError:
        return None
    return id(function.node), id(function.owner), id(function.outer), arguments, named_too


def _argument_key(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float, str)):
        return type(value).__name__, value
    if isinstance(value, (ClassTerm, Unknown, Instance)):
        return "object", id(value)
    if isinstance(value, External):
        return "external", value.path
    if isinstance(value, EnumMember):
        return "member", id(value.cls), value.name
    if isinstance(value, tuple):
        return tuple(_argument_key(part) for part in value)
    raise TypeError


def _run(
    world: World, function: FunctionTerm, given: list[Any], named: dict[str, Any], at: At
) -> _Ran:
    outer, world.used_capability = world.used_capability, False
    cut, world.cut = world.cut, False
    frame = Frame(function.module, None, None, function.owner)
    value, error = None, None
    try:
        value = _follow(world, function, given, named, at, frame)
    except RaisedError as raised:
        error = raised
    finally:
        used, world.used_capability = world.used_capability, outer
    holds = (function, *given, *named.values())
    ran = _Ran(value, error, frame.may_raise, used, holds)
    world.cut = world.cut or cut
    return ran


def _follow(
    world: World,
    function: FunctionTerm,
    given: list[Any],
    named: dict[str, Any],
    at: At,
    frame: Frame,
) -> Any:
    if function.kind == "unknown":
        return Unknown(function.place, function.name, "has a decorator that is not read")
    env = None
    try:
        names = _bind_arguments(world, function, given, named, at)
        if function.owner is not None and function.kind != "static" and given:
            frame.receiver = given[0]
        frame.env = env = Env(names, function.outer)
        around = f"{function.owner.name}." if function.owner is not None else ""
        frame.within = f"{around}{function.name}.<locals>"
        if isinstance(function.node, ast.Lambda):
            return world.evaluate(function.node.body, frame)
        if (problem := _refused(world, function)) is not None:
            return problem
        return _conclude(_block(world, function.node.body, frame.env, frame), frame)
    except GaveUpError as error:
        return error.unknown
    finally:
        if env is not None:
            env.done = True


def _refused(world: World, function: FunctionTerm) -> Unknown | None:
    """Why a function is not followed at all."""

    def look() -> Any:
        for node in ast.walk(function.node):
            if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)):
                return Place.of(function.module, node), type(node).__name__.lower()
        return ()

    found = world.remember(("refused", id(function.node)), look, lambda: ())
    if found:
        return Unknown(found[0], function.name, f"has a {found[1]}, which is not followed")
    return None


def _bind_arguments(
    world: World, function: FunctionTerm, given: list[Any], named: dict[str, Any], at: At
) -> dict[str, Any]:
    """The parameters of a call by name."""
    takes = function.node.args
    frame = Frame(function.module, function.outer, function.owner)
    positional = [*takes.posonlyargs, *takes.args]
    names = {one.arg: value for one, value in zip(positional, given, strict=False)}
    rest = tuple(given[len(positional) :])
    known = {one.arg for one in (*takes.args, *takes.kwonlyargs)}
    extra = {name: value for name, value in named.items() if name not in known}
    if (rest and takes.vararg is None) or (extra and takes.kwarg is None):
        raise GaveUpError(at[0].unknown(at[1], f"gives {function.name} what it does not take"))
    if names.keys() & named.keys() - extra.keys():
        raise GaveUpError(at[0].unknown(at[1], f"gives {function.name} an argument twice"))
    names |= {name: value for name, value in named.items() if name in known}
    defaults = zip(reversed(positional), reversed(takes.defaults), strict=False)
    alone = zip(takes.kwonlyargs, takes.kw_defaults, strict=True)
    for one, default in (*defaults, *alone):
        if one.arg not in names and default is not None:
            names[one.arg] = world.evaluate(default, frame)
    for one in (*positional, *takes.kwonlyargs):
        if one.arg not in names:
            raise GaveUpError(at[0].unknown(at[1], f"does not give {function.name} {one.arg}"))
    if takes.vararg is not None:
        names[takes.vararg.arg] = rest
    if takes.kwarg is not None:
        names[takes.kwarg.arg] = extra
    return names


def _conclude(ends: list[End], frame: Frame) -> Any:
    """One answer of all paths."""
    returned = [end.value if end.kind == "return" else None for end in ends if end.kind != "raise"]
    raised = [end.value for end in ends if end.kind == "raise"]
    if any(end.kind in ("break", "continue") for end in ends) or not ends:
        raise AssertionError("a loop's end outside a loop")
    if raised and not returned and len({error.name for error in raised}) == 1:
        raise raised[0]
    fork = frame.fork
    if not raised and all(same(returned[0], value) is True for value in returned[1:]):
        return returned[0]
    if fork is None:
        place = raised[0].place if raised else Place.of(frame.module, frame.module.tree)
        fork = Unknown(place, "…", "ends in more than one way")
    answers = {truth(value) for value in returned}
    agreed = answers.pop() if len(answers) == 1 and not raised else None
    return fork.blank(agreed)


def _block(world: World, statements: list[ast.stmt], env: Env, frame: Frame) -> list[End]:
    live, done = [env], []
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
        return _block(world, node.body if known else node.orelse, env, frame)
    other = _fork(frame, env, _doubt(test, node.test, frame))
    return [*_block(world, node.body, env, frame), *_block(world, node.orelse, other, frame)]


def _for(world: World, node: ast.For, frame: Frame, env: Env) -> list[End]:
    items = items_of(world, world.evaluate(node.iter, frame), node.iter, frame)
    if len(items) > ROUNDS:
        raise GaveUpError(frame.unknown(node.iter, "has too many items"))
    live, done, after = [env], [], []
    for item in items:
        following: list[Env] = []
        for one in live:
            frame.env = one
            bind_target(world, node.target, item, frame)
            for end in _block(world, node.body, one, frame):
                if end.kind in ("next", "continue"):
                    following.append(end.env)
                else:
                    (after if end.kind == "break" else done).append(end)
        live = following
        if len(live) + len(done) + len(after) > PATHS:
            raise GaveUpError(frame.unknown(node, "is left on too many paths"))
    for one in live:
        done += _block(world, node.orelse, one, frame)
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
    message = _message(call.args[0]) if call and call.args else ""
    return [End("raise", RaisedError(name, message, Place.of(frame.module, node)), env)]


def _message(node: ast.expr) -> str:
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
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
        if isinstance(call.func.value, ast.Name):
            holder = env.names.get(call.func.value.id)
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
    ends = _block(world, node.body, env, frame)
    could, frame.may_raise = frame.may_raise, outer
    done: list[End] = []
    for end in ends:
        if end.kind == "raise":
            done += _caught(world, node, end, frame)
        elif end.kind == "next":
            done += _block(world, node.orelse, end.env, frame)
        else:
            done.append(end)
    for handler in node.handlers:
        if could and _could_catch(world, handler, could, frame):
            doubt = frame.unknown(node.body[0], "is tried, and may raise")
            _fork(frame, env, doubt)
            other = before.fork()
            for name in _stored(node.body):
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
    return _block(world, handler.body, env, frame)


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
