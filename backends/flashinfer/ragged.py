"""Kernels over contiguous K and V: the tokens of all requests one after another.

The cache is in pages, so every run gathers them first: one read and one write of all keys and
values. An engine that has just computed K and V, as on the dense path of MLA, has them contiguous.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.contract import Batch, PagedKV
from backends.flashinfer import library
from backends.flashinfer.paged import words
from backends.flashinfer.pages import Tokens

if TYPE_CHECKING:
    import torch

    from backends.flashinfer.adapter import Launch

__all__ = ["start_deepseek", "start_ragged"]

WRAPPER = "flashinfer:BatchPrefillWithRaggedKVCacheWrapper"
DEEPSEEK = "flashinfer.prefill:trtllm_ragged_attention_deepseek"


def start_ragged(backend: str, name: str, batch: Batch, device: torch.device) -> Launch:
    """The ragged wrapper: FA3, or CUTLASS on 10.x and 11.0."""
    wrapper = library.find(name, WRAPPER)(library.workspace(device), "NHD", backend=backend)
    tokens = Tokens.of(batch, device)
    wrapper.plan(
        tokens.qo_indptr,
        tokens.indptr,
        batch.num_heads,
        batch.num_kv_heads,
        batch.head_size,
        head_dim_vo=batch.v_head_size,
        causal=batch.causal,
        **words(batch),
    )

    def launch(
        q: torch.Tensor, kv: PagedKV, _: torch.Tensor | None, __: torch.Tensor | None
    ) -> torch.Tensor:
        out: torch.Tensor = wrapper.run(q, *tokens.gather(kv))
        return out

    return launch


def start_deepseek(name: str, batch: Batch, device: torch.device) -> Launch:
    """TensorRT-LLM's ragged kernel for the expanded heads of MLA."""
    run = library.find(name, DEEPSEEK)
    scratch = library.workspace(device, zeroed=True)
    tokens = Tokens.of(batch, device)

    def launch(
        q: torch.Tensor, kv: PagedKV, _: torch.Tensor | None, __: torch.Tensor | None
    ) -> torch.Tensor:
        k, v = tokens.gather(kv)
        out: torch.Tensor = run(
            query=q,
            key=k,
            value=v,
            workspace_buffer=scratch,
            seq_lens=kv.seq_lens,
            max_q_len=max(batch.query_lens),
            max_kv_len=max(batch.seq_lens),
            bmm1_scale=batch.softmax_scale,
            bmm2_scale=1.0,
            o_sf_scale=1.0,
            batch_size=len(batch.seq_lens),
            window_left=-1,
            cum_seq_lens_q=tokens.qo_indptr,
            cum_seq_lens_kv=tokens.indptr,
            enable_pdl=None,
            is_causal=batch.causal,
            return_lse=False,
        )
        return out

    return launch
