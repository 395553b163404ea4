"""The wrappers over a paged cache: FA2, FA3, decode on CUDA cores, attention with sinks.

FlashInfer's ``window_left`` is how many tokens a query sees before itself: one less than the
manifest's ``sliding_window``, which counts the query's own token; -1 is no window. It bounds the
past only, so a window without the causal mask cannot be said, unless every query is the last token
of its request.

An fp8 cache is read with scales of 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from backends.contract import Batch, PagedKV, torch_dtype
from backends.flashinfer import library
from backends.flashinfer.pages import Pages

if TYPE_CHECKING:
    import torch

    from backends.flashinfer.adapter import Launch

__all__ = [
    "shrink",
    "start_cuda_cores",
    "start_fa2",
    "start_fa3",
    "start_sinks",
    "window_left",
    "words",
]

PREFILL = "flashinfer:BatchPrefillWithPagedKVCacheWrapper"
DECODE = "flashinfer:BatchDecodeWithPagedKVCacheWrapper"
SINKS = "flashinfer.attention:BatchAttentionWithAttentionSinkWrapper"


def shrink(batch: Batch) -> Batch:
    """The smallest batch that these wrappers compile the same kernel for.

    A kernel is compiled for dtypes, head sizes, and whether there is a window and a soft cap; the
    decode on CUDA cores holds all group sizes that it has.
    """
    query_len = min(2, max(batch.query_lens))
    return msgspec.structs.replace(
        batch,
        query_lens=(query_len,),
        seq_lens=(4,),
        num_heads=1,
        num_kv_heads=1,
        page_size=16,
        sliding_window=None if batch.sliding_window is None else 2,
        scale=None,
    )


def window_left(batch: Batch) -> int:
    """FlashInfer's word for a batch's window."""
    return -1 if batch.sliding_window is None else batch.sliding_window - 1


def words(batch: Batch) -> dict[str, Any]:
    """What every ``plan`` of these wrappers is told."""
    return {
        "window_left": window_left(batch),
        "logits_soft_cap": batch.soft_cap,
        "sm_scale": batch.softmax_scale,
        "q_data_type": torch_dtype(batch.dtype),
        "kv_data_type": torch_dtype(batch.cache_dtype),
    }


def start_fa2(name: str, batch: Batch, device: torch.device) -> Launch:
    """FA2: the prefill wrapper, and for one query a request the decode wrapper's tensor cores."""
    if max(batch.query_lens) == 1 and batch.v_head_size == batch.head_size:
        return _plan_decode(name, batch, device, use_tensor_cores=True)
    return _plan_prefill(name, "fa2", batch, device)


def start_fa3(name: str, batch: Batch, device: torch.device) -> Launch:
    """FA3: the prefill wrapper, whatever the number of queries."""
    return _plan_prefill(name, "fa3", batch, device)


def start_cuda_cores(name: str, batch: Batch, device: torch.device) -> Launch:
    """The decode wrapper on CUDA cores."""
    return _plan_decode(name, batch, device, use_tensor_cores=False)


def start_sinks(name: str, batch: Batch, device: torch.device) -> Launch:
    """FA2 with sinks; a batch without them has sinks of no weight."""
    import torch

    wrapper = library.find(name, SINKS)(
        library.workspace(device),
        "NHD",
        backend="fa2",
        q_data_type=torch_dtype(batch.dtype),
        kv_data_type=torch_dtype(batch.cache_dtype),
        head_dim_qk=batch.head_size,
        head_dim_vo=batch.v_head_size,
        window_left=window_left(batch),
    )
    pages = Pages.of(batch, device)
    _plan_paged(wrapper, batch, pages)
    none = torch.full((batch.num_heads,), float("-inf"), device=device)

    def launch(
        q: torch.Tensor, kv: PagedKV, sinks: torch.Tensor | None, _: torch.Tensor | None
    ) -> torch.Tensor:
        pages.fill(kv.page_table)
        logits = none if sinks is None else sinks
        out: torch.Tensor = wrapper.run(q, (kv.k_pages, kv.v_pages), logits, batch.softmax_scale)
        return out

    return launch


def _plan_prefill(name: str, backend: str, batch: Batch, device: torch.device) -> Launch:
    wrapper = library.find(name, PREFILL)(library.workspace(device), "NHD", backend=backend)
    pages = Pages.of(batch, device)
    _plan_paged(wrapper, batch, pages)
    return _launch(wrapper, pages)


def _plan_paged(wrapper: Any, batch: Batch, pages: Pages) -> None:
    """``plan`` of the prefill wrapper and of what is derived from it."""
    wrapper.plan(
        pages.qo_indptr,
        pages.indptr,
        pages.indices,
        pages.last_page_len,
        batch.num_heads,
        batch.num_kv_heads,
        batch.head_size,
        batch.page_size,
        head_dim_vo=batch.v_head_size,
        causal=batch.causal,
        **words(batch),
    )


def _plan_decode(
    name: str, batch: Batch, device: torch.device, *, use_tensor_cores: bool
) -> Launch:
    wrapper = library.find(name, DECODE)(
        library.workspace(device), "NHD", use_tensor_cores=use_tensor_cores, backend="fa2"
    )
    pages = Pages.of(batch, device)
    wrapper.plan(
        pages.indptr,
        pages.indices,
        pages.last_page_len,
        batch.num_heads,
        batch.num_kv_heads,
        batch.head_size,
        batch.page_size,
        **words(batch),
    )
    return _launch(wrapper, pages)


def _launch(wrapper: Any, pages: Pages) -> Launch:
    """Runs a planned wrapper. Sinks are handed on, though these wrappers may ignore them."""

    def launch(
        q: torch.Tensor, kv: PagedKV, sinks: torch.Tensor | None, _: torch.Tensor | None
    ) -> torch.Tensor:
        pages.fill(kv.page_table)
        asked = {} if sinks is None else {"sinks": sinks}
        out: torch.Tensor = wrapper.run(q, (kv.k_pages, kv.v_pages), **asked)
        return out

    return launch
