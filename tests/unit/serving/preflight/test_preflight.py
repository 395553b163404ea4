"""Preflight: what is selected, what refuses, and a change that is read again and starts."""

from __future__ import annotations

import random
from functools import cache
from types import SimpleNamespace

import pytest

from selector.devices import find_device, find_gpu
from selector.errors import AttnselError
from selector.models import load_model
from selector.serving.commands import Command, read_command, split_line
from selector.serving.preflight.answer import Engine, Preflight, preflight
from selector.serving.preflight.mending import amend, command_line
from selector.values import Phase

cached_model = cache(load_model)


@cache
def engine() -> Engine:
    return Engine.load("vllm-0.33.0")


def read(line: str) -> Command:
    variables, argv = split_line(line)
    return read_command(argv, variables)


def ahead(gpu: str, line: str, draft: str = "") -> Preflight:
    command = read(line)
    device = find_device(gpu) if gpu[0].isdigit() else find_gpu(gpu)
    model = cached_model(str(command.model))
    return preflight(command, model, device, engine(), cached_model(draft) if draft else None)


def selected(found: Preflight) -> dict[str, tuple[str | None, str | None]]:
    return {
        f"{one.part.stack} {one.part.group.name}": (
            one.claimed.prefill.backend,
            one.claimed.decode.backend,
        )
        for one in found.parts
        if one.claimed is not None
    }


def changes(found: Preflight) -> list[tuple[str, str | None, str | None]]:
    assert found.mended is not None
    return [(one.flag, one.before, one.after) for one in found.mended.amendments]


def origin(found: Preflight, field: str, part: int = 0) -> tuple[str, str, str]:
    trace = next(t for t in found.parts[part].part.traces if t.field == field)
    return trace.value, trace.kind, trace.where


class TestSelection:
    def test_sparse_mla_on_sm120(self):
        found = ahead("RTX PRO 6000", "vllm serve glm-5.2-fp8 --tensor-parallel-size 8")
        assert found.will_start
        name = "FLASHINFER_MLA_SPARSE_SM120"
        assert selected(found) == {"target sparse": (name, name)}
        assert found.assumed == ("has_flashinfer_sm120_sparse",)
        assert found.mended is None
        assert found.line == "vllm serve glm-5.2-fp8 --tensor-parallel-size 8"

    def test_dense_mla_has_a_prefill_backend_of_its_own(self):
        found = ahead("H200", "vllm serve deepseek-v3 -tp 8")
        assert selected(found) == {"target mla": ("FLASH_ATTN_MLA_PREFILL", "FLASH_ATTN_MLA")}

    def test_facts_are_those_of_an_ordinary_installation(self):
        assert set(engine().facts.values) == engine().truth.manifest.standard
        assert all(engine().facts.values.values())

    def test_encoders_and_cross_attention(self):
        found = ahead("H200", "vllm serve whisper-large-v3 --attention-backend FLASH_ATTN")
        assert set(selected(found)) == {"target encoder", "target full", "target cross"}
        pins = {one.part.group.name: len(one.part.pins) for one in found.parts}
        assert pins == {"encoder": 0, "full": 1, "cross": 1}

    def test_towers_are_named_and_not_selected(self):
        found = ahead("H200", "vllm serve gemma-3-27b --mm-encoder-attn-backend TORCH_SDPA")
        tower = found.parts[-1]
        assert (tower.part.stack, tower.claimed) == ("tower", None)
        assert "no manifest" in tower.part.unmodelled
        assert [pin.backend for pin in tower.part.pins] == ["TORCH_SDPA"]
        assert found.will_start

    def test_text_only_has_no_tower_and_encoders_only_no_decoder(self):
        text = ahead("H200", "vllm serve gemma-3-27b --language-model-only")
        assert {one.part.stack for one in text.parts} == {"target"}
        towers = ahead("H200", "vllm serve gemma-3-27b --mm-encoder-only")
        assert {one.part.stack for one in towers.parts} == {"tower"}


