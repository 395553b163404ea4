"""One row of a table → one answer: the batch form of a question.

A row names fields by their names or aliases (vLLM's spellings included), the device by ``arch``,
``gpu``, ``capability`` or ``cap_major`` and ``cap_minor``, and may name a ``model``. Null: the row
does not say. The manifest's ``columns`` say how other columns are read. ``num_reqs`` requests of
the same lengths, or lists in ``query_lens`` and ``seq_lens``, are a batch; how many they are is the
field ``num_reqs`` of rules. A row that cannot be read gets its reason in ``error``; it is never
lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from selector.binding import Bound, Selector
from selector.devices import find_device
from selector.domains import Domain
from selector.errors import AttnselError, ContradictionError, UnknownModelError, ValueRefusedError
from selector.fields import REQUEST_FIELDS, close_matches, one_line
from selector.manifest import (
    BATCH_COLUMNS,
    DEVICE_COLUMNS,
    MODEL_COLUMNS,
    POLICY_COLUMNS,
    REQUEST_COLUMNS,
)
from selector.plan.memo import remember
from selector.tables.answers import ANSWER_COLUMNS, failed
from selector.tables.asked import Asked
from selector.tables.compiled import Compiled
from selector.values import Device, Facts, Layer, Model, Policy, Request

__all__ = ["RowReader", "kept_name", "kept_of", "load_preset", "requests_of"]

_SPECIAL = frozenset((*DEVICE_COLUMNS, *POLICY_COLUMNS, *MODEL_COLUMNS))
_HASHABLE = (str, int, type(None))
_MOST_ASKED = 4096
_MOST_REQUESTS = 4096


class _Unknown:
    """What a column says of a field when it says that nobody knows it."""


_UNKNOWN = _Unknown()


def load_preset(name: str) -> Model:
    """A model that ships with attnsel; no file is opened.

    Raises:
        UnknownModelError: there is no such preset.
    """
    from selector.models import load_model, presets

    if name.lower() not in presets():
        near = close_matches(name[:100], presets())
        hint = f"; did you mean {near[0]}?" if near else ""
        raise UnknownModelError(f'no preset is called "{one_line(name)}"{hint}')
    return load_model(name)


class _Reading(NamedTuple):
    """How a column is read; with nothing said, it is passed through unread."""

    field: str | None = None
    values: Mapping[str, Mapping[str, Any]] | None = None
    dense: bool = False
    given: bool = False
    meant: str | None = None

    def keeps(self, value: Any) -> bool:
        """Whether a value that is not listed keeps the column's ordinary meaning."""
        return self.field is not None and _key(value) not in (self.values or ())


