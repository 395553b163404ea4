from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from selector.schema import load_schema

from .conftest import GQA, SMALL, SPARSE, Run, line_of

QUESTION = ("resolve", "--gpu", "RTX PRO 6000", "--set", SPARSE, "--set", "tp=8", "--set", "pp=2")


def row(text: str, label: str) -> str:
    """The first line that begins with a label."""
    return next(line for line in text.splitlines() if line.strip().startswith(label))


def test_the_question(run: Run, small: list[str]) -> None:
    ran = run(*QUESTION, *small, "--query-len", 3300)
    assert ran.code == 0
    assert ran.err == ""
    head = ran.out.splitlines()[0]
    assert head.startswith(
        "one layer · RTX PRO 6000 Blackwell (12.0) · 3,300 new tokens, nothing cached · tp 8 · pp 2"
    )
    at = line_of("when: {mla: true, sparse: true}", "priorities:")
    assert (
        row(ran.out, "prefill").split()
        == (
            "prefill sparse_sm120 sparse_mqa priorities[0] "
            f'"Sparse MLA has one kernel an architecture", second of 2 small.yaml:{at}'
        ).split()
    )
    assert row(ran.out, "decode").split() == ["decode", "sparse_sm120", "sparse_mqa", "same"]
    assert "a decode has at most 1 new token" in row(ran.out, "counts as")
    assert "planning for another machine" in row(ran.out, "if")
    assert row(ran.out, "else").split() == ["else", "no", "backend"]


def test_what_is_off_is_said_with_its_reason_and_link(run: Run, small: list[str]) -> None:
    out = run(*QUESTION, *small, "--query-len", 3300).out
    at = line_of("dense_prefill: false")
    assert f"dense_mha prefill of sparse_sm120   small.yaml:{at} pinned" in out
    for said in (
        "Only the top-k MQA path exists on 12.x.",
        "https://example.org/pull/51395",
        "Revisit when a dense MHA prefill for 12.x ships.",
    ):
        assert said in out


def test_every_other_entry_has_one_line_with_values_and_places(run: Run, small: list[str]) -> None:
    out = run(*QUESTION, *small, "--query-len", 3300).out
    refused = out.split("not chosen")[1].splitlines()[1:]
    assert len(refused) == 5
    at = line_of('capability: ["10.0", "10.3"]')
    assert row(out, "sparse_sm100").strip() == (
        f"sparse_sm100  compute capability 12.0; has 10.0, 10.3 :{at}"
    )
    for name in ("math", "fa2", "xqa"):
        assert "sparse MLA layer; serves plain only :" in row(out, name)
    at = line_of('capability: ["9.0"]')
    assert (
        row(out, "mla_fa3")
        .split("  ")[-1]
        .strip()
        .startswith(f"arch 12.0; has 9.0 :{at} · sparse MLA")
    )
    assert "+" not in out.split("not chosen")[1]


def test_a_long_list_of_reasons_is_cut_and_the_rest_counted(run: Run, small: list[str]) -> None:
    layer = GQA.replace("128", "96").replace("auto", "fp8_e5m2")
    question = ("--arch", "9.0", "--set", layer, "--set", "block_size=8,sink=true,soft_cap=true")
    ran = run("resolve", *question, *small)
    refused = ran.out.split("not chosen")[1].splitlines()
    assert "all: `attnsel explain`" in refused[0]
    assert row(ran.out, "fa2").endswith(" more")
    assert all(len(line) <= 4 + len("sparse_sm120") + 2 + 90 for line in refused[1:])
    kinds = ["layer;" in line for line in refused[1:]]
    assert kinds == sorted(kinds)  # the wrong kind comes last
    full = row(run("explain", *question, *small).out, "fa2")
    for field in ("head_size 96", "kv_cache_dtype fp8_e5m2", "sink true"):
        assert field in full