class TestOrigins:
    def test_flags_variables_config_checkpoint_defaults_and_derived(self):
        line = "VLLM_BATCH_INVARIANT=1 vllm serve qwen3-8b -tp 2 --block-size=16"
        found = ahead("H200", line)
        assert origin(found, "batch_invariant") == ("true", "variable", "VLLM_BATCH_INVARIANT")
        assert origin(found, "tp_size") == ("2", "flag", "-tp")
        assert origin(found, "block_size") == ("16", "flag", "--block-size")
        assert origin(found, "head_size") == ("128", "config", "head_dim")
        assert origin(found, "num_heads")[:2] == ("16", "derived")
        assert origin(found, "kv_cache_dtype")[:2] == ("auto", "default")

    def test_auto_keeps_what_the_checkpoint_says_and_a_flag_replaces_it(self, tmp_path):
        import json

        config = {
            "model_type": "llama",
            "hidden_size": 4096,
            "num_hidden_layers": 2,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "torch_dtype": "bfloat16",
            "quantization_config": {
                "quant_method": "compressed-tensors",
                "kv_cache_scheme": {"num_bits": 8, "type": "float", "strategy": "tensor"},
            },
        }
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        model = load_model(str(path))
        device = find_gpu("H200")
        kept = preflight(read("vllm serve m --kv-cache-dtype auto"), model, device, engine())
        value, kind, _ = origin(kept, "kv_cache_dtype")
        assert value.startswith("fp8")
        assert kind == "checkpoint"
        assert kept.notes == ()
        said = preflight(read("vllm serve m --kv-cache-dtype bfloat16"), model, device, engine())
        assert origin(said, "kv_cache_dtype") == ("bfloat16", "flag", "--kv-cache-dtype")
        assert [(n.kind, value in n.text) for n in said.notes] == [("overridden", True)]
        # auto would keep what the older GPU refuses: another type must be said
        dies = preflight(read("vllm serve m"), model, find_gpu("A100"), engine())
        if not dies.will_start:
            assert dies.mended is not None
            assert dies.mended.amendments[0].after not in (None, "auto")


