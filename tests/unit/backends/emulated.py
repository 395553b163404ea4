"""FlashInfer's calls, computed by torch from the arguments that FlashInfer would get.

Each stands for a class or function of FlashInfer, checks a call against the real one's signature,
and computes attention from indptr, indices and lengths alone, in float64. What an adapter says is
thus tried without a GPU.
"""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import torch

INT32 = torch.int32


def bind(function: Any, *args: Any, **words: Any) -> dict[str, Any]:
    """The arguments of a call by name, with the real function's defaults."""
    bound = inspect.signature(function).bind(*args, **words)
    bound.apply_defaults()
    return {k: v for k, v in bound.arguments.items() if k != "self"}


def check(tensor: Any, dtype: torch.dtype, *shape: int) -> Any:
    assert isinstance(tensor, torch.Tensor)
    assert tensor.dtype == dtype, (tensor.dtype, dtype)
    assert tuple(tensor.shape) == shape, (tuple(tensor.shape), shape)
    assert tensor.is_contiguous()
    return tensor


def attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    scale: float,
    causal: bool,
    window_left: int = -1,
    soft_cap: float = 0.0,
    sinks: Any = None,
) -> Any:
    """One request: ``[queries, heads, size]`` over ``[keys, kv_heads, size]``."""
    group = q.shape[1] // k.shape[1]
    k, v = (part.double().repeat_interleave(group, dim=1) for part in (k, v))
    logits = torch.einsum("qhd,khd->hqk", q.double(), k) * scale
    if soft_cap:
        logits = soft_cap * torch.tanh(logits / soft_cap)
    query_at = torch.arange(len(k) - len(q), len(k))[:, None]
    key_at = torch.arange(len(k))[None]
    seen = torch.ones(len(q), len(k), dtype=torch.bool)
    if causal:
        seen &= key_at <= query_at
    if window_left >= 0:
        seen &= key_at >= query_at - window_left
    logits = logits.masked_fill(~seen, float("-inf"))
    if sinks is not None:
        column = sinks.double()[:, None, None].expand(-1, len(q), 1)
        weights = torch.cat([logits, column], -1).softmax(-1)[..., :-1]
    else:
        weights = logits.softmax(-1)
    return torch.einsum("hqk,khd->qhd", weights, v)


def gather(pages: Any, indices: Any, length: int) -> Any:
    """The first tokens of some pages."""
    return pages[indices.long()].flatten(0, 1)[:length]


class Paged:
    """What the paged wrappers have in common."""

    real: Any = None

    def __init__(self, *args: Any, **words: Any) -> None:
        self.made = bind(self.real.__init__, None, *args, **words)
        check(self.made["float_workspace_buffer"], torch.uint8, 1024)
        assert self.made["kv_layout"] == "NHD"
        assert not self.made["use_cuda_graph"]

    def _check_pages(self, a: dict[str, Any], prefix: str) -> None:
        requests = len(a[f"{prefix}last_page_len"])
        check(a[f"{prefix}last_page_len"], INT32, requests)
        check(a[f"{prefix}indptr"], INT32, requests + 1)
        check(a[f"{prefix}indices"], INT32, int(a[f"{prefix}indptr"][-1]))
        self.indptr, self.indices = a[f"{prefix}indptr"], a[f"{prefix}indices"]
        last = a[f"{prefix}last_page_len"]
        assert ((last >= 1) & (last <= a["page_size"])).all()
        self.seq_lens = (self.indptr.diff() - 1) * a["page_size"] + last
        self.planned = a

    def _attend(self, q: Any, cache: Any, qo_indptr: Any, sinks: Any, causal: bool) -> Any:
        a = self.planned
        size_v = a.get("head_dim_vo") or a.get("head_dim_qk") or a["head_dim"]
        size_k = a.get("head_dim_qk") or a["head_dim"]
        assert q.dtype == a["q_data_type"]
        for pages, size in zip(cache, (size_k, size_v), strict=True):
            assert pages.dtype == a["kv_data_type"]
            assert pages.shape[1:] == (a["page_size"], a["num_kv_heads"], size)
        assert q.shape == (int(qo_indptr[-1]), a["num_qo_heads"], size_k)
        out = torch.empty(*q.shape[:2], size_v, dtype=torch.float64)
        for i, length in enumerate(self.seq_lens.tolist()):
            rows = slice(int(qo_indptr[i]), int(qo_indptr[i + 1]))
            own = self.indices[int(self.indptr[i]) : int(self.indptr[i + 1])]
            k, v = (gather(pages, own, length) for pages in cache)
            out[rows] = attention(
                q[rows],
                k,
                v,
                scale=a["sm_scale"],
                causal=causal,
                window_left=a["window_left"],
                soft_cap=a["logits_soft_cap"] or 0.0,
                sinks=sinks,
            )
        return out


