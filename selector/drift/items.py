"""What comes when something is gone through, and the sets and dicts that are made of it."""

from __future__ import annotations

import ast
from typing import Any

from selector.drift.comparing import is_plain
from selector.drift.terms import EnumMember, Instance, Items, Unknown, same
from selector.drift.world import Frame, GaveUpError, World

__all__ = ["has_order", "items_of", "make_set", "put"]


def items_of(
    world: World, value: Any, node: ast.AST, frame: Frame, *, ordered: bool = True
) -> list[Any]:
    """The items of something that can be gone through; gives up where they are not known.

    ``ordered``: whether their order counts; that of a set is not known.
    """
    if isinstance(value, (list, tuple, range)):
        return list(value)
    if ordered and not has_order(value):
        raise GaveUpError(frame.unknown(node, "goes through a set, whose order is not known"))
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, Items):
        if value.once and value.used:
            raise GaveUpError(frame.unknown(node, "goes through what can be gone through once"))
        value.used = True
        return list(value.values)
    if isinstance(value, (dict, str)):
        return list(value)
    if isinstance(value, Instance) and value.is_tuple:
        return list(value.fields.values())
    if isinstance(value, Unknown):
        raise GaveUpError(value)
    if isinstance(value, (bool, int, float, type(None), EnumMember)):
        raise frame.fails(node, TypeError("is not iterable"))
    raise GaveUpError(frame.unknown(node, "goes through something whose items are not read"))


def has_order(value: Any) -> bool:
    """Whether the order in which items come is known."""
    if isinstance(value, (set, frozenset)):
        return len(value) < 2
    return not isinstance(value, Items) or value.ordered or len(value.values) < 2


def make_set(values: list[Any], node: ast.AST, frame: Frame) -> Any:
    """A set; gives up where it is not known which elements are equal."""
    plain = (bool, int, float, str, type(None), tuple)
    if all(isinstance(value, plain) and is_plain(value) for value in values):
        return set(values)
    kept: list[Any] = []
    for value in values:
        answers = [same(value, other) for other in kept]
        if None in answers:
            raise GaveUpError(frame.unknown(node, "holds elements that are not known"))
        if True not in answers:
            kept.append(value)
    return Items(kept, once=False, ordered=False)


def put(made: dict[Any, Any], key: Any, value: Any, node: ast.AST, frame: Frame) -> None:
    """Gives a dict's key a value; gives up where it is not known which keys are equal."""
    if isinstance(key, EnumMember) or any(isinstance(one, EnumMember) for one in made):
        for one in made:
            answer = same(one, key)
            if answer is None:
                raise GaveUpError(frame.unknown(node, "has keys that may be equal"))
            if answer:
                key = one
                break
    made[key] = value