class TestRefusals:
    def test_fp8_cache_on_ampere_dies_in_the_constructor(self):
        found = ahead("A100", "vllm serve gpt-oss-120b --kv-cache-dtype fp8")
        assert [(r.stage, r.group, r.backend) for r in found.refusals] == [
            ("constructor", "sliding", "TRITON_ATTN"),
            ("constructor", "full", "TRITON_ATTN"),
        ]
        (rejection,) = found.refusals[0].candidates[0].rejections
        assert (rejection.field, rejection.observed) == ("kv_cache_dtype", "fp8")
        assert "auto" in str(rejection.allowed)
        assert changes(found) == [("--kv-cache-dtype", "fp8", "auto")]

    def test_bfloat16_cache_on_turing(self):
        found = ahead("T4", "vllm serve qwen3-8b --kv-cache-dtype bfloat16")
        assert {r.stage for r in found.refusals} == {"constructor"}
        assert changes(found) == [("--kv-cache-dtype", "bfloat16", "auto")]

    def test_heads_that_cannot_be_dealt_out(self):
        found = ahead("H200", "vllm serve gpt-oss-120b -tp 3")
        assert [r.stage for r in found.refusals] == ["parallel sizes"]
        assert "64 query heads cannot be divided" in found.refusals[0].words
        assert changes(found) == [("-tp", "3", "2")]
        assert selected(found)["target full"] == ("FLASH_ATTN", "FLASH_ATTN")

    def test_what_both_stacks_refuse_is_said_once(self):
        line = "vllm serve deepseek-v3 -tp 3 --spec-method mtp --spec-tokens 1"
        assert [r.stage for r in ahead("H200", line).refusals] == ["parallel sizes"]

    def test_a_pinned_mla_backend_on_other_layers(self):
        found = ahead("H200", "vllm serve qwen3-8b --attention-backend FLASHMLA")
        (refusal,) = found.refusals
        assert (refusal.stage, refusal.pin) == ("selection", "--attention-backend")
        assert refusal.candidates[0].rejections[0].field == "mla"
        assert changes(found) == [("--attention-backend", "FLASHMLA", None)]
        assert found.line == "vllm serve qwen3-8b"

    def test_a_backend_that_is_none(self):
        found = ahead("H200", "vllm serve qwen3-8b --attention-backend FLASH_ATTNN")
        assert [r.stage for r in found.refusals] == ["command"]
        assert "did you mean FLASH_ATTN?" in found.refusals[0].words
        prefill = ahead("H200", "vllm serve deepseek-v3 --attention-backend FLASH_ATTN_MLA_PREFILL")
        assert "is no attention backend" in prefill.refusals[0].words

    def test_a_pinned_mla_prefill_backend(self):
        line = "vllm serve deepseek-v3 -tp 8 -ac.mla_prefill_backend TRTLLM_RAGGED"
        found = ahead("H200", line)
        (refusal,) = found.refusals
        assert (refusal.stage, refusal.phases) == ("mla prefill", (Phase.PREFILL,))
        assert changes(found) == [("-ac.mla_prefill_backend", "TRTLLM_RAGGED", None)]
        assert ahead("B200", line).will_start

    def test_a_backend_for_one_kind(self):
        line = "vllm serve gpt-oss-120b -tp 2 -ac.backend_per_kind.{} {}"
        found = ahead("H200", line.format("sliding_window", "TRITON_ATTN"))
        assert selected(found)["target sliding"] == ("TRITON_ATTN", "TRITON_ATTN")
        assert selected(found)["target full"] == ("FLASH_ATTN", "FLASH_ATTN")
        odd = ahead("H200", line.format("mamba", "TRITON_ATTN"))
        assert any("never looked up" in note.text for note in odd.notes)

    def test_what_excludes_each_other(self):
        line = "vllm serve qwen3-8b --attention-backend FLASHINFER -ac.backend FLASH_ATTN"
        found = ahead("H200", line)
        assert [r.stage for r in found.refusals] == ["command"]
        assert found.line == "vllm serve qwen3-8b --attention-backend FLASHINFER"

    def test_keys_of_older_versions_are_taken_out(self):
        for flag in ("-ac.use_cudnn_prefill true", "-ac '{\"use_cudnn_prefill\": true}'"):
            found = ahead("H200", f"vllm serve qwen3-8b {flag} -tp 2")
            assert [r.stage for r in found.refusals] == ["command"]
            assert found.line == "vllm serve qwen3-8b -tp 2"

    def test_a_key_is_taken_out_behind_what_it_replaces(self):
        line = "vllm serve qwen3-8b --attention-config 0 --attention-config '{\"a\": 1}'"
        found = ahead("H200", line)
        assert {r.stage for r in found.refusals} == {"command"}

    def test_a_variable_that_refuses_is_set_to_zero(self):
        line = "VLLM_BATCH_INVARIANT=1 vllm serve deepseek-v3 -tp 8 --attention-backend FLASHMLA"
        found = ahead("H200", line)
        assert found.refusals[0].stage == "selection"
        assert found.mended is not None
        assert preflight(found.mended.command, found.model, found.device, engine()).will_start

    def test_a_switch_that_does_not_fit_the_model_is_named_and_left_out(self):
        found = ahead("H200", "VLLM_MLA_DISABLE=1 vllm serve deepseek-v3.2 -tp 8")
        assert found.will_start
        assert [note.kind for note in found.notes] == ["unmodelled"]
        assert "their indexer works on the latent" in found.notes[0].text
        assert origin(found, "tp_size")[0] == "8"

    @pytest.mark.parametrize("start", ["VLLM_MLA_DISABLE=1", "env A=b VLLM_MLA_DISABLE=1"])
    def test_a_variable_is_undone_where_it_stands(self, start: str):
        line = f"{start} vllm serve m"
        command, change = amend(read(line), "mla", None)
        assert command.setting("mla") is None
        assert command_line(command) == line.replace("=1", "=0")
        assert (change.flag, change.before, change.after) == ("VLLM_MLA_DISABLE", "false", "0")

    def test_where_nothing_helps_it_says_where_it_runs(self):
        found = ahead("A100", "vllm serve deepseek-v3.2 -tp 8")
        assert {r.stage for r in found.refusals} == {"selection"}
        assert found.mended is None
        assert "9.0" in found.elsewhere
        assert "8.0" not in found.elsewhere


