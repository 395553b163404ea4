"""FlashInfer: functions that declare their compute capabilities, and plans of latent attention.

There is no registry. ``supported_compute_capability`` puts a list on a function;
``backend_requirement`` takes functions with such lists, one a backend, and refuses calls elsewhere.
Each class that plans latent attention has a record of what it can do, and raises where it cannot.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from selector.drift.evaluating import Worlds, answer_of, ask, make_worlds, position
from selector.drift.hierarchy import find_member
from selector.drift.modules import Module, Modules
from selector.drift.raising import find_raise
from selector.drift.reading import Answer, EngineReading, Operator, Vocabulary
from selector.drift.terms import (
    BoundMethod,
    ClassTerm,
    External,
    FunctionTerm,
    Instance,
    Place,
    RaisedError,
    Unknown,
)
from selector.drift.world import Frame, World
from selector.values import Position

__all__ = ["READER", "FlashInfer"]

LIST, REQUIREMENT = "supported_compute_capability", "backend_requirement"
"""The decorators that declare: a function's own list, and the lists of its backends."""
RECORD, RECORD_CLASS = "_plan_capabilities", "MLAPlanCapabilities"
PLANS = ("preflight_plan_from_wrapper", "plan_from_wrapper")
"""The methods that plan, the first that a class has; both raise before anything is compiled."""
CAPABILITY = "flashinfer.utils.get_compute_capability"
ASKING = ("get_compute_capability", "get_device_capability", "is_sm")
"""What the text of a function that raises on some architectures has, or of one that it calls."""
KEEPING = frozenset({LIST, REQUIREMENT, "experimental_backend", "flashinfer_api"})
"""FlashInfer's decorators that keep a list; those of ``functools`` do too."""
ATTENTION = tuple(
    f"flashinfer.{name}."
    for name in (
        "attention", "attn_scores", "cudnn", "decode", "mla", "msa_ops", "nvfp4_attention_sm120",
        "prefill", "sparse", "topk_varlen", "xqa",
    )
)  # fmt: skip
"""Where attention is; functions of other modules are read for what they declare alone."""
VOCABULARY = Vocabulary(
    lists={"kv_layout": "kv_layouts"}, features={"sink": ("supports_sinks", True)}
)

Defined = tuple[str, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]


class FlashInfer:
    """The reader of FlashInfer."""

    name = "flashinfer"
    package = "flashinfer"
    library = "flashinfer-python"

    def read(self, modules: Modules, capabilities: Sequence[str]) -> EngineReading:
        """What functions and MLA plans declare; no other module is parsed than those that do."""
        worlds = make_worlds(modules, capabilities, _suppose(modules))
        found: dict[str, Operator] = {}
        for module in modules.mentioning((LIST, REQUIREMENT, RECORD)):
            for operator in _read_module(worlds, module):
                found[operator.name] = operator
        for module in modules.mentioning(ASKING, ATTENTION):
            for operator in _read_refusals(worlds, module):
                found.setdefault(operator.name, operator)
        if not found:
            modules.report_missing(f"function with {LIST}", "operators")
        return EngineReading(
            self.name,
            modules.source.version,
            modules.source.label,
            "cuda",
            tuple(capabilities),
            (),
            (),
            modules.count,
            tuple(sorted(modules.findings)),
            VOCABULARY,
            tuple(found.values()),
            self.library,
        )


READER = FlashInfer()


def _suppose(modules: Modules) -> Callable[[str], Mapping[str, Callable[[World], Any]]]:
    """A device of each compute capability, by the function that all of FlashInfer asks."""

    def suppose(capability: str) -> Mapping[str, Callable[[World], Any]]:
        major, _, minor = capability.partition(".")
        text = f"def get_compute_capability(device):\n    return ({int(major)}, {int(minor)})\n"
        node = ast.parse(text).body[0]
        assert isinstance(node, ast.FunctionDef)

        def supposed(world: World) -> Any:
            module = modules.get(CAPABILITY.rpartition(".")[0])
            if module is None:
                return Unknown(Place("", 1, 1), CAPABILITY, "is in no module that can be read")
            world.used_capability = True
            return FunctionTerm(node, module, None, None)

        return {CAPABILITY: supposed}

    return suppose


