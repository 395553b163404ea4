"""One supposed machine in which code is read: what its names mean there.

A world supposes a platform and a compute capability (a reader says which names give them); whatever
else the code asks of its surroundings is unknown.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Mapping
from typing import Any

from selector.drift.env import UNBOUND, Env
from selector.drift.modules import Binding, Condition, Module, Modules, Scope, exports, read_scope
from selector.drift.sources import NAME_LENGTH
from selector.drift.terms import (
    ClassTerm,
    External,
    FunctionTerm,
    ModuleTerm,
    Place,
    RaisedError,
    Unknown,
    truth,
)
from selector.values import Finding, Severity

__all__ = ["ANY", "ASSERT", "DEPTH", "IMPORT", "STEPS", "Frame", "GaveUpError", "World", "dotted"]

STEPS = 60_000
"""So many expressions and statements are read for one question; then the answer is unknown."""
DEPTH = 110
"""Expressions and calls nested deeper than this are unknown."""

ANY, IMPORT, ASSERT = 1, 2, 4
"""What may be raised: anything, a failed import, a failed assertion."""

Evaluate = Callable[["World", ast.expr, "Frame"], Any]
Call = Callable[..., Any]


class GaveUpError(Exception):
    """Something in the code is not understood; what it was part of is unknown."""

    def __init__(self, unknown: Unknown) -> None:
        super().__init__(unknown.why)
        self.unknown = unknown.blank()


class Frame:
    """Where an expression is read: its module, local names, class body, and receiver.

    Attributes:
        around: of a comprehension: the local names of the function that it stands in.
        body: the class whose body the expression stands in.
        owner, receiver: of a method: the class that defines it, and what it is called on.
        within: of a function: how its local classes are called, ``function.<locals>``.
        owned: lists, sets and dicts made here, which nothing else can see; by identity.
        maybe: above 0 while what is read may not run.
        may_raise: what could be raised by what was read: ``ANY``, ``IMPORT``, ``ASSERT``.
        fork: the first unknown that a path depended on.
    """

    __slots__ = (
        "around", "body", "env", "fork", "may_raise", "maybe", "module", "owned", "owner",
        "receiver", "within",
    )  # fmt: skip

    def __init__(
        self,
        module: Module,
        env: Env | None = None,
        body: ClassTerm | None = None,
        owner: ClassTerm | None = None,
        receiver: Any = None,
    ) -> None:
        self.module, self.env, self.body = module, env, body
        self.owner, self.receiver = owner, receiver
        self.around: Env | None = None
        self.within = ""
        self.owned: dict[int, Any] = {}
        self.maybe = 0
        self.may_raise = 0
        self.fork: Unknown | None = None

    def fails(self, node: ast.AST, error: Exception) -> RaisedError:
        """The error that Python raises at a node, for ``raise``."""
        return RaisedError(type(error).__name__, str(error), Place.of(self.module, node))

    def unknown(self, node: ast.AST, why: str, known: bool | None = None) -> Unknown:
        """An unknown at a node of this frame's module."""
        return Unknown(Place.of(self.module, node), node, why, known)


