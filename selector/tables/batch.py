"""Whole tables: what rows share is read once, and each cell is answered once.

In each piece of a table everything but the two lengths is made one number a row, so that each
different layer is read once. The lengths of its rows are then put into cells column by column
(:mod:`selector.plan.places`), and the answers are columns taken from the few different ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy
import pyarrow

from selector.binding import Selector
from selector.errors import AttnselError
from selector.manifest import BATCH_COLUMNS
from selector.plan.places import LONGEST, Places
from selector.tables.answers import ANSWER_COLUMNS, PLAIN_COLUMNS, failed
from selector.tables.asked import Asked, Cell
from selector.tables.numbers import Numbers, is_plain, joined, numbered, taken, whole
from selector.tables.rows import RowReader, load_preset, requests_of
from selector.values import Device, Model, Request

__all__ = ["Answers", "TableReader", "answer_types", "resolve_table"]

MOST_ROWS = 1 << 18
_MOST_LAYERS = 1 << 12
_WORTH = 3
"""A layer with fewer rows than this in a piece is asked row by row."""
_LENGTHS = ("query_len", "seq_len")
_BESIDE = ("speculative_tokens", "num_reqs")

Columns = dict[str, Any]


def resolve_table(
    selector: Selector,
    table: Any,
    *,
    default: Device | None = None,
    closed_world: bool = False,
    reasons: bool = False,
    load: Callable[[str], Model] = load_preset,
) -> Any:
    """The choice for every row of a table, in the table's order.

    Args:
        selector: gives the answers.
        table: an Arrow table or record batch, or a mapping of names to NumPy or Arrow arrays. The
            columns are those of ``attnsel batch``: fields of the layer by their names or aliases,
            the device (``arch``, ``gpu``, …), facts, and ``query_len``, ``seq_len`` and
            ``speculative_tokens`` in tokens; others are passed over.
        default: the device of rows that name none.
        closed_world: take what is unknown not to be there.
        reasons: whether to say why as well, which takes longer.
        load: reads a row's ``model``; only shipped presets unless the caller trusts the rows.

    Returns:
        An Arrow table with one row for each: ``decode_backend``, ``prefill_backend``,
        ``prefill_path``, ``prefill_by``, ``phase`` and ``error`` as text (``dictionary<string>``),
        ``num_decodes`` and ``decode_threshold`` (in tokens) as ``int64``. With reasons also
        ``candidates``, ``missing`` and ``conditions`` as lists of text, and ``rejections``: a JSON
        object, backend → codes. Null: nothing fits, or it depends on something unknown. A row
        that cannot be read has its reason in ``error``, and no answer.
    """
    if isinstance(table, pyarrow.RecordBatch):
        table = pyarrow.Table.from_batches([table])
    elif not isinstance(table, pyarrow.Table):
        table = pyarrow.table(dict(table))
    reader = TableReader(
        RowReader(selector, default, closed_world=closed_world, load=load), reasons
    )
    types = answer_types(ANSWER_COLUMNS if reasons else PLAIN_COLUMNS)
    schema = pyarrow.schema([(name, _encoded(kind)) for name, kind in types.items()])
    found = [
        pyarrow.RecordBatch.from_arrays([answers.encoded(name) for name in types], schema=schema)
        for batch in table.to_batches()
        for answers in reader.answer(batch)
    ]
    return pyarrow.Table.from_batches(found, schema)


def answer_types(names: Sequence[str] = ANSWER_COLUMNS) -> dict[str, Any]:
    """The Arrow type of each column of an answer."""
    words = pyarrow.list_(pyarrow.string())
    types = dict.fromkeys(("candidates", "missing", "conditions"), words)
    types |= dict.fromkeys(("num_decodes", "decode_threshold"), pyarrow.int64())
    return {name: types.get(name, pyarrow.string()) for name in names}


def _encoded(kind: Any) -> Any:
    return pyarrow.dictionary(pyarrow.int32(), kind) if kind == pyarrow.string() else kind


class Answers(NamedTuple):
    """The answers to some rows: the different ones, and which of them each row has.

    Attributes:
        rows: an Arrow record batch.
        different: the columns of each different answer.
        which: the number of each row's answer among them.
    """

    rows: Any
    different: Sequence[Columns]
    which: Numbers

    def column(self, name: str) -> Any:
        """An answer's column, as :func:`answer_types` says."""
        return taken(self._values(name), self.which)

    def encoded(self, name: str) -> Any:
        """The same; text is encoded as a dictionary."""
        values = self._values(name)
        if values.type != pyarrow.string():
            return self.column(name)
        few = values.dictionary_encode()
        indices = taken(few.indices, self.which)
        return pyarrow.DictionaryArray.from_arrays(indices, few.dictionary, safe=False)

    def counted(self) -> Iterator[tuple[Columns, int]]:
        """Yields each different answer and how many rows have it."""
        counts = numpy.bincount(self.which, minlength=len(self.different))
        yield from zip(self.different, counts.tolist(), strict=True)

    def _values(self, name: str) -> Any:
        values = [columns.get(name) for columns in self.different]
        if name == "rejections":
            values = [None if value is None else json.dumps(value) for value in values]
        return pyarrow.array(values, answer_types([name])[name])


