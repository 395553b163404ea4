import pytest

from selector.errors import ContradictionError, UnknownModelError, ValueRefusedError
from selector.models import load_model, override, presets, read_config
from selector.values import Drafter, Model, Origin

LLAMA = {
    "model_type": "llama",
    "torch_dtype": "bfloat16",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}
DEEPSEEK = {
    "model_type": "deepseek_v3",
    "torch_dtype": "bfloat16",
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
}


def only(model: Model):
    (group,) = model.groups
    return group


def shape(model: Model) -> list[tuple[str, int]]:
    return [(group.name, group.count) for group in model.groups]


class TestOrigins:
    def test_each_field_says_where_it_came_from(self):
        group = only(read_config(LLAMA))
        assert group.origins["num_kv_heads"] is Origin.CONFIG
        assert group.keys["num_kv_heads"] == "num_key_value_heads"
        assert group.origins["head_size"] is Origin.DERIVED
        assert group.keys["head_size"] == "hidden_size, num_attention_heads"
        assert group.origins["kv_cache_dtype"] is Origin.DEFAULT
        assert set(group.origins) == set(group.layer.fields)

    def test_nested_keys_are_named_from_the_top(self):
        nested = {"model_type": "llava", "text_config": {**LLAMA}}
        group = only(read_config(nested))
        assert group.keys["num_heads"] == "text_config.num_attention_heads"
        assert group.keys["dtype"] == "text_config.torch_dtype"

    def test_two_levels_of_nesting(self):
        nested = {"model_type": "x", "thinker_config": {"text_config": {**LLAMA}}}
        group = only(read_config(nested))
        assert group.keys["num_heads"] == "thinker_config.text_config.num_attention_heads"

    def test_class_defaults_are_defaults_and_said(self):
        model = read_config({"model_type": "gemma3_text", "num_hidden_layers": 12})
        assert shape(model) == [("sliding", 10), ("full", 2)]
        group = model.groups[0]
        assert group.layer.get("head_size") == 256
        assert group.origins["head_size"] is Origin.DEFAULT
        assert group.keys["head_size"] == "head_dim"
        assert model.defaults["head_dim"] == "gemma3_text"
        assert model.defaults_source == "transformers 5.20.2"
        assert any(
            "gemma3_text's class defaults hold (transformers 5.20.2): " in note
            for note in model.notes
        )
        assert any("head_dim" in note for note in model.notes)

    def test_null_is_not_left_out(self):
        left_out = {k: v for k, v in LLAMA.items() if k != "model_type"} | {"model_type": "mistral"}
        assert only(read_config(left_out)).layer.get("sliding_window") == 4096
        assert only(read_config({**left_out, "sliding_window": None})).name == "full"

    @pytest.mark.parametrize(
        "kv_heads", [{"num_key_value_heads": None}, {}], ids=["null", "missing"]
    )
    def test_without_kv_heads_there_are_as_many_as_query_heads(self, kv_heads):
        config = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"} | kv_heads
        group = only(read_config(config))
        assert group.layer.get("num_kv_heads") == 32
        assert group.origins["num_kv_heads"] is Origin.DERIVED

    def test_the_page_is_kept(self):
        model = read_config(LLAMA, name="mine", source="https://example.org/x")
        assert (model.name, model.source) == ("mine", "https://example.org/x")