class World:
    """The names of a source, as they are on one supposed machine.

    Args:
        modules: the source's modules.
        evaluate, call: read an expression, and a call of what was read.
        supposed: dotted name → what gives its value here. Names that are not in it and not in
            the source are unknown.
        foreign: modules that are made for another platform; importing one may fail here.

    Attributes:
        used_capability: what was read since this was cleared depends on the capability.
        cut: what was given up because of a bound or a circle, so that nothing made with it is
            remembered or believed.
        calls: what calls gave, for :mod:`selector.drift.functions`.
    """

    def __init__(
        self,
        modules: Modules,
        evaluate: Evaluate,
        call: Call,
        supposed: Mapping[str, Callable[[World], Any]],
        foreign: frozenset[str] = frozenset(),
    ) -> None:
        self.modules, self.supposed, self.foreign = modules, supposed, foreign
        self._evaluate, self._call = evaluate, call
        self.used_capability = False
        self.steps = STEPS
        self.depth = 0
        self.generations = 0
        self.cut: Unknown | None = None
        self.calls: dict[Any, Any] = {}
        self._memo: dict[Any, tuple[Any, bool]] = {}
        self._pending: list[tuple[str, str]] = []
        self._classes: dict[int, ClassTerm] = {}
        self._kept: list[ClassTerm] = []  # their identities are keys

    def evaluate(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression, or an unknown."""
        self.tick(node, frame)
        self.depth += 1
        try:
            if self.depth > DEPTH:
                self.cut = frame.unknown(node, "is nested too deeply")
                raise GaveUpError(self.cut)
            return self._evaluate(self, node, frame)
        finally:
            self.depth -= 1

    def call(self, function: Any, given: list[Any], named: dict[str, Any], at: Any) -> Any:
        """What a call gives; ``at`` is the frame and node of the call."""
        self.depth += 1  # a call takes more of Python's own stack than an expression
        try:
            return self._call(self, function, given, named, at)
        finally:
            self.depth -= 1

    def tick(self, node: ast.AST, frame: Frame) -> None:
        """Counts a step; past the bound, the question has no answer."""
        self.steps -= 1
        if self.steps < 0:
            self.cut = frame.unknown(node, f"takes more than {STEPS:,} steps to read")
            raise GaveUpError(self.cut)

    def remember(self, key: Any, compute: Callable[[], Any], cyclic: Callable[[], Any]) -> Any:
        """What a thing is, worked out once; ``cyclic`` says what it is while that goes on."""
        if (kept := self._memo.get(key)) is not None:
            if kept[0] is _PENDING:
                return cyclic()
            self.used_capability = self.used_capability or kept[1]
            return kept[0]
        outer, self.used_capability = self.used_capability, False
        cut, self.cut = self.cut, None
        self._memo[key] = (_PENDING, False)
        try:
            value = compute()
        except BaseException:
            del self._memo[key]
            self.used_capability = True
            raise
        if self.cut is not None:
            del self._memo[key]
        else:
            self._memo[key] = (value, self.used_capability)
        self.cut = self.cut or cut
        self.used_capability = self.used_capability or outer
        return value

    def by_path(self, path: str, place: Place) -> Any:
        """What a dotted path names: a module, a class, a value of the source; else unknown."""
        parts = path.split(".")
        if len(path) > NAME_LENGTH:
            return Unknown(place, path[:80], f"has more than {NAME_LENGTH} characters")
        for at in range(len(parts), 0, -1):
            module = self.modules.get(".".join(parts[:at]))
            if module is None:
                continue
            if at == len(parts):
                return ModuleTerm(module.name)
            value = self.global_name(module, parts[at], place)
            for name in parts[at + 1 :]:
                if not isinstance(value, ClassTerm):
                    return Unknown(place, path, "names nothing that can be read")
                value = self.class_name(value, name, place)
            return value
        return Unknown(place, path, "is in no module that can be read")

    def class_name(self, cls: ClassTerm, name: str, place: Place) -> Any:
        """A name of a class body itself, not of its bases."""
        found = self.bound(cls.scope, name, Frame(cls.module, cls.then, cls), cls)
        if found is UNBOUND:
            return Unknown(place, f"{cls.name}.{name}", "is not defined in the class")
        return found

    def global_name(self, module: Module, name: str, place: Place) -> Any:
        """What a global name of a module is."""
        key = ("global", module.name, name)

        def cyclic() -> Any:
            self._report_cycle(module, name)
            self.cut = Unknown(place, name, "is defined by itself")
            return self.cut

        def compute() -> Any:
            try:
                return self._global_name(module, name, place)
            except RaisedError as error:
                return Unknown(error.place, name, f"raises {error.name} when it is imported")

        self._pending.append((module.name, name))
        try:
            return self.remember(key, compute, cyclic)
        finally:
            self._pending.pop()

    def _report_cycle(self, module: Module, name: str) -> None:
        at = self._pending.index((module.name, name))
        chain = self._pending[at:]
        if len({where for where, _ in chain}) > 1:
            text = " → ".join(f"{where}.{what}" for where, what in chain)
            finding = Finding(
                module.path, 1, 1, "DRF105", Severity.ERROR,
                f"names import each other in a circle: {text[:400]}; what they are is not known",
            )  # fmt: skip
            if finding not in self.modules.findings:
                self.modules.findings.append(finding)

    def _global_name(self, module: Module, name: str, place: Place) -> Any:
        path = f"{module.name}.{name}"
        if path in self.supposed:
            return self.supposed[path](self)
        frame = Frame(module)
        bound = self.bound(module.scope, name, frame, None)
        if bound is not UNBOUND and name in module.changed and not isinstance(bound, _WHOLE):
            at = Place(module.path, module.changed[name], 1)
            return Unknown(at, name, "is changed after it was set")
        lines = [binding.node.lineno for binding in module.scope.names.get(name, ())]
        starred = self._starred(module, name, place, max(lines, default=0))
        if bound is not UNBOUND:
            return bound if starred is UNBOUND else Unknown(place, name, "is bound more than once")
        if starred is not UNBOUND:
            return starred
        if self.modules.has(path):
            return ModuleTerm(path)
        if name == "__name__":
            return module.name
        if "__getattr__" in module.scope.names or module.scope.tricks:
            return Unknown(place, name, f"is made when {module.name} is asked for it")
        if hasattr(builtins, name):
            return External(f"builtins.{name}", place)
        return Unknown(place, name, f"is not defined in {module.name}")

    def _starred(self, module: Module, name: str, place: Place, after: int) -> Any:
        """What imports of ``*`` behind a line give a name, or :data:`UNBOUND`."""
        found: list[Any] = []
        for node, conditions in module.scope.stars:
            if node.lineno <= after or self._holds(conditions, Frame(module)) is False:
                continue
            target = absolute(module, node)
            given = self.modules.get(target)
            if given is None:
                if not self.modules.owns(target) and not hasattr(builtins, name):
                    found.append(External(f"{target}.{name}", place))
            elif (exported := exports(given, name)) is None:
                found.append(Unknown(place, name, f"may be in the __all__ of {target}"))
            elif exported:
                found.append(self.global_name(given, name, place))
        if len(found) > 1:
            return Unknown(place, name, "is given by more than one import of *")
        return found[0] if found else UNBOUND

    def bound(self, scope: Scope, name: str, frame: Frame, cls: ClassTerm | None) -> Any:
        """What a scope binds a name to, or :data:`UNBOUND`."""
        held: list[tuple[Binding, bool]] = []
        for binding in scope.names.get(name, ()):
            if _amends(binding):
                continue
            state = self._holds(binding.conditions, frame)
            if state is not False:
                held.append((binding, state is True))
        if not held:
            return UNBOUND
        binding, certain = held[-1]
        if len(held) > 1 and not _same_package([one for one, _ in held]):
            return frame.unknown(binding.node, f"binds {name}, which is bound more than once")
        if not certain:
            return frame.unknown(binding.node, f"binds {name}, but may not run")
        return self.value_of(binding, frame, cls)

    def _holds(self, conditions: tuple[Condition, ...], frame: Frame) -> bool | None:
        """Whether a statement runs; ``None``: not known."""
        answer: bool | None = True
        for condition in conditions:
            held = self._condition(condition, frame)
            if held is False:
                return False
            answer = None if held is None else answer
        return answer

    def _condition(self, condition: Condition, frame: Frame) -> bool | None:
        if condition.test is None:
            return None
        test = condition.test
        base, _, last = dotted(test).rpartition(".")
        if last == "TYPE_CHECKING" and (base or _is_imported(frame.module, last)):
            return not condition.holds

        def read() -> bool | None:
            try:
                return truth(self.evaluate(test, frame))
            except (GaveUpError, RaisedError):
                return None

        held = self.remember(("condition", id(test), id(frame.body)), read, lambda: None)
        return None if held is None else held is condition.holds

    def value_of(self, binding: Binding, frame: Frame, cls: ClassTerm | None) -> Any:
        """What one binding gives its name."""
        node = binding.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return self.function(node, frame, cls)
        if isinstance(node, ast.ClassDef):
            return self.define_class(node, frame, cls)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            value = self.evaluate(node.value, frame)
            if binding.index is None:
                return value
            if isinstance(value, (tuple, list)) and binding.index < len(value):
                return value[binding.index]
            return frame.unknown(node, "unpacks what cannot be read")
        if binding.alias is not None and isinstance(node, (ast.Import, ast.ImportFrom)):
            return self.imported(node, binding.alias, frame)
        return frame.unknown(node, f"binds {binding.name} in a way that is not read")

    def imported(self, node: ast.Import | ast.ImportFrom, alias: ast.alias, frame: Frame) -> Any:
        """What an import binds."""
        place = Place.of(frame.module, node)
        if isinstance(node, ast.Import):
            path = alias.name if alias.asname else alias.name.split(".")[0]
            return ModuleTerm(path) if self.modules.has(path) else External(path, place)
        base = absolute(frame.module, node)
        if f"{base}.{alias.name}" in self.supposed:
            return self.supposed[f"{base}.{alias.name}"](self)
        module = self.modules.get(base)
        if module is not None:
            return self.global_name(module, alias.name, place)
        if self.modules.has(f"{base}.{alias.name}"):
            return ModuleTerm(f"{base}.{alias.name}")
        return External(f"{base}.{alias.name}", place)

    def function(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef,
        frame: Frame,
        cls: ClassTerm | None,
    ) -> FunctionTerm:
        """The function that a ``def`` makes, and how it is bound to its class."""
        kind = "function"
        for decorator in node.decorator_list:
            expression = decorator.func if isinstance(decorator, ast.Call) else decorator
            value = self.evaluate(expression, frame)
            path = value.path if isinstance(value, External) else ""
            if path in _KINDS:
                kind = _KINDS[path] if kind == "function" else "unknown"
            elif path not in _TRANSPARENT:
                kind = "unknown"
        if isinstance(node, ast.AsyncFunctionDef):
            kind = "unknown"
        return self.closure(node, frame, cls, kind)

    def closure(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        frame: Frame,
        cls: ClassTerm | None,
        kind: str = "function",
    ) -> FunctionTerm:
        """A function with the local names around it, and its defaults as they are now."""
        outer = frame.env if frame.body is None else frame.body.outer
        made = FunctionTerm(node, frame.module, cls, outer, kind)
        if outer is None:
            return made
        outer.captured = True
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None and not isinstance(default, ast.Constant):
                made.defaults[id(default)] = self.evaluate(default, frame)
        return made

    def define_class(self, node: ast.ClassDef, frame: Frame, cls: ClassTerm | None) -> Any:
        """The class that a ``class`` statement makes; unknown where a decorator may change it."""
        for decorator in node.decorator_list:
            expression = decorator.func if isinstance(decorator, ast.Call) else decorator
            value = self.evaluate(expression, frame)
            if not isinstance(value, External) or value.path not in _CLASS_DECORATORS:
                return frame.unknown(decorator, f"decorates {node.name} and may replace it")
        if frame.env is None and id(node) in self._classes:
            return self._classes[id(node)]
        around = cls.name if cls is not None else frame.within
        name = f"{around}.{node.name}" if around else node.name
        outer = frame.env if frame.body is None else frame.body.outer
        term = ClassTerm(name, node, frame.module, read_scope(node.body), outer)
        if frame.body is not None:
            term.then = frame.env
        self._kept.append(term)
        if frame.env is None:
            self._classes[id(node)] = term
        else:
            frame.env.captured = True
        return term


_PENDING = object()
_WHOLE = (ClassTerm, FunctionTerm, ModuleTerm)
"""What a call that is handed it does not replace."""

_KINDS = {
    "builtins.staticmethod": "static",
    "builtins.classmethod": "class",
    "builtins.property": "property",
    "functools.cached_property": "property",
}
_TRANSPARENT = frozenset({
    "abc.abstractmethod",
    "functools.cache",
    "functools.lru_cache",
    "typing.final",
    "typing.no_type_check",
    "typing.override",
    "typing_extensions.override",
})  # fmt: skip
_CLASS_DECORATORS = frozenset({
    "dataclasses.dataclass",
    "enum.unique",
    "typing.final",
    "typing.runtime_checkable",
    "typing_extensions.final",
    "typing_extensions.runtime_checkable",
})  # fmt: skip


def _amends(binding: Binding) -> bool:
    """A setter of a property or an overload for type checkers: the name keeps what it had."""
    for decorator in getattr(binding.node, "decorator_list", ()):
        if dotted(decorator).rpartition(".")[2] in ("setter", "deleter", "overload"):
            return True
    return False


def _is_imported(module: Module, name: str) -> bool:
    bindings = module.scope.names.get(name, ())
    return all(isinstance(one.node, ast.ImportFrom) for one in bindings)


def _same_package(bindings: list[Binding]) -> bool:
    """``import a`` and ``import a.b`` bind the same."""
    return all(
        isinstance(one.node, ast.Import) and one.alias is not None and not one.alias.asname
        for one in bindings
    )


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of names and dots alone; else nothing."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def absolute(module: Module, node: ast.ImportFrom) -> str:
    """The module that a ``from … import`` names, without leading dots."""
    if not node.level:
        return node.module or ""
    parts = module.name.split(".")
    keep = len(parts) - node.level + (1 if module.is_package else 0)
    return ".".join([*parts[: max(keep, 0)], *([node.module] if node.module else [])])
