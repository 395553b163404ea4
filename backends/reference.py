"""Attention over a paged KV cache, from the definition, in float64. Slow, and meant to be obvious.

Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.1; sliding window as in Mistral
7B, https://arxiv.org/abs/2310.06825; soft cap as in Gemma 2, https://arxiv.org/abs/2408.00118,
section 2; sinks as in gpt-oss, https://arxiv.org/abs/2508.10925, section 2.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.contract import Batch, PagedKV, RefusedError
from selector.errors import ContradictionError

if TYPE_CHECKING:
    import torch

__all__ = ["attend"]


def attend(
    batch: Batch, q: torch.Tensor, kv: PagedKV, sinks: torch.Tensor | None = None
) -> torch.Tensor:
    """The exact output for these inputs.

    Args:
        batch: the shapes.
        q: ``[sum(query_lens), num_heads, head_size]``, any dtype and device.
        kv: the cache, any dtype and device.
        sinks: ``[num_heads]`` logits, when the batch has sinks.

    Returns:
        float64 ``[sum(query_lens), num_heads, v_head_size]`` on the CPU.

    Raises:
        RefusedError: the batch asks for a feature that has no definition here.
        ContradictionError: the batch has sinks and none are given, or the other way round.
    """
    import torch

    if (sinks is not None) is not batch.sinks:
        raise ContradictionError("sinks are given exactly when the batch has sinks")
    if batch.features:
        raise RefusedError(f"reference has no {', '.join(sorted(batch.features))}")
    out = torch.empty(sum(batch.query_lens), batch.num_heads, batch.v_head_size).double()
    for request, rows in enumerate(batch.query_rows()):
        query_len, seq_len = batch.query_lens[request], batch.seq_lens[request]
        key_at = torch.arange(seq_len)
        query_at = key_at[-query_len:]
        visible = _visible(batch, query_at[:, None], key_at[None, :])
        page = kv.page_table[request].cpu()[key_at // batch.page_size].long()
        slot = key_at % batch.page_size
        for head in range(batch.num_heads):
            kv_head = head // batch.group
            query = q[rows, head].double().cpu()
            key = kv.k_pages.cpu()[page, slot, kv_head].double()
            value = kv.v_pages.cpu()[page, slot, kv_head].double()
            logits = query @ key.T * batch.softmax_scale
            if batch.soft_cap is not None:
                logits = batch.soft_cap * torch.tanh(logits / batch.soft_cap)
            logits = logits.masked_fill(~visible, float("-inf"))
            if sinks is not None:
                sink = sinks[head].double().cpu().expand(query_len, 1)
                logits = torch.cat([logits, sink], dim=1)
                value = torch.cat([value, torch.zeros_like(value[:1])])
            out[rows, head] = torch.softmax(logits, dim=1) @ value
    return out


def _visible(batch: Batch, query_at: torch.Tensor, key_at: torch.Tensor) -> torch.Tensor:
    """Whether the query at a position sees the key at a position."""
    import torch

    seen = torch.ones(query_at.shape[0], key_at.shape[1], dtype=torch.bool)
    if batch.causal:
        seen &= key_at <= query_at
    if batch.sliding_window is not None:
        seen &= (query_at - key_at).abs() < batch.sliding_window
    return seen
