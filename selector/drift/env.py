"""The local names of a function that is read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

__all__ = ["UNBOUND", "Env"]

UNBOUND: Final = object()
"""A scope binds the name to nothing; ``None`` is a value."""


class Env:
    """Local names of a function that is read, inside those of the functions around it.

    Attributes:
        captured: a function or class holds on to them, so that they cannot part into two.
        done: the function has ended; they change no more.
        own: names that the function binds somewhere; one that is not bound yet is nobody else's.
    """

    __slots__ = ("captured", "done", "names", "outer", "own")

    def __init__(
        self, names: dict[str, Any], outer: Env | None = None, own: Collection[str] = ()
    ) -> None:
        self.names, self.outer, self.own = names, outer, own
        self.captured = False
        self.done = False

    def find(self, name: str) -> tuple[bool, Any]:
        """Whether the name is bound here or further out, and to what."""
        env: Env | None = self
        while env is not None:
            if name in env.names:
                return True, env.names[name]
            if name in env.own:
                return True, UNBOUND
            env = env.outer
        return False, None

    def fork(self) -> Env:
        """A copy with the same bindings."""
        return Env(dict(self.names), self.outer, self.own)