def test_what_is_said_for_all_kinds_of_layers_is_said_once(run: Run, small: list[str]) -> None:
    out = run("resolve", "--arch", "9.0", "--model", "gemma-3-27b", *small).out
    shared = out.split("not chosen, for both kinds")[1]
    for name in ("mla_fa3", "sparse_sm100", "sparse_sm120"):
        assert out.count(f"  {name} ") == 1
        assert f"  {name} " in shared
    for name in ("math", "fa2", "xqa"):
        assert f"  {name} " in out


def test_no_entry_of_the_platform(run: Run, small: list[str]) -> None:
    ran = run("resolve", "--gpu", "MI300X", "--set", GQA, *small)
    assert ran.code == 3
    assert "not chosen" not in ran.out
    assert "no entry serves rocm; they serve cpu and cuda" in row(ran.out, "not here")
    assert "no entry serves rocm" in ran.complaint


def test_a_short_request_counts_as_a_decode(run: Run, small: list[str]) -> None:
    out = run(*QUESTION, *small, "--query-len", 1, "--seq-len", 500).out
    assert "1 new token, 499 cached" in out
    assert row(out, "counts as").split()[2] == "decode"


def test_unknown_lengths_are_said(run: Run, small: list[str]) -> None:
    out = run("resolve", "--arch", "10.0", "--set", SPARSE, *small).out
    assert "any request" in out
    assert "dense_mha or sparse_mqa" in row(out, "prefill")
    assert "prefill or decode" in row(out, "counts as")
    assert "any request of 50 tokens" in run(*QUESTION, *small, "--seq-len", 50).out


def test_eligible_entries_say_their_place(run: Run, small: list[str]) -> None:
    out = run("resolve", "--arch", "9.0", "--set", GQA, "--query-len", 9, *small).out
    assert row(out, "math").strip() == (
        "math          eligible if torch >=2.5; second of 2 for prefill, third of 3 for decode"
    )
    assert "xqa" in row(out, "decode")
    assert row(out, "else").strip() == "else        math, then no backend (for prefill)"


def test_known_facts_leave_nothing_open(run: Run, small: list[str]) -> None:
    facts = "flashinfer-python=0.7.2,torch=2.9,jit=true"
    out = run("resolve", "--arch", "9.0", "--set", GQA, "--set", facts, *small).out
    assert "  if " not in out
    assert "math          prefill: kv_layout NHD; must be HND (decode runs xqa)" in out
    out = run(
        "resolve", "--arch", "9.0", "--set", GQA, "--set", "flashinfer-python=none", *small
    ).out
    assert "flashinfer-python not installed; needs >=0.6.14" in row(out, "fa2")
    out = run(
        "resolve", "--arch", "9.0", "--set", GQA, "--set", "flashinfer-python=0.5", *small
    ).out
    assert "flashinfer-python 0.5; needs >=0.6.14" in row(out, "fa2")


def test_a_changed_value_is_reported(run: Run, small: list[str]) -> None:
    layer = GQA.replace("auto", "fp8")
    out = run("resolve", "--arch", "8.9", "--set", layer, *small).out
    assert "kv_cache_dtype fp8 → fp8_e4m3   fp8 means e4m3 here.   " in row(out, "becomes")


def test_a_rule_of_several_fields_is_said_once(run: Run, small: list[str]) -> None:
    layer = GQA.replace("auto", "fp8_e4m3") + ",sliding_window=128"
    out = run("resolve", "--arch", "8.9", "--set", layer, *small).out
    assert (
        "sliding_window 128, kv_cache_dtype fp8_e4m3: never together: No windowed kernel reads fp8."
        in row(out, "fa2")
    )


def test_nothing_fits(run: Run, small: list[str]) -> None:
    layer = GQA.replace("head_size=128", "head_size=96").replace("auto", "fp8_e4m3")
    ran = run("resolve", "--arch", "12.0", "--set", layer, *small)
    assert ran.code == 3
    assert "no backend" in row(ran.out, "prefill")
    assert ran.complaint == (
        "no backend for prefill and decode of this layer on 12.0; "
        "nearest: kv_cache_dtype fp8_e4m3 → auto (or bfloat16, float16) makes math the choice"
    )


