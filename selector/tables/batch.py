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
from selector.manifest import BATCH_COLUMNS, REQUEST_COLUMNS
from selector.plan.memo import remember
from selector.plan.places import LONGEST, Places
from selector.tables.answers import ANSWER_COLUMNS, PLAIN_COLUMNS, failed
from selector.tables.asked import Asked
from selector.tables.compiled import Form
from selector.tables.numbers import Numbers, is_plain, joined, nulls, numbered, taken, whole
from selector.tables.rows import RowReader, load_preset, requests_of
from selector.values import Device, Model, Request

__all__ = ["Answers", "TableReader", "answer_types", "encoded_types", "resolve_table"]

_MOST_ROWS = 1 << 18
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
    schema = pyarrow.schema(encoded_types(ANSWER_COLUMNS if reasons else PLAIN_COLUMNS))
    found = [
        pyarrow.RecordBatch.from_arrays([*map(answers.encoded, schema.names)], schema=schema)
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


def encoded_types(names: Sequence[str] = ANSWER_COLUMNS) -> dict[str, Any]:
    """The same where text is encoded as a dictionary."""
    text = pyarrow.string()
    encoded = pyarrow.dictionary(pyarrow.int32(), text)
    types = answer_types(names)
    return {name: encoded if kind == text else kind for name, kind in types.items()}


class Answers(NamedTuple):
    """The answers to some rows: the different ones, and which of them each row has.

    Attributes:
        rows: an Arrow record batch.
        different: the columns of each different answer.
        which: the number of each row's answer among them.
        texts: what was written out before: the identity of an answer → itself, its rejections.
    """

    rows: Any
    different: Sequence[Columns]
    which: Numbers
    texts: dict[int, tuple[Columns, str | None]]

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
        if name == "rejections":
            values = [*map(self._rejections, self.different)]
        else:
            values = [columns.get(name) for columns in self.different]
        return pyarrow.array(values, answer_types([name])[name])

    def _rejections(self, columns: Columns) -> str | None:
        known = self.texts.get(id(columns))
        if known is None:
            said = columns.get("rejections")
            text = None if said is None else json.dumps(said)
            known = remember(self.texts, id(columns), (columns, text))
        return known[1]


class _Layer(NamedTuple):
    """What the rows of one layer have in common.

    Attributes:
        asked: the layer; ``None``: it cannot be read.
        form: of its rows' requests; ``None``: they are read row by row.
        failed: the columns of all its rows, where it cannot be read.
    """

    asked: Asked | None = None
    form: Form | None = None
    failed: Columns | None = None

    def cells_of(self) -> tuple[Asked, Form] | None:
        """What its rows' cells are of; ``None``: they are read row by row."""
        if self.asked is None or self.form is None:
            return None
        return self.asked.together(self.form.together), self.form


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
        self._refused: dict[tuple[Any, ...], _Layer] = {}
        self._requests: dict[tuple[str, ...], list[Request] | Columns] = {}
        self._texts: dict[int, tuple[Columns, str | None]] = {}

    def answer(self, rows: Any) -> Iterator[Answers]:
        """Yields the answers to a record batch, in order, in as many pieces as memory asks for."""
        for start in range(0, rows.num_rows, _MOST_ROWS):
            yield from self._answer(rows.slice(start, _MOST_ROWS))

    def _answer(self, rows: Any) -> Iterator[Answers]:
        names = [n for n in rows.schema.names if n in _BESIDE or self.reader.reads(n)]
        number, firsts = numbered(*joined(map(rows.column, names), rows.num_rows))
        if len(firsts) > _MOST_LAYERS < rows.num_rows:
            half = rows.num_rows // 2
            yield from self._answer(rows.slice(0, half))
            yield from self._answer(rows.slice(half))
            return
        layers = self._layers(rows.select(names).take(firsts))
        piece = _Piece(self, rows, layers, number, firsts)
        piece.answer_failed()
        piece.answer_cells()
        piece.answer_rows()
        yield Answers(rows, piece.different, piece.which, self._texts)

    def _layers(self, rows: Any) -> list[_Layer]:
        """The layer of each row; what was read before is not read again."""
        if rows.schema != self._schema:
            self._schema = rows.schema
            self._known.clear()
            self._refused.clear()
        columns = [column.to_pylist() for column in rows.columns]
        told = [
            values if is_plain(column.type) else map(repr, values)
            for column, values in zip(rows.columns, columns, strict=True)
        ]
        found = []
        for place, key in enumerate(zip(*told, strict=True)):
            layer = self._known.get(key) or self._refused.get(key)
            if layer is None:
                row = {
                    n: values[place] for n, values in zip(rows.schema.names, columns, strict=True)
                }
                layer = self._layer(row)
                if layer.failed is None:
                    remember(self._known, key, layer, _MOST_LAYERS)
                else:
                    remember(self._refused, key, layer)
            found.append(layer)
        return found or [self._layer({})]

    def _layer(self, row: Columns) -> _Layer:
        try:
            asked = self.reader.ask(row)
        except AttnselError as error:
            return _Layer(failed=failed(str(error)))
        if self.reasons and asked.refused is not None:
            return _Layer(failed=asked.refused)
        said = self.requests({name: row.get(name) for name in _BESIDE})
        alike = isinstance(said, list) and Form(len(said), said[0].speculative_tokens)
        return _Layer(asked, alike or None)

    def requests(self, lengths: Columns) -> list[Request] | Columns:
        """The requests that a row's lengths tell of, or the columns of a row that is refused."""
        key = (*lengths, *map(repr, lengths.values()))
        found = self._requests.get(key)
        if found is None:
            try:
                found = requests_of(lengths)
            except AttnselError as error:
                found = failed(str(error))
            remember(self._requests, key, found)
        return found


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
        rows, kinds = self._kinds()
        rows, firsts = rows.placed([_choice(*kind) for kind in kinds])
        reasons = self.table.reasons
        cells = []
        for kind, place, query, seq in firsts:
            asked, form = kinds[kind]
            cells.append((asked, form, asked.cell(form, place, query, seq, reasons)))
        rows, firsts = rows.placed([asked.places_in(cell, form) for asked, form, cell in cells])
        found = []
        for which, place, query, seq in firsts:
            asked, form, cell = cells[which]
            found.append(self._add(asked.path_in(cell, form, place, query, seq)))
        answers = numpy.array(found, numpy.int64).take(rows.number)
        if len(answers) == len(self.which):
            self.which = answers
        else:
            self.which[rows.at] = answers

    def _kinds(self) -> tuple[_Rows, list[tuple[Asked, Form]]]:
        """The rows that cells can answer, by layer and form of their requests."""
        query_len, seq_len, plain, unknown = self._lengths()
        usable = numpy.array([one.form is not None for one in self.layers])
        if not usable.all():
            plain &= usable[self.number]
        at = self.number if plain.all() else self.number[plain]
        counts = numpy.bincount(at, minlength=len(self.layers))
        if counts.min() < _WORTH:
            plain &= (counts >= _WORTH)[self.number]
        at = numpy.flatnonzero(plain)
        if len(at) == len(plain) and unknown is None:
            rows = _Rows(at, self.number, query_len, seq_len, self.firsts)
            return rows, [one for one in map(_Layer.cells_of, self.layers) if one]
        kind = (self.number * 4 if unknown is None else self.number * 4 + unknown)[at]
        number, firsts = numbered(kind, 4 * len(self.layers))
        kinds = []
        for layer, lacking in (divmod(one, 4) for one in kind[firsts].tolist()):
            found = self.layers[layer].cells_of()
            assert found is not None
            asked, form = found
            kinds.append((asked, form._replace(unknown=lacking)))
        return _Rows(at, number, query_len[at], seq_len[at], firsts), kinds

    def _lengths(self) -> tuple[Numbers, Numbers, Any, Numbers | None]:
        """The lengths of each row in tokens, whether cells can have them, and which are unknown.

        Where one is unknown, it is taken to be as long as the other, and 1 where both are.
        """
        query_len, queries = whole(self.rows, "query_len")
        seq_len, seqs = whole(self.rows, "seq_len")
        no_query, no_seq = (nulls(self.rows, name) for name in _LENGTHS)
        unknown = None
        if no_query is not None or no_seq is not None:
            no_query, no_seq = (
                numpy.zeros(len(seqs), bool) if one is None else one for one in (no_query, no_seq)
            )
            unknown = no_query + 2 * no_seq
            seq_len = numpy.where(unknown == 3, 1, seq_len)
            query_len = numpy.where(no_query, seq_len, query_len)
            seq_len = numpy.where(no_seq, query_len, seq_len)
            queries, seqs = queries | no_query, seqs | no_seq
        plain = queries & seqs & (query_len >= 1) & (query_len <= seq_len) & (seq_len < LONGEST)
        for name in BATCH_COLUMNS:
            if name in self.rows.schema.names:
                plain &= self.rows.column(name).is_null().to_numpy(zero_copy_only=False)
        return query_len, seq_len, plain, unknown

    def answer_rows(self) -> None:
        """Answers all other rows; equal ones once."""
        left = numpy.flatnonzero(self.which < 0)
        if not len(left):
            return
        names = [n for n in self.rows.schema.names if n in (*REQUEST_COLUMNS, *BATCH_COLUMNS)]
        rows = self.rows.select(names).take(pyarrow.array(left))
        lengths, firsts = numbered(*joined(rows.columns, len(left)))
        listed = rows.take(pyarrow.array(firsts)).to_pylist() if names else [{}]
        said = [self.table.requests(row) for row in listed]
        number, firsts = numbered(
            self.number[left] * len(said) + lengths, len(self.layers) * len(said)
        )
        found = [
            self._add(self._answer(self.layers[layer], said[which]))
            for layer, which in zip(
                self.number[left][firsts].tolist(), lengths[firsts].tolist(), strict=True
            )
        ]
        self.which[left] = numpy.array(found, numpy.int64)[number]

    def _answer(self, one: _Layer, said: list[Request] | Columns) -> Columns:
        assert one.asked is not None
        if isinstance(said, list):
            return one.asked.columns(said, self.table.reasons)
        return one.asked.refused or said

    def _add(self, columns: Columns) -> int:
        """The number of an answer; what is the same thing has one."""
        number = self._known.setdefault(id(columns), len(self.different))
        if number == len(self.different):
            self.different.append(columns)
        return number


def _choice(asked: Asked, form: Form) -> Places | None:
    try:
        return asked.places(form)
    except AttnselError:
        return None  # such rows get the definition's words, one by one


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
