"""What constructors refuse, with the arguments that are handed on to them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from selector.drift.constructors import read_constructors
from selector.drift.evaluating import Probe
from selector.drift.reading import Guard
from selector.drift.terms import Place


def probe(*values: Any) -> Probe:
    return Probe(tuple((one, lambda world, one=one: one) for one in values))


PROBES = {
    "num_heads": probe(1, 8, 16),
    "kind": probe("auto", "fp8"),
    "config.size": probe(16, 64),
}


@pytest.fixture
def guards(read: Any) -> Callable[[str], tuple[Guard, ...]]:
    def make(text: str) -> tuple[Guard, ...]:
        package = read(text)

        def locate(world: Any) -> Any:
            return world.by_path("engine.code.C", Place("", 1, 1))

        return read_constructors(package.worlds, locate, re.compile("^supports_"), PROBES)[1]

    return make


def refused(guard: Guard) -> dict[str, Any]:
    return {one.name: one.answer.value for one in guard.refuses if one.answer is not None}


def test_an_assertion_is_a_guard(guards) -> None:
    (guard,) = guards(
        """
        class C:
            def __init__(self, num_heads):
                assert num_heads % 8 == 0, "a multiple of 8"
        """
    )
    assert (guard.exception, guard.message) == ("AssertionError", "a multiple of 8")
    assert guard.tests == ("not (num_heads % 8 == 0)",)
    assert refused(guard) == {"num_heads": [1]}


def test_an_attribute_of_an_argument_is_asked(guards) -> None:
    (guard,) = guards(
        """
        class C:
            def __init__(self, config):
                inner = config
                self.size = inner.size
                if self.size < 32:
                    raise ValueError
        """
    )
    assert guard.arguments == ("config.size",)
    assert refused(guard) == {"config.size": [16]}


def test_what_a_class_hands_its_base_is_what_the_base_is_asked(guards) -> None:
    text = """
        class Base:
            def __init__(self, heads, kind="auto", flag=False):
                if kind == "fp8":
                    raise ValueError("kind")
                if heads > 8:
                    raise ValueError("heads")
                if flag:
                    raise ValueError("flag")

        class C(Base):
            def __init__(self, num_heads, kind):
                super().__init__(num_heads)
        """
    (heads,) = guards(text)
    assert (heads.message, heads.arguments) == ("heads", ("num_heads",))
    assert refused(heads) == {"num_heads": [16]}
    kind, heads = guards(text.replace("__init__(num_heads)", "__init__(num_heads, kind=kind)"))
    assert refused(kind) == {"kind": ["fp8"]}
    assert "flag" not in {kind.message, heads.message}


def test_arguments_that_are_passed_through_keep_their_names(guards) -> None:
    (guard,) = guards(
        """
        class Base:
            def __init__(self, kind):
                assert kind != "fp8"

        class C(Base):
            def __init__(self, num_heads, **rest):
                super().__init__(**rest)
        """
    )
    assert refused(guard) == {"kind": ["fp8"]}


@pytest.mark.parametrize(
    "before",
    [
        "if other: return",
        "kind = other",
        "for one in other: kind = one",
        "self.change()",
        "if self.kind: pass",
        "with other: return",
    ],
)
def test_what_may_be_otherwise_is_not_certainly_refused(before: str, guards) -> None:
    found = guards(
        f"""
        class C:
            kind = "x"

            def change(self):
                self.kind = "auto"

            def __init__(self, kind, other):
                {before}
                self.kind = kind
                if self.kind == "fp8":
                    raise ValueError
        """
    )
    assert [refused(guard).get("kind", []) for guard in found] == [[]]


def test_behind_a_return_its_test_is_known_not_to_hold(guards) -> None:
    (guard,) = guards(
        """
        class C:
            def __init__(self, kind, num_heads):
                if kind == "auto":
                    return
                if num_heads > 8:
                    raise ValueError
        """
    )
    assert guard.tests == ("not (kind == 'auto')", "num_heads > 8")
    assert refused(guard) == {"kind": [], "num_heads": []}


def test_a_guard_that_no_machine_can_reach_is_left_out(guards) -> None:
    assert (
        guards(
            """
            HIP = False

            class C:
                def __init__(self, kind):
                    if HIP and kind == "fp8":
                        raise ValueError
            """
        )
        == ()
    )
