"""Errors of public reports are read with all their reasons."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from selector.serving.logs.log import read_log

CASES = Path(__file__).parents[5] / "shared" / "cases" / "dev.jsonl"
NONE = (
    "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig({}). "
    "Reasons: {}."
)
FORCED = (
    "ValueError: Selected backend AttentionBackendEnum.{} is not valid for this configuration. "
    "Reason: ['{}', 'compute capability not supported']"
)
SENTENCES = {
    "sparse": "sparse not supported",
    "compute_capability": "compute capability not supported",
    "custom:device": "FlashAttention MLA not supported on this device",
    "kv_cache_dtype": "kv_cache_dtype not supported",
    "non_causal": "non-causal attention not supported",
}


def public_cases() -> list[dict[str, Any]]:
    if not CASES.is_file():
        return []
    rows = [json.loads(line) for line in CASES.read_text("utf-8").splitlines() if line.strip()]
    return [r for r in rows if r["kind"] in ("A", "B") and r["input"].get("engine") == "vllm"]


@pytest.mark.skipif(not CASES.is_file(), reason="the public reports are not here")
def test_public_cases() -> None:
    """No report quotes its text whole, so it is composed from what the report says."""
    read = set()
    for case in public_cases():
        given_, name = case["input"], case["id"]
        config = given_.get("selector_config")
        if isinstance(given_.get("explicit"), str):
            reason = "sink setting not supported" if config else "non-MLA not supported"
            (error,) = read_log(FORCED.format(given_["explicit"], reason)).errors
            assert error.backend == given_["explicit"], name
            read.add(name)
        elif config:
            for dtype in given_.get("matrix", [config["kv_cache_dtype"]]):
                check_config({**config, "kv_cache_dtype": dtype}, given_.get("reject_reasons", {}))
            read.add(name)
    assert {"A02", "A04", "A06", "A08", "A09", "A10", "A12", "B04", "B05", "B09", "B20"} <= read


def check_config(config: dict[str, Any], refused: dict[str, list[str]]) -> None:
    spelled = {**config, "dtype": f"torch.{config['dtype']}"}
    told_config = ", ".join(f"{name}={value}" for name, value in spelled.items())
    kept = {backend: [r for r in codes if r in SENTENCES] for backend, codes in refused.items()}
    reasons = ", ".join(
        f"{name}: [{', '.join(SENTENCES[r] for r in codes)}]" for name, codes in kept.items()
    )
    text = NONE.format(told_config, f"{{{reasons}}}")
    for spelling in (text, text.replace("attn_type=d", "attn_type=AttentionType.D")):
        (error,) = read_log(
            spelling.replace("AttentionType.Decoder", "AttentionType.DECODER")
        ).errors
        assert not error.unknown
        assert len(error.asked) == len(config)
        assert error.asked["kv_cache_dtype"] == config["kv_cache_dtype"]
        assert {name: len(r) for name, r in error.reasons.items()} == {
            name: len(codes) for name, codes in kept.items()
        }
        assert all(r.code for rs in error.reasons.values() for r in rs)
