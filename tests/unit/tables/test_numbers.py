"""Columns as numbers: two rows have the same number exactly when they are alike."""

from __future__ import annotations

import random
from typing import Any

import pytest

numpy = pytest.importorskip("numpy")
pyarrow = pytest.importorskip("pyarrow")

from selector.tables import numbers  # noqa: E402

Values = list[Any]
INTS = (pyarrow.int8(), pyarrow.int16(), pyarrow.int32(), pyarrow.int64(), pyarrow.uint64())


def a_column(draw: random.Random, rows: int) -> Any:
    """A slice of a column of some type, with few or many nulls, or none."""
    few = draw.choice((1, 2, 7, rows))
    odds = draw.choice((0, 0, 0.1, 0.6, 1))
    kind = draw.randrange(6)
    if kind == 0:
        low = draw.choice((0, 1, -128, 127 - few % 100))
        values: Values = [min(127, low + draw.randrange(few)) for _ in range(rows + 5)]
        of = draw.choice(INTS) if min(values) >= 0 else draw.choice(INTS[:-1])
    elif kind == 1:
        low = draw.choice((2**31 - 2, -(2**31) - 1, 2**40, -(2**63), 2**63 - 1 - few))
        values = [low + draw.randrange(few) for _ in range(rows + 5)]
        of = pyarrow.int64()
    elif kind == 2:
        values = [draw.choice((-(2**63), 2**63 - 1, 0, 2**32)) for _ in range(rows + 5)]
        of = pyarrow.int64()
    elif kind == 3:
        values, of = [draw.random() < 0.5 for _ in range(rows + 5)], pyarrow.bool_()
    elif kind == 4:
        values = [f"w{draw.randrange(min(few, 127))}" for _ in range(rows + 5)]
        of = draw.choice((pyarrow.string(), pyarrow.dictionary(pyarrow.int8(), pyarrow.string())))
    else:
        values, of = [[draw.randrange(few)] for _ in range(rows + 5)], pyarrow.list_(pyarrow.int8())
        values = [[one[0] % 100] for one in values]
    values = [None if draw.random() < odds else value for value in values]
    return pyarrow.array(values, of).slice(draw.randrange(5), rows)


@pytest.mark.parametrize("seed", range(150))
def test_rows_have_one_number_exactly_when_they_are_alike(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    if seed % 3 == 0:
        monkeypatch.setattr(numbers, "_FEW", draw.choice((1, 16)))
    rows = draw.choice((1, 2, 40, 400))
    columns = [a_column(draw, rows) for _ in range(draw.randrange(1, 12))]
    number, firsts = numbers.numbered(*numbers.joined(columns, rows))
    alike = [repr(row) for row in zip(*(c.to_pylist() for c in columns), strict=True)]
    order = {row: alike.index(row) for row in alike}
    assert sorted(firsts.tolist()) == sorted(order.values())
    assert firsts[number].tolist() == [order[row] for row in alike]


def test_a_dictionary_of_as_many_words_as_its_numbers_can_say() -> None:
    words = [f"w{n}" for n in range(128)]
    column = (
        pyarrow.array([*words, None, "w0"])
        .dictionary_encode()
        .cast(pyarrow.dictionary(pyarrow.int8(), pyarrow.string()))
    )
    number, firsts = numbers.numbered(*numbers.joined([column], 130))
    assert len(firsts) == 129
    assert number[129] == number[0]


@pytest.mark.parametrize("kind", [*INTS, pyarrow.string(), pyarrow.list_(pyarrow.string())])
def test_values_are_taken_as_arrow_takes_them(kind: Any) -> None:
    for values in ([1, None, 3, None], [4, 5, 6, 7], [None] * 4):
        of = pyarrow.types.is_list(kind)
        said = [v if v is None or pyarrow.types.is_integer(kind) else str(v) for v in values]
        column = pyarrow.array([[v] if of else v for v in said], kind).slice(1)
        which = numpy.array([2, 0, 1, 1, 0, 2, 2, 2, 1])
        assert numbers.taken(column, which).equals(column.take(pyarrow.array(which)))


def test_more_kinds_of_rows_than_32_bits_can_tell() -> None:
    """The first row and the last are 2^32 apart."""
    size = 1 << 16
    columns = [pyarrow.array(range(size + 1)), pyarrow.array([*range(size), 0])]
    _, firsts = numbers.numbered(*numbers.joined(columns, size + 1))
    assert len(firsts) == size + 1
