"""Adapters of FlashInfer against the reference, with FlashInfer's calls computed by torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from backends import flashinfer as adapters
from backends.contract import (
    Adapter,
    Batch,
    MlaShape,
    PagedKV,
    RefusedError,
    UncompilableError,
    relative_error,
)
from backends.flashinfer import library
from backends.flashinfer.adapter import FlashInferAdapter
from backends.inputs import make_inputs
from backends.reference import attend

torch = pytest.importorskip("torch")
real = pytest.importorskip("flashinfer")

from tests.unit.backends import emulated  # noqa: E402

CUDNN = pytest.param(
    "cudnn", marks=pytest.mark.skipif(real.__version__ < "0.7.4", reason="takes other words")
)
CUTLASS = pytest.param(
    "mla_cutlass", marks=pytest.mark.skipif(real.__version__ < "0.7", reason="plans nothing")
)
CLASSES: dict[str, type] = {
    "flashinfer:BatchPrefillWithPagedKVCacheWrapper": emulated.Prefill,
    "flashinfer:BatchDecodeWithPagedKVCacheWrapper": emulated.Decode,
    "flashinfer:BatchPrefillWithRaggedKVCacheWrapper": emulated.Ragged,
    "flashinfer.attention:BatchAttentionWithAttentionSinkWrapper": emulated.Sinks,
    "flashinfer.mla:BatchMLAPagedAttentionWrapper": emulated.Latents,
}
FUNCTIONS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "flashinfer.decode:xqa_batch_decode_with_kv_cache": emulated.xqa,
    "flashinfer.cudnn:cudnn_batch_decode_with_kv_cache": emulated.cudnn_decode,
    "flashinfer.cudnn:cudnn_batch_prefill_with_kv_cache": emulated.cudnn_prefill,
    "flashinfer.decode:trtllm_batch_decode_with_kv_cache": emulated.trtllm,
    "flashinfer.prefill:trtllm_batch_context_with_kv_cache": emulated.trtllm,
    "flashinfer.mla:trtllm_batch_decode_with_kv_cache_mla": emulated.trtllm_mla,
    "flashinfer.prefill:trtllm_ragged_attention_deepseek": emulated.deepseek,
}


METHODS = ("plan", "run")


def signed_as(real: Any, stand_in: Any) -> Any:
    """A stand-in that shows the signature of the real one, which differs between releases."""

    @functools.wraps(real)
    def call(*args: Any, **words: Any) -> Any:
        return stand_in(*args, **words)

    return call


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """FlashInfer's calls are computed on the CPU; what was made of each is listed by its name."""
    made: dict[str, list[Any]] = {}
    find = library.find

    def stand_in(who: str, path: str) -> Any:
        found, listed = find(who, path), made.setdefault(path.split(":")[1], [])
        if path in FUNCTIONS:

            def call(*args: Any, **words: Any) -> Any:
                listed.append(emulated.bind(found, *args, **words))
                return FUNCTIONS[path](listed[-1])

            return call
        if path not in CLASSES:
            return found
        signed = {n: signed_as(getattr(found, n), getattr(CLASSES[path], n)) for n in METHODS}
        cls = type(CLASSES[path].__name__, (CLASSES[path],), {"real": found, **signed})

        def make(*args: Any, **words: Any) -> Any:
            listed.append(cls(*args, **words))
            return listed[-1]

        return make

    monkeypatch.setattr(library, "find", stand_in)
    monkeypatch.setattr(library, "require", lambda *_: None)
    monkeypatch.setattr(library, "open_device", lambda who, name: torch.device(name))
    monkeypatch.setattr(
        library, "workspace", lambda device, zeroed=False: torch.zeros(1024, dtype=torch.uint8)
    )
    return made


def error_of(adapter: FlashInferAdapter, batch: Batch, seed: int = 0) -> float:
    given = make_inputs(batch, seed=seed)
    plan = adapter.plan(batch, "cpu")
    out = plan.run(given.q, given.kv, given.sinks, given.indices)
    return relative_error(out, attend(batch, given.q, given.kv, given.sinks, given.indices))


