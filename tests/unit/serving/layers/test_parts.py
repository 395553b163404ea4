"""The groups of layers that a command makes of a model: overridden, skipped, sized, typed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from selector.devices import find_gpu
from selector.models import load_model
from selector.serving.commands import read_command, split_line
from selector.serving.preflight.answer import Engine, Preflight, preflight
from selector.values import Model

LLAMA = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
LATENT = {
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 3,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}
FLOAT8 = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}


@cache
def engine() -> Engine:
    return Engine.load("vllm-0.33.0")


def ahead(gpu: str, line: str, model: Model | None = None, **more: Any) -> Preflight:
    variables, argv = split_line(line)
    command = read_command(argv, variables)
    used = model or load_model(str(command.model), command.hf_overrides)
    return preflight(command, used, find_gpu(gpu), engine(), **more)


def written(path: Path, config: dict[str, Any]) -> Model:
    file = path / "config.json"
    file.write_text(json.dumps(config))
    return load_model(str(file))


def said(found: Preflight, field: str, part: int = 0) -> tuple[str, str, str]:
    trace = next(t for t in found.parts[part].part.traces if t.field == field)
    return trace.value, trace.kind, trace.where


def groups(found: Preflight) -> list[tuple[str, int, object]]:
    return [
        (f"{p.stack} {p.group.name}", p.group.count, p.group.layer.get("kv_cache_dtype"))
        for p in (one.part for one in found.parts)
    ]


class TestOverrides:
    LINE = "vllm serve qwen3-8b --hf-overrides "

    def test_a_value_says_the_flag_and_its_key(self):
        found = ahead("H200", self.LINE + '\'{"head_dim": 64, "num_attention_heads": 16}\'')
        assert said(found, "head_size") == ("64", "flag", "--hf-overrides.head_dim")
        assert said(found, "num_heads") == ("16", "flag", "--hf-overrides.num_attention_heads")
        where = "--hf-overrides.num_attention_heads, num_key_value_heads"
        assert said(found, "gqa_group") == ("2", "derived", where)
        assert said(found, "dtype")[1:] == ("config", "torch_dtype")

    def test_dotted_keys_and_a_config_inside(self):
        line = "vllm serve gemma-3-27b --hf-overrides.text_config.sliding_window 512"
        where = "--hf-overrides.text_config.sliding_window"
        assert said(ahead("H200", line), "sliding_window") == ("512", "flag", where)

    def test_a_cache_type_of_the_checkpoint(self):
        config = {"quant_method": "modelopt", "kv_cache_quant_algo": "FP8"}
        found = ahead("H200", self.LINE + f"'{json.dumps({'quantization_config': config})}'")
        where = "--hf-overrides.quantization_config.kv_cache_quant_algo"
        assert said(found, "kv_cache_dtype") == ("fp8_e4m3", "flag", where)

    def test_another_type_of_model_is_said(self):
        found = ahead("H200", "vllm serve gpt-oss-20b --hf-overrides.model_type llama")
        assert said(found, "sink")[0] == "false"
        assert [n.text for n in found.notes] == [
            "--hf-overrides: model_type llama replaces that of the config.json"
        ]

    def test_a_drafter_of_the_same_checkpoint_is_built_without_them(self):
        line = "vllm serve deepseek-v3 -tp 8 --spec-method mtp --hf-overrides.kv_lora_rank 256"
        found = ahead("B200", line, draft=load_model("deepseek-v3"))
        assert said(found, "kv_lora_rank")[0] == "256"
        assert said(found, "kv_lora_rank", part=1)[:2] == ("512", "config")


class TestSkippedLayers:
    FP8 = "vllm serve gpt-oss-20b --kv-cache-dtype fp8 --kv-cache-dtype-skip-layers"

    def test_by_number(self):
        found = ahead("H200", f"{self.FP8} 0 1 2")
        assert groups(found) == [
            ("target sliding", 10, "fp8"),
            ("target skipped-sliding", 2, "auto"),
            ("target full", 11, "fp8"),
            ("target skipped-full", 1, "auto"),
        ]
        assert said(found, "kv_cache_dtype", 1) == ("auto", "flag", "--kv-cache-dtype-skip-layers")
        assert said(found, "config_kv_cache_dtype", 1)[0] == "fp8"

    def test_by_kind(self):
        found = ahead("H200", f"{self.FP8} sliding_window")
        assert groups(found) == [("target sliding", 12, "auto"), ("target full", 12, "fp8")]

    def test_they_are_selected_apart(self):
        found = ahead("A100", f"{self.FP8} sliding_window")
        assert [(r.stage, r.group) for r in found.refusals] == [("constructor", "full")]
        named = ahead("A100", f"{self.FP8} {' '.join(map(str, range(24)))}")
        assert named.will_start

    def test_what_names_nothing_is_said(self):
        found = ahead("H200", f"{self.FP8} 24 full 01")
        assert [n.kind for n in found.notes] == ["dead"] * 3
        plain = ahead("H200", "vllm serve qwen3-8b --kv-cache-dtype-skip-layers 1")
        assert ["changes nothing" in n.text for n in plain.notes] == [True]

    def test_a_packed_cache_leaves_out_both_ends(self):
        line = "vllm serve qwen3-8b --kv-cache-dtype turboquant_k8v4"
        found = ahead("H200", line)
        assert groups(found)[1:] == [("target skipped-full", 4, "auto")]
        assert found.parts[1].part.group.numbers == (0, 1, 34, 35)
        assert said(found, "kv_cache_dtype", 1)[1] == "derived"
        pinned = ahead("H200", f"{line} --attention-backend TURBOQUANT")
        assert [(r.stage, r.group) for r in pinned.refusals] == [("selection", "skipped-full")]
        mixed = ahead("H200", line.replace("qwen3-8b", "qwen3-next-80b-a3b"))
        assert len(groups(mixed)) == 1

    @settings(max_examples=20, deadline=None)
    @given(st.sets(st.integers(0, 23)), st.booleans())
    def test_every_layer_is_in_one_part(self, numbers: set[int], sliding: bool):
        named = [*map(str, sorted(numbers)), *(["sliding_window"] if sliding else [])]
        found = ahead("H200", " ".join([self.FP8, *named]) if named else self.FP8.rsplit(" ", 1)[0])
        parts = [one.part.group for one in found.parts]
        assert sorted(n for group in parts for n in group.numbers) == list(range(24))
        assert all(len(group.numbers) == group.count for group in parts)
        kept = {n for g in parts if g.layer.get("kv_cache_dtype") == "auto" for n in g.numbers}
        assert kept == numbers | (set(range(0, 24, 2)) if sliding else set())


class TestParallelSizes:
    @pytest.mark.parametrize(
        ("line", "words"),
        [
            ("deepseek-v3 -tp 8 -dcp 3", "dcp_size 3 does not divide tp_size 8"),
            ("deepseek-v3 -tp 8 -pcp 2 -dcp 4", "it can be 1, 2 or 16"),
            ("llama-3.1-8b -tp 8 -dcp 2", "needs more ranks than the model's 8 KV heads"),
            ("llama-3.1-8b -tp 16 -dcp 4", "more than the 2 ranks"),
            ("qwen2.5-7b -tp 28 -dcp 4", "does not divide the 7 query heads"),
        ],
    )
    def test_what_the_engine_refuses(self, line: str, words: str):
        found = ahead("H200", f"vllm serve {line}")
        (refusal, *_) = [r for r in found.refusals if r.stage == "parallel sizes"]
        assert (refusal.stack, words in refusal.words) == ("target", True)

    @pytest.mark.parametrize(
        "line",
        [
            "deepseek-v3 -tp 8 -dcp 8",
            "llama-3.1-8b -tp 16 -dcp 2",
            "llama-3.1-8b -tp 8 -dcp 1",
            "deepseek-v3 -tp 8 -pcp 2 -dcp 16",
        ],
    )
    def test_what_it_does_not(self, line: str):
        found = ahead("H200", f"vllm serve {line}")
        assert [r for r in found.refusals if r.stage == "parallel sizes"] == []

    def test_mla_that_is_switched_off_has_heads_of_its_own(self):
        found = ahead("H200", "VLLM_MLA_DISABLE=1 vllm serve deepseek-v3 -tp 8 -dcp 2")
        assert [r.stage for r in found.refusals] == ["parallel sizes"]

    def test_sizes_that_are_refused_are_refused_once(self):
        found = ahead("H200", "vllm serve qwen3-8b -tp 3 -dcp 2")
        assert [r.stage for r in found.refusals] == ["parallel sizes"]


class TestElementType:
    @pytest.mark.parametrize(
        ("gpu", "line", "expected"),
        [
            ("H200", "bge-m3", ("float16", "derived")),
            ("H200", "bge-m3 --runner generate", ("bfloat16", "derived")),
            ("H200", "olmo-2-7b", ("bfloat16", "derived")),
            ("H200", "olmo-2-7b --runner pooling", ("float16", "derived")),
            ("H200", "olmo-2-7b --convert embed", ("float16", "derived")),
            ("H200", "olmo-2-7b --dtype float32", ("float32", "flag")),
            ("H200", "qwen3-8b --runner pooling", ("bfloat16", "config")),
            ("T4", "qwen3-8b", ("float16", "derived")),
            ("T4", "gemma-3-12b", ("float32", "derived")),
        ],
    )
    def test_what_auto_comes_to(self, gpu: str, line: str, expected: tuple[str, str]):
        assert said(ahead(gpu, f"vllm serve {line}"), "dtype")[:2] == expected

    @pytest.mark.parametrize(
        ("gpu", "line"),
        [("T4", "qwen3-8b --dtype bfloat16"), ("H200", "gemma-3-12b --dtype half")],
    )
    def test_what_is_refused(self, gpu: str, line: str):
        found = ahead(gpu, f"vllm serve {line}")
        assert [r.stage for r in found.refusals] == ["command"]
        assert found.mended is not None
        assert "--dtype" not in found.mended.command.argv

    def test_a_drafter_computes_in_the_type_of_its_target(self):
        line = "vllm serve qwen3-8b --speculative-config.model d --speculative-config.method eagle"
        found = ahead("H200", line, draft=load_model("olmo-2-7b"))
        assert said(found, "dtype", part=1) == ("bfloat16", "derived", "that of the target")


class TestScheme:
    """vLLM 0.33.0: ``Attention`` reads the scheme of compressed-tensors, ``MLAAttention`` not."""

    def test_it_means_fp8(self, tmp_path: Path):
        config = {"quant_method": "compressed-tensors", "kv_cache_scheme": FLOAT8}
        model = written(tmp_path, {**LLAMA, "quantization_config": config})
        where = "quantization_config.kv_cache_scheme"
        for line in ("vllm serve m", "vllm serve m --kv-cache-dtype auto -q compressed-tensors"):
            found = ahead("H200", line, model)
            assert said(found, "kv_cache_dtype") == ("fp8", "checkpoint", where)
            assert found.notes == ()

    def test_mla_layers_do_not_read_it(self, tmp_path: Path):
        config = {"quant_method": "compressed-tensors", "kv_cache_scheme": FLOAT8}
        model = written(tmp_path, {**LATENT, "quantization_config": config})
        found = ahead("H200", "vllm serve m", model)
        assert said(found, "kv_cache_dtype") == ("auto", "default", "")
        assert ["MLA layers do not read" in n.text for n in found.notes] == [True]
        plain = ahead("H200", "VLLM_MLA_DISABLE=1 vllm serve m", model)
        assert said(plain, "kv_cache_dtype")[0] == "fp8"

    def test_that_of_modelopt_is_the_type_of_the_run(self, tmp_path: Path):
        config = {"quant_method": "modelopt", "kv_cache_scheme": FLOAT8}
        for base in (LLAMA, LATENT):
            model = written(tmp_path, {**base, "quantization_config": config})
            found = ahead("H200", "vllm serve m", model)
            assert said(found, "kv_cache_dtype")[:2] == ("fp8_e4m3", "checkpoint")

    def test_what_modelopt_knows_and_the_engine_does_not_changes_nothing(self, tmp_path: Path):
        config = {"quant_method": "modelopt", "kv_cache_quant_algo": "INT8"}
        model = written(tmp_path, {**LLAMA, "quantization_config": config})
        found = ahead("H200", "vllm serve m", model)
        assert found.will_start
        assert said(found, "kv_cache_dtype") == ("auto", "default", "")
        assert ["kv_cache_quant_algo int8 is not read" in n.text for n in found.notes] == [True]


class TestUnreadDrafter:
    LINE = "vllm serve qwen3-8b --speculative-config.model d --speculative-config.method eagle"

    def test_the_reason_is_said(self):
        found = ahead("H200", self.LINE, no_draft="no folder d; give its config")
        (note,) = found.notes
        assert note.kind == "unmodelled"
        assert note.text.endswith("its layers: no folder d; give its config")
