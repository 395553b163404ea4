"""What a backend is asked and what it gives: the shapes, the paged KV cache, the refusal.

An adapter holds no table of what it supports. It puts the request to the kernel in the kernel's own
words and passes on a refusal as :class:`RefusedError`; what is supported is the manifest's to say,
and this is how the manifest can be found wrong.

Layout is NHD throughout: tokens, then heads, then the elements of a head.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from selector.errors import AttnselError, ContradictionError

if TYPE_CHECKING:
    import torch

__all__ = [
    "Adapter",
    "Batch",
    "MlaShape",
    "PagedKV",
    "Plan",
    "RefusedError",
    "UncompilableError",
    "first_line",
    "named_line",
    "relative_error",
    "torch_dtype",
]

EXPANDED = ("mha", "dense_mha")
"""Prefill paths of MLA on which K and V are expanded from the latent to ordinary heads."""


class RefusedError(AttnselError, RuntimeError):
    """A kernel, or the library around it, will not run this batch. One line says why."""

    code = "REFUSED"


class UncompilableError(RefusedError):
    """A kernel does not compile, whatever else is asked of it."""


class MlaShape(msgspec.Struct, frozen=True):
    """The dimensions of an MLA layer, with the names of its ``config.json``.

    Attributes:
        kv_lora_rank: elements of the latent that stands for all keys and values of a token.
        qk_rope_head_dim: elements of the rotary part, which is kept beside the latent.
        qk_nope_head_dim: elements of an expanded query or key head without its rotary part.
        v_head_dim: elements of an expanded value head.
    """

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int


class Batch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The shapes of one attention call over a paged KV cache; no tensors.

    The tokens of request ``i`` take positions ``0 … seq_lens[i] - 1``; its queries are the last
    ``query_lens[i]`` of them, and all of its keys and values, the new ones too, are in the cache.

    Attributes:
        query_lens: new tokens of each request.
        seq_lens: new plus cached tokens of each request.
        num_heads: query heads; a multiple of ``num_kv_heads``. Query head ``h`` reads KV head
            ``h // (num_heads // num_kv_heads)``.
        num_kv_heads: KV heads.
        head_size: elements of a query or key head.
        v_head_size: elements of a value head.
        page_size: tokens in a page of the cache.
        dtype: element type of queries and output, in the manifest's words (``bfloat16``).
        kv_dtype: element type of the cache; ``auto`` follows ``dtype``.
        causal: a query sees no later token.
        sliding_window: a query sees only tokens less than this many positions away: causal, the
            last ``sliding_window`` tokens with itself; non-causal, as many ahead as behind.
        soft_cap: logits become ``soft_cap * tanh(logit / soft_cap)``.
        scale: factor on query · key; ``None`` for ``head_size ** -0.5``, or for MLA that of its
            expanded heads, ``(qk_nope_head_dim + qk_rope_head_dim) ** -0.5``.
        sinks: each query head has one more logit, which takes part in the softmax's sum and has no
            value; the logits are given to :meth:`Plan.run`.
        features: names of whatever else is asked (``alibi``, ``mm_prefix``, …), as the manifest
            spells them. Nothing in this package implements one, so every adapter refuses them.
        mla: the dimensions of an MLA layer. On the latent there is one KV head: its keys are the
            latent and the rotary part side by side, and its values are the latent again, so that
            ``v_pages`` is ``k_pages[..., :kv_lora_rank]``. On the paths ``mha`` and ``dense_mha``
            keys and values were expanded, and the batch is an ordinary one with as many KV heads
            as query heads.
        path: how prefill is computed, in the manifest's words; empty where there is no choice.
        topk: a query attends to at most this many positions, which are given to :meth:`Plan.run`.

    Raises:
        ContradictionError: no such batch can exist.
    """

    query_lens: tuple[int, ...]
    seq_lens: tuple[int, ...]
    num_heads: int
    num_kv_heads: int
    head_size: int
    v_head_size: int
    page_size: int
    dtype: str
    kv_dtype: str = "auto"
    causal: bool = True
    sliding_window: int | None = None
    soft_cap: float | None = None
    scale: float | None = None
    sinks: bool = False
    features: frozenset[str] = frozenset()
    mla: MlaShape | None = None
    path: str = ""
    topk: int | None = None

    def __post_init__(self) -> None:
        if not self.query_lens or len(self.query_lens) != len(self.seq_lens):
            raise ContradictionError(
                f"{len(self.query_lens)} query_lens and {len(self.seq_lens)} seq_lens; "
                "give one of each for every request, and at least one request"
            )
        for query_len, seq_len in zip(self.query_lens, self.seq_lens, strict=True):
            if not 1 <= query_len <= seq_len:
                raise ContradictionError(
                    f"query_len {query_len} is not between 1 and seq_len {seq_len}"
                )
        for name in ("num_heads", "num_kv_heads", "head_size", "v_head_size", "page_size"):
            if getattr(self, name) < 1:
                raise ContradictionError(f"{name} {getattr(self, name)} is not at least 1")
        if self.num_heads % self.num_kv_heads:
            raise ContradictionError(
                f"num_heads {self.num_heads} is no multiple of num_kv_heads {self.num_kv_heads}"
            )
        if self.sliding_window is not None and self.sliding_window < 1:
            raise ContradictionError(f"sliding_window {self.sliding_window} is not at least 1")
        if self.topk is not None and self.topk < 1:
            raise ContradictionError(f"topk {self.topk} is not at least 1")
        if self.mla is not None:
            self._check_heads(self.mla)

    def _check_heads(self, mla: MlaShape) -> None:
        """Heads of an MLA layer follow from its dimensions."""
        if self.path in EXPANDED:
            heads = self.num_heads, mla.qk_nope_head_dim + mla.qk_rope_head_dim, mla.v_head_dim
        else:
            heads = 1, mla.kv_lora_rank + mla.qk_rope_head_dim, mla.kv_lora_rank
        given = self.num_kv_heads, self.head_size, self.v_head_size
        if given != heads:
            raise ContradictionError(
                "num_kv_heads, head_size and v_head_size are {}, {}, {}; ".format(*given)
                + "its MLA dimensions make them {}, {}, {}".format(*heads)
            )

    @property
    def group(self) -> int:
        """Query heads that share one KV head."""
        return self.num_heads // self.num_kv_heads

    @property
    def cache_dtype(self) -> str:
        """The element type of the cache, with ``auto`` settled."""
        return self.dtype if self.kv_dtype == "auto" else self.kv_dtype

    @property
    def softmax_scale(self) -> float:
        """The factor on query · key."""
        if self.scale is not None:
            return self.scale
        if self.mla is not None:
            return float((self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim) ** -0.5)
        return float(self.head_size**-0.5)

    @property
    def latent(self) -> bool:
        """The cache holds MLA latents: values are the first elements of the keys."""
        return self.mla is not None and self.path not in EXPANDED

    def query_rows(self) -> tuple[slice, ...]:
        """For each request, its rows of the query and of the output."""
        starts = [0]
        for query_len in self.query_lens:
            starts.append(starts[-1] + query_len)
        return tuple(slice(start, end) for start, end in pairwise(starts))