MIXED: dict[str, dict[str, Any]] = {
    "mixed": {},
    "prefill": {"query_lens": (33, 1, 16), "seq_lens": (33, 1, 16)},
    "cached context": {"query_lens": (2, 16, 5), "seq_lens": (3, 64, 100)},
    "group 1": {"num_kv_heads": 8},
    "pages of 1": {"page_size": 1},
    "pages of 7": {"page_size": 7},
    "pages of 64": {"page_size": 64},
    "non-causal": {"causal": False},
    "window 1": {"sliding_window": 1},
    "window 6": {"sliding_window": 6},
    "window past the end": {"sliding_window": 40},
    "soft cap": {"soft_cap": 2.0},
    "soft cap and window": {"soft_cap": 2.0, "sliding_window": 5},
    "scale": {"scale": 0.5},
    "values of another size": {"head_size": 24},
    "fp8 cache": {"dtype": "bfloat16", "kv_dtype": "fp8_e4m3"},
}
DECODES: dict[str, dict[str, Any]] = {
    "decode": {"seq_lens": (1, 16, 17, 70)},
    "decode, pages of 1": {"seq_lens": (1, 16, 17, 70), "page_size": 1},
    "decode, non-causal": {"seq_lens": (1, 16, 17, 70), "causal": False},
    "decode, window": {"seq_lens": (1, 16, 17, 70), "sliding_window": 5},
    "decode, non-causal window": {"seq_lens": (9, 70), "sliding_window": 5, "causal": False},
    "decode, soft cap": {"seq_lens": (1, 16, 17, 70), "soft_cap": 2.0},
    "decode, fp8 cache": {"seq_lens": (4, 40), "dtype": "bfloat16", "kv_dtype": "fp8_e5m2"},
}
DECODES = {name: {**d, "query_lens": (1,) * len(d["seq_lens"])} for name, d in DECODES.items()}


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("shape", [*MIXED, *DECODES])
@pytest.mark.parametrize("name", ["fa2", "fa3", "attention_sink"])
def test_what_paged_wrappers_are_told_gives_the_reference(
    make_batch: Callable[..., Batch], name: str, shape: str
) -> None:
    changes = (MIXED | DECODES)[shape]
    assert error_of(getattr(adapters, name), make_batch(**changes)) < 1e-6


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("shape", DECODES)
def test_what_the_decode_wrapper_is_told_gives_the_reference(
    make_batch: Callable[..., Batch], shape: str
) -> None:
    assert error_of(adapters.cuda_cores, make_batch(**DECODES[shape])) < 1e-6


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("shape", [n for n in DECODES if not {"cap", "fp8"} & set(n.split())])
@pytest.mark.parametrize("sinks", [False, True])
@pytest.mark.parametrize("name", ["xqa", CUDNN, "trtllm_gen"])
def test_what_decodes_over_a_page_table_are_told_gives_the_reference(
    make_batch: Callable[..., Batch], name: str, shape: str, sinks: bool
) -> None:
    batch = make_batch(**DECODES[shape], sinks=sinks)
    assert error_of(getattr(adapters, name), batch) < 1e-6


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("shape", [n for n in MIXED if not {"cap", "fp8"} & set(n.split())])
@pytest.mark.parametrize("name", [CUDNN, "trtllm_gen", "cutlass"])
def test_what_prefills_over_a_page_table_or_gathered_are_told_gives_the_reference(
    make_batch: Callable[..., Batch], name: str, shape: str
) -> None:
    if name == "trtllm_gen" and "another size" in shape:
        pytest.skip("it has no word for that")
    batch = make_batch(**MIXED[shape], sinks=name != "cutlass")
    assert error_of(getattr(adapters, name), batch) < 1e-6


