"""Grids: shapes within their bounds, the same every time, one half of them held out."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from backends.shapes import Grid, UnreadableGridError, grid_names, read_grid
from selector.values import Phase

every_grid = pytest.mark.parametrize("name", grid_names())


@every_grid
def test_shapes_are_many_and_all_different(name: str) -> None:
    grid = read_grid(name)
    shapes = grid.shapes()
    assert grid.grid == name
    questions = {msgspec.structs.replace(shape, held_out=False) for shape in shapes}
    assert len(questions) == len(shapes)
    assert 0.98 <= len(shapes) / sum(group.count for group in grid.groups) <= 1
    assert read_grid(name).shapes() == shapes


@every_grid
def test_one_half_is_held_out_in_each_phase(name: str) -> None:
    shapes = read_grid(name).shapes()
    for phase in Phase:
        mine = [shape for shape in shapes if shape.phase is phase]
        if not mine:
            continue
        held_out = sum(shape.held_out for shape in mine)
        assert 0.4 <= held_out / len(mine) <= 0.5


@every_grid
def test_shapes_are_within_the_bounds_of_their_group(name: str) -> None:
    for group in read_grid(name).groups:
        for shape in group.shapes(1):
            count = sum(n for n, _, _ in shape.requests)
            assert group.requests[0] <= count <= group.requests[1]
            assert sum(shape.query_lens) <= group.most_tokens
            longest = shape.request
            assert longest.query_len is not None
            assert group.query_len[0] <= longest.query_len <= group.query_len[1]
            assert (shape.num_heads, shape.num_kv_heads) in group.heads
            stored = 2 * sum(shape.seq_lens) * shape.num_kv_heads * shape.head_size
            assert (1 if shape.mla else 2) * stored <= group.most_cache_gb * 1e9
            if group.phase is Phase.DECODE:
                assert longest.query_len == 1


def test_a_seed_gives_other_shapes() -> None:
    group = read_grid("small").groups[0]
    assert [*group.shapes(1)] != [*group.shapes(2)]


def write(folder: Path, text: str) -> str:
    file = folder / "mine.yaml"
    file.write_text(text, "utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("grid: [", "no grid: while parsing"),
        ("grid: mine", "no grid: Object missing required field"),
        ("{grid: mine, description: x, groups: [], groops: []}", "unknown field `groops`"),
    ],
)
def test_a_file_that_is_no_grid(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UnreadableGridError) as caught:
        read_grid(write(tmp_path, text))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_no_grid() -> None:
    with pytest.raises(UnreadableGridError, match=r"no grid nope: one of .*small, or a"):
        read_grid("nope")
    with pytest.raises(UnreadableGridError):
        read_grid("../grids/small")


def test_bounds_that_leave_nothing(tmp_path: Path) -> None:
    text = """
    grid: mine
    description: Too large.
    groups:
      - {name: all, phase: prefill, count: 1, heads: [[1, 1]], head_size: [64], most_tokens: 0}
    """
    grid: Grid = read_grid(write(tmp_path, text))
    with pytest.raises(UnreadableGridError, match="group all: its bounds leave nothing"):
        grid.shapes()
