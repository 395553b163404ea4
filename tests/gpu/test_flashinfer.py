"""Every adapter of FlashInfer that has been seen right, on a GPU, against the reference."""

from __future__ import annotations

from typing import Any

import pytest

from backends.contract import Batch, MlaShape, Plan, RefusedError, relative_error
from backends.inputs import make_inputs
from backends.reference import attend
from backends.registry import ADAPTERS, get_adapter

torch = pytest.importorskip("torch")
pytest.importorskip("flashinfer")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DEEPSEEK = MlaShape(kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128)
LENGTHS = {
    "mixed": ((5, 1, 300, 17), (5, 900, 300, 2000)),
    "decode": ((1, 1, 1, 1), (1, 64, 700, 3000)),
}
HEADS: dict[str, Any] = {"num_heads": 32, "num_kv_heads": 8, "head_size": 128, "v_head_size": 128}
LATENT: dict[str, Any] = {
    "num_heads": 16,
    "num_kv_heads": 1,
    "head_size": 576,
    "v_head_size": 512,
    "mla": DEEPSEEK,
}
EXPANDED: dict[str, Any] = {
    "num_heads": 16,
    "num_kv_heads": 16,
    "head_size": 192,
    "v_head_size": 128,
    "mla": DEEPSEEK,
    "path": "dense_mha",
}
GQA: dict[str, dict[str, Any]] = {
    "plain": {},
    "pages of 64": {"page_size": 64},
    "window": {"sliding_window": 100},
    "soft cap": {"soft_cap": 20.0},
    "non-causal": {"causal": False},
    "sinks": {"sinks": True},
    "fp8 cache": {"kv_dtype": "fp8_e4m3"},
}
WITH_SINKS = ("flashinfer_attention_sink", "flashinfer_xqa")
NO_SOFT_CAP = ("flashinfer_attention_sink",)  # it takes one and ignores it


def questions() -> list[Any]:
    found = []
    for name in ADAPTERS:
        adapter = get_adapter(name)
        if not name.startswith("flashinfer") or adapter.unverified:
            continue
        if "sparse" in name:
            changes = {
                "top-k": LATENT | {"topk": 256, "path": "sparse_mqa"},
                "dense": EXPANDED,
            }
        elif "mla" in name:
            changes = {"latent": LATENT, "latent, pages of 64": LATENT | {"page_size": 64}}
        else:
            changes = {key: HEADS | value for key, value in GQA.items()}
            if name not in WITH_SINKS:
                del changes["sinks"]  # the others take them and ignore them
            if name in NO_SOFT_CAP:
                del changes["soft cap"]
        for lengths, (query_lens, seq_lens) in LENGTHS.items():
            for key, change in changes.items():
                words = {"page_size": 16, "dtype": "bfloat16"} | change
                batch = Batch(query_lens=query_lens, seq_lens=seq_lens, **words)
                found.append(pytest.param(name, batch, id=f"{name}, {lengths}, {key}"))
    return found


def plan_of(name: str, batch: Batch) -> Plan:
    try:
        return get_adapter(name).plan(batch, "cuda")
    except RefusedError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize(("name", "batch"), questions())
def test_an_adapter_is_right_or_refuses(name: str, batch: Batch) -> None:
    given = make_inputs(batch, "cuda")
    plan = plan_of(name, batch)
    try:
        out = plan.run(given.q, given.kv, given.sinks, given.indices)
    except RefusedError as error:
        pytest.skip(str(error))
    exact = attend(batch, given.q, given.kv, given.sinks, given.indices)
    assert relative_error(out, exact) <= get_adapter(name).tolerance(batch.dtype)


@pytest.mark.parametrize("name", ["flashinfer_fa2", "flashinfer_cuda_cores", "flashinfer_xqa"])
def test_a_run_waits_for_nothing_and_can_be_captured(name: str) -> None:
    query_lens, seq_lens = LENGTHS["decode"]
    batch = Batch(query_lens=query_lens, seq_lens=seq_lens, page_size=16, dtype="bfloat16", **HEADS)
    given, plan = make_inputs(batch, "cuda"), plan_of(name, batch)
    expected = plan.run(given.q, given.kv)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        plan.run(given.q, given.kv)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = plan.run(given.q, given.kv)
    graph.replay()
    torch.cuda.synchronize()
    assert relative_error(out, expected) < 1e-2
