"""Functions that run one after the other while a backend is made, and their local names.

A name or attribute of the object is read where one statement sets it, of those that always run;
any other is unknown.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from selector.drift.env import Env
from selector.drift.evaluating import ancestry, ask
from selector.drift.modules import MUTATORS, Module
from selector.drift.terms import ClassTerm, Given, Instance, Place, RaisedError
from selector.drift.world import Frame, World, dotted

__all__ = ["Body", "Function", "Reads", "Run", "Tests", "paths_of", "reads_of", "run_chain"]

Function = ast.FunctionDef | ast.AsyncFunctionDef
Tests = tuple[tuple[ast.expr, bool], ...]
"""Conditions, and how each must come out."""
METHODS = 400
"""So many methods that constructors call are looked into."""


class Body(msgspec.Struct, frozen=True, eq=False):
    """One function of a chain.

    Attributes:
        label: dotted: of the function, or of the class whose constructor it is.
        module: where it stands.
        function: its node.
        cls: the class whose constructor it is.
        outer: local names around it.
        call: the call in the function before that runs it.
        tests: what leads to that call.
        certain: whether nothing else decides about that call.
    """

    label: str
    module: Module
    function: Function
    cls: ClassTerm | None = None
    outer: Env | None = None
    call: ast.Call | None = None
    tests: Tests = ()
    certain: bool = True

    @property
    def parameters(self) -> list[str]:
        """The names of its parameters, but for the object's."""
        takes = self.function.args
        named = [one.arg for one in (*takes.posonlyargs, *takes.args)]
        return [*named[self.cls is not None :], *(one.arg for one in takes.kwonlyargs)]


class Run(msgspec.Struct, frozen=True, eq=False):
    """The local names of each function of a chain in one world.

    Attributes:
        used_capability: whether they depend on the architecture.
    """

    world: World
    chain: Sequence[Body]
    envs: Sequence[Env]
    used_capability: bool


class _Stores(msgspec.Struct, frozen=True):
    """What a function binds, and how often; what it changes in place; its own methods it calls."""

    names: Counter[str]
    fields: Counter[str]
    changed: frozenset[str]
    calls: frozenset[str]


def _stores(function: ast.AST) -> _Stores:
    names: Counter[str] = Counter()
    fields: Counter[str] = Counter()
    changed: set[str] = set()
    calls: set[str] = set()
    for node in ast.walk(function):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                names[name] += 1
            case ast.alias(name=name, asname=other):
                names[other or name.split(".")[0]] += 1
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) if node is not function:
                names[name] += 1
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store() | ast.Del()):
                fields[name] += 1
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                calls.add(name)
            case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[ast.Name(id="self"), *_]):
                calls.add("*")
        match node:
            case ast.Call(func=ast.Attribute(attr=method, value=base)) if method in MUTATORS:
                changed.add(ast.unparse(base))
            case ast.Subscript(value=base, ctx=ast.Store() | ast.Del()):
                changed.add(ast.unparse(base))
            case ast.Attribute(value=ast.Name(id=name) as base, ctx=ast.Store() | ast.Del()):
                changed.add(ast.unparse(node))
    return _Stores(names, fields, frozenset(changed), frozenset(calls))


class _Object:
    """What the constructors of a chain set on their object.

    Attributes:
        once: attributes that one statement of one constructor sets, and no method that they call.
        all: every attribute that any method of the hierarchy sets.
    """

    def __init__(self, world: World, chain: Sequence[Body]) -> None:
        constructors = [body for body in chain if body.cls is not None]
        self.cls = constructors[0].cls if constructors else None
        methods = _methods(world, self.cls) if self.cls is not None else {}
        counts: Counter[str] = Counter()
        for body in constructors:
            counts += _look(world, body.function).fields
        self.all = {
            name for found in methods.values() for one in found for name in _look(world, one).fields
        } | counts.keys()
        pending = [body.function for body in constructors]
        reached: set[str] = set()
        while pending and len(reached) < METHODS:
            for name in _look(world, pending.pop()).calls - reached:
                reached.add(name)
                found = methods.get(name, [])
                pending += found
                for one in found:
                    counts += _look(world, one).fields + _look(world, one).fields
        self.once = {name for name, count in counts.items() if count == 1}
        if "*" in reached:
            self.once = set()


def _look(world: World, function: ast.AST) -> _Stores:
    found: _Stores = world.modules.look("stores", function, lambda: _stores(function))
    return found