def test_an_unknown_capability_says_what_is_known(run: Run, small: list[str]) -> None:
    layer = SPARSE
    ran = run("resolve", "--arch", "13.0", "--set", layer, *small)
    assert ran.code == 3
    note = "compute capability 13.0 is not known here; the newest known is 12.1"
    assert note in row(ran.out, "note")
    assert f"on 13.0; {note}; " in ran.complaint


def test_a_forced_backend_runs_or_says_why_not(run: Run, small: list[str]) -> None:
    ran = run("resolve", "--arch", "9.0", "--set", GQA, "--backend", "math", *small)
    assert ran.code == 0
    assert "forced by the caller" in row(ran.out, "prefill")
    ran = run("resolve", "--arch", "9.0", "--set", GQA, "--backend", "sparse_sm120", *small)
    assert ran.code == 3
    assert ran.complaint.startswith(
        "sparse_sm120 is forced and cannot run prefill and decode of this layer on 9.0: "
        "compute capability 9.0; has 12.0, 12.1 [small.yaml:"
    )
    said = "sparse_sm120 is forced and cannot run prefill: compute capability 9.0; has 12.0, 12.1"
    assert said in row(ran.out, "prefill")
    assert "sparse_sm120 forced" in ran.out.splitlines()[0]
    assert ran.complaint.endswith("; not forced, fa2 runs prefill and xqa decode")


def test_a_forced_backend_is_forced_where_it_serves(run: Run, small: list[str]) -> None:
    question = ("resolve", "--arch", "9.0", "--set", GQA, *small)
    ran = run(*question, "--backend", "xqa")
    assert ran.code == 0
    note = "xqa serves decode only; prefill is chosen freely"
    assert row(ran.out, "note").split(maxsplit=1)[1] == note
    assert "note" not in run(*question, "--backend", "fa2").out
    ran = run(*question, "--prefill-backend", "math", "--decode-backend", "fa2", "--format", "json")
    assert (ran.json["prefill"]["backend"], ran.json["decode"]["backend"]) == ("math", "fa2")
    ran = run(*question, "--prefill-backend", "xqa")
    assert ran.code == 3
    assert ran.complaint.startswith(
        "xqa is forced and serves decode only: no prefill of this layer"
    )


def test_what_fits_but_no_list_names_is_said(run: Run, tmp_path: Path) -> None:
    text = SMALL.read_text("utf-8").replace("decode: [xqa, fa2, math]", "decode: [xqa]")
    file = tmp_path / "lists.yaml"
    file.write_text(text.replace("order: [math]", "order: [fa2]"), "utf-8")
    question = ("--arch", "cpu", "--set", GQA, "--manifest", file)
    ran = run("resolve", *question)
    assert ran.code == 3
    assert "no priority list names what fits; eligible: math" in row(ran.out, "prefill")
    assert "no priority list names what fits; eligible: math" in ran.complaint
    assert "nothing is chosen" in run("explain", *question).out


def test_why_a_path_is_taken(run: Run, small: list[str]) -> None:
    out = run(*QUESTION, *small, "--query-len", 3300).out
    at = line_of("path: sparse_mqa", "name: sparse_sm120")
    assert row(out, "path").split()[:2] == ["path", "sparse_mqa"]
    assert row(out, "path").endswith(f"small.yaml:{at}")


def test_the_header_says_what_the_answer_depends_on(run: Run, small: list[str]) -> None:
    question = ("resolve", "--arch", "9.0", "--set", GQA, *small)
    out = run(*question, "--as-claimed", "--backend", "fa2", "--deny", "xqa").out
    head = out.splitlines()[0].split("    ")[0]
    assert head.endswith(" · as claimed · fa2 forced · without xqa")
    assert "as claimed" not in run(*question).out


def test_deny(run: Run, small: list[str]) -> None:
    ran = run("resolve", "--arch", "9.0", "--set", GQA, "--deny", "fa2", "--deny", "xqa", *small)
    assert "math" in row(ran.out, "prefill")
    assert row(ran.out, "fa2").endswith("  denied: --deny fa2")
    assert ran.out.splitlines()[0].split("    ")[0].endswith(" · without fa2 and xqa")
    assert run("resolve", "--arch", "9.0", "--set", GQA, "--deny", "fa2, xqa", *small) == ran