class _Layer(NamedTuple):
    """What the rows of one layer have in common.

    Attributes:
        asked: the layer; ``None``: its rows are read one by one.
        speculative: draft tokens.
        failed: the columns of all its rows, where it cannot be read.
    """

    asked: Asked | None = None
    speculative: int = 0
    failed: Columns | None = None


class TableReader:
    """Answers the rows of record batches.

    Args:
        reader: reads rows; gives every answer of which lengths alone do not decide.
        reasons: whether the answers say why.
    """

    def __init__(self, reader: RowReader, reasons: bool = True) -> None:
        self.reader = reader
        self.reasons = reasons
        self._schema: Any = None
        self._known: dict[tuple[Any, ...], _Layer] = {}

    def answer(self, rows: Any) -> Iterator[Answers]:
        """Yields the answers to a record batch, in order, in as many pieces as memory asks for."""
        for start in range(0, rows.num_rows, MOST_ROWS):
            yield from self._answer(rows.slice(start, MOST_ROWS))

    def _answer(self, rows: Any) -> Iterator[Answers]:
        names = [n for n in rows.schema.names if n in _BESIDE or self.reader.reads(n)]
        number, firsts = numbered(*joined(map(rows.column, names), rows.num_rows))
        if len(firsts) > _MOST_LAYERS < rows.num_rows:
            for start in range(0, rows.num_rows, _MOST_LAYERS):
                yield from self._answer(rows.slice(start, _MOST_LAYERS))
            return
        layers = self._layers(rows.select(names).take(firsts))
        piece = _Piece(self, rows, layers, number, firsts)
        piece.answer_failed()
        piece.answer_cells()
        piece.answer_rows(names)
        yield Answers(rows, piece.different, piece.which)

    def _layers(self, rows: Any) -> list[_Layer]:
        """The layer of each row; what was read before is not read again."""
        if rows.schema != self._schema or len(self._known) > _MOST_LAYERS:
            self._schema = rows.schema
            self._known.clear()
        columns = [column.to_pylist() for column in rows.columns]
        told = [
            values if is_plain(column.type) else map(repr, values)
            for column, values in zip(rows.columns, columns, strict=True)
        ]
        found = []
        for place, key in enumerate(zip(*told, strict=True)):
            layer = self._known.get(key)
            if layer is None:
                row = {
                    n: values[place] for n, values in zip(rows.schema.names, columns, strict=True)
                }
                layer = self._known[key] = self._layer(row)
            found.append(layer)
        return found or [self._layer({})]

    def _layer(self, row: Columns) -> _Layer:
        try:
            asked = self.reader.ask(row)
            if self.reasons:
                asked.bound  # noqa: B018  what cannot be is refused here
        except AttnselError as error:
            return _Layer(failed=failed(str(error)))
        try:
            requests = requests_of({name: row.get(name) for name in _BESIDE})
        except AttnselError:
            return _Layer()
        return _Layer(asked if len(requests) == 1 else None, requests[0].speculative_tokens)

    def answer_one(self, row: Columns) -> Columns:
        """The columns of a row; without reasons, from the compiled form where it can say."""
        if not self.reasons:
            try:
                (request,) = requests_of(row)
                if request.query_len is not None and request.seq_len is not None:
                    return self.reader.ask(row).choose(request)
            except (AttnselError, ValueError):
                pass  # the row's own error, or a batch
        return self.reader.columns(row)


