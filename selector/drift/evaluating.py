"""Asks a class what it says, on each architecture and with each value, and which class says it."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from selector.drift.attributes import class_attribute
from selector.drift.calls import call
from selector.drift.env import Env
from selector.drift.expressions import evaluate
from selector.drift.hierarchy import Member, find_member, members_of, order
from selector.drift.modules import Module, Modules, Scope
from selector.drift.reading import Answer, Attribute, ClassReading, Dynamic
from selector.drift.terms import (
    DTYPES,
    BoundMethod,
    ClassTerm,
    EnumMember,
    External,
    FunctionTerm,
    Instance,
    Items,
    Place,
    RaisedError,
    Unknown,
    truth,
)
from selector.drift.world import STEPS, Frame, GaveUpError, World
from selector.values import Position

__all__ = [
    "Probe",
    "Worlds",
    "ancestry",
    "answering",
    "ask",
    "label",
    "make_worlds",
    "read_attribute",
    "read_class",
]


class Probe(msgspec.Struct, frozen=True):
    """The values that a method is asked with, one by one, as its one argument.

    Attributes:
        values: as JSON, with what makes the term in a world.
        maps: whether the answers are kept by value (``get_preferred_block_size``); else the values
            that are accepted are listed.
        by_capability: the argument is the compute capability itself; ``values`` has one entry.
        together: each value stands for several arguments; what makes it gives, for each by its
            name, what makes its term. The method is handed those that it takes, and may say why
            not, or ``None``.
    """

    values: tuple[tuple[Any, Callable[[World], Any]], ...]
    maps: bool = False
    by_capability: bool = False
    together: bool = False


class Worlds(msgspec.Struct, frozen=True):
    """The supposed machines, by compute capability."""

    by_capability: dict[str, World]

    @property
    def first(self) -> World:
        """Any one of them, for what depends on no architecture."""
        return next(iter(self.by_capability.values()))


Supposed = Mapping[str, Callable[[World], Any]]


def make_worlds(
    modules: Modules,
    capabilities: Sequence[str],
    suppose: Callable[[str], Supposed],
    foreign: frozenset[str] = frozenset(),
) -> Worlds:
    """A world for each compute capability; ``suppose`` says which names tell it there.

    ``foreign``: modules that are made for another platform than the supposed one.
    """
    return Worlds(
        {one: World(modules, evaluate, call, suppose(one), foreign) for one in capabilities}
    )


def ask(world: World, question: Callable[[Frame], Any]) -> Any:
    """What a question gives in a world; unknown where it cannot be read. Never raises.

    Returns a value, an :class:`Unknown`, or a :class:`RaisedError` that the code raises.
    """
    world.steps, world.depth, world.used_capability, world.cut = STEPS, 0, False, None
    frame = Frame(_NOWHERE)
    try:
        value = question(frame)
    except GaveUpError as error:
        return error.unknown
    except RaisedError as error:
        value = error
    except RecursionError:
        return Unknown(Place("", 1, 1), "…", "is nested too deeply")
    if world.cut is not None and not isinstance(value, (Unknown, Member)):
        return world.cut.blank()
    return value


def _nowhere() -> Module:
    return Module("", "", False, ast.Module([], []), Scope(), {}, {})


_NOWHERE = _nowhere()
_PASS = _NOWHERE.tree


def answering(value: Any) -> FunctionTerm:
    """A function that gives a value, whatever it is called with: for what a reader supposes."""
    env = Env({"value": value})
    env.done = True
    node = ast.parse("lambda *args, **kwargs: value", mode="eval").body
    assert isinstance(node, ast.Lambda)
    return FunctionTerm(node, _NOWHERE, None, env)


def plain(value: Any) -> Any:
    """A value as JSON; an :class:`Unknown` where it is none."""
    if isinstance(value, float) and not math.isfinite(value):
        return Unknown(Place("", 1, 1), str(value), "is no number that can be written")
    if isinstance(value, str) and not value.isprintable() and _is_half(value):
        return Unknown(Place("", 1, 1), ascii(value)[:80], "is no text that can be written")
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, range)):
        return _plain_list(list(value))
    if isinstance(value, (set, frozenset)):
        return _plain_list(sorted(value, key=repr))
    if isinstance(value, Items) and not (value.once or value.holder):
        made = _plain_list(list(value.values))  # a set
        return sorted(made, key=repr) if isinstance(made, list) else made
    if isinstance(value, dict):
        parts = {_key(key): plain(part) for key, part in value.items()}
        doubt = next((part for part in parts.values() if isinstance(part, Unknown)), None)
        return parts if doubt is None else doubt
    if isinstance(value, EnumMember):
        return f"{value.cls.name}.{value.name}"
    if isinstance(value, ClassTerm):
        return label(value)
    if isinstance(value, External) and value.path in DTYPES:
        return DTYPES[value.path]
    if isinstance(value, Instance) and not value.supposed:
        parts = {name: plain(part) for name, part in value.fields.items()}
        doubt = next((part for part in parts.values() if isinstance(part, Unknown)), None)
        text = ", ".join(f"{name}={part!r}" for name, part in parts.items())
        return f"{value.cls.name}({text})" if doubt is None else doubt
    if isinstance(value, Unknown):
        return value
    if isinstance(value, External):
        return Unknown(value.place, value.path, "is a value of another package")
    place = value.place if isinstance(value, FunctionTerm) else Place("", 1, 1)
    return Unknown(place, "…", "is no plain value")


def _is_half(text: str) -> bool:
    """Whether a text holds half of a surrogate pair."""
    return any("\ud800" <= one <= "\udfff" for one in text)


def _key(value: Any) -> str:
    return str(plain(value)) if not isinstance(value, str) else value


def _plain_list(values: list[Any]) -> Any:
    parts = [plain(value) for value in values]
    doubt = next((part for part in parts if isinstance(part, Unknown)), None)
    return parts if doubt is None else doubt


def label(cls: ClassTerm) -> str:
    """A class's dotted path, as the class itself would say it."""
    name = cls.overrides.get("__qualname__", cls.name)
    module = cls.overrides.get("__module__", cls.module_name)
    return f"{module}.{name}" if isinstance(name, str) and isinstance(module, str) else cls.path


