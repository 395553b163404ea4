import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from backends import cases as finding_cases
from backends import certify as certifying
from backends import torch_sdpa
from backends.cases import Case, Untested, find_cases
from backends.certificate import Certificate
from backends.certify import certify, find_runs, judge_runs
from backends.contract import Batch, MlaShape, PagedKV, RefusedError
from backends.inputs import make_inputs
from backends.judging import Judgement, judge_again, run_case
from backends.part import Head
from backends.probe import find_missing_tools
from backends.reference import attend
from selector import Selector
from selector.errors import UnknownBackendError
from selector.manifest import Manifest
from selector.values import Device, Facts, Phase, Position

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def short_ladder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rungs, so that a dozen certifications take seconds; the first test climbs them all."""
    if request.function is not test_the_truth_is_confirmed:
        monkeypatch.setattr(finding_cases, "LADDER", (1, 7, 8, 24, 64, 65, 129, 257))


CPU = Device("cpu")
FACTS = Facts({"torch": torch.__version__})

# What is true of torch's flash kernel on a CPU. Tests change one line of it.
TRUE = """\
attnsel: 1
name: example
version: "1"
facts:
  torch: {type: version, description: The distribution torch.}
backends:
  - name: torch_sdpa_flash
    source: example
    mla: false
    sparse: false
    requires: {torch: ">=2.5"}
    accepts:
      platform: [cpu]
      capability: absent
      head_size: {min: 1}
      v_head_size: {min: {field: head_size}, max: {field: head_size}, or: [unset]}
      dtype: [float16, bfloat16, float32]
      kv_cache_dtype:
        cases:
          - {when: {dtype: float16}, allow: [unset, auto, float16]}
          - {when: {dtype: bfloat16}, allow: [unset, auto, bfloat16]}
          - {allow: [unset, auto, float32]}
      block_size: {min: 1, or: [unset]}
      attn_type: any
      sliding_window: any
      non_causal: any
    phases:
      prefill: {}
      decode: {}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
    adapter: backends.torch_sdpa:flash
priorities:
  - {order: [torch_sdpa_flash], reason: There is only one.}
