"""What functions refuse that run while a backend is made: ``raise`` and ``assert``, and when.

Such functions stand in a chain: a factory hands its argument to a constructor, and that one hands
it to the next. Arguments are unknown but for one at a time, which has each value that is asked.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from selector.drift.chains import Body, Run, Tests, paths_of, reads_of, run_chain
from selector.drift.env import Env
from selector.drift.evaluating import Probe, Worlds, ask, dynamic, position
from selector.drift.reading import Answer, Attribute, Guard
from selector.drift.statements import message_of
from selector.drift.terms import Place, Unknown, truth
from selector.drift.world import Frame, World

__all__ = ["CAPABILITY", "Event", "events", "read_guards", "test_text"]

GUARDS = 200
"""No more guards than this are read of one chain."""
CAPABILITY = "capability"
"""The name under which a guard tells the architectures that it refuses, whatever else is given."""


class Event(msgspec.Struct, frozen=True):
    """A ``raise``, ``assert``, ``return`` of something, or call that is sought, and the way to it.

    Attributes:
        node: the statement.
        tests: all must come out as said for it to be reached; an assertion's own must be false.
        certain: nothing else decides whether it is reached.
        before: the statements before it on its way, those of the blocks around it too.
    """

    node: ast.stmt
    tests: Tests
    certain: bool
    before: tuple[ast.stmt, ...]


def events(
    body: list[ast.stmt],
    tests: Tests = (),
    certain: bool = True,
    before: tuple[ast.stmt, ...] = (),
    sought: ast.Call | None = None,
) -> Iterator[Event]:
    """The events of a function's body, in order; where a call is sought, that alone."""
    for statement in body:
        match statement:
            case ast.Raise(exc=ast.expr()) | ast.Return(value=ast.expr()) if sought is None:
                yield Event(statement, tests, certain, before)
            case ast.Assert(test=test) if sought is None:
                yield Event(statement, (*tests, (test, False)), certain, before)
            case ast.If(test=test):
                yield from events(statement.body, (*tests, (test, True)), certain, before, sought)
                yield from events(
                    statement.orelse, (*tests, (test, False)), certain, before, sought
                )
            case ast.For() | ast.While() | ast.With() | ast.Try():
                for field in ("body", "orelse", "finalbody"):
                    yield from events(getattr(statement, field, []), tests, False, before, sought)
            case _ if any(node is sought for node in ast.walk(statement)):
                yield Event(statement, tests, certain, before)
        before = (*before, statement)
        if any(isinstance(node, ast.Return) for node in ast.walk(statement)):
            if isinstance(statement, ast.If) and (past := _past(statement)) is not None:
                tests = (*tests, past)
            else:
                certain = False


def _past(statement: ast.If) -> tuple[ast.expr, bool] | None:
    """The test that holds behind an ``if`` one of whose branches always ends the function."""
    ends, other = _ends(statement.body), _ends(statement.orelse)
    rest = statement.orelse if ends else statement.body
    if ends is other or any(isinstance(n, ast.Return) for one in rest for n in ast.walk(one)):
        return None
    return statement.test, other


def _ends(body: list[ast.stmt]) -> bool:
    return any(
        isinstance(one, (ast.Return, ast.Raise))
        or (isinstance(one, ast.If) and _ends(one.body) and _ends(one.orelse))
        for one in body
    )


def read_guards(
    worlds: Worlds,
    locate: Callable[[World], Sequence[Body]],
    probes: Mapping[str, Probe],
    given: Mapping[str, Any] | None = None,
) -> tuple[Guard, ...]:
    """The guards of a chain of functions, the first one's first.

    Those that no supposed machine can reach are left out.

    Args:
        worlds: the supposed machines.
        locate: world → the chain there.
        probes: argument of the first function, or ``argument.attribute`` → the values that are
            asked, one argument at a time.
        given: what all questions take for granted, by the same names.
    """
    asked = _Asked(worlds, locate, probes, given or {})
    guards: list[Guard] = []
    for number, body in enumerate(asked.chain):
        for event in events(body.function.body):
            if isinstance(event.node, ast.Return) or not event.tests or len(guards) >= GUARDS:
                continue
            if (guard := _guard(asked, number, event)) is not None:
                guards.append(guard)
    return tuple(guards)


class _Asked:
    """A chain in all worlds, with what was asked of it before."""

    def __init__(
        self,
        worlds: Worlds,
        locate: Callable[[World], Sequence[Body]],
        probes: Mapping[str, Probe],
        given: Mapping[str, Any],
    ) -> None:
        self.worlds, self.probes, self._locate, self._given = worlds, probes, locate, given
        self.chain = locate(worlds.first)
        self.reads = reads_of(worlds.first, self.chain)
        self._runs: dict[Any, Run] = {}

    def run(self, world: World, argument: str, at: int) -> Run:
        """The chain's local names where an argument has one of its values; else all are open."""
        key = (id(world), argument, at)
        if key not in self._runs:
            chain = self.chain if world is self.worlds.first else self._locate(world)
            given = {argument: self.probes[argument].values[at][1](world)} if argument else {}
            self._runs[key] = run_chain(world, chain, {**self._given, **given})
        return self._runs[key]


