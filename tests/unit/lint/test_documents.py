"""Rules of reading: every code has its documentation, whose examples show what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from selector.lint.catalogue import codes, find_rule
from selector.resources import resource
from selector.values import Severity

from .snippets import findings_of

PACKAGE = Path(find_rule.__code__.co_filename).parents[1]
OF_READING = [code for code in codes() if code < "CAP1"]

every_code = pytest.mark.parametrize("code", OF_READING)


def test_every_code_that_reading_uses_has_a_rule_and_the_reverse() -> None:
    sources = [*PACKAGE.glob("*.py"), *resource("schemas").glob("*.json")]
    used = {code for p in sources for code in re.findall(r"\"(CAP0\d\d)\"", p.read_text("utf-8"))}
    assert used == set(OF_READING)


@every_code
def test_its_findings_are_those_of_errors_and_come_from_reading(code: str) -> None:
    rule = find_rule(code)
    assert rule.severity is Severity.ERROR
    assert rule.check is None


@every_code
def test_its_bad_example_gives_it_and_nothing_else(code: str) -> None:
    assert {finding.code for finding in findings_of(find_rule(code).bad)} == {code}


@every_code
def test_its_good_example_gives_nothing(code: str) -> None:
    found = findings_of(find_rule(code).good)
    assert [str(f) for f in found if f.severity is not Severity.NOTE] == []