class TestLatent:
    def test_head_size_is_that_of_the_cache(self):
        layer = only(read_config(DEEPSEEK)).layer
        assert layer.get("head_size") == 512 + 64
        assert layer.get("num_kv_heads") == 1
        assert layer.get("gqa_group") == 128
        assert layer.get("v_head_size") == 128
        assert (layer.get("sparse"), layer.get("index_topk")) == (False, "absent")

    def test_an_indexer_makes_it_sparse_whatever_the_model_type(self):
        group = only(read_config({**DEEPSEEK, "index_topk": 2048}))
        assert group.name == "sparse"
        assert group.layer.get("sparse") is True
        assert group.layer.get("dense_prefill") is True
        assert group.origins["dense_prefill"] is Origin.DERIVED
        assert group.keys["dense_prefill"] == "index_topk"

    def test_no_query_rank_is_absent_not_unknown(self):
        layer = only(read_config({**DEEPSEEK, "q_lora_rank": None})).layer
        assert layer.get("q_lora_rank") == "absent"

    def test_plain_attention_has_no_latent(self):
        layer = only(read_config(LLAMA)).layer
        assert layer.get("mla") is False
        assert layer.get("kv_lora_rank") == "absent"
        assert layer.get("dense_prefill") is None

    def test_a_latent_that_is_expanded_first_is_plain(self):
        config = {**DEEPSEEK, "model_type": "minicpm3", "num_attention_heads": 40}
        config["num_key_value_heads"] = 40
        layer = only(read_config(config)).layer
        assert (layer.get("mla"), layer.get("head_size")) == (False, 192)

    def test_glm_5_2(self):
        config = {
            **DEEPSEEK,
            "model_type": "glm_moe_dsa",
            "num_hidden_layers": 78,
            "num_attention_heads": 64,
            "q_lora_rank": 2048,
            "qk_nope_head_dim": 192,
            "v_head_dim": 256,
            "index_topk": 2048,
            "num_nextn_predict_layers": 1,
        }
        model = read_config(config)
        assert shape(model) == [("sparse", 78)]
        assert only(model).layer.get("v_head_dim") == 256
        assert model.drafters == (Drafter("num_nextn_predict_layers", 1, "sparse"),)
        assert model.notes == ()

    def test_a_mask_turned_off_expands_the_latent(self):
        for change in ({"is_causal": False}, {"architectures": ["DeepseekV3BidirectionalModel"]}):
            group = only(read_config({**DEEPSEEK, **change}))
            layer = group.layer
            assert group.name == "encoder"
            assert (layer.get("mla"), layer.get("num_kv_heads")) == (False, 128)
            assert (layer.get("head_size"), layer.get("v_head_size")) == (192, 192)

    def test_sizes_of_zero_mean_there_is_no_latent(self):
        config = {**LLAMA, "model_type": "deepseek_v2", "kv_lora_rank": None, "head_dim": 0}
        config |= dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"), 0)
        layer = only(read_config(config)).layer
        assert (layer.get("mla"), layer.get("head_size"), layer.get("v_head_size")) == (
            False,
            128,
            128,
        )


class TestKvCache:
    FLOAT8 = {"type": "float", "num_bits": 8, "strategy": "tensor"}  # noqa: RUF012

    @pytest.mark.parametrize(
        ("quantisation", "dtype"),
        [
            ({"quant_method": "compressed-tensors", "kv_cache_scheme": FLOAT8}, "fp8_e4m3"),
            ({"quant_method": "modelopt", "kv_cache_scheme": FLOAT8}, "fp8_e4m3"),
            ({"quantization": {"kv_cache_quant_algo": "FP8"}}, "fp8_e4m3"),
            ({"quantization": {"kv_cache_quant_algo": "NVFP4"}}, "nvfp4"),
            ({"kv_cache_scheme": {"type": "int", "num_bits": 8}}, "int8"),
            ({"kv_cache_scheme": {"type": "float", "num_bits": 4}}, "nvfp4"),
            ({"kv_cache_scheme": {"type": ["float"], "num_bits": 8}}, "auto"),
            ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "auto"),
            ({"quant_method": "fp8", "kv_cache_scheme": "static"}, "auto"),
            ({"kv_cache_scheme": None}, "auto"),
            ({"kv_cache_scheme": {"type": "float", "num_bits": 3}}, "auto"),
            ({"quantization": {"kv_cache_quant_algo": 8}}, "auto"),
            ("fp8", "auto"),
        ],
    )
    def test_dtype(self, quantisation, dtype):
        group = only(read_config({**LLAMA, "quantization_config": quantisation}))
        assert group.layer.get("kv_cache_dtype") == dtype
        wanted = Origin.DEFAULT if dtype == "auto" else Origin.CHECKPOINT
        assert group.origins["kv_cache_dtype"] is wanted

    def test_a_scheme_that_is_not_understood_is_said(self):
        scheme = {"kv_cache_scheme": {"type": "float", "num_bits": 3}}
        notes = read_config({**LLAMA, "quantization_config": scheme}).notes
        assert notes == (
            "quantization_config.kv_cache_scheme an object of 2 is not understood: KV cache auto",
        )

    def test_scales_per_head(self):
        scheme = {"kv_cache_scheme": {**self.FLOAT8, "strategy": "attn_head"}}
        layer = only(read_config({**LLAMA, "quantization_config": scheme})).layer
        assert layer.get("per_head_quant_scales") is True

    def test_the_text_model_may_hold_it(self):
        text = {**LLAMA, "quantization_config": {"kv_cache_scheme": self.FLOAT8}}
        group = only(read_config({"model_type": "mistral3", "text_config": text}))
        assert group.layer.get("kv_cache_dtype") == "fp8_e4m3"
        assert group.keys["kv_cache_dtype"] == "text_config.quantization_config.kv_cache_scheme"