class Prefill(Paged):
    """``BatchPrefillWithPagedKVCacheWrapper``; it ignores sinks, as the real one does."""

    def plan(self, *args: Any, **words: Any) -> None:
        a = bind(self.real.plan, None, *args, **words)
        self._check_pages(a, "paged_kv_")
        check(a["qo_indptr"], INT32, len(self.seq_lens) + 1)

    def run(self, *args: Any, **words: Any) -> Any:
        a = bind(self.real.run, None, *args, **words)
        assert not a["args"]
        planned = self.planned
        return self._attend(
            a["q"], a["paged_kv_cache"], planned["qo_indptr"], None, planned["causal"]
        )


class Sinks(Prefill):
    """``BatchAttentionWithAttentionSinkWrapper``: sinks and the scale are given to ``run``."""

    def plan(self, *args: Any, **words: Any) -> None:
        super().plan(*args, **words)
        made, a = self.made, self.planned
        for name in ("q_data_type", "kv_data_type", "head_dim_qk", "head_dim_vo"):
            assert made[name] == a[name], name
        assert (made["window_left"] >= 0) == (a["window_left"] >= 0)
        assert made["backend"] == "fa2"

    def run(self, *args: Any, **words: Any) -> Any:
        a = bind(self.real.run, None, *args, **words)
        sinks, scale = a["args"]
        check(sinks, torch.float32, self.planned["num_qo_heads"])
        assert scale == self.planned["sm_scale"]
        planned = self.planned
        return self._attend(
            a["q"], a["paged_kv_cache"], planned["qo_indptr"], sinks, planned["causal"]
        )


class Decode(Paged):
    """``BatchDecodeWithPagedKVCacheWrapper``: the last token of each request."""

    def plan(self, *args: Any, **words: Any) -> None:
        a = bind(self.real.plan, None, *args, **words)
        assert not a.pop("deprecated_positional_args", None)
        words = a.pop("kwargs", {})
        if words:
            hidden = bind(self.real._plan_impl, None, *args, **words)
            a = {**hidden, **words}
        self._check_pages(a, "")

    def run(self, *args: Any, **words: Any) -> Any:
        a = bind(self.real.run, None, *args, **words)
        assert not a["args"]
        starts = torch.arange(len(self.seq_lens) + 1)
        return self._attend(a["q"], a["paged_kv_cache"], starts, None, causal=False)


class Ragged:
    """``BatchPrefillWithRaggedKVCacheWrapper``."""

    real: Any = None

    def __init__(self, *args: Any, **words: Any) -> None:
        self.made = bind(self.real.__init__, None, *args, **words)
        assert self.made["kv_layout"] == "NHD"

    def plan(self, *args: Any, **words: Any) -> None:
        a = self.planned = bind(self.real.plan, None, *args, **words)
        for name in ("qo_indptr", "kv_indptr"):
            check(a[name], INT32, len(a["qo_indptr"]))

    def run(self, *args: Any, **words: Any) -> Any:
        a, p = bind(self.real.run, None, *args, **words), self.planned
        q, k, v = a["q"], a["k"], a["v"]
        assert not a["args"]
        tokens = int(p["kv_indptr"][-1])
        check(k, p["kv_data_type"], tokens, p["num_kv_heads"], p["head_dim_qk"])
        check(v, p["kv_data_type"], tokens, p["num_kv_heads"], p["head_dim_vo"])
        parts = []
        for i in range(len(p["qo_indptr"]) - 1):
            rows = slice(int(p["qo_indptr"][i]), int(p["qo_indptr"][i + 1]))
            keys = slice(int(p["kv_indptr"][i]), int(p["kv_indptr"][i + 1]))
            parts.append(
                attention(
                    q[rows],
                    k[keys],
                    v[keys],
                    scale=p["sm_scale"],
                    causal=p["causal"],
                    window_left=p["window_left"],
                    soft_cap=p["logits_soft_cap"] or 0.0,
                )
            )
        return torch.cat(parts)


