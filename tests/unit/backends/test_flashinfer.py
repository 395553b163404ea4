"""Adapters of FlashInfer against the reference, with FlashInfer's calls computed by torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from backends import flashinfer as adapters
from backends.contract import Adapter, Batch, RefusedError, relative_error
from backends.flashinfer import library
from backends.flashinfer.adapter import FlashInferAdapter
from backends.inputs import make_inputs
from backends.reference import attend
from tests.unit.backends import emulated

torch = pytest.importorskip("torch")
pytest.importorskip("flashinfer")


STAND_INS: dict[str, type] = {
    "flashinfer:BatchPrefillWithPagedKVCacheWrapper": emulated.Prefill,
    "flashinfer:BatchDecodeWithPagedKVCacheWrapper": emulated.Decode,
    "flashinfer.attention:BatchAttentionWithAttentionSinkWrapper": emulated.Sinks,
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Any]]:
    """FlashInfer's calls are computed on the CPU; what was made of each is listed by its name."""
    made: dict[str, list[Any]] = {}
    find = library.find

    def stand_in(who: str, path: str) -> Any:
        found = find(who, path)
        if path not in STAND_INS:
            return found

        def make(*args: Any, **words: Any) -> Any:
            cls = type(STAND_INS[path].__name__, (STAND_INS[path],), {"real": found})
            made.setdefault(path.split(":")[1], []).append(cls(*args, **words))
            return made[path.split(":")[1]][-1]

        return make

    monkeypatch.setattr(library, "find", stand_in)
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
    with pytest.raises(
        RefusedError, match=f"^{adapter.name}: .*on CUDA devices only|^{adapter.name} cannot"
    ):
        adapter.plan(make_batch(), "cpu")