class RowReader:
    """Answers rows from one manifest; rows that differ only in lengths share their binding.

    Args:
        selector: gives the answers.
        default: the device of rows that name none.
        closed_world: take what is unknown not to be there.
        load: reads a row's ``model``; only shipped presets unless the caller trusts the rows.
        refuse_misspelt: whether a column that reads like a known one is an error of its row; else
            it is passed through, as others are.
    """

    def __init__(
        self,
        selector: Selector,
        default: Device | None = None,
        *,
        closed_world: bool = False,
        load: Callable[[str], Model] = load_preset,
        refuse_misspelt: bool = False,
    ) -> None:
        self.selector = selector
        self.refuse_misspelt = refuse_misspelt
        self.default = default
        self.closed_world = closed_world
        self.load = load
        self.ignored: set[str] = set()
        self._compiled = Compiled(selector, closed_world)
        self._asked: dict[object, Asked] = {}
        self._reads: dict[str, _Reading] = {}
        self._read_of: dict[tuple[str, ...], tuple[str, ...]] = {}
        self._devices: dict[tuple[str, ...], Device] = {}
        self._supposing: Compiled | None = None

    def answer(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with its answer added."""
        return kept_of(row) | self.columns(row)

    def columns(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of its answer alone; not to be changed, for others may have the same."""
        try:
            asked = self.ask(row)
            return asked.refused or asked.columns(requests_of(row))  # before its lengths are read
        except AttnselError as error:
            return failed(str(error))

    def bind(self, row: Mapping[str, Any]) -> Bound:
        """Everything a row says, but for its lengths, bound to the manifest.

        Raises:
            AttnselError: the row cannot be read.
        """
        return self.ask(row).bound

    def ask(self, row: Mapping[str, Any]) -> Asked:
        """Everything a row says, but for its lengths; rows that say the same are one.

        Whether such a layer can exist shows when it is bound.

        Raises:
            AttnselError: the row cannot be read.
        """
        columns = tuple(row)
        names = self._read_of.get(columns)
        if names is None:
            read = tuple(name for name in columns if self.reads(name))
            names = remember(self._read_of, columns, read, _MOST_ASKED)
        values = [row[name] for name in names]
        key = (names, *map(type, values), *map(_hashable, values))
        asked = self._asked.pop(key, None)
        if asked is None:
            stated, dense, given = self._stated(row)
            compiled = self._supposer() if dense else self._compiled
            asked = self._layer_asked(compiled, stated, dense, given)
            while len(self._asked) >= _MOST_ASKED:
                del self._asked[next(iter(self._asked))]
        self._asked[key] = asked  # the one used last stands last
        return asked

    def reads(self, column: str) -> bool:
        """Whether a column says something, other than lengths."""
        reading = self._reads.get(column) or self._read(column)
        said = (reading.field, reading.values, reading.meant)
        return reading.dense or any(one is not None for one in said)

    def _supposer(self) -> Compiled:
        """Answers as if every sparse entry could compute prefill densely."""
        if self._supposing is None:
            selector = Selector(self.selector.manifest.supposing_dense_prefill())
            self._supposing = Compiled(selector, self.closed_world)
        return self._supposing

    def _stated(self, row: Mapping[str, Any]) -> tuple[dict[str, Any], bool, bool]:
        """Everything a row says, lengths aside, under field names.

        And whether it supposes a dense prefill, and whether it gives the layer to its backend.
        """
        stated: dict[str, Any] = {}
        columns: dict[str, str] = {}
        unknown: list[str] = []
        dense = given = False
        for column, value in row.items():
            reading = self._reads.get(column) or self._read(column)
            if isinstance(value, float) and value != value:
                value = None  # tables of numbers have no other null
            if reading.meant is not None and value is not None:
                raise ValueRefusedError(
                    f'no column is called "{one_line(column)}"; did you mean {reading.meant}?'
                )
            if reading.dense:
                dense = dense or _flag(column, value)
            elif reading.values is not None and not reading.keeps(value):
                for name, said in self._said(column, value, reading.values).items():
                    if said is None:
                        unknown.append(name)
                    else:
                        self._state(stated, columns, name, column, said)
            elif reading.field is not None:
                self._state(stated, columns, reading.field, column, value)
                given = given or (reading.given and value is not None)
        for name in unknown:
            if stated.get(name) is None:
                stated[name] = _UNKNOWN
        if given:
            stated.pop("model", None)  # only a name: what is given a layer has its sizes beside it
        return stated, dense, given

    def _state(
        self, stated: dict[str, Any], columns: dict[str, str], name: str, column: str, value: Any
    ) -> None:
        if value is None and name in stated:
            return
        if stated.get(name) is not None:
            value = self._both(name, {columns[name]: stated[name], column: value})
        stated[name], columns[name] = value, column

    def _said(
        self, column: str, value: Any, values: Mapping[str, Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        """What a value of a column says of fields."""
        if value is None:
            return {}
        if _key(value) not in values:
            known = ", ".join(values)
            raise ValueRefusedError(
                f"{column} {one_line(value)} is not known; write one of {known}"
            )
        return values[_key(value)]

    def _read(self, column: str) -> _Reading:
        """How a column is read; an unknown one is remembered and passed through."""
        own = self.selector.manifest.columns.get(column)
        special = column in _SPECIAL or column in self.selector.manifest.facts
        if own is not None and own.given:
            reading = _Reading("backend", given=True)
        elif own is not None:
            kept = column if special and own.values else None
            reading = _Reading(own.field or kept, own.values or None, own.dense)
        elif special:
            reading = _Reading(column)
        else:
            reading = _Reading()
            if column not in (
                *REQUEST_COLUMNS,
                *BATCH_COLUMNS,
                *REQUEST_FIELDS,
            ):  # these follow from lengths
                try:
                    reading = _Reading(self.selector.manifest.vocabulary.field(column).name)
                except AttnselError:
                    self.ignored.add(column)
                    reading = _Reading(meant=self._meant(column))
        self._reads[column] = reading
        return reading

    def _meant(self, column: str) -> str | None:
        """The column that a misspelt one is refused for."""
        if not self.refuse_misspelt:
            return None
        manifest = self.selector.manifest
        known = (*manifest.vocabulary.spellings, *_SPECIAL, *manifest.facts)
        known += (*REQUEST_COLUMNS, *BATCH_COLUMNS)
        return next(iter(close_matches(column[:100], known, 0.85)), None)

    def _both(self, name: str, said: Mapping[str, Any]) -> Any:
        """The narrower of two statements of one field, when both can hold."""
        first, second = said.values()
        both = " and ".join(f"{one_line(value)} in {column}" for column, value in said.items())
        if name in _SPECIAL or name in self.selector.manifest.facts:
            if first == second:
                return first
            raise ContradictionError(f"{name} is {both}")
        field = self.selector.manifest.vocabulary.fields[name]
        read = [field.read(value) for value in said.values()]
        sets = [value if isinstance(value, Domain) else Domain.of(value) for value in read]
        if (sets[0] & sets[1]).is_empty():
            raise ContradictionError(f"{name} is {both}")
        return first if sets[0] <= sets[1] else second

    def _layer_asked(
        self, compiled: Compiled, stated: Mapping[str, Any], dense: bool, given: bool
    ) -> Asked:
        words = self.selector.manifest.vocabulary
        fields: dict[str, Any] = {}
        for name, value in stated.items():
            if name in _SPECIAL or name in self.selector.manifest.facts:
                continue
            field = words.fields[name]
            if isinstance(value, _Unknown):
                closed = field.closed() if self.closed_world else None
                fields[name] = field.universe() if closed is None else closed
            elif value is not None or (field.symbols and not stated.get("model")):
                fields[name] = value  # null: the column is there, and the row says there is none
        own = Layer.read(fields, words)
        kinds = self.selector.manifest.facts
        said = {n: stated[n] for n in kinds if stated.get(n) not in (None, _UNKNOWN)}
        facts = {n: _fact(kinds[n], raw) for n, raw in said.items()}
        forced = _names("backend", stated.get("backend"))
        deny = dict.fromkeys(_names("deny", stated.get("deny")), "denied by the row")
        return Asked(
            compiled,
            self._device(stated),
            self._layer(stated, own),
            Facts(facts),
            Policy(deny=deny, backend=forced[0] if forced else None),
            dense=dense,
            given=given,
        )

    def _layer(self, stated: Mapping[str, Any], own: Layer) -> Layer:
        """What the row says of a layer; of its model's layer, if it names one."""
        reference = stated.get("model")
        if not reference:
            return own
        from selector.models import override

        model = override(self.load(str(reference)), own.fields)
        names = [group.name for group in model.groups]
        wanted = stated.get("layer")
        chosen = [g for g in model.groups if wanted in (None, g.name)]
        if len(chosen) != 1:
            raise ValueRefusedError(
                f'model {model.name} has layers of kind {", ".join(names)}; name one in "layer"'
            )
        return chosen[0].layer

    def _device(self, stated: Mapping[str, Any]) -> Device:
        """The device of a row; rows that say the same have the same one."""
        key = tuple(map(repr, map(stated.get, DEVICE_COLUMNS)))
        found = self._devices.get(key)
        if found is None:
            found = remember(self._devices, key, self._read_device(stated), _MOST_ASKED)
        return found

    def _read_device(self, stated: Mapping[str, Any]) -> Device:
        found = dict(_devices(stated))
        platform = stated.get("platform")
        if not found and platform is not None and platform != "cuda":
            return find_device(str(platform))
        device = next(iter(found.values()), self.default)
        if device is None:
            raise ValueRefusedError(
                'the row names no device; give "arch", or a device for all rows'
            )
        for column, other in found.items():
            if (device.platform, device.capability) != (other.platform, other.capability):
                raise ContradictionError(f"{next(iter(found))} is {device}, {column} {other}")
        if platform not in (None, device.platform):
            raise ContradictionError(f"the device {device} is not of platform {one_line(platform)}")
        return device


def _devices(stated: Mapping[str, Any]) -> Iterator[tuple[str, Device]]:
    """Every column of a row that names a device."""
    for key in ("gpu", "arch", "capability", "compute_capability"):
        if stated.get(key) is not None:
            yield key, find_device(str(stated[key]))
    parts = [_digits(key, stated.get(key)) for key in ("cap_major", "cap_minor")]
    if None in parts and parts != [None, None]:
        raise ValueRefusedError("cap_major and cap_minor go together; the row has one of them")
    if None not in parts:
        yield "cap_major and cap_minor", find_device(f"{parts[0]}.{parts[1]}")


def _fact(kind: str, raw: Any) -> Any:
    """A version, a probe's answer (text will do), or ``None`` for the text "none".

    Everything else is checked when it is bound.
    """
    said = str(raw).lower()
    if said == "none":
        return None
    return {"true": True, "false": False}.get(said, raw) if kind == "boolean" else raw


def _names(column: str, raw: Any) -> list[str]:
    """The names in a column that holds one, a list of them, or nothing."""
    names = [] if raw is None else list(raw) if isinstance(raw, list | tuple) else [raw]
    for name in names:
        if not isinstance(name, str) or (column == "backend" and len(names) > 1):
            raise ValueRefusedError(f"{column} {one_line(raw)} is not the name of a backend")
    return names


def kept_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the input under the names by which it is kept beside the answer."""
    return {kept_name(name, row): value for name, value in row.items()}


def kept_name(column: str, row: Collection[str]) -> str:
    """The name under which a column of the input is kept beside the answer."""
    if column not in ANSWER_COLUMNS:
        return column
    name = f"input_{column}"
    while name in row:
        name = f"input_{name}"
    return name


def _hashable(value: Any) -> Any:
    """What tells a value from others of its type."""
    return value if isinstance(value, _HASHABLE) else repr(value)


def _length(name: str, raw: Any) -> int | None:
    if raw is None:
        return None
    whole = isinstance(raw, int) or (isinstance(raw, float) and raw.is_integer())
    if isinstance(raw, bool) or not whole:
        raise ValueRefusedError(f"{name} {one_line(raw)} is not a whole number")
    return int(raw)


def requests_of(row: Mapping[str, Any]) -> list[Request]:
    """The requests of a row that run together: one, unless it says otherwise."""
    lengths = {k: _length(k, row.get(k)) for k in REQUEST_COLUMNS}
    speculative = lengths["speculative_tokens"] or 0
    several = {k: row[k] for k in BATCH_COLUMNS if row.get(k) is not None}
    if several:
        beside = [k for k in ("query_len", "seq_len", "num_reqs") if lengths[k] is not None]
        if beside:
            raise ContradictionError(
                f"{beside[0]} stands beside lists of lengths; give one of them"
            )
        return _listed(several, speculative)
    count = 1 if lengths["num_reqs"] is None else lengths["num_reqs"]
    if not 1 <= count <= _MOST_REQUESTS:
        raise ValueRefusedError(f"num_reqs {count} is not from 1 to {_MOST_REQUESTS:,}")
    return [Request(lengths["query_len"], lengths["seq_len"], speculative)] * count


def _listed(several: Mapping[str, Any], speculative: int) -> list[Request]:
    lists = [several.get(name) for name in BATCH_COLUMNS]
    queries, seqs = lists
    if not isinstance(queries, list) or not isinstance(seqs, list) or len(queries) != len(seqs):
        raise ValueRefusedError("query_lens and seq_lens are two lists of the same length")
    if not 1 <= len(queries) <= _MOST_REQUESTS:
        raise ValueRefusedError(f"{len(queries):,} requests are not from 1 to {_MOST_REQUESTS:,}")
    return [
        Request(_length("query_lens", q), _length("seq_lens", s), speculative)
        for q, s in zip(queries, seqs, strict=True)
    ]


def _flag(column: str, value: Any) -> bool:
    """A column that is true or false; null is false."""
    said = str(value).lower()
    if value is not None and said not in ("true", "false"):
        raise ValueRefusedError(f"{column} {one_line(value)} is not true or false")
    return said == "true"


def _key(value: Any) -> str:
    """A value of a column as a manifest writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _digits(name: str, raw: Any) -> int | None:
    few = isinstance(raw, str) and raw.isdecimal() and len(raw) < 4
    return _length(name, int(raw) if few else raw)