class TestNotes:
    def test_a_dead_variable_names_what_replaced_it(self):
        found = ahead("H200", "VLLM_ATTENTION_BACKEND=X vllm serve qwen3-8b --disable-cascade-attn")
        assert found.will_start
        dead = {note.flag: note.text for note in found.notes if note.kind == "dead"}
        assert "use --attention-backend" in dead["VLLM_ATTENTION_BACKEND"]
        assert "--disable-cascade-attn" in dead

    def test_a_strict_command_refuses_it(self):
        line = "VLLM_ATTENTION_BACKEND=X vllm serve qwen3-8b --fail-on-environ-validation"
        found = ahead("H200", line)
        assert [r.stage for r in found.refusals] == ["command"]
        assert changes(found) == [("--fail-on-environ-validation", "true", None)]

    @pytest.mark.parametrize("flag", ["--model-impl transformers", "--dcp-comm-backend a2a"])
    def test_what_is_not_modelled_is_named(self, flag: str):
        found = ahead("H200", f"vllm serve qwen3-8b {flag}")
        assert "unmodelled" in [note.kind for note in found.notes]

    @pytest.mark.parametrize(
        "flag",
        [
            "--runner pooling",
            "--convert embed",
            "--quantization fp8",
            "--hf-overrides '{\"a\": 1}'",
            "-dcp 2 -tp 16",
            "-dp 4 -pp 2 -ep",
        ],
    )
    def test_what_is_decided_or_changes_no_layer_is_silent(self, flag: str):
        found = ahead("H200", f"vllm serve qwen3-8b {flag}")
        assert (found.will_start, found.notes) == (True, ())


class TestDrafters:
    MTP = "vllm serve deepseek-v3 -tp 8 --spec-method mtp --spec-tokens 1"

    def test_mtp_has_the_layers_of_its_target(self):
        found = ahead("H200", self.MTP)
        names = [(o.part.stack, o.part.group.name, o.part.group.count) for o in found.parts]
        assert names == [("target", "mla", 61), ("drafter", "mla", 1)]

    def test_the_backend_of_the_target_does_not_reach_it(self):
        found = ahead("H200", f"{self.MTP} --attention-backend FLASHMLA")
        assert selected(found)["target mla"][1] == "FLASHMLA"
        assert selected(found)["drafter mla"][1] == "FLASH_ATTN_MLA"
        assert any("does not reach the drafter" in note.text for note in found.notes)

    def test_its_own_backend_and_cache(self):
        line = (
            f"{self.MTP} -sc.attention_backend TRITON_MLA -sc.kv_cache_dtype bfloat16 "
            "--kv-cache-dtype fp8"
        )
        found = ahead("H200", line)
        assert selected(found)["drafter mla"][1] == "TRITON_MLA"
        assert origin(found, "kv_cache_dtype", 1)[0] == "bfloat16"
        assert origin(found, "kv_cache_dtype", 0)[0] == "fp8"

    def test_a_draft_model_is_another_stack(self):
        line = (
            "vllm serve deepseek-v3 -tp 8 --spec-model draft --spec-tokens 2 "
            "--attention-backend FLASHMLA"
        )
        found = ahead("H200", line, draft="llama-3.1-8b")
        assert selected(found)["drafter full"] == ("FLASH_ATTN", "FLASH_ATTN")
        assert any("FLASHMLA serves MLA only" in note.text for note in found.notes)
        unread = ahead("H200", line)
        assert any("draft is not read" in note.text for note in unread.notes)

    def test_it_inherits_the_packed_cache_that_the_backend_of_the_target_made(self):
        line = "vllm serve glm-5.2-fp8 -tp 8 --kv-cache-dtype fp8 --spec-model d --spec-tokens 2"
        found = ahead("H200", line, draft="llama-3.1-8b")
        assert [(r.stage, r.stack) for r in found.refusals] == [("selection", "drafter")]
        value, kind, where = origin(found, "kv_cache_dtype", 1)
        assert (value, kind) == ("fp8_ds_mla", "coercion")
        assert where.endswith(" of the target")
        assert changes(found) == [("--speculative-config.kv_cache_dtype", None, "auto")]
        again = ahead("H200", found.line, draft="llama-3.1-8b")
        assert again.will_start
        assert selected(again)["drafter full"] == ("FLASH_ATTN", "FLASH_ATTN")
        shared = ahead("RTX PRO 6000", "vllm serve glm-5.2-fp8 -tp 8 --spec-method mtp")
        assert shared.will_start

    def test_some_have_no_layers(self):
        found = ahead("H200", "vllm serve qwen3-8b --spec-method ngram --spec-tokens 2")
        assert [one.part.stack for one in found.parts] == ["target"]

    def test_a_refused_drafter_is_mended_alone(self):
        found = ahead("H200", f"{self.MTP} -sc.attention_backend FLASH_ATTN")
        assert [r.stack for r in found.refusals] == ["drafter"]
        assert changes(found) == [("-sc.attention_backend", "FLASH_ATTN", None)]