@dataclass(frozen=True, slots=True)
class PagedKV:
    """A KV cache in pages. All tensors are on the device of the queries.

    Token ``t`` of request ``i`` is in slot ``t % page_size`` of the page
    ``page_table[i, t // page_size]``.
    Slots past a request's last token, and pages no request names, hold anything.

    Attributes:
        k_pages: ``[num_pages, page_size, num_kv_heads, head_size]``, the batch's ``cache_dtype``.
        v_pages: ``[num_pages, page_size, num_kv_heads, v_head_size]``, the same dtype; of a latent
            batch the view ``k_pages[..., :v_head_size]``.
        page_table: int32 ``[num_reqs, max_pages]``; entries past a request's last page are unused.
        seq_lens: int32 ``[num_reqs]``, the batch's ``seq_lens``, for kernels that read them.
    """

    k_pages: torch.Tensor
    v_pages: torch.Tensor
    page_table: torch.Tensor
    seq_lens: torch.Tensor


@runtime_checkable
class Plan(Protocol):
    """A batch made ready on a device: run it once for every layer that has these shapes."""

    @property
    def batch(self) -> Batch:
        """What was planned."""
        ...

    def run(
        self,
        q: torch.Tensor,
        kv: PagedKV,
        sinks: torch.Tensor | None = None,
        indices: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The attention output.

        Args:
            q: ``[sum(query_lens), num_heads, head_size]``, the batch's ``dtype``, on the planned
                device; requests one after another.
            kv: the cache, new tokens included.
            sinks: ``[num_heads]`` logits, float32; given exactly when the batch has ``sinks``.
            indices: int32 ``[sum(query_lens), topk]``; for each query, the positions in its
                request's sequence that it attends to, in any order, none twice, then -1: as many
                as it may see, and no more than ``topk``. Given exactly when the batch has ``topk``.

        Returns:
            ``[sum(query_lens), num_heads, v_head_size]`` in the dtype and on the device of ``q``.

        Raises:
            RefusedError: the kernel will not run this.
        """
        ...


@runtime_checkable
class Adapter(Protocol):
    """One kernel behind the contract."""

    @property
    def name(self) -> str:
        """The backend's name in the manifest."""
        ...

    @property
    def reads_pages(self) -> bool:
        """The kernel reads the cache in place; else the adapter copies it to contiguous K and V."""
        ...

    @property
    def unverified(self) -> str:
        """Why nobody has seen this adapter agree with the reference; empty if somebody has."""
        ...

    def tolerance(self, dtype: str) -> float:
        """The largest :func:`relative_error` that counts as right for queries of ``dtype``."""
        ...

    def plan(self, batch: Batch, device: str) -> Plan:
        """Makes a batch ready on a device (``cpu``, ``cuda``, ``cuda:1``).

        Raises:
            RefusedError: the adapter cannot put this request to its kernel, or there is no such
                device. A kernel's own refusal may come as late as :meth:`Plan.run`.
        """
        ...

    def prepare(self, batches: Iterable[Batch], device: str = "cuda") -> None:
        """Compiles what these batches need, side by side, so that no later run waits for it.

        A batch that is refused is passed over: whoever runs it will hear why. May be called from
        several threads, for several adapters at once.
        """
        ...


def first_line(error: BaseException) -> str:
    """What an error says first; kernels and compilers say pages."""
    return next(iter(str(error).splitlines()), "")


def named_line(error: BaseException) -> str:
    """What kind of error it is, and what it says first."""
    return f"{type(error).__name__}: {first_line(error)}"


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype that the manifest calls ``name``.

    Raises:
        RefusedError: there is none: a packed cache layout is no element type.
    """
    import torch

    spelling = _TORCH_SPELLING.get(name, name)
    dtype = getattr(torch, spelling, None)
    if not isinstance(dtype, torch.dtype):
        raise RefusedError(f"dtype {name[:60]} is not an element type of torch {torch.__version__}")
    return dtype


_TORCH_SPELLING = {
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}


def relative_error(out: torch.Tensor, expected: torch.Tensor) -> float:
    """How far an output is from the reference.

    For each query token, the L2 norm of the difference over that of the expected output, both over
    all heads; the largest of these. It does not shrink as contexts grow, unlike an absolute error:
    losing one of n equally weighted tokens costs about ``n ** -0.5``, so a bound of 1 % still sees
    one token in ten thousand.

    Args:
        out: ``[tokens, num_heads, v_head_size]``, any float dtype and device.
        expected: the same shape.

    Returns:
        The error; infinite when ``out`` holds a NaN or an infinity, or has another shape.
    """
    wide = out.double().cpu()  # fp8 knows little more than how to become something else
    if wide.shape != expected.shape or not bool(wide.isfinite().all()):
        return float("inf")
    exact = expected.double().cpu().flatten(1)
    off = (wide.flatten(1) - exact).norm(dim=1)
    return float((off / exact.norm(dim=1)).nan_to_num(nan=0.0, posinf=float("inf")).max())
