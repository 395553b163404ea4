"""The four kernels behind ``torch.nn.functional.scaled_dot_product_attention``, one adapter each.

Torch picks a kernel by itself and falls back to another one in silence. Here the choice is fixed
with ``torch.nn.attention.sdpa_kernel``, which leaves exactly one kernel switched on: if that one
cannot run, torch raises, and the adapter passes it on as a refusal.

**What it costs.** SDPA knows no pages. For every request, on every run, the keys and values that it
needs are gathered into contiguous tensors (one read and one write of the request's cache), and the
kernel is launched once per request. This is the portable way to run, not the fast one.

**Causal attention over a cached context.** ``is_causal`` aligns its triangle to the upper left,
which is right only where every token is new. With cached context the triangle must be aligned to
the lower right, and a kernel gets it in the form that it takes:

* flash and efficient have the lower-right triangle built in on CUDA; torch offers it as
  ``torch.nn.attention.bias.causal_lower_right``. With one kernel switched on that object falls
  back only to a boolean mask for the same kernel, which flash on CUDA refuses and flash on the CPU
  takes;
* math and cuDNN have no such triangle in SDPA and get a boolean mask.

A single query sees every key and needs neither. A sliding window narrower than the keys is a band,
which only a boolean mask can say; keys that no query of the request can see are not gathered.

**Grouped queries.** math, flash and cuDNN take fewer KV heads than query heads (``enable_gqa``).
The efficient kernel requires equal head counts in every torch release up to 2.13
(``can_use_mem_efficient_attention`` checks with ``supports_gqa = false``), so its keys and values
are repeated first, at ``group`` times the memory.

Sources: pytorch ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`` (``can_use_*``),
``sdp_utils_cpp.cpp`` (``use_flash_attention_cpp``) and ``torch/nn/attention/bias.py``.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar

from backends.contract import Batch, PagedKV, RefusedError, torch_dtype

if TYPE_CHECKING:
    import torch

__all__ = ["SdpaAdapter", "cudnn", "efficient", "flash", "math"]


@dataclass(frozen=True, slots=True)
class SdpaAdapter:
    """One SDPA kernel; implements :class:`backends.contract.Adapter`.

    Attributes:
        name: the backend's name in the manifest.
        kernel: the member of ``torch.nn.attention.SDPBackend`` left switched on.
        builds_triangle: the kernel has a lower-right causal triangle and needs no mask for one.
        repeats_kv: KV heads are repeated to the number of query heads.
        tolerances: dtype → the largest relative error that counts as right.
    """

    name: str
    kernel: str
    builds_triangle: bool
    repeats_kv: bool
    tolerances: Mapping[str, float] = field(hash=False)

    reads_pages: ClassVar[bool] = False
    unverified: ClassVar[str] = ""

    def tolerance(self, dtype: str) -> float:
        """The largest relative error that counts as right; 0 for a dtype never measured."""
        return self.tolerances.get(dtype, 0.0)

    def plan(self, batch: Batch, device: str) -> SdpaPlan:
        """Builds the masks; see :meth:`backends.contract.Adapter.plan`."""
        import torch

        asked = {
            "sinks": batch.sinks,
            "soft_cap": batch.soft_cap is not None,
            "topk": batch.topk is not None,
        }
        missing = sorted({*(name for name, on in asked.items() if on), *batch.features})
        if missing:
            raise RefusedError(f"{self.name} cannot express {', '.join(missing)}")
        for name in (batch.dtype, batch.cache_dtype):
            torch_dtype(name)
        try:
            torch.empty(0, device=device)
        except (AssertionError, RuntimeError) as error:  # torch raises either for a missing device
            raise RefusedError(f"{self.name}: no device {device}: {_first_line(error)}") from error
        spans: dict[tuple[int, int], Span] = {}
        for lengths in zip(batch.query_lens, batch.seq_lens, strict=True):
            if lengths not in spans:
                spans[lengths] = self._span(batch, *lengths, device)
        per_request = zip(batch.query_lens, batch.seq_lens, strict=True)
        return SdpaPlan(self, batch, tuple(spans[lengths] for lengths in per_request))

    def prepare(self, batches: Iterable[Batch], device: str = "cuda") -> None:
        """Nothing: torch's kernels come compiled."""

    def _span(self, batch: Batch, query_len: int, seq_len: int, device: str) -> Span:
        """The keys that a request's queries can see, and which query sees which of them."""
        first = 0
        if batch.sliding_window is not None:
            first = max(0, seq_len - query_len + 1 - batch.sliding_window)
        keys = seq_len - first
        banded = batch.sliding_window is not None and keys > batch.sliding_window
        if banded:
            return Span(first, seq_len, _band(batch, query_len, keys, device))
        if not batch.causal or query_len == 1:
            return Span(first, seq_len)
        if query_len == keys:
            return Span(first, seq_len, square=True)
        if self.builds_triangle:
            from torch.nn.attention.bias import causal_lower_right

            return Span(first, seq_len, causal_lower_right(query_len, keys))
        return Span(first, seq_len, _band(batch, query_len, keys, device))