class TestDtype:
    @pytest.mark.parametrize(
        ("raw", "dtype"), [("torch.float16", "float16"), ("half", "float16"), ("fp32", "float32")]
    )
    def test_spellings(self, raw, dtype):
        group = only(read_config({**LLAMA, "torch_dtype": raw}))
        assert group.layer.get("dtype") == dtype

    @pytest.mark.parametrize("raw", ["int8", "auto", "float8_e4m3fn"])
    def test_a_type_one_cannot_compute_in(self, raw):
        model = read_config({**LLAMA, "torch_dtype": raw})
        assert only(model).layer.get("dtype") == "bfloat16"
        assert only(model).origins["dtype"] is Origin.DEFAULT
        assert "bfloat16 assumed" in model.notes[0]

    def test_none_given(self):
        model = read_config({k: v for k, v in LLAMA.items() if k != "torch_dtype"})
        assert model.notes == ("no dtype in the config: bfloat16 assumed",)


class TestCausality:
    def test_encoders_are_known_by_model_type(self):
        bert = {**LLAMA, "model_type": "bert", "num_key_value_heads": None}
        assert only(read_config(bert)).layer.get("attn_type") == "encoder_only"
        assert only(read_config(bert)).name == "encoder"
        assert only(read_config({**bert, "is_decoder": True})).name == "full"

    def test_a_decoder_may_say_it_is_not_causal(self):
        group = only(read_config({**LLAMA, "is_causal": False}))
        assert group.layer.get("attn_type") == "encoder_only"

    def test_encoder_decoder(self):
        config = {
            "model_type": "whisper",
            "is_encoder_decoder": True,
            "d_model": 1280,
            "encoder_layers": 32,
            "encoder_attention_heads": 20,
            "decoder_layers": 4,
            "decoder_attention_heads": 20,
        }
        model = read_config(config)
        assert shape(model) == [("encoder", 32), ("full", 4), ("cross", 4)]
        kinds = [group.layer.get("attn_type") for group in model.groups]
        assert kinds == ["encoder", "decoder", "encoder_decoder"]


class TestGroups:
    def test_layers_that_need_the_same_are_one_group(self):
        config = {**LLAMA, "layer_types": ["full_attention", "attention"] * 16}
        assert shape(read_config(config)) == [("full", 32)]

    def test_head_counts_may_differ_layer_by_layer(self):
        config = {
            "model_type": "openelm",
            "num_transformer_layers": 3,
            "head_dim": 64,
            "num_query_heads": [12, 16, 12],
            "num_kv_heads": [3, 4, 3],
        }
        model = read_config(config)
        assert shape(model) == [("full", 2), ("full-2", 1)]
        assert model.groups[1].layer.get("num_heads") == 16

    def test_heads_of_sliding_layers_may_have_keys_of_their_own(self):
        config = {"model_type": "step3p5", "num_hidden_layers": 4, "hidden_size": 4096}
        config |= {"num_attention_heads": 64, "num_attention_groups": 8, "head_dim": 128}
        config |= {"layer_types": ["full_attention", *["sliding_attention"] * 3]}
        config |= {"sliding_window": 512}
        config["attention_other_setting"] = {"num_attention_heads": 96, "num_attention_groups": 8}
        model = read_config(config)
        assert shape(model) == [("full", 1), ("sliding", 3)]
        assert [group.layer.get("num_heads") for group in model.groups] == [64, 96]
        assert model.groups[1].keys["num_heads"] == "attention_other_setting.num_attention_heads"

    def test_blocks_say_how_many_heads_share_a_kv_head(self):
        blocks = [{"attention": {"n_heads_in_group": n}} for n in (8, 4, 8)]
        config = {**LLAMA, "model_type": "nemotron-nas", "num_hidden_layers": 3}
        model = read_config({**config, "num_key_value_heads": None, "block_configs": blocks})
        assert [(group.count, group.layer.get("num_kv_heads")) for group in model.groups] == [
            (2, 4),
            (1, 8),
        ]

    def test_a_decoder_that_looks_at_an_image_encoder(self):
        config = {"model_type": "trocr", "d_model": 64, "decoder_layers": 2}
        model = read_config({**config, "decoder_attention_heads": 4})
        assert shape(model) == [("full", 2), ("cross", 2)]

    def test_layers_without_attention_are_counted(self):
        kinds = ["mamba"] * 3 + ["attention"]
        config = {**LLAMA, "num_hidden_layers": 4, "layer_types": kinds}
        model = read_config(config)
        assert (shape(model), model.attention_free) == ([("full", 1)], 3)

    def test_a_model_without_any_attention(self):
        model = read_config({"model_type": "mamba", "num_hidden_layers": 24})
        assert (model.groups, model.attention_free) == ((), 24)

    def test_a_window_in_some_layers_only_is_not_served_for_qwen(self):
        config = {**LLAMA, "model_type": "qwen2", "use_sliding_window": True}
        config |= {"sliding_window": 4096, "max_window_layers": 21}
        model = read_config(config)
        assert shape(model) == [("full", 32)]
        assert any(note.startswith("11 of 32 layers have a window") for note in model.notes)
        assert shape(read_config({**config, "max_window_layers": 0})) == [("sliding", 32)]
        assert shape(read_config({**config, "use_sliding_window": False})) == [("full", 32)]