@pytest.mark.usefixtures("calls")
def test_queries_of_trtllm_are_rounded_to_an_fp8_cache(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch(dtype="bfloat16", kv_dtype="fp8_e4m3")
    assert 1e-3 < error_of(adapters.trtllm_gen, batch) < 0.1


@pytest.mark.parametrize("kv_dtype", ["fp8_e5m2", "float16"])
@pytest.mark.usefixtures("calls")
def test_xqa_is_not_given_a_cache_that_it_would_take_for_another(
    make_batch: Callable[..., Batch], kv_dtype: str
) -> None:
    batch = make_batch(query_lens=(1,), seq_lens=(9,), dtype="bfloat16", kv_dtype=kv_dtype)
    with pytest.raises(RefusedError, match=f"cannot express a {kv_dtype} cache"):
        adapters.xqa.plan(batch, "cpu")


SMALL = MlaShape(kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=12)


@pytest.fixture
def make_latent(make_batch: Callable[..., Batch]) -> Callable[..., Batch]:
    """A batch of MLA on the latent, of mixed lengths."""

    def make(mla: MlaShape = SMALL, **changes: Any) -> Batch:
        heads: dict[str, Any] = {
            "num_kv_heads": 1,
            "head_size": mla.kv_lora_rank + mla.qk_rope_head_dim,
            "v_head_size": mla.kv_lora_rank,
        }
        return make_batch(mla=mla, **heads | changes)

    return make


LATENT: dict[str, dict[str, Any]] = {
    name: changes
    for name, changes in (MIXED | DECODES).items()
    if not {"window", "cap", "sizes", "size", "group"} & set(name.split())
} | {"no rotary part": {"mla": MlaShape(32, 0, 16, 12)}}


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("shape", [n for n in LATENT if "e5m2" not in str(LATENT[n])])
@pytest.mark.parametrize("name", ["mla_fa2", "mla_fa3"])
def test_what_the_mla_wrapper_is_told_gives_the_reference(
    make_latent: Callable[..., Batch], name: str, shape: str
) -> None:
    assert error_of(getattr(adapters, name), make_latent(**LATENT[shape])) < 1e-6


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("page_size", [1, 16, 64, 128])
@pytest.mark.parametrize("name", [CUTLASS, "mla_trtllm_gen"])
def test_what_mla_decodes_are_told_gives_the_reference(
    make_latent: Callable[..., Batch], name: str, page_size: int
) -> None:
    batch = make_latent(query_lens=(1, 1, 1), seq_lens=(1, 64, 200), page_size=page_size)
    assert error_of(getattr(adapters, name), batch) < 1e-6


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("topk", [1, 4, 12, 64])
@pytest.mark.parametrize("lens", [((5, 1, 9, 17), (5, 40, 20, 33)), ((1, 1), (70, 3))])
@pytest.mark.parametrize("name", ["sparse_mla_sm90", "sparse_mla_trtllm_gen"])
def test_what_sparse_mla_is_told_gives_the_reference(
    make_latent: Callable[..., Batch], name: str, lens: Any, topk: int
) -> None:
    batch = make_latent(query_lens=lens[0], seq_lens=lens[1], topk=topk, path="sparse_mqa")
    assert error_of(getattr(adapters, name), batch) < 1e-6


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize("most", [1, 5, 31, 32])
def test_more_sparse_queries_than_one_call_plans_are_several_calls(
    make_latent: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("backends.flashinfer.latents.MOST_QUERIES", most)
    batch = make_latent(
        query_lens=(5, 1, 9, 17), seq_lens=(5, 40, 20, 33), topk=4, path="sparse_mqa"
    )
    assert error_of(adapters.sparse_mla_sm90, batch) < 1e-6


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("mla_trtllm_gen", "mha"),
        ("sparse_mla_trtllm_gen", "dense_mha"),
        ("sparse_mla_sm90", "dense_mha"),
    ],
)
def test_what_dense_prefill_over_expanded_heads_is_told_gives_the_reference(
    make_batch: Callable[..., Batch], name: str, path: str
) -> None:
    batch = make_batch(mla=SMALL, path=path, num_kv_heads=8, head_size=24, v_head_size=12)
    assert error_of(getattr(adapters, name), batch) < 1e-6


