"""The values that reading code gives: constants, classes, functions, members, and what is unknown.

Python's own ``None``, booleans, numbers, strings, lists, tuples, sets and dicts stand for
themselves and are never changed in place.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any, Final

from selector.drift.env import Env
from selector.drift.modules import Module, Scope

__all__ = [
    "DTYPES",
    "AutoTerm",
    "BoundMethod",
    "ClassTerm",
    "EnumMember",
    "External",
    "FunctionTerm",
    "Given",
    "Instance",
    "Items",
    "ModuleTerm",
    "Place",
    "PropertyTerm",
    "RaisedError",
    "SuperTerm",
    "Unknown",
    "defines",
    "same",
    "truth",
]


class Place:
    """Where in the source something is written."""

    __slots__ = ("column", "line", "path")

    def __init__(self, path: str, line: int, column: int) -> None:
        self.path, self.line, self.column = path, line, column

    @classmethod
    def of(cls, module: Module, node: ast.AST) -> Place:
        """The place of a node of a module."""
        return cls(module.path, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)


class Unknown:
    """A value that reading does not give.

    Attributes:
        place: where it comes from.
        text: the expression there.
        why: what stands in the way, in words.
        truth: whether it counts as true, where that alone is known.
    """

    __slots__ = ("place", "source", "truth", "why")

    def __init__(
        self, place: Place, text: str | ast.AST, why: str, truth: bool | None = None
    ) -> None:
        self.place, self.source, self.why, self.truth = place, text, why, truth

    @property
    def text(self) -> str:
        """The expression as it is written."""
        if isinstance(self.source, str):
            return self.source
        try:
            return ast.unparse(self.source)[:200]
        except (RecursionError, ValueError, AttributeError):
            return "…"

    def blank(self, truth: bool | None = None) -> Unknown:
        """The same, of something that depends on it."""
        return Unknown(self.place, self.source, self.why, truth)


class AutoTerm(Unknown):
    """The value that ``enum.auto()`` gives a member: not known, but no other member's."""

    __slots__ = ()


class Given(Unknown):
    """An argument, of which only some attributes may be known.

    Attributes:
        fields: those, by name.
    """

    __slots__ = ("fields",)

    def __init__(self, place: Place, text: str | ast.AST, why: str) -> None:
        super().__init__(place, text, why)
        self.fields: dict[str, Any] = {}


class RaisedError(Exception):
    """The code that is read certainly raises here.

    Attributes:
        name: of the exception's class.
        message: its text, as far as it is constant.
    """

    def __init__(self, name: str, message: str, place: Place) -> None:
        super().__init__(f"{name}: {message}")
        self.name, self.message, self.place = name, message, place


class Items:
    """What can be gone through and is no list: a generator, a ``zip``, a view of a dict, a set.

    Attributes:
        values: what comes, as far as order counts in some order.
        once: whether it can be gone through once only; ``used``: whether it was.
        ordered: whether ``values`` is the order in which they come.
        holder: the dict that it looks at.
    """

    __slots__ = ("holder", "once", "ordered", "used", "values")

    def __init__(
        self, values: Sequence[Any], *, once: bool, ordered: bool = True, holder: Any = None
    ) -> None:
        self.values, self.once, self.ordered, self.holder = values, once, ordered, holder
        self.used = False


class ModuleTerm:
    """A module of the source, or a folder of modules."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class External:
    """A name of another package, by its path: only what it is called is known."""

    __slots__ = ("path", "place")

    def __init__(self, path: str, place: Place) -> None:
        self.path, self.place = path, place


class ClassTerm:
    """A class of the source.

    Attributes:
        name: as its ``__qualname__`` says.
        path: dotted: module and name.
        node, module, scope: its code, and the names of its body.
        outer: the local names around a class that a function defines; ``then``: as they were when
            the class was made.
        overrides: attributes set on it right after it was defined.
        bases, linear: its bases, and the order of its ancestors: :mod:`selector.drift.hierarchy`.
    """

    __slots__ = (
        "bases", "linear", "module", "module_name", "name", "node", "outer", "overrides", "scope",
        "then",
    )  # fmt: skip

    def __init__(
        self, name: str, node: ast.ClassDef, module: Module, scope: Scope, outer: Env | None
    ) -> None:
        self.name, self.node, self.module, self.scope, self.outer = name, node, module, scope, outer
        self.module_name = module.name
        self.then = outer.fork() if outer is not None else None
        self.overrides: dict[str, Any] = {}
        self.bases: Sequence[Any] | None = None
        self.linear: Sequence[Any] | None = None

    @property
    def path(self) -> str:
        """Module and name, dotted."""
        return f"{self.module_name}.{self.name}"

    @property
    def place(self) -> Place:
        """Where the class is defined."""
        return Place.of(self.module, self.node)


class FunctionTerm:
    """A function, lambda or method of the source.

    Attributes:
        owner: the class whose body defines it, if any.
        kind: ``function``, ``static``, ``class`` or ``property``; ``unknown``: a decorator that is
            not understood.
        defaults: of a local function, what its parameters' defaults were when it was made, by the
            identity of their code.
    """

    __slots__ = ("defaults", "kind", "module", "node", "outer", "owner")

    def __init__(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        module: Module,
        owner: ClassTerm | None,
        outer: Env | None,
        kind: str = "function",
    ) -> None:
        self.node, self.module, self.owner, self.outer, self.kind = node, module, owner, outer, kind
        self.defaults: dict[int, Any] = {}

    @property
    def name(self) -> str:
        """The function's name."""
        return getattr(self.node, "name", "<lambda>")

    @property
    def place(self) -> Place:
        """Where it is defined."""
        return Place.of(self.module, self.node)