def _asked(world: World, statement: ast.stmt) -> frozenset[str]:
    """The attributes of the object that a statement reads."""

    def look() -> frozenset[str]:
        return frozenset(
            node.attr
            for node in ast.walk(statement)
            if isinstance(node, ast.Attribute)
            and isinstance(node.ctx, ast.Load)
            and isinstance(node.value, ast.Name)
            and node.value.id == "self"
        )

    found: frozenset[str] = world.modules.look("asked", statement, look)
    return found


def _methods(world: World, cls: ClassTerm) -> dict[str, list[ast.FunctionDef]]:
    """All methods of a class and its ancestors by name, constructors left out."""
    found: dict[str, list[ast.FunctionDef]] = {}
    for one in ancestry(world, cls):
        for name, bindings in one.scope.names.items() if isinstance(one, ClassTerm) else ():
            nodes = [b.node for b in bindings if isinstance(b.node, ast.FunctionDef)]
            if name != "__init__":
                found.setdefault(name, []).extend(nodes)
    return found


def run_chain(world: World, chain: Sequence[Body], given: Mapping[str, Any]) -> Run:
    """The local names of a chain where some arguments of its first function are known.

    Args:
        world: the supposed machine.
        chain: from the function that is called first.
        given: ``argument`` or ``argument.attribute`` → its value.
    """
    return _Runner(world, chain, given).run()


class _Runner:
    def __init__(self, world: World, chain: Sequence[Body], given: Mapping[str, Any]) -> None:
        self.world, self.chain, self.given = world, chain, given
        self.object = _Object(world, chain)
        self.envs: list[Env] = [Env({}) for _ in chain]
        self.used = False
        self.read: set[str] = set()  # attributes that a statement before asks of the object
        self.receiver: Instance | None = None
        if (cls := self.object.cls) is not None:
            body = next(one for one in chain if one.cls is not None)
            fields = {name: _open(body, f"self.{name}") for name in self.object.all}
            self.receiver = Instance(cls, fields, supposed={"": lambda world: None})

    def run(self) -> Run:
        if self.chain:
            first = self.chain[0]
            self._follow(0, {name: self._argument(first, name) for name in first.parameters})
        return Run(self.world, self.chain, self.envs, self.used)

    def _argument(self, body: Body, name: str) -> Any:
        """What an argument of the first function is, as far as it is given."""
        if name in self.given:
            return self.given[name]
        stores = _look(self.world, body.function)
        root = _open(body, name)
        for path, value in self.given.items():
            parts = path.split(".")
            if parts[0] == name and path not in stores.changed:
                holder = root
                for part in parts[1:-1]:
                    holder = holder.fields.setdefault(part, _open(body, path))
                holder.fields[parts[-1]] = value
        return root

    def _follow(self, number: int, names: Mapping[str, Any]) -> None:
        body = self.chain[number]
        stores = _look(self.world, body.function)
        takes = body.function.args
        rest = [one.arg for one in (takes.vararg, takes.kwarg) if one is not None]
        known = {name: _open(body, name) for name in (*body.parameters, *rest)} | dict(names)
        known |= {name: _open(body, name) for name in stores.names}
        if self.receiver is not None and body.cls is not None:
            known["self"] = self.receiver
        env = self.envs[number] = Env(known, body.outer)
        after = self.chain[number + 1] if number + 1 < len(self.chain) else None
        done = False
        for statement in body.function.body:
            if after is not None and not done and _runs(statement, after.call):
                self._follow(number + 1, self._handed(body, env, after))
                done = True
            for target, value in _settled(self.world, body, statement):
                self._settle(body, env, target, value)
            self.read |= _asked(self.world, statement)
        if after is not None and not done:
            self._follow(number + 1, self._handed(body, env, after))

    def _settle(self, body: Body, env: Env, target: str, value: ast.expr | Import) -> None:
        name = target.removeprefix("self.")
        if name is not target and (name not in self.object.once or name in self.read):
            return
        made = self._evaluate(body, env, value)
        if isinstance(made, RaisedError):
            return
        if name is target or self.receiver is None:
            env.names[name] = made
        else:
            self.receiver.fields[name] = made

    def _evaluate(self, body: Body, env: Env, value: ast.expr | Import) -> Any:
        world, frame = self.world, Frame(body.module, env, None, body.cls)
        if isinstance(value, Import):
            made = ask(world, lambda _: world.imported(value.node, value.alias, frame))
        else:
            made = ask(world, lambda _: world.evaluate(value, frame))
        self.used = self.used or world.used_capability
        return made

    def _handed(self, body: Body, env: Env, after: Body) -> dict[str, Any]:
        """The arguments that a function hands to the next one."""
        call = after.call
        placed: list[Any] = []
        named: dict[str, Any] = {}
        opaque = call is None
        for one in call.args if call is not None else ():
            inner = one.value if isinstance(one, ast.Starred) else one
            value = self._evaluate(body, env, inner)
            if not isinstance(one, ast.Starred):
                placed.append(value)
            elif isinstance(value, (list, tuple)):
                placed += value
            else:
                opaque = True
                break
        for keyword in call.keywords if call is not None else ():
            value = self._evaluate(body, env, keyword.value)
            if keyword.arg is not None:
                named[keyword.arg] = value
            elif isinstance(value, dict):
                named |= value
            else:
                opaque = True
        return self._bound(body, after, placed, named, opaque)

    def _bound(
        self, body: Body, after: Body, placed: list[Any], named: dict[str, Any], opaque: bool
    ) -> dict[str, Any]:
        takes = after.function.args
        order_of = after.parameters[: len(after.parameters) - len(takes.kwonlyargs)]
        names = dict(zip(order_of, placed, strict=False)) | named
        defaults = dict(_defaults(after))
        for name in after.parameters:
            if name in names:
                continue
            if opaque:
                taken = name in body.parameters
                names[name] = _open(after, name) if taken else self._argument(after, name)
            elif name in defaults:
                frame = Env({}, after.outer)
                names[name] = self._evaluate(after, frame, defaults[name])
        if not opaque and takes.vararg is not None:
            names[takes.vararg.arg] = tuple(placed[len(order_of) :])
        if takes.kwarg is not None:
            extra = {name: value for name, value in named.items() if name not in after.parameters}
            names = {name: value for name, value in names.items() if name not in extra}
            if not opaque:
                names[takes.kwarg.arg] = extra
        return {
            name: _open(after, name) if isinstance(value, RaisedError) else value
            for name, value in names.items()
        }


