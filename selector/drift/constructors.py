"""What constructors refuse, and which capabilities they set on the object."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from selector.drift.chains import Body
from selector.drift.evaluating import Probe, Worlds, ancestry, label, position
from selector.drift.guards import events, read_guards
from selector.drift.reading import Assigned, Guard
from selector.drift.terms import ClassTerm, Place
from selector.drift.world import World

__all__ = ["constructors_of", "read_constructors"]


def read_constructors(
    worlds: Worlds,
    locate: Callable[[World], Any],
    wanted: re.Pattern[str],
    probes: Mapping[str, Probe],
) -> tuple[tuple[Assigned, ...], tuple[Guard, ...]]:
    """The guards of a class's constructors and what they assign, its own first.

    Args:
        worlds: the supposed machines.
        locate: world → the class there.
        wanted: names of the attributes whose assignment is told.
        probes: argument, or ``argument.attribute`` → the values with which the tests are asked,
            one argument at a time.
    """

    def chain(world: World) -> list[Body]:
        return constructors_of(world, locate(world))

    assigned = [one for body in chain(worlds.first) for one in read_assignments(body, wanted)]
    return tuple(assigned), read_guards(worlds, chain, probes)


def constructors_of(world: World, cls: Any) -> list[Body]:
    """The constructors that run, in order: each that calls ``super().__init__`` has a next."""
    found: list[Body] = []
    call, way = None, None
    for one in ancestry(world, cls):
        if not isinstance(one, ClassTerm):
            continue
        bindings = one.scope.names.get("__init__", [])
        if len(bindings) != 1 or not isinstance(bindings[0].node, ast.FunctionDef):
            continue
        function = bindings[0].node
        tests, certain = (way.tests, way.certain) if way is not None else ((), call is None)
        body = Body(label(one), one.module, function, one, one.outer, call, tests, certain)
        found.append(body)
        if (call := _super_call(function)) is None:
            break
        way = next(events(function.body, sought=call), None)
    return found


def _super_call(function: ast.AST) -> ast.Call | None:
    for node in ast.walk(function):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="__init__", value=ast.Call(func=ast.Name(id="super")))
            ):
                return node
    return None


def read_assignments(body: Body, wanted: re.Pattern[str]) -> Iterator[Assigned]:
    """The attributes that a constructor sets on its object."""
    for node in ast.walk(body.function):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            targets = [node.target]
        for target in targets:
            match target:
                case ast.Attribute(value=ast.Name(id="self"), attr=name) if wanted.search(name):
                    value = ast.unparse(node.value)[:200]  # type: ignore[attr-defined]
                    at = position(Place.of(body.module, node))
                    yield Assigned(name, body.label, at, value)
