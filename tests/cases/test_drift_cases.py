"""Wrong claims of public reports: which of them an engine's code shows, held against a manifest.

A row with ``code`` has the report's shape as a module of a small engine, in words of its own, the
entries that describe it, and all that drift finds there: code, severity and a part of the words.
``fix`` says what to change in the code, or ``mend`` in the entries, after which nothing is found.
A row with ``needs`` says what must be read or run instead. A control has nothing to be found.
Rows that are named after no report (``S…``) have the same kinds of mistakes elsewhere.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from selector.document import read_text
from selector.drift.against import compare
from selector.drift.engines.vllm import READER
from selector.drift.modules import Modules
from selector.drift.rules import RULES
from selector.drift.saying import CAPABILITIES
from selector.drift.sources import open_source
from selector.lint import lint
from selector.loading import loads
from selector.values import Finding, Severity

from ..conftest import read_engine_files

FILE = Path(__file__).with_name("drift.jsonl")
ENGINE = FILE.with_name("drift_engine.txt")
CASES = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
SHOWN = [case for case in CASES if "code" in case]
FIXED = [case for case in SHOWN if case["finds"]]
REPORTS = FILE.parents[3] / "shared" / "cases" / "dev.jsonl"
CLAIMS = {
    case["id"]: case
    for case in map(json.loads, FILE.with_name("claims.jsonl").read_text("utf-8").splitlines())
}

INHERITED = (
    *("capability", "dtype", "kv_cache_dtype", "head_size", "block_size", "attn_type"),
    *("sink", "non_causal", "batch_invariant"),
)
ENTRY: dict[str, Any] = {
    "source": "vllm.v1.attention.case",
    "mla": False,
    "sparse": False,
    "accepts": {
        "platform": ["cuda"],
        "capability": "any",
        "dtype": ["float16", "bfloat16"],
        "kv_cache_dtype": ["unset", "auto"],
        "head_size": [64, 128],
        "block_size": ["unset", 16, 32, 64],
        "attn_type": ["decoder"],
    },
    "phases": {"prefill": {}, "decode": {}},
    "decode_threshold": 1,
    "prefill_paths": [{"path": "mha", "reason": "The only way."}],
}


def manifest_of(case: dict[str, Any], *, fixed: bool = False) -> str:
    """A manifest with the entries of a case; each says its own words over those of ``ENTRY``."""
    entries = []
    for said in case["entries"]:
        entry = {**ENTRY, **said, "accepts": ENTRY["accepts"] | said.get("accepts", {})}
        entry |= case.get("mend", {}).get(said["name"], {}) if fixed else {}
        entry = {key: value for key, value in entry.items() if value is not None}
        own = case.get("own", [])
        inherited = {field: "AttentionBackend" for field in INHERITED if field not in own}
        entries.append(entry | {"sources": inherited | said.get("sources", {})})
    order = [{"order": [one["name"] for one in entries], "reason": "There is no other."}]
    if any(one["phases"] == {"prefill": {}} for one in entries):
        order = []
    head = {"attnsel": 1, "name": "vllm", "version": "0.1.0"}
    told = head | case.get("manifest", {}) | {"backends": entries}
    return yaml.safe_dump(told | ({"priorities": order} if order else {}), sort_keys=False)


def drift(case: dict[str, Any], root: Path, *, fixed: bool = False) -> list[Finding]:
    """All findings but those that something is not compared or not decided."""
    code = case["code"]
    for old, new in case.get("fix", ()) if fixed else ():
        assert old in code, old
        code = code.replace(old, new)
    base = read_engine_files(ENGINE)
    members = [
        f'    {one} = "vllm.v1.attention.case.{cls}"' for one, cls in case["classes"].items()
    ]
    prefill = case.get("prefill", {})
    asked = [f'    {one} = "vllm.v1.attention.case.{cls}"' for one, cls in prefill.items()]
    registry = "from enum import Enum\n\nclass {}(Enum):\n{}\n"
    files = base | {
        "vllm/v1/attention/case.py": code,
        "vllm/v1/attention/backends/registry.py": registry.format(
            "AttentionBackendEnum", "\n".join(members) or "    pass"
        ),
        "vllm/v1/attention/backends/mla/prefill/registry.py": registry.format(
            "MLAPrefillBackendEnum", "\n".join(asked) or "    pass"
        ),
    }
    for name, text in files.items():
        path = root / ("fixed" if fixed else "found") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        for folder in path.relative_to(root).parents:
            (root / folder / "__init__.py").touch()
    source = open_source(root / ("fixed" if fixed else "found"), "vllm")
    stated = loads(manifest_of(case, fixed=fixed), "m.yaml")
    return list(compare(stated, READER.read(Modules(source), CAPABILITIES)))


def told(findings: list[Finding]) -> list[Finding]:
    return [one for one in findings if one.code != "DRF007"]


@pytest.mark.parametrize("case", SHOWN, ids=[case["id"] for case in SHOWN])
def test_the_claim_is_found_in_the_code(case: dict[str, Any], tmp_path: Path) -> None:
    every = drift(case, tmp_path)
    open_ = [one for one in every if one.code == "DRF007"]
    wanted = [find for find in case["finds"] if find[0] != "DRF007"]
    found = told(every)
    assert [[one.code, one.severity.value] for one in found] == [one[:2] for one in wanted], [
        *map(str, every)
    ]
    for one, (_, _, words) in zip(found, wanted, strict=True):
        assert words in one.message
    for _, severity, words in (find for find in case["finds"] if find[0] == "DRF007"):
        assert [one.severity.value for one in open_ if words in one.message] == [severity], [
            *map(str, open_)
        ]


@pytest.mark.parametrize("case", FIXED, ids=[case["id"] for case in FIXED])
def test_nothing_is_found_when_the_code_is_mended(case: dict[str, Any], tmp_path: Path) -> None:
    found = drift(case, tmp_path, fixed=True)
    assert told(found) == []
    words = [find[2] for find in case["finds"] if find[0] == "DRF007"]
    assert not [one for one in found if any(part in one.message for part in words)]


@pytest.mark.parametrize("case", SHOWN, ids=[case["id"] for case in SHOWN])
def test_lint_does_not_call_the_manifest_wrong(case: dict[str, Any]) -> None:
    found = lint(read_text(manifest_of(case), "m.yaml"))
    assert [one for one in found if one.severity is Severity.ERROR] == []
    if "control" in case["about"]:
        assert found == [], [*map(str, found)]


def test_what_is_disputed_is_unverified_and_not_false() -> None:
    (case,) = [case for case in CASES if case["id"] == "C11"]
    ((code, severity, words),) = case["finds"]
    assert (code, severity, words) == ("DRF009", "note", "; unverified")


def test_every_case_is_found_by_a_rule_or_has_a_reason_why_not() -> None:
    known = {rule.code for rule in RULES}
    for case in CASES:
        assert ("code" in case) != ("needs" in case), case["id"]
        if "needs" in case:
            assert len(case["why"].split()) > 10, case["id"]
        elif not case["finds"]:
            assert "control" in case["about"], case["id"]
        else:
            assert case["fix"] or case["mend"], case["id"]
        assert {find[0] for find in case.get("finds", ())} <= known
    assert len({case["id"] for case in CASES}) == len(CASES)


def test_what_lint_leaves_to_something_else_than_code_is_left_here_too() -> None:
    for case in CASES:
        needs = CLAIMS.get(case["id"][:3], {}).get("needs")
        if needs not in (None, "engine code"):
            assert case.get("needs") == needs, case["id"]


@pytest.mark.skipif(not REPORTS.exists(), reason="the reports are not beside the project")
def test_every_report_about_a_claim_is_there() -> None:
    rows = map(json.loads, REPORTS.read_text("utf-8").splitlines())
    ours = {case["id"][:3] for case in CASES if case["id"].startswith("C")}
    assert {row["id"] for row in rows if row["kind"] == "C"} == ours
