"""Writes ``selector/models/defaults.json``: what configuration classes assume for attention.

Run it after moving to another transformers release, in an environment of its own:

    python -m venv build/classes
    build/classes/bin/pip install transformers==5.20.2 torch
    build/classes/bin/python tools/write_model_defaults.py

Every configuration class is built with no arguments, and again with its sizes changed: a value that
moves with another one is computed by the class, and is left to the reader's rules. Models are built
without weights (on the meta device), to see whether their attention is causal. Takes some minutes;
attnsel itself needs neither package.
"""

from __future__ import annotations

import json
import logging
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "selector" / "models" / "defaults.json"
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "layers", "depth")
LAYERS += ("encoder_layers", "decoder_layers", "num_blocks", "num_encoder_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads")
HEADS += ("encoder_attention_heads", "decoder_attention_heads", "encoder_num_attention_heads")
HEADS += ("decoder_num_attention_heads", "num_encoder_attention_heads")
HEADS += ("num_decoder_attention_heads",)
KEYS = {
    *LAYERS,
    *HEADS,
    *("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num"),
    *("hidden_size", "d_model", "n_embd", "n_embed", "dim", "emb_dim", "model_dim", "embed_dim"),
    *("num_query_heads", "num_transformer_layers", "head_dim", "attention_head_dim"),
    *("kv_channels", "d_kv", "d_head", "head_size", "hidden_size_per_head"),
    *("sliding_window", "sliding_window_size", "attention_window", "attention_window_size"),
    *("local_attention", "use_sliding_window", "max_window_layers"),
    *("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers"),
    *("attn_layer_period", "attn_layer_offset", "attn_layer_indices", "full_attention_interval"),
    *("attention_chunk_size", "no_rope_layer_interval", "layer_group_size"),
    *("attn_logit_softcapping", "max_attn_value", "alibi"),
    *("multi_query", "multi_query_attention", "new_decoder_architecture"),
    *("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
    *("index_topk", "num_decoder_layers", "is_encoder_decoder", "use_bidirectional_attention"),
    *("global_head_dim", "num_global_key_value_heads", "cross_attention_layers"),
    *("swa_head_dim", "swa_v_head_dim", "swa_num_attention_heads", "swa_num_key_value_heads"),
    *("add_swa_attention_sink_bias", "swa_attention_sink_enabled"),
    *("encoder_num_hidden_layers", "decoder_num_hidden_layers"),
    *("encoder_num_key_value_heads", "decoder_num_key_value_heads"),
    *("intra_bottleneck_size", "hybrid_layer_ids", "num_attention_heads_per_layer"),
    "num_kv_shared_layers",
}
SAID_WHEN_FALSE = {"use_sliding_window", "multi_query", "alibi", "multi_query_attention"}
SAID_WHEN_FALSE |= {"new_decoder_architecture", "add_swa_attention_sink_bias"}
LAYER_TYPES = ("layer_types", "layers_block_type", "block_types")
NESTING = ("text_config", "llm_config", "language_config", "thinker_config", "vlm_config")
DEPTHS = (1, 2, 3, 5, 6, 7, 8, 11, 12, 13, 24, 30)
ABOUT = (
    "What a configuration class assumes for attention when a config.json leaves a field out. "
    "'fields': constants only; values the class computes from other fields are left out, and "
    "derived by the reader. 'layers': layer types a class repeats when the config names none; "
    "'last' is what the last layer always is. 'nested': the classes of configs inside a config. "
    "'encoders': types whose attention is not causal. Written by tools/write_model_defaults.py "
    "from the configuration and model classes of the source (Apache-2.0)."
)


def build(kind: Any, **values: object) -> dict[str, Any] | None:
    """The config of a class as JSON values; ``None`` when it refuses."""
    try:
        config: dict[str, Any] = json.loads(json.dumps(kind(**values).to_dict(), default=str))
    except Exception:  # classes refuse in many ways
        return None
    return config


def constants(kind: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """Attention fields that do not move when a size is changed."""
    found = {
        key: value
        for key, value in config.items()
        if key in KEYS
        and value is not None
        and (value is not False or key in SAID_WHEN_FALSE)
        and not isinstance(value, dict)
        and value != []
    }
    moved: set[str] = set()
    for key, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            continue
        for times in (2, 3):
            changed = build(kind, **{key: value * times}) or {}
            moved |= {k for k in found if k != key and k in changed and changed[k] != found[k]}
    return {key: value for key, value in found.items() if key not in moved}


def cycle(kind: Any, config: Mapping[str, Any]) -> dict[str, Any] | None:
    """The layer types that a class repeats, if it names any."""
    key = next((k for k in LAYER_TYPES if isinstance(config.get(k), list)), None)
    counter = next((k for k in LAYERS if k in config), None)
    if key is None or counter is None:
        return None
    rows = [
        changed[key]
        for depth in DEPTHS
        if (changed := build(kind, **{counter: depth})) and len(changed.get(key) or []) == depth
    ]
    if not rows:
        return None
    longest = max(rows, key=len)
    for length in range(1, 13):
        words = longest[:length]
        if all(row == _repeated(words, len(row)) for row in rows):
            return {"cycle": words}
    for length in range(1, 13):
        words = longest[:length]
        ends = {row[-1] for row in rows}
        if len(ends) == 1 and all(r[:-1] == _repeated(words, len(r))[:-1] for r in rows):
            return {"cycle": words, "last": ends.pop()}
    return None


def _repeated(words: list[str], length: int) -> list[str]:
    return [words[i % len(words)] for i in range(length)]


def nested(config: Mapping[str, Any]) -> dict[str, str]:
    """Key → ``model_type`` of the configs inside a config."""
    return {
        key: value["model_type"]
        for key, value in config.items()
        if isinstance(value, dict)
        and isinstance(value.get("model_type"), str)
        and value["model_type"]
    }


def model_classes(model_type: str) -> Iterator[Any]:
    """Classes that can be built from a config of this type, the plainest first."""
    import transformers
    from transformers.models.auto import modeling_auto

    maps = ("MODEL", "MODEL_FOR_MASKED_LM", "MODEL_FOR_CAUSAL_LM")
    for kind in maps:
        found = getattr(modeling_auto, f"{kind}_MAPPING_NAMES", {}).get(model_type)
        name = found if isinstance(found, str) else found[0] if found else ""
        if hasattr(transformers, name):
            yield getattr(transformers, name)


def is_encoder(kind: Any, model_type: str) -> bool:
    """Whether every attention module of the model says that it is not causal."""
    import torch

    for model_class in model_classes(model_type):
        signal.alarm(60)
        try:
            with torch.device("meta"):
                model = model_class(kind())
        except Exception:  # optional packages, missing values, an alarm
            continue
        finally:
            signal.alarm(0)
        said = {
            module.is_causal
            for module in model.modules()
            if "ttention" in type(module).__name__
            and isinstance(getattr(module, "is_causal", None), bool)
        }
        return said == {False}
    return False


def _raise(*_: object) -> None:
    raise TimeoutError


def collect() -> dict[str, Any]:
    """Everything that ``defaults.json`` holds."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    fields: dict[str, Any] = {}
    layers: dict[str, Any] = {}
    inside: dict[str, Any] = {}
    encoders: list[str] = []
    for model_type in sorted(CONFIG_MAPPING_NAMES):
        kind = CONFIG_MAPPING[model_type]
        config = build(kind)
        if config is None:
            continue
        if parts := nested(config):
            inside[model_type] = parts
        found = constants(kind, config)
        if model_type == "gpt_neo":  # elsewhere this is the window of a vision tower
            found["window_size"] = config["window_size"]
        counted = found.keys() & {*LAYERS, *HEADS}
        if not counted or (parts.keys() & set(NESTING) and not found.keys() & set(HEADS)):
            continue
        fields[model_type] = found
        repeated = cycle(kind, config)
        if repeated and not _says_nothing(repeated, found):
            layers[model_type] = repeated
        if is_encoder(kind, model_type):
            encoders.append(model_type)
        sys.stderr.write(f"{model_type}\n")
    return {"fields": fields, "layers": layers, "nested": inside, "encoders": encoders}


def _says_nothing(repeated: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    words = set(repeated["cycle"])
    if words & {"basic", "bottleneck", "window_attention"}:  # of convolutions and vision towers
        return True
    return words == {"full_attention"} and (
        not found.get("sliding_window") or "max_window_layers" in found
    )


def render(tables: Mapping[str, Any], version: str) -> str:
    """The file: one model type a line, so that a change shows as one."""
    source = f"transformers {version}"
    parts = [f'"about": {json.dumps(ABOUT)}', f'"source": {json.dumps(source)}']
    for name in ("fields", "layers", "nested"):
        rows = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in sorted(tables[name].items())]
        parts.append(f'"{name}": {{\n' + ",\n".join(rows) + "\n}")
    parts.append('"encoders": ' + json.dumps(sorted(tables["encoders"])))
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore")
    signal.signal(signal.SIGALRM, _raise)
    import transformers

    text = render(collect(), transformers.__version__)
    json.loads(text)
    TARGET.write_text(text, "utf-8")
