"""What constructors refuse, and which capabilities they set on the object."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from selector.drift.evaluating import Worlds, ask, dynamic, label, position
from selector.drift.hierarchy import order
from selector.drift.modules import MUTATORS
from selector.drift.reading import Answer, Assigned, Attribute, Guard
from selector.drift.terms import ClassTerm, Env, Instance, Place, RaisedError, Unknown, truth
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
        worlds: the supposed machines.
        locate: world → the class there.
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
    chain = _chain(worlds.first, locate(worlds.first))[number:]
    cls = chain[0][0]
    aliases = _aliases(chain)
    arguments = _arguments(function, found, aliases)
    refuses = []
    for argument in arguments:
        if argument in probes and found.certain:
            answers: dict[str, Answer] = {}
            for capability, world in worlds.by_capability.items():
                here = _chain(world, locate(world))[number:]
                answers[capability], depends = _refused(
                    world, here, found, argument, probes[argument]
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


def _aliases(chain: Sequence[tuple[ClassTerm, Function]]) -> dict[str, str]:
    """Attributes of the object that are an argument: ``self.x = x``, here or in an ancestor.

    An ancestor's argument counts where ``super().__init__`` is handed one of this constructor's.
    """
    function = chain[0][1]
    parameters = set(_parameters(function))
    found: dict[str, str | None] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)]):
                value = node.value.id if isinstance(node.value, ast.Name) else None
                found[name] = value if value in parameters and name not in found else None
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                found.setdefault(name, None)
    known = {name: value for name, value in found.items() if value is not None}
    if len(chain) > 1:
        handed = _handed_on(function, chain[1][1])
        for name, argument in _aliases(chain[1:]).items():
            if name not in found and argument in handed:
                known[name] = handed[argument]
    return known


def _handed_on(function: Function, above: Function) -> dict[str, str]:
    """Arguments of the next constructor that are one of this one's, by name."""
    parameters = set(_parameters(function))
    found: dict[str, str] = {}
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super"))),
                args=given,
                keywords=named,
            ):
                if any(isinstance(one, ast.Starred) for one in given):
                    given = []
                pairs = [*zip(_parameters(above), given, strict=False)]
                pairs += [(one.arg, one.value) for one in named if one.arg is not None]
                for name, value in pairs:
                    if isinstance(value, ast.Name) and value.id in parameters:
                        found[name] = value.id
    return found


def _settled(function: Function) -> dict[str, ast.expr]:
    """Local names that one statement of the constructor's own body sets, and to what.

    Not those that are changed in place later.
    """
    stored: list[str] = []
    changed: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                stored.append(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if attr in MUTATORS:
                changed.add(name)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                changed.add(name)
    return {
        statement.targets[0].id: statement.value
        for statement in function.body
        if isinstance(statement, ast.Assign)
        and len(statement.targets) == 1
        and isinstance(statement.targets[0], ast.Name)
        and stored.count(statement.targets[0].id) == 1
        and statement.targets[0].id not in changed
    }


def _arguments(function: Function, found: _Raise, aliases: Mapping[str, str]) -> tuple[str, ...]:
    """The constructor's arguments that the tests read, also by way of local names."""
    parameters = set(_parameters(function))
    settled = _settled(function)
    used: dict[str, None] = {}
    pending: list[ast.AST] = [test for test, _ in found.tests]
    for _ in range(GUARDS):
        if not pending:
            break
        for node in ast.walk(pending.pop(0)):
            if isinstance(node, ast.Name) and node.id in parameters:
                used[node.id] = None
            elif isinstance(node, ast.Name) and node.id in settled:
                pending.append(settled.pop(node.id))
            else:
                match node:
                    case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in aliases:
                        used[aliases[name]] = None
    return tuple(used)


def _refused(
    world: World,
    chain: Sequence[tuple[ClassTerm, Function]],
    found: _Raise,
    argument: str,
    values: Sequence[Any],
) -> tuple[Answer, bool]:
    """Which values of an argument a guard certainly refuses, whatever the others are.

    And whether that depends on the architecture.
    """
    used = False
    cls = chain[0][0]
    key = ("constructor", id(cls), id(chain[0][1]))
    names = world.remember(key, lambda: _locals(world, chain), lambda: None)
    refused: list[Any] = []
    undecided: list[Any] = []
    doubt: Unknown | None = None
    for value in values:
        env, depends = names(argument, value)
        held = _holds(world, cls, env, found)
        used = used or depends or world.used_capability
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


def _locals(
    world: World, chain: Sequence[tuple[ClassTerm, Function]]
) -> Callable[[str, Any], tuple[Env, bool]]:
    """Makes the constructor's names: all unknown but one argument, and what is made of it.

    And whether that depends on the architecture.
    """
    cls, function = chain[0]
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
    aliases, settled = _aliases(chain), _settled(function)

    def make(argument: str, value: Any) -> tuple[Env, bool]:
        used = False
        given = {} if argument in reassigned else {argument: value}
        same = {name: value for name, one in aliases.items() if one in given}
        receiver = Instance(cls, {**fields, **same}, supposed={"": lambda world: None})
        env = Env({**names, **given, "self": receiver}, cls.outer)
        for name, node in settled.items():

            def question(frame: Frame, node: ast.expr = node) -> Any:
                return world.evaluate(node, Frame(cls.module, env, None, cls))

            if not isinstance(result := ask(world, question), RaisedError):
                env.names[name] = result
            used = used or world.used_capability
        return env, used

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