def _read_module(worlds: Worlds, module: Module) -> Iterator[Operator]:
    world = worlds.first
    for path, node in _definitions(module.tree.body, ""):
        name = f"{module.name}.{path}"
        if isinstance(node, ast.ClassDef):
            yield from _read_plan(worlds, name, node)
            continue
        said = [(one, _declares(world, module, one)) for one in node.decorator_list]
        declaring = {kind: decorator for decorator, kind in reversed(said) if kind}
        if not declaring:
            continue
        at = position(Place.of(module, node))
        attention = _is_attention(name)
        term = _find(world, name)
        if not isinstance(term, FunctionTerm) or term.node is not node:
            doubt = term if isinstance(term, Unknown) else None
            other = Unknown(Place.of(module, node), path, "is bound to something else, too")
            yield Operator(name, at, _unread(doubt or other, node, module), attention=attention)
        elif REQUIREMENT in declaring:
            accepts, backends = _requirement(world, term, declaring[REQUIREMENT])
            yield Operator(name, at, accepts, backends, True, attention=attention)
        else:
            yield Operator(name, at, _listed(world, term), attention=attention)


def _read_refusals(worlds: Worlds, module: Module) -> Iterator[Operator]:
    """Public functions that certainly raise on some architectures and not on others."""
    for path, node in _definitions(module.tree.body, ""):
        name = f"{module.name}.{path}"
        if isinstance(node, ast.ClassDef) or path.startswith("_") or "." in path:
            continue
        if not all(_keeps(worlds.first, module, one) for one in node.decorator_list):
            continue

        def locate(world: World, name: str = name, node: ast.AST = node) -> FunctionTerm | None:
            term = _find(world, name)
            return term if isinstance(term, FunctionTerm) and term.node is node else None

        refused = _refused(worlds, locate)
        if refused and refused.keys() != worlds.by_capability.keys():
            at = position(Place.of(module, node))
            yield Operator(name, at, enforced=True, refuses=refused, attention=True)


def _definitions(body: list[ast.stmt], around: str) -> Iterator[Defined]:
    """Functions and classes of a module and of its classes, under conditions too."""
    for statement in body:
        if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{around}{statement.name}", statement
        elif isinstance(statement, ast.ClassDef):
            yield f"{around}{statement.name}", statement
            yield from _definitions(statement.body, f"{around}{statement.name}.")
        else:
            for inner in ("body", "orelse", "finalbody"):
                yield from _definitions(getattr(statement, inner, []), around)
            for handler in getattr(statement, "handlers", []):
                yield from _definitions(handler.body, around)


def _is_attention(name: str) -> bool:
    return name.startswith(ATTENTION)


def _declares(world: World, module: Module, decorator: ast.expr) -> str:
    """The decorator that an expression is, if it is one that declares."""
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    value = _evaluate(world, call, Frame(module))
    if isinstance(value, FunctionTerm):
        name = value.name
    elif isinstance(value, Unknown):
        name = getattr(call, "attr", getattr(call, "id", ""))
    else:
        return ""
    return name if name in (LIST, REQUIREMENT) else ""


def _unread(why: Any, node: ast.AST, module: Module) -> Answer:
    """The answer that something which is no list gives."""
    at = Place.of(module, node)
    if isinstance(why, (Unknown, RaisedError)):
        return answer_of(why, at)
    return answer_of(Unknown(at, node, "is not what is read here"), at)


def _arguments(world: World, term: FunctionTerm, call: ast.expr, names: tuple[str, ...]) -> Any:
    """The arguments of a decorator by name; unknown where they are given in another way."""
    given: dict[str, Any] = {}
    frame = Frame(term.module, term.outer, term.owner)
    if not isinstance(call, ast.Call) or len(call.args) > len(names):
        return frame.unknown(call, "decorates in a way that is not read")
    if any(isinstance(one, ast.Starred) for one in call.args):
        return frame.unknown(call, "decorates in a way that is not read")
    pairs = [*zip(names, call.args, strict=False), *((one.arg, one.value) for one in call.keywords)]
    for name, node in pairs:
        if name not in names:
            return frame.unknown(call, "decorates in a way that is not read")
        given[name] = _evaluate(world, node, frame), node
    return given


def _listed(world: World, term: FunctionTerm) -> Answer | None:
    """The capabilities that a function's own list names; ``None``: it has no list."""
    for decorator in term.node.decorator_list:  # type: ignore[union-attr]
        kind = _declares(world, term.module, decorator)
        if kind == LIST:
            given = _arguments(world, term, decorator, ("supported_ccs",))
            if not isinstance(given, dict) or not given:
                return _unread(given, decorator, term.module)
            value, node = given["supported_ccs"]
            return _capabilities(value, node, term.module)
        if not _keeps(world, term.module, decorator):
            why = Unknown(Place.of(term.module, decorator), decorator, "may hide the list below it")
            below = term.node.decorator_list  # type: ignore[union-attr]
            if any(_declares(world, term.module, one) == LIST for one in below):
                return _unread(why, decorator, term.module)
    return None


