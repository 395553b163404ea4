"""What constructors refuse, and which capabilities they set on the object."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from selector.drift.evaluating import Worlds, ask, dynamic, label, position
from selector.drift.hierarchy import order
from selector.drift.reading import Answer, Assigned, Attribute, Guard
from selector.drift.terms import ClassTerm, Env, Instance, Place, Unknown, truth
from selector.drift.world import Frame, World

__all__ = ["read_constructors"]

GUARDS = 200
"""No more guards than this are read of one class."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class _Raise(msgspec.Struct, frozen=True):
    """A ``raise`` with the tests around it; ``certain``: nothing else decides whether it runs."""

    node: ast.Raise
    tests: tuple[tuple[ast.expr, bool], ...]
    certain: bool


def read_constructors(
    worlds: Worlds,
    locate: Callable[[World], Any],
    wanted: re.Pattern[str],
    probes: Mapping[str, Sequence[Any]],
) -> tuple[tuple[Assigned, ...], tuple[Guard, ...]]:
    """The guards of a class's constructors and what they assign, its own first.

    Args:
        wanted: names of the attributes whose assignment is told.
        probes: argument → the values with which the tests are asked, one argument at a time.
    """
    assigned: list[Assigned] = []
    guards: list[Guard] = []
    for number, (cls, function) in enumerate(_chain(worlds.first, locate(worlds.first))):
        assigned += _assignments(cls, function, wanted)
        for found in _raises(function.body, (), True):
            if found.tests and len(guards) < GUARDS:
                guards.append(_guard(worlds, locate, number, function, found, probes))
    return tuple(assigned), tuple(guards)


def _chain(world: World, cls: Any) -> list[tuple[ClassTerm, Function]]:
    """The constructors that run, in order: each that calls ``super().__init__`` has a next."""
    linear = ask(world, lambda frame: order(world, cls))
    found: list[tuple[ClassTerm, Function]] = []
    for one in linear if isinstance(linear, (list, tuple)) else ():
        if not isinstance(one, ClassTerm):
            continue
        bindings = one.scope.names.get("__init__", [])
        if len(bindings) != 1 or not isinstance(bindings[0].node, ast.FunctionDef):
            continue
        found.append((one, bindings[0].node))
        if not _calls_super(bindings[0].node):
            break
    return found


def _calls_super(function: Function) -> bool:
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super")))
            ):
                return True
    return False


def _assignments(cls: ClassTerm, function: Function, wanted: re.Pattern[str]) -> Iterator[Assigned]:
    for node in ast.walk(function):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            match target:
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if wanted.search(name):
                    value = ast.unparse(node.value)[:200]  # type: ignore[attr-defined]
                    at = position(Place.of(cls.module, node))
                    yield Assigned(name, label(cls), at, value)


def _raises(
    body: list[ast.stmt], tests: tuple[tuple[ast.expr, bool], ...], certain: bool
) -> Iterator[_Raise]:
    for statement in body:
        if isinstance(statement, ast.Raise) and statement.exc is not None:
            yield _Raise(statement, tests, certain)
        elif isinstance(statement, ast.If):
            yield from _raises(statement.body, (*tests, (statement.test, True)), certain)
            yield from _raises(statement.orelse, (*tests, (statement.test, False)), certain)
        elif isinstance(statement, (ast.For, ast.While, ast.With, ast.Try)):
            for field in ("body", "orelse", "finalbody"):
                yield from _raises(getattr(statement, field, []), tests, False)
        if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
            certain = False


def _guard(
    worlds: Worlds,
    locate: Callable[[World], Any],
    number: int,
    function: Function,
    found: _Raise,
    probes: Mapping[str, Sequence[Any]],
) -> Guard:
    cls, _ = _chain(worlds.first, locate(worlds.first))[number]
    aliases = _aliases(function)
    arguments = _arguments(function, found, aliases)
    refuses = []
    for argument in arguments:
        if argument in probes and found.certain:
            answers: dict[str, Answer] = {}
            for capability, world in worlds.by_capability.items():
                here = _chain(world, locate(world))[number][0]
                answers[capability], depends = _refused(
                    world, here, function, found, argument, probes[argument]
                )
                if not depends:
                    break
            refuses.append(_attribute(argument, cls, found.node, answers, probes[argument]))
    exception, message = _exception(found.node)
    return Guard(
        label(cls),
        position(Place.of(cls.module, found.node)),
        exception,
        message,
        tuple(_text(test, holds) for test, holds in found.tests),
        arguments,
        tuple(refuses),
    )


def _text(test: ast.expr, holds: bool) -> str:
    text = ast.unparse(test)[:300]
    return text if holds else f"not ({text})"