@pytest.mark.usefixtures("calls")
def test_there_is_no_dense_prefill_for_12_x_and_no_switch(
    make_batch: Callable[..., Batch],
) -> None:
    batch = make_batch(mla=SMALL, path="dense_mha", num_kv_heads=8, head_size=24, v_head_size=12)
    with pytest.raises(RefusedError, match=r"a dense MHA prefill does not exist for 12\.x$"):
        adapters.sparse_mla_sm120.plan(batch, "cpu")


def test_sparse_mla_on_12_x_takes_packed_bytes_and_slots(
    make_latent: Callable[..., Batch],
    calls: dict[str, list[Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = "flashinfer.mla:trtllm_batch_decode_with_kv_cache_mla"
    monkeypatch.setitem(FUNCTIONS, path, lambda a: a["query"][..., :32])
    batch = make_latent(topk=8, page_size=4, dtype="bfloat16")
    given = make_inputs(batch)
    batch = make_latent(topk=8, page_size=4, dtype="bfloat16", kv_dtype="fp8_ds_mla")
    pages = torch.zeros(len(given.kv.k_pages), 4, 1, 656, dtype=torch.uint8)
    kv = PagedKV(pages, pages, given.kv.page_table, given.kv.seq_lens)
    out = adapters.sparse_mla_sm120.plan(batch, "cpu").run(given.q, kv, indices=given.indices)
    assert out.shape == (32, 8, 32)
    (call,) = calls["trtllm_batch_decode_with_kv_cache_mla"]
    assert call["kv_cache"].shape == (len(pages), 1, 4, 656)
    assert call["seq_lens"] is None
    at = given.indices[5]  # the second request's only query
    slot = given.kv.page_table[1, at // 4] * 4 + at % 4
    assert call["block_tables"][5, 0].tolist() == slot.tolist()
    assert (call["block_tables"].squeeze(1) == -1).equal(given.indices == -1)


@pytest.mark.usefixtures("calls")
def test_sinks_reach_the_wrapper_that_has_them_and_are_asked_of_those_that_ignore_them(
    make_batch: Callable[..., Batch],
) -> None:
    batch = make_batch(sinks=True)
    assert error_of(adapters.attention_sink, batch) < 1e-6
    assert error_of(adapters.fa2, batch) > 0.01


def test_decodes_of_fa2_take_the_decode_wrapper_on_tensor_cores(
    make_batch: Callable[..., Batch], calls: dict[str, list[Any]]
) -> None:
    error_of(adapters.fa2, make_batch(**DECODES["decode"]))
    error_of(adapters.cuda_cores, make_batch(**DECODES["decode"]))
    on_tensor_cores, on_cuda_cores = calls["BatchDecodeWithPagedKVCacheWrapper"]
    assert on_tensor_cores.made["use_tensor_cores"]
    assert on_tensor_cores.made["backend"] == on_cuda_cores.made["backend"] == "fa2"
    assert not on_cuda_cores.made["use_tensor_cores"]
    error_of(adapters.fa3, make_batch(**DECODES["decode"]))
    assert calls["BatchPrefillWithPagedKVCacheWrapper"][0].made["backend"] == "fa3"


@pytest.mark.usefixtures("calls")
def test_a_plan_runs_again_over_other_pages(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch()
    plan = adapters.fa2.plan(batch, "cpu")
    for seed in (1, 2, 1):
        given = make_inputs(batch, seed=seed)
        expected = attend(batch, given.q, given.kv)
        assert relative_error(plan.run(given.q, given.kv), expected) < 1e-6
    table = given.kv.page_table
    other = make_inputs(batch, seed=3)
    table.copy_(other.kv.page_table)  # written in place: another table
    kv = type(other.kv)(other.kv.k_pages, other.kv.v_pages, table, other.kv.seq_lens)
    expected = attend(batch, other.q, other.kv)
    assert relative_error(plan.run(other.q, kv), expected) < 1e-6


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("fa2", {"features": frozenset({"alibi"})}, "alibi"),
        ("fa2", {"causal": False, "sliding_window": 4}, "a window ahead of a query"),
        ("cuda_cores", {"query_lens": (2,), "seq_lens": (9,)}, "several queries a request"),
        ("cuda_cores", {}, "requests of different query_len, several queries a request"),
        (
            "cuda_cores",
            {"query_lens": (1,), "seq_lens": (9,), "v_head_size": 8},
            "v_head_size",
        ),
    ],
)
def test_what_a_call_has_no_words_for_is_refused_by_name(
    make_batch: Callable[..., Batch], name: str, changes: dict[str, Any], said: str
) -> None:
    adapter = getattr(adapters, name)
    with pytest.raises(RefusedError) as caught:
        adapter.plan(make_batch(**changes), "cpu")
    assert str(caught.value) == f"{adapter.name} cannot express {said}"


ALL = [value for value in vars(adapters).values() if isinstance(value, FlashInferAdapter)]


@pytest.mark.parametrize("adapter", ALL, ids=lambda a: a.name)
def test_without_a_device_every_adapter_says_so_in_one_line(
    make_batch: Callable[..., Batch], adapter: Adapter
) -> None:
    with pytest.raises(RefusedError, match=rf"^{adapter.name}(: | cannot ).*$"):
        adapter.plan(make_batch(), "cpu")


# -- compiling -----------------------------------------------------------------------------------


def test_what_does_not_compile_is_not_compiled_again(
    make_batch: Callable[..., Batch], calls: dict[str, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        tried.append(1)
        raise RuntimeError("Ninja build failed.\nx.cuh(1): error: static assertion failed")

    tried: list[int] = []
    monkeypatch.setattr(library, "_uncompilable", {})
    monkeypatch.setattr(emulated.Prefill, "plan", fail)
    adapters.fa2.prepare([make_batch(num_heads=heads) for heads in (2, 4, 6)], "cpu")
    for length in (5, 6):
        with pytest.raises(UncompilableError, match="static assertion"):
            adapters.fa2.plan(make_batch(query_lens=(length,), seq_lens=(9,)), "cpu")
    assert len(tried) == 1
    assert len(calls["BatchPrefillWithPagedKVCacheWrapper"]) == 1


def test_preparing_runs_each_kernel_once_on_little(
    make_batch: Callable[..., Batch], calls: dict[str, list[Any]]
) -> None:
    decode = make_batch(query_lens=(1,), seq_lens=(4000,))
    batches = [decode, make_batch(), make_batch(num_heads=4), make_batch(soft_cap=1.0)]
    batches += [make_batch(features=frozenset({"alibi"}))]  # refused: passed over
    adapters.fa2.prepare(batches, "cpu")
    assert len(calls["BatchPrefillWithPagedKVCacheWrapper"]) == 2
    (one,) = calls["BatchDecodeWithPagedKVCacheWrapper"]
    assert one.seq_lens.tolist() == [4]
    calls.clear()
    grouped = [make_batch(query_lens=(1,), seq_lens=(9,), num_kv_heads=n) for n in (2, 8, 8)]
    adapters.xqa.prepare(grouped, "cpu")
    sizes = {call["query"].shape[1] for call in calls["xqa_batch_decode_with_kv_cache"]}
    assert sizes == {4, 1}


@pytest.mark.usefixtures("calls")
def test_releases_before_0_7_take_mla_tensors_one_by_one(
    make_latent: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "_takes", lambda *_: False)
    taken: dict[str, Any] = {}
    for name in METHODS:
        monkeypatch.setattr(
            emulated.Latents,
            name,
            lambda _, *tensors, name=name, **__: taken.update({name: tensors}),
        )
    batch = make_latent()
    given = make_inputs(batch)
    adapters.mla_fa2.plan(batch, "cpu").run(given.q, given.kv)
    assert [len(tensor) for tensor in taken["plan"]] == [5, 5, 9, 4]
    assert [tensor.shape[-1] for tensor in taken["run"]] == [32, 8, 32, 8]
