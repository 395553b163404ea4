"""From a question to the batch that puts it to a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from backends.contract import EXPANDED, Batch, MlaShape
from selector.domains import Value
from selector.fields import ABSENT, UNSET
from selector.rules import Question

__all__ = ["FEATURES", "make_batch"]

FEATURES = ("alibi", "chunked", "mm_prefix", "per_head_quant_scales", "rswa")
"""Features that a kernel would have to implement and that the contract only knows by name."""

SOFT_CAP = 2.0
"""Small enough for standard-normal logits that leaving it out is a large error."""

_PAGE_SIZE = 16
_MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 0, "qk_nope_head_dim": 128, "v_head_dim": 128}
"""Where the question leaves it open."""


def make_batch(asked: Question, lengths: Sequence[tuple[int, int]], path: str) -> Batch:
    """The batch that asks a question of a kernel.

    Args:
        asked: the question, with the values that the entry really uses.
        lengths: ``query_len`` and ``seq_len`` of each request.
        path: how an MLA layer is computed; other layers leave no choice.

    Raises:
        ContradictionError: no such batch can exist.
    """

    def known(name: str) -> Value | None:
        value = asked.known(name)
        return None if value in (UNSET, ABSENT) else value

    def size(name: str, default: int) -> int:
        value = known(name)
        return value if isinstance(value, int) else default

    window = known("sliding_window")
    mla = None
    heads = size("num_heads", 8)
    kv_heads, head_size = size("num_kv_heads", 2), size("head_size", 64)
    v_head_size = size("v_head_size", head_size)
    expanded = path in EXPANDED
    if known("mla") is True:
        mla = MlaShape(**{name: size(name, default) for name, default in _MLA.items()})
        if expanded:
            kv_heads, v_head_size = heads, mla.v_head_dim
            head_size = mla.qk_nope_head_dim + mla.qk_rope_head_dim
        else:
            kv_heads, v_head_size = 1, mla.kv_lora_rank
    else:
        path = ""
    sparse = known("sparse") is True and not expanded
    return Batch(
        query_lens=tuple(query_len for query_len, _ in lengths),
        seq_lens=tuple(seq_len for _, seq_len in lengths),
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=head_size,
        v_head_size=v_head_size,
        page_size=size("block_size", _PAGE_SIZE),
        dtype=str(known("dtype")),
        # what is expanded from the latent has the queries' type, whatever the cache holds
        kv_dtype="auto" if mla and expanded else str(known("kv_cache_dtype") or "auto"),
        causal=known("attn_type") == "decoder" and known("non_causal") is not True,
        sliding_window=window if isinstance(window, int) else None,
        soft_cap=SOFT_CAP if known("soft_cap") is True else None,
        sinks=known("sink") is True,
        features=frozenset(name for name in FEATURES if known(name) is True),
        mla=mla,
        path=path,
        topk=size("index_topk", 0) if sparse else None,  # without one there is no such batch
    )
