"""A command and a model → the groups of layers that its engine builds, value by value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal

import msgspec

from selector.changes.case import Shard
from selector.domains import Domain, Value
from selector.errors import AttnselError
from selector.fields import Vocabulary, one_line, show
from selector.models import override
from selector.serving.command import Command
from selector.serving.pins import Pin, pins_of
from selector.serving.refusal import Refusal, Stack
from selector.serving.values import Note, Setting
from selector.values import Layer, LayerGroup, Model, Origin, Request

__all__ = ["Part", "Parts", "Trace", "parts_of"]

TraceKind = Literal["flag", "variable", "config", "checkpoint", "default", "derived", "coercion"]

_NO_LAYERS = frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator"})
"""Drafters without attention."""

_TOWER = "vLLM picks the backend of a tower by rules of its own, which no manifest states"
_UNMODELLED = {
    "hf_overrides": "its keys are not applied; give the config.json with them through --model",
    "kv_cache_dtype_skip_layers": "the layers it names are not told apart; all are taken alike",
    "convert": "layers are taken as the config.json has them",
}
_KINDS: Mapping[Origin, TraceKind] = {
    Origin.CONFIG: "config",
    Origin.CHECKPOINT: "checkpoint",
    Origin.DEFAULT: "default",
    Origin.DERIVED: "derived",
}
_DRAFT = {"draft_kv_cache_dtype": "kv_cache_dtype", "draft_tp_size": "tp_size"}
_SIZES = ("tp_size", "dcp_size", "pcp_size")


class Trace(msgspec.Struct, frozen=True):
    """Where one value came from.

    Attributes:
        field: of the layer.
        value: as text.
        kind: who says it; ``coercion`` is the selected backend, which makes it another value.
        where: the spelling, the variable, the keys of ``config.json``, or the backend.
    """

    field: str
    value: str
    kind: TraceKind
    where: str = ""


class Part(msgspec.Struct, frozen=True):
    """Layers that need the same, in one stack.

    Attributes:
        stack: the target, its drafter, or a tower beside it.
        model: whose layers they are.
        group: the layers, for one rank.
        traces: where each value came from.
        pins: backends that the command forces on them.
        request: what is known of requests.
        shard: the layer for another tensor-parallel size.
        unmodelled: why nothing is selected for them here; empty when it is.
    """

    stack: Stack
    model: Model
    group: LayerGroup
    traces: tuple[Trace, ...] = ()
    pins: tuple[Pin, ...] = ()
    request: Request = Request()
    shard: Shard | None = None
    unmodelled: str = ""


class Parts(msgspec.Struct, frozen=True):
    """All parts, what refuses before anything is selected, and what to know."""

    parts: tuple[Part, ...]
    refusals: tuple[Refusal, ...]
    notes: tuple[Note, ...]


def parts_of(command: Command, model: Model, words: Vocabulary, draft: Model | None) -> Parts:
    """The groups of layers that a command makes of a model.

    Args:
        command: as read.
        model: as read, with the whole model's head counts.
        words: the manifest's fields.
        draft: the drafter's model, when it has one that could be read.
    """
    return _Reader(command, words).read(model, draft)


class _Reader:
    """Collects parts, refusals and notes."""

    def __init__(self, command: Command, words: Vocabulary) -> None:
        self.command = command
        self.words = words
        self.refusals: list[Refusal] = []
        self.notes: list[Note] = []

    def read(self, model: Model, draft: Model | None) -> Parts:
        self._name_unmodelled()
        target = self._fields(drafter=False)
        ranks = self._override(model, target, "target")
        parts: list[Part] = []
        if not self._is("mm_encoder_only"):
            parts += self._stack("target", model, ranks, target)
            parts += self._drafter(model, ranks, draft)
        if not self._is("language_model_only"):
            parts += self._towers(model)
        return Parts(tuple(parts), tuple(self.refusals), tuple(self.notes))

    def _is(self, field: str) -> bool:
        setting = self.command.setting(field)
        return setting is not None and setting.value is True

    def _note(self, kind: Literal["unmodelled", "overridden"], setting: Setting, text: str) -> None:
        flag = one_line(setting.origin)
        if any(text in note.text for note in self.notes):
            return
        self.notes.append(Note(kind, flag, f"{flag}: {text}", setting.position))

    def _refuse(self, refusal: Refusal) -> None:
        """Adds a refusal, unless it is said already: a drafter can have its target's layers."""
        if all(refusal.words != known.words for known in self.refusals):
            self.refusals.append(refusal)

    def _name_unmodelled(self) -> None:
        for field, why in _UNMODELLED.items():
            if (setting := self.command.setting(field)) is not None:
                self._note("unmodelled", setting, why)
        for field in ("dcp_size", "pcp_size"):
            size = self.command.setting(field)
            if size is not None and isinstance(size.value, int) and size.value > 1:
                self._note("unmodelled", size, "whether it goes with the other sizes is not asked")
        runner = self.command.setting("runner")
        if runner is not None and runner.value == "pooling":
            self._note("unmodelled", runner, "layers are taken as the config.json has them")
        platform = self.command.setting("platform")
        if platform is not None:
            self._note("unmodelled", platform, "the device is the one that was asked about")
        if (how := self.command.setting("quantization")) is not None:
            self._note("unmodelled", how, "a KV cache type that it brings along is not read")

    # -- the fields that a command sets -----------------------------------------------------------

    def _settings(self, *, drafter: bool) -> dict[str, Setting]:
        """Field → the setting that decides it."""
        found: dict[str, Setting] = {}
        for setting in self.command.settings:
            if setting.value in ("auto", None) or setting.field == "platform":
                continue
            if setting.field in self.words.fields:
                found[setting.field] = setting
        if drafter:
            found.pop("adaptive_verification", None)  # it is about the target
            for own, field in _DRAFT.items():
                if (mine := self.command.setting(own)) is None:
                    continue
                if field == "kv_cache_dtype":
                    found.pop("config_kv_cache_dtype", None)
                found.pop(field, None)
                if mine.value not in ("auto", None):
                    found[field] = mine
        return found

    def _fields(self, *, drafter: bool) -> dict[str, Value | Domain]:
        """The same, as values of the manifest's fields."""
        fields: dict[str, Value | Domain] = {}
        for name, setting in self._settings(drafter=drafter).items():
            try:
                fields[name] = self.words.fields[name].read(setting.value)
            except AttnselError as error:
                words = f"{one_line(setting.origin)}: {error}"
                self._refuse(Refusal("command", words=words))
        return fields

    def _override(self, model: Model, fields: dict[str, Value | Domain], stack: Stack) -> Model:
        """The model on one rank; sizes and switches that cannot be are refused and left out."""
        try:
            return override(model, fields)
        except AttnselError as error:
            without = {n: v for n, v in fields.items() if n not in _SIZES}
            try:
                found = override(model, without)
            except AttnselError as other:
                return self._override_without(model, fields, stack, str(other))
            self._refuse(Refusal("parallel sizes", stack, words=str(error)))
            for name in _SIZES:
                fields.pop(name, None)
            return found

    def _override_without(
        self, model: Model, fields: dict[str, Value | Domain], stack: Stack, why: str
    ) -> Model:
        """The same without what changes the kind of layers, which is named; else as it is."""
        kinds = [name for name in ("mla", "sliding_window") if name in fields]
        for name in kinds:
            del fields[name]
            if (setting := self.command.setting(name)) is not None:
                self._note("unmodelled", setting, f"left out here, for {why.partition('; ')[0]}")
        if not kinds:
            self._refuse(Refusal("command", stack, words=why))
            fields.clear()
        return self._override(model, fields, stack)

    # -- stacks -----------------------------------------------------------------------------------

    def _stack(
        self, stack: Stack, whole: Model, ranks: Model, fields: Mapping[str, Value | Domain]
    ) -> Iterator[Part]:
        settings = self._settings(drafter=stack == "drafter")
        before = {group.name: group for group in whole.groups}
        for group in ranks.groups:
            self._note_replaced(before.get(group.name), group, settings)
            yield Part(
                stack,
                whole,
                group,
                self._traces(group, settings),
                pins_of(self.command, stack, group.layer),
                self._request(),
                _sharder(whole, fields, group.name),
            )

    def _request(self) -> Request:
        tokens = self.command.setting("speculative_tokens")
        number = tokens.value if tokens is not None and isinstance(tokens.value, int) else 0
        return Request(speculative_tokens=number)

    def _note_replaced(
        self, old: LayerGroup | None, new: LayerGroup, settings: Mapping[str, Setting]
    ) -> None:
        """Says that a flag replaces the cache type of the checkpoint."""
        setting = settings.get("kv_cache_dtype")
        if setting is None or old is None:
            return
        stored, used = old.layer.get("kv_cache_dtype"), new.layer.get("kv_cache_dtype")
        if old.origins.get("kv_cache_dtype") is Origin.CHECKPOINT and stored != used:
            text = f"{used} replaces {stored}, which the checkpoint says"
            self._note("overridden", setting, text)

    def _traces(self, group: LayerGroup, settings: Mapping[str, Setting]) -> tuple[Trace, ...]:
        return tuple(
            self._trace(name, group, settings)
            for name in self.words.fields
            if group.layer.get(name) is not None
        )

    def _trace(self, name: str, group: LayerGroup, settings: Mapping[str, Setting]) -> Trace:
        value, field = group.layer.get(name), self.words.fields[name]
        text = one_line(value) if value is None or isinstance(value, Domain) else show(field, value)
        origin, key = group.origins.get(name, Origin.DEFAULT), group.keys.get(name, "")
        if origin is Origin.FLAG and (setting := settings.get(name)) is not None:
            variable = setting.origin.startswith("variable ")
            where = setting.origin.removeprefix("variable ")
            return Trace(name, text, "variable" if variable else "flag", one_line(where))
        if key.startswith("--set "):  # it follows from a field that was set
            source = settings.get(key.removeprefix("--set "))
            key = one_line(source.origin) if source else key.removeprefix("--set ")
        return Trace(name, text, _KINDS.get(origin, "derived"), key)

    def _drafter(self, model: Model, ranks: Model, draft: Model | None) -> Sequence[Part]:
        said = self.command.speculative
        if said is None:
            return ()
        method, name = str(said.get("method") or ""), said.get("model")
        if method in _NO_LAYERS:
            return ()
        fields = self._fields(drafter=True)
        if "mtp" in method:
            counted = model.drafters[0] if model.drafters else None
            own = self._override(model, fields, "drafter")
            parts = [*self._stack("drafter", model, own, fields)]
            named = [p for p in parts if counted is not None and p.group.name == counted.like]
            group = (named or parts)[-1:]
            count = counted.count if counted is not None else 1
            return [
                msgspec.structs.replace(p, group=msgspec.structs.replace(p.group, count=count))
                for p in group
            ]
        if draft is None:
            what = one_line(name) if name else f"of method {one_line(method) or 'unknown'}"
            text = f"the drafter {what} is not read, so nothing is said of its layers"
            self.notes.append(Note("unmodelled", "--speculative-config", text))
            return ()
        own = self._override(draft, fields, "drafter")
        return [*self._stack("drafter", draft, own, fields)]

    def _towers(self, model: Model) -> Iterator[Part]:
        for tower in model.towers:
            beside = Model(f"{tower.kind} tower", tower.model_type, tower.groups)
            if not tower.groups:
                said = tower.notes[0] if tower.notes else "not read"
                self.notes.append(Note("unmodelled", tower.key, f"{tower.key}: {said}"))
            for group in tower.groups:
                yield Part(
                    "tower",
                    beside,
                    group,
                    self._traces(group, {}),
                    pins_of(self.command, "tower", group.layer),
                    unmodelled=_TOWER,
                )


def _sharder(
    whole: Model, fields: Mapping[str, Value | Domain], name: str
) -> Callable[[int], Layer | None]:
    """Gives the layer of the group called so for another tensor-parallel size."""
    known = MappingProxyType(dict(fields))

    def layer_at(size: int) -> Layer | None:
        try:
            groups = override(whole, {**known, "tp_size": size}).groups
        except AttnselError:
            return None
        return next((group.layer for group in groups if group.name == name), None)

    return layer_at
