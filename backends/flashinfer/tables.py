"""Functions that take the page table as it is, and plan nothing: XQA, cuDNN, TensorRT-LLM.

The kernels of TensorRT-LLM want queries and an fp8 cache of one dtype, so queries are rounded to
the cache's; scales are 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from backends.contract import Batch, PagedKV, RefusedError
from backends.flashinfer import library
from backends.flashinfer.paged import shrink, window_left
from backends.flashinfer.pages import Slots, find_slots, offsets
from backends.flashinfer.ragged import start_deepseek

if TYPE_CHECKING:
    import torch

    from backends.flashinfer.adapter import Launch

__all__ = [
    "shrink_xqa",
    "start_cudnn",
    "start_mla_trtllm_gen",
    "start_sparse_sm120",
    "start_sparse_trtllm_gen",
    "start_trtllm_gen",
    "start_xqa",
]

XQA = "flashinfer.decode:xqa_batch_decode_with_kv_cache"
CUDNN_PREFILL = "flashinfer.cudnn:cudnn_batch_prefill_with_kv_cache"
CUDNN_DECODE = "flashinfer.cudnn:cudnn_batch_decode_with_kv_cache"
TRTLLM_PREFILL = "flashinfer.prefill:trtllm_batch_context_with_kv_cache"
TRTLLM_DECODE = "flashinfer.decode:trtllm_batch_decode_with_kv_cache"
TRTLLM_MLA = "flashinfer.mla:trtllm_batch_decode_with_kv_cache_mla"


def shrink_xqa(batch: Batch) -> Batch:
    """The smallest batch that XQA is compiled for in the same way: page and group size count."""
    small = shrink(batch)
    return msgspec.structs.replace(
        small, query_lens=(1,), num_heads=batch.group, page_size=batch.page_size
    )


def start_xqa(name: str, batch: Batch, device: torch.device) -> Launch:
    """XQA: one query a request.

    Its call tells a cache of fp8_e4m3 from one of the queries' dtype and nothing else; any other
    would be read as something that it is not, past its end.
    """
    run = library.find(name, XQA)
    if batch.cache_dtype not in (batch.dtype, "fp8", "fp8_e4m3"):
        raise RefusedError(f"{name} cannot express a {batch.cache_dtype} cache")
    scratch = library.workspace(device, zeroed=True)

    def launch(
        q: torch.Tensor, kv: PagedKV, sinks: torch.Tensor | None, _: torch.Tensor | None
    ) -> torch.Tensor:
        out: torch.Tensor = run(
            query=q,
            kv_cache=(kv.k_pages, kv.v_pages),
            workspace_buffer=scratch,
            block_tables=kv.page_table,
            seq_lens=kv.seq_lens,
            max_seq_len=max(batch.seq_lens),
            bmm1_scale=batch.softmax_scale,
            bmm2_scale=1.0,
            window_left=window_left(batch),
            sinks=sinks,
            kv_layout="NHD",
        )
        return out

    return launch


def start_cudnn(name: str, batch: Batch, device: torch.device) -> Launch:
    """Graphs of cuDNN; without its Python frontend FlashInfer would download kernels.

    Raises:
        RefusedError: the frontend is not installed.
    """
    import torch

    library.require(name, "cudnn", "nvidia-cudnn-frontend")
    asked: dict[str, Any] = {"max_sequence_kv": max(batch.seq_lens)}
    if batch.sliding_window is not None:
        asked["window_left"] = window_left(batch)
    decodes = max(batch.query_lens) == 1
    if not decodes:
        query_lens = torch.tensor(batch.query_lens, dtype=torch.int32, device=device)
        asked |= {
            "max_token_per_sequence": max(batch.query_lens),
            "actual_seq_lens_q": query_lens.view(-1, 1, 1, 1),
            "batch_offsets_q": offsets(batch.query_lens, device),
            "batch_offsets_units": "tokens",
            "causal": batch.causal,
            "return_lse": False,
        }
    run = library.find(name, CUDNN_DECODE if decodes else CUDNN_PREFILL)
    scratch = library.workspace(device)

    def launch(
        q: torch.Tensor, kv: PagedKV, sinks: torch.Tensor | None, _: torch.Tensor | None
    ) -> torch.Tensor:
        out = run(
            q,
            kv.k_pages.transpose(1, 2),  # heads, then tokens: told by strides
            kv.v_pages.transpose(1, 2),
            batch.softmax_scale,
            scratch,
            actual_seq_lens_kv=kv.seq_lens.view(-1, 1, 1, 1),
            block_tables=kv.page_table,
            **asked,
            **({} if sinks is None else {"sinks": sinks}),
        )
        first: torch.Tensor = out[0] if isinstance(out, tuple) else out
        return first

    return launch


def start_trtllm_gen(name: str, batch: Batch, device: torch.device) -> Launch:
    """TensorRT-LLM's kernels for 10.x, prefill and decode."""
    scratch = library.workspace(device, zeroed=True)
    asked: dict[str, Any] = {
        "workspace_buffer": scratch,
        "bmm1_scale": batch.softmax_scale,
        "bmm2_scale": 1.0,
        "window_left": window_left(batch),
        "kv_layout": "NHD",
    }
    if max(batch.query_lens) == 1:
        run = library.find(name, TRTLLM_DECODE)
        asked |= {"max_seq_len": max(batch.seq_lens), "backend": "trtllm-gen"}
    else:
        run = library.find(name, TRTLLM_PREFILL)
        asked |= {
            "max_q_len": max(batch.query_lens),
            "max_kv_len": max(batch.seq_lens),
            "batch_size": len(batch.seq_lens),
            "cum_seq_lens_q": offsets(batch.query_lens, device),
            "cum_seq_lens_kv": offsets(batch.seq_lens, device),
        }
        if not batch.causal:
            asked["causal"] = False

    def launch(
        q: torch.Tensor, kv: PagedKV, sinks: torch.Tensor | None, _: torch.Tensor | None
    ) -> torch.Tensor:
        out: torch.Tensor = run(
            query=_rounded(q, kv.k_pages),
            kv_cache=(kv.k_pages, kv.v_pages),
            block_tables=kv.page_table,
            seq_lens=kv.seq_lens,
            sinks=sinks,
            out_dtype=q.dtype,
            **asked,
        )
        return out

    return launch


