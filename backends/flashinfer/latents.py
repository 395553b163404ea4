"""``BatchMLAPagedAttentionWrapper``: dense and sparse MLA on the latent, FA2, FA3 and CUTLASS.

FlashInfer has no sparse MLA for 9.0. With pages of one token, though, the slots that a query lists
are its page table, each query is a request of its own, and the mask is in the list: this is how
vLLM's ``FlashInferMLASparseSM90Backend`` runs it, on the same wrapper.

An fp8 cache is read with scales of 1.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from backends.contract import Batch, MlaShape, PagedKV, torch_dtype
from backends.flashinfer import library
from backends.flashinfer.paged import shrink
from backends.flashinfer.pages import Pages, Slots, offsets
from backends.flashinfer.ragged import start_ragged

if TYPE_CHECKING:
    import torch

    from backends.flashinfer.adapter import Launch

__all__ = ["shrink_cutlass", "start_cutlass", "start_fa2", "start_fa3", "start_sparse_fa3"]

WRAPPER = "flashinfer.mla:BatchMLAPagedAttentionWrapper"

MOST_QUERIES = 8192
"""Sparse queries of one call. Each is at least one of the 16,384 pieces of work that the FA kernels
can plan (``_FA_MAX_WORK_ITEMS`` in FlashInfer 0.7.4's ``_fa_common.py``), more if it is split."""


def shrink_cutlass(batch: Batch) -> Batch:
    """The smallest batch for CUTLASS, which has kernels for 128 heads only."""
    return msgspec.structs.replace(
        shrink(batch), num_heads=batch.num_heads, page_size=batch.page_size
    )


def _words(batch: Batch) -> dict[str, Any]:
    """What every ``plan`` of the wrapper is told."""
    shape = _shape(batch)
    return {
        "num_heads": batch.num_heads,
        "head_dim_ckv": shape.kv_lora_rank,
        "head_dim_kpe": shape.qk_rope_head_dim,
        "page_size": batch.page_size,
        "causal": batch.causal,
        "sm_scale": batch.softmax_scale,
        "q_data_type": torch_dtype(batch.dtype),
        "kv_data_type": torch_dtype(batch.cache_dtype),
    }


def _shape(batch: Batch) -> MlaShape:
    assert batch.mla is not None, "the adapter takes latent batches only"
    return batch.mla


def _scales(batch: Batch) -> dict[str, float]:
    """What ``run`` is told of an fp8 cache."""
    if not batch.cache_dtype.startswith("fp8"):
        return {}
    return {"ckv_scale": 1.0, "kpe_scale": 1.0}


def _start(backend: str, name: str, batch: Batch, device: torch.device) -> Launch:
    import torch

    wrapper = library.find(name, WRAPPER)(library.workspace(device), backend=backend)
    pages = Pages.of(batch, device)
    seq_lens = torch.tensor(batch.seq_lens, dtype=torch.int32, device=device)
    library.plan_mla(
        wrapper, "csr", (pages.qo_indptr, pages.indptr, pages.indices, seq_lens), **_words(batch)
    )
    rank, scales = _shape(batch).kv_lora_rank, _scales(batch)

    def launch(
        q: torch.Tensor, kv: PagedKV, _: torch.Tensor | None, __: torch.Tensor | None
    ) -> torch.Tensor:
        pages.fill(kv.page_table)
        return library.run_mla(wrapper, q, kv.k_pages.squeeze(2), rank, **scales)

    return launch


start_fa2 = partial(_start, "fa2")
start_fa3 = partial(_start, "fa3")


def start_sparse_fa3(name: str, batch: Batch, device: torch.device) -> Launch:
    """Each query over its own list of tokens; and dense prefill over expanded heads, ragged."""
    if not batch.latent:
        return start_ragged("fa3", name, batch, device)
    import torch

    slots = Slots.of(batch, device)
    said = _words(batch) | {"page_size": 1, "causal": False}
    planned = []
    for rows, csr in slots.parts(MOST_QUERIES):
        wrapper = library.find(name, WRAPPER)(library.workspace(device), backend="fa3")
        library.plan_mla(wrapper, "csr", csr, **said)
        planned.append((rows, wrapper))
    rank, scales = _shape(batch).kv_lora_rank, _scales(batch)

    def launch(
        q: torch.Tensor, kv: PagedKV, _: torch.Tensor | None, indices: torch.Tensor | None
    ) -> torch.Tensor:
        slots.fill(kv, indices)
        pages = kv.k_pages.flatten(0, 1)  # [slots, 1, head_size]: pages of one token
        outs = [library.run_mla(one, q[rows], pages, rank, **scales) for rows, one in planned]
        return outs[0] if len(outs) == 1 else torch.cat(outs)

    return launch


def start_cutlass(name: str, batch: Batch, device: torch.device) -> Launch:
    """CUTLASS decode; it takes the page table as it is, in whole multiples of 128 tokens."""
    import torch

    wrapper = library.find(name, WRAPPER)(library.workspace(device), backend="cutlass")
    needed = -(-max(batch.seq_lens) // batch.page_size)
    unit = max(1, 128 // batch.page_size)
    width = -(-needed // unit) * unit
    seq_lens = torch.tensor(batch.seq_lens, dtype=torch.int32, device=device)
    table = torch.zeros(len(batch.seq_lens), width, dtype=torch.int32, device=device)
    dense = offsets(batch.query_lens, device), table, seq_lens
    library.plan_mla(wrapper, "dense", dense, **_words(batch))
    rank = _shape(batch).kv_lora_rank

    def launch(
        q: torch.Tensor, kv: PagedKV, _: torch.Tensor | None, __: torch.Tensor | None
    ) -> torch.Tensor:
        table[:, :needed] = kv.page_table[:, :needed]
        pages = kv.k_pages.squeeze(2)
        return library.run_mla(wrapper, q, pages, rank, kv_len=seq_lens, page_table=table)

    return launch
