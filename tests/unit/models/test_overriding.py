import re

import pytest

from selector.errors import ContradictionError, ValueRefusedError
from selector.models import load_model, override, presets, read_config, shard
from selector.values import Origin

CHUNKED = {
    "model_type": "llama4_text",
    "num_hidden_layers": 4,
    "hidden_size": 5120,
    "num_attention_heads": 40,
    "num_key_value_heads": 8,
    "head_dim": 128,
}


def first(name: str, **fields: object):
    return override(load_model(name), fields).groups[0]


class TestWhatFollows:
    def test_a_field_alone(self):
        group = first("qwen3-8b", kv_cache_dtype="fp8_e4m3")
        assert group.layer.get("kv_cache_dtype") == "fp8_e4m3"
        assert group.origins["kv_cache_dtype"] is Origin.FLAG
        assert "kv_cache_dtype" not in group.keys

    def test_values_stay_as_wide_as_keys(self):
        group = first("qwen3-8b", head_size=64)
        assert group.layer.get("v_head_size") == 64
        assert group.origins["v_head_size"] is Origin.DERIVED
        assert group.keys["v_head_size"] == "--set head_size"

    def test_heads_per_kv_head(self):
        assert first("qwen3-8b", num_kv_heads=4).layer.get("gqa_group") == 8

    def test_heads_are_those_of_one_rank(self):
        layer = first("qwen3-8b", tp_size=4, num_heads=16).layer
        assert (layer.get("num_heads"), layer.get("num_kv_heads")) == (16, 2)

    def test_size_of_a_latent(self):
        assert first("deepseek-v3", kv_lora_rank=256).layer.get("head_size") == 320

    def test_an_index_makes_a_layer_sparse(self):
        group = first("deepseek-v3", index_topk=2048)
        assert group.layer.get("sparse") is True
        assert group.name == "sparse"

    def test_without_sparse_there_is_no_index(self):
        group = first("deepseek-v3.2", sparse=False)
        assert group.layer.get("index_topk") == "absent"
        assert group.name == "mla"

    def test_without_mla_the_latent_is_expanded(self):
        group = first("deepseek-v3", mla=False)
        layer = group.layer
        assert group.name == "full"
        assert (layer.get("head_size"), layer.get("v_head_size")) == (192, 192)
        assert (layer.get("num_kv_heads"), layer.get("gqa_group")) == (128, 1)
        assert layer.get("kv_lora_rank") == "absent"
        assert layer.get("dense_prefill") is None
        assert set(group.origins) == set(layer.fields)

    def test_a_layer_may_be_given_a_latent(self):
        group = first("qwen3-8b", mla=True, kv_lora_rank=512, qk_rope_head_dim=64)
        layer = group.layer
        assert (layer.get("head_size"), layer.get("num_kv_heads")) == (576, 1)
        assert group.name == "mla"

    def test_groups_that_become_alike_are_one(self):
        model = override(load_model("gemma-3-27b"), {"sliding_window": "unset"})
        assert [(group.name, group.count) for group in model.groups] == [("full", 62)]

    def test_drafters_follow(self):
        model = override(load_model("glm-5.2-fp8"), {"sparse": False})
        assert [drafter.like for drafter in model.drafters] == ["mla"]

    @pytest.mark.parametrize("name", presets())
    def test_ranks_alone_are_the_same_as_sharding(self, name):
        model = load_model(name)
        try:
            ranks = shard(model, 2)
        except ValueRefusedError as error:
            with pytest.raises(ValueRefusedError, match=re.escape(str(error))):
                override(model, {"tp_size": 2})
        else:
            assert override(model, {"tp_size": 2}).groups == ranks.groups

    @pytest.mark.parametrize("name", presets())
    def test_nothing_set_changes_nothing(self, name):
        assert override(load_model(name), {}) == load_model(name)


class TestContradictions:
    @pytest.mark.parametrize(
        ("name", "fields", "words"),
        [
            ("qwen3-8b", {"num_kv_heads": 5}, "num_heads 32 is not a multiple of num_kv_heads 5"),
            ("qwen3-8b", {"gqa_group": 3}, "gqa_group 3, but 32 heads share 8 KV heads: 4 each"),
            ("qwen3-8b", {"mla": True}, "needs kv_lora_rank and qk_rope_head_dim; set them too"),
            ("qwen3-8b", {"kv_lora_rank": 512}, "kv_lora_rank 512 without MLA; set mla=true"),
            ("deepseek-v3", {"head_size": 128}, "head_size 128 is not kv_lora_rank 512 + "),
            ("deepseek-v3", {"num_kv_heads": 8}, "MLA caches one latent head"),
            ("deepseek-v3", {"sparse": True}, "index_topk is not a number; set it too"),
            ("deepseek-v3", {"attn_type": "encoder"}, "but MLA is causal"),
            ("deepseek-v3.2", {"sparse": False, "index_topk": 64}, "sparse false with index_topk"),
            ("deepseek-v3.2", {"mla": False}, "set sparse=false"),
        ],
    )
    def test_refused(self, name, fields, words):
        with pytest.raises(ContradictionError) as caught:
            override(load_model(name), fields)
        assert words in str(caught.value)
        assert str(caught.value).startswith(f"{name}: ")

    def test_a_window_over_chunks(self):
        with pytest.raises(ContradictionError, match="sliding_window 64 and chunked"):
            override(read_config(CHUNKED), {"sliding_window": 64})

    def test_a_latent_of_unknown_width(self):
        config = {"model_type": "deepseek_v3", "qk_nope_head_dim": 0}
        with pytest.raises(ContradictionError, match="how wide an expanded head is"):
            override(read_config(config), {"mla": False})
