"""What a call gives: of functions that are read, of classes, and of the built-in ones."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from selector.drift.attributes import PlainMethod, attribute
from selector.drift.comparing import SIZE
from selector.drift.functions import run_function
from selector.drift.hierarchy import find_member, is_enum, lacks, order
from selector.drift.items import items_of, make_set
from selector.drift.objects import make_object
from selector.drift.terms import (
    AutoTerm,
    BoundMethod,
    ClassTerm,
    EnumMember,
    External,
    FunctionTerm,
    Instance,
    Items,
    Place,
    SuperTerm,
    Unknown,
    defines,
    same,
    truth,
)
from selector.drift.world import ANY, Frame, World

__all__ = ["call"]

At = tuple[Frame, ast.AST]


def call(world: World, function: Any, given: list[Any], named: dict[str, Any], at: At) -> Any:
    """What calling a value gives, or an unknown."""
    frame, node = at
    world.tick(node, frame)
    if isinstance(function, BoundMethod):
        return run_function(world, function.function, [function.receiver, *given], named, at)
    if isinstance(function, FunctionTerm):
        if function.kind == "class":
            return frame.unknown(node, "calls a class method that is not bound")
        return run_function(world, function, given, named, at)
    if isinstance(function, External):
        return _call_external(world, function, given, named, at)
    if isinstance(function, PlainMethod):
        return _call_plain(world, function, given, named, at)
    if isinstance(function, ClassTerm):
        return make_object(world, function, given, named, at)
    if isinstance(function, Unknown):
        return function.blank()
    return frame.unknown(node, "calls what cannot be read")


def _call_plain(
    world: World, method: PlainMethod, given: list[Any], named: dict[str, Any], at: At
) -> Any:
    frame, node = at
    receiver, name = method.receiver, method.name
    if name == "join":
        given = [
            items_of(world, one, node, frame) if isinstance(one, Items) else one for one in given
        ]
    if isinstance(receiver, Instance):
        return receiver.supposed[name](world)
    texts = all(isinstance(part, (str, int)) or _is_texts(part) for part in given)
    if isinstance(receiver, str) and name in _TEXT and not named and texts:
        return _call_text(receiver, name, given, at)
    if isinstance(receiver, dict) and not named:
        return _call_dict(receiver, name, given, at)
    if isinstance(receiver, (list, tuple)) and name in ("index", "count") and len(given) == 1:
        answers = [same(item, given[0]) for item in receiver]
        if None not in answers and (name == "count" or True in answers):
            return answers.count(True) if name == "count" else answers.index(True)
    if isinstance(receiver, (list, set, dict, tuple)) and name == "copy" and not given:
        copied = type(receiver)(receiver)
        frame.owned[id(copied)] = copied
        return copied
    for value in (receiver, *given):
        if isinstance(value, Unknown):
            return value.blank()
    return frame.unknown(node, "is not computed")


def _call_text(receiver: str, name: str, given: list[Any], at: At) -> Any:
    longest = max((len(part) for part in given if not isinstance(part, int)), default=0)
    texts = [part for part in given if isinstance(part, (list, tuple))]
    joined = sum(len(text) + len(receiver) for part in texts for text in part)
    if (name == "replace" and len(receiver) * max(longest, 1) > SIZE) or joined > SIZE:
        return at[0].unknown(at[1], "is too long a text")
    try:
        return getattr(receiver, name)(*given)
    except (TypeError, ValueError):
        return at[0].unknown(at[1], "cannot be computed")


_TEXT = frozenset(
    [
        "startswith",
        "endswith",
        "lower",
        "upper",
        "strip",
        "lstrip",
        "rstrip",
        "split",
        "rsplit",
        "replace",
        "removeprefix",
        "removesuffix",
        "join",
        "isdigit",
        "partition",
        "rpartition",
        "title",
        "capitalize",
        "find",
        "count",
    ]
)


def _is_texts(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(part, str) for part in value)


def _call_dict(receiver: dict[Any, Any], name: str, given: list[Any], at: At) -> Any:
    frame, node = at
    if name == "keys" and not given:
        return Items(list(receiver), once=False, holder=receiver)
    if name == "values" and not given:
        return Items(list(receiver.values()), once=False, holder=receiver)
    if name == "items" and not given:
        return Items(list(receiver.items()), once=False, holder=receiver)
    if name == "get" and 1 <= len(given) <= 2:
        answers = {same(key, given[0]): value for key, value in reversed(receiver.items())}
        if True in answers:
            return answers[True]
        if None not in answers:
            return given[1] if len(given) == 2 else None
    return frame.unknown(node, "is not computed")


def _call_external(
    world: World, function: External, given: list[Any], named: dict[str, Any], at: At
) -> Any:
    frame, node = at
    if function.path == "enum.auto" and not given:
        return AutoTerm(Place.of(frame.module, node), "auto()", "is numbered by the enumeration")
    handler = _BUILTINS.get(function.path)
    if handler is not None and (not named or function.path in _NAMED):
        return handler(world, given, named, at)
    for value in given:
        if isinstance(value, Unknown):
            return value.blank()
    return frame.unknown(node, f"calls {function.path}, which is not in the source")


def _first_unknown(given: list[Any], at: At, why: str = "is not computed") -> Unknown:
    for value in given:
        for part in [value, *(value if isinstance(value, (list, tuple)) else ())]:
            if isinstance(part, Unknown):
                return part.blank()
    return at[0].unknown(at[1], why)


def _bool(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    if not given:
        return False
    known = truth(given[0])
    return _first_unknown(given, at) if known is None else known


def _number(kind: type[int] | type[float]) -> Callable[..., Any]:
    def make(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
        one = given[0] if len(given) == 1 else None
        if isinstance(one, (int, float)) or (isinstance(one, str) and len(one) <= 40):
            try:
                return kind(one)
            except (ValueError, OverflowError):
                at[0].may_raise |= ANY
        return _first_unknown(given, at)

    return make


def _text_of(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    if len(given) == 1 and isinstance(given[0], (str, bool, int, type(None))):
        return str(given[0])
    return _first_unknown(given, at)


def _len(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    one = given[0] if len(given) == 1 else None
    if isinstance(one, Items) and not one.once:
        return len(one.values)
    if isinstance(one, (str, list, tuple, dict, set, frozenset, range)):
        return len(one)
    return _first_unknown(given, at)


def _extreme(pick: Callable[..., Any]) -> Callable[..., Any]:
    def choose(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
        alone = len(given) == 1
        values = items_of(world, given[0], at[1], at[0], ordered=False) if alone else given
        numbers = all(isinstance(value, (int, float)) for value in values)
        if values and (numbers or all(isinstance(value, str) for value in values)):
            return pick(values)
        return _first_unknown(list(values), at)

    return choose


def _sum(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    alone = len(given) == 1
    values = items_of(world, given[0], at[1], at[0], ordered=False) if alone else [None]
    if all(isinstance(value, (int, float)) for value in values):
        return sum(values)
    return _first_unknown(values, at)


def _quantifier(stops: bool) -> Callable[..., Any]:
    def decide(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
        if len(given) != 1:
            return _first_unknown(given, at)
        values = items_of(world, given[0], at[1], at[0], ordered=False)
        answers = [truth(value) for value in values]
        if stops in answers:
            return stops
        return _first_unknown(values, at) if None in answers else not stops

    return decide


def _collection(kind: type[Any]) -> Callable[..., Any]:
    ordered = kind in (list, tuple)

    def make(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
        values = items_of(world, given[0], at[1], at[0], ordered=ordered) if given else []
        made = kind(values) if ordered else make_set(values, at[1], at[0])
        made = frozenset(made) if kind is frozenset and isinstance(made, set) else made
        at[0].owned[id(made)] = made
        return made

    return make


def _dict(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    if given and not isinstance(given[0], dict):
        return _first_unknown(given, at)
    made = {**(given[0] if given else {}), **named}
    at[0].owned[id(made)] = made
    return made


def _range(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    numbers = 1 <= len(given) <= 3 and all(type(value) is int for value in given)
    if numbers and given[2:] != [0] and len(made := range(*given)) <= SIZE:
        return made
    return _first_unknown(given, at)


def _enumerate(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    start = given[1] if len(given) == 2 else named.get("start", 0)
    if not isinstance(start, int):
        return _first_unknown([start], at)
    items = items_of(world, given[0], at[1], at[0])
    return Items([tuple(pair) for pair in enumerate(items, start)], once=True)


def _zip(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    rows = [items_of(world, value, at[1], at[0]) for value in given]
    return Items([tuple(row) for row in zip(*rows, strict=False)], once=True)


def _sorted(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    values = items_of(world, given[0], at[1], at[0], ordered=False)
    numbers = all(isinstance(value, (int, float)) for value in values)
    if numbers or all(isinstance(value, str) for value in values):
        reverse = truth(named.get("reverse", False))
        if reverse is not None and not named.keys() - {"reverse"}:
            return sorted(values, reverse=reverse)
    return _first_unknown(values, at)


def _isinstance(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    if len(given) != 2:
        return _first_unknown(given, at)
    value, kinds = given
    kinds = kinds if isinstance(kinds, tuple) else (kinds,)
    answers = [_is_one(world, value, kind) for kind in kinds]
    if True in answers:
        return True
    return _first_unknown(given, at) if None in answers else False


_TYPES: dict[str, type[Any]] = {
    f"builtins.{kind.__name__}": kind
    for kind in (bool, int, float, str, list, tuple, dict, set, frozenset, bytes)
}


def _is_one(world: World, value: Any, kind: Any) -> bool | None:
    plain = (bool, int, float, str, bytes, list, tuple, dict, set, frozenset, type(None))
    if isinstance(value, (Unknown, External)) or isinstance(kind, Unknown):
        return None
    if isinstance(kind, External):
        if kind.path in _TYPES and isinstance(value, plain):
            return isinstance(value, _TYPES[kind.path])
        if isinstance(value, plain):
            return False if kind.path.startswith("torch.") else None
        if isinstance(value, Instance) and kind.path in _TYPES:
            return value.is_tuple if kind.path == "builtins.tuple" else False
        if isinstance(value, EnumMember) and kind.path in _TYPES:
            mixed = [one for one in order(world, value.cls) or () if isinstance(one, External)]
            return False if {one.path for one in mixed} == {"enum.Enum"} else None
        return None
    if isinstance(kind, ClassTerm):
        if isinstance(value, plain):
            return None if truth(kind) is None else False
        cls = value.cls if isinstance(value, (Instance, EnumMember)) else None
        return None if cls is None else _descends(world, cls, kind)
    return None


def _descends(world: World, cls: ClassTerm, kind: ClassTerm) -> bool | None:
    linear = order(world, cls)
    if linear is None:
        return None
    if any(one is kind for one in linear):
        return True
    if truth(kind) is None or defines(kind, "__subclasshook__"):
        return None
    return None if any(isinstance(one, Unknown) for one in linear) else False


def _issubclass(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    if len(given) == 2 and all(isinstance(value, ClassTerm) for value in given):
        answer = _descends(world, given[0], given[1])
        if answer is not None:
            return answer
    return _first_unknown(given, at)


def _getattr(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    frame, node = at
    if len(given) in (2, 3) and isinstance(given[1], str):
        base, name = given[0], given[1]
        plain_class = isinstance(base, ClassTerm) and not is_enum(world, base)
        if len(given) == 3 and plain_class and lacks(world, base, name):
            return given[2]
        if len(given) == 2 or isinstance(base, (ClassTerm, Instance)):
            return attribute(world, base, name, node, frame)
    return _first_unknown(given, at)


def _hasattr(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    if len(given) == 2 and isinstance(given[0], ClassTerm) and isinstance(given[1], str):
        member = find_member(world, given[0], given[1])
        if member is not None and member.owner is not None:
            return True
        if lacks(world, given[0], given[1]):
            return False
    return _first_unknown(given, at)


def _super(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    if len(given) == 2 and isinstance(given[0], ClassTerm):
        return SuperTerm(given[0], given[1])
    return _first_unknown(given, at)


def _replace(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    """A dataclass's object with other fields."""
    made = given[0] if len(given) == 1 else None
    if isinstance(made, Instance) and not made.supposed and named.keys() <= made.fields.keys():
        return Instance(made.cls, {**made.fields, **named}, made.is_tuple)
    return _first_unknown(given, at)


