from __future__ import annotations

import pytest

from selector import Facts, Layer, Policy, Request, Selector, find_device
from selector.changes.case import Case, Inquiry
from selector.changes.search import Kind, Prospect, ways
from selector.report.answer import answer_lines
from selector.report.entries import entry_json, entry_lines
from selector.report.explanation import explain, explanation_json, explanation_lines
from selector.report.failure import failure_words
from selector.report.findings import finding_lines, summary_lines
from selector.report.text import (
    GLUE,
    bad,
    faint,
    fenced,
    grid,
    joined,
    line,
    markdown_table,
    paint,
    strong,
)
from selector.report.wording import (
    Places,
    capabilities_words,
    counted,
    listed,
    ordinal,
    with_separators,
)
from selector.values import Finding, Severity

MANIFEST = """\
attnsel: 1
name: rich
version: "1"
facts:
  lib: {type: version, description: A library.}
  jit: {type: boolean, description: Whether kernels can be compiled here.}
fields:
  switch: {type: name, role: context, values: [left, right], description: A switch.}
derive:
  generation:
    source: here
    first_match:
      - {when: {capability: 9.x}, value: 3}
      - {value: 2}
backends:
  - name: first
    description: It has a rule of every form.
    source: https://example.org/first
    library: lib
    mla: false
    sparse: false
    requires: {lib: ">=1.2,<3"}
    kv_layout: [NHD]
    accepts: &accepts
      platform: [cuda]
      capability: [8.x, 9.x]
      dtype: [float16, bfloat16]
      kv_cache_dtype: [auto, fp8_e4m3]
      head_size:
        cases:
          - {when: {dtype: float16}, allow: {multiple_of: 8, max: 256}, reason: Half.}
          - {allow: [64, 128]}
      block_size: {min: {field: num_heads}, multiple_of: 16, or: [unset]}
      attn_type: [decoder]
      dcp: [false]
      query_len: {max: 4096}
      sink: any
    constraints:
      - when: {kv_cache_dtype: fp8_e4m3}
        require: {head_size: 128, any_of: [{gqa_group: {max: 4}}, {num_heads: {max: 8}}]}
        code: FP8_SHAPES
        reason: Few shapes are built for fp8.
      - when: {sink: true, seq_len: {min: 8192}}
        code: LONG_SINK
        reason: It overflows.
    phases:
      prefill: {accepts: {has_context: [false]}}
      decode: {}
    decode_threshold: {cases: [{when: {num_heads: {max: 8}}, value: 4}, {value: 1}]}
    prefill_paths:
      - path: mha
        scope: batch
        steps: {over: seq_len, least: query_len, table: [{max: 2048, min: 512}]}
        reason: Steps.
      - {path: mqa, reason: The rest.}
    claimed:
      source: their code
      accepts: {dtype: [float16, bfloat16, float32]}
      constraints: [{when: {sink: true}, code: CLAIMED, reason: They say so.}]
    verified_on: [evidence-1]
  - name: second
    description: It is switched off in one phase.
    source: https://example.org/second
    mla: false
    sparse: false
    requires: {jit: true}
    kv_layout: [HND]
    accepts:
      platform: [cuda]
      capability: [8.x, 9.x]
      dtype: [float16, bfloat16]
      kv_cache_dtype: any
      head_size: {min: 1}
      block_size: any
      attn_type: [decoder]
      sink: any
      generation: [3]
      switch: [left]
    phases:
      prefill: {disabled: true, rationale: It is wrong for long prompts.}
      decode: {}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
joint:
  - same: [kv_layout]
    reason: One cache.
deny:
  - {backend: second, when: {capability: "8.0"}, reason: Slow there.}
priorities:
  - order: [second, first]
    reason: As it is.
"""
LAYER = {
    "head_size": 128,
    "dtype": "bfloat16",
    "kv_cache_dtype": "auto",
    "attn_type": "decoder",
    "num_heads": 32,
    "num_kv_heads": 8,
    "block_size": 64,
}
SELECTOR = Selector.loads(MANIFEST, "rich.yaml")


def case_of(
    arch: str = "9.0",
    request: Request | None = None,
    facts: Facts | None = None,
    policy: Policy | None = None,
    **changed: object,
) -> Case:
    words = SELECTOR.manifest.vocabulary
    inquiry = Inquiry(
        find_device(arch),
        Layer.read({**LAYER, **changed}, words),
        facts or Facts({"lib": "2.0", "jit": True}),
        policy or Policy(),
        request or Request(100, 100),
    )
    return Case(inquiry, inquiry.resolve(SELECTOR))


def prospect(case: Case, name: str = "first") -> Prospect:
    return next(w.prospect for w in ways(case, SELECTOR) if w.prospect.backend == name)


def change(case: Case, name: str = "first") -> list[str]:
    return [f"{c.field} {c.before} → {c.after}" for c in prospect(case, name).changes]


# -- text ----------------------------------------------------------------------------------------


def test_columns_are_aligned_and_the_last_wraps_under_itself() -> None:
    rows = grid(
        [["a", "bb", "the last column is long"], ["ccc", strong("d"), "x"]], indent=2, gap=2
    )
    assert paint(rows) == "  a    bb  the last column is long\n  ccc  d   x\n"
    assert paint(rows, width=25).splitlines()[1] == "           column is long"


