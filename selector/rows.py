"""One row of a table → one answer: the batch form of a question.

A row names fields by their names or aliases (vLLM's spellings included), the device by ``arch``,
``gpu``, ``capability`` or ``cap_major`` and ``cap_minor``, and may name a ``model``. Null: the row
does not say. A row that cannot be read gets its reason in ``error``; it is never lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from selector.binding import Bound, Selector
from selector.devices import find_device
from selector.domains import Domain
from selector.errors import AttnselError, ContradictionError, UnknownModelError, ValueRefusedError
from selector.values import Device, Facts, Layer, Model, Outcome, Phase, Policy, Resolution

__all__ = ["ANSWER_COLUMNS", "RowReader"]

ANSWER_COLUMNS = (
    "decode_backend",
    "prefill_backend",
    "prefill_path",
    "phase",
    "missing",
    "conditions",
    "rejections",
    "error",
)
"""What is added to each row. A column of the same name in the input is kept as ``input_<name>``."""

_DEVICE = ("arch", "gpu", "capability", "compute_capability", "cap_major", "cap_minor", "platform")
_REQUEST = ("query_len", "seq_len", "speculative_tokens")
_POLICY = ("backend", "deny")
_MODEL = ("model", "layer")
_SPARE_BINDINGS = 4096


def load_preset(name: str) -> Model:
    """A model that ships with attnsel; no file is opened.

    Raises:
        UnknownModelError: there is no such preset.
    """
    from selector.models import load_model, presets

    if name.lower() not in presets():
        raise UnknownModelError(f'no preset is called "{_cut(name)}"')
    return load_model(name)


class RowReader:
    """Answers rows from one manifest; rows that differ only in lengths share their binding.

    Args:
        selector: gives the answers.
        default: the device of rows that name none.
        closed_world: take what is unknown not to be there.
        load: reads a row's ``model``; only shipped presets unless the caller trusts the rows.
    """

    def __init__(
        self,
        selector: Selector,
        default: Device | None = None,
        *,
        closed_world: bool = False,
        load: Callable[[str], Model] = load_preset,
    ) -> None:
        self.selector = selector
        self.default = default
        self.closed_world = closed_world
        self.load = load
        self.ignored: set[str] = set()
        self._bound: dict[object, Bound] = {}
        self._fields: dict[str, str | None] = {}

    def answer(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with its answer added."""
        kept = {_kept_name(k, row): v for k, v in row.items()}
        try:
            return kept | self._answer(row)
        except AttnselError as error:
            return kept | dict.fromkeys(ANSWER_COLUMNS) | {"error": str(error)}

    def _answer(self, row: Mapping[str, Any]) -> dict[str, Any]:
        stated = self._stated(row)
        lengths = {k: _length(k, row.get(k)) for k in _REQUEST}
        key = tuple(sorted((k, repr(v)) for k, v in stated.items()))
        bound = self._bound.get(key)
        if bound is None:
            if len(self._bound) >= _SPARE_BINDINGS:
                self._bound.clear()
            bound = self._bound[key] = self._bind(stated)
        resolution = bound.resolve(
            lengths["query_len"],
            lengths["seq_len"],
            speculative_tokens=lengths["speculative_tokens"] or 0,
        )
        return answer_columns(resolution)

    def _stated(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Everything a row says, lengths aside, under field names."""
        stated: dict[str, Any] = {}
        columns: dict[str, str] = {}
        for column, value in row.items():
            if column in _REQUEST:
                continue
            if column in (*_DEVICE, *_POLICY, *_MODEL) or column in self.selector.manifest.facts:
                stated[column] = value
                continue
            name = self._field(column)
            if name is None or (value is None and name in stated):
                continue
            if stated.get(name) is not None:
                value = self._both(name, {columns[name]: stated[name], column: value})
            stated[name], columns[name] = value, column
        return stated

    def _both(self, name: str, said: Mapping[str, Any]) -> Any:
        """The narrower of two statements of one field, when both can hold."""
        field = self.selector.manifest.vocabulary.fields[name]
        read = [field.read(value) for value in said.values()]
        sets = [value if isinstance(value, Domain) else Domain.of(value) for value in read]
        if (sets[0] & sets[1]).is_empty():
            both = " and ".join(f"{_cut(value)} in {column}" for column, value in said.items())
            raise ContradictionError(f"{name} is {both}")
        return [*said.values()][0 if sets[0] <= sets[1] else 1]

    def _field(self, column: str) -> str | None:
        """The field a column names; an unknown column is remembered and passed through."""
        if column not in self._fields:
            try:
                self._fields[column] = self.selector.manifest.vocabulary.field(column).name
            except AttnselError:
                self._fields[column] = None
                self.ignored.add(column)
        return self._fields[column]

    def _bind(self, stated: Mapping[str, Any]) -> Bound:
        words = self.selector.manifest.vocabulary
        special = {*_DEVICE, *_POLICY, *_MODEL, *self.selector.manifest.facts}
        given: dict[str, Any] = {}
        for name, value in stated.items():
            if name in special:
                continue
            if value is None and (stated.get("model") or not words.field(name).symbols):
                continue  # the column is there, this row does not say
            given[name] = value
        own = Layer.read(given, words)
        kinds = self.selector.manifest.facts
        said = {n: stated[n] for n in kinds if stated.get(n) is not None}
        facts = {n: _fact(kinds[n], raw) for n, raw in said.items()}
        forced = _names("backend", stated.get("backend"))
        return self.selector.bind(
            self._device(stated),
            self._layer(stated, own),
            Facts(facts),
            Policy(
                deny=dict.fromkeys(_names("deny", stated.get("deny")), "denied by the row"),
                backend=forced[0] if forced else None,
            ),
            closed_world=self.closed_world,
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
        found = dict(_devices(stated))
        platform = stated.get("platform")
        if not found and platform is not None and platform != "cuda":
            return find_device(str(platform))
        device = next(iter(found.values()), self.default)
        if device is None:
            raise ValueRefusedError('the row names no device; give "arch", or --arch for all rows')
        for column, other in found.items():
            if (device.platform, device.capability) != (other.platform, other.capability):
                raise ContradictionError(f"{next(iter(found))} is {device}, {column} {other}")
        if platform not in (None, device.platform):
            raise ContradictionError(f"the device {device} is not of platform {_cut(platform)}")
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
            raise ValueRefusedError(f"{column} {_cut(raw)} is not the name of a backend")
    return names


def _kept_name(column: str, row: Mapping[str, Any]) -> str:
    """The name under which a column of the input is kept beside the answer."""
    if column not in ANSWER_COLUMNS:
        return column
    name = f"input_{column}"
    while name in row:
        name = f"input_{name}"
    return name


def _length(name: str, raw: Any) -> int | None:
    if raw is None:
        return None
    whole = isinstance(raw, int) or (isinstance(raw, float) and raw.is_integer())
    if isinstance(raw, bool) or not whole:
        raise ValueRefusedError(f"{name} {_cut(raw)} is not a whole number")
    return int(raw)


def _digits(name: str, raw: Any) -> int | None:
    return _length(name, int(raw) if isinstance(raw, str) and raw.isdecimal() else raw)


def _cut(raw: Any) -> str:
    return " ".join(str(raw).split())[:40]


def answer_columns(resolution: Resolution) -> dict[str, Any]:
    """A resolution as the columns added to a row: plain values, lists and mappings."""
    chosen = {resolution.prefill.backend, resolution.decode.backend}
    rejections: dict[str, list[str]] = {}
    for candidate in resolution.candidates:
        verdicts = (candidate.prefill, candidate.decode)
        codes = [
            r.code for v in verdicts for r in v.rejections if v.outcome is not Outcome.SELECTED
        ]
        if codes and candidate.backend not in chosen:
            rejections[candidate.backend] = list(dict.fromkeys(codes))
    conditions = (*resolution.prefill.conditions, *resolution.decode.conditions)
    return {
        "decode_backend": resolution.decode.backend,
        "prefill_backend": resolution.prefill.backend,
        "prefill_path": resolution.prefill.path,
        "phase": None if resolution.phase is None else str(Phase(resolution.phase)),
        "missing": [str(phase) for phase in resolution.missing],
        "conditions": list(dict.fromkeys(f"{c.field} {c.allowed}" for c in conditions)),
        "rejections": rejections,
        "error": None,
    }
