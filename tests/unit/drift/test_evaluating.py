"""What one attribute or method says: Python's own answer, or that it is dynamic; never another."""

from __future__ import annotations

import importlib.util
import re
import sys
from enum import Enum
from pathlib import Path

import pytest

from selector.drift.evaluating import Probe

SNIPPETS = Path(__file__).parent / "snippets"


def snippets(name: str) -> dict[str, str]:
    """The snippets of a file, each under a line ``#: what``."""
    parts = re.split(r"^#: (.*)\n", (SNIPPETS / name).read_text(encoding="utf-8"), flags=re.M)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


READABLE = snippets("readable.txt")
EITHER = snippets("either.txt")
DYNAMIC = {
    what.split(" | ")[0]: (text, what.partition(" | ")[2])
    for what, text in snippets("dynamic.txt").items()
}


def run(text: str, name: str, member: str = "a") -> object:
    """What Python itself says of a member of ``C``: the text is a module of this test."""
    module = type(sys)(name)
    sys.modules[name] = module
    try:
        exec(compile(text, name, "exec"), module.__dict__)
        value = getattr(module.C, member)
        return value() if callable(value) else value
    finally:
        del sys.modules[name]


def as_json(value: object) -> object:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, (set, frozenset)):
        return sorted((as_json(part) for part in value), key=repr)
    if isinstance(value, dict):
        return {str(as_json(key)): as_json(part) for key, part in value.items()}
    return [as_json(part) for part in value] if isinstance(value, (list, tuple)) else value


def said_by_python(text: str, name: str) -> object:
    """A value as JSON, or the name of what is raised."""
    try:
        return as_json(run(text, "either", name))
    except Exception as error:
        return type(error).__name__


@pytest.mark.parametrize("what", READABLE)
def test_a_value_that_is_read_is_the_one_that_python_gives(what: str, read) -> None:
    expected = as_json(run(READABLE[what], "readable"))
    assert read(READABLE[what]).value("engine.code.C", "a") == expected


@pytest.mark.parametrize("what", EITHER)
def test_what_is_hard_to_read_is_right_or_dynamic(what: str, read) -> None:
    package = read(EITHER[what])
    for name in ("a", *(one for one in "bcdefghijk" if f"    {one} =" in EITHER[what])):
        attribute = package.ask("engine.code.C", name)
        if attribute is None or not attribute.known:
            continue
        answer = attribute.answer
        assert repr(said_by_python(EITHER[what], name)) == repr(answer.raises or answer.value), name


@pytest.mark.parametrize("what", DYNAMIC)
def test_what_cannot_be_known_is_dynamic(what: str, read) -> None:
    text, said = DYNAMIC[what]
    package = read(text)
    if package.ask("engine.code.C", "a") is None:
        from selector.drift.evaluating import ask
        from selector.drift.terms import Place, Unknown

        world = package.worlds.first
        found = ask(world, lambda frame: world.by_path("engine.code.C", Place("", 1, 1)))
        assert isinstance(found, Unknown)
        assert said in f"{found.text} {found.why}"
        return
    assert said in package.why("engine.code.C", "a")


def test_an_exception_that_is_certain_is_said(read) -> None:
    package = read(
        "class C:\n    @staticmethod\n    def a():\n        raise NotImplementedError('x')\n"
    )
    answer = package.ask("engine.code.C", "a").answer
    assert (answer.raises, answer.value, answer.known) == ("NotImplementedError", None, True)


def test_the_defining_class_and_both_places_are_told(read) -> None:
    files = {
        "engine/base.py": "class Base:\n    supports_dense: bool = True\n",
        "engine/code.py": "from engine.base import Base\n\n\nclass C(Base):\n    pass\n",
    }
    attribute = read(files).ask("engine.code.C", "supports_dense")
    assert attribute.defined_in == "engine.base.Base"
    assert attribute.at == ("engine/base.py", 2, 5)


def test_a_method_with_an_argument_is_asked_value_by_value(read) -> None:
    text = """
        class C:
            @classmethod
            def supports_head_size(cls, head_size):
                if head_size % 8:
                    return False
                return head_size <= 256
        """
    probe = Probe(tuple((n, lambda world, n=n: n) for n in (7, 64, 256, 264)))
    attribute = read(text).ask("engine.code.C", "supports_head_size", probe)
    assert attribute.answer.value == [64, 256]
    assert attribute.asked == (7, 64, 256, 264)


def test_values_that_are_undecided_are_told_beside_those_that_are_accepted(read) -> None:
    text = """
        import os
        class C:
            @classmethod
            def supports_kv_cache_dtype(cls, kind):
                if kind == "fp8":
                    return os.path.exists("x")
                return kind == "auto"
        """
    probe = Probe(tuple((n, lambda world, n=n: n) for n in ("auto", "fp8", "int8")))
    answer = read(text).ask("engine.code.C", "supports_kv_cache_dtype", probe).answer
    assert (answer.value, answer.undecided) == (["auto"], ("fp8",))
    assert answer.dynamic.at == ("engine/code.py", 7, 20)


def test_python_is_never_asked_to_import_what_is_read(read) -> None:
    text = "raise SystemExit('imported')\nclass C:\n    a = 1\n"
    assert read(text).value("engine.code.C", "a") == 1
    assert "engine" not in sys.modules
    assert importlib.util.find_spec("engine") is None
