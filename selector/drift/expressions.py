"""What an expression gives: a value, or an unknown with its place. It never guesses."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from selector.drift.attributes import PlainMethod, attribute
from selector.drift.comparing import SIZE, compare, is_plain
from selector.drift.env import UNBOUND, Env
from selector.drift.items import has_order, items_of, make_set, put
from selector.drift.modules import MUTATORS
from selector.drift.terms import (
    ClassTerm,
    EnumMember,
    External,
    Instance,
    Items,
    Place,
    RaisedError,
    SuperTerm,
    Unknown,
    same,
    truth,
)
from selector.drift.world import ANY, Frame, GaveUpError, World

__all__ = ["evaluate"]

NUMBER = 10**30
"""No whole number beyond this is made."""


def evaluate(world: World, node: ast.expr, frame: Frame) -> Any:
    """The value of an expression in a frame."""
    handler = _HANDLERS.get(type(node))
    if handler is None:
        raise GaveUpError(frame.unknown(node, f"is a {type(node).__name__}, which is not read"))
    return handler(world, node, frame)


def _constant(world: World, node: ast.Constant, frame: Frame) -> Any:
    return node.value


def _name(world: World, node: ast.Name, frame: Frame) -> Any:
    body = frame.body
    if body is not None and _is_bound_before(body, node, frame):
        found = world.remember(
            ("body", id(body), node.id),
            lambda: world.bound(body.scope, node.id, frame, body),
            lambda: frame.unknown(node, "is defined by itself"),
        )
        if found is not UNBOUND:
            return found
    if frame.env is not None:
        bound, value = frame.env.find(node.id)
        if value is UNBOUND:
            raise GaveUpError(frame.unknown(node, "may not be bound yet"))
        if bound:
            return value
    value = world.global_name(frame.module, node.id, Place.of(frame.module, node))
    if isinstance(value, Unknown):
        frame.may_raise |= ANY  # the name may not be there
    return value


def _is_bound_before(body: ClassTerm, node: ast.Name, frame: Frame) -> bool:
    """Whether a class body binds a name before it reads it; gives up where it may."""
    at = (node.lineno, node.col_offset)
    later = False
    for binding in body.scope.names.get(node.id, ()):
        end = (binding.node.end_lineno or 0, binding.node.end_col_offset or 0)
        if end <= at:
            return True
        later = later or bool(binding.conditions)
    if later:
        raise GaveUpError(frame.unknown(node, "may be bound by then"))
    return False


def _attribute(world: World, node: ast.Attribute, frame: Frame) -> Any:
    base = world.evaluate(node.value, frame)
    if node.attr.startswith("__") and not node.attr.endswith("__"):
        raise GaveUpError(frame.unknown(node, "is a private name, which is not read"))
    value = attribute(world, base, node.attr, node, frame)
    if isinstance(value, Unknown):
        frame.may_raise |= ANY
    return value


def _elements(
    world: World, nodes: list[ast.expr], frame: Frame, *, ordered: bool = True
) -> list[Any]:
    values: list[Any] = []
    for node in nodes:
        if isinstance(node, ast.Starred):
            inner = world.evaluate(node.value, frame)
            values += items_of(world, inner, node, frame, ordered=ordered)
        else:
            values.append(world.evaluate(node, frame))
    return values


def _own(frame: Frame, value: Any) -> Any:
    """Remembers that nothing else can see a collection yet."""
    frame.owned[id(value)] = value
    return value


def _list(world: World, node: ast.List, frame: Frame) -> Any:
    return _own(frame, _elements(world, node.elts, frame))


def _tuple(world: World, node: ast.Tuple, frame: Frame) -> Any:
    return tuple(_elements(world, node.elts, frame))


def _set(world: World, node: ast.Set, frame: Frame) -> Any:
    elements = _elements(world, node.elts, frame, ordered=False)
    return _own(frame, make_set(elements, node, frame))


def _dict(world: World, node: ast.Dict, frame: Frame) -> Any:
    made: dict[Any, Any] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        item = world.evaluate(value, frame)
        if key is None:
            if not isinstance(item, dict):
                raise GaveUpError(frame.unknown(node, "is made from what cannot be read"))
            made.update(item)
            continue
        known = world.evaluate(key, frame)
        if not is_plain(known) and not isinstance(known, EnumMember):
            raise GaveUpError(frame.unknown(key, "is a key that cannot be read"))
        put(made, known, item, node, frame)
    return _own(frame, made)


def _bool_op(world: World, node: ast.BoolOp, frame: Frame) -> Any:
    stops = isinstance(node.op, ast.Or)
    doubt: Unknown | None = None
    value: Any = None
    for operand in node.values:
        value = _read(world, operand, frame, doubt is not None)
        known = truth(value)
        if known is stops:
            return value if doubt is None else _with_truth(doubt, stops)
        if known is None and doubt is None:
            doubt = value if isinstance(value, Unknown) else frame.unknown(operand, _SYMBOL)
    return value if doubt is None else _with_truth(doubt, None)


def _read(world: World, node: ast.expr, frame: Frame, maybe: bool) -> Any:
    """An expression that may not be asked for: what it binds or raises is then not certain."""
    if not maybe:
        return world.evaluate(node, frame)
    frame.maybe += 1
    try:
        return world.evaluate(node, frame)
    except RaisedError:
        raise GaveUpError(frame.unknown(node, "may raise")) from None
    finally:
        frame.maybe -= 1


_SYMBOL = "is a value of another package, which may count as true or false"


def _with_truth(unknown: Unknown, known: bool | None) -> Unknown:
    return unknown.blank(known)


def _unary(world: World, node: ast.UnaryOp, frame: Frame) -> Any:
    value = world.evaluate(node.operand, frame)
    if isinstance(node.op, ast.Not):
        known = truth(value)
        if known is None:
            doubt = value if isinstance(value, Unknown) else frame.unknown(node, _SYMBOL)
            return _with_truth(doubt, None)
        return not known
    if isinstance(value, Unknown):
        return value
    if isinstance(value, (int, float)):
        return {ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert}[
            type(node.op)
        ](value)  # type: ignore[operator]
    raise GaveUpError(frame.unknown(node, "is not computed"))


_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}


def _binary(world: World, node: ast.BinOp, frame: Frame) -> Any:
    left, right = world.evaluate(node.left, frame), world.evaluate(node.right, frame)
    for value in (left, right):
        if isinstance(value, Unknown):
            return _with_truth(value, None)
    return binary(left, right, node.op, node, frame)


def binary(left: Any, right: Any, op: ast.operator, node: ast.AST, frame: Frame) -> Any:
    """An arithmetic operation of numbers, or ``+`` of texts and lists."""
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    joins = (
        isinstance(op, ast.Add)
        and type(left) is type(right)
        and isinstance(left, (str, list, tuple))
        and len(left) + len(right) <= SIZE
    )
    sets = isinstance(left, (set, frozenset)) and isinstance(right, (set, frozenset))
    apart = sets and isinstance(op, (ast.Sub, ast.BitAnd, ast.BitOr, ast.BitXor))
    if isinstance(op, ast.Pow) and numbers and 0 <= right <= 64 and abs(left) <= 2**16:
        return left**right
    whole = type(left) is type(right) is int
    if isinstance(op, (ast.LShift, ast.RShift)) and whole and 0 <= right <= 64:
        return left << right if isinstance(op, ast.LShift) else left >> right
    if type(op) is ast.Add and is_plain((left, right)) and not (numbers or joins):
        joinable = isinstance(left, str) and isinstance(right, str)
        if not joinable and not (isinstance(left, tuple) and isinstance(right, tuple)):
            raise frame.fails(node, TypeError("cannot be added"))
    if type(op) not in _OPERATIONS or not (numbers or joins or apart):
        raise GaveUpError(frame.unknown(node, "is not computed"))
    try:
        result = _OPERATIONS[type(op)](left, right)
    except (TypeError, ZeroDivisionError, OverflowError) as error:
        raise frame.fails(node, error) from None
    if isinstance(result, int) and abs(result) > NUMBER:
        return frame.unknown(node, "is too large a number")
    return _own(frame, result) if isinstance(result, (list, set)) else result


def _if_else(world: World, node: ast.IfExp, frame: Frame) -> Any:
    test = world.evaluate(node.test, frame)
    known = truth(test)
    if known is not None:
        return world.evaluate(node.body if known else node.orelse, frame)
    one = _read(world, node.body, frame, True)
    other = _read(world, node.orelse, frame, True)
    if same(one, other) is True:
        return one
    doubt = test if isinstance(test, Unknown) else frame.unknown(node.test, _SYMBOL)
    agreed = truth(one) if truth(one) is truth(other) else None
    return _with_truth(doubt, agreed)


def _subscript(world: World, node: ast.Subscript, frame: Frame) -> Any:
    base = world.evaluate(node.value, frame)
    if isinstance(base, Unknown):
        return _with_truth(base, None)
    if isinstance(base, Instance) and base.is_tuple:
        base = tuple(base.fields.values())
    if isinstance(node.slice, ast.Slice):
        return _slice(world, base, node.slice, node, frame)
    index = world.evaluate(node.slice, frame)
    if isinstance(base, (list, tuple, str)) and isinstance(index, int):
        if -len(base) <= index < len(base):
            return base[index]
    elif isinstance(base, dict) and isinstance(index, (int, str, float, tuple, EnumMember)):
        for key, value in base.items():
            if same(key, index) is True:
                return value
    if isinstance(base, (bool, int, float, type(None))):
        raise frame.fails(node, TypeError("is not subscriptable"))
    if isinstance(base, (list, tuple, str)) and isinstance(index, int):
        raise frame.fails(node, IndexError("out of range"))
    if not isinstance(index, Unknown) and isinstance(base, (list, tuple, str, dict)):
        raise GaveUpError(frame.unknown(node, "looks up what may not be there"))
    frame.may_raise |= ANY
    return frame.unknown(node, "looks up what cannot be read")


def _slice(world: World, base: Any, cut: ast.Slice, node: ast.AST, frame: Frame) -> Any:
    ends = [
        world.evaluate(part, frame) if part is not None else None
        for part in (cut.lower, cut.upper, cut.step)
    ]
    known = all(end is None or isinstance(end, int) for end in ends)
    if known and isinstance(base, (list, tuple, str)) and ends[2] != 0:
        return base[slice(*ends)]
    return frame.unknown(node, "looks up what cannot be read")


def _joined(world: World, node: ast.JoinedStr, frame: Frame) -> Any:
    parts: list[str] = []
    doubt: Unknown | None = None
    for value in node.values:
        if isinstance(value, ast.Constant):
            parts.append(str(value.value))
            continue
        assert isinstance(value, ast.FormattedValue)
        inner = world.evaluate(value.value, frame)
        plain = isinstance(inner, (bool, int, str, type(None))) and value.format_spec is None
        if plain and value.conversion == -1:
            parts.append(str(inner))
        elif doubt is None:
            held = isinstance(inner, Unknown)
            doubt = inner if held else frame.unknown(value.value, "is not put into words")
    if doubt is not None:
        return _with_truth(doubt, True if any(parts) else None)
    return "".join(parts)


def _named(world: World, node: ast.NamedExpr, frame: Frame) -> Any:
    value = world.evaluate(node.value, frame)
    env = frame.around or frame.env
    if env is None or frame.body is not None:
        return frame.unknown(node, "binds a name outside a function")
    env.names[node.target.id] = frame.unknown(node, "may not be bound") if frame.maybe else value
    return value


def _lambda(world: World, node: ast.Lambda, frame: Frame) -> Any:
    return world.closure(node, frame, None)


def _comprehension(
    world: World, node: ast.ListComp | ast.SetComp | ast.GeneratorExp, frame: Frame
) -> Any:
    inner = Frame(frame.module, Env({}, frame.env), None, frame.owner, frame.receiver)
    inner.maybe, inner.around = frame.maybe, frame.around or frame.env
    values: list[Any] = []
    loose = isinstance(node, (ast.SetComp, ast.GeneratorExp))
    ordered = True

    def walk(level: int) -> None:
        nonlocal ordered
        if level == len(node.generators):
            values.append(world.evaluate(node.elt, inner))
            return
        part = node.generators[level]
        if part.is_async:
            raise GaveUpError(frame.unknown(node, "is not read"))
        source = world.evaluate(part.iter, frame if level == 0 else inner)
        ordered = ordered and has_order(source)
        for item in items_of(world, source, part.iter, frame, ordered=not loose):
            bind_target(world, part.target, item, inner)
            if _passes(world, part.ifs, inner):
                walk(level + 1)

    try:
        walk(0)
    except RaisedError as error:
        if isinstance(node, ast.GeneratorExp):  # who goes through it may stop before
            raise GaveUpError(frame.unknown(node, f"may raise {error.name}")) from None
        raise
    frame.may_raise |= inner.may_raise
    if isinstance(node, ast.GeneratorExp):
        if world.modules.look("binds", node, lambda: _binds(node)):
            raise GaveUpError(frame.unknown(node, "may stop before it binds a name"))
        return Items(values, once=True, ordered=ordered)
    if isinstance(node, ast.SetComp):
        return _own(frame, make_set(values, node, frame))
    return _own(frame, values)


def _binds(node: ast.AST) -> bool:
    return any(isinstance(one, ast.NamedExpr) for one in ast.walk(node))


def _passes(world: World, tests: list[ast.expr], frame: Frame) -> bool:
    for test in tests:
        value = world.evaluate(test, frame)
        known = truth(value)
        if known is None:
            held = isinstance(value, Unknown)
            raise GaveUpError(value if held else frame.unknown(test, _SYMBOL))
        if not known:
            return False
    return True


def _dict_comprehension(world: World, node: ast.DictComp, frame: Frame) -> Any:
    pair = ast.copy_location(ast.Tuple([node.key, node.value], ast.Load()), node)
    listed = ast.copy_location(ast.ListComp(pair, node.generators), node)
    made: dict[Any, Any] = {}
    for key, value in _comprehension(world, listed, frame):
        if not is_plain(key) and not isinstance(key, EnumMember):
            raise GaveUpError(frame.unknown(node, "has a key that cannot be read"))
        put(made, key, value, node, frame)
    return _own(frame, made)


def bind_target(world: World, target: ast.expr, value: Any, frame: Frame) -> None:
    """Gives the names of an assignment's target their values."""
    assert frame.env is not None
    if isinstance(target, ast.Name):
        frame.env.names[target.id] = value
        return
    if isinstance(target, (ast.Tuple, ast.List)) and not any(
        isinstance(part, ast.Starred) for part in target.elts
    ):
        parts = items_of(world, value, target, frame)
        if len(parts) == len(target.elts):
            for one, part in zip(target.elts, parts, strict=True):
                bind_target(world, one, part, frame)
            return
    raise GaveUpError(frame.unknown(target, "is assigned in a way that is not read"))