class PropertyTerm:
    """A property, asked of a class."""

    __slots__ = ("function",)

    def __init__(self, function: FunctionTerm) -> None:
        self.function = function


class BoundMethod:
    """A method with the class or object that it is called on."""

    __slots__ = ("function", "receiver")

    def __init__(self, function: FunctionTerm, receiver: Any) -> None:
        self.function, self.receiver = function, receiver


class SuperTerm:
    """``super()``: what comes after a class in the order of another."""

    __slots__ = ("after", "receiver")

    def __init__(self, after: ClassTerm, receiver: Any) -> None:
        self.after, self.receiver = after, receiver


class EnumMember:
    """A member of an enumeration; ``value`` is :class:`Unknown` where it is not readable."""

    __slots__ = ("cls", "name", "text", "value")

    def __init__(self, cls: ClassTerm, name: str, value: Any, text: bool) -> None:
        self.cls, self.name, self.value, self.text = cls, name, value, text


class Instance:
    """An object of a dataclass or a named tuple, or one that the reader supposes.

    Attributes:
        fields: by name, in order.
        is_tuple: whether it is a named tuple.
        supposed: methods whose answer the reader gives.
    """

    __slots__ = ("cls", "fields", "is_tuple", "supposed")

    def __init__(
        self,
        cls: ClassTerm,
        fields: dict[str, Any],
        is_tuple: bool = False,
        supposed: dict[str, Any] | None = None,
    ) -> None:
        self.cls, self.fields, self.is_tuple, self.supposed = cls, fields, is_tuple, supposed or {}


DTYPES: Final = {
    "torch.half": "torch.float16",
    "torch.float": "torch.float32",
    "torch.double": "torch.float64",
    "torch.int": "torch.int32",
    "torch.long": "torch.int64",
    "torch.short": "torch.int16",
    **{
        f"torch.{name}": f"torch.{name}"
        for name in [
            "float16",
            "bfloat16",
            "float32",
            "float64",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "bool",
            "float8_e4m3fn",
            "float8_e5m2",
            "float8_e4m3fnuz",
            "float8_e5m2fnuz",
            "float8_e8m0fnu",
            "float4_e2m1fn_x2",
        ]
    },
}
"""Names of another package that are known to be plain values, and which are the same."""

_PLAIN = (bool, int, float, str, bytes, type(None), type(...))


def truth(value: Any) -> bool | None:
    """Whether a value counts as true; ``None``: not known."""
    if isinstance(value, Unknown):
        return value.truth
    if isinstance(value, (*_PLAIN, list, tuple, set, frozenset, dict)):
        return bool(value)
    if isinstance(value, External):
        return True if value.path in DTYPES else None
    if isinstance(value, EnumMember):
        return _enum_truth(value)
    if isinstance(value, Items):
        return value.once or bool(value.values)
    if isinstance(value, ClassTerm):
        return None if _has_metaclass(value) else True
    if isinstance(value, (FunctionTerm, BoundMethod, ModuleTerm)):
        return True
    if isinstance(value, Instance):
        own = {name for name in ("__bool__", "__len__") if name in value.cls.scope.names}
        return None if own or not (value.is_tuple and value.fields) else True
    return None


def defines(cls: ClassTerm, *names: str) -> bool:
    """Whether a class or an ancestor may have one of these methods of its own."""
    for one in cls.linear or (cls,):
        if isinstance(one, ClassTerm):
            if not one.scope.names.keys().isdisjoint(names):
                return True
        elif isinstance(one, Unknown) or not one.path.startswith(_STANDARD):
            return True
    return False


_STANDARD = ("abc.", "builtins.", "enum.", "typing.", "typing_extensions.")


def _has_metaclass(cls: ClassTerm) -> bool:
    """Whether a metaclass may say what counts as true, or as equal."""
    return any(
        keyword.arg == "metaclass" and not ast.unparse(keyword.value).endswith("ABCMeta")
        for one in cls.linear or (cls,)
        if isinstance(one, ClassTerm)
        for keyword in one.node.keywords
    )


