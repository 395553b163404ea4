"""Writes ``tests/unit/models/data/corpus.jsonl``: the part of the corpus that comes with the tests.

    python tools/extract_corpus.py CORPUS.jsonl

Every scored row, and every fifth of the others. Of each config only what may bear on attention is
kept, and of what is expected only what ``tools/score_models.py`` compares.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from selector.errors import AttnselError
from selector.models import read_config

TARGET = Path(__file__).parent.parent / "tests" / "unit" / "models" / "data" / "corpus.jsonl"
OF_OTHERS = 5
NOT_ATTENTION = re.compile(
    r"token|dropout|^initializer|hidden_act|_eps$|epsilon|vocab|^rope_|transformers_version|"
    r"use_cache|^tie_|intermediate|router|aux_loss|norm|routed|max_position|expert|activation|"
    r"label|_drop$|task_specific|init_|_std$|factor|scoring|topk_|scaling|multiplier|return_dict|"
    r"auto_map|conv_|mlp|ffn|_coef|video_|loss|beams|attention_scale|time_step|mamba_|pdrop|bias|"
    r"pretraining_tp|_name_or_path|^id2|summary|feature|codevector|tdnn|mask_|xvector|ctc|"
    r"classifier|adapter|contrastive|proj_code|logit_scale|output_|stride|moe_|residual|n_group|"
    r"temperature|layerdrop|swiglu|mel_bins|spatial|resampler|pad_|resid|patch|image_|_image|"
    r"rope$|theta|bos_|eos_|length|chunk_size_feed|problem_type|is_split|prefix_|seed"
)
KEPT = {"index_topk", "linear_attn_config", "num_nextn_predict_layers", "no_rope_layers"}
KEPT |= {"no_rope_layer_interval"}
OF_QUANTISATION = {"quant_method", "kv_cache_scheme", "quantization", "producer", "quant_algo"}
OF_TOWERS = {"model_type", "num_hidden_layers", "hidden_size", "num_attention_heads"}
OF_TOWERS |= {"depth", "embed_dim", "num_heads", "d_model", "encoder_layers", "head_dim"}
OF_TOWERS |= {"encoder_attention_heads", "num_key_value_heads"}
ALWAYS = ("kind", "count", "head_size", "v_head_size", "num_heads", "num_kv_heads")
MAYBE = ("mla", "sparse", "sinks", "alibi", "sliding_window", "chunk_size", "soft_cap")
LATENT = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
EXPECTED = ("dtype", "kv_cache_dtype", "kv_per_head_scales", "mm_prefix_lm", "attention_free")


def shorten(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what cannot bear on attention."""
    kept: dict[str, Any] = {}
    for key, value in config.items():
        if key in ("quantization_config", "compression_config") and isinstance(value, dict):
            kept[key] = {k: v for k, v in value.items() if k in OF_QUANTISATION}
        elif NOT_ATTENTION.search(key) and key not in KEPT:
            continue
        elif isinstance(value, dict) and re.search("vision|audio|qformer|perceiver|vq_", key):
            kept[key] = {k: v for k, v in value.items() if k in OF_TOWERS}
        else:
            kept[key] = shorten(value) if isinstance(value, dict) else value
    return kept


def same_reading(config: Mapping[str, Any], short: Mapping[str, Any]) -> bool:
    """Whether nothing that the reader looks at was cut away."""
    try:
        whole = read_config(config)
    except AttnselError:
        return True
    part = read_config(short)
    return whole.groups == part.groups and whole.notes == part.notes


def expected(facts: Mapping[str, Any]) -> dict[str, Any]:
    """What is compared; a layer's features only where they are there."""
    kept = {name: facts[name] for name in EXPECTED}
    kept["non_attention_layers"] = facts["non_attention_layers"]
    kept["layers"] = [_layer(layer) for layer in facts["layers"]]
    return kept


def _layer(layer: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: layer[name] for name in ALWAYS}
    kept |= {name: layer[name] for name in MAYBE if layer.get(name) not in (None, False)}
    if layer["mla"]:
        kept |= {name: layer[name] for name in (*LATENT, "index_topk")}
    return kept


def extract(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows that are kept, shortened."""
    scored = [r for r in rows if r["domain"] == "text" and r["confidence"] != "low"]
    others = [r for r in rows if r not in scored][::OF_OTHERS]
    for row in (*scored, *others):
        if not same_reading(row["config"], shorten(row["config"])):
            raise SystemExit(f"{row['id']}: something that bears on attention is cut away")
    return [
        {
            "id": row["id"],
            "domain": row["domain"],
            "confidence": row["confidence"],
            "config": shorten(row["config"]),
            "expected": expected(row["expected"]),
        }
        for row in (*scored, *others)
    ]


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text("utf-8").splitlines()
    chosen = extract([json.loads(line) for line in lines if line])
    texts = [json.dumps(row, separators=(",", ":"), ensure_ascii=False) for row in chosen]
    TARGET.write_text("\n".join(texts) + "\n", "utf-8")
