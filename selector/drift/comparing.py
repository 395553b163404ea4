"""Comparisons: equal, the same, in, less, by the methods of classes where they have them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from selector.drift.hierarchy import find_member
from selector.drift.terms import (
    BoundMethod,
    EnumMember,
    FunctionTerm,
    Instance,
    Items,
    Unknown,
    same,
    truth,
)
from selector.drift.world import Frame, GaveUpError, World

__all__ = ["SIZE", "compare", "is_plain"]

SIZE = 100_000
"""No collection or text longer than this is made or looked through."""


def is_plain(value: Any) -> bool:
    """Whether a value is a number, a text, ``None``, or a tuple of such."""
    if isinstance(value, tuple):
        return all(is_plain(part) for part in value)
    return isinstance(value, (bool, int, float, str, type(None)))


def compare(world: World, node: ast.Compare, frame: Frame) -> Any:
    """What a chain of comparisons gives."""
    left = world.evaluate(node.left, frame)
    doubt: Unknown | None = None
    for op, operand in zip(node.ops, node.comparators, strict=True):
        right = world.evaluate(operand, frame)
        answer = _compare_two(world, left, right, op, node, frame)
        if answer is False:
            return False if doubt is None else doubt.blank(False)
        if answer is not True and doubt is None:
            doubt = answer
        left = right
    return True if doubt is None else doubt


def _compare_two(
    world: World, left: Any, right: Any, op: ast.cmpop, node: ast.Compare, frame: Frame
) -> Any:
    answer: bool | Unknown | None
    match op:
        case ast.Eq() | ast.NotEq():
            answer = equal(world, left, right, (frame, node))
        case ast.Is() | ast.IsNot():
            answer = _identical(left, right)
        case ast.In() | ast.NotIn():
            answer = contains(world, right, left, node, frame)
        case _:
            answer = _ordered(world, left, right, op, node, frame)
    if isinstance(op, (ast.NotEq, ast.IsNot, ast.NotIn)) and isinstance(answer, bool):
        answer = not answer
    if isinstance(answer, bool):
        return answer
    for value in (left, right):
        if isinstance(value, Unknown):
            return value.blank()
    doubt = frame.unknown(node, "compares what cannot be read")
    if isinstance(op, (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)):
        return doubt
    raise GaveUpError(doubt)  # it may well raise


def equal(world: World, left: Any, right: Any, at: tuple[Frame, ast.AST]) -> bool | None:
    """Whether two values are equal, by the method of their class where it has one."""
    for one, other in ((left, right), (right, left)):
        if isinstance(one, Instance) and isinstance(other, (Instance, tuple)):
            answer = _by_method(world, one, other, "__eq__", at)
            if answer is not _NO_METHOD:
                return truth(answer) if isinstance(answer, bool) else None
    return same(left, right)


_NO_METHOD = object()


def _by_method(
    world: World, one: Instance, other: Any, name: str, at: tuple[Frame, ast.AST]
) -> Any:
    member = find_member(world, one.cls, name)
    if member is None:
        return _NO_METHOD
    if not isinstance(member.value, FunctionTerm):
        return None
    return world.call(BoundMethod(member.value, one), [other], {}, at)


def _identical(left: Any, right: Any) -> bool | None:
    for one, other in ((left, right), (right, left)):
        if one is None and isinstance(other, (Instance, EnumMember)):
            return False
    answer = same(left, right)
    if left is None or right is None or isinstance(left, bool) or isinstance(right, bool):
        if answer is True and type(left) is not type(right):
            return False
        return answer
    if isinstance(left, EnumMember) and isinstance(right, EnumMember):
        return answer
    if answer is False:
        return False
    plain = (int, float, str, bytes, list, tuple, dict, set)
    return None if isinstance(left, plain) or isinstance(right, plain) else answer


def contains(world: World, holder: Any, value: Any, node: ast.AST, frame: Frame) -> bool | None:
    """Whether a value is in a collection or text; ``None``: not known."""
    if isinstance(holder, (bool, int, float, type(None))):
        raise frame.fails(node, TypeError("holds nothing"))
    if isinstance(holder, str):
        if value is None or isinstance(value, (bool, int, float, list, tuple)):
            raise frame.fails(node, TypeError("is no text"))
        return value in holder if isinstance(value, str) else None
    if isinstance(holder, Items):
        if holder.once and holder.used:
            return None
        holder.used = True
        holder = holder.values
    if not isinstance(holder, (list, tuple, set, frozenset, dict, range)) or len(holder) > SIZE:
        return None
    answers = [equal(world, value, item, (frame, node)) for item in holder]
    if True in answers:
        return True
    return None if None in answers else False


_ORDER: dict[type[ast.cmpop], tuple[Callable[[Any, Any], bool], str]] = {
    ast.Lt: (operator.lt, "__lt__"),
    ast.LtE: (operator.le, "__le__"),
    ast.Gt: (operator.gt, "__gt__"),
    ast.GtE: (operator.ge, "__ge__"),
}


def _ordered(
    world: World, left: Any, right: Any, op: ast.cmpop, node: ast.Compare, frame: Frame
) -> Any:
    less, method = _ORDER[type(op)]
    if isinstance(left, Instance):
        answer = _by_method(world, left, right, method, (frame, node))
        if answer is not _NO_METHOD:
            return answer if isinstance(answer, bool) else None
        left = tuple(left.fields.values()) if left.is_tuple else left
    if isinstance(right, Instance) and right.is_tuple:
        if find_member(world, right.cls, _REFLECTED[method]) is not None:
            return None
        right = tuple(right.fields.values())
    numbers = (int, float)
    plain = (
        (isinstance(left, numbers) and isinstance(right, numbers))
        or (isinstance(left, str) and isinstance(right, str))
        or (isinstance(left, tuple) and isinstance(right, tuple) and is_plain((left, right)))
    )
    known = all(
        isinstance(one, (int, float, str, tuple, list, type(None))) for one in (left, right)
    )
    if not plain and known and type(left) is not type(right):
        raise frame.fails(node, TypeError("cannot be ordered"))
    try:
        return less(left, right) if plain else None
    except TypeError as error:
        raise frame.fails(node, error) from None


_REFLECTED = {"__lt__": "__gt__", "__gt__": "__lt__", "__le__": "__ge__", "__ge__": "__le__"}
