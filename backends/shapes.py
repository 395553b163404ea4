"""Grids: which shapes are timed. A grid is a YAML file; its shapes are drawn, not multiplied out.

Each group of a grid draws ``count`` shapes: lengths and numbers of requests log-uniformly between
two bounds, the rest uniformly from lists. A shape beyond the bounds on tokens, cache and work is
drawn again. Of the shapes of a group that have the same heads, every second one is held out from
tuning. The same seed gives the same shapes everywhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby, zip_longest
from pathlib import Path
from random import Random
from typing import TypeVar

import msgspec

from selector.errors import AttnselError
from selector.tuning.results import MlaSizes, Shape
from selector.values import Phase

__all__ = ["Grid", "Group", "UnreadableGridError", "grid_names", "read_grid"]

T = TypeVar("T")

_FOLDER = Path(__file__).parent / "grids"
_MOST_DRAWS = 10_000


class UnreadableGridError(AttnselError, ValueError):
    """There is no such grid, or its file says something else than shapes."""

    code = "UNREADABLE_GRID"


class Group(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shapes of one kind.

    Attributes:
        name: what they have in common.
        phase: of all their requests.
        count: how many to draw.
        heads: pairs of query heads and KV heads; drawn from, as are the other lists.
        head_size: elements of a head; for MLA, left out.
        mla: sizes of MLA layers instead.
        dtype: element types.
        page_size: tokens in a page.
        requests: bounds on their number.
        query_len: bounds on new tokens of a request.
        context_len: bounds on cached tokens of a request.
        without_context: share of shapes where nothing is cached.
        uneven: share of shapes whose requests differ in length, by up to 16 times.
        most_tokens: bound on the new tokens of a shape.
        most_cache_gb: bound on the size of its KV cache.
        most_tflop: bound on its arithmetic.
    """

    name: str
    phase: Phase
    count: int
    heads: tuple[tuple[int, int], ...]
    head_size: tuple[int, ...] = ()
    mla: tuple[MlaSizes, ...] = ()
    dtype: tuple[str, ...] = ("bfloat16",)
    page_size: tuple[int, ...] = (16,)
    requests: tuple[int, int] = (1, 1)
    query_len: tuple[int, int] = (1, 1)
    context_len: tuple[int, int] = (1, 1)
    without_context: float = 0.0
    uneven: float = 0.0
    most_tokens: int = 65536
    most_cache_gb: float = 8.0
    most_tflop: float = 4.0

    def shapes(self, seed: int) -> Iterator[Shape]:
        """Yields the shapes of the group, in the order drawn.

        Raises:
            UnreadableGridError: the bounds leave too little to draw.
        """
        draw = Random(f"{seed}/{self.name}/{self.phase}")
        alike: Counter[tuple[int, int]] = Counter()
        for _ in range(self.count):
            for _ in range(_MOST_DRAWS):
                shape = self._draw(draw)
                if self._is_within(shape):
                    heads = shape.num_heads, shape.num_kv_heads
                    alike[heads] += 1
                    yield msgspec.structs.replace(shape, held_out=alike[heads] % 2 == 0)
                    break
            else:
                raise UnreadableGridError(f"group {self.name}: its bounds leave nothing to draw")

    def _draw(self, draw: Random) -> Shape:
        heads, kv_heads = _pick(draw, self.heads)
        mla = _pick(draw, self.mla) if self.mla else None
        if mla is not None:
            head_size = mla.kv_lora_rank + mla.qk_rope_head_dim
        else:
            head_size = _pick(draw, self.head_size)
        count = _between(draw, self.requests)
        query_len, context_len = _between(draw, self.query_len), _between(draw, self.context_len)
        if draw.random() < self.without_context:
            context_len = 0
        uneven = draw.random() < self.uneven
        lengths = [(query_len, context_len)] * count
        if uneven:
            lengths = [(_shorter(draw, q), _shorter(draw, c)) for q, c in lengths[1:]]
            lengths.insert(0, (query_len, context_len))
        runs = ((len([*same]), q, q + c) for (q, c), same in groupby(lengths))
        return Shape(
            phase=self.phase,
            requests=tuple(runs),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_size=head_size,
            page_size=_pick(draw, self.page_size),
            dtype=_pick(draw, self.dtype),
            mla=mla,
        )

    def _is_within(self, shape: Shape) -> bool:
        tokens = sum(n * query for n, query, _ in shape.requests)
        cached = sum(n * seq for n, _, seq in shape.requests)
        tensors = 1 if shape.mla else 2
        size = 2 * tensors * cached * shape.num_kv_heads * shape.head_size
        pairs = sum(n * query * (seq - (query - 1) / 2) for n, query, seq in shape.requests)
        work = 4 * shape.num_heads * shape.head_size * pairs
        return (
            tokens <= self.most_tokens
            and size <= self.most_cache_gb * 1e9
            and work <= self.most_tflop * 1e12
        )


class Grid(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to time.

    Attributes:
        grid: its name.
        description: what it answers.
        seed: of the shapes.
        groups: kinds of shapes.
        defaults: phase → candidates that the library would take by itself, in order.
        source: who says that of the library.
    """

    grid: str
    description: str
    groups: tuple[Group, ...]
    seed: int = 0
    defaults: Mapping[Phase, tuple[str, ...]] = {}
    source: str = ""

    def shapes(self) -> tuple[Shape, ...]:
        """Every shape once; groups take turns, so that a run cut short has some of each."""
        drawn = [group.shapes(self.seed) for group in self.groups]
        found: dict[Shape, Shape] = {}
        for turn in zip_longest(*drawn):
            for shape in turn:
                if shape is not None:
                    found.setdefault(msgspec.structs.replace(shape, held_out=False), shape)
        return tuple(found.values())


def grid_names() -> list[str]:
    """The grids that ship."""
    return sorted(path.stem for path in _FOLDER.glob("*.yaml"))


def read_grid(reference: str) -> Grid:
    """A grid by its name, or from a file.

    Raises:
        UnreadableGridError: there is none of that name, or the file holds something else.
        OSError: the file cannot be opened.
    """
    path = Path(reference)
    if path.suffix not in (".yaml", ".yml"):
        path = _FOLDER / f"{path.name}.yaml"
        if reference not in grid_names():
            names = ", ".join(grid_names())
            raise UnreadableGridError(f"no grid {reference[:60]}: one of {names}, or a .yaml file")
    try:
        return msgspec.yaml.decode(path.read_bytes(), type=Grid)
    except msgspec.DecodeError as error:
        said = " ".join(str(error).split())
        raise UnreadableGridError(f"{path}: no grid: {said}") from None


def _pick(draw: Random, values: tuple[T, ...]) -> T:
    return values[int(draw.random() * len(values))]


def _between(draw: Random, bounds: tuple[int, int]) -> int:
    low, high = bounds
    ratio: float = (high / low) ** draw.random()
    return min(high, round(low * ratio))


def _shorter(draw: Random, length: int) -> int:
    """A length of a sixteenth to the whole."""
    return max(1, round(length * 16 ** (draw.random() - 1))) if length else 0