def test_closed_world(run: Run, small: list[str]) -> None:
    ran = run("resolve", "--arch", "9.0", "--set", GQA, "--closed-world", *small)
    assert ran.code == 3
    assert "closed world" in ran.out.splitlines()[0]
    for name, fact in (("math", "torch"), ("fa2", "flashinfer-python")):
        assert f"{fact} unknown, taken as not installed; needs" in row(ran.out, name)
    known = ("--set", "torch=none")
    ran = run("resolve", "--arch", "9.0", "--set", GQA, "--closed-world", *known, *small)
    assert "torch not installed; needs" in row(ran.out, "math")


def test_encoders_need_no_decode(run: Run, small: list[str]) -> None:
    layer = GQA.replace("attn_type=decoder", "attn_type=encoder_only")
    ran = run("resolve", "--arch", "9.0", "--set", layer, "--query-len", 9, *small)
    assert ran.code == 0
    assert "decode   " not in ran.out
    assert "counts as" not in ran.out


def test_aliases(run: Run, small: list[str]) -> None:
    layer = "use_mla=false,head_dim=128,torch_dtype=torch.bfloat16,kv_cache_dtype=auto"
    more = "attn_type=AttentionType.DECODER,has_sink=false,num_heads=8,num_kv_heads=8"
    ran = run(
        "resolve", "--arch", "sm_90a", "--set", layer, "--set", more, *small, "--format", "json"
    )
    assert ran.json["layer"]["head_size"] == 128
    assert ran.json["layer"]["dtype"] == "bfloat16"
    assert ran.json["device"]["capability"] == "9.0"


def validate(document: object) -> None:
    Draft202012Validator(load_schema("resolution")).validate(document)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--arch", "12.0", "--set", SPARSE, "--query-len", "3300"),
        ("--arch", "9.0", "--set", GQA.replace("auto", "fp8")),
        ("--arch", "13.0", "--set", SPARSE),
        ("--arch", "12.0"),
        ("--arch", "cpu", "--set", GQA),
        ("--arch", "9.0", "--set", GQA, "--backend", "sparse_sm120"),
        ("--gpu", "H200", "--model", "qwen3-8b", "--query-len", "7"),
        ("--gpu", "H200", "--model", "gpt-oss-20b", "--query-len", "7"),
    ],
)
def test_json_is_what_the_schema_says(
    run: Run, small: list[str], arguments: tuple[str, ...]
) -> None:
    ran = run("resolve", *arguments, *small, "--format", "json")
    validate(ran.json)
    assert ran.code in (0, 3)


def test_json_and_text_agree(run: Run, small: list[str]) -> None:
    question = ("resolve", "--arch", "12.0", "--set", SPARSE, "--query-len", 3300, *small)
    answer = run(*question, "--format", "json").json
    out = run(*question).out
    for choice in (answer["prefill"], answer["decode"]):
        assert choice["backend"] in out
        assert all(f"{c['field']} {c['allowed']}" in out for c in choice["conditions"])
    for candidate in answer["candidates"]:
        if candidate["prefill"]["outcome"] != "selected":
            mine = row(out, candidate["backend"])
            if " layer; " in mine:  # of another kind: no other reason is given
                continue
            for rejection in candidate["decode"]["rejections"]:
                assert rejection["allowed"] in mine or rejection["field"] in ("mla", "sparse")
                assert f":{rejection['position'][1]}" in mine


def test_a_model_is_read_and_sharded(run: Run, small: list[str]) -> None:
    ran = run("resolve", "--gpu", "H200", "--model", "qwen3-8b", "--set", "tp=4", *small)
    assert ran.code == 0
    assert ran.out.startswith("qwen3-8b · H200 (9.0) · any request · tp 4")
    assert "36 full layers  plain · head_size 128 · bfloat16" in ran.out
    assert "8 heads on 2 KV heads a rank" in ran.out
    assert "kv_cache_dtype auto (default)" in ran.out