DYING = [
    ("A100", "vllm serve gpt-oss-120b --kv-cache-dtype fp8 --attention-backend TRITON_ATTN"),
    ("A100", "vllm serve gemma-3-27b -tp 3 --kv-cache-dtype fp8_e5m2"),
    ("T4", "vllm serve deepseek-v3 -tp 8 --kv-cache-dtype bfloat16"),
    ("B200", "vllm serve llama-3.1-8b --block-size 7"),
    ("H200", "vllm serve gemma-3-27b -ac.backend_per_kind.sliding_window FLEX_ATTENTION "
     "--kv-cache-dtype fp8"),
    ("H200", "env VLLM_BATCH_INVARIANT=1 vllm serve deepseek-v3 -tp 8 -ac.backend FLASHMLA"),
    ("RTX PRO 6000", "vllm serve glm-5.2-fp8 -tp 8 --attention-backend FLASHMLA_SPARSE"),
    ("RTX PRO 6000", "docker run -e A=b vllm/vllm-openai --model qwen3-8b -tp 5"),
]  # fmt: skip


@pytest.mark.parametrize(("gpu", "line"), DYING)
def test_the_mended_line_is_read_again_and_starts(gpu: str, line: str):
    found = ahead(gpu, line)
    assert not found.will_start
    assert found.mended is not None
    again = ahead(gpu, found.line)
    assert again.will_start
    assert again.line == found.line
    assert again.command.model == found.command.model


WORDS = [
    "vllm", "serve", "llama-3.1-8b", "--", "-tp", "8", "3", "0", "--kv-cache-dtype", "fp8", "auto",
    "--kv-cache-dtype=nvfp4", "--attention-backend", "FLASHMLA", "FLASH_ATTN", "-ac.backend",
    "--attention-config", '{"backend": "TRITON_ATTN"}', "{", "--speculative-config",
    '{"method": "mtp"}', '{"model": "x", "method": 3}', "-dcp", "2", "--block-size", "64",
    "--dtype", "half", "float32", "-ac.nonsense", "--hf-overrides", '{"a": {"b": 1}}', "-pp",
    "--runner", "pooling", "-ac.mla_prefill_backend", "--kv-transfer-config", "{}", "\x00", "é",
    "-ac.backend_per_kind.full_attention", "--disable-sliding-window", "-sc.attention_backend",
    "--fail-on-environ-validation", "VLLM_USE_V1=1", "VLLM_MLA_DISABLE=1", "-", "",
]  # fmt: skip


def test_any_command_line_has_an_answer_or_a_one_line_error():
    dice = random.Random(5)
    target = SimpleNamespace(model=cached_model("llama-3.1-8b"), device=find_gpu("A100"))
    answered = 0
    for turn in range(300):
        words = dice.choices(WORDS, k=dice.randrange(1, 9))
        if turn % 3:
            words = ["vllm", "serve", "m", *words]
        variables = {"VLLM_BATCH_INVARIANT": "1"} if turn % 7 == 0 else {}
        said = ""
        try:
            command = read_command(words, variables)
            preflight(command, target.model, target.device, engine())
            answered += 1
        except AttnselError as error:
            said = str(error)
        assert "\n" not in said
    assert answered > 40
