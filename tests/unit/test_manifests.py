"""Whole manifests: those in ``bad`` give exactly the findings they announce, ``good`` give none."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from selector.document import read_document, read_text
from selector.lint import lint
from selector.lint.catalogue import codes
from selector.loading import read
from selector.resources import manifest_names, manifest_path, resource
from selector.schema import load_schema
from selector.values import Finding, Severity

MANIFESTS = Path(__file__).parent.parent / "manifests"
BAD = sorted((MANIFESTS / "bad").glob("*.yaml"))
GOOD = sorted((MANIFESTS / "good").glob("*.yaml"))
EXPECTED = re.compile(r"^# expect: (\w+) (\d+):(\d+)$", re.MULTILINE)


def findings_of(path: Path) -> list[Finding]:
    """What the whole lint finds in a manifest: what reading reports, and every rule."""
    return lint(read_document(path))


def messages_of(name: str) -> list[str]:
    """The findings of a bad manifest as a person sees them, without the file's name."""
    path = MANIFESTS / "bad" / f"{name}.yaml"
    return [str(f).removeprefix(f"{path}:") for f in findings_of(path)]


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_bad_manifest(path: Path) -> None:
    announced = EXPECTED.findall(path.read_text("utf-8"))
    assert announced, "the file says no `# expect: CODE LINE:COLUMN`"
    assert path.name.startswith(f"{announced[0][0].lower()}-") or len(announced) > 1
    found = findings_of(path)
    assert sorted((f.code, f.line, f.column) for f in found) == sorted(
        (code, int(line), int(column)) for code, line, column in announced
    )
    assert found == sorted(found)
    for finding in found:
        assert "\n" not in str(finding)
        assert len(str(finding)) < 500
        assert finding.message
        assert not finding.message.endswith((".", ";", " "))


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_only_errors_make_a_manifest_unusable(path: Path) -> None:
    manifest, document = read(read_document(path))
    assert (manifest is None) == any(f.severity is Severity.ERROR for f in document.findings)


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_good_manifest(path: Path) -> None:
    assert [str(finding) for finding in findings_of(path)] == []
    assert read(read_document(path))[0] is not None


ELSEWHERE = {
    "CAP007": "bytes that are no text: test_document.py",
    "CAP026": "takes an overlay beside the manifest: test_overlay.py",
    "CAP202": "asks for a backend, which no manifest does: lint/test_reach.py",
}
"""Rules whose fault no manifest alone can have, and where they are tested."""


def announced_by(path: Path) -> set[str]:
    return {code for code, _, _ in EXPECTED.findall(path.read_text("utf-8"))}


def near(path: Path) -> set[str]:
    """The rules that a good manifest comes near to: of its name, and of its `# near:` line."""
    named = re.match(r"cap\d{3}(?=-)", path.name)
    listed = re.findall(r"^# near: (.+)$", path.read_text("utf-8"), re.MULTILINE)
    return {*([named[0].upper()] if named else []), *" ".join(listed).split()}


@pytest.mark.parametrize("code", sorted(set(codes()) - set(ELSEWHERE)))
def test_no_rule_without_a_bad_and_a_good_manifest(code: str) -> None:
    assert any(code in announced_by(path) for path in BAD), f"no bad manifest gives {code}"
    assert any(code in near(path) for path in GOOD), f"no good manifest comes near {code}"


def test_every_code_that_is_reported_has_a_rule() -> None:
    package = Path(read.__code__.co_filename).parent
    sources = [*package.glob("*.py"), package.parent / "schemas" / "manifest.schema.json"]
    used = {code for p in sources for code in re.findall(r"CAP0\d\d", p.read_text("utf-8"))}
    shown = {code for path in BAD for code in announced_by(path)}
    near_by = {code for path in GOOD for code in near(path)}
    assert (used | shown | near_by) - {"CAP012"} <= set(codes())  # CAP012: an example in prose


