"""A law of reading constructors: what a guard certainly refuses, Python refuses."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from selector.drift.chains import Body
from selector.drift.constructors import constructors_of
from selector.drift.evaluating import Probe, make_worlds
from selector.drift.factories import products_of
from selector.drift.guards import read_guards
from selector.drift.modules import Modules
from selector.drift.sources import open_source
from selector.drift.terms import FunctionTerm, Place

VALUES = (0, 1, 2, None)
FIELDS = ("n", "m")

outside = st.sampled_from(["r.n", "r.m", "0", "1", "2", "None"])
inside = st.sampled_from(["r.n", "r.m", "a", "b", "x", "self.p", "self.q", "0", "1", "2", "None"])


def conditions(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    two = st.tuples(leaves, st.sampled_from(["==", "!=", "in"]), leaves)
    one = two.map(lambda t: f"{t[0]} {t[1]} ({t[2]},)" if t[1] == "in" else " ".join(t))
    joined = st.tuples(one, st.sampled_from(["and", "or"]), one).map(" ".join)
    return st.one_of(one, joined, one.map(lambda t: f"not ({t})"))


@st.composite
def constructors(draw: st.DrawFn, depth: int = 0) -> list[str]:
    """The statements of a constructor, of which some refuse."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["assert", "raise", "set", "name", "if", "return", "call"]))
        test = draw(conditions(inside))
        if kind == "assert":
            lines.append(f"assert {test}")
        elif kind == "raise":
            lines += [f"if {test}:", "    raise ValueError"]
        elif kind == "set":
            value = draw(st.one_of(inside, conditions(inside)))
            lines.append(f"self.{draw(st.sampled_from('pq'))} = {value}")
        elif kind == "name":
            lines.append(f"{draw(st.sampled_from(['x', 'a', 'r']))} = {draw(inside)}")
        elif kind == "call":
            lines.append("self.change(r)")
        elif kind == "return" and depth:
            lines.append("return")
        elif depth < 2:
            inner = ["    " + line for line in draw(constructors(depth + 1))]
            lines += [f"if {test}:", *inner]
    return lines or ["pass"]


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A factory, a class, its base, and what they hand on."""
    lines = ["class Base:", "    p = 1", "    q = 2", "    x = 3"]
    lines += [
        "    def change(self, r):",
        f"        {draw(st.sampled_from(['pass', 'self.p = 2']))}",
    ]
    lines += ["    def __init__(self, r, a=0, b=1):", "        x = 1"]
    lines += ["        " + line for line in draw(constructors())]
    lines += ["class Made(Base):", "    def __init__(self, r, a=2, **rest):", "        x = b = 1"]
    handed = draw(st.sampled_from(["r", "r, a", "r, b=a", "r, a, **rest", "r, 1, r.m"]))
    before, after = draw(constructors()), draw(constructors())
    for part in (before, [f"super().__init__({handed})"], after):
        lines += ["        " + line for line in part]
    lines += ["def make(r):"]
    if draw(st.booleans()):
        lines += [f"    if {draw(conditions(outside))}:", "        raise ValueError"]
    if draw(st.booleans()):
        lines += [f"    if {draw(conditions(outside))}:", "        return Base(r)"]
    given_too = draw(st.sampled_from(["r", "r, r.n", "r, a=1", "r, b=2", "r, r.m, b=r.n"]))
    lines += [f"    return Made({given_too})"]
    return "\n".join(lines) + "\n"


def refuses(text: str, n: Any, m: Any) -> bool:
    """Whether Python refuses to make the object."""
    module: dict[str, Any] = {}
    exec(compile(text, "program", "exec"), module)
    try:
        module["make"](SimpleNamespace(n=n, m=m))
    except (AssertionError, ValueError):
        return True
    except (AttributeError, NameError, TypeError):
        return True  # it is not made either
    return False


def certain(text: str) -> set[tuple[str, Any]]:
    """The values of each field that a guard certainly refuses, whichever class is built."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "engine"
        package.mkdir()
        (package / "__init__.py").write_text("", "utf-8")
        (package / "code.py").write_text(text, "utf-8")
        worlds = make_worlds(Modules(open_source(folder, "engine")), ("9.0",), lambda one: {})
        world = worlds.first
        nowhere = Place("", 1, 1)
        function = world.by_path("engine.code.make", nowhere)
        assert isinstance(function, FunctionTerm)
        factory = Body("make", function.module, function.node, None)  # type: ignore[arg-type]
        values = tuple((one, lambda world, one=one: one) for one in VALUES)
        probes = {f"r.{name}": Probe(values) for name in FIELDS}
        chains = [[factory]]
        for made in products_of(worlds, factory):
            first, *rest = constructors_of(world, world.by_path(made.cls, nowhere))
            first = Body(
                first.label, first.module, first.function, first.cls, first.outer,
                made.call, made.tests, made.certain,
            )  # fmt: skip
            chains.append([*made.chain, first, *rest])
        return {
            (refused.name, value)
            for chain in chains
            for guard in read_guards(worlds, lambda world, c=chain: c, probes)  # type: ignore[misc]
            for refused in guard.refuses
            if refused.answer is not None
            for value in refused.answer.value
        }


@given(programs())
def test_a_value_that_is_certainly_refused_is_refused_whatever_else_is_given(text: str) -> None:
    said = certain(text)
    for n, m in itertools.product(VALUES, VALUES):
        if ("r.n", n) in said or ("r.m", m) in said or ("capability", "9.0") in said:
            assert refuses(text, n, m), (n, m, said)