def _exception(node: ast.Raise) -> tuple[str, str]:
    call = node.exc if isinstance(node.exc, ast.Call) else None
    name = ast.unparse(call.func if call else node.exc)[:100]  # type: ignore[arg-type]
    parts: list[str] = []
    for argument in call.args[:1] if call else ():
        for part in ast.walk(argument):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                parts.append(part.value)
    return name, "".join(parts)[:300]


def _parameters(function: Function) -> list[str]:
    takes = function.args
    named = [*takes.posonlyargs, *takes.args, *takes.kwonlyargs]
    return [one.arg for one in named][1:]


def _aliases(function: Function) -> dict[str, str]:
    """Attributes of the object that are an argument: ``self.x = x``, assigned once."""
    parameters = set(_parameters(function))
    found: dict[str, str | None] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)]):
                value = node.value.id if isinstance(node.value, ast.Name) else None
                known = value if value in parameters and name not in found else None
                found[name] = known
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.setdefault(name, None)
    return {name: value for name, value in found.items() if value is not None}


def _arguments(function: Function, found: _Raise, aliases: Mapping[str, str]) -> tuple[str, ...]:
    parameters = set(_parameters(function))
    used: dict[str, None] = {}
    for test, _ in found.tests:
        for node in ast.walk(test):
            if isinstance(node, ast.Name) and node.id in parameters:
                used[node.id] = None
            elif isinstance(node, ast.Attribute) and node.attr in aliases:
                if isinstance(node.value, ast.Name) and node.value.id == "self":
                    used[aliases[node.attr]] = None
    return tuple(used)


def _refused(
    world: World,
    cls: ClassTerm,
    function: Function,
    found: _Raise,
    argument: str,
    values: Sequence[Any],
) -> tuple[Answer, bool]:
    """Which values of an argument a guard certainly refuses, whatever the others are.

    And whether that depends on the architecture.
    """
    used = False
    names = _locals(cls, function)
    refused: list[Any] = []
    undecided: list[Any] = []
    doubt: Unknown | None = None
    for value in values:
        held = _holds(world, cls, names(argument, value), found)
        used = used or world.used_capability
        if held is True:
            refused.append(value)
        elif isinstance(held, Unknown):
            undecided.append(value)
            doubt = doubt or held
    if doubt is None:
        return Answer(value=refused), used
    return Answer(value=refused, dynamic=dynamic(doubt), undecided=tuple(undecided)), used


def _holds(world: World, cls: ClassTerm, env: Env, found: _Raise) -> bool | Unknown:
    """Whether all tests around a ``raise`` hold with these local names."""
    place = Place.of(cls.module, found.node)
    doubt: Unknown | None = None
    used = False
    for test, wanted in found.tests:

        def question(frame: Frame, test: ast.expr = test) -> Any:
            return world.evaluate(test, Frame(cls.module, env, None, cls))

        result = ask(world, question)
        used = world.used_capability = used or world.used_capability
        known = truth(result)
        if known is None:
            missing = Unknown(place, "…", "cannot be read")
            doubt = doubt or (result if isinstance(result, Unknown) else missing)
        elif known is not wanted:
            return False
    return True if doubt is None else doubt


def _locals(cls: ClassTerm, function: Function) -> Callable[[str, Any], Env]:
    """Makes the constructor's names: all unknown but one argument, and what it is assigned to."""
    names: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names[node.id] = _open(cls, node, node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            fields[node.attr] = _open(cls, node, f"self.{node.attr}")
    reassigned = frozenset(names)
    for one in (*_parameters(function), *_rest(function)):
        names[one] = _open(cls, function, one)
    aliases = _aliases(function)

    def make(argument: str, value: Any) -> Env:
        given = {} if argument in reassigned else {argument: value}
        same = {name: value for name, one in aliases.items() if one in given}
        receiver = Instance(cls, {**fields, **same}, supposed={"": lambda world: None})
        return Env({**names, **given, "self": receiver}, cls.outer)

    return make


def _rest(function: Function) -> list[str]:
    takes = function.args
    return [one.arg for one in (takes.vararg, takes.kwarg) if one is not None]


def _open(cls: ClassTerm, node: ast.AST, name: str) -> Unknown:
    return Unknown(Place.of(cls.module, node), name, "is whatever the caller gives")


def _attribute(
    argument: str,
    cls: ClassTerm,
    node: ast.AST,
    answers: dict[str, Answer],
    values: Sequence[Any],
) -> Attribute:
    at = position(Place.of(cls.module, node))
    asked = tuple(values)
    if len({msgspec.json.encode(answer) for answer in answers.values()}) == 1:
        one = next(iter(answers.values()))
        return Attribute(argument, "argument", label(cls), at, one, {}, asked)
    return Attribute(argument, "argument", label(cls), at, None, answers, asked)