def position(place: Place) -> Position:
    """A place as a position."""
    return Position(place.path, place.line, place.column)


def dynamic(unknown: Unknown) -> Dynamic:
    """An unknown as data."""
    return Dynamic(position(unknown.place), unknown.text, unknown.why)


def answer_of(value: Any, at: Place) -> Answer:
    """What was read, as an answer."""
    if isinstance(value, RaisedError):
        return Answer(raises=value.name)
    made = plain(value)
    if isinstance(made, Unknown):
        if not made.place.path:
            made = Unknown(at, made.text, made.why)
        return Answer(dynamic=dynamic(made))
    return Answer(value=made)


def read_class(
    worlds: Worlds,
    locate: Callable[[World], Any],
    wanted: re.Pattern[str],
    probes: Mapping[str, Probe],
) -> ClassReading:
    """The capabilities that a class states and inherits.

    Args:
        worlds: the supposed machines.
        locate: world → the class there.
        wanted: which names of members are read.
        probes: method → what it is asked with.
    """
    cls = locate(worlds.first)
    found = ask(worlds.first, lambda frame: members_of(worlds.first, cls))
    names = found if isinstance(found, dict) else {}
    attributes = {
        name: read_attribute(worlds, locate, name, probes.get(name))
        for name in sorted(names)
        if wanted.search(name)
    }
    return ClassReading(
        label(cls),
        position(cls.place),
        tuple(map(_ancestor, ancestry(worlds.first, cls))),
        {name: attribute for name, attribute in attributes.items() if attribute is not None},
    )


def ancestry(world: World, cls: Any) -> Sequence[Any]:
    """A class and its ancestors in order; empty where there is none, or it is not known."""
    linear = ask(world, lambda frame: order(world, cls)) if isinstance(cls, ClassTerm) else ()
    return linear if isinstance(linear, (list, tuple)) else ()


def _ancestor(one: Any) -> str:
    if isinstance(one, ClassTerm):
        return label(one)
    return one.path if isinstance(one, External) else f"? {one.text}"


def read_attribute(
    worlds: Worlds, locate: Callable[[World], Any], name: str, probe: Probe | None
) -> Attribute | None:
    """One capability of a class; ``None`` where no class of the hierarchy has it."""
    first = worlds.first
    cls = ask(first, lambda frame: locate(first))
    if not isinstance(cls, ClassTerm):
        return None
    member = ask(first, lambda frame: find_member(first, cls, name))
    if member is None:
        return None
    if not isinstance(member, Member):
        at = member.place if isinstance(member, (Unknown, RaisedError)) else Place("", 1, 1)
        return Attribute(name, "attribute", "", position(at), answer_of(member, at))
    answers: dict[str, Answer] = {}
    for capability, world in worlds.by_capability.items():
        here = locate(world)
        if not isinstance(here, ClassTerm):
            why = Unknown(member.place, name, "is of a class that is not read on this architecture")
            answers[capability] = Answer(dynamic=dynamic(why))
            continue
        answers[capability], depends = _ask_member(world, here, name, probe, member)
        if not depends and not answers.keys() - {capability}:
            return _attribute(name, member, probe, answers[capability], {})
    alike = len({msgspec.json.encode(one) for one in answers.values()}) == 1
    if alike:
        return _attribute(name, member, probe, next(iter(answers.values())), {})
    return _attribute(name, member, probe, None, answers)