"""


PREFILL = TRUE.replace("      decode: {}\n", "").replace("    decode_threshold: 1\n", "")


def manifest(old: str = "", new: str = "", text: str = TRUE) -> Manifest:
    assert old in text
    return Selector.loads(text.replace(old, new, 1) if old else text).manifest


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(TRUE.splitlines(), 1) if text in line)


def certified(changed: Manifest, backends: tuple[str, ...] = (), **options: Any) -> Certificate:
    runs = find_runs(changed, CPU, FACTS, backends)
    return certify(changed, CPU, FACTS, date="2026-11-20", runs=runs, **options)


def told(certificate: Certificate) -> list[tuple[str, int]]:
    return [(finding.code, finding.line) for finding in certificate.findings()]


def untested_of(changed: Manifest) -> tuple[Untested, ...]:
    (entry,) = changed.entries.values()
    return find_cases(changed, entry, CPU, FACTS).untested


def cases_of(changed: Manifest) -> tuple[Case, ...]:
    (entry,) = changed.entries.values()
    return find_cases(changed, entry, CPU, FACTS).cases


# -- a whole certification ---------------------------------------------------------------------


def test_the_truth_is_confirmed() -> None:
    seen: list[Any] = []
    certificate = certified(manifest(), on_result=seen.append)
    assert certificate.findings() == ()
    assert certificate.passed
    assert seen == list(certificate.results)
    assert {r.judgement for r in seen} == {Judgement.CONFIRMED}
    assert {r.case.accepts for r in seen} == {True, False}
    assert {r.case.phase for r in seen} == {Phase.PREFILL, Phase.DECODE}


@pytest.mark.parametrize(
    ("old", "new", "code", "message"),
    [
        (
            "dtype: [float16, bfloat16, float32]",
            "dtype: [float16, bfloat16, float32, fp8_e4m3]",
            "CERT003",
            "prefill: dtype fp8_e4m3 is claimed, and the kernel refuses it",
        ),
        (
            "head_size: {min: 1}",
            "head_size: {multiple_of: 8, max: 256}",
            "CERT004",
            "head_size 1, 7, 9, 65, 129, 255 (and 1 more) is not claimed, and is right",
        ),
        ("sliding_window: any", "sliding_window: unset", "CERT004", "sliding_window 1, 7, 8"),
        ("block_size: {min: 1, or: [unset]}", "block_size: {min: 2}", "CERT004", "block_size 1"),
        ("attn_type: any", "attn_type: [decoder]", "CERT004", "attn_type encoder"),
    ],
)
def test_a_wrong_claim_fails_at_its_line(old: str, new: str, code: str, message: str) -> None:
    certificate = certified(manifest(old, new, PREFILL))
    assert not certificate.passed
    assert told(certificate) == [(code, line_of(old))]
    assert message in certificate.findings()[0].message


def test_silence_about_a_context_field_is_a_claim_of_any() -> None:
    stated = "      v_head_size: {min: {field: head_size}, max: {field: head_size}, or: [unset]}\n"
    silent = manifest(stated, "", PREFILL)
    certificate = certified(silent)
    assert told(certificate) == [("CERT003", line_of("name: torch_sdpa_flash"))]
    assert "v_head_size" in certificate.findings()[0].message


def test_silence_about_a_feature_is_a_claim_of_never() -> None:
    certificate = certified(manifest("      non_causal: any\n", "", PREFILL))
    assert told(certificate) == [("CERT004", line_of("accepts:"))]


def test_a_refusal_with_a_reason_is_a_decision() -> None:
    wanted = "cases: [{when: {platform: cpu}, allow: unset, reason: Slow.}, {allow: any}]"
    certificate = certified(
        manifest("sliding_window: any", f"sliding_window: {{{wanted}}}", PREFILL)
    )
    assert certificate.passed
    assert [code for code, _ in told(certificate)] == ["CERT005"]
    assert certificate.findings()[0].message.endswith("declined on purpose: Slow.")


def test_entries_that_cannot_run_here_are_skipped() -> None:
    for old, new, reason in (
        ("platform: [cpu]", "platform: [cuda]", "platform is cpu, not cuda"),
        ('">=2.5"', '">=99"', f"torch is {torch.__version__}, not >=99"),
        ("torch_sdpa:flash", "fa9:flash", "adapter 'backends.fa9:flash' is not there"),
    ):
        certificate = certified(manifest(old, new))
        assert certificate.results == ()
        assert not certificate.passed
        assert certificate.skipped["torch_sdpa_flash"].startswith(reason)


def test_an_entry_without_an_adapter_is_skipped() -> None:
    nameless = TRUE.replace("torch_sdpa_flash", "other").replace(
        "    adapter: backends.torch_sdpa:flash\n", ""
    )
    assert certified(manifest(text=nameless)).skipped == {"other": "no adapter runs it"}


def test_only_the_backends_asked_for_run() -> None:
    with pytest.raises(UnknownBackendError, match="fa9"):
        certified(manifest(), backends=("fa9",))
    elsewhere = manifest("platform: [cpu]", "platform: [cuda]")
    assert set(certified(elsewhere, backends=("torch_sdpa_flash",)).skipped) == {"torch_sdpa_flash"}


def judged(changed: Manifest, recorded: Certificate) -> Certificate:
    head = Head("0a1b2c3d", CPU, dict(FACTS.values), 0, "2026-11-20")
    runs = find_runs(changed, CPU, FACTS)
    return judge_runs(changed, head, recorded.results, runs, today="2026-11-21")


def test_a_corrected_manifest_is_judged_by_the_runs_that_showed_it_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = certified(manifest("head_size: {min: 1}", "head_size: {max: 64}"))
    assert told(wrong) == [("CERT004", line_of("head_size: {min: 1}"))]
    stub = Stub(fail(AssertionError("nothing is to run")))
    stub.tolerance = torch_sdpa.flash.tolerance  # type: ignore[method-assign]
    monkeypatch.setattr(certifying, "load_adapter", lambda _: stub)
    right = judged(manifest(), wrong)
    assert right.passed
    assert told(right) == []
    evidence = right.evidence()
    assert evidence["judged"] == {"date": "2026-11-21", "digest": "0a1b2c3d"}
    assert evidence["date"] == "2026-11-20"
    assert evidence["entries"] != wrong.entries


def test_a_case_that_was_never_run_is_untested() -> None:
    recorded = certified(manifest())
    kept = tuple(r for r in recorded.results if r.case.batch.head_size != 7)
    assert kept != recorded.results
    again = judged(manifest(), msgspec.structs.replace(recorded, results=kept))
    assert again.results == kept
    line = line_of("head_size: {min: 1}")
    left = {(u.field, u.claim.line, u.phase) for u in again.untested if u.why == "not run"}
    assert left == {("head_size", line, phase) for phase in Phase}


def test_the_evidence_is_json_and_says_what_was_run() -> None:
    certificate = certified(
        manifest("dtype: [float16,", "dtype: [fp8_e4m3, float16,", PREFILL), seed=3
    )
    evidence = json.loads(json.dumps(certificate.evidence()))
    assert evidence["id"] == f"cpu-2026-11-20-{certificate.manifest.digest[:8]}"
    assert evidence["facts"] == {"torch": torch.__version__}
    assert evidence["manifest"]["digest"] == certificate.manifest.digest
    assert (evidence["seed"], evidence["passed"]) == (3, False)
    assert sum(claim["cases"] for claim in evidence["claims"]) == len(certificate.results)
    base = evidence["claims"][0]
    assert (base["field"], base["judgement"]) == ("base", "confirmed")
    assert 0 < base["error"] < base["tolerance"]
    assert base["batch"]["query_lens"] == [33]
    assert all("batch" not in c for c in evidence["claims"][1:] if c["judgement"] == "confirmed")
    wrong = [c for c in evidence["claims"] if c["judgement"] == "over_claim"]
    seen = {(c["field"], *c["values"], c["line"], c["batch"]["dtype"]) for c in wrong}
    assert seen == {("dtype", "fp8_e4m3", 17, "fp8_e4m3")}
    assert all("torch_sdpa_flash:" in c["message"] for c in wrong)
    assert {u["field"] for u in evidence["untested"]} == {"platform", "capability"}
    errors = evidence["errors"]["torch_sdpa_flash"]
    assert set(errors) == {"bfloat16", "float16", "float32"}
    assert errors["bfloat16"][1] == 1.3e-2
    assert 0 < errors["float32"][0] < errors["float16"][0] < errors["bfloat16"][0] < 1.3e-2


# -- the cases ---------------------------------------------------------------------------------


def varied(cases: tuple[Case, ...], field: str, phase: Phase = Phase.PREFILL) -> dict[str, bool]:
    return {c.value: c.accepts for c in cases if c.field == field and c.phase is phase}


def test_numbers_are_tried_at_each_end_and_next_to_it() -> None:
    cases = cases_of(manifest("head_size: {min: 1}", "head_size: {multiple_of: 16, max: 208}"))
    tried = varied(cases, "head_size")
    assert {v: tried[v] for v in ("16", "32", "192", "208")} == dict.fromkeys(
        ("16", "32", "192", "208"), True
    )
    assert {v: tried[v] for v in ("15", "17", "207", "209", "8", "257")} == dict.fromkeys(
        ("15", "17", "207", "209", "8", "257"), False
    )


def test_names_are_all_tried() -> None:
    tried = varied(cases_of(manifest()), "dtype")
    assert tried == {
        "float16": True,
        "float32": True,
        "fp8_e4m3": False,
        "fp8_e5m2": False,
    }  # and bfloat16, which is the base


def test_every_rule_of_an_accepted_set_is_reached() -> None:
    pairs = {
        (c.batch.dtype, c.batch.kv_dtype)
        for c in cases_of(manifest())
        if c.field == "kv_cache_dtype" and c.accepts
    }
    assert {("float16", "float16"), ("bfloat16", "bfloat16"), ("float32", "float32")} <= pairs


def test_rules_out_of_reach_and_bounds_too_large_are_said() -> None:
    text = TRUE.replace(
        "sliding_window: any",
        "sliding_window: {cases: [{when: {capability: '9.0'}, allow: unset}, {allow: any}]}",
    ).replace("block_size: {min: 1, or: [unset]}", "block_size: {max: 9000, or: [unset]}")
    changed = manifest(text=text)
    untested = {u.field: u.why for u in untested_of(changed)}
    assert untested["sliding_window"] == "no question on this device reaches this rule"
    assert untested["block_size"] == "9,000 is beyond the largest run here, 256"


def test_a_phase_switched_off_is_not_run() -> None:
    changed = manifest("decode: {}", "decode: {disabled: true, rationale: Broken.}")
    assert {case.phase for case in cases_of(changed)} == {Phase.PREFILL}
    assert [(u.phase, u.why) for u in untested_of(changed) if not u.field] == [
        (Phase.DECODE, "switched off")
    ]


def test_decodes_are_as_long_as_the_threshold() -> None:
    changed = manifest("decode_threshold: 1", "decode_threshold: 4")
    decodes = {c.batch.query_lens[0] for c in cases_of(changed) if c.phase is Phase.DECODE}
    assert decodes == {1, 2, 3, 4}


def test_sizes_follow_one_another() -> None:
    batches = {
        (c.field, c.value): c.batch for c in cases_of(manifest()) if c.phase is Phase.PREFILL
    }
    shapes = {k: (b.num_heads, b.num_kv_heads) for k, b in batches.items()}
    assert shapes["gqa_group", "1"] == (2, 2)
    assert shapes["num_heads", "7"] == (7, 1)
    assert shapes["num_kv_heads", "16"] == (64, 16)
    lengths = {k: (b.query_lens[0], b.seq_lens[0]) for k, b in batches.items()}
    assert lengths["query_len", "257"] == (257, 257)
    assert lengths["seq_len", "8"] == (8, 8)
    assert (33, 33) in lengths.values()  # no context; the same question as seq_len 33


def test_a_base_is_found_in_what_is_accepted() -> None:
    text = TRUE.replace("head_size: {min: 1}", "head_size: [80, 512]").replace(
        "dtype: [float16, bfloat16, float32]", "dtype: [float32]"
    )
    base = cases_of(manifest(text=text))[0]
    assert base.accepts
    assert (base.batch.head_size, base.batch.dtype) == (80, "float32")


CONSTRAINTS = """\
    constraints:
      - {when: {sliding_window: {min: 1}}, require: {block_size: {max: 32}}, code: SMALL, reason: r}
      - {when: {head_size: 24}, code: NEVER, reason: r}
      - when: {dtype: float32}
        require: {any_of: [{head_size: {max: 64}}, {num_heads: {max: 4}}]}
        code: EITHER
        reason: r
      - {when: {context_len: {min: 90}}, require: {attn_type: decoder}, code: LONG, reason: r}
      - {when: {capability: "9.0"}, code: ELSEWHERE, reason: r}
