"""Which classes a function builds and returns, and under which tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from selector.drift.chains import Body, Run, Tests, run_chain
from selector.drift.evaluating import Worlds, ask
from selector.drift.guards import Event, events, test_text
from selector.drift.terms import ClassTerm, FunctionTerm, Place, RaisedError, Unknown, truth
from selector.drift.world import Frame, World

__all__ = ["Product", "choices_of", "products_of"]

DEPTH = 6
"""A factory that asks another one is followed so far."""
WAYS = 64
"""No more ways through one factory than this."""


class Product(msgspec.Struct, frozen=True, eq=False):
    """A class that a factory builds.

    Attributes:
        cls: its dotted path; empty: ``doubt`` says why it is not known.
        chain: the factory, and those that it asks; the last one makes the object.
        call: the call there that makes it.
        tests: those of the last factory that lead to it.
        certain: whether nothing else decides.
        doubt: the place and reason where it is not known.
    """

    cls: str
    chain: tuple[Body, ...]
    call: ast.Call | None
    tests: Tests
    certain: bool
    doubt: Unknown | None = None

    @property
    def way(self) -> tuple[str, ...]:
        """All tests that lead to it, as written."""
        tests = (*(test for body in self.chain for test in body.tests), *self.tests)
        return tuple(dict.fromkeys(test_text(test, holds) for test, holds in tests))


def products_of(worlds: Worlds, factory: Body) -> tuple[Product, ...]:
    """The classes that a factory builds on any of the machines, in the order of its code."""
    return tuple(_products(worlds, (factory,)))[:WAYS]


def _products(worlds: Worlds, chain: tuple[Body, ...]) -> Iterator[Product]:
    body = chain[-1]
    runs = [run_chain(world, chain, {}) for world in worlds.by_capability.values()]
    for event in events(body.function.body):
        if not isinstance(event.node, ast.Return) or event.node.value is None:
            continue
        for made, more in _values(event.node.value, event.before):
            tests = (*event.tests, *more)
            if not any(_may_hold(run, tests) for run in runs):
                continue
            yield from _product(worlds, chain, runs[0], made, tests, event)


def _product(
    worlds: Worlds,
    chain: tuple[Body, ...],
    run: Run,
    made: ast.expr,
    tests: Tests,
    event: Event,
) -> Iterator[Product]:
    body = chain[-1]
    place = Place.of(body.module, event.node)
    if not isinstance(made, ast.Call):
        doubt = Unknown(place, made, "is given back, which is no call")
        yield Product("", chain, None, tests, event.certain, doubt)
        return
    found = _callee(run, body, made.func, event.before)
    if isinstance(found, ClassTerm) and found.outer is None:
        yield Product(found.path, chain, made, tests, event.certain)
    elif isinstance(found, FunctionTerm) and _is_followed(found) and len(chain) < DEPTH:
        label = f"{found.module.name}.{found.name}"
        node = found.node
        assert isinstance(node, ast.FunctionDef)
        after = Body(label, found.module, node, None, found.outer, made, tests, event.certain)
        yield from _products(worlds, (*chain, after))
    else:
        doubt = Unknown(place, made.func, "makes what is not read")
        known = isinstance(found, Unknown) and bool(found.place.path)
        yield Product("", chain, made, tests, event.certain, found if known else doubt)


def _is_followed(function: FunctionTerm) -> bool:
    """Whether it is a plain function of a module; no decorator, or one that only registers it."""
    node = function.node
    if not isinstance(node, ast.FunctionDef) or function.outer or function.owner:
        return False
    calls = [one.func for one in node.decorator_list if isinstance(one, ast.Call)]
    registered = [one for one in calls if ast.unparse(one).rpartition(".")[2][:8] == "register"]
    return function.kind == "function" or len(registered) == len(node.decorator_list)


def _callee(run: Run, body: Body, node: ast.expr, before: Sequence[ast.stmt]) -> Any:
    """What is called, with the imports on the way there."""
    world, env = run.world, run.envs[-1].fork()
    frame = Frame(body.module, env, None, body.cls)
    for statement in before:
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            for alias in statement.names:
                name = alias.asname or alias.name.split(".")[0]
                env.names[name] = _import(world, statement, alias, frame)
    found = ask(world, lambda _: world.evaluate(node, frame))
    if isinstance(found, RaisedError):
        return Unknown(found.place, node, f"raises {found.name}")
    if world.used_capability:
        return Unknown(Place.of(body.module, node), node, "depends on the architecture")
    return found


def _import(world: World, node: ast.Import | ast.ImportFrom, alias: ast.alias, frame: Frame) -> Any:
    return ask(world, lambda _: world.imported(node, alias, frame))


def _may_hold(run: Run, tests: Tests) -> bool:
    """Whether tests of the last function of a chain can hold in a world."""
    frame = Frame(run.chain[-1].module, run.envs[-1])
    for test, wanted in tests:
        said = truth(_evaluate(run.world, test, frame))
        if said is not None and said is not wanted:
            return False
    return True


def _evaluate(world: World, node: ast.expr, frame: Frame) -> Any:
    return ask(world, lambda _: world.evaluate(node, frame))


def _values(node: ast.expr, before: Sequence[ast.stmt]) -> Iterator[tuple[ast.expr, Tests]]:
    """What a returned expression can be, where local names are looked up."""
    match node:
        case ast.IfExp(test=test, body=body, orelse=orelse):
            for holds, part in ((True, body), (False, orelse)):
                for value, tests in _values(part, before):
                    yield value, ((test, holds), *tests)
        case ast.Name(id=name) if options := _assigned(name, before):
            for value, tests in options:
                yield value, tests
        case ast.Call(func=ast.Name(id=name)) if options := _assigned(name, before):
            for value, tests in options:
                yield ast.copy_location(ast.Call(value, node.args, node.keywords), node), tests
        case _:
            yield node, ()


def _assigned(name: str, before: Sequence[ast.stmt]) -> list[tuple[ast.expr, Tests]]:
    """What a local name can be after these statements, the last first; empty: not known."""
    for statement in reversed(before):
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return [(value, ())]
            case ast.If(test=test) if _binds(name, statement):
                one, other = _assigned(name, statement.body), _assigned(name, statement.orelse)
                if not one or not other:
                    return []
                return [
                    *((value, ((test, True), *tests)) for value, tests in one),
                    *((value, ((test, False), *tests)) for value, tests in other),
                ]
        if _binds(name, statement) and not isinstance(statement, (ast.Import, ast.ImportFrom)):
            return []
    return []


def _binds(name: str, statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
        for node in ast.walk(statement)
    )


def choices_of(run: Run) -> list[str | ast.expr]:
    """The texts that a function can give in a world, and what it gives that is none."""
    found: dict[str, str | ast.expr] = {}
    for event in events(run.chain[-1].function.body):
        if isinstance(event.node, ast.Return) and event.node.value is not None:
            for value, more in _values(event.node.value, event.before):
                if _may_hold(run, (*event.tests, *more)):
                    text = value.value if isinstance(value, ast.Constant) else None
                    found[ast.unparse(value)] = text if isinstance(text, str) else value
    return list(found.values())