PIN = (
    "CAP023 a sparse entry that lists 12.x must say `dense_prefill: false`: no dense prefill path "
    "exists there (vLLM PR #51395); lifting the pin means changing the schema, the invariant and "
    "the rationale together"
)
EXACT = (
    "CAP024 a sparse entry must list exact capabilities or whole majors; "
    'write "12.0" or 12.x, no ranges, no cases'
)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "cap021-sparse-without-dense-prefill",
            "6:5: CAP021 sparse entry without `dense_prefill`; say `dense_prefill: false` and why "
            "in `rationale`, or `true` if a dense prefill path exists (none does on 12.x)",
        ),
        (
            "cap022-rationale-missing",
            "6:5: CAP022 `dense_prefill: false` without `rationale`; "
            "say in `rationale` why no dense prefill path may be taken",
        ),
        (
            "cap022-rationale-empty",
            "11:16: CAP022 `rationale` is blank; say why `dense_prefill` is false",
        ),
        (
            "cap022-rationale-blank",
            "11:16: CAP022 `rationale` is blank; say why `dense_prefill` is false",
        ),
        (
            "cap022-rationale-says-nothing",
            "11:15: CAP022 `rationale` is blank; say why `dense_prefill` is false",
        ),
        (
            "cap022-phase-off-without-rationale",
            "22:35: CAP022 phase is `disabled: true` without `rationale`; say why it is off",
        ),
        ("cap023-pin-flipped-on-12-0", f"10:20: {PIN}"),
        ("cap023-pin-flipped-on-12-x", f"10:20: {PIN}"),
        ("cap023-pin-flipped-on-text", f"10:20: {PIN}"),
        ("cap023-pin-flipped-behind-an-alias", f"12:20: {PIN}"),
        (
            "cap023-pin-flipped-behind-a-merge-key",
            f"6:30: {PIN}".replace("#51395);", "#51395) (&on_, used on line 12);"),
        ),
        ("cap023-pin-flipped-with-accepts-merged", f"12:20: {PIN}"),
        ("cap024-capability-at-least", f"15:19: {EXACT}"),
        ("cap024-capability-at-least-listed", f"15:28: {EXACT}"),
        ("cap024-capability-any", f"15:19: {EXACT}"),
        ("cap024-capability-range", f"15:19: {EXACT}"),
        ("cap024-capability-by-cases", f"15:19: {EXACT}"),
        ("cap024-capability-as-sm120", f"15:20: {EXACT}"),
        (
            "cap004-backends-is-a-mapping",
            "6:3: CAP004 a mapping is not a list; write a list",
        ),
        ("cap004-one-word-for-a-list", '10:16: CAP004 "NHD" is not a list; write [NHD]'),
        (
            "cap004-phases-are-a-list",
            "18:13: CAP004 a list is not a mapping; write a mapping with the keys prefill, decode",
        ),
        (
            "cap003-field-name-in-capitals",
            '20:7: CAP003 key "HeadSize" is not a field name; use a-z, 0-9, _',
        ),
        (
            "cap011-capability-without-its-point",
            '12:20: CAP011 90 is not a value of capability; write "9.0"',
        ),
        (
            "cap004-unknown-path",
            '24:28: CAP004 "mhaa" is not one of mha, mqa, dense_mha, masked_mha, sparse_mqa; '
            "did you mean mha?",
        ),
        (
            "cap004-no-rules-to-derive-from",
            "8:30: CAP004 a list is empty; write what it holds: "
            "The first rule that holds gives the value; the last has no when",
        ),
        (
            "cap004-blank-reason",
            '26:30: CAP004 "" is blank; say it in words',
        ),
        (
            "cap014-derived-from-each-other",
            "9:3: CAP014 one and two need each other; break the cycle",
        ),
        ("cap014-derived-from-itself", "9:3: CAP014 page needs itself; break the cycle"),
        (
            "cap014-derived-from-a-cycle",
            "10:3: CAP014 one and two need each other; break the cycle",
        ),
        (
            "cap011-version-is-true",
            '13:23: CAP011 true is no version specifier; write one such as ">=1.2"',
        ),
        (
            "cap011-capability-of-another-spelling",
            '16:27: CAP011 capability "sm120" is not "9.0", 9.x, ">=8.0", "<9.0" or "8.0..12.1"; '
            'write "12.0"',
        ),
        (
            "cap008-constraint-without-condition",
            "23:19: CAP008 constraint without `when` and `require`; say in `when` what must never "
            "occur, or in `require` what must hold",
        ),
        (
            "cap005-base-60-capability",
            "16:20: CAP005 9:0 is the base-60 number 540 in YAML 1.1 and text in 1.2; "
            'write "9.0" or "9:0"',
        ),
        (
            "cap005-octal-block-size",
            "20:20: CAP005 016 is 14 in YAML 1.1 and 16 in 1.2; drop the zero",
        ),
        (
            "cap005-capability-loses-its-zero",
            '16:20: CAP005 12.10 is read as the number 12.1; write "12.10"',
        ),
        (
            "cap008-no-source",
            "9:5: CAP008 `source` is missing; "
            "add it: File, link or class that states this, with its version.",
        ),
        (
            "cap010-unknown-field-in-accepts",
            '20:7: CAP010 unknown field "hed_size"; did you mean head_size?',
        ),
        ("cap010-alias-of-a-field", '20:7: CAP010 "has_sink" is an alias; write sink'),
        (
            "cap011-value-outside-the-vocabulary",
            "17:24: CAP011 bfloat17 is not a value of dtype; did you mean bfloat16?",
        ),
        (
            "cap025-core-field-unstated",
            "14:5: CAP025 entry paged does not state `head_size`; "
            "list the values it accepts, or `any`",
        ),
        (
            "cap025-no-prefill-paths",
            "9:5: CAP025 entry serves prefill without `prefill_paths`; state its paths, "
            "for example `prefill_paths: [{path: mha, reason: …}]`",
        ),
    ],
)
def test_what_a_person_reads(name: str, said: str) -> None:
    assert messages_of(name) == [said]


