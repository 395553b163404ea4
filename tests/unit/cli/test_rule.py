"""``attnsel rule``: every rule is explained, and a wrong code is one line."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from selector.lint.catalogue import codes, find_rule
from selector.schema import load_schema

from .conftest import Run

every_code = pytest.mark.parametrize("code", list(codes()))


@every_code
def test_a_rule_is_explained(run: Run, code: str) -> None:
    rule = find_rule(code)
    ran = run("rule", code.lower())
    assert (ran.code, ran.err) == (0, "")
    head, *rest = ran.out.splitlines()
    assert head.startswith(f"{code} {rule.name} · {rule.severity}")
    assert ("--fix" in head) is (rule.fix is not None)
    text = " ".join(" ".join(rest).split())
    for part in (rule.what, rule.why):
        assert " ".join(part.split()) in text
    for example in (rule.bad, rule.good):
        lines = [f"    {line}".rstrip() for line in example.rstrip("\n").split("\n")]
        assert "\n".join(lines) in ran.out
    off = f"attnsel: ignore[{code}] why"
    assert (off in ran.out) is not code.startswith("CAP0")


def test_an_example_is_not_wrapped(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    out = run("rule", "CAP002").out
    assert "    head_size: [64, 128, 256]\n" in out
    assert max(len(line) for line in out.splitlines()) <= 60
    long = find_rule("CAP025").bad.splitlines()[0]
    assert f"    {long}\n" in run("rule", "CAP025").out


def test_without_a_code_all_rules_are_listed_one_a_line(run: Run) -> None:
    rows = run("rule").out.splitlines()
    assert [row.split()[0] for row in rows] == list(codes())
    row = next(row for row in rows if row.startswith("CAP022"))
    assert row.split(None, 3)[:3] == ["CAP022", "off-without-rationale", "error"]
    said = "`dense_prefill: false`, or a phase that is `disabled: true`, without a `rationale`,"
    assert row.split(None, 3)[3].startswith(said)


def test_json_is_what_the_schema_says(run: Run) -> None:
    validator = Draft202012Validator(load_schema("rule"))
    every = run("rule", "--format", "json").json
    validator.validate(every)
    assert [one["code"] for one in every] == list(codes())
    one = run("rule", "CAP005", "--format", "json").json
    validator.validate(one)
    assert one in every
    assert one["fixable"] is True
    assert "fixable" in load_schema("rule")["$defs"]["rule"]["required"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("CAP0005", 'no rule has the code "CAP0005"; did you mean CAP005? `attnsel rule` lists '),
        ("cop014", 'no rule has the code "cop014"; did you mean CAP014? `attnsel rule` lists them'),
        ("yaml", 'no rule has the code "yaml"; `attnsel rule` lists them'),
        ("", 'no rule has the code ""; `attnsel rule` lists them'),
        ("CAP001\n\x1b[2J", 'no rule has the code "CAP001 \\x1b[2J"; did you mean '),
    ],
)
def test_an_unknown_code_is_one_line_with_the_nearest(run: Run, code: str, said: str) -> None:
    ran = run("rule", code)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.complaint.startswith(said)