@dataclass(frozen=True, slots=True)
class Span:
    """Which keys one request reads, and how they are masked.

    Attributes:
        first: position of the first key.
        end: position after the last key.
        bias: a boolean mask ``[query_len, end - first]`` (true: seen), a causal bias, or nothing.
        square: causal over a square, which is what ``is_causal`` means.
    """

    first: int
    end: int
    bias: torch.Tensor | None = None
    square: bool = False


@dataclass(frozen=True, slots=True)
class SdpaPlan:
    """A batch whose masks are built; implements :class:`backends.contract.Plan`.

    Not for several threads at once: torch keeps the set of enabled kernels in process-wide state.
    """

    adapter: SdpaAdapter
    batch: Batch
    spans: tuple[Span, ...]

    def run(
        self,
        q: torch.Tensor,
        kv: PagedKV,
        sinks: torch.Tensor | None = None,
        indices: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Gathers pages and runs the kernel for each request; see the contract's ``Plan.run``."""
        import torch

        batch = self.batch
        out = torch.empty(*q.shape[:2], batch.v_head_size, dtype=q.dtype, device=q.device)
        for request, rows in enumerate(batch.query_rows()):
            span = self.spans[request]
            key = _gather(kv.k_pages, kv.page_table[request], span)
            value = _gather(kv.v_pages, kv.page_table[request], span)
            if self.adapter.repeats_kv and batch.group > 1:
                key = key.repeat_interleave(batch.group, dim=1)
                value = value.repeat_interleave(batch.group, dim=1)
            out[rows] = self._call(q[rows], key, value, span)
        return out

    def _call(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, span: Span
    ) -> torch.Tensor:
        """One request: ``[tokens, heads, elements]`` in and out."""
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel

        only = sdpa_kernel(getattr(SDPBackend, self.adapter.kernel))
        with warnings.catch_warnings(record=True) as said, torch.no_grad(), only:
            warnings.simplefilter("always")  # torch says why a kernel refuses in warnings
            try:
                out = torch.nn.functional.scaled_dot_product_attention(
                    query.transpose(0, 1).unsqueeze(0),
                    key.transpose(0, 1).unsqueeze(0),
                    value.transpose(0, 1).unsqueeze(0),
                    attn_mask=span.bias,
                    is_causal=span.square,
                    scale=self.batch.softmax_scale,
                    enable_gqa=key.shape[1] != query.shape[1],
                )
            except (RuntimeError, ValueError) as error:
                if type(error) not in (RuntimeError, NotImplementedError, ValueError):
                    raise  # out of memory, a device fault: not the kernel's opinion of the request
                reasons = _reasons(str(warning.message) for warning in said)
                why = "; ".join(reasons) or _first_line(error)
                raise RefusedError(f"{self.adapter.name}: {why}") from error
        return out.squeeze(0).transpose(0, 1)


def _gather(pages: torch.Tensor, table: torch.Tensor, span: Span) -> torch.Tensor:
    """The tokens of a span, contiguous: ``[end - first, num_kv_heads, elements]``."""
    page_size = pages.shape[1]
    first_page = span.first // page_size
    needed = table[first_page : -(-span.end // page_size)]
    tokens = pages[needed].flatten(0, 1)
    return tokens[span.first - first_page * page_size :][: span.end - span.first]


def _band(batch: Batch, query_len: int, keys: int, device: str) -> torch.Tensor:
    """A boolean mask ``[query_len, keys]``, the last query on the last key; true where seen."""
    import torch

    query_at = torch.arange(keys - query_len, keys, device=device)[:, None]
    ahead = torch.arange(keys, device=device)[None, :] - query_at
    seen = torch.ones(query_len, keys, dtype=torch.bool, device=device)
    if batch.causal:
        seen &= ahead <= 0
    if batch.sliding_window is not None:
        seen &= ahead.abs() < batch.sliding_window
    return seen


def _reasons(said: Iterable[str]) -> list[str]:
    """Torch's own reasons, without its headings, its source lines and the kernels left off."""
    lines = (re.sub(r"\s*\(Triggered internally at .*", "", text, flags=re.S) for text in said)
    clean = (" ".join(line.split()) for line in lines)
    noise = ("because:", "has been runtime disabled.")
    return list(dict.fromkeys(line for line in clean if not line.endswith(noise)))


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


# Tolerances: about twice the largest error seen, over head sizes 1 to 512, GQA groups 1 to 8, pages
# of 1 to 128, windows, cached contexts and decodes of up to 4,000 tokens, standard-normal inputs,
# two seeds each. Measured on an AVX-512 CPU with torch 2.13.0 (math, flash) and on an H200 with
# torch 2.11.0, CUDA 13.0 and cuDNN 9.19.0 (all four; math and flash err alike on both). What is
# left is the rounding of the output (2**-9 relative for bfloat16, 2**-12 for float16) and, in
# flash, that of the softmax weights. Largest errors seen, those of `attnsel certify` on that H200
# (2026-11-30, lengths to 131,072) among them, float32 / bfloat16 / float16:
#   math       1.8e-6 / 3.0e-3 / 3.8e-4
#   flash      1.7e-6 / 6.8e-3 / 7.7e-4  (float32 on the CPU only)
#   efficient  1.3e-6 / 3.1e-3 / 3.4e-4
#   cuDNN           – / 3.1e-3 / 3.5e-4
math = SdpaAdapter(
    "torch_sdpa_math",
    "MATH",
    builds_triangle=False,
    repeats_kv=False,
    tolerances=MappingProxyType({"float32": 4e-6, "bfloat16": 6e-3, "float16": 8e-4}),
)
flash = SdpaAdapter(
    "torch_sdpa_flash",
    "FLASH_ATTENTION",
    builds_triangle=True,
    repeats_kv=False,
    tolerances=MappingProxyType({"float32": 4e-6, "bfloat16": 1.3e-2, "float16": 1.6e-3}),
)
efficient = SdpaAdapter(
    "torch_sdpa_efficient",
    "EFFICIENT_ATTENTION",
    builds_triangle=True,
    repeats_kv=True,
    tolerances=MappingProxyType({"float32": 4e-6, "bfloat16": 6e-3, "float16": 8e-4}),
)
cudnn = SdpaAdapter(
    "torch_sdpa_cudnn",
    "CUDNN_ATTENTION",
    builds_triangle=False,
    repeats_kv=False,
    tolerances=MappingProxyType({"bfloat16": 6e-3, "float16": 8e-4}),
)
