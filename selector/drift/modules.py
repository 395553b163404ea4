"""Modules of a source: their syntax trees, what each name is bound to, and what is changed later.

A name can be bound more than once, under conditions, or changed after it was bound. All of that is
kept, because a reader that takes the last assignment it sees would state wrong values.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from selector.drift.sources import Source
from selector.values import Finding, Severity

__all__ = [
    "MUTATORS",
    "Binding",
    "Condition",
    "Module",
    "Modules",
    "Scope",
    "exports",
    "read_changes",
    "read_scope",
]

MODULES = 4_000
"""No more modules than this are read of one source."""
NESTING = 60
"""Statements nested deeper than this are not looked into."""

MUTATORS = frozenset(
    [
        "append",
        "extend",
        "insert",
        "add",
        "update",
        "remove",
        "discard",
        "pop",
        "popitem",
        "clear",
        "setdefault",
        "sort",
        "reverse",
        "intersection_update",
        "difference_update",
        "symmetric_difference_update",
    ]
)


class Condition(msgspec.Struct, frozen=True):
    """A condition under which a binding is reached.

    Attributes:
        test: the test of an ``if``; ``None``: a ``try``, a loop, a ``with``: it may or may not run.
        holds: whether the test must be true (the body) or false (the ``else``).
    """

    test: ast.expr | None
    holds: bool = True


class Binding(msgspec.Struct, frozen=True):
    """One statement that gives a name something.

    Attributes:
        name: the name.
        node: a function, class, assignment or import; any other statement says nothing readable.
        conditions: the conditions around it, outermost first.
        index: which element of an unpacked tuple the name gets; ``None``: all of the value.
        alias: of an import, the name that is imported.
    """

    name: str
    node: ast.stmt | ast.expr
    conditions: tuple[Condition, ...] = ()
    index: int | None = None
    alias: ast.alias | None = None


class Scope(msgspec.Struct):
    """What the names of a module or a class body are bound to.

    Attributes:
        names: name → bindings in order.
        stars: imports of ``*``, with the conditions around them.
        tricks: a call in the body that can bind names unseen (``exec``, ``vars``, ``locals``).
    """

    names: dict[str, list[Binding]] = {}
    stars: list[tuple[ast.ImportFrom, tuple[Condition, ...]]] = []
    tricks: bool = False


class Module(msgspec.Struct):
    """A module as it was read.

    Attributes:
        name: dotted.
        path: its file inside the source.
        is_package: whether it is an ``__init__.py``.
        tree: its syntax tree.
        scope: its names.
        changed: names of its globals that code in it changes after they were bound.
        class_stores: attribute → where code in it sets or changes that attribute of a class.
    """

    name: str
    path: str
    is_package: bool
    tree: ast.Module
    scope: Scope
    changed: dict[str, int]
    class_stores: dict[str, int]


class Modules:
    """Reads modules when they are asked for, each once; what cannot be read is a finding."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.findings: list[Finding] = source.findings
        self._read: dict[str, Module | None] = {}
        self._seen: dict[tuple[str, int], tuple[ast.AST, Any]] = {}

    def look(self, what: str, node: ast.AST, compute: Callable[[], Any]) -> Any:
        """What is seen in a node, worked out once for all worlds."""
        kept = self._seen.get((what, id(node)))
        if kept is None:
            kept = self._seen[what, id(node)] = (node, compute())
        return kept[1]

    @property
    def count(self) -> int:
        """How many modules were read."""
        return sum(module is not None for module in self._read.values())

    def get(self, name: str) -> Module | None:
        """A module by its dotted name; ``None``: not in the source, or it could not be read."""
        if name in self._read:
            return self._read[name]
        if not self.owns(name) or len(self._read) >= MODULES:
            return None
        self._read[name] = module = self._load(name)
        return module

    def mentioning(self, words: Sequence[str], under: Sequence[str] = ("",)) -> Iterator[Module]:
        """The modules whose text holds one of these words; only those are parsed.

        ``under``: beginnings of dotted names; other modules are not looked into.
        """
        sought = re.compile("|".join(re.escape(word) for word in words).encode())
        for name in self.source.names():
            if not f"{name}.".startswith(tuple(under)):
                continue
            file = self.source.read(name) if name not in self._read else None
            if file is None or sought.search(file.data):
                module = self.get(name)
                if module is not None:
                    yield module

    def owns(self, name: str) -> bool:
        """Whether a name belongs to the package that is read."""
        package = self.source.package
        return name == package or name.startswith(f"{package}.")

    def has(self, name: str) -> bool:
        """Whether there is a module or a folder of this name in the source."""
        return self.owns(name) and self.source.has(name)

    def report_missing(self, what: str, unknown: str) -> None:
        """Notes that the source lacks what a reader starts from, so that nothing of it is known."""
        why = f"has no {what} that can be read; its {unknown} are not known"
        self.findings.append(Finding(self.source.label, 1, 1, "DRF107", Severity.ERROR, why))

    def _load(self, name: str) -> Module | None:
        file = self.source.read(name)
        if file is None:
            return None
        try:
            tree = ast.parse(file.data, file.path)
            scope = read_scope(tree.body)
            changed, stores = read_changes(tree)
        except SyntaxError as error:
            self._broken(file.path, error.lineno or 1, error.offset or 1, error.msg)
            return None
        except (ValueError, RecursionError, MemoryError) as error:
            what = str(error).splitlines()[0] if str(error) else type(error).__name__
            self._broken(file.path, 1, 1, what)
            return None
        return Module(name, file.path, file.is_package, tree, scope, changed, stores)

    def _broken(self, path: str, line: int, column: int, why: str) -> None:
        message = f"cannot be read as Python: {why[:200]}; what it defines is not known"
        self.findings.append(Finding(path, line, max(column, 1), "DRF104", Severity.ERROR, message))