def _call(world: World, node: ast.Call, frame: Frame) -> Any:
    if isinstance(node.func, ast.Name) and node.func.id == "super" and not node.args:
        if frame.owner is None or frame.receiver is None:
            raise GaveUpError(frame.unknown(node, "is asked outside a method"))
        return SuperTerm(frame.owner, frame.receiver)
    function = world.evaluate(node.func, frame)
    given = _elements(world, node.args, frame)
    named: dict[str, Any] = {}
    for keyword in node.keywords:
        value = world.evaluate(keyword.value, frame)
        if keyword.arg is not None:
            named[keyword.arg] = value
        elif isinstance(value, dict) and all(isinstance(key, str) for key in value):
            named.update(value)
        else:
            raise GaveUpError(frame.unknown(node, "is called with what cannot be read"))
    value = world.call(function, given, named, (frame, node))
    if isinstance(value, Unknown):
        frame.may_raise |= ANY
        if _changes(function, node):
            world.cut = frame.unknown(node, "changes a collection in a way that is not read")
            raise GaveUpError(world.cut)
        if not _is_harmless(function) and any(
            id(one) in frame.owned for one in (*given, *named.values())
        ):
            raise GaveUpError(frame.unknown(node, "is handed a collection that it may change"))
    return value


def _changes(function: Any, node: ast.Call) -> bool:
    """Whether a call changes a collection of which more than one name may be known."""
    if isinstance(function, PlainMethod):
        kinds = (list, dict, set)
        return function.name in MUTATORS and isinstance(function.receiver, kinds)
    return False


def _is_harmless(function: Any) -> bool:
    """Whether a call that is not understood changes nothing that it is given."""
    return isinstance(function, External) and function.path.startswith(("builtins.", "math."))


_HANDLERS: dict[type[ast.expr], Callable[[World, Any, Frame], Any]] = {
    ast.Attribute: _attribute,
    ast.BinOp: _binary,
    ast.BoolOp: _bool_op,
    ast.Call: _call,
    ast.Compare: compare,
    ast.Constant: _constant,
    ast.Dict: _dict,
    ast.DictComp: _dict_comprehension,
    ast.GeneratorExp: _comprehension,
    ast.IfExp: _if_else,
    ast.JoinedStr: _joined,
    ast.Lambda: _lambda,
    ast.List: _list,
    ast.ListComp: _comprehension,
    ast.Name: _name,
    ast.NamedExpr: _named,
    ast.Set: _set,
    ast.SetComp: _comprehension,
    ast.Subscript: _subscript,
    ast.Tuple: _tuple,
    ast.UnaryOp: _unary,
}
