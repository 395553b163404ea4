"""Columns as numbers: rows that are alike in many columns get one number, without a look at each.

NumPy and Arrow do the work. What is fast: arithmetic on 32 bits, in place. What is slow: to choose
by a mask, and to take memory for a new column.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy
import pyarrow

from selector.plan.places import LONGEST

__all__ = ["Numbers", "is_plain", "joined", "nulls", "numbered", "taken", "whole"]

Numbers = numpy.ndarray[Any, numpy.dtype[Any]]

_MOST_SHORT = 1 << 31
_FEW = 1 << 12


def whole(rows: Any, name: str) -> tuple[Numbers, Any]:
    """A column of whole numbers, and where it is one; a column that is missing says nothing."""
    nothing = numpy.zeros(rows.num_rows, numpy.int64)
    if name not in rows.schema.names:
        return nothing, nothing > 0
    column = rows.column(name)
    kind = column.type
    if pyarrow.types.is_floating(kind):
        values = column.cast(pyarrow.float64()).fill_null(0.5).to_numpy(zero_copy_only=False)
        whole = (numpy.abs(values) < LONGEST) & (values == numpy.trunc(values))
        return numpy.where(whole, values, 0).astype(numpy.int64), whole
    if not pyarrow.types.is_integer(kind):
        return nothing, nothing > 0
    values = _raw(column)
    if column.null_count:
        values = values * _known(column)
    if kind == pyarrow.uint64():
        values = numpy.minimum(values, LONGEST)
    return values.astype(numpy.int64, copy=False), values > 0


def nulls(rows: Any, name: str) -> Any:
    """Where a column says nothing; ``None``: it says something in every row."""
    if name not in rows.schema.names:
        return numpy.ones(rows.num_rows, bool)
    column = rows.column(name)
    return column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None


def joined(
    columns: Iterable[Any], rows: int, first: tuple[Numbers, int] | None = None
) -> tuple[Numbers, int]:
    """Columns as one of numbers: rows with the same number are alike in all of them.

    Args:
        columns: Arrow arrays.
        rows: how many.
        first: a column that is numbers already, and what they are below.

    Returns:
        The numbers, and what they are below.
    """
    found, size = first or (numpy.zeros(rows, numpy.int32), 1)
    for column in columns:
        numbers, count = _numbers(column)
        if count == 1:
            continue
        if size > 1 and size * count > _few(rows):
            found, size = _closed_up(found, size)
        size *= count
        if size >= _MOST_SHORT:
            found = found.astype(numpy.int64, copy=False)
        found *= count
        numpy.add(found, numbers, out=found, casting="unsafe")
    return found, size


def _few(rows: int) -> int:
    """How many numbers are few enough for a list of them all, beside so many rows."""
    return 4 * rows + _FEW


def _numbers(column: Any) -> tuple[Numbers, int]:
    """A column as numbers, the same for equal values, and what they are below."""
    kind = column.type
    if column.null_count == len(column):
        return numpy.zeros(len(column), numpy.int64), 1
    try:
        if pyarrow.types.is_boolean(kind):
            bits = _bits(column, 1)
            if not column.null_count:
                return bits, 2
            bits += 1
            bits *= _known(column)
            return bits, 3
        if pyarrow.types.is_integer(kind) and kind != pyarrow.uint64():
            few = _few_whole(column)
            if few is not None:
                return few
        if pyarrow.types.is_floating(kind):  # as bits: no value is lost among equal ones
            column = column.cast(pyarrow.float64()).view(pyarrow.int64())
        if not pyarrow.types.is_dictionary(kind):
            column = column.dictionary_encode()
        size = len(column.dictionary)
        if not column.null_count:
            return _raw(column.indices), size
        numbers = _raw(column.indices).astype(numpy.int32)
        numbers += 1
        numbers *= _known(column)
        return numbers, size + 1
    except pyarrow.ArrowException:  # lists and the like
        known: dict[str, int] = {}
        listed = [known.setdefault(repr(one), len(known)) for one in column.to_pylist()]
        return numpy.array(listed, numpy.int64), len(known)


def _few_whole(column: Any) -> tuple[Numbers, int] | None:
    """Whole numbers that lie close together as numbers from 0; null is 0."""
    values = _raw(column)
    low, high = int(values.min()), int(values.max())  # of what lies under null, too
    if high - low >= _FEW:
        return None
    most = high - low
    numbers = values.astype(numpy.int32)
    numbers -= numpy.int64(low).astype(numpy.int32)  # right whatever was cut off: they are close
    if not column.null_count:
        return numbers, most + 1
    known = _known(column)
    for _ in range(2):  # turned round twice, so that they end where the known ones do
        numpy.subtract(most + 1, numbers, out=numbers)
        numbers *= known  # faster than to choose by a mask
        most = int(numbers.max())
    return numbers, most + 1


def _raw(column: Any) -> Any:
    """The values of a column of numbers; where it is null, any number."""
    kind = column.type.to_pandas_dtype()
    end = column.offset + len(column)
    return numpy.frombuffer(column.buffers()[1], kind, end)[column.offset :]


def _known(column: Any) -> Any:
    """1 where a column has a value, 0 where it is null."""
    if column.buffers()[0] is None:
        return numpy.ones(len(column), numpy.uint8)
    return _bits(column, 0)


def _bits(column: Any, buffer: int) -> Any:
    """A buffer of bits of a column, as 0 and 1."""
    start, end = column.offset, column.offset + len(column)
    some = numpy.frombuffer(column.buffers()[buffer], numpy.uint8)[start // 8 : -(-end // 8)]
    return numpy.unpackbits(some, bitorder="little")[start % 8 :][: len(column)]


def _closed_up(numbers: Numbers, below: int) -> tuple[Numbers, int]:
    """The same rows numbered from 0 without gaps, and what the numbers are below."""
    if below > _few(len(numbers)):
        encoded = pyarrow.array(numbers).dictionary_encode()
        return encoded.indices.to_numpy().astype(numpy.int64), len(encoded.dictionary)
    numbers = numbers.astype(numpy.int64, copy=False)  # NumPy looks up by no other
    seen = numpy.zeros(below, bool)
    seen[numbers] = True
    present = numpy.flatnonzero(seen)
    renumbered = numpy.zeros(below, numpy.int32)
    renumbered[present] = numpy.arange(len(present))
    return renumbered.take(numbers, mode="clip"), len(present)


def numbered(numbers: Numbers, below: int) -> tuple[Numbers, Numbers]:
    """The same rows numbered from 0 without gaps, and the first row of each number."""
    count = len(numbers)
    if below > count:
        numbers, below = _closed_up(numbers, below)
    numbers = numbers.astype(numpy.int64, copy=False)
    first = numpy.full(below, -1, numpy.int64)
    first[numbers[::-1]] = numpy.arange(count - 1, -1, -1)  # the last one written is the first
    present = numpy.flatnonzero(first >= 0)
    if len(present) < below:
        renumbered = numpy.zeros(below, numpy.int64)
        renumbered[present] = numpy.arange(len(present))
        numbers = renumbered.take(numbers, mode="clip")
    return numbers, first[present]


def taken(values: Any, which: Numbers) -> Any:
    """Some values of a column by their numbers; of a column of numbers, faster than by Arrow."""
    if values.null_count == len(values):
        return pyarrow.nulls(len(which), values.type)
    if not pyarrow.types.is_integer(values.type):
        return values.take(pyarrow.array(which))
    known = None
    if values.null_count:
        bits = _known(values).take(which, mode="clip")
        known = pyarrow.py_buffer(numpy.packbits(bits, bitorder="little"))
    found = pyarrow.py_buffer(_raw(values).take(which, mode="clip"))
    return pyarrow.Array.from_buffers(values.type, len(which), [known, found])


def is_plain(kind: Any) -> bool:
    """Whether equal values of a type are the same in Python."""
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return any(
        (
            pyarrow.types.is_boolean(kind),
            pyarrow.types.is_integer(kind),
            pyarrow.types.is_string(kind),
            pyarrow.types.is_null(kind),
        )
    )
