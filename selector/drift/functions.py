"""What a call of a function that is read gives, with its arguments bound to its parameters."""

from __future__ import annotations

import ast
from collections.abc import Collection
from typing import Any

import msgspec

from selector.drift.env import UNBOUND, Env
from selector.drift.modules import read_scope
from selector.drift.statements import At, End, follow
from selector.drift.terms import (
    ClassTerm,
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
from selector.drift.world import Frame, GaveUpError, World

__all__ = ["run_function"]


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
        if key is not None and world.cut is None:
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
    cut, world.cut = world.cut, None
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
        frame.env = env = Env(names, function.outer, _own_names(world, function))
        around = f"{function.owner.name}." if function.owner is not None else ""
        frame.within = f"{around}{function.name}.<locals>"
        if isinstance(function.node, ast.Lambda):
            return world.evaluate(function.node.body, frame)
        if (problem := _refused(world, function)) is not None:
            return problem
        return _conclude(follow(world, function.node.body, frame.env, frame), frame)
    except GaveUpError as error:
        return error.unknown
    finally:
        if env is not None:
            env.done = True


def _own_names(world: World, function: FunctionTerm) -> Collection[str]:
    """The names that are local to a function, wherever it binds them."""
    node = function.node
    if isinstance(node, ast.Lambda):
        return ()
    found: Collection[str] = world.modules.look(
        "own", node, lambda: frozenset(read_scope(node.body).names)
    )
    return found


def _refused(world: World, function: FunctionTerm) -> Unknown | None:
    """Why a function is not followed at all."""

    def look() -> Any:
        for node in ast.walk(function.node):
            if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)):
                return Place.of(function.module, node), type(node).__name__.lower()
        return ()

    found = world.modules.look("refused", function.node, look)
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
            made = function.defaults.get(id(default), UNBOUND)
            names[one.arg] = world.evaluate(default, frame) if made is UNBOUND else made
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