"""


def test_constraints_are_tried_on_both_sides() -> None:
    changed = manifest("    adapter:", CONSTRAINTS + "    adapter:", PREFILL)
    cases = [c for c in cases_of(changed) if c.phase is Phase.PREFILL]
    small = [(c.batch.page_size, c.accepts) for c in cases if c.field == "SMALL"]
    assert (33, False) in small
    assert all(c.batch.sliding_window for c in cases if c.field == "SMALL")
    assert [(c.batch.head_size, c.accepts) for c in cases if c.batch.head_size == 24] == [
        (24, False)
    ]
    long = {c.value: c for c in cases if c.field == "LONG"}
    assert long["met"].batch.seq_lens[0] - long["met"].batch.query_lens[0] == 90
    assert not long["broken"].accepts
    assert not long["broken"].batch.causal
    either = [c for c in cases if c.field == "EITHER"]
    assert {c.batch.dtype for c in either} <= {"float32"}
    certificate = certified(changed)
    assert {f.code for f in certificate.findings()} == {"CERT005"}  # true limits with reasons
    assert "ELSEWHERE" in {u.field for u in certificate.untested}


def test_what_cannot_exist_is_no_case() -> None:
    rule = "space:\n  - {when: {head_size: %s}, require: {num_heads: 4}, reason: r}\nbackends:"
    everything = manifest("backends:", rule % "{min: 1}", PREFILL)
    assert certified(everything).skipped == {
        "torch_sdpa_flash": "accepts no question that can exist"
    }
    some = manifest("backends:", rule % "129", PREFILL)
    tried = varied(cases_of(some), "head_size")
    assert "129" not in tried
    assert "257" in tried


def test_a_limit_on_lengths_is_tried_on_both_sides() -> None:
    limits = "      seq_len: {min: 2}\n      query_len: {max: 20}\n      has_context: true\n"
    cases = cases_of(manifest("      attn_type: any\n", f"      attn_type: any\n{limits}", PREFILL))
    assert cases[0].accepts
    assert cases[0].batch.query_lens == (20,)
    assert varied(cases, "query_len")["21"] is False
    assert varied(cases, "seq_len")["1"] is False
    assert not any(c.accepts for c in cases if c.batch.seq_lens == c.batch.query_lens)


SPARSE = (
    TRUE.replace("mla: false", "mla: true")
    .replace("sparse: false", "sparse: true\n    dense_prefill: true")
    .replace(
        "      head_size: {min: 1}\n", "      head_size: [512, 576]\n      index_topk: {min: 2}\n"
    )
    .replace(
        "      v_head_size: {min: {field: head_size}, max: {field: head_size}, or: [unset]}\n", ""
    )
    .replace("platform: [cpu]", "platform: [cuda]")
    .replace("capability: absent", 'capability: ["9.0"]')
    .replace(
        "prefill_paths: [{path: mha, reason: The only way.}]",
        "prefill_paths:\n"
        "      - {path: dense_mha, when: {seq_len: {max: {field: index_topk}}}, reason: All.}\n"
        "      - {path: sparse_mqa, reason: The top-k.}",
    )
)


def cuda_cases(text: str) -> tuple[Case, ...]:
    changed = manifest(text=text)
    (entry,) = changed.entries.values()
    return find_cases(changed, entry, Device("cuda", "9.0"), FACTS).cases


def test_mla_is_asked_on_its_latent_and_sparse_with_its_top_k() -> None:
    cases = cuda_cases(SPARSE)
    base, decode = cases[0].batch, next(c.batch for c in cases if c.phase is Phase.DECODE)
    for batch in (base, decode):
        assert (batch.head_size, batch.v_head_size, batch.num_kv_heads) == (576, 512, 1)
        assert (batch.path, batch.topk) == ("sparse_mqa", 64)
    assert max(base.seq_lens) > 64
    shapes = {c.value: (c.batch.mla, c.accepts) for c in cases if c.field == "head_size"}
    assert shapes["512"] == (MlaShape(512, 0, 128, 128), True)
    assert shapes["577"] == (MlaShape(513, 64, 128, 128), False)
    tops = {c.value: c.accepts for c in cases if c.field == "index_topk"}
    assert (tops["1"], tops["2"], tops["2048"]) == (False, True, True)
    assert "0" not in tops
    every = SPARSE.replace("index_topk: {min: 2}", "index_topk: {min: 1}")
    assert "absent" not in {c.value for c in cuda_cases(every) if c.field == "index_topk"}


def test_a_dense_path_is_asked_on_expanded_heads() -> None:
    shorter = SPARSE.replace("index_topk: {min: 2}", "index_topk: {min: 512}")
    (dense,) = [c for c in cuda_cases(shorter) if c.field == "dense_prefill"]
    assert (dense.batch.path, dense.batch.topk) == ("dense_mha", None)
    assert (dense.batch.num_heads, dense.batch.num_kv_heads) == (16, 16)
    assert (dense.batch.head_size, dense.batch.v_head_size) == (192, 128)


def test_a_gpu_goes_further_and_tries_fewer_sizes_that_are_compiled() -> None:
    text = TRUE.replace("platform: [cpu]", "platform: [cuda]").replace(
        "capability: absent", 'capability: ["9.0"]'
    )
    cases = cuda_cases(text.replace("head_size: {min: 1}", "head_size: [64, 128]", 1))
    assert varied(cases, "seq_len")["131,072"]
    assert varied(cases, "head_size") == {
        "63": False,
        "96": False,
        "128": True,
        "129": False,
        "192": False,
        "256": False,
    }


def test_requests_of_several_lengths_are_one_batch() -> None:
    mixed = [c for c in cases_of(manifest()) if c.field == "requests"]
    assert [(c.phase, len(c.batch.query_lens)) for c in mixed] == [
        (Phase.PREFILL, 5),
        (Phase.DECODE, 3),
    ]
    assert (1, 1) in zip(mixed[0].batch.query_lens, mixed[0].batch.seq_lens, strict=True)
    short = manifest("attn_type: any", "attn_type: any\n      seq_len: {min: 2}")
    assert all(1 not in c.batch.seq_lens for c in cases_of(short) if c.field == "requests")


def test_a_feature_that_no_adapter_can_ask_is_left_untested() -> None:
    changed = manifest("non_causal: any", "non_causal: any\n      alibi: any")
    assert "alibi" not in {c.field for c in cases_of(changed)}
    assert {u.why for u in untested_of(changed) if u.field == "alibi"} == {"no adapter can ask it"}


def test_without_a_compiler_what_must_be_compiled_is_skipped(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stub = Stub(lambda *_: None)
    stub.kernel = lambda batch: batch  # type: ignore[attr-defined]
    monkeypatch.setattr(certifying, "load_adapter", lambda _: stub)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))

    def skipped(facts: Facts = FACTS) -> dict[str, str]:
        return find_runs(manifest(), CPU, facts, missing=find_missing_tools(facts)).skipped

    why = "no nvcc and ninja here, and its kernels are compiled on first use"
    assert skipped() == {"torch_sdpa_flash": why}
    assert find_runs(manifest(), CPU, FACTS).skipped == {}  # nothing is to be compiled
    (tmp_path / "bin").mkdir()
    for tool in ("bin/nvcc", "ninja"):
        (tmp_path / tool).write_text("#!/bin/sh\n", "utf-8")
        (tmp_path / tool).chmod(0o700)
    assert skipped() == {}
    monkeypatch.setenv("PATH", "")
    assert skipped()["torch_sdpa_flash"].startswith("no ninja here")
    prebuilt = Facts({**FACTS.values, "flashinfer-jit-cache": "0.7.4"})
    assert skipped(prebuilt) == {}


# -- one case ----------------------------------------------------------------------------------


def case(batch: Batch, accepts: bool, reason: str = "") -> Case:
    claim = Position("m.yaml", 7, 3)
    return Case("stub", Phase.PREFILL, "head_size", "16", claim, accepts, batch, reason)


class Stub:
    """An adapter that does what a test wants."""

    name = "stub"

    def __init__(self, answer: Callable[[Batch, Any, PagedKV], Any]) -> None:
        self.answer = answer

    def tolerance(self, dtype: str) -> float:
        return 1e-3

    def plan(self, batch: Batch, device: str) -> Any:
        self.batch = batch
        return self

    def run(self, q: Any, kv: PagedKV, sinks: Any = None) -> Any:
        return self.answer(self.batch, q, kv)


def fail(error: Exception) -> Callable[..., Any]:
    def answer(*_: Any) -> Any:
        raise error

    return answer


def nearly(factor: float) -> Callable[..., Any]:
    return lambda batch, q, kv: attend(batch, q, kv) * factor


REFUSE = fail(RefusedError("stub: no"))
FAULT = fail(ValueError("illegal\nmemory access"))
FULL = fail(torch.OutOfMemoryError("full"))
NAN = nearly(float("nan"))


@pytest.mark.parametrize(
    ("answer", "accepted", "refused"),
    [
        (nearly(1.0), Judgement.CONFIRMED, Judgement.UNDER_CLAIM),
        (nearly(1.0009), Judgement.CONFIRMED, Judgement.UNDER_CLAIM),
        (nearly(1.002), Judgement.WRONG_RESULT, Judgement.SILENTLY_WRONG),
        (NAN, Judgement.WRONG_RESULT, Judgement.SILENTLY_WRONG),
        (REFUSE, Judgement.OVER_CLAIM, Judgement.CONFIRMED),
        (FAULT, Judgement.FAULT, Judgement.KEPT_OFF),
        (FULL, Judgement.UNJUDGED, Judgement.UNJUDGED),
    ],
)
def test_judgements(
    make_batch: Callable[..., Batch],
    answer: Callable[..., Any],
    accepted: Judgement,
    refused: Judgement,
) -> None:
    batch = make_batch()
    assert run_case(Stub(answer), case(batch, accepts=True)).judgement is accepted
    assert run_case(Stub(answer), case(batch, accepts=False)).judgement is refused


@pytest.mark.parametrize("answer", [nearly(1.0), nearly(1.5), NAN, REFUSE, FAULT, FULL])
@pytest.mark.parametrize("then", [True, False])
@pytest.mark.parametrize(("now", "reason"), [(True, ""), (False, ""), (False, "slow")])
def test_a_recorded_run_says_what_the_same_run_would_say_today(
    make_batch: Callable[..., Batch],
    answer: Callable[..., Any],
    then: bool,
    now: bool,
    reason: str,
) -> None:
    batch, stub = make_batch(), Stub(answer)
    recorded = run_case(stub, case(batch, accepts=then))
    asked = case(batch, accepts=now, reason=reason)
    assert judge_again(asked, recorded, stub.tolerance("")) == run_case(stub, asked)


def test_a_recorded_error_is_held_against_the_tolerance_of_today(
    make_batch: Callable[..., Batch],
) -> None:
    asked = case(make_batch(), accepts=True)
    recorded = run_case(Stub(nearly(1.002)), asked)
    assert recorded.judgement is Judgement.WRONG_RESULT
    again = judge_again(asked, recorded, 3e-3)
    assert (again.judgement, again.tolerance) == (Judgement.CONFIRMED, 3e-3)


def test_a_result_says_how_far_off_it_was_or_why_there_is_none(
    make_batch: Callable[..., Batch],
) -> None:
    batch = make_batch()
    off = run_case(Stub(nearly(1.5)), case(batch, accepts=True))
    assert off.error == pytest.approx(0.5)
    assert (off.tolerance, off.message) == (1e-3, "")
    refused = run_case(Stub(REFUSE), case(batch, accepts=True))
    assert (refused.error, refused.message) == (None, "stub: no")
    fault = run_case(Stub(FAULT), case(batch, accepts=True))
    assert fault.message == "ValueError: illegal"
    nan = run_case(Stub(NAN), case(batch, accepts=True))
    assert (nan.error, nan.message) == (None, "the output is not finite, or misshapen")


def test_declined_needs_a_reason(make_batch: Callable[..., Batch]) -> None:
    result = run_case(Stub(nearly(1.0)), case(make_batch(), accepts=False, reason="slow"))
    assert result.judgement is Judgement.DECLINED


def test_what_has_no_reference_is_not_judged(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch(features=frozenset({"alibi"}))
    result = run_case(Stub(lambda b, q, kv: q), case(batch, accepts=True))
    assert result.judgement is Judgement.UNJUDGED
    assert "alibi" in result.message


def test_an_adapter_sees_the_same_inputs_every_time(make_batch: Callable[..., Batch]) -> None:
    seen: list[Any] = []

    def answer(batch: Batch, q: Any, kv: PagedKV) -> Any:
        seen.append(q)
        return q

    for seed in (0, 0, 1):
        run_case(Stub(answer), case(make_batch(), accepts=True), seed=seed)
    assert torch.equal(seen[0], seen[1])
    assert not torch.equal(seen[0], seen[2])
    assert torch.equal(seen[0], make_inputs(make_batch()).q)


def test_what_nothing_else_stops_is_reported_first_and_does_not_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A kernel that ignores what it cannot do: head sizes above 256, wrong without a word."""

    def answer(batch: Batch, q: Any, kv: PagedKV) -> Any:
        if batch.head_size > 256:
            return attend(batch, q, kv) * 2
        return torch_sdpa.flash.plan(batch, "cpu").run(q, kv)

    stub = Stub(answer)
    stub.tolerance = torch_sdpa.flash.tolerance  # type: ignore[method-assign]
    stub.plan = lambda batch, device: (  # type: ignore[method-assign]
        torch_sdpa.flash.plan(batch, device) and Stub.plan(stub, batch, device)
    )
    monkeypatch.setattr(certifying, "load_adapter", lambda _: stub)
    honest = certified(manifest("head_size: {min: 1}", "head_size: {max: 256}", PREFILL))
    assert honest.passed
    assert told(honest) == [("CERT001", line_of("head_size: {min: 1}"))]
    assert honest.findings()[0].fix == "keep this line: nothing else stops it"
    wrong = certified(manifest("head_size: {min: 1}", "head_size: {max: 512}", PREFILL))
    assert not wrong.passed
    assert [code for code, _ in told(wrong)] == ["CERT001", "CERT002"]


def test_evidence_says_nothing_of_a_machines_folders(make_batch: Callable[..., Batch]) -> None:
    told = "stub: at /opt/u/.cache/90a/decode.cu:7, '/srv/a/b.h' and 3/4 of k/v in https://a.b/c"
    result = run_case(Stub(fail(RefusedError(told))), case(make_batch(), accepts=False))
    certificate = Certificate(
        manifest().ref, CPU, FACTS, "2026-11-20", 0, (result,), untested=(), skipped={}
    )
    (claim,) = certificate.evidence()["claims"]
    assert claim["message"] == told.replace("/opt/u/.cache/90a/", "").replace("/srv/a/", "")
