"""Documents of public reports: what other parsers lose or take for something else is a finding.

``text`` is the document of a report, in the words of its own engine: ``among`` are what must be
found there, beside all that makes it no manifest. ``change`` puts the same mistake into a
manifest that is right: ``exactly`` is what is found then.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selector.document import read_text
from selector.lint import lint
from selector.loading import loads
from selector.values import Severity

FILE = Path(__file__).with_name("documents.jsonl")
RIGHT = FILE.parents[1].joinpath("manifests", "good", "smallest.yaml").read_text("utf-8")
CASES = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]

every_case = pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])


def found(text: str) -> list[str]:
    """What reading and linting find, as a person sees it, without the file's name."""
    findings = lint(read_text(text, "m.yaml"))
    return [str(f).removeprefix("m.yaml:") for f in findings if f.code < "CAP1"]


@every_case
def test_the_mistake_is_found_in_the_document_of_the_report(case: dict[str, Any]) -> None:
    lines = found(case["text"])
    for said in case["among"]:
        assert any(line.startswith(said) for line in lines), lines


@every_case
def test_the_mistake_is_one_finding_in_a_manifest_that_is_right(case: dict[str, Any]) -> None:
    assert found(RIGHT) == []
    assert found(RIGHT.replace(*case["change"])) == case["exactly"]


def test_f12_ordinary_anchors_and_merge_keys_work() -> None:
    """Limits are for hostile files: one that is passed is an error, never an empty document."""
    text = "d: &d {sink: false, sparse: false}\nbackends:\n  A: {<<: *d, sink: true}\n  B: *d\n"
    document = read_text(text, "m.yaml")
    assert document.findings == []
    assert document.tree == {
        "d": {"sink": False, "sparse": False},
        "backends": {
            "A": {"sink": True, "sparse": False},
            "B": {"sink": False, "sparse": False},
        },
    }


def test_f12_two_hundred_entries_share_one_anchor() -> None:
    head, _, entry = RIGHT.partition("  - name: paged\n")
    shared = f"definitions:\n  shared: &shared\n{entry}"
    entries = "".join(f"  - {{<<: *shared, name: b{i}}}\n" for i in range(200))
    manifest = loads(head.replace("backends:\n", shared) + "backends:\n" + entries)
    assert len(manifest.entries) == 200
    assert len({entry.accepts["head_size"] for entry in manifest.entries.values()}) == 1


def test_f12_a_limit_is_an_error() -> None:
    text = "a: &a [" + "1, " * 1000 + "1]\nb: [" + "*a, " * 500 + "*a]\n"
    document = read_text(text, "m.yaml")
    (finding,) = document.findings
    assert (finding.code, finding.severity) == ("CAP006", Severity.ERROR)
    assert document.tree is None