def read_scope(body: list[ast.stmt]) -> Scope:
    """The names that statements bind, those inside ``if``, ``try``, loops and ``with`` too.

    Functions and classes are scopes of their own and are not looked into.
    """
    scope = Scope({}, [], False)
    _read_body(body, (), scope, 0)
    return scope


_MAYBE = Condition(None)


def _read_body(
    body: list[ast.stmt], conditions: tuple[Condition, ...], scope: Scope, depth: int
) -> None:
    if depth > NESTING:
        scope.tricks = True
        return
    for statement in body:
        for binding in _bindings(statement, conditions):
            scope.names.setdefault(binding.name, []).append(binding)
        if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
            scope.stars.append((statement, conditions))
        elif isinstance(statement, ast.If):
            test = statement.test
            _read_body(statement.body, (*conditions, Condition(test)), scope, depth + 1)
            _read_body(statement.orelse, (*conditions, Condition(test, False)), scope, depth + 1)
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            scope.tricks = scope.tricks or _plays_tricks(statement)
            for inner in _inner_bodies(statement):
                _read_body(inner, (*conditions, _MAYBE), scope, depth + 1)


def _inner_bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    for field in ("body", "orelse", "finalbody"):
        if isinstance(inner := getattr(statement, field, None), list):
            yield inner
    for handler in getattr(statement, "handlers", ()):
        yield handler.body
    for case in getattr(statement, "cases", ()):
        yield case.body


def _bindings(statement: ast.stmt, conditions: tuple[Condition, ...]) -> Iterator[Binding]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield Binding(statement.name, statement, conditions)
        case ast.Import() | ast.ImportFrom():
            for alias in statement.names:
                if alias.name != "*":
                    name = alias.asname or alias.name.split(".")[0]
                    yield Binding(name, statement, conditions, alias=alias)
        case ast.Assign():
            for target in statement.targets:
                yield from _targets(target, statement, conditions)
        case ast.AnnAssign(value=ast.expr(), target=ast.Name(id=name)):
            yield Binding(name, statement, conditions)
        case _:
            yield from _other_names(statement, conditions)


def _targets(
    target: ast.expr, statement: ast.Assign, conditions: tuple[Condition, ...]
) -> Iterator[Binding]:
    if isinstance(target, ast.Name):
        yield Binding(target.id, statement, conditions)
    elif isinstance(target, (ast.Tuple, ast.List)):
        plain = all(isinstance(element, ast.Name) for element in target.elts)
        for index, element in enumerate(target.elts):
            for node in ast.walk(element):
                if isinstance(node, ast.Name):
                    known = statement if plain else node
                    yield Binding(node.id, known, conditions, index if plain else None)


def _other_names(statement: ast.stmt, conditions: tuple[Condition, ...]) -> Iterator[Binding]:
    """Names that a loop, ``with``, ``del``, ``except … as`` or ``:=`` binds: nothing readable."""
    heads: list[ast.AST] = []
    for field, value in ast.iter_fields(statement):
        if field in ("body", "orelse", "finalbody", "cases"):
            continue
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, ast.ExceptHandler):
                if part.name:
                    yield Binding(part.name, statement, conditions)
            elif isinstance(part, ast.AST):
                heads.append(part)
    for head in heads:
        for node in ast.walk(head):
            if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
                yield Binding(node.id, node, conditions)