class _Piece:
    """Rows on their way to answers."""

    def __init__(
        self,
        table: TableReader,
        rows: Any,
        layers: Sequence[_Layer],
        number: Numbers,
        firsts: Numbers,
    ) -> None:
        self.table = table
        self.rows = rows
        self.layers = layers
        self.number = number
        self.firsts = firsts
        self.which = numpy.full(rows.num_rows, -1, numpy.int64)
        self.different: list[Columns] = []
        self._known: dict[int, int] = {}

    def answer_failed(self) -> None:
        """Answers the rows of layers that cannot be read."""
        found = [-1 if one.failed is None else self._add(one.failed) for one in self.layers]
        if self.different:
            self.which = numpy.array(found, numpy.int64)[self.number]

    def answer_cells(self) -> None:
        """Answers the rows whose lengths decide alone, cell by cell."""
        query_len, seq_len, plain = self._lengths()
        usable = numpy.array([one.asked is not None for one in self.layers])
        if not usable.all():
            plain &= usable[self.number]
        at = self.number if plain.all() else self.number[plain]
        counts = numpy.bincount(at, minlength=len(self.layers))
        if counts.min() < _WORTH:
            plain &= (counts >= _WORTH)[self.number]
        choices = [
            self._choice(one) if n >= _WORTH else None
            for one, n in zip(self.layers, counts, strict=True)
        ]
        at = numpy.flatnonzero(plain)
        rows = _Rows(at, self.number, query_len, seq_len, self.firsts)
        if len(at) < len(plain):
            rows = _Rows(at, *(column[at] for column in rows[1:4]))
        rows, firsts = rows.placed(choices)
        cells = [(self.layers[layer], self._cell(layer, *first)) for layer, *first in firsts]
        paths = [self._paths(*cell) for cell in cells]
        rows, firsts = rows.placed(paths)
        found = [self._path(*cells[cell], place, *lengths) for cell, place, *lengths in firsts]
        answers = numpy.array(found, numpy.int64).take(rows.number)
        if len(answers) == len(self.which):
            self.which = answers
        else:
            self.which[rows.at] = answers

    def _choice(self, one: _Layer) -> Places | None:
        try:
            return one.asked.places() if one.asked else None
        except AttnselError:
            return None  # such rows get the definition's words, one by one

    def _paths(self, one: _Layer, cell: Cell | None) -> Places | None:
        try:
            return one.asked.places_in(cell, one.speculative) if one.asked and cell else None
        except AttnselError:
            return None

    def _cell(self, layer: int, place: int, query_len: int, seq_len: int) -> Cell | None:
        one = self.layers[layer]
        assert one.asked is not None
        reasons = self.table.reasons
        known = one.asked.known_cell(place, reasons)
        if known is not None:
            return known
        try:
            return one.asked.cell(place, Request(query_len, seq_len, one.speculative), reasons)
        except AttnselError:
            return None

    def _path(self, one: _Layer, cell: Cell | None, place: int, query: int, seq: int) -> int:
        assert one.asked is not None
        assert cell is not None
        found = cell.paths.get((one.speculative, place))
        if found is None:
            try:
                found = one.asked.path_in(cell, place, Request(query, seq, one.speculative))
            except AttnselError:
                return -1
        return self._add(found)

    def answer_rows(self, names: Sequence[str]) -> None:
        """Answers all other rows; equal ones once."""
        left = numpy.flatnonzero(self.which < 0)
        if not len(left):
            return
        asked = [*names, *(n for n in self.rows.schema.names if n in (*_LENGTHS, *BATCH_COLUMNS))]
        rows = self.rows.select(asked).take(pyarrow.array(left))
        lengths = [rows.column(n) for n in range(len(names), len(asked))]
        layers = (self.number[left], len(self.layers))
        number, firsts = numbered(*joined(lengths, len(left), layers))
        found = [
            self._add(self.table.answer_one(row))
            for row in rows.take(pyarrow.array(firsts)).to_pylist()
        ]
        self.which[left] = numpy.array(found, numpy.int64)[number]

    def _lengths(self) -> tuple[Numbers, Numbers, Any]:
        """The lengths of each row in tokens, and whether they are those of one plain request."""
        query_len, queries = whole(self.rows, "query_len")
        seq_len, seqs = whole(self.rows, "seq_len")
        plain = queries & seqs & (query_len >= 1) & (query_len <= seq_len) & (seq_len < LONGEST)
        for name in BATCH_COLUMNS:
            if name in self.rows.schema.names:
                plain &= self.rows.column(name).is_null().to_numpy(zero_copy_only=False)
        return query_len, seq_len, plain

    def _add(self, columns: Columns) -> int:
        """The number of an answer; what is the same thing has one."""
        number = self._known.setdefault(id(columns), len(self.different))
        if number == len(self.different):
            self.different.append(columns)
        return number