class Latents:
    """``BatchMLAPagedAttentionWrapper``; releases before 0.7 take tensors one by one."""

    real: Any = None

    def __init__(self, *args: Any, **words: Any) -> None:
        self.made = bind(self.real.__init__, None, *args, **words)

    def plan(self, *args: Any, **words: Any) -> None:
        a = self.planned = bind(self.real.plan, None, *args, **words)
        m = self.metadata = a.get("metadata") or SimpleNamespace(**a)
        if m.qo_indptr is not None:
            requests = len(m.kv_len_arr)
            check(m.kv_len_arr, INT32, requests)
            check(m.qo_indptr, INT32, requests + 1)
            check(m.kv_indptr, INT32, requests + 1)
            check(m.kv_indices, INT32, int(m.kv_indptr[-1]))
            self.lens, self.starts = m.kv_len_arr, m.qo_indptr
        else:
            self.lens, self.starts = m.seq_lens, m.cum_seq_lens_q
            assert m.block_tables.shape[1] * a["page_size"] % 128 == 0

    def run(self, *args: Any, **words: Any) -> Any:
        a, p, m = bind(self.real.run, None, *args, **words), self.planned, self.metadata
        rank = p["head_dim_ckv"]
        query, kv_cache = a.get("query"), a.get("kv_cache")
        if query is None:
            query = torch.cat([a["q_nope"], a["q_pe"]], -1)
            kv_cache = torch.cat([a["ckv_cache"], a["kpe_cache"]], -1)
        width = rank + p["head_dim_kpe"]
        assert query.dtype == p["q_data_type"]
        assert query.shape == (int(self.starts[-1]), p["num_heads"], width)
        assert kv_cache.dtype == p["kv_data_type"]
        assert kv_cache.shape[1:] == (p["page_size"], width)
        fp8 = kv_cache.dtype == torch.float8_e4m3fn
        assert (a.get("ckv_scale") == a.get("kpe_scale") == 1.0) is fp8
        parts = []
        for i, length in enumerate(self.lens.tolist()):
            if m.kv_indices is not None:
                pages = m.kv_indices[int(m.kv_indptr[i]) : int(m.kv_indptr[i + 1])]
            else:
                pages = a["page_table"][i]
            keys = gather(kv_cache, pages, length)[:, None]
            q = query[int(self.starts[i]) : int(self.starts[i + 1])]
            parts.append(
                attention(q, keys, keys[..., :rank], scale=p["sm_scale"], causal=p["causal"])
            )
        return torch.cat(parts)