def test_a_column_too_deep_to_wrap_under_itself_wraps_under_the_second() -> None:
    rows = grid([["if", "a rather long condition", "unknown for now"]], indent=1, gap=2)
    assert paint(rows, width=34).splitlines()[1] == "     unknown for now"


def test_words_are_never_broken() -> None:
    text = line("a ", "flashinfer_sparse_mla_sm120 ", f"one{GLUE}two", hang=2)
    rows = paint([text], width=12).splitlines()
    assert rows == ["a", "  flashinfer_sparse_mla_sm120", "  one two"]


def test_colour_is_added_only_when_asked_for() -> None:
    text = line(strong("a"), " ", strong("b"), faint(" c "), bad(""), "d")
    assert paint([text]) == "a b c d\n"
    assert paint([text], color=True) == "\x1b[1ma b\x1b[0m\x1b[2m c\x1b[0m d\n"


def test_nothing_that_a_terminal_acts_on_comes_through() -> None:
    shown = paint([line("a\x1b[31mb\n  c\u202ed\te\x07")])
    assert shown == "a\\u001b[31mb c\\u202ed e\\u0007\n"


def test_markdown() -> None:
    lines = markdown_table(["a", "b"], [["1|2", "3"]])
    assert paint(lines) == "| a | b |\n| --- | --- |\n| 1\\|2 | 3 |\n"
    assert paint(fenced([line("x")])) == "```text\nx\n```\n"
    assert paint([joined(["a", "b"], ", ")]) == "a, b\n"


def test_numbers_in_words() -> None:
    assert counted(1, "token") == "1 token"
    assert counted(3300, "token") == "3,300 tokens"
    assert counted(2, "entry", "entries") == "2 entries"
    assert [ordinal(n) for n in (1, 9, 10, 11, 12, 13, 21, 22, 103, 112)] == [
        *("first", "ninth", "10th", "11th", "12th", "13th", "21st", "22nd", "103rd", "112th")
    ]
    assert [listed(["a", "b", "c"][:n]) for n in range(4)] == ["", "a", "a or b", "a, b or c"]


def test_findings_are_counted_by_how_bad_they_are() -> None:
    note = Finding("a.yaml", 7, 3, "CAP099", Severity.NOTE, "it is odd", "")
    shown = paint(finding_lines([note], {"a.yaml": "one line"}, Places()))
    assert shown == "a.yaml:7:3: CAP099 note: it is odd\n\n"
    assert paint(summary_lines([note], ["a.yaml"])) == "Found 1 note in 1 file.\n"
    error = Finding("a.yaml", 1, 1, "CAP001", Severity.ERROR, "it is wrong", "")
    shown = paint(summary_lines([note, error, note], ["a.yaml", "b.yaml"]))
    assert shown == "Found 1 error and 2 notes in 2 files.\n"
    shown = paint(summary_lines([], ["a.yaml", "b.yaml"], fixed=3))
    assert shown == "Mended 3 findings.\nNo problems in 2 files.\n"
    shown = paint(summary_lines([error], ["a.yaml"], fixable=1))
    assert shown == "Found 1 error in 1 file.\n1 finding can be mended with --fix.\n"


# -- what would have to change -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (case_of(dtype="float32"), ["dtype float32 → float16"]),
        (case_of(head_size=72), ["dtype bfloat16 → float16"]),
        (case_of(head_size=300), ["head_size 300 → 128"]),
        (case_of(block_size=24), ["block_size 24 → 32"]),
        (case_of(dcp_size=2), ["dcp_size 2 → 1"]),
        (case_of(request=Request(5000, 5000)), ["query_len 5,000 → 4,096"]),
        (case_of(request=Request(100, 300)), ["has_context true → false"]),
        (case_of(sink=True, request=Request(16, 8192)), ["has_context true → false"]),
        (case_of(facts=Facts({"lib": None})), ["lib not installed → >=1.2,<3"]),
        (case_of(facts=Facts({"lib": "0.9"})), ["lib 0.9 → >=1.2,<3"]),
        (case_of(kv_cache_dtype="fp8_e4m3", num_heads=64), ["kv_cache_dtype fp8_e4m3 → auto"]),
        (
            case_of(kv_cache_dtype="fp8_e5m2", num_heads=64),
            ["kv_cache_dtype fp8_e5m2 → auto"],
        ),
        (case_of(policy=Policy({"first": "no"})), ["deny first → nothing"]),
        (case_of(arch="12.0"), []),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_the_fewest_changes(case: Case, expected: list[str]) -> None:
    assert sorted(change(case)) == sorted(expected)


def test_alternatives_of_one_rule() -> None:
    found = prospect(case_of(kv_cache_dtype="fp8_e4m3", head_size=64))
    assert [(c.field, c.kind) for c in found.changes] == [("kv_cache_dtype", Kind.SETTING)]
    found = prospect(case_of(sink=True, request=Request(5000, 9000)))
    assert {c.kind for c in found.changes} == {Kind.REQUEST}


