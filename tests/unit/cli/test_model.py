from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from selector.models import presets
from selector.schema import load_schema

from .conftest import Run

LLAMA = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
VALID = Draft202012Validator(load_schema("model"))


def rows(text: str) -> dict[str, list[str]]:
    """First word of an indented line → the rest."""
    lines = [line.split() for line in text.splitlines() if line.startswith("  ")]
    return {line[0]: line[1:] for line in lines}


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch):
    def give(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8"))

    return give


class TestShown:
    def test_layers_values_and_keys(self, run: Run) -> None:
        ran = run("model", "gemma-3-27b")
        assert ran.code == 0
        first = ran.out.splitlines()[0]
        assert first.startswith("gemma-3-27b · gemma3 · 62 attention layers · https://")
        said = rows(ran.out)
        assert said["head_size"] == ["128", "text_config.head_dim"]
        assert said["num_heads"] == ["32", "text_config.num_attention_heads"]
        assert said["gqa_group"][:2] == ["2", "from"]
        assert said["vision"][-2:] == ["vision_config", "(siglip_vision_model)"]
        assert "\n52 sliding layers " in ran.out
        assert "\n10 full layers   as the sliding ones, but\n  sliding_window   unset\n" in ran.out

    def test_class_defaults_have_their_source(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "config.json"
        file.write_text(json.dumps({"model_type": "gemma3_text", "torch_dtype": "bfloat16"}))
        ran = run("model", file)
        assert "gemma3_text's class default of head_dim" in ran.out
        assert "class defaults hold (transformers 5.20.2): " in ran.out

    def test_drafters_and_layers_without_attention(self, run: Run, tmp_path: Path) -> None:
        config = {**LLAMA, "layer_types": ["mamba", "attention"], "num_nextn_predict_layers": 1}
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        ran = run("model", tmp_path)
        assert "1 layer without attention" in ran.out
        assert rows(ran.out)["drafter"] == [
            "1",
            "layer",
            "like",
            "the",
            "full",
            "ones",
            "num_nextn_predict_layers",
        ]

    def test_a_tower_that_is_not_read_says_why(self, run: Run, tmp_path: Path) -> None:
        config = {"text_config": LLAMA, "vision_config": {"model_type": "new"}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        ran = run("model", tmp_path)
        assert rows(ran.out)["vision"][:6] == [
            "not",
            "read:",
            "no",
            "attention",
            "fields",
            "vision_config",
        ]

    def test_unknown_types_are_read_by_field_names(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps({**LLAMA, "model_type": "brand_new"}))
        ran = run("model", tmp_path)
        assert ran.code == 0
        assert 'model_type "brand_new" is not known: read by field names' in ran.out

    def test_quantisation_beside_is_named(self, run: Run, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps(LLAMA))
        quantised = {"quantization": {"kv_cache_quant_algo": "FP8"}}
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(quantised))
        out = run("model", tmp_path).out
        key = "hf_quant_config.json.quantization.kv_cache_quant_algo"
        assert rows(out)["kv_cache_dtype"] == ["fp8_e4m3", "checkpoint", "quantisation:", key]

    def test_standard_input(self, run: Run, stdin) -> None:
        stdin(json.dumps(LLAMA).encode())
        ran = run("model", "-")
        assert ran.code == 0
        assert ran.out.startswith("stdin · llama · 2 attention layers")

    def test_nothing_heavy_is_imported(self) -> None:
        script = (
            "import sys; from cli.main import main; main(['model', 'gpt-oss-20b']); "
            "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
        )
        subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)


class TestJson:
    @pytest.mark.parametrize("name", presets())
    def test_valid_against_the_schema(self, run: Run, name: str) -> None:
        found = run("model", name, "--format", "json").json
        VALID.validate(found)
        assert found["name"] == name
        assert found["source"].startswith("https://")

    def test_origins_and_keys(self, run: Run) -> None:
        found = run("model", "glm-5.2-fp8", "--set", "tp=8,block_size=64", "--format", "json").json
        VALID.validate(found)
        (group,) = found["layers"]
        assert (group["name"], group["count"]) == ("sparse", 78)
        assert group["layer"]["num_heads"] == 8
        assert group["origins"]["block_size"] == "flag"
        assert group["origins"]["head_size"] == "derived"
        assert group["keys"]["head_size"] == "kv_lora_rank, qk_rope_head_dim"
        assert found["drafters"] == [
            {"key": "num_nextn_predict_layers", "count": 1, "like": "sparse"}
        ]

    def test_towers(self, run: Run) -> None:
        found = run("model", "gemma-3-27b", "--format", "json").json
        (tower,) = found["towers"]
        assert tower["kind"] == "vision"
        assert tower["layers"][0]["count"] == 27
        assert sum(group["count"] for group in found["layers"]) == 62


class TestList:
    def test_every_preset_with_its_page(self, run: Run) -> None:
        out = run("model", "--list").out.splitlines()
        assert [line.split()[0] for line in out] == ["preset", *presets()]
        assert out[0].endswith("page, after https://huggingface.co/")
        assert all("/" in line.split()[-1] for line in out[1:])
        assert max(map(len, out)) <= 110

    def test_some(self, run: Run) -> None:
        out = run("model", "gpt-oss", "--list").out
        assert [line.split()[0] for line in out.splitlines()[1:]] == ["gpt-oss-120b", "gpt-oss-20b"]

    def test_json(self, run: Run) -> None:
        found = run("model", "--list", "--format", "json").json
        VALID.validate(found)
        assert [one["name"] for one in found["presets"]] == list(presets())


class TestRanks:
    def test_heads_of_one_rank(self, run: Run) -> None:
        out = run("model", "gemma-3-27b", "--set", "tp=4").out
        assert "one of 4 tensor-parallel ranks" in out
        assert rows(out)["num_heads"][0] == "8"
        assert rows(out)["num_kv_heads"][0] == "4"

    def test_kv_heads_held_twice(self, run: Run) -> None:
        out = run("model", "qwen3-8b", "--set", "tp=16").out
        assert "full layers: each of 8 KV heads is on 2 ranks" in out
        assert rows(out)["num_kv_heads"][0] == "1"

    def test_heads_that_do_not_divide(self, run: Run) -> None:
        ran = run("model", "gpt-oss-20b", "--set", "tp=12")
        assert ran.code == 2
        assert "64 query heads cannot be divided over tensor parallel size 12" in ran.complaint
        assert "nearest that fits: 8" in ran.complaint


class TestSettings:
    def test_their_origin_is_the_flag(self, run: Run) -> None:
        said = rows(run("model", "deepseek-v3", "--set", "kv_cache_dtype=fp8").out)
        assert said["kv_cache_dtype"] == ["fp8", "--set", "kv_cache_dtype"]

    def test_what_follows_names_them(self, run: Run) -> None:
        said = rows(run("model", "qwen3-8b", "--set", "head_size=64").out)
        assert said["v_head_size"] == ["64", "from", "--set", "head_size"]

    def test_a_feature_that_some_layers_lose(self, run: Run) -> None:
        out = run("model", "gpt-oss-20b", "--set", "sliding_window=64").out
        assert "24 sliding layers" in out


class TestComplaints:
    def test_no_model(self, run: Run) -> None:
        ran = run("model")
        assert ran.code == 2
        assert ran.complaint.startswith("say which model: ")

    def test_fields_looked_for(self, run: Run, stdin) -> None:
        stdin(b'{"model_type": "brand_new"}')
        ran = run("model", "-")
        assert ran.code == 2
        assert ran.complaint.startswith(
            "stdin: no attention fields: looked for num_hidden_layers, "
        )
        assert "num_attention_heads" in ran.complaint

    @pytest.mark.parametrize("data", [b"", b"[1]", b"{", b"\xff", b"null"])
    def test_input_that_is_no_config(self, run: Run, stdin, data: bytes) -> None:
        stdin(data)
        ran = run("model", "-")
        assert ran.code == 2
        assert ran.complaint.startswith("stdin: ") or ran.complaint.startswith("stdin:1:")

    @pytest.mark.parametrize(
        ("model", "setting", "words"),
        [
            ("qwen3-8b", "num_kv_heads=5", "num_heads 32 is not a multiple of num_kv_heads 5"),
            ("qwen3-8b", "mla=true", "mla true needs kv_lora_rank and qk_rope_head_dim"),
            ("deepseek-v3", "head_size=128", "head_size 128 is not kv_lora_rank 512 + "),
            ("glm-5.2-fp8", "mla=false", "set sparse=false"),
            ("qwen3-8b", "torch=2.9", "is"),
            ("qwen3-8b", "seq_len=4", "seq_len is no field of a layer"),
            ("qwen3-8b", "nonsense=4", "nonsense"),
        ],
    )
    def test_settings_that_cannot_be(self, run: Run, model: str, setting: str, words: str) -> None:
        ran = run("model", model, "--set", setting)
        assert ran.code == 2
        assert words in ran.complaint

    def test_an_adapter_alone(self, run: Run, tmp_path: Path) -> None:
        file = tmp_path / "adapter_config.json"
        file.write_text('{"base_model_name_or_path": "Qwen/Qwen3-8B"}')
        assert run("model", tmp_path).complaint.endswith(
            'it holds an adapter; give the model it is for, "Qwen/Qwen3-8B"'
        )


class TestSchema:
    def test_the_layer_is_that_of_its_own_schema(self) -> None:
        alone = load_schema("layer")
        inside = load_schema("model")["$defs"]["layer"]
        assert inside == {k: v for k, v in alone.items() if k not in ("$schema", "$id")}

    def test_definitions_are_closed_and_described(self) -> None:
        schema = load_schema("model")
        Draft202012Validator.check_schema(schema)
        for name in ("model", "group", "tower", "drafter", "presets", "preset"):
            stated = schema["$defs"][name]
            assert stated["additionalProperties"] is False
            assert set(stated["required"]) == set(stated["properties"])
            assert all(field["description"] for field in stated["properties"].values())