def by_table(
    q: Any, k_pages: Any, v_pages: Any, table: Any, lens: Any, query_lens: Any, **words: Any
) -> Any:
    """Attention of requests one after another, over the pages in the rows of a table."""
    assert table.dtype == INT32
    parts, start = [], 0
    for i, length in enumerate(lens.flatten().tolist()):
        rows = q[start : start + query_lens[i]]
        start += query_lens[i]
        needed = table[i, : -(-length // k_pages.shape[1])]
        k, v = (gather(pages, needed, length) for pages in (k_pages, v_pages))
        parts.append(attention(rows, k, v, **words))
    return torch.cat(parts)


def xqa(a: dict[str, Any]) -> Any:
    """``xqa_batch_decode_with_kv_cache``: one query a request."""
    assert a["kv_layout"] == "NHD"
    assert a["q_len_per_req"] == 1
    k, v = a["kv_cache"]
    return by_table(
        a["query"],
        k,
        v,
        a["block_tables"],
        a["seq_lens"],
        [1] * len(a["query"]),
        scale=a["bmm1_scale"] * a["bmm2_scale"],
        causal=True,
        window_left=a["window_left"],
        sinks=a["sinks"],
    )


def cudnn_decode(a: dict[str, Any]) -> Any:
    """``cudnn_batch_decode_with_kv_cache``: heads before tokens."""
    return by_table(
        a["q"],
        a["k_cache"].transpose(1, 2),
        a["v_cache"].transpose(1, 2),
        a["block_tables"],
        a["actual_seq_lens_kv"],
        [1] * len(a["q"]),
        scale=a["scale"],
        causal=True,
        window_left=a["window_left"],
        sinks=a["sinks"],
    )


def cudnn_prefill(a: dict[str, Any]) -> Any:
    """``cudnn_batch_prefill_with_kv_cache``."""
    assert a["batch_offsets_units"] == "tokens"
    query_lens = a["actual_seq_lens_q"].flatten().tolist()
    assert a["batch_offsets_q"].diff().tolist() == query_lens
    assert a["max_token_per_sequence"] == max(query_lens)
    out = by_table(
        a["q"],
        a["k_cache"].transpose(1, 2),
        a["v_cache"].transpose(1, 2),
        a["block_tables"],
        a["actual_seq_lens_kv"],
        query_lens,
        scale=a["scale"],
        causal=a["causal"],
        window_left=-1 if a["window_left"] is None else a["window_left"],
        sinks=a["sinks"],
    )
    return out, None


def trtllm(a: dict[str, Any]) -> Any:
    """``trtllm_batch_context_with_kv_cache`` and ``trtllm_batch_decode_with_kv_cache``."""
    assert a["kv_layout"] == "NHD"
    k, v = a["kv_cache"]
    assert a["query"].dtype == k.dtype
    starts = a.get("cum_seq_lens_q")
    query_lens = [1] * len(a["query"]) if starts is None else starts.diff().tolist()
    return by_table(
        a["query"],
        k,
        v,
        a["block_tables"],
        a["seq_lens"],
        query_lens,
        scale=a["bmm1_scale"] * a["bmm2_scale"],
        causal=a.get("causal", True),
        window_left=a["window_left"],
        sinks=a["sinks"],
    ).to(a["out_dtype"])


def trtllm_mla(a: dict[str, Any]) -> Any:
    """``trtllm_batch_decode_with_kv_cache_mla``: a table of pages, or of slots for each query."""
    q, cache, table, rank = a["query"], a["kv_cache"], a["block_tables"], a["kv_lora_rank"]
    assert cache.shape[1] == 1
    assert q.shape[-1] == rank + a["qk_rope_head_dim"]
    cache = cache.squeeze(1)[:, :, None]
    scale = a["bmm1_scale"] * a["bmm2_scale"]
    if not a["sparse_mla_top_k"]:
        lens = [q.shape[1]] * len(q)
        out = by_table(
            q.flatten(0, 1),
            cache,
            cache[..., :rank],
            table,
            a["seq_lens"],
            lens,
            scale=scale,
            causal=True,
        )
        return out.unflatten(0, q.shape[:2])
    assert table.shape == (len(q), 1, a["sparse_mla_top_k"])
    slots = cache.flatten(0, 1)
    parts = []
    for i in range(len(q)):
        own = table[i, 0, : int(a["seq_lens"][i])].long()
        assert (own >= 0).all()
        keys = slots[own]
        parts.append(attention(q[i], keys, keys[..., :rank], scale=scale, causal=False))
    return torch.stack(parts)


def deepseek(a: dict[str, Any]) -> Any:
    """``trtllm_ragged_attention_deepseek``."""
    starts, rows = a["cum_seq_lens_q"].tolist(), a["cum_seq_lens_kv"].tolist()
    return torch.cat(
        [
            attention(
                a["query"][starts[i] : starts[i + 1]],
                a["key"][rows[i] : rows[i + 1]],
                a["value"][rows[i] : rows[i + 1]],
                scale=a["bmm1_scale"] * a["bmm2_scale"],
                causal=a["is_causal"],
            )
            for i in range(a["batch_size"])
        ]
    )
