"""Configs whose layers are known from running model classes: each must be read exactly.

``data/corpus.jsonl`` holds a config (attention fields only) and what its model really has a line.
Facts: vLLM 0.33.0 and transformers 5.20.2 models built without weights.
"""

import json
from pathlib import Path

import pytest

from selector.models import read_config
from selector.values import LayerGroup

ROWS = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "corpus.jsonl").read_text("utf-8").splitlines()
]
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
KINDS = {
    "decoder": "self",
    "encoder": "encoder",
    "encoder_only": "encoder",
    "encoder_decoder": "cross",
}


def told(group: LayerGroup) -> dict[str, object]:
    """A group in the words of the corpus."""
    fields = group.layer.fields
    told = {
        name: fields[name] for name in ("head_size", "v_head_size", "num_heads", "num_kv_heads")
    }
    told |= {"kind": KINDS[fields["attn_type"]], "count": group.count}
    told["window"] = fields["sliding_window"] != "unset"
    features = ("mla", "sparse", "sink", "alibi", "soft_cap", "chunked")
    told |= {name: True for name in features if fields[name]}
    if fields["mla"]:
        told |= {name: none_if_absent(fields[name]) for name in (*LATENT, "index_topk")}
    return told


def none_if_absent(value: object) -> object:
    return None if value == "absent" else value


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_layers_are_those_the_model_has(row):
    expected = row["expected"]
    model = read_config(row["config"], name=row["id"])
    assert sorted(map(repr_of, map(told, model.groups))) == sorted(map(repr_of, expected["layers"]))
    assert bool(model.attention_free) == expected["without_attention"]
    for group in model.groups:
        fields = group.layer.fields
        assert fields["kv_cache_dtype"] == expected["kv_cache_dtype"]
        assert fields.get("per_head_quant_scales", False) == expected.get("per_head", False)
        assert fields.get("mm_prefix", False) == expected.get("mm_prefix", False)
        if expected["dtype"]:
            assert fields["dtype"] == expected["dtype"]
            assert group.origins["dtype"] == "config"
        else:
            assert group.origins["dtype"] == "default"


def repr_of(layer: dict[str, object]) -> str:
    return json.dumps(layer, sort_keys=True)


def test_the_corpus_covers_the_families_promised():
    types = {row["config"].get("model_type") for row in ROWS}
    assert {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma2", "gemma3"} <= types
    assert {"gpt_oss", "deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_linear"} <= types
