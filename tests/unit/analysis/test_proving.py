"""Verdicts on promises: the same as when every question is asked, and never more than is known."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from selector import Selector
from selector.analysis.gaps import find_gaps
from selector.analysis.proving import (
    LISTED,
    REACHABLE,
    Proof,
    Verdict,
    prove_all,
)
from selector.analysis.routes import suspicions_of
from selector.analysis.space import Space
from selector.analysis.survey import BUDGET
from selector.manifest import Manifest
from selector.rules import Answer

from ...conftest import Build
from .drawing import drawn, tangled
from .reduced import LENGTHS, every_question, reduced

SEEDS = range(10)


def by_name(manifest: Manifest, budget: int = BUDGET) -> dict[str, Proof]:
    return {proof.name: proof for proof in prove_all(manifest, budget)}


def shown(selector: Selector, proof: Proof) -> bool:
    """Whether the definition, asked again, breaks the promise as claimed."""
    assert proof.example is not None
    witness = proof.example.witness
    answer = selector.bind(witness.device, witness.layer, witness.facts).resolve_one(
        witness.request
    )
    assert answer == proof.example.answer
    return any(f'"{proof.name}"' in note for note in answer.notes)


# -- every question asked -------------------------------------------------------------------------


def space_of(manifest: Manifest) -> Space:
    """The space in which promises are proved."""
    found = [list(suspicions_of(manifest, promise)) for promise in manifest.invariants]
    whens = [promise.when for promise in manifest.invariants]
    return Space([manifest], [*whens, *(w for s in found for one in s for w in one.whens)])


@pytest.mark.parametrize("seed", SEEDS)
def test_verdicts_and_counts_are_those_of_asking_every_question(seed: int) -> None:
    selector = reduced(seed)
    manifest = selector.manifest
    proofs = by_name(manifest)
    questions = dict.fromkeys(proofs, 0)
    broken = dict.fromkeys(proofs, 0)
    chosen: set[str | None] = set()
    for times, asked, answers in every_question(selector, space_of(manifest), LENGTHS):
        chosen |= {c for a in answers for c in (a.prefill.backend, a.decode.backend)}
        for promise in manifest.invariants:
            holds = promise.when.answer(asked) is Answer.YES
            notes = [note for answer in answers for note in answer.notes]
            questions[promise.name] += times if holds else 0
            if any(f'"{promise.name}"' in note for note in notes):
                broken[promise.name] += times
    for promise in manifest.invariants:
        proof, number = proofs[promise.name], broken[promise.name]
        assert proof.questions == questions[promise.name]
        assert proof.verdict is (Verdict.REFUTED if number else Verdict.PROVED), proof
        if promise.never_backends:
            assert proof.broken == number
        if number:
            assert shown(selector, proof)
    named = {n for p in manifest.priorities for names in p.orders.values() for n in names}
    assert {h.backend for h in proofs[REACHABLE].hidden} == named - chosen
    assert proofs[LISTED].verdict is Verdict.PROVED


def test_what_was_drawn_has_both_verdicts_on_both_kinds_of_promises() -> None:
    found = {
        (bool(promise.never_paths), proof.verdict)
        for seed in SEEDS
        for manifest in [reduced(seed).manifest]
        for promise, proof in zip(manifest.invariants, prove_all(manifest), strict=False)
    }
    assert found >= {(p, v) for p in (False, True) for v in (Verdict.PROVED, Verdict.REFUTED)}


# -- beyond the budget ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("budget", [0, 12])
def test_beyond_the_budget_nothing_is_proved_that_is_not_so(seed: int, budget: int) -> None:
    selector = reduced(seed)
    exact = by_name(selector.manifest)
    for name, proof in by_name(selector.manifest, budget).items():
        assert proof.verdict in (exact[name].verdict, Verdict.UNDECIDED)
        if not budget and name != REACHABLE and exact[name].questions:
            assert proof.verdict is not Verdict.PROVED
        if proof.drawn:
            assert proof.bound is not None
            assert 0 < proof.bound <= 1
        if proof.verdict is Verdict.REFUTED and proof.position is not None:
            assert shown(selector, proof)


def _looked_at(text: str) -> tuple[bool, int]:
    """Whether every promise of a manifest is decided, and the most memory of this process, KiB."""
    proofs = by_name(Selector.loads(text).manifest)
    decided = all(proof.verdict is not Verdict.UNDECIDED for proof in proofs.values())
    status = Path("/proc/self/status").read_text("ascii")  # rusage remembers who started this one
    return decided, int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_a_large_manifest_is_looked_at_in_memory_that_is_there() -> None:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        decided, most = process.submit(_looked_at, drawn(2, entries=60, constraints=40)).result()
    assert decided
    assert most < 1 << 20


# -- vLLM -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def vllm() -> Selector:
    return Selector.load("vllm-0.33.0")


@pytest.fixture(scope="module")
def proofs(vllm: Selector) -> dict[str, Proof]:
    return by_name(vllm.manifest)


@pytest.fixture(scope="module")
def claims() -> Selector:
    return Selector.load("vllm-0.33.0", as_claimed=True)


@pytest.fixture(scope="module")
def claimed(claims: Selector) -> dict[str, Proof]:
    return by_name(claims.manifest)


TRITON = "no fp8 KV cache with Triton below 8.9"


def test_all_that_vllms_manifest_promises_is_proved(proofs: dict[str, Proof]) -> None:
    assert {proof.verdict for proof in proofs.values()} == {Verdict.PROVED}
    assert all(proof.questions > 10**18 for proof in proofs.values())
    assert not any(proof.broken or proof.drawn or proof.open for proof in list(proofs.values())[:5])
    assert {"no sparse MLA before 9.0, nor on 11.0", TRITON} <= proofs.keys()


def test_a_claim_that_does_not_hold_is_refuted(claims: Selector, claimed: dict[str, Proof]) -> None:
    proof = claimed[TRITON]
    assert proof.verdict is Verdict.REFUTED
    assert 0 < proof.broken < proof.questions
    assert shown(claims, proof)
    assert proof.example is not None
    assert proof.example.answer.prefill.backend == "TRITON_ATTN"
    assert str(proof.example.witness.layer.fields["kv_cache_dtype"]).startswith("fp8")
    assert len(proof.example.witness.layer.fields) <= 5  # no more said than is needed
    entry = claims.manifest.entries["TRITON_ATTN"]
    (rule,) = entry.accepts["kv_cache_dtype"].rules
    assert rule.result.position in {fault.position for fault in proof.faults}


def test_flashinfer_mla_hides_tokenspeed_mla_completely(
    proofs: dict[str, Proof], claimed: dict[str, Proof]
) -> None:
    (hidden,) = [h for h in claimed[REACHABLE].hidden if h.backend == "TOKENSPEED_MLA"]
    assert hidden.rivals.before == {"FLASHINFER_MLA": hidden.rivals.accepted}
    assert hidden.rivals.accepted > 10**15
    assert claimed[REACHABLE].verdict is Verdict.REFUTED
    assert claimed[REACHABLE].broken == 1
    # In truth FLASHINFER_MLA needs FlashInfer, and hides it where that is installed.
    assert "TOKENSPEED_MLA" not in {h.backend for h in proofs[REACHABLE].hidden}


def test_the_question_that_started_the_project() -> None:
    selector = Selector.load()
    found = by_name(selector.manifest)
    assert {proof.verdict for proof in found.values()} == {Verdict.PROVED}
    supposed = Selector(selector.manifest.supposing_dense_prefill())
    proof = by_name(supposed.manifest)["no dense prefill for sparse layers on 12.x"]
    assert proof.verdict is Verdict.REFUTED
    assert shown(supposed, proof)
    assert proof.suspected > 0
    assert proof.example is not None
    assert proof.example.answer.device.capability in ("12.0", "12.1")
    assert proof.example.answer.prefill.path in ("dense_mha", "masked_mha")
    lines = {fault.position.line for fault in proof.faults}
    entry = supposed.manifest.entries["flashinfer_sparse_mla_sm120"]
    assert entry.dense_prefill_at is not None
    assert entry.dense_prefill_at.line in lines


# -- special cases --------------------------------------------------------------------------------


def promises(*, when: dict[str, object] | None = None, **never: object) -> list[dict[str, object]]:
    return [{"name": "it", "when": when or {}, "never": never, "reason": "It hangs."}]


def test_a_device_that_nobody_knows_is_asked_about(build: Build) -> None:
    one = build.entry("one", accepts={"platform": ["cuda"]})
    invariants = promises(when={"capability": ">=13.0"}, backend="any")
    proof = by_name(build.selector(one, invariants=invariants).manifest)["it"]
    assert proof.verdict is Verdict.REFUTED
    assert proof.example is not None
    assert proof.example.witness.device.capability == "13.0"


def test_a_path_that_coerced_values_give_is_found(build: Build) -> None:
    paths = [
        {"path": "mqa", "when": {"kv_cache_dtype": "fp8_e4m3"}, "reason": "So."},
        {"path": "mha", "reason": "Else."},
    ]
    coerce = {"kv_cache_dtype": [{"when": {"kv_cache_dtype": "fp8"}, "value": "fp8_e4m3"}]}
    coerce["kv_cache_dtype"].append({"value": "same"})
    one = build.entry("one", prefill_paths=paths, coerce=coerce)
    invariants = promises(when={"kv_cache_dtype": "fp8"}, path=["mqa"])
    selector = build.selector(one, invariants=invariants)
    assert shown(selector, by_name(selector.manifest)["it"])


def test_what_no_question_shows_and_nothing_proves_is_not_decided(build: Build) -> None:
    paths = [
        {"path": "mqa", "when": {"seq_len": {"max": 10}}, "reason": "So."},
        {"path": "mha", "reason": "Else."},
    ]
    one = build.entry("one", prefill_paths=paths, decode_threshold=50)
    two = build.selector(one, invariants=promises(path=["mqa"]))
    proof = by_name(two.manifest)["it"]
    assert proof.verdict is Verdict.UNDECIDED  # each of those is a decode, which nothing here sees
    assert proof.suspected > 0


def test_a_backend_that_is_said_to_be_hidden_may_be(build: Build) -> None:
    hidden = [build.entry("one"), build.entry("two")]
    bare = by_name(build.selector(*hidden).manifest)[REACHABLE]
    assert bare.verdict is Verdict.REFUTED
    assert bare.broken == 1
    assert {fault.words for fault in bare.faults} == {"this list names two"}
    assert bare.example is not None
    assert bare.example.answer.decode.backend == "one"
    said = by_name(build.selector(*hidden, invariants=promises(backend=["two"])).manifest)
    assert said[REACHABLE].verdict is Verdict.PROVED
    assert [h.said for h in said[REACHABLE].hidden] == [True, True]
    part = promises(when={"head_size": 64}, backend=["two"])
    assert by_name(build.selector(*hidden, invariants=part).manifest)[REACHABLE].broken == 1


def test_a_promise_about_nothing_says_so(build: Build) -> None:
    space = [{"when": {"sink": True}, "require": {"sink": False}, "reason": "None."}]
    invariants = promises(when={"sink": True}, backend="any")
    proof = by_name(build.selector(build.entry(), invariants=invariants, space=space).manifest)[
        "it"
    ]
    assert proof.verdict is Verdict.PROVED
    assert proof.questions == 0


def test_hundreds_of_entries_with_values_derived_from_each_other_end() -> None:
    """What is decided and what was drawn is said, with its bound."""
    manifest = Selector.loads(tangled(entries=120, derived=25)).manifest
    start = time.process_time()
    proofs = by_name(manifest, budget=200_000)
    found = find_gaps(manifest, budget=200_000)
    assert time.process_time() - start < 40  # 9 s on an idle core
    assert found.totals.kinds_drawn
    for proof in proofs.values():
        assert proof.drawn
        assert proof.bound
        assert proof.verdict is not Verdict.PROVED
