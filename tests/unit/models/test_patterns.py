"""What each way of saying the kinds of layers means, layer by layer."""

import pytest

from selector.models.patterns import layer_kinds
from selector.models.source import Source
from selector.models.tables import tables
from selector.values import Origin


def kinds(model_type: str = "", **config: object) -> str:
    """First letters: ``s`` sliding, ``f`` full, ``n`` none, ``c`` chunked, ``x`` cross."""
    source = Source("config.json", config, tables(), model_type=model_type)
    return "".join("x" if kind == "cross" else kind[0] for kind in layer_kinds(source).kinds)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_hidden_layers": 3, "sliding_window": 8}, "sss"),
        ({"num_hidden_layers": 3}, "fff"),
        ({"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}, "sf"),
        ({"num_hidden_layers": 1, "layer_types": ["sliding_attention", "full_attention"]}, "s"),
        ({"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp"]}, "nf"),
        ({"hybrid_override_pattern": "M-M*E"}, "nnf"),
        ({"num_hidden_layers": 5, "block_types": ["recurrent", "attention"]}, "nfnfn"),
        ({"num_hidden_layers": 6, "sliding_window_pattern": "LLLG"}, "sssfss"),
        ({"num_hidden_layers": 6, "sliding_window_pattern": 3}, "ssfssf"),
        ({"num_hidden_layers": 4, "full_attention_interval": 2}, "nfnf"),
        ({"num_hidden_layers": 4, "full_attn_idxs": [0, 3]}, "fnnf"),
        ({"num_hidden_layers": 4, "attn_layer_indices": [1]}, "nfnn"),
        ({"num_hidden_layers": 3, "linear_attn_config": {"full_attn_layers": [3]}}, "nnf"),
        ({"num_hidden_layers": 3, "cross_attention_layers": [1]}, "fxf"),
        ({"num_hidden_layers": 3, "attn_type_list": [1, 0, 1]}, "fnf"),
        ({"num_hidden_layers": 6, "attn_layer_period": 4, "attn_layer_offset": 1}, "nfnnnf"),
        ({"num_hidden_layers": 2, "no_rope_layers": [1, 0], "attention_chunk_size": 9}, "cf"),
        ({"num_hidden_layers": 2, "no_rope_layers": [1, 0]}, "ff"),
        ({"num_hidden_layers": 3, "max_window_layers": 1, "use_sliding_window": True}, "fss"),
        ({"num_hidden_layers": 3, "max_window_layers": 1, "use_sliding_window": False}, "fff"),
        ({"num_hidden_layers": 3, "layer_types": [], "sliding_window": 8}, "sss"),
        (
            {
                "num_hidden_layers": 4,
                "block_configs": [
                    {"attention": {"n_heads_in_group": 8, "no_op": False}},
                    {"attention": {"no_op": True}},
                    {"attention": {"no_op": False, "replace_with_linear": True}},
                    {},
                ],
            },
            "fnnf",
        ),
    ],
)
def test_keys(config, expected):
    assert kinds(**config) == expected


@pytest.mark.parametrize(
    ("model_type", "layers", "expected"),
    [
        ("gemma2", 3, "sfs"),
        ("gemma3_text", 7, "sssssfs"),
        ("gemma4_text", 7, "sssssff"),
        ("gpt_oss", 4, "sfsf"),
        ("cohere2", 4, "sssf"),
        ("llama4_text", 5, "cccfc"),
        ("qwen3_next", 4, "nnnf"),
        ("jamba", 8, "nnnnfnnn"),
        ("modernbert", 4, "fssf"),
        ("recurrent_gemma", 4, "nnsn"),
        ("mistral", 2, "ss"),
        ("llama", 2, "ff"),
    ],
)
def test_what_a_class_does_when_its_config_is_silent(model_type, layers, expected):
    assert kinds(model_type, num_hidden_layers=layers) == expected


def test_the_config_wins_over_the_class():
    assert kinds("gemma3_text", num_hidden_layers=4, sliding_window_pattern=2) == "sfsf"
    assert kinds(
        "recurrent_gemma", num_hidden_layers=3, block_types=["recurrent", "attention"]
    ) == ("nsn")
    assert kinds("modernbert", num_hidden_layers=4, global_attn_every_n_layers=2) == "fsfs"
    assert kinds("afmoe", num_hidden_layers=4, global_attn_every_n_layers=2) == "sfsf"


def test_layers_counted_in_pairs():
    assert kinds("longcat_flash", num_layers=3) == "ffffff"
    assert kinds("longcat_flash", num_hidden_layers=6) == "ffffff"


def test_origin():
    source = Source("config.json", {"num_hidden_layers": 2, "sliding_window_pattern": 2}, tables())
    found = layer_kinds(source)
    assert (found.origin, found.keys) == (Origin.CONFIG, "sliding_window_pattern")
