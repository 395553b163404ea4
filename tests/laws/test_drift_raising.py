"""A function of which reading says that it certainly raises does so, whatever it is given."""

from __future__ import annotations

import textwrap
from itertools import product
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from selector.drift.evaluating import ask, make_worlds
from selector.drift.modules import Modules
from selector.drift.raising import find_raise
from selector.drift.sources import open_source
from selector.drift.terms import Place

TESTS = st.sampled_from(
    ["a", "b", "not a", "found", "a and b", "cc > 8", "cc == 9 and a", "len(found) == 0",
     "not found", "cc in (8, 9) or b", "True", "False", "a == cc"]
)  # fmt: skip
SIMPLE = st.sampled_from(
    ["raise ValueError('x')", "return a", "a = cc", "b = not a", "found = [a]", "found = []",
     "found.append(a)", "other = found", "found += [1]", "check(a)", "a = check(cc)",
     "check(found)", "assert a", "assert cc == 9", "fill(found)", "c = b", "found = (a, b)",
     "d = {}", "pass", "a = b.nothing", "keep()", "def keep():\n    found.append(1)",
     "return check(b)"]
)  # fmt: skip


def _indent(body: list[str]) -> str:
    return textwrap.indent("\n".join(body), "    ")


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    bodies = st.lists(inner, min_size=1, max_size=3).map(_indent)
    return st.one_of(
        st.builds("if {}:\n{}".format, TESTS, bodies),
        st.builds("if {}:\n{}\nelse:\n{}".format, TESTS, bodies, bodies),
        st.builds("try:\n{}\nexcept ValueError:\n{}".format, bodies, bodies),
        st.builds("try:\n{}\nexcept Exception:\n{}\nelse:\n{}".format, bodies, bodies, bodies),
        st.builds("try:\n{}\nfinally:\n{}".format, bodies, bodies),
        st.builds("for one in [a, b]:\n{}".format, bodies),
        st.builds("with quiet():\n{}".format, bodies),
    )


STATEMENTS = st.recursive(SIMPLE, _compound, max_leaves=12)
HEAD = """
from contextlib import contextmanager

cc = 9


@contextmanager
def quiet():
    try:
        yield
    except ValueError:
        pass


def fill(some):
    if isinstance(some, list):
        some.append(1)


def check(value):
    if not value:
        raise ValueError("empty")
    return value
"""


def _program(body: list[str]) -> str:
    return f"{HEAD}\n\ndef function(a, b):\n    found = []\n{_indent(body)}\n"


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(STATEMENTS, min_size=1, max_size=5))
@example(["if a:\n    found.append(1)", "if not found:\n    raise ValueError('x')"])
@example(["try:\n    raise ValueError('x')\nfinally:\n    return a"])
@example(["try:\n    check(False)\nexcept ValueError:\n    pass"])
@example(["other = found", "for one in [a]:\n    other.append(1)", "check(found)"])
def test_what_is_said_to_raise_raises(tmp_path: Path, body: list[str]) -> None:
    text = _program(body)
    folder = tmp_path / "engine"
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text("", "utf-8")
    (folder / "code.py").write_text(text, "utf-8")
    worlds = make_worlds(Modules(open_source(tmp_path, "engine")), ("9.0",), lambda one: {})
    world = worlds.first
    function = ask(world, lambda _: world.by_path("engine.code.function", Place("", 1, 1)))
    if find_raise(world, function) is None:
        return
    for given_values in product((0, 1, 9, [], [1], "x"), repeat=2):
        known: dict[str, object] = {}
        exec(compile(text, "code.py", "exec"), known)
        try:
            known["function"](*given_values)  # type: ignore[operator]
        except Exception:
            continue
        raise AssertionError(f"returns for {given_values}:\n{text}")
