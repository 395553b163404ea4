"""Attention over a paged KV cache, from the definition, in float64. Slow, and meant to be obvious.

Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.1; sliding window as in Mistral
7B, https://arxiv.org/abs/2310.06825; soft cap as in Gemma 2, https://arxiv.org/abs/2408.00118,
section 2; sinks as in gpt-oss, https://arxiv.org/abs/2508.10925, section 2.2; the latent of MLA as
in DeepSeek-V2, https://arxiv.org/abs/2405.04434, section 2.1; the top-k positions of a query as in
DeepSeek-V3.2, https://arxiv.org/abs/2512.02556, section 2.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.contract import Batch, PagedKV, RefusedError
from selector.errors import ContradictionError

if TYPE_CHECKING:
    import torch

__all__ = ["attend"]

LOGITS = 1 << 27
"""How many logits are held at a time, over heads and queries: 1 GiB of them."""


def attend(
    batch: Batch,
    q: torch.Tensor,
    kv: PagedKV,
    sinks: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
) -> torch.Tensor:
    """The exact output for these inputs, computed on the device of ``q``.

    Args:
        batch: the shapes.
        q: ``[sum(query_lens), num_heads, head_size]``, any dtype and device.
        kv: the cache, any dtype and device.
        sinks: ``[num_heads]`` logits, when the batch has sinks.
        indices: ``[sum(query_lens), topk]`` positions, when the batch has a top-k.

    Returns:
        float64 ``[sum(query_lens), num_heads, v_head_size]`` on the CPU.

    Raises:
        RefusedError: the batch asks for a feature that has no definition here.
        ContradictionError: the batch has sinks or a top-k and none are given, or the other way
            round.
    """
    import torch

    if (sinks is not None) is not batch.sinks:
        raise ContradictionError("sinks are given exactly when the batch has sinks")
    if (indices is not None) is not (batch.topk is not None):
        raise ContradictionError("indices are given exactly when the batch has a topk")
    if batch.features:
        raise RefusedError(f"reference has no {', '.join(sorted(batch.features))}")
    out = torch.empty(sum(batch.query_lens), batch.num_heads, batch.v_head_size).double()
    for request, rows in enumerate(batch.query_rows()):
        query_len, seq_len = batch.query_lens[request], batch.seq_lens[request]
        key_at = torch.arange(seq_len, device=q.device)
        page = kv.page_table[request].to(q.device)[key_at // batch.page_size].long()
        slot = key_at % batch.page_size
        keys = kv.k_pages.to(q.device)[page, slot].double()
        values = kv.v_pages.to(q.device)[page, slot].double()
        step = max(1, min(query_len, LOGITS // (seq_len * batch.group)))
        for first in range(0, query_len, step):
            query_at = key_at[-query_len:][first : first + step]
            some = slice(rows.start + first, rows.start + first + len(query_at))
            visible = _visible(batch, query_at[:, None], key_at[None, :])
            if indices is not None:
                visible &= _listed(indices[some].to(q.device), seq_len)
            for kv_head in range(batch.num_kv_heads):
                heads = slice(kv_head * batch.group, (kv_head + 1) * batch.group)
                query = q[some, heads].double().transpose(0, 1)
                sink = None if sinks is None else sinks[heads].to(q.device).double()
                one = _weigh(batch, query @ keys[:, kv_head].T, visible, sink) @ values[:, kv_head]
                out[some, heads] = one.transpose(0, 1).cpu()
    return out


def _weigh(
    batch: Batch, products: torch.Tensor, visible: torch.Tensor, sink: torch.Tensor | None
) -> torch.Tensor:
    """Weights of the keys ``[heads, queries, keys]``, from query · key of the same shape."""
    import torch

    logits = products * batch.softmax_scale
    if batch.soft_cap is not None:
        logits = batch.soft_cap * torch.tanh(logits / batch.soft_cap)
    logits = logits.masked_fill(~visible, float("-inf"))
    if sink is None:
        return torch.softmax(logits, dim=-1)
    column = sink[:, None, None].expand(*logits.shape[:2], 1)
    return torch.softmax(torch.cat([logits, column], dim=-1), dim=-1)[..., :-1]


def _visible(batch: Batch, query_at: torch.Tensor, key_at: torch.Tensor) -> torch.Tensor:
    """Whether the query at a position sees the key at a position."""
    import torch

    shape = query_at.shape[0], key_at.shape[1]
    seen = torch.ones(shape, dtype=torch.bool, device=key_at.device)
    if batch.causal:
        seen &= key_at <= query_at
    if batch.sliding_window is not None:
        seen &= (query_at - key_at).abs() < batch.sliding_window
    return seen


def _listed(indices: torch.Tensor, seq_len: int) -> torch.Tensor:
    """Whether the list of a query ``[queries, topk]`` names a key: ``[queries, seq_len]``."""
    import torch

    named = torch.zeros(len(indices), seq_len + 1, dtype=torch.bool, device=indices.device)
    named.scatter_(1, indices.long().where(indices >= 0, seq_len), True)
    return named[:, :seq_len]