def test_a_trap_is_one_finding_though_the_type_is_wrong_too() -> None:
    assert messages_of("cap005-no-as-a-boolean") == [
        '25:22: CAP005 no is a boolean in YAML 1.1 and text in 1.2; write false or "no"',
    ]


def test_several_mistakes_are_shown_at_once_from_top_to_bottom() -> None:
    places = [line.split(" ")[0] for line in messages_of("cap005-several-at-once")]
    assert places == ["10:10:", "11:1:", "16:5:", "21:5:", "28:19:", "32:23:", "33:28:"]


def test_two_hundred_backends_share_one_anchor() -> None:
    head = (
        'attnsel: 1\nname: many\nversion: "1"\ndefinitions:\n'
        "  shared: &shared\n"
        "    source: https://example.org\n    mla: false\n    sparse: false\n"
        "    accepts: {platform: any, capability: any, dtype: any, kv_cache_dtype: any, "
        "head_size: [64, 128], block_size: any, attn_type: any}\n"
        "    phases: {prefill: {}, decode: {}}\n    decode_threshold: 1\n"
        "    prefill_paths: [{path: mha, reason: The only way.}]\n"
        "backends:\n"
    )
    text = head + "".join(f"  - {{<<: *shared, name: b{i}}}\n" for i in range(200))
    manifest, document = read(read_text(text, "many.yaml"))
    assert document.findings == []
    assert manifest is not None
    assert list(manifest.entries) == [f"b{i}" for i in range(200)]

    wrong = text.replace("head_size: [64, 128]", "head_size: [64, many]")
    findings = read(read_text(wrong, "many.yaml"))[1].findings
    assert [(f.code, f.line) for f in findings] == [("CAP011", 9)]


def test_the_manifest_that_uses_everything_leaves_no_word_of_the_schema_out() -> None:
    words: set[str] = set()
    pending: list[Any] = [read_document(MANIFESTS / "good" / "everything.yaml").tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            words |= node.keys()
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)
    schema = load_schema("manifest")
    sections = set(schema["properties"])
    entry = set(schema["$defs"]["entry"]["properties"])
    rules = {key for name in ("constraint", "path") for key in schema["$defs"][name]["properties"]}
    forms = set(schema["$defs"]["accept"]["properties"]) - {"field"}
    assert (sections | entry | rules | forms) - words == set()


def test_a_long_value_is_cut_in_the_message() -> None:
    text = (MANIFESTS / "good" / "smallest.yaml").read_text("utf-8")
    long = text.replace("[64, 128]", f"[{'a' * 100_000}]").replace("[bfloat16]", f"[{'b' * 9000}]")
    found = lint(read_text(long, "m.yaml"))
    assert [f.code for f in found] == ["CAP011", "CAP011"]
    named = text.replace("    accepts:", f"    requires: {{{'c' * 1000}: '>=1'}}\n    accepts:")
    named += f"priorities: [{{order: [{'d' * 9000}], reason: There is only one.}}]\n"
    found += lint(read_text(named, "m.yaml"))
    assert [f.code for f in found[2:]] == ["CAP013", "CAP013"]
    assert all(len(str(f)) < 300 for f in found)


def test_every_manifest_that_ships_has_a_name() -> None:
    for name in manifest_names():
        assert manifest_path(name).exists()
    assert manifest_path("capabilities") == resource("capabilities.yaml")