def _defaults(body: Body) -> Iterator[tuple[str, ast.expr]]:
    takes = body.function.args
    placed = [*takes.posonlyargs, *takes.args]
    alone = zip(takes.kwonlyargs, takes.kw_defaults, strict=True)
    for one, value in (*zip(reversed(placed), reversed(takes.defaults), strict=False), *alone):
        if value is not None:
            yield one.arg, value


def _runs(statement: ast.stmt, call: ast.Call | None) -> bool:
    """Whether a statement that always runs makes a call."""
    plain = isinstance(statement, (ast.Expr, ast.Assign, ast.Return))
    return plain and any(node is call for node in ast.walk(statement))


class Import(msgspec.Struct, frozen=True, eq=False):
    """An import that binds a local name."""

    node: ast.Import | ast.ImportFrom
    alias: ast.alias


def _settled(world: World, body: Body, statement: ast.stmt) -> list[tuple[str, ast.expr | Import]]:
    stores = _look(world, body.function)
    found: list[tuple[str, ast.expr | Import]] = world.modules.look(
        "settled", statement, lambda: [*_read_settled(body, stores, statement)]
    )
    return found


def _read_settled(
    body: Body, stores: _Stores, statement: ast.stmt
) -> Iterator[tuple[str, ast.expr | Import]]:
    """What a statement sets that no other does: a local name, or ``self.name``.

    Imports in the branches of an ``if`` too: what a name names does not depend on its place.
    """
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.If)):
        for node in ast.walk(statement):
            for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
                name = alias.asname or alias.name.split(".")[0]
                if stores.names[name] == 1 and name != "*":
                    yield name, Import(node, alias)  # type: ignore[arg-type]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign) and statement.value is not None:
        targets = [statement.target]
    for target in targets:
        value: ast.expr = statement.value  # type: ignore[attr-defined]
        parts: list[tuple[ast.expr, ast.expr]] = [(target, value)]
        if isinstance(target, ast.Tuple):
            parts = [
                (one, ast.copy_location(ast.Subscript(value, ast.Constant(at), ast.Load()), value))
                for at, one in enumerate(target.elts)
            ]
        for one, given in parts:
            key = ast.unparse(one)
            match one:
                case ast.Name(id=name) if stores.names[name] == 1 and key not in stores.changed:
                    if name not in body.parameters:
                        yield name, given
                case ast.Attribute(value=ast.Name(id="self"), attr=name):
                    yield f"self.{name}", given


