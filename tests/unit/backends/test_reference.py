from collections.abc import Callable
from math import exp, tanh
from typing import Any

import pytest

from backends import reference
from backends.contract import Batch, MlaShape, PagedKV, RefusedError
from backends.inputs import make_inputs
from backends.reference import attend
from selector.errors import ContradictionError

torch = pytest.importorskip("torch")


def small(**changes: Any) -> Batch:
    base: dict[str, Any] = {
        "query_lens": (2,),
        "seq_lens": (4,),
        "num_heads": 1,
        "num_kv_heads": 1,
        "head_size": 1,
        "v_head_size": 1,
        "page_size": 2,
        "dtype": "float32",
    }
    return Batch(**(base | changes))


def cache(keys: list[float], values: list[float]) -> PagedKV:
    """Four tokens of one head in two pages of two, the second page first."""
    pages = [torch.tensor(x).view(2, 2, 1, 1).flip(0) for x in (keys, values)]
    table = torch.tensor([[1, 0]], dtype=torch.int32)
    return PagedKV(*pages, table, torch.tensor([4], dtype=torch.int32))


# With queries of zero every visible key weighs the same: the output is the mean of their values.
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [(1 + 2 + 4) / 3, (1 + 2 + 4 + 8) / 4]),
        ({"query_lens": (1,)}, [15 / 4]),
        ({"query_lens": (4,)}, [1, 3 / 2, 7 / 3, 15 / 4]),
        ({"causal": False}, [15 / 4, 15 / 4]),
        ({"sliding_window": 1}, [4, 8]),
        ({"sliding_window": 2}, [3, 6]),
        ({"sliding_window": 3}, [7 / 3, 14 / 3]),
        ({"sliding_window": 4}, [7 / 3, 15 / 4]),
        ({"sliding_window": 2, "causal": False}, [14 / 3, 6]),
    ],
)
def test_queries_see_what_they_should(changes: dict[str, Any], expected: list[float]) -> None:
    batch = small(**changes)
    q = torch.zeros(batch.query_lens[0], 1, 1)
    out = attend(batch, q, cache([3.0, -1.0, 2.0, 5.0], [1.0, 2.0, 4.0, 8.0]))
    assert out.dtype == torch.float64
    assert out.flatten().tolist() == pytest.approx(expected)


def test_sinks_take_weight_and_give_nothing() -> None:
    batch = small(sinks=True)
    kv = cache([0.0] * 4, [1.0, 2.0, 4.0, 8.0])
    out = attend(batch, torch.zeros(2, 1, 1), kv, torch.tensor([0.0]))
    assert out.flatten().tolist() == pytest.approx([7 / 4, 15 / 5])


@pytest.mark.parametrize("cap", [None, 3.0])
def test_scale_and_soft_cap_by_hand(cap: float | None) -> None:
    batch = small(query_lens=(1,), scale=0.5, soft_cap=cap)
    keys, values = [1.0, 2.0, -3.0, 4.0], [1.0, 2.0, 4.0, 8.0]
    logits = [2.0 * key * 0.5 for key in keys]
    if cap:
        logits = [cap * tanh(logit / cap) for logit in logits]
    weights = [exp(logit) for logit in logits]
    expected = sum(w * v for w, v in zip(weights, values, strict=True)) / sum(weights)
    out = attend(batch, torch.full((1, 1, 1), 2.0), cache(keys, values))
    assert out.item() == pytest.approx(expected)


def test_neighbouring_query_heads_share_a_kv_head() -> None:
    batch = small(query_lens=(1,), seq_lens=(1,), num_heads=6, num_kv_heads=2, page_size=1)
    pages = torch.tensor([10.0, 20.0]).view(1, 1, 2, 1)
    kv = PagedKV(pages, pages, torch.zeros(1, 1, dtype=torch.int32), torch.ones(1).int())
    out = attend(batch, torch.zeros(1, 6, 1), kv)
    assert out.flatten().tolist() == [10, 10, 10, 20, 20, 20]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("v_head_size", [16, 24])
