"""Code that is broken, endless or malicious is a finding or dynamic, soon, and never an error."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from selector.drift.hierarchy import order
from selector.drift.terms import ClassTerm, Place

from .conftest import Reading

Read = Callable[..., Reading]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class C(:\n", "invalid syntax"),
        ("class C:\n  a = 1\n b = 2\n", "unindent"),
        ("a = '\0'\nclass C: pass\n", "null bytes"),
        ("# coding: nonsense\nclass C: pass\n", "nonsense"),
        ("a = " + "(" * 3000 + ")" * 3000 + "\n", "nested"),
        ("a = " + "-" * 90_000 + "1\n", ""),
        ("a = 1" + " + 1" * 90_000 + "\n", ""),
    ],
)
def test_what_is_no_python_is_a_finding_at_its_line(text: str, said: str, read: Read) -> None:
    package = read({"engine/code.py": text, "engine/fine.py": "class D:\n    a = 1\n"})
    assert package.modules.get("engine.code") is None
    assert package.codes == ["DRF104"]
    assert said in package.messages[0]
    assert package.messages[0].startswith("engine/code.py:")
    assert "\n" not in package.messages[0]
    assert package.value("engine.fine.D", "a") == 1


def test_bytes_that_are_no_text_are_a_finding(read: Read) -> None:
    package = read({"engine/code.py": ""})
    (package.modules.source._root / "engine/code.py").write_bytes(b"a = '\xff\xfe'\n")
    assert package.modules.get("engine.code") is None
    assert package.codes == ["DRF104"]


def test_imports_in_a_circle_are_a_finding_that_names_them(read: Read) -> None:
    files = {
        "engine/code.py": "from engine.other import N\nclass C:\n    a = N\n    b = 1\n",
        "engine/other.py": "from engine.third import N\n",
        "engine/third.py": "from engine.other import N\n",
    }
    package = read(files)
    assert "defined by itself" in package.why("engine.code.C", "a")
    assert package.value("engine.code.C", "b") == 1
    assert package.codes == ["DRF105"]
    assert "engine.other.N → engine.third.N" in package.messages[0]


def test_modules_that_import_each_other_are_no_circle(read: Read) -> None:
    files = {
        "engine/code.py": "from engine.other import Base\nN = 3\nclass C(Base):\n    pass\n",
        "engine/other.py": (
            "class Base:\n    @classmethod\n    def a(cls):\n"
            "        from engine.code import N\n        return N\n"
        ),
    }
    package = read(files)
    assert package.value("engine.code.C", "a") == 3
    assert package.codes == []


@pytest.mark.parametrize(
    ("files", "cls"),
    [
        ({"engine/code.py": "class C(C):\n    pass\n"}, "C"),
        (
            {
                "engine/code.py": "from engine.b import D\nclass C(D):\n    pass\n",
                "engine/b.py": "from engine.code import C\nclass D(C):\n    pass\n",
            },
            "C",
        ),
        ({"engine/code.py": "class C(D): pass\nclass D(E): pass\nclass E(C): pass\n"}, "C"),
        (
            {"engine/code.py": ("class A: pass\nclass B(A): pass\nclass C(A, B):\n    pass\n")},
            "C",
        ),
    ],
)
def test_classes_without_an_order_are_a_finding(files: dict[str, str], cls: str, read) -> None:
    package = read(files)
    attribute = package.ask(f"engine.code.{cls}", "a")
    assert attribute is None or not attribute.known
    assert set(package.codes) <= {"DRF105", "DRF106"}
    assert package.codes


def test_a_hundred_thousand_classes_are_read_soon(read: Read) -> None:
    chain = "".join(f"class C{n}(C{n - 1}): pass\n" for n in range(1, 100_000))
    package = read("class C0:\n    a = 1\n" + chain)
    started = time.perf_counter()
    assert package.value("engine.code.C5", "a") == 1
    assert "no order" in package.why("engine.code.C99999", "a")
    assert package.codes == ["DRF106"]
    assert "more than 80 generations" in package.messages[0]
    assert time.perf_counter() - started < 60


def test_a_class_with_a_hundred_thousand_members_is_read_soon(read: Read) -> None:
    body = "".join(f"    a{n} = {n}\n" for n in range(100_000))
    package = read(f"class C:\n{body}")
    started = time.perf_counter()
    assert package.value("engine.code.C", "a99999") == 99_999
    assert time.perf_counter() - started < 60


def test_a_huge_constant_costs_little(read: Read) -> None:
    numbers = ", ".join(str(n) for n in range(200_000))
    package = read(f"N = [{numbers}]\nT = '{'x' * 1_000_000}'\nclass C:\n    a = N\n    b = 1\n")
    started = time.perf_counter()
    assert "steps" in package.why("engine.code.C", "a")
    assert package.value("engine.code.C", "b") == 1
    assert time.perf_counter() - started < 60


@pytest.mark.parametrize(
    "body",
    [
        "return " + " + ".join(["1"] * 800),
        "return " + "not " * 150 + "True",
        "return " + "[" * 80 + "]" * 80,
        "return " + ".".join(["cls"] + ["__class__"] * 300),
        "x = [0]\n" + "".join("        x = x + x\n" for _ in range(60)) + "        return x",
        "x = 'a'\n" + "".join("        x = x + x\n" for _ in range(60)) + "        return x",
        "x = 2\n" + "".join("        x = x * x\n" for _ in range(60)) + "        return x",
        "return 'a'.join(['b' * 1] * 1).replace('', 'c' * 1)",
        "return 1 << 10 ** 9",
        "return 10 ** 10 ** 10",
        "return sum(range(10 ** 12))",
        "return cls.a() + cls.a()",
        "return (lambda f: f(f))(lambda f: f(f))",
        "return {cls.a: 1}[cls.b]",
        "import engine.code as e\n        return e.e.e.C",
        "\n".join(["if open.q:\n            x = 1"] + ["        if open.q: x = 2"] * 40)
        + "\n        return 1",
    ],
)
def test_a_body_that_is_hard_to_follow_is_given_up_soon(body: str, read: Read) -> None:
    package = read(f"class C:\n    @classmethod\n    def a(cls):\n        {body}\n")
    started = time.perf_counter()
    attribute = package.ask("engine.code.C", "a")
    assert time.perf_counter() - started < 20
    assert attribute is not None
    answer = attribute.answer
    assert answer is not None
    if answer.known:
        assert answer.value in (800, True, 1) or isinstance(answer.value, (list, str))
        assert len(str(answer.value)) < 100_000


def test_names_of_special_methods_are_not_trusted(read: Read) -> None:
    text = """
        class Liar:
            def __eq__(self, other): return True
            def __contains__(self, other): return True
        class C:
            a = Liar() == 1
            b = 1 in Liar()
            c = bool(Liar())
        """
    package = read(text)
    for name in "abc":
        assert not package.ask("engine.code.C", name).known


def test_aliases_star_imports_and_re_exports_lead_to_the_class(read: Read) -> None:
    files = {
        "engine/__init__.py": "from .inner import *\nfrom .inner import Base as Root\n",
        "engine/inner/__init__.py": (
            "from ._base import Base, hidden as shown\n__all__ = ['Base']\n"
        ),
        "engine/inner/_base.py": "class Base:\n    a = 1\nhidden = 2\n",
        "engine/code.py": (
            "import engine.inner as deep\nimport engine.inner._base\nfrom . import inner\n"
            "from engine import Base, Root\n"
            "class C(Base):\n    b = [Root is Base, deep.shown, inner.shown]\n"
            "class D(engine.inner._base.Base):\n    pass\n"
        ),
    }
    package = read(files)
    assert package.ask("engine.code.C", "a").defined_in == "engine.inner._base.Base"
    assert package.value("engine.code.C", "b") == [True, 2, 2]
    assert package.value("engine.code.D", "a") == 1
    assert package.codes == []


def test_only_the_modules_that_are_needed_are_read(read: Read) -> None:
    files = {f"engine/m{n}.py": "class Broken(:\n" for n in range(20)}
    files["engine/code.py"] = "".join(f"import engine.m{n}\n" for n in range(20)) + (
        "class C:\n    a = 1\n"
    )
    package = read(files)
    assert package.value("engine.code.C", "a") == 1
    assert package.modules.count == 1
    assert package.codes == []


def test_the_order_of_classes_is_pythons(read: Read) -> None:
    text = """
        from abc import ABC
        from typing import Generic, Protocol, TypeVar
        T = TypeVar("T")
        class Base(ABC, Generic[T]): pass
        class Mixin(Protocol): pass
        class Left(Base[int]): pass
        class Right(Base[int], Generic[T]): pass
        class C(Left, Right[T], Mixin): pass
        """
    package = read(text)
    world = package.worlds.first
    term = world.by_path("engine.code.C", Place("", 1, 1))
    linear = [one.path.rsplit(".", 1)[1] for one in order(world, term)]
    assert isinstance(term, ClassTerm)
    assert linear == ["C", "Left", "Right", "Base", "ABC", "Mixin", "Protocol", "Generic"]


def test_a_path_of_many_dots_is_no_path(read: Read) -> None:
    package = read("class C:\n    a = 1\n")
    started = time.perf_counter()
    found = package.worlds.first.by_path("engine." + "a." * 50_000 + "C", Place("", 1, 1))
    assert "characters" in found.why
    assert time.perf_counter() - started < 5


def test_half_of_a_surrogate_pair_is_no_text(read: Read) -> None:
    assert "no text" in read("class C:\n    a = 'x\\ud800'\n").why("engine.code.C", "a")