def test_what_no_change_mends() -> None:
    assert [o.field for o in prospect(case_of(arch="12.0")).obstacles] == ["capability"]
    second = prospect(case_of(), "second")
    assert [phase.value for phase in second.phases] == ["decode"]
    assert [o.code for o in second.obstacles] == ["PINNED"]
    denied = prospect(case_of(arch="8.0"), "second")
    assert [o.code for o in denied.obstacles] == ["DENIED"]
    derived = prospect(case_of(arch="8.6", switch="right"), "second")
    assert [o.field for o in derived.obstacles] == ["generation"]


def test_a_field_of_the_manifest_is_a_setting() -> None:
    (only,) = prospect(case_of(switch="right"), "second").changes
    assert (only.kind, only.field, only.after) == (Kind.SETTING, "switch", "left")


def test_a_probe_can_be_wanting() -> None:
    found = prospect(case_of(facts=Facts({"lib": "2.0", "jit": False})), "second")
    assert [(c.field, c.before, c.after) for c in found.changes] == [("jit", "false", "true")]


def test_explanations_in_words() -> None:
    explained = explain(case_of(), SELECTOR)
    out = paint(explanation_lines([explained], SELECTOR, Places()))
    assert "runs, decode only" in out
    assert "switched off: It is wrong for long prompts." in out
    assert explanation_json([explained])["remedy"] is None
    out = paint(explanation_lines([explain(case_of(arch="8.0"), SELECTOR)], SELECTOR, Places()))
    assert "denied: Slow there." in out
    nothing = explain(case_of(arch="8.0", facts=Facts({"lib": None}), dtype="float32"), SELECTOR)
    out = paint(explanation_lines([nothing], SELECTOR, Places()))
    assert (
        "dtype float32 → float16 (or bfloat16) and lib not installed → >=1.2,<3 "
        "make first the choice" in out
    )
    assert "2 changes away" in out
    once = explain(case_of(block_size=24), SELECTOR)
    out = paint(explanation_lines([once], SELECTOR, Places()))
    assert "first   1 change away      block_size 24 → 32 (or unset) :" in out
    assert "block_size 24; accepts" not in out


def test_the_failure_names_the_phases_that_lack_a_backend() -> None:
    words = failure_words(
        [case_of(request=Request(100, 300), facts=Facts({"jit": True}))], SELECTOR, Places()
    )
    assert words is not None
    assert words.startswith("no backend for prefill of this layer on 9.0; ")
    assert failure_words([case_of()], SELECTOR, Places()) is None


def test_whole_numbers_and_capabilities_are_written_one_way() -> None:
    said = with_separators("index_topk 2048; accepts 4096, >=1234 and fp8_e4m3 9999.1")
    assert said == "index_topk 2,048; accepts 4,096, >=1234 and fp8_e4m3 9999.1"
    assert capabilities_words("8.0, 8.6, 8.7, 8.9, 9.0, 12.0, 12.1") == "8.0–9.0, 12.0, 12.1"
    assert capabilities_words("10.0, 10.3") == "10.0, 10.3"
    assert capabilities_words("nothing") == "nothing"


# -- answers -------------------------------------------------------------------------------------


def test_unknown_fields_say_what_would_tell() -> None:
    inquiry = Inquiry(find_device("9.0"), Layer.of(attn_type="decoder"))
    case = Case(inquiry, inquiry.resolve(SELECTOR))
    out = paint(answer_lines([case], SELECTOR.manifest, Places()))
    assert "not given: --set dtype=… says it" in out
    assert "not given: --query-len says it" in out
    assert "not given: --query-len and --seq-len say it" in out
    assert "unknown here" in out


def test_a_joint_need_is_said() -> None:
    out = paint(answer_lines([case_of()], SELECTOR.manifest, Places()))
    assert "first" in out.split("not chosen")[0]


# -- entries -------------------------------------------------------------------------------------


def test_every_form_of_rule_can_be_read_back() -> None:
    entry = SELECTOR.manifest.entries["first"]
    out = paint(entry_lines(entry, SELECTOR.manifest, Places()))
    for said in (
        "when dtype float16: multiples of 8 up to 256: Half.",
        "else 64, 128",
        "multiples of 16 from num_heads, unset",
        "when kv_cache_dtype fp8_e4m3: head_size 128 and gqa_group up to 4 or num_heads up to 8: ",
        "never sink true and seq_len from 8,192: It overflows.",
        "4 when num_heads up to 8",
        "when query_len at least 512 where seq_len is up to 2,048 (of the batch's longest prefill)",
        "accepts for prefill",
        "has_context   false",
        "claimed otherwise by their code",
        "dtype   bfloat16, float16, float32",
        "They say so.",
        "verified on",
        "lib >=1.2,<3",
    ):
        assert said in out
    data = entry_json(entry, SELECTOR.manifest)
    assert data["claimed"]["constraints"][0]["code"] == "CLAIMED"
    out = paint(entry_lines(SELECTOR.manifest.entries["second"], SELECTOR.manifest, Places()))
    assert "prefill is switched off" in out
    assert "It is wrong for long prompts." in out
