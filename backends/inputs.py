"""Random inputs of a batch's shapes, with a cache that punishes a kernel for reading astray."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.contract import Batch, PagedKV, Plan, torch_dtype

if TYPE_CHECKING:
    import torch

__all__ = ["Inputs", "make_inputs", "run_plan"]

STRAY = 100.0
"""What every slot holds that no request owns; finite, since a kernel may weigh it with zero."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """Arguments of :meth:`backends.contract.Plan.run`."""

    q: torch.Tensor
    kv: PagedKV
    sinks: torch.Tensor | None
    indices: torch.Tensor | None = None


def run_plan(plan: Plan, inputs: Inputs) -> torch.Tensor:
    """The output of a plan for inputs; lists of a top-k are given where there are any."""
    given = (inputs.q, inputs.kv, inputs.sinks)
    return plan.run(*given) if inputs.indices is None else plan.run(*given, inputs.indices)


def make_inputs(batch: Batch, device: str = "cpu", seed: int = 0) -> Inputs:
    """Standard-normal queries, keys, values and sinks for a batch; the same for the same seed.

    Pages are dealt out in random order over the whole cache, so neighbours in a sequence are not
    neighbours in memory. Every slot that belongs to no token holds :data:`STRAY`.

    Args:
        batch: the shapes.
        device: where the tensors go; they are drawn on the CPU, so values do not depend on it.
        seed: of the generator.

    Returns:
        ``q`` in the batch's dtype, the cache in its ``cache_dtype``, ``sinks`` in float32. The
        ``indices`` of a sparse batch are drawn from the positions that each query may see, in
        random order; queries that may see fewer than ``topk`` get all of them.

    Raises:
        RefusedError: a dtype is no element type of torch.
    """
    import torch

    draw = torch.Generator().manual_seed(seed)
    dtype, cache_dtype = torch_dtype(batch.dtype), torch_dtype(batch.cache_dtype)
    q = torch.randn(sum(batch.query_lens), batch.num_heads, batch.head_size, generator=draw)
    counts = [-(-seq_len // batch.page_size) for seq_len in batch.seq_lens]
    num_pages = sum(counts) + 2
    order = torch.randperm(num_pages, generator=draw).tolist()
    page_table = torch.full((len(counts), max(counts)), order.pop(), dtype=torch.int32)
    shape = (num_pages, batch.page_size, batch.num_kv_heads)
    k_pages = torch.full((*shape, batch.head_size), STRAY)
    v_pages = (
        k_pages[..., : batch.v_head_size]
        if batch.latent
        else torch.full((*shape, batch.v_head_size), STRAY)
    )
    for request, (count, seq_len) in enumerate(zip(counts, batch.seq_lens, strict=True)):
        for index in range(count):
            page = order.pop()
            page_table[request, index] = page
            filled = min(batch.page_size, seq_len - index * batch.page_size)
            for pages in (k_pages,) if batch.latent else (k_pages, v_pages):
                pages[page, :filled] = torch.randn(pages[page, :filled].shape, generator=draw)
    sinks = torch.randn(batch.num_heads, generator=draw) if batch.sinks else None
    indices = None if batch.topk is None else _draw_indices(batch, batch.topk, draw)
    k_pages = k_pages.to(cache_dtype).to(device)
    return Inputs(
        q.to(dtype).to(device),
        PagedKV(
            k_pages,
            k_pages[..., : batch.v_head_size]
            if batch.latent
            else v_pages.to(cache_dtype).to(device),
            page_table.to(device),
            torch.tensor(batch.seq_lens, dtype=torch.int32, device=device),
        ),
        None if sinks is None else sinks.to(device),
        None if indices is None else indices.to(device),
    )


def _draw_indices(batch: Batch, topk: int, draw: torch.Generator) -> torch.Tensor:
    """For each query, up to ``topk`` positions that it may see, then -1."""
    import torch

    indices = torch.full((sum(batch.query_lens), topk), -1, dtype=torch.int32)
    for rows, seq_len in zip(batch.query_rows(), batch.seq_lens, strict=True):
        for row in range(rows.start, rows.stop):
            seen = seq_len - (rows.stop - 1 - row) if batch.causal else seq_len
            chosen = torch.randperm(seen, generator=draw)[:topk]
            indices[row, : len(chosen)] = chosen
    return indices
