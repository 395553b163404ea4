"""Keys that replace those of a config: as vLLM does it, and what the reader then says."""

from __future__ import annotations

import json

import pytest

from selector.errors import AttnselError
from selector.models import load_model, presets
from selector.models.merging import merged


class TestMerging:
    def test_keys_are_replaced_and_added(self):
        assert merged({"a": 1, "b": 2}, {"b": 3, "c": None}) == {"a": 1, "b": 3, "c": None}

    def test_a_config_inside_is_merged_at_every_depth(self):
        config = {"text_config": {"a": 1, "rope_scaling": {"factor": 2, "type": "yarn"}}}
        found = merged(config, {"text_config": {"rope_scaling": {"factor": 4}}})
        assert found == {"text_config": {"a": 1, "rope_scaling": {"factor": 4, "type": "yarn"}}}
        assert config["text_config"]["rope_scaling"] == {"factor": 2, "type": "yarn"}

    def test_any_other_object_is_replaced_whole(self):
        config = {"rope_scaling": {"factor": 2, "type": "yarn"}}
        assert merged(config, {"rope_scaling": {"factor": 4}}) == {"rope_scaling": {"factor": 4}}

    @pytest.mark.parametrize("name", presets())
    def test_nothing_changes_nothing(self, name):
        assert load_model(name, {}) == load_model(name)


class TestReading:
    def test_a_preset(self):
        model = load_model(
            "qwen3-8b", {"sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 0}
        )
        assert [g.name for g in model.groups] == ["sliding"]
        assert load_model("qwen3-8b").groups[0].name == "full"

    def test_a_config_inside(self):
        (first, *_) = load_model("gemma-3-27b", {"text_config": {"sliding_window": 77}}).groups
        assert first.layer.get("sliding_window") == 77
        assert first.keys["sliding_window"] == "text_config.sliding_window"

    def test_a_model_of_another_type_or_class(self):
        (sinks, _) = load_model("gpt-oss-20b").groups
        (none, *_) = load_model("gpt-oss-20b", {"model_type": "llama"}).groups
        assert (sinks.layer.get("sink"), none.layer.get("sink")) == (True, False)
        (encoder,) = load_model(
            "llama-3.1-8b", {"architectures": ["LlamaBidirectionalModel"]}
        ).groups
        assert encoder.layer.get("attn_type") == "encoder_only"

    def test_a_file_and_a_folder(self, tmp_path):
        config = {
            "model_type": "llama",
            "num_hidden_layers": 2,
            "num_attention_heads": 8,
            "hidden_size": 512,
        }
        (tmp_path / "config.json").write_text(json.dumps(config))
        for ref in (tmp_path, tmp_path / "config.json"):
            model = load_model(str(ref), {"num_attention_heads": 4})
            assert model.groups[0].layer.get("head_size") == 128

    def test_a_value_that_cannot_be(self):
        with pytest.raises(AttnselError, match="num_attention_heads"):
            load_model("qwen3-8b", {"num_attention_heads": "many"})
