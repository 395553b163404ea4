"""Which slots of the cache each request reads, in the form that FlashInfer's wrappers take.

Compressed rows: request ``i`` reads the pages ``indices[indptr[i]:indptr[i + 1]]``, and
``last_page_len[i]`` tokens of the last of them. All but ``indices`` follows from a batch alone, so
a wrapper is planned with an ``indices`` that is filled later: it keeps the tensor that it is given
when that is on its own device already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING

from backends.contract import Batch, PagedKV

if TYPE_CHECKING:
    import torch

__all__ = ["Pages", "Slots", "Tokens", "find_slots", "offsets"]


def offsets(lengths: Iterable[int], device: torch.device | str) -> torch.Tensor:
    """Where each of these parts starts, and where the last ends: int32, ``[parts + 1]``."""
    import torch

    return torch.tensor(list(accumulate(lengths, initial=0)), dtype=torch.int32, device=device)


def find_slots(
    page_table: torch.Tensor, request: torch.Tensor, at: torch.Tensor, page_size: int
) -> torch.Tensor:
    """Slots of the whole cache, of the tokens ``at`` these positions of these requests."""
    return page_table[request, at // page_size] * page_size + at % page_size


@dataclass(slots=True)
class Pages:
    """The pages of a batch.

    Attributes:
        qo_indptr: int32 ``[requests + 1]``, where the queries of each request start.
        indptr: int32 ``[requests + 1]``, where the pages of each request start.
        indices: int32 ``[all pages]``, page numbers; zeros until :meth:`fill`.
        last_page_len: int32 ``[requests]``.
    """

    qo_indptr: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor
    last_page_len: torch.Tensor
    _row: torch.Tensor
    _column: torch.Tensor
    _filled_from: tuple[torch.Tensor, int] | None = field(default=None, init=False)

    @classmethod
    def of(cls, batch: Batch, device: torch.device) -> Pages:
        """The pages of a batch, on its device."""
        import torch

        counts = [-(-seq_len // batch.page_size) for seq_len in batch.seq_lens]
        last = [(seq_len - 1) % batch.page_size + 1 for seq_len in batch.seq_lens]
        per_request = torch.tensor(counts)
        starts = torch.tensor(list(accumulate(counts, initial=0)))[:-1]
        row = torch.arange(len(counts)).repeat_interleave(per_request)
        column = torch.arange(sum(counts)) - starts.repeat_interleave(per_request)
        return cls(
            offsets(batch.query_lens, device),
            offsets(counts, device),
            torch.zeros(sum(counts), dtype=torch.int32, device=device),
            torch.tensor(last, dtype=torch.int32, device=device),
            row.to(device),
            column.to(device),
        )

    def fill(self, page_table: torch.Tensor) -> None:
        """Takes over the page numbers of a table, unless it is the one taken over last.

        A table that was written to since counts as another one. Inside the replay of a CUDA graph
        nothing of this runs: a graph reads the pages that were there when it was captured, as
        after a ``plan`` of FlashInfer's own.
        """
        import torch

        if not page_table.is_inference():  # such a tensor does not say when it was written to
            now = (page_table, page_table._version)
            before = self._filled_from
            if before is not None and before[0] is now[0] and before[1] == now[1]:
                return
            self._filled_from = now
        flat = self._row * page_table.shape[1] + self._column
        torch.index_select(page_table.reshape(-1), 0, flat, out=self.indices)


@dataclass(slots=True)
class Slots:
    """The listed tokens of every query of a sparse batch, seen as pages of one token.

    Each query is a request of its own. How many tokens it lists is known from the batch: as many
    as it may see, and no more than the top-k.

    Attributes:
        qo_indptr: int32 ``[queries + 1]``: 0, 1, 2, …
        indptr: int32 ``[queries + 1]``.
        indices: int32 ``[all listed tokens]``, slot numbers; zeros until :meth:`fill`.
        lens: int32 ``[queries]``, how many tokens each query lists.
    """

    qo_indptr: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor
    lens: torch.Tensor
    _page_size: int
    _query: torch.Tensor
    _column: torch.Tensor
    _request: torch.Tensor

    @classmethod
    def of(cls, batch: Batch, device: torch.device) -> Slots:
        """The listed tokens of a batch, on its device."""
        import torch

        lens, request = [], []
        for index, (query_len, seq_len) in enumerate(
            zip(batch.query_lens, batch.seq_lens, strict=True)
        ):
            for behind in range(query_len - 1, -1, -1):
                seen = seq_len - behind if batch.causal else seq_len
                lens.append(min(seen, batch.topk or seen))
                request.append(index)
        counts = torch.tensor(lens)
        starts = torch.tensor(list(accumulate(lens, initial=0)))[:-1]
        query = torch.arange(len(lens)).repeat_interleave(counts)
        return cls(
            offsets([1] * len(lens), device),
            offsets(lens, device),
            torch.zeros(sum(lens), dtype=torch.int32, device=device),
            counts.to(torch.int32).to(device),
            batch.page_size,
            query.to(device),
            (torch.arange(sum(lens)) - starts.repeat_interleave(counts)).to(device),
            torch.tensor(request)[query].to(device),
        )

    def parts(self, most: int) -> Iterator[tuple[slice, tuple[torch.Tensor, ...]]]:
        """Yields so many queries at a time: their rows, and what this holds of them alone.

        The tensors are those of a call that is given only these queries, in the order of the
        attributes; ``indices`` is a view, so :meth:`fill` fills all parts.
        """
        ends = self.indptr.tolist()
        for first in range(0, len(self.lens), most):
            rows = slice(first, min(first + most, len(self.lens)))
            start, end = ends[rows.start], ends[rows.stop]
            yield (
                rows,
                (
                    self.qo_indptr[: rows.stop - first + 1],
                    self.indptr[first : rows.stop + 1] - start,
                    self.indices[start:end],
                    self.lens[rows],
                ),
            )

    def fill(self, kv: PagedKV, indices: torch.Tensor | None) -> None:
        """Turns listed positions ``[queries, topk]`` into slots of the cache."""
        assert indices is not None, "a batch with a topk is run with indices"
        at = indices[self._query, self._column]
        self.indices.copy_(find_slots(kv.page_table, self._request, at, self._page_size))


@dataclass(frozen=True, slots=True)
class Tokens:
    """All tokens of a batch, one request after another, for kernels over contiguous K and V.

    Attributes:
        qo_indptr: int32 ``[requests + 1]``, where the queries of each request start.
        indptr: int32 ``[requests + 1]``, where the tokens of each request start.
    """

    qo_indptr: torch.Tensor
    indptr: torch.Tensor
    _page_size: int
    _request: torch.Tensor
    _at: torch.Tensor

    @classmethod
    def of(cls, batch: Batch, device: torch.device) -> Tokens:
        """The tokens of a batch, on its device."""
        import torch

        lens = torch.tensor(batch.seq_lens)
        request = torch.arange(len(lens)).repeat_interleave(lens)
        starts = lens.cumsum(0) - lens
        return cls(
            offsets(batch.query_lens, device),
            offsets(batch.seq_lens, device),
            batch.page_size,
            request.to(device),
            (torch.arange(len(request)) - starts[request]).to(device),
        )

    def gather(self, kv: PagedKV) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of K and V: ``[all tokens, num_kv_heads, elements]``."""
        slots = find_slots(kv.page_table, self._request, self._at, self._page_size)
        return kv.k_pages.flatten(0, 1)[slots], kv.v_pages.flatten(0, 1)[slots]