def _cast(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
    return given[1] if len(given) == 2 else _first_unknown(given, at)


def _whole(compute: Callable[..., int]) -> Callable[..., Any]:
    def make(world: World, given: list[Any], named: dict[str, Any], at: At) -> Any:
        if given and all(type(value) is int and abs(value) < 2**64 for value in given):
            try:
                return compute(*given)
            except (ValueError, TypeError):
                at[0].may_raise |= ANY
        return _first_unknown(given, at)

    return make


_NAMED = frozenset(f"builtins.{name}" for name in ("dict", "enumerate", "sorted", "zip")) | {
    "dataclasses.replace"
}
_BUILTINS: dict[str, Callable[..., Any]] = {
    "builtins.abs": _whole(abs),
    "builtins.all": _quantifier(False),
    "builtins.any": _quantifier(True),
    "builtins.bool": _bool,
    "builtins.dict": _dict,
    "builtins.enumerate": _enumerate,
    "builtins.float": _number(float),
    "builtins.frozenset": _collection(frozenset),
    "builtins.getattr": _getattr,
    "builtins.hasattr": _hasattr,
    "builtins.int": _number(int),
    "builtins.isinstance": _isinstance,
    "builtins.issubclass": _issubclass,
    "builtins.len": _len,
    "builtins.list": _collection(list),
    "builtins.max": _extreme(max),
    "builtins.min": _extreme(min),
    "builtins.range": _range,
    "builtins.set": _collection(set),
    "builtins.sorted": _sorted,
    "builtins.str": _text_of,
    "builtins.sum": _sum,
    "builtins.super": _super,
    "builtins.tuple": _collection(tuple),
    "builtins.zip": _zip,
    "dataclasses.replace": _replace,
    "math.gcd": _whole(math.gcd),
    "math.lcm": _whole(math.lcm),
    "typing.cast": _cast,
}