def start_mla_trtllm_gen(name: str, batch: Batch, device: torch.device) -> Launch:
    """TensorRT-LLM's MLA decode, and its ragged kernel for expanded heads.

    Raises:
        RefusedError: requests on the latent have different numbers of queries.
    """
    if not batch.latent:
        return start_deepseek(name, batch, device)
    if len(set(batch.query_lens)) > 1:
        raise RefusedError(f"{name} cannot express requests of different query_len on the latent")
    call = _mla_call(name, batch, device)

    def launch(
        q: torch.Tensor, kv: PagedKV, _: torch.Tensor | None, __: torch.Tensor | None
    ) -> torch.Tensor:
        return call(
            q.unflatten(0, (len(batch.seq_lens), batch.query_lens[0])),
            kv,
            block_tables=kv.page_table,
            seq_lens=kv.seq_lens,
            max_seq_len=max(batch.seq_lens),
            backend="trtllm-gen",
        )

    return launch


def start_sparse_trtllm_gen(name: str, batch: Batch, device: torch.device) -> Launch:
    """The same with the slots that each query lists as its pages, and the ragged kernel."""
    if not batch.latent:
        return start_deepseek(name, batch, device)
    lens = Slots.of(batch, device).lens
    return _start_sparse(name, batch, device, seq_lens=lens, backend="trtllm-gen")


def start_sparse_sm120(name: str, batch: Batch, device: torch.device) -> Launch:
    """FlashInfer's sparse kernels for 12.x, over a packed cache.

    Raises:
        RefusedError: the dense path is asked. There is no kernel for it, and no switch.
    """
    if not batch.latent:
        raise RefusedError(f"{name}: a dense MHA prefill does not exist for 12.x")
    return _start_sparse(name, batch, device, seq_lens=None)


def _start_sparse(name: str, batch: Batch, device: torch.device, **asked: Any) -> Launch:
    call = _mla_call(name, batch, device)
    request = _requests(batch, device)

    def launch(
        q: torch.Tensor, kv: PagedKV, _: torch.Tensor | None, indices: torch.Tensor | None
    ) -> torch.Tensor:
        assert indices is not None, "a batch with a topk is run with indices"
        slots = find_slots(kv.page_table, request, indices.clamp(min=0), batch.page_size)
        return call(
            q.unsqueeze(1),
            kv,
            block_tables=slots.where(indices >= 0, -1).unsqueeze(1),
            max_seq_len=batch.topk,
            sparse_mla_top_k=batch.topk,
            **asked,
        )

    return launch


def _requests(batch: Batch, device: torch.device) -> torch.Tensor:
    """The request of each query: ``[queries, 1]``."""
    import torch

    each = torch.arange(len(batch.query_lens)).repeat_interleave(torch.tensor(batch.query_lens))
    return each.unsqueeze(1).to(device)


def _mla_call(name: str, batch: Batch, device: torch.device) -> Any:
    """A call of TensorRT-LLM's MLA decode with all that does not change between runs."""
    run, shape = library.find(name, TRTLLM_MLA), batch.mla
    assert shape is not None, "the adapter takes MLA batches only"
    scratch = library.workspace(device, zeroed=True)

    def call(q: torch.Tensor, kv: PagedKV, **words: Any) -> torch.Tensor:
        out: torch.Tensor = run(
            query=_rounded(q, kv.k_pages),
            kv_cache=kv.k_pages.transpose(1, 2),
            workspace_buffer=scratch,
            qk_nope_head_dim=shape.qk_nope_head_dim,
            kv_lora_rank=shape.kv_lora_rank,
            qk_rope_head_dim=shape.qk_rope_head_dim,
            bmm1_scale=batch.softmax_scale,
            bmm2_scale=1.0,
            **words,
        )
        return out.reshape(-1, batch.num_heads, batch.v_head_size).to(q.dtype)

    return call


def _rounded(q: torch.Tensor, pages: torch.Tensor) -> torch.Tensor:
    """Queries in the cache's dtype, where that is fp8."""
    import torch

    return q.to(pages.dtype) if pages.dtype == torch.float8_e4m3fn else q