def _enum_truth(member: EnumMember) -> bool | None:
    if defines(member.cls, "__bool__", "__len__"):
        return None
    return truth(member.value) if member.text else None if _is_number(member.value) else True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Unknown))


def same(one: Any, other: Any) -> bool | None:
    """Whether two values are equal; ``None``: not known."""
    if isinstance(one, (Unknown, Items)) or isinstance(other, (Unknown, Items)):
        return None
    if isinstance(one, EnumMember) or isinstance(other, EnumMember):
        return _same_member(one, other)
    if isinstance(one, External) or isinstance(other, External):
        return _same_external(one, other)
    if isinstance(one, (list, tuple)) and type(one) is type(other):
        return _all_same(one, other)
    if isinstance(one, (set, frozenset)) and isinstance(other, (set, frozenset)):
        return one == other if _hashable_plain(one) and _hashable_plain(other) else None
    if isinstance(one, dict) and isinstance(other, dict):
        if not all(isinstance(key, _PLAIN) for key in (*one, *other)):
            return None
        if list(one) != list(other):
            return None if set(map(repr, one)) == set(map(repr, other)) else False
        return _all_same(list(one.values()), list(other.values()))
    if isinstance(one, _PLAIN) and isinstance(other, _PLAIN):
        nan = one != one or other != other  # whether it is the same object is not known
        return None if nan else one == other
    if isinstance(one, Instance) and isinstance(other, Instance):
        return _same_instance(one, other)
    if isinstance(one, Instance) or isinstance(other, Instance):
        return _instance_and_other(one, other)
    if isinstance(one, (ClassTerm, ModuleTerm)) or isinstance(other, (ClassTerm, ModuleTerm)):
        for cls in (one, other):
            if isinstance(cls, ClassTerm) and _has_metaclass(cls) and one is not other:
                return None
        return one is other
    if type(one) is type(other) and not isinstance(one, _PLAIN):
        return True if one is other else None
    return False if type(one) is not type(other) else None


def _all_same(one: Sequence[Any], other: Sequence[Any]) -> bool | None:
    if len(one) != len(other):
        return False
    answers = [same(a, b) for a, b in zip(one, other, strict=True)]
    if False in answers:
        return False
    return None if None in answers else True


def _hashable_plain(values: set[Any] | frozenset[Any]) -> bool:
    return all(isinstance(value, _PLAIN) for value in values)


def _same_member(one: Any, other: Any) -> bool | None:
    if isinstance(one, EnumMember) and isinstance(other, EnumMember):
        if one.cls.path == other.cls.path:
            if one.name == other.name:
                return True
            if defines(one.cls, "__eq__"):
                return None
            if isinstance(one.value, AutoTerm) and isinstance(other.value, AutoTerm):
                return False if _numbers_all(one.cls) else None
            return same(one.value, other.value)  # two names of one value are one member
        return None if one.text or other.text else False
    member, plain = (one, other) if isinstance(one, EnumMember) else (other, one)
    if defines(member.cls, "__eq__"):
        return None
    if member.text:
        return same(member.value, plain)
    if isinstance(plain, External):
        return None
    return None if _is_number(member.value) and _is_number(plain) else False


def _numbers_all(cls: ClassTerm) -> bool:
    """Whether ``auto()`` alone gives an enumeration's values, so that no two are the same."""
    if defines(cls, "_generate_next_value_"):
        return False
    values = (getattr(all_[-1].node, "value", None) for all_ in cls.scope.names.values())
    return all(ast.unparse(one).endswith("auto()") for one in values if isinstance(one, ast.expr))


def _same_external(one: Any, other: Any) -> bool | None:
    if isinstance(one, External) and isinstance(other, External):
        if one.path == other.path:
            return True
        known = DTYPES.get(one.path), DTYPES.get(other.path)
        return None if None in known else known[0] == known[1]
    external, plain = (one, other) if isinstance(one, External) else (other, one)
    if external.path in DTYPES and isinstance(plain, (*_PLAIN, ClassTerm, Instance, list, tuple)):
        return False
    return None


def _same_instance(one: Instance, other: Instance) -> bool | None:
    if one.cls.path != other.cls.path or one.supposed or other.supposed:
        return None
    if defines(one.cls, "__eq__") or _has_own_equality(one.cls):
        return None  # asked of the method, where it is readable
    return _all_same(list(one.fields.values()), list(other.fields.values()))


def _has_own_equality(cls: ClassTerm) -> bool:
    """Whether a dataclass says ``eq=…``: its objects may only equal themselves."""
    calls = (one for one in cls.node.decorator_list if isinstance(one, ast.Call))
    return any(keyword.arg == "eq" for call in calls for keyword in call.keywords)


def _instance_and_other(one: Any, other: Any) -> bool | None:
    instance, plain = (one, other) if isinstance(one, Instance) else (other, one)
    if defines(instance.cls, "__eq__"):
        return None
    if instance.is_tuple and isinstance(plain, tuple):
        return _all_same(list(instance.fields.values()), plain)
    return False
