"""The catalogue: every rule by its code, read from the modules of :mod:`selector.lint.rules`."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from selector.errors import UnknownRuleError
from selector.fields import close_matches, one_line
from selector.values import Finding, Severity

if TYPE_CHECKING:
    from selector.lint.context import Context
    from selector.lint.page import Page

__all__ = ["Edit", "Rule", "codes", "find_rule", "rules", "selected"]

_MODULES = "selector.lint.rules"

Check = Callable[["Context"], Iterator[Finding]]


class Edit(msgspec.Struct, frozen=True, order=True):
    """Text to put in place of other text, of one line.

    Attributes:
        line: from 1.
        start: the first column that is replaced, from 1; a byte order mark is in column 0.
        end: the first column after it; the line's break counts as characters of the line.
        text: what is put there.
    """

    line: int
    start: int
    end: int
    text: str


Fix = Callable[[Finding, "Page"], Sequence[Edit]]
"""A finding and the page that it is on → the edits that mend it; none where that is not safe."""


class Rule(msgspec.Struct, frozen=True):
    """A rule of the catalogue.

    Attributes:
        code: stable, such as ``CAP105``.
        name: in words with dashes, as the module is named.
        severity: of its findings, but for notes that something is not decided.
        what: what it finds, in a sentence or a few.
        why: what goes wrong otherwise, with a source where there is one.
        bad: a manifest, or a part of one, that has the fault.
        good: the same as it should be.
        check: finds it in a manifest; ``None``: reading reports it.
        fix: mends it, where that is safe.
    """

    code: str
    name: str
    severity: Severity
    what: str
    why: str
    bad: str
    good: str
    check: Check | None = None
    fix: Fix | None = None

    def finding(
        self, at: Any, message: str, fix: str = "", severity: Severity | None = None
    ) -> Finding:
        """A finding of this rule at a position."""
        return Finding(
            at.file, at.line, at.column, self.code, severity or self.severity, message, fix
        )

    def undecided(self, at: Any, what: str) -> Finding:
        """A note that a budget ended before something was certain."""
        return self.finding(at, f"not decided: {what}", "", Severity.NOTE)


@cache
def codes() -> dict[str, str]:
    """Every code and the module of its rule."""
    names = sorted(module.name for module in pkgutil.iter_modules(import_module(_MODULES).__path__))
    return {name.split("_", 1)[0].upper(): name for name in names}


def find_rule(code: str) -> Rule:
    """The rule of a code.

    Raises:
        UnknownRuleError: there is none; the nearest code is named.
    """
    known = code.upper()
    if known not in codes():
        near = close_matches(known, codes())
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnknownRuleError(f'no rule has the code "{one_line(code)}"{hint}')
    rule: Rule = import_module(f"{_MODULES}.{codes()[known]}").RULE
    return rule


def rules() -> tuple[Rule, ...]:
    """All rules, by code."""
    return tuple(find_rule(code) for code in codes())


def selected(prefixes: Sequence[str]) -> frozenset[str]:
    """The codes that begin with one of some prefixes, such as ``CAP1`` or ``CAP105``.

    Raises:
        UnknownRuleError: no code begins so.
    """
    found = set()
    for prefix in prefixes:
        matching = {code for code in codes() if prefix and code.startswith(prefix.upper())}
        if not matching:
            near = close_matches(prefix.upper(), codes(), 0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise UnknownRuleError(
                f'no rule has a code that begins with "{one_line(prefix)}"{hint}'
            )
        found |= matching
    return frozenset(found)
