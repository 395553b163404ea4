"""Laws of reading code: what is read is what Python says, whatever the program is."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from selector.drift.evaluating import make_worlds, read_attribute
from selector.drift.modules import Modules
from selector.drift.sources import open_source
from selector.drift.terms import Place

NAMES = ("a", "b", "c")
CLASSES = ("A", "B", "C", "D")
_NUMBERS = itertools.count()

constants = st.sampled_from(
    ["0", "1", "2", "8", "-3", "True", "False", "None", "'fp8'", "'auto'", "''", "[]", "[1, 2]",
     "('auto', 'fp8')", "K", "L", "Kind.ONE", "Kind.TWO", "Pair(1, 2)", "{'x': 1}", "{1, 2}"]
)  # fmt: skip


def expressions(leaves: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Expressions that a program of the language below can hold."""

    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        two = st.tuples(inner, inner)
        operators = ["==", "!=", "in", "not in", "is", "and", "or", "<", ">=", "+", "%", "*"]
        return st.one_of(
            st.tuples(two, st.sampled_from(operators)).map(
                lambda t: f"({t[0][0]} {t[1]} {t[0][1]})"
            ),
            inner.map(lambda e: f"(not {e})"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
            inner.map(lambda e: f"bool({e})"),
            inner.map(lambda e: f"[x for x in {e} if x]"),
            two.map(lambda t: f"any([{t[0]}, {t[1]}])"),
            two.map(lambda t: f"all(({t[0]}, {t[1]}))"),
            two.map(lambda t: f"[{t[0]}, {t[1]}]"),
            two.map(lambda t: f"isinstance({t[0]}, (int, str))"),
            inner.map(lambda e: f"{e}[0]"),
            inner.map(lambda e: f"f'{{{e}}}x'"),
        )

    return st.recursive(leaves, grow, max_leaves=5)


values = expressions(constants)
calls = st.sampled_from(
    [*(f"cls.{n}()" for n in NAMES), *(f"super().{n}()" for n in NAMES), "cls.s"]
)
inside = expressions(st.one_of(constants, calls, st.sampled_from(["x", "y", "cls.s"])))


@st.composite
def bodies(draw: st.DrawFn, depth: int = 0) -> list[str]:
    """The statements of a function."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(st.sampled_from(["assign", "if", "for", "try", "append", "return", "raise"]))
        if kind == "assign" or depth > 1:
            lines.append(f"{draw(st.sampled_from('xy'))} = {draw(inside)}")
        elif kind == "append":
            lines += ["z = []", f"z.append({draw(inside)})", f"x = z + [{draw(inside)}]"]
        elif kind == "return":
            lines.append(f"return {draw(inside)}")
        elif kind == "raise":
            lines += [f"if {draw(inside)}:", "    raise NotImplementedError"]
        else:
            inner = ["    " + line for line in draw(bodies(depth + 1))]
            if kind == "if":
                lines += [f"if {draw(inside)}:", *inner, "else:", "    y = 3"]
            elif kind == "for":
                lines += [f"for x in {draw(inside)}:", *inner]
            else:
                lines += ["try:", *inner, "except NotImplementedError:", f"    x = {draw(inside)}"]
    return lines


@st.composite
def programs(draw: st.DrawFn) -> str:
    """A module with a small hierarchy of classes."""
    lines = [
        "from enum import Enum", "from typing import NamedTuple", "K = 4", "L = ['auto', K]",
        "class Kind(Enum):", "    ONE = 'fp8'", "    TWO = 2",
        "class Pair(NamedTuple):", "    p: int", "    q: int",
    ]  # fmt: skip
    for number, name in enumerate(CLASSES):
        bases = draw(st.lists(st.sampled_from(CLASSES[:number]), unique=True)) if number else []
        lines.append(f"class {name}({', '.join(bases)}):")
        lines.append(f"    s = {draw(values)}" if not bases or draw(st.booleans()) else "    pass")
        for method in NAMES:
            if not bases or draw(st.integers(0, 2)) == 0:
                lines += ["    @classmethod", f"    def {method}(cls, x=1, y=[2]):"]
                lines += ["        " + line for line in draw(bodies())]
                lines.append(f"        return {draw(inside)}")
    return "\n".join(lines) + "\n"


def run(text: str, cls: str, name: str) -> tuple[str, Any]:
    """What Python says: a value, or an exception."""
    known: dict[str, Any] = {"__name__": f"drawn{next(_NUMBERS)}"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            exec(compile(text, "drawn", "exec"), known)
    except Exception:
        return "no module", None
    if not hasattr(known[cls], name):
        return "no member", None
    try:
        found = getattr(known[cls], name)
        return "value", found() if callable(found) else found
    except Exception as error:
        return "raises", type(error).__name__


def as_json(value: Any) -> Any:
    """A value as the reading writes it."""
    if hasattr(value, "_fields"):
        return f"Pair(p={value.p}, q={value.q})"
    if isinstance(value, (list, tuple)):
        return [as_json(part) for part in value]
    if isinstance(value, (set, frozenset)):
        return [as_json(part) for part in sorted(value, key=repr)]
    if isinstance(value, dict):
        return {str(key): as_json(part) for key, part in value.items()}
    return str(value) if type(value).__name__ == "Kind" else value


def check(text: str) -> tuple[int, int, int]:
    """Holds every class of a program against Python.

    Returns how many members were known, how many dynamic, and how many known where Python fails on
    the way: a call that is not understood, and whose result does not matter, is taken to return.
    """
    known = dynamic = taken = 0
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "engine"
        package.mkdir()
        (package / "__init__.py").write_text("")
        (package / "code.py").write_text(text)
        modules = Modules(open_source(folder, "engine"))
        worlds = make_worlds(modules, ("9.0",), lambda one: {})
        for cls, name in itertools.product(CLASSES, (*NAMES, "s")):
            kind, expected = run(text, cls, name)
            if kind == "no module":
                continue
            attribute = read_attribute(
                worlds, lambda world, cls=cls: world.by_path(f"engine.code.{cls}", _AT), name, None
            )
            if attribute is None or not attribute.known:
                dynamic += 1
                continue
            answer = attribute.answer
            assert answer is not None
            known += 1
            if kind == "raises" and expected not in ("NotImplementedError", answer.raises):
                taken += 1
            elif answer.raises:
                assert (kind, expected) == ("raises", answer.raises), (cls, name, answer.raises)
            else:
                assert kind == "value", (cls, name, answer.value, expected)
                assert repr(answer.value) == repr(as_json(expected)), (cls, name, answer.value)
    return known, dynamic, taken


_AT = Place("", 1, 1)


@given(programs())
def test_what_is_read_is_what_python_says(text: str) -> None:
    check(text)


def test_most_of_such_programs_is_read() -> None:
    known = dynamic = taken = 0

    @given(programs())
    def count(text: str) -> None:
        nonlocal known, dynamic, taken
        more = check(text)
        known, dynamic, taken = known + more[0], dynamic + more[1], taken + more[2]

    count()
    assert known > dynamic
    assert taken * 50 <= known
