"""One row of a table → one answer: the batch form of a question.

A row names fields by their names or aliases (vLLM's spellings included), the device by ``arch``,
``gpu``, ``capability`` or ``cap_major`` and ``cap_minor``, and may name a ``model``. A row that
cannot be read gets its reason in ``error``; it is never lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from selector.binding import Bound, Selector
from selector.devices import find_device
from selector.errors import AttnselError, ValueRefusedError
from selector.values import Device, Facts, Layer, Outcome, Phase, Policy, Resolution

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


class RowReader:
    """Answers rows from one manifest; rows that differ only in lengths share their binding.

    Args:
        selector: gives the answers.
        default: the device of rows that name none.
        closed_world: take what is unknown not to be there.
    """

    def __init__(
        self,
        selector: Selector,
        default: Device | None = None,
        *,
        closed_world: bool = False,
    ) -> None:
        self.selector = selector
        self.default = default
        self.closed_world = closed_world
        self.ignored: set[str] = set()
        self._bound: dict[object, Bound] = {}
        self._fields: dict[str, str | None] = {}

    def answer(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The row with its answer added."""
        kept = {f"input_{k}" if k in ANSWER_COLUMNS else k: v for k, v in row.items()}
        try:
            return kept | self._answer(row)
        except AttnselError as error:
            return kept | dict.fromkeys(ANSWER_COLUMNS) | {"error": str(error)}

    def _answer(self, row: Mapping[str, Any]) -> dict[str, Any]:
        stated = dict(self._stated(row))
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

    def _stated(self, row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Everything a row says, lengths aside, under field names."""
        for column, value in row.items():
            if column in _REQUEST:
                continue
            if column in (*_DEVICE, *_POLICY, *_MODEL) or column in self.selector.manifest.facts:
                yield column, value
                continue
            name = self._field(column)
            if name is not None:
                yield name, value

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
        layer = self._layer(stated)
        given: dict[str, Any] = {}
        for name, value in stated.items():
            if name in special:
                continue
            if value is None and not words.field(name).symbols:
                continue  # the column is there, this row does not say
            given[name] = value
        own = Layer.read(given, words)
        facts = {n: stated[n] for n in self.selector.manifest.facts if n in stated}
        deny = stated.get("deny") or ()
        names: Sequence[str] = [deny] if isinstance(deny, str) else list(deny)
        return self.selector.bind(
            self._device(stated),
            Layer({**layer.fields, **own.fields}),
            Facts(facts),
            Policy(deny=dict.fromkeys(names, "denied by the row"), backend=stated.get("backend")),
            closed_world=self.closed_world,
        )

    def _layer(self, stated: Mapping[str, Any]) -> Layer:
        """The layer of the row's model, or one of which nothing is known."""
        reference = stated.get("model")
        if not reference:
            return Layer({})
        from selector.models import load_model, shard

        model = shard(load_model(str(reference)), int(stated.get("tp_size") or 1))
        names = [group.name for group in model.groups]
        wanted = stated.get("layer")
        chosen = [g for g in model.groups if wanted in (None, g.name)]
        if len(chosen) != 1:
            raise ValueRefusedError(
                f'model {model.name} has layers of kind {", ".join(names)}; name one in "layer"'
            )
        return chosen[0].layer

    def _device(self, stated: Mapping[str, Any]) -> Device:
        for key in ("gpu", "arch", "capability", "compute_capability"):
            if stated.get(key) is not None:
                return find_device(str(stated[key]))
        major, minor = stated.get("cap_major"), stated.get("cap_minor")
        if major is not None and minor is not None:
            return find_device(f"{int(major)}.{int(minor)}")
        if stated.get("platform") is not None:
            return find_device(str(stated["platform"]))
        if self.default is None:
            raise ValueRefusedError('the row names no device; give "arch", or --arch for all rows')
        return self.default


def _length(name: str, raw: Any) -> int | None:
    if raw is None:
        return None
    if isinstance(raw, bool) or not isinstance(raw, int | float) or raw != int(raw):
        raise ValueRefusedError(f"{name} {str(raw)[:40]} is not a whole number")
    return int(raw)


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