def _guard(asked: _Asked, number: int, event: Event) -> Guard | None:
    body = asked.chain[number]
    at = position(Place.of(body.module, event.node))
    certain = event.certain and all(one.certain for one in asked.chain[: number + 1])
    where = _capabilities(asked, number, event, certain)
    if where is None:
        return None
    tests = [test for one in asked.chain[: number + 1] for test in one.tests] + [*event.tests]
    arguments: dict[str, None] = {}
    for one, known in zip(asked.chain[: number + 1], [{}, *asked.reads], strict=False):
        for test, _ in one.tests:
            arguments |= dict.fromkeys(paths_of(test, known))
    for test, _ in event.tests:
        arguments |= dict.fromkeys(paths_of(test, asked.reads[number]))
    refuses: list[Attribute] = []
    for name, probe in asked.probes.items() if certain else ():
        if any(path == name or path.startswith(f"{name}.") for path in arguments):
            answers = _refused(asked, number, event, name, probe)
            values = tuple(value for value, _ in probe.values)
            refuses.append(_attribute(name, body, at, answers, values))
    if where.undecided != _all(asked):  # else it depends on other things alone
        refuses.append(Attribute(CAPABILITY, "argument", body.label, at, where, {}, _all(asked)))
    exception, message = _exception(event.node)
    texts = tuple(dict.fromkeys(test_text(test, holds) for test, holds in tests))
    return Guard(
        body.label, at, exception, message, texts, tuple(arguments), tuple(refuses),
        in_constructor=body.cls is not None,
    )  # fmt: skip


def _all(asked: _Asked) -> tuple[str, ...]:
    return tuple(asked.worlds.by_capability)


def _capabilities(asked: _Asked, number: int, event: Event, certain: bool) -> Answer | None:
    """On which architectures it certainly raises; ``None``: on none, whatever is given."""
    refused: list[str] = []
    open_on: list[str] = []
    doubt: Unknown | None = None
    held: bool | Unknown = True
    depends = True
    for capability, world in asked.worlds.by_capability.items():
        if depends:
            run = asked.run(world, "", 0)
            held = _holds(run, number, event)
            depends = run.used_capability or world.used_capability
        if held is True and certain:
            refused.append(capability)
        elif held is not False:
            open_on.append(capability)
            place = Place.of(asked.chain[number].module, event.node)
            passed = Unknown(place, "…", "may be passed by")
            doubt = doubt or (held if isinstance(held, Unknown) else passed)
    if not refused and not open_on:
        return None
    if doubt is None:
        return Answer(value=refused)
    return Answer(value=refused, dynamic=dynamic(doubt), undecided=tuple(open_on))


def _refused(
    asked: _Asked, number: int, event: Event, argument: str, probe: Probe
) -> dict[str, Answer]:
    """Which values of an argument it certainly refuses, whatever the others are."""
    answers: dict[str, Answer] = {}
    for capability, world in asked.worlds.by_capability.items():
        refused: list[Any] = []
        undecided: list[Any] = []
        doubt: Unknown | None = None
        depends = False
        for at, (value, _) in enumerate(probe.values):
            run = asked.run(world, argument, at)
            held = _holds(run, number, event)
            depends = depends or run.used_capability or world.used_capability
            if held is True:
                refused.append(value)
            elif isinstance(held, Unknown):
                undecided.append(value)
                doubt = doubt or held
        answers[capability] = Answer(value=refused)
        if doubt is not None:
            answers[capability] = Answer(refused, "", dynamic(doubt), tuple(undecided))
        if not depends:
            break
    return answers


def _holds(run: Run, number: int, event: Event) -> bool | Unknown:
    """Whether everything holds that leads to an event, and there."""
    doubt: Unknown | None = None
    used = False
    ways = [(at - 1, run.chain[at].tests) for at in range(1, number + 1)]
    for at, tests in (*ways, (number, event.tests)):
        body, env = run.chain[at], run.envs[at]
        for test, wanted in tests:
            result = evaluate_in(run.world, body, env, test)
            used = used or run.world.used_capability
            known = truth(result)
            if known is None:
                missing = Unknown(Place.of(body.module, test), test, "cannot be read")
                doubt = doubt or (result if isinstance(result, Unknown) else missing)
            elif known is not wanted:
                run.world.used_capability = used
                return False
    run.world.used_capability = used
    return True if doubt is None else doubt


def evaluate_in(world: World, body: Body, env: Env, node: ast.expr) -> Any:
    """What an expression of a body gives with these local names."""
    frame = Frame(body.module, env, None, body.cls)
    return ask(world, lambda _: world.evaluate(node, frame))


def test_text(test: ast.expr, holds: bool) -> str:
    """A test as it is written, with how it must come out."""
    text = ast.unparse(test)[:300]
    return text if holds else f"not ({text})"


def _exception(node: ast.AST) -> tuple[str, str]:
    if isinstance(node, ast.Assert):
        return "AssertionError", message_of(node.msg) if node.msg is not None else ""
    assert isinstance(node, ast.Raise)
    assert node.exc is not None
    call = node.exc if isinstance(node.exc, ast.Call) else None
    name = ast.unparse(call.func if call else node.exc)[:100]
    return name, message_of(call.args[0]) if call and call.args else ""


def _attribute(
    argument: str,
    body: Body,
    at: Any,
    answers: dict[str, Answer],
    asked: tuple[Any, ...],
) -> Attribute:
    if len({msgspec.json.encode(answer) for answer in answers.values()}) == 1:
        one = next(iter(answers.values()))
        return Attribute(argument, "argument", body.label, at, one, {}, asked)
    return Attribute(argument, "argument", body.label, at, None, answers, asked)