class _Rows(NamedTuple):
    """Some rows, each with a number of what it belongs to, and its lengths in tokens.

    Attributes:
        at: where they are in the table.
        number: of what they belong to.
        query_len: tokens.
        seq_len: tokens.
        firsts: the first row of each number, where each has one.
    """

    at: Numbers
    number: Numbers
    query_len: Numbers
    seq_len: Numbers
    firsts: Numbers | None = None

    def placed(
        self, places: Sequence[Places | None]
    ) -> tuple[_Rows, list[tuple[int, int, int, int]]]:
        """The rows by the place that their lengths have in what they belong to.

        Args:
            places: of each thing that rows belong to; rows of those without are left out.

        Returns:
            The rows with the numbers of their places, and of each such place: what it belongs to,
            itself, and the lengths of the first row there.
        """
        different = [*{id(one): one for one in places}.values()]
        most = max((one.size for one in different if one is not None), default=1)
        rows: _Rows = self
        key, number, firsts = self.number, self.number, self.firsts
        if most > 1 or None in different:
            place = self._places(places, different)
            if None in different:
                kept = numpy.flatnonzero(place >= 0)
                place, rows = place[kept], _Rows(*(column[kept] for column in self[:4]))
            key = rows.number * most
            key += place
            firsts = None
        if firsts is None:
            number, firsts = numbered(key, len(places) * most)
        first = (
            key[firsts] // most,
            key[firsts] % most,
            rows.query_len[firsts],
            rows.seq_len[firsts],
        )
        listed = zip(*(column.tolist() for column in first), strict=True)
        return rows._replace(number=number, firsts=firsts), [*listed]

    def _places(self, places: Sequence[Places | None], different: list[Places | None]) -> Numbers:
        """The place of each row; -1: what it belongs to has none."""
        order = {id(one): which for which, one in enumerate(different)}
        small = numpy.uint8 if len(different) < 256 else numpy.int64
        kind = numpy.array([order[id(one)] for one in places], small)[self.number]
        place = numpy.zeros(len(self.at), numpy.int64)
        for which, one in enumerate(different):
            if one is None:
                place[numpy.flatnonzero(kind == which)] = -1
            elif one.size > 1:
                at = numpy.flatnonzero(kind == which)
                place[at] = one.places(self.query_len[at], self.seq_len[at])
        return place