def _attribute(
    name: str,
    member: Member,
    probe: Probe | None,
    answer: Answer | None,
    by_capability: dict[str, Answer],
) -> Attribute:
    kind = "attribute"
    if isinstance(member.value, FunctionTerm):
        kind = "property" if member.value.kind == "property" else "method"
    owner = label(member.owner) if member.owner is not None else ""
    used = kind == "method" and probe is not None and not probe.by_capability
    asked = tuple(value for value, _ in probe.values) if used and probe is not None else ()
    place = position(member.place)
    return Attribute(name, kind, owner, place, answer, by_capability, asked)


def _ask_member(
    world: World, cls: ClassTerm, name: str, probe: Probe | None, member: Member
) -> tuple[Answer, bool]:
    """What a class says in one world, and whether that depends on the architecture."""
    if not isinstance(member.value, FunctionTerm):
        value = ask(world, lambda frame: class_attribute(world, cls, name, _PASS, frame))
        return answer_of(value, member.place), world.used_capability
    function = ask(world, lambda frame: class_attribute(world, cls, name, _PASS, frame))
    depends = world.used_capability
    if not isinstance(function, (FunctionTerm, BoundMethod)):
        unknown = function if isinstance(function, Unknown) else None
        why = unknown or Unknown(member.place, name, "is a property, which an object answers")
        return Answer(dynamic=dynamic(why)), depends
    needed = _needed(function)
    if needed == 0:
        value = ask(world, lambda frame: world.call(function, [], {}, (frame, _PASS)))
        return answer_of(value, member.place), depends or world.used_capability
    if probe is None or (needed != 1 and not probe.together):
        why = Unknown(member.place, name, "takes arguments that are not asked here")
        return Answer(dynamic=dynamic(why)), depends
    answer, used = _ask_probe(world, function, probe, member.place)
    return answer, depends or used or probe.by_capability


def _parameters(function: FunctionTerm | BoundMethod) -> dict[str, bool]:
    """The parameters of a function, and whether it reads them."""
    inner = function.function if isinstance(function, BoundMethod) else function
    takes = inner.node.args
    read = {node.id for node in ast.walk(inner.node) if isinstance(node, ast.Name)}
    every = (*takes.posonlyargs, *takes.args, *takes.kwonlyargs)
    return {one.arg: one.arg in read for one in every}


def _needed(function: FunctionTerm | BoundMethod) -> int:
    """How many arguments a call must give."""
    inner = function.function if isinstance(function, BoundMethod) else function
    takes = inner.node.args
    count = len(takes.posonlyargs) + len(takes.args) - len(takes.defaults)
    count += sum(default is None for default in takes.kw_defaults)
    return count - (1 if isinstance(function, BoundMethod) else 0)


def _ask_probe(world: World, function: Any, probe: Probe, at: Place) -> tuple[Answer, bool]:
    used = False
    taken: dict[Any, Any] = {}
    undecided: list[Any] = []
    doubt: Unknown | None = None
    names = _parameters(function)
    for value, make in probe.values:

        def question(frame: Frame, make: Callable[[World], Any] = make) -> Any:
            if not probe.together:
                return world.call(function, [make(world)], {}, (frame, _PASS))
            made = make(world).items()
            named = {one: term(world) if names[one] else None for one, term in made if one in names}
            return world.call(function, [], named, (frame, _PASS))

        result = ask(world, question)
        used = used or world.used_capability
        if isinstance(result, RaisedError):
            return Answer(raises=result.name), used
        if probe.by_capability:
            known = truth(result)
            return answer_of(result if known is None else known, at), used
        if probe.together and not isinstance(result, bool):  # ``None``, or why not
            decided = None if (against := truth(result)) is None else not against
        else:
            decided = plain(result) if probe.maps else truth(result)
        if decided is None or isinstance(decided, Unknown):
            undecided.append(value)
            doubt = doubt or (result if isinstance(result, Unknown) else _no_value(at))
        elif probe.maps:
            taken[str(value)] = decided
        elif decided:
            taken[value] = value
    kept = taken if probe.maps else list(taken.values())
    if doubt is None:
        return Answer(value=kept), used
    return Answer(value=kept, dynamic=dynamic(doubt), undecided=tuple(undecided)), used


def _no_value(at: Place) -> Unknown:
    return Unknown(at, "…", "gives no plain value")