class TestFeatures:
    @pytest.mark.parametrize(("cap", "on"), [(50.0, True), (0, False), (None, False)])
    def test_soft_cap(self, cap, on):
        layer = only(read_config({**LLAMA, "attn_logit_softcapping": cap})).layer
        assert layer.get("soft_cap") is on

    def test_sinks_in_windowed_layers_only(self):
        config = {**LLAMA, "model_type": "mimo_v2_flash", "num_hidden_layers": 3, "head_dim": 192}
        config |= {"hybrid_layer_pattern": [0, 1, 1], "sliding_window": 128, "v_head_dim": 128}
        config |= {"add_swa_attention_sink_bias": True, "swa_num_key_value_heads": 4}
        model = read_config(config)
        assert shape(model) == [("full", 1), ("sliding", 2)]
        assert [group.layer.get("sink") for group in model.groups] == [False, True]
        assert [group.layer.get("num_kv_heads") for group in model.groups] == [8, 4]
        assert [group.layer.get("v_head_size") for group in model.groups] == [128, 128]

    @pytest.mark.parametrize(("hidden", "on"), [(4096, False), (5120, True)])
    def test_alibi_by_size(self, hidden, on):
        config = {**LLAMA, "model_type": "baichuan", "hidden_size": hidden}
        assert only(read_config(config)).layer.get("alibi") is on

    def test_kv_heads_of_a_class_give_way_to_the_config(self):
        config = {"model_type": "mistral", "num_attention_heads": 12, "hidden_size": 768}
        model = read_config(config)
        assert only(model).layer.get("num_kv_heads") == 12
        assert "12 query heads: as many KV heads assumed" in model.notes


class TestNotes:
    def test_an_unknown_model_type_is_read_by_field_names(self):
        model = read_config({**LLAMA, "model_type": "brand_new"})
        assert shape(model) == [("full", 32)]
        assert model.notes == (
            'model_type "brand_new" is not known: read by field names, '
            "as causal self-attention without sinks or ALiBi",
        )

    def test_no_model_type(self):
        model = read_config({k: v for k, v in LLAMA.items() if k != "model_type"})
        assert model.notes == ("no model_type: read by field names, as causal self-attention",)

    def test_an_unknown_layer_type(self):
        config = {**LLAMA, "num_hidden_layers": 2, "layer_types": ["warp", "full_attention"]}
        notes = read_config(config).notes
        assert notes == ('layer type "warp" is not known: read as full attention',)

    def test_head_size_rounded_down(self):
        model = read_config({**LLAMA, "hidden_size": 4100})
        assert model.notes == (
            "hidden size 4100 is no multiple of 32 heads: head_size rounded down",
        )

    def test_a_window_without_a_width(self):
        config = {**LLAMA, "layer_types": ["sliding_attention"] * 32}
        model = read_config(config)
        assert shape(model) == [("full", 32)]
        assert model.notes == ("sliding layers without a window: read as full attention",)