def test_what_is_set_comes_from_a_flag(run: Run, small: list[str]) -> None:
    ran = run(
        *("resolve", "--gpu", "H200", "--model", "qwen3-8b", "--set", "kv_cache_dtype=fp8_e4m3"),
        *(*small, "--format", "json"),
    )
    assert ran.json["model"]["origins"]["kv_cache_dtype"] == "flag"
    assert ran.json["layer"]["kv_cache_dtype"] == "fp8_e4m3"


def test_what_follows_from_a_value_follows_it_when_it_is_set(run: Run, small: list[str]) -> None:
    asked = ("resolve", "--arch", "9.0", "--model", "qwen3-8b", *small, "--format", "json", "--set")
    assert run(*asked, "num_heads=8,num_kv_heads=8").json["layer"]["gqa_group"] == 1
    assert run(*asked, "head_size=64").json["layer"]["v_head_size"] == 64
    assert run(*asked, "block_size=None").json["layer"]["block_size"] == "unset"


def test_several_kinds_of_layers_get_a_block_each_the_rarest_first(
    run: Run, small: list[str]
) -> None:
    question = ("resolve", "--gpu", "H200", "--model", "gemma-3-27b", *small)
    ran = run(*question)
    blocks = [line for line in ran.out.splitlines() if " layers  plain" in line]
    counts = [int(line.split()[0]) for line in blocks]
    assert len(counts) == 2
    assert counts == sorted(counts)
    answers = run(*question, "--format", "json").json["layers"]
    assert [a["model"]["count"] for a in answers] == counts


def test_facts_of_this_machine_are_used_when_asked_for(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from backends import probe
    from selector.values import Device, Facts

    monkeypatch.setattr(probe, "probe_facts", lambda: Facts({"torch": "2.9", "jit": False}))
    question = ("resolve", "--set", GQA, *small)
    out = run(*question, "--arch", "9.0", "--facts", "probe").out
    assert "jit false; needs true" in row(out, "xqa")
    assert "planning for another machine" not in out
    monkeypatch.setattr(probe, "probe_device", lambda: Device("cuda", "8.0", "NVIDIA A100"))
    out = run(*question).out
    assert out.startswith("one layer · NVIDIA A100 (8.0)")
    assert "eligible; second of 2" in row(out, "math")
    assert "unknown here" in row(out, "if")


def test_json_on_stdout_even_when_nothing_fits(run: Run, small: list[str]) -> None:
    ran = run("resolve", "--arch", "13.0", "--set", SPARSE, *small, "--format", "json")
    assert ran.code == 3
    assert json.loads(ran.out)["prefill"]["backend"] is None
    assert ran.complaint.startswith("no backend for prefill and decode")


def test_claims_are_used_when_asked_for(run: Run, tmp_path: Path) -> None:
    claimed = "    claimed: {source: their code, dense_prefill: true}\n    decode_threshold: 1\n"
    text = SMALL.read_text("utf-8")
    at = text.index("    decode_threshold: 1\n", text.index("name: sparse_sm120"))
    file = tmp_path / "claimed.yaml"
    file.write_text(text[:at] + claimed + text[at + len("    decode_threshold: 1\n") :], "utf-8")
    question = ("resolve", "--arch", "12.0", "--set", SPARSE, "--query-len", 9, "--manifest", file)
    assert "sparse_mqa" in row(run(*question).out, "prefill")
    assert "dense_mha" in row(run(*question, "--as-claimed").out, "prefill")


def test_an_overlay_is_named_beside_the_manifest(
    run: Run, small: list[str], tmp_path: Path
) -> None:
    overlay = tmp_path / "mine.yaml"
    overlay.write_text(
        "attnsel: 1\noverlay: mine\ndeny:\n  - {backend: xqa, reason: Not here.}\n", "utf-8"
    )
    question = ("resolve", "--arch", "9.0", "--set", GQA, *small)
    head = run(*question, "--overlay", overlay).out.splitlines()[0]
    assert "    small.yaml + mine " in head
    assert "mine" not in run(*question).out.splitlines()[0]
