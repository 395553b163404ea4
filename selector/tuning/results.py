"""Timings as data: shapes, the candidates' times for each, and everything that repeating takes.

A **shape** is one attention call without tensors. A **candidate** is an entry of the manifest that
accepts the shape. What a policy is asked about a shape is asked of its longest request: the longest
query and the longest sequence, and how many requests run together.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, repeat
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import msgspec

from selector.errors import AttnselError
from selector.values import Device, Layer, ManifestRef, Phase, Request

__all__ = [
    "Measured",
    "MlaSizes",
    "Results",
    "Runner",
    "Shape",
    "Timing",
    "UnreadableResultsError",
    "read_results",
]

VERSION = 1
"""Of the form of a results file."""


Day = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-\d{2}-\d{2}[0-9T:.+Z-]*$")]
Count = Annotated[int, msgspec.Meta(ge=1)]
Microseconds = Annotated[float, msgspec.Meta(gt=0)]


class UnreadableResultsError(AttnselError, ValueError):
    """A file does not hold timings of this version."""

    code = "UNREADABLE_RESULTS"


class MlaSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sizes of an MLA layer, in elements."""

    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


class Shape(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One attention call: what is asked of the manifest, and of a kernel.

    Attributes:
        phase: what all its requests are.
        requests: ``(how many, query_len, seq_len)`` of requests that are alike, in order.
        num_heads: query heads.
        num_kv_heads: KV heads; 1 for MLA.
        head_size: elements of a query or key head; for MLA, latent and rotary part.
        page_size: tokens in a page of the cache.
        dtype: element type of queries, output and cache.
        mla: the sizes of an MLA layer; ``None``: an ordinary layer.
        held_out: kept from tuning, so that a policy can be judged by what it has not seen.
    """

    phase: Phase
    requests: Annotated[tuple[tuple[Count, Count, Count], ...], msgspec.Meta(min_length=1)]
    num_heads: Count
    num_kv_heads: Count
    head_size: Count
    page_size: Count
    dtype: str
    mla: MlaSizes | None = None
    held_out: bool = False

    @property
    def query_lens(self) -> tuple[int, ...]:
        """New tokens of each request."""
        return tuple(chain.from_iterable(repeat(query, n) for n, query, _ in self.requests))

    @property
    def seq_lens(self) -> tuple[int, ...]:
        """New plus cached tokens of each request."""
        return tuple(chain.from_iterable(repeat(seq, n) for n, _, seq in self.requests))

    @property
    def num_reqs(self) -> int:
        """How many requests run together."""
        return sum(n for n, _, _ in self.requests)

    @property
    def request(self) -> Request:
        """What a policy is asked about."""
        query_len = max(query for _, query, _ in self.requests)
        return Request(query_len, max(seq for _, _, seq in self.requests))

    @property
    def layer(self) -> Layer:
        """What the shape needs of an attention layer."""
        fields: dict[str, object] = {
            "head_size": self.head_size,
            "dtype": self.dtype,
            "kv_cache_dtype": "auto",
            "block_size": self.page_size,
            "attn_type": "decoder",
            "num_heads": self.num_heads,
            "num_kv_heads": self.num_kv_heads,
            "num_reqs": self.num_reqs,
        }
        if self.mla is None:
            return Layer.of(mla=False, **fields)
        return Layer.of(mla=True, sparse=False, **fields, **msgspec.structs.asdict(self.mla))

    def __str__(self) -> str:
        """The shape in a line."""
        request = self.request
        lengths = f"{request.query_len} new of {request.seq_len}"
        uneven = "up to " if len(self.requests) > 1 else ""
        heads = f"{self.num_heads}/{self.num_kv_heads} heads of {self.head_size}"
        return (
            f"{self.phase} {self.num_reqs} × {uneven}{lengths}, {heads}, "
            f"pages of {self.page_size}, {self.dtype}"
        )


class Timing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one candidate took for a shape, or why there is no time.

    Attributes:
        candidate: the entry's name.
        median_us: time on the device of one run; ``None``: it did not run.
        p10_us: a tenth of the runs were faster.
        p90_us: a tenth of the runs were slower.
        repetitions: runs timed.
        plan_us: time of making the shape ready, on the CPU's clock.
        refused: the kernel's refusal.
        fault: what went wrong otherwise.
        disagrees_with: candidates whose output for the same inputs is another one.
    """

    candidate: str
    median_us: Microseconds | None = None
    p10_us: Microseconds | None = None
    p90_us: Microseconds | None = None
    repetitions: int = 0
    plan_us: float | None = None
    refused: str = ""
    fault: str = ""
    disagrees_with: tuple[str, ...] = ()


class Measured(msgspec.Struct, frozen=True):
    """A shape and what every candidate took for it."""

    shape: Shape
    timings: tuple[Timing, ...]

    @property
    def times(self) -> dict[str, float]:
        """Candidate → median, in microseconds, for those that ran."""
        return {t.candidate: t.median_us for t in self.timings if t.median_us is not None}


class Runner(msgspec.Struct, frozen=True):
    """What is known of a candidate beside its times.

    ``reads_pages`` is false where K and V are first copied out of the pages: an engine with a paged
    cache cannot use it as it stands.
    """

    reads_pages: bool = True


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Timings of one grid on one device.

    Attributes:
        version: of this form.
        date: when, ISO 8601.
        device: what ran.
        facts: versions of what was installed, driver included.
        manifest: which manifest was asked for candidates.
        grid: the name of the grid.
        seed: of the inputs.
        command: how to repeat.
        method: how a time was taken.
        runners: candidates that ran.
        not_run: entries that accept no shape or could not run, and why.
        defaults: phase → candidates that the library prefers by itself, in order.
        left: shapes of the grid that were not reached.
        measured: shapes and times.
    """

    version: int
    date: Day
    device: Device
    facts: Mapping[str, str | bool | None]
    manifest: ManifestRef
    grid: str
    seed: int
    command: str
    method: str
    runners: dict[str, Runner]
    not_run: dict[str, str]
    defaults: Mapping[Phase, tuple[str, ...]] = MappingProxyType({})
    left: int = 0
    measured: tuple[Measured, ...] = ()


def read_results(path: Path) -> Results:
    """The timings that a file holds.

    Raises:
        UnreadableResultsError: it holds none, or of another version.
        OSError: it cannot be opened.
    """
    data = path.read_bytes()
    try:
        version: Any = msgspec.json.decode(data, type=dict[str, Any]).get("version")
        if version != VERSION:
            said = "none" if version is None else version
            raise UnreadableResultsError(
                f"{path}: version is {said}, not {VERSION}; `attnsel bench` writes such a file"
            )
        results = msgspec.json.decode(data, type=Results)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableResultsError(f"{path}: no timings: {error}") from None
    _check_candidates(path, results)
    return results


def _check_candidates(path: Path, results: Results) -> None:
    """Holds that each shape has a candidate's time once, and that something is known of each."""
    for one in results.measured:
        names = [timing.candidate for timing in one.timings]
        for name in names:
            if name not in results.runners:
                raise UnreadableResultsError(f"{path}: no timings: `runners` lacks {name[:60]!r}")
        if len({*names}) < len(names):
            raise UnreadableResultsError(f"{path}: no timings: a candidate twice for {one.shape}")
