"""FlashInfer's calls, computed by torch from the arguments that FlashInfer would get.

Each stands for a class or function of FlashInfer, checks a call against the real one's signature,
and computes attention from indptr, indices and lengths alone, in float64. What an adapter says is
thus tried without a GPU.
"""

from __future__ import annotations

import inspect
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
