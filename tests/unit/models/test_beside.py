"""Towers and drafters: shown, never counted."""

import pytest

from selector.models import load_model, read_config, shard
from selector.values import Drafter

TEXT = {"num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4}
SIGLIP = {
    "model_type": "siglip_vision_model",
    "hidden_size": 1152,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
}


def composite(**towers: object):
    return read_config({"model_type": "llava", "text_config": TEXT, **towers})


class TestTowers:
    def test_read_with_the_rules_of_any_stack(self):
        model = composite(vision_config=SIGLIP)
        assert [group.count for group in model.groups] == [2]
        (tower,) = model.towers
        (group,) = tower.groups
        assert (tower.kind, tower.key, tower.model_type) == (
            "vision",
            "vision_config",
            "siglip_vision_model",
        )
        assert (group.name, group.count, group.layer.get("head_size")) == ("encoder", 27, 72)
        assert group.layer.get("attn_type") == "encoder_only"
        assert group.keys["num_heads"] == "vision_config.num_attention_heads"

    @pytest.mark.parametrize(
        ("key", "config", "heads", "size"),
        [
            ("vision_config", {"depth": 32, "embed_dim": 1280, "num_heads": 16}, 16, 80),
            (
                "audio_config",
                {"encoder_layers": 32, "encoder_attention_heads": 20, "d_model": 1280},
                20,
                64,
            ),
            ("visual_config", {"num_hidden_layers": 1, **SIGLIP}, 16, 72),
        ],
    )
    def test_spellings(self, key, config, heads, size):
        (tower,) = composite(**{key: config}).towers
        layer = tower.groups[0].layer
        assert (layer.get("num_heads"), layer.get("head_size")) == (heads, size)

    def test_the_outer_class_says_which_class_a_tower_is_of(self):
        model = read_config({"model_type": "gemma3", "text_config": {}, "vision_config": {}})
        (tower,) = model.towers
        assert tower.model_type == "siglip_vision_model"
        assert tower.groups[0].count == 12
        assert any("siglip_vision_model's class defaults hold" in note for note in tower.notes)

    def test_one_that_cannot_be_read_is_named_with_the_reason(self):
        model = composite(vision_config={"model_type": "new", "depths": [2]}, audio_config=SIGLIP)
        assert [tower.key for tower in model.towers] == ["vision_config", "audio_config"]
        assert model.towers[0].groups == ()
        assert model.towers[0].notes[0].startswith("not read: no attention fields: looked for ")
        assert model.towers[1].groups

    def test_inside_a_thinker(self):
        thinker = {"text_config": TEXT, "vision_config": SIGLIP}
        speaks = {"text_config": TEXT}
        config = {"model_type": "x", "thinker_config": thinker, "talker_config": speaks}
        model = read_config(config)
        assert [(tower.kind, tower.key) for tower in model.towers] == [
            ("speech", "talker_config"),
            ("vision", "thinker_config.vision_config"),
        ]

    def test_ranks_leave_them_whole(self):
        model = load_model("gemma-3-27b")
        assert shard(model, 8).towers == model.towers

    def test_the_cache_is_the_models_own(self):
        quantised = {"kv_cache_scheme": {"type": "float", "num_bits": 8}}
        model = composite(vision_config=SIGLIP, quantization_config=quantised)
        assert model.groups[0].layer.get("kv_cache_dtype") == "fp8_e4m3"
        assert model.towers[0].groups[0].layer.get("kv_cache_dtype") == "auto"


class TestDrafters:
    def test_they_share_the_attention_of_whole_layers(self):
        kinds = ["linear_attention", "full_attention"]
        config = {**TEXT, "layer_types": kinds, "mtp_num_hidden_layers": 1}
        assert read_config(config).drafters == (Drafter("mtp_num_hidden_layers", 1, "full"),)

    def test_some_models_draft_with_sliding_layers(self):
        config = {**TEXT, "model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1]}
        config |= {"sliding_window": 128, "num_nextn_predict_layers": 3, "head_dim": 64}
        config |= {"swa_num_key_value_heads": 4, "num_key_value_heads": 4}
        (drafter,) = read_config(config).drafters
        assert drafter == Drafter("num_nextn_predict_layers", 3, "sliding")

    @pytest.mark.parametrize("raw", [0, None, True, -1, "1", 10**9, 1.0])
    def test_no_count(self, raw):
        assert read_config({**TEXT, "num_nextn_predict_layers": raw}).drafters == ()


@pytest.mark.parametrize(
    ("config", "shared"),
    [
        ({**TEXT, "num_kv_shared_layers": 1}, 1),
        ({**TEXT, "num_kv_shared_layers": 0}, 0),
        ({**TEXT, "num_kv_shared_layers": True}, 0),
        ({"model_type": "gemma3n_text"}, 15),
    ],
)
def test_layers_that_share_the_cache_of_earlier_ones(config, shared):
    model = read_config(config)
    assert model.kv_shared_layers == shared
    said = f"the last {shared} layers use the KV cache of earlier ones"
    assert (said in model.notes) == bool(shared)