class TestErrors:
    @pytest.mark.parametrize("config", [{}, {"model_type": "brand_new"}, {"a": 1}, {"n_head": 8}])
    def test_no_attention_fields_names_those_looked_for(self, config):
        with pytest.raises(UnknownModelError) as caught:
            read_config(config, name="x.json")
        assert str(caught.value).startswith("x.json: no attention fields: looked for ")
        assert "num_hidden_layers" in str(caught.value)
        assert "num_attention_heads" in str(caught.value)

    def test_no_heads(self):
        with pytest.raises(UnknownModelError, match="no attention fields; looked for num_att"):
            read_config({"num_hidden_layers": 2, "hidden_size": 64})

    def test_no_width(self):
        with pytest.raises(UnknownModelError, match="cannot tell how wide a head is"):
            read_config({"num_hidden_layers": 2, "num_attention_heads": 4})

    @pytest.mark.parametrize("config", [[], "x", None, 3])
    def test_not_an_object(self, config):
        with pytest.raises(UnknownModelError, match="is not an object"):
            read_config(config)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"num_attention_heads": "32"}, 'num_attention_heads "32" is not a whole number'),
            ({"num_attention_heads": 0}, "num_attention_heads 0 is not a whole number from 1"),
            ({"num_hidden_layers": 10**9}, "is not a whole number from 1 to 10,000"),
            ({"num_hidden_layers": 10**400}, "a number of more than 18 digits is not"),
            ({"num_attention_heads": True}, "num_attention_heads true is not"),
            ({"head_dim": 1.5}, "head_dim 1.5 is not"),
            ({"head_dim": float("nan")}, "head_dim NaN is not"),
            ({"sliding_window": -7}, "sliding_window -7 is not"),
            ({"attn_logit_softcapping": "x"}, 'attn_logit_softcapping "x" is not a number'),
            ({"num_key_value_heads": {}}, "num_key_value_heads an object of 0 is not"),
            ({"layer_types": "full"}, 'layer_types "full" is not a list of layer types'),
            ({"layer_types": [3] * 32}, "layer_types 3 is not a layer type"),
            ({"sliding_window_pattern": 0}, "sliding_window_pattern 0 is not at least 1"),
            ({"full_attn_idxs": 3}, "full_attn_idxs 3 is not a list of layer numbers"),
            ({"attn_type_list": [2] * 32}, "attn_type_list 2 is not 0 or 1"),
            ({"hybrid_override_pattern": "M" * 31 + "Z"}, 'hybrid_override_pattern "Z" is not'),
        ],
    )
    def test_refused_values_are_named_with_their_key(self, change, message):
        with pytest.raises(ValueRefusedError) as caught:
            read_config({**LLAMA, **change}, name="c.json")
        assert str(caught.value).startswith("c.json: ")
        assert message in str(caught.value)
        assert "\n" not in str(caught.value)

    def test_heads_that_cannot_share(self):
        with pytest.raises(ContradictionError) as caught:
            read_config({**LLAMA, "num_key_value_heads": 5})
        assert str(caught.value) == (
            "config.json: 32 query heads (num_attention_heads) cannot share 5 KV heads "
            "(num_key_value_heads) evenly"
        )

    def test_too_few_layer_types(self):
        with pytest.raises(ContradictionError, match="names 3 layers, but the model has 32"):
            read_config({**LLAMA, "layer_types": ["full_attention"] * 3})

    def test_models_that_cannot_be_said_are_refused_with_the_reason(self):
        with pytest.raises(UnknownModelError, match="deepseek_v4 is not read: its compressed"):
            read_config({**DEEPSEEK, "model_type": "deepseek_v4"})


class TestNumbers:
    @pytest.mark.parametrize("name", presets())
    def test_every_layer_has_one(self, name):
        groups = load_model(name).groups
        for group in groups:
            assert not group.numbers or len(group.numbers) == group.count
        own = [n for g in groups if g.layer.get("attn_type") == "decoder" for n in g.numbers]
        assert len(set(own)) == len(own)

    def test_of_kinds_that_take_turns(self):
        sliding, full = load_model("gpt-oss-20b").groups
        assert sliding.numbers[:3] == (0, 2, 4)
        assert full.numbers[:3] == (1, 3, 5)

    def test_layers_without_attention_count(self):
        (full,) = load_model("qwen3-next-80b-a3b").groups
        assert full.numbers[:3] == (3, 7, 11)

    def test_cross_attention_among_the_layers_and_beside_every_nth(self):
        _, cross = load_model("llama-3.2-11b-vision").groups
        assert cross.numbers[:3] == (3, 8, 13)
        beside = read_config({**LLAMA, "model_type": "idefics", "cross_layer_interval": 4})
        assert {g.name: g.numbers[:2] for g in beside.groups} == {"full": (0, 1), "cross": ()}

    def test_they_survive_sharding_and_become_one_where_layers_become_alike(self):
        model = override(load_model("gpt-oss-20b"), {"sliding_window": "unset", "tp_size": 2})
        (group,) = model.groups
        assert group.numbers == tuple(range(24))
