"""What all adapters of FlashInfer share: what a call can say, its device, its refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from backends.contract import Batch, PagedKV, RefusedError, torch_dtype
from backends.flashinfer import library
from backends.inputs import make_inputs

if TYPE_CHECKING:
    import torch

__all__ = ["FlashInferAdapter", "FlashInferPlan", "Launch", "find_asked"]

BUILDS = 6
"""How many modules are compiled at a time; each starts a compiler for all of its files."""


class Launch(Protocol):
    """A planned call of FlashInfer; the arguments and the result of ``Plan.run``."""

    def __call__(
        self,
        q: torch.Tensor,
        kv: PagedKV,
        sinks: torch.Tensor | None,
        indices: torch.Tensor | None,
        /,
    ) -> torch.Tensor:
        """The attention output."""
        ...


def find_asked(batch: Batch) -> frozenset[str]:
    """What a batch asks beyond attention of heads of one size over a causal cache."""
    several = max(batch.query_lens) > 1
    asked = {
        "sinks": batch.sinks,
        "soft_cap": batch.soft_cap is not None,
        "sliding_window": batch.sliding_window is not None,
        "a window ahead of a query": batch.sliding_window is not None
        and several
        and not batch.causal,
        "mla": batch.latent,
        "a cache without a latent": not batch.latent,
        "topk": batch.topk is not None,
        "v_head_size": not batch.latent and batch.v_head_size != batch.head_size,
        "several queries a request": several,
        "requests of different query_len": len(set(batch.query_lens)) > 1,
        "non_causal": not batch.causal and several,
    }
    return frozenset(name for name, on in asked.items() if on) | batch.features


@dataclass(frozen=True, slots=True)
class FlashInferAdapter:
    """One way to call FlashInfer; implements :class:`backends.contract.Adapter`.

    Attributes:
        name: the backend's name in the manifest.
        says: what its call has words for, of :func:`find_asked`; the rest it cannot put to
            FlashInfer.
        start: plans a batch on a device, under the adapter's name. What it raises and what its
            launch raises is FlashInfer's own opinion.
        kernel: the smallest batch for which the same kernel is compiled.
        tolerances: dtype → the largest relative error that counts as right.
        reads_pages: the kernel reads the cache in place.
        packed: dtypes of the cache that are no element type: its pages are bytes then, uint8
            ``[num_pages, page_size, 1, bytes a token]``.
        unverified: why nobody has seen it agree with the reference.
    """

    name: str
    says: frozenset[str]
    start: Callable[[str, Batch, torch.device], Launch] = field(hash=False)
    kernel: Callable[[Batch], Batch] = field(hash=False)
    tolerances: Mapping[str, float] = field(hash=False)
    reads_pages: bool = True
    packed: frozenset[str] = frozenset()
    unverified: str = ""

    def tolerance(self, dtype: str) -> float:
        """The largest relative error that counts as right; 0 for a dtype never measured."""
        return self.tolerances.get(dtype, 0.0)

    def plan(self, batch: Batch, device: str) -> FlashInferPlan:
        """Plans with FlashInfer; see :meth:`backends.contract.Adapter.plan`."""
        missing = sorted(find_asked(batch) - self.says)
        if missing:
            raise RefusedError(f"{self.name} cannot express {', '.join(missing)}")
        for name in {batch.dtype, batch.cache_dtype} - self.packed:
            torch_dtype(name)
        library.find(self.name, "flashinfer:__version__")
        place = library.open_device(self.name, device)
        kernel = self.kernel(batch)
        library.recall(self.name, kernel)
        with library.asking(self.name, kernel):
            return FlashInferPlan(self.name, batch, kernel, self.start(self.name, batch, place))

    def prepare(self, batches: Iterable[Batch], device: str = "cuda") -> None:
        """Compiles by running every kernel once, on as little as it takes, several at a time."""
        kernels = dict.fromkeys(self.kernel(batch) for batch in batches)
        with ThreadPoolExecutor(BUILDS, thread_name_prefix=self.name) as pool:
            for _ in pool.map(lambda kernel: self._try(kernel, device), kernels):
                pass

    def _try(self, batch: Batch, device: str) -> None:
        try:
            plan = self.plan(batch, device)
            given = make_inputs(batch, device)
            plan.run(given.q, given.kv, given.sinks, given.indices)
        except RefusedError:
            return  # whoever runs such a batch will hear why


@dataclass(frozen=True, slots=True)
class FlashInferPlan:
    """A planned batch; implements :class:`backends.contract.Plan`.

    Not for several threads at once: all plans of a device share its workspace.
    """

    name: str
    batch: Batch
    kernel: Batch
    launch: Launch

    def run(
        self,
        q: torch.Tensor,
        kv: PagedKV,
        sinks: torch.Tensor | None = None,
        indices: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Launches the kernel and waits for nothing; see the contract's ``Plan.run``."""
        with library.asking(self.name, self.kernel):
            return self.launch(q, kv, sinks, indices)