def _plays_tricks(statement: ast.stmt) -> bool:
    """Whether a plain statement calls what can bind names unseen."""
    if any(True for _ in _inner_bodies(statement)) or isinstance(
        statement, (ast.Import, ast.ImportFrom)
    ):
        return False
    calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
    names = {one.id for one in calls if isinstance(one, ast.Name)}
    return bool(names & {"exec", "eval", "vars", "locals", "globals"})


def read_changes(tree: ast.Module) -> tuple[dict[str, int], dict[str, int]]:
    """The globals that are changed in place, and the attributes of classes that are set."""
    names = {"cls"}
    stores_and_calls: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Call, ast.Global, ast.AugAssign)):
            stores_and_calls.append(node)
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            if not isinstance(node.ctx, ast.Load):
                stores_and_calls.append(node)
        elif isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.asname or alias.name for alias in node.names)
    classes = frozenset(one for one in names if one == "cls" or one.lstrip("_")[:1].isupper())
    changed: dict[str, int] = {}
    stores: dict[str, int] = {}
    for node in stores_and_calls:
        _note(node, classes, changed, stores)
    for statement in tree.body:
        _note_other_names(statement, changed)
    return changed, stores


def _note_other_names(statement: ast.stmt, changed: dict[str, int]) -> None:
    """Globals that have another name, or that are handed to a function when the module is read."""
    match statement:
        case ast.Assign(targets=[ast.Name(id=other)], value=ast.Name(id=name)) if other in changed:
            changed.setdefault(name, changed[other])
        case ast.Expr(value=ast.Call(func=ast.Name(), args=args)):
            for one in args:
                if isinstance(one, ast.Name):
                    changed.setdefault(one.id, statement.lineno)


def _note(
    node: ast.AST, classes: frozenset[str], changed: dict[str, int], stores: dict[str, int]
) -> None:
    """Notes what one statement or call changes; ``classes`` are the names that look like one."""
    match node:
        case ast.Global():
            changed.update(dict.fromkeys(node.names, node.lineno))
        case ast.Call(func=ast.Attribute(attr=method, value=base)) if method in MUTATORS:
            _note_change(base, node.lineno, changed, stores)
        case ast.Subscript(value=base):
            _note_change(base, node.lineno, changed, stores)
        case ast.AugAssign(target=ast.Attribute(attr=name)):
            stores.setdefault(name, node.lineno)  # a list of the class is changed in place
        case ast.Attribute(value=base, attr=name):
            if _may_be_class(base):
                stores.setdefault(name, node.lineno)
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[base, name, *_]):
            if isinstance(name, ast.Constant):
                if _may_be_class(base):
                    stores.setdefault(str(name.value), node.lineno)
            elif _is_class(base, classes):
                stores.setdefault("*", node.lineno)


def _note_change(
    base: ast.expr, line: int, changed: dict[str, int], stores: dict[str, int]
) -> None:
    """A list or mapping is changed in place: a global's, or that of an attribute."""
    if isinstance(base, ast.Name):
        changed.setdefault(base.id, line)
    elif isinstance(base, ast.Attribute):
        stores.setdefault(base.attr, line)


def _may_be_class(base: ast.expr) -> bool:
    """Whether what is set on it may be set on a class: on anything but an object's ``self``."""
    return not (isinstance(base, ast.Name) and base.id == "self")


def _is_class(base: ast.expr, classes: frozenset[str]) -> bool:
    match base:
        case ast.Name(id=name):
            return name in classes
        case ast.Attribute(attr="__class__"):
            return True
        case ast.Attribute(attr=name):
            return name in classes
        case ast.Call(func=ast.Name(id="type")):
            return True
    return False


def exports(module: Module, name: str) -> bool | None:
    """Whether ``from module import *`` gives a name; ``None``: not known."""
    listed = module.scope.names.get("__all__")
    here = name in module.scope.names or bool(module.scope.stars)
    if listed is None:
        return here and not name.startswith("_")
    values = [getattr(binding.node, "value", None) for binding in listed]
    for value in values:
        for node in ast.walk(value) if isinstance(value, ast.expr) else ():
            if isinstance(node, ast.Constant) and node.value == name:
                return True
    plain = len(values) == 1 and isinstance(values[0], (ast.List, ast.Tuple))
    return False if not here or (plain and "__all__" not in module.changed) else None