def _open(body: Body, name: str) -> Given:
    return Given(Place.of(body.module, body.function), name, "is whatever the caller gives")


class Reads(msgspec.Struct, frozen=True):
    """Which arguments of the first function a name is made of.

    Attributes:
        paths: ``argument`` or ``argument.attribute``.
        same: whether the name is that and nothing else.
    """

    paths: tuple[str, ...]
    same: bool = False


def reads_of(world: World, chain: Sequence[Body]) -> list[dict[str, Reads]]:
    """For each function of a chain, what its names and ``self.name`` are made of."""
    found: list[dict[str, Reads]] = []
    attributes: dict[str, Reads] = {}
    known = {name: Reads((name,), True) for name in chain[0].parameters} if chain else {}
    for number, body in enumerate(chain):
        stores = _look(world, body.function)
        known = {name: one for name, one in known.items() if not stores.names[name]}
        for statement in body.function.body:
            for target, value in _settled(world, body, statement):
                if not isinstance(value, Import):
                    where = attributes if target.startswith("self.") else known
                    where[target] = _read(value, known | attributes)
        found.append(known)
        if number + 1 < len(chain):
            known = _handed_reads(known | attributes, body, chain[number + 1])
    for one in found:
        one.update({name: reads for name, reads in attributes.items() if name not in one})
    return found


def _handed_reads(known: Mapping[str, Reads], body: Body, after: Body) -> dict[str, Reads]:
    call, takes = after.call, after.function.args
    if call is None:
        return {name: Reads((name,), True) for name in after.parameters}
    placed: list[Reads] = []
    named: dict[str, Reads] = {}
    opaque = False
    for one in call.args:
        if isinstance(one, ast.Starred):
            found = _handed_before(known, ast.unparse(one.value))
            opaque = opaque or found is None
            placed += (found or {}).values()
        else:
            placed.append(_read(one, known))
    for keyword in call.keywords:
        if keyword.arg is None:
            found = _handed_before(known, ast.unparse(keyword.value))
            opaque = opaque or found is None
            named |= found or {}
        else:
            named[keyword.arg] = _read(keyword.value, known)
    order_of = after.parameters[: len(after.parameters) - len(takes.kwonlyargs)]
    read = dict(zip(order_of, placed, strict=False)) | named
    for name in after.parameters if opaque else ():
        if name not in read and name not in body.parameters:
            read[name] = Reads((name,), True)
    if not opaque:
        rest = placed[len(order_of) :] if takes.vararg else []
        read |= {f"*{takes.vararg.arg}.{at}": one for at, one in enumerate(rest) if takes.vararg}
        extra = named.keys() - set(after.parameters) if takes.kwarg else ()
        read |= {f"*{takes.kwarg.arg}.{name}": named[name] for name in extra if takes.kwarg}
        for rest_of in (takes.vararg, takes.kwarg):
            if rest_of is not None:
                read[f"*{rest_of.arg}"] = Reads(())
    return read


def _read(node: ast.expr, known: Mapping[str, Reads]) -> Reads:
    paths = tuple(paths_of(node, known))
    return Reads(paths, bool(dotted(node)) and len(paths) == 1)


def _handed_before(known: Mapping[str, Reads], rest: str) -> dict[str, Reads] | None:
    """What ``*rest`` or ``**rest`` was handed, by place or name; ``None``: not known."""
    if f"*{rest}" not in known:
        return None
    start = f"*{rest}."
    return {name[len(start) :]: one for name, one in known.items() if name.startswith(start)}


def paths_of(node: ast.AST, known: Mapping[str, Reads], called: bool = False) -> list[str]:
    """The arguments, or attributes of one, that an expression reads."""
    if isinstance(node, (ast.Name, ast.Attribute)) and (text := dotted(node)):
        parts = text.split(".")
        for cut in range(len(parts), 0, -1):
            if (one := known.get(".".join(parts[:cut]))) is not None:
                rest = parts[cut:-1] if called else parts[cut:]
                return [".".join((path, *rest)) if one.same else path for path in one.paths]
        return []
    found: list[str] = []
    for child in ast.iter_child_nodes(node):
        found += paths_of(child, known, isinstance(node, ast.Call) and child is node.func)
    return list(dict.fromkeys(found))