def _keeps(world: World, module: Module, decorator: ast.expr) -> bool:
    """Whether what a decorator makes of a function still has the function's attributes."""
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    value = _evaluate(world, call, Frame(module))
    if isinstance(value, External):
        return value.path.startswith(("functools.", "builtins.", "contextlib."))
    return isinstance(value, FunctionTerm) and value.name in KEEPING


def _capabilities(value: Any, node: ast.AST, module: Module) -> Answer:
    """A list such as ``[80, 103]`` as ``["8.0", "10.3"]``."""
    at = Place.of(module, node)
    if isinstance(value, (Unknown, RaisedError)):
        return answer_of(value, at)
    if not isinstance(value, (list, tuple, set, frozenset, range, dict)):
        plain = value is None or isinstance(value, (bool, int, float, str))
        return Answer(raises="TypeError") if plain else _unread(None, node, module)
    codes: dict[str, None] = {}
    for code in sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value:
        if isinstance(code, (Unknown, External, Instance)):
            return _unread(code, node, module)
        if type(code) is not int:
            return Answer(raises="TypeError")
        codes[f"{code // 10}.{code % 10}"] = None
    return Answer(value=list(codes))


def _requirement(
    world: World, term: FunctionTerm, decorator: ast.expr
) -> tuple[Answer | None, dict[str, Answer]]:
    """What a call is refused without: the list of all, or those of each backend."""
    names = ("backend_checks", "common_check", "heuristic_func")
    given = _arguments(world, term, decorator, names)
    if not isinstance(given, dict) or "backend_checks" not in given:
        return _unread(given, decorator, term.module), {}
    checks, node = given["backend_checks"]
    texts = isinstance(checks, dict) and all(isinstance(name, str) for name in checks)
    if not isinstance(checks, dict) or not texts:
        return _unread(checks, node, term.module), {}
    if checks:
        return None, {
            name: _checked(world, check, node, term.module, Answer(value=[]))
            for name, check in checks.items()
        }
    check, node = given.get("common_check", (None, decorator))
    if check is None:
        return Answer(raises="ValueError"), {}
    return _checked(world, check, node, term.module, Answer(raises="ValueError")), {}


def _checked(world: World, check: Any, node: ast.AST, module: Module, without: Answer) -> Answer:
    """The list of a function that checks; ``without``: what it means to have none."""
    if not isinstance(check, FunctionTerm) or isinstance(check.node, ast.Lambda):
        return _unread(check, node, module)
    listed = _listed(world, check)
    return without if listed is None else listed


def _read_plan(worlds: Worlds, name: str, node: ast.ClassDef) -> Iterator[Operator]:
    """What a class that plans latent attention records, and where it raises."""
    world = worlds.first
    cls = _find(world, name)
    if not isinstance(cls, ClassTerm) or cls.node is not node or RECORD not in cls.scope.names:
        return
    value = ask(world, lambda frame: world.class_name(cls, RECORD, cls.place))
    stated = cls.scope.names[RECORD][-1].node
    if value is None or not isinstance(stated, ast.stmt):
        return  # a base class or a protocol: its heirs have one
    at = position(Place.of(cls.module, stated))
    features = {RECORD: _unread(value, node, cls.module)}
    if isinstance(value, Instance) and value.cls.name == RECORD_CLASS:
        features = {key: answer_of(part, cls.place) for key, part in value.fields.items()}
    refuses = _refused(worlds, lambda world: _plan(world, _find(world, name)))
    yield Operator(name, at, None, {}, True, refuses, features, _is_attention(name))


def _refused(
    worlds: Worlds, locate: Callable[[World], FunctionTerm | BoundMethod | None]
) -> dict[str, Position]:
    """The compute capabilities on which a function certainly raises, and where."""
    refused: dict[str, Position] = {}
    for capability, world in worlds.by_capability.items():
        function = locate(world)
        at = find_raise(world, function) if function is not None else None
        if at is not None:
            refused[capability] = position(at)
        if function is None or not world.used_capability:
            break  # it does not ask for the architecture
    return refused


def _find(world: World, path: str) -> Any:
    return ask(world, lambda _: world.by_path(path, Place("", 1, 1)))


def _evaluate(world: World, node: ast.expr, frame: Frame) -> Any:
    return ask(world, lambda _: world.evaluate(node, frame))


def _member(world: World, cls: Any, name: str) -> Any:
    member = ask(world, lambda _: find_member(world, cls, name))
    return getattr(member, "value", None)


def _plan(world: World, cls: Any) -> BoundMethod | None:
    for name in PLANS:
        function = _member(world, cls, name)
        if isinstance(function, FunctionTerm):
            return BoundMethod(function, cls)
    return None