def test_agrees_with_torch_in_float64(
    make_batch: Callable[..., Batch], causal: bool, v_head_size: int
) -> None:
    batch = make_batch(causal=causal, v_head_size=v_head_size)
    inputs = make_inputs(batch)
    out = attend(batch, inputs.q, inputs.kv)
    assert out.shape == (32, 8, v_head_size)
    for request, rows in enumerate(batch.query_rows()):
        query_len, seq_len = batch.query_lens[request], batch.seq_lens[request]
        pages = inputs.kv.page_table[request, : -(-seq_len // 16)]
        k, v = (
            pool[pages].reshape(-1, 2, pool.shape[-1])[:seq_len].double().transpose(0, 1)[None]
            for pool in (inputs.kv.k_pages, inputs.kv.v_pages)
        )
        mask = torch.ones(query_len, seq_len).tril(seq_len - query_len).bool() if causal else None
        expected = torch.nn.functional.scaled_dot_product_attention(
            inputs.q[rows].double().transpose(0, 1)[None], k, v, attn_mask=mask, enable_gqa=True
        )
        torch.testing.assert_close(out[rows], expected[0].transpose(0, 1))


def test_only_listed_positions_that_a_query_may_see_have_weight() -> None:
    batch = small(topk=3)
    kv = cache([0.0] * 4, [1.0, 2.0, 4.0, 8.0])
    indices = torch.tensor([[3, 0, 2], [1, 3, -1]], dtype=torch.int32)
    out = attend(batch, torch.zeros(2, 1, 1), kv, indices=indices)
    assert out.flatten().tolist() == [(1 + 4) / 2, (2 + 8) / 2]  # the first query is at 2
    with pytest.raises(ContradictionError, match="topk"):
        attend(batch, torch.zeros(2, 1, 1), kv)


def test_heads_of_a_latent_share_its_keys_and_values(make_batch: Callable[..., Batch]) -> None:
    """Attention on the latent is attention over K and V expanded from it."""
    mla = MlaShape(kv_lora_rank=6, qk_rope_head_dim=2, qk_nope_head_dim=5, v_head_dim=3)
    latent = make_batch(mla=mla, num_kv_heads=1, head_size=8, v_head_size=6, page_size=7)
    given = make_inputs(latent)
    draw = torch.Generator().manual_seed(1)
    up_k = torch.randn(8, 5, 6, generator=draw).double()
    up_v = torch.randn(8, 6, 3, generator=draw).double()
    q_nope = torch.randn(32, 8, 5, generator=draw).double()
    q_rope = given.q[..., 6:].double()
    q = torch.cat([torch.einsum("thn,hnr->thr", q_nope, up_k), q_rope], -1)
    on_latent = torch.einsum("thr,hrv->thv", attend(latent, q, given.kv), up_v)
    pages = given.kv.k_pages.double().squeeze(2)
    k = torch.einsum("hnr,psr->pshn", up_k, pages[..., :6])
    k = torch.cat([k, pages[:, :, None, 6:].expand(-1, -1, 8, -1)], -1)
    v = torch.einsum("psr,hrv->pshv", pages[..., :6], up_v)
    expanded = make_batch(
        mla=mla, path="mha", num_kv_heads=8, head_size=7, v_head_size=3, page_size=7
    )
    kv = PagedKV(k, v, given.kv.page_table, given.kv.seq_lens)
    out = attend(expanded, torch.cat([q_nope, q_rope], -1), kv)
    torch.testing.assert_close(on_latent, out)


@pytest.mark.parametrize("changes", [{}, {"sinks": True}, {"topk": 5}, {"sliding_window": 6}])
def test_queries_taken_a_few_at_a_time_give_the_same(
    make_batch: Callable[..., Batch], monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    batch = make_batch(**changes)
    given = make_inputs(batch)
    words = {"sinks": given.sinks, "indices": given.indices}
    whole = attend(batch, given.q, given.kv, **words)
    monkeypatch.setattr(reference, "LOGITS", 4 * 33 * 3)
    torch.testing.assert_close(attend(batch, given.q, given.kv, **words), whole)


def test_what_has_no_definition_is_refused(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch(features=frozenset({"alibi", "mla"}))
    with pytest.raises(RefusedError, match="alibi, mla"):
        attend(batch, *_arguments(batch))


def test_sinks_must_match_the_batch(make_batch: Callable[..., Batch]) -> None:
    batch = make_batch()
    with pytest.raises(ContradictionError, match="sinks"):
        attend(batch, *_arguments(batch), torch.zeros(8))


def _arguments(batch: Batch) -> tuple[Any, PagedKV]:
    inputs = make_inputs(batch)
    return inputs.q, inputs.kv
