"""A command and a model → the groups of layers that its engine builds, value by value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from selector.changes.case import Shard
from selector.domains import Domain, Value
from selector.errors import AttnselError
from selector.fields import Vocabulary, one_line, show
from selector.models import override
from selector.serving.commands.command import Command
from selector.serving.commands.values import Note, Setting
from selector.serving.layers.dtypes import pools, refused_dtype, settled_dtype
from selector.serving.layers.pins import Pin, pins_of
from selector.serving.layers.refusal import Refusal, Stack
from selector.serving.layers.scheme import as_engine_reads
from selector.serving.layers.sizes import clashes
from selector.serving.layers.skipping import Skips, kept_layer, skips_of
from selector.values import Device, Layer, LayerGroup, Model, Origin, Request

__all__ = ["DRAFTERS_OWN", "Part", "Parts", "Trace", "parts_of"]

TraceKind = Literal["flag", "variable", "config", "checkpoint", "default", "derived", "coercion"]

_NO_LAYERS = frozenset({"ngram", "ngram_gpu", "suffix", "medusa", "mlp_speculator"})
"""Drafters without attention."""

_TOWER = "vLLM picks the backend of a tower by rules of its own, which no manifest states"
_KINDS: Mapping[Origin, TraceKind] = {
    Origin.CONFIG: "config",
    Origin.CHECKPOINT: "checkpoint",
    Origin.DEFAULT: "default",
    Origin.DERIVED: "derived",
}
DRAFTERS_OWN = {"kv_cache_dtype": "draft_kv_cache_dtype", "tp_size": "draft_tp_size"}
"""Field → the setting that gives it to the drafter alone."""

_NAMES = ("model_type", "architectures")
_SIZES = ("tp_size", "dcp_size", "pcp_size")
_RANKS = (*_SIZES, "dcp", "pcp")


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


def parts_of(
    command: Command,
    model: Model,
    words: Vocabulary,
    device: Device,
    draft: Model | None = None,
    no_draft: str = "",
) -> Parts:
    """The groups of layers that a command makes of a model.

    Args:
        command: as read.
        model: as read, with the whole model's head counts.
        words: the manifest's fields.
        device: where they are to run.
        draft: the drafter's model, when it has one that could be read.
        no_draft: why it could not.
    """
    return _Reader(command, words, device).read(model, draft, no_draft)


class _Build(NamedTuple):
    """One stack that is being built.

    Attributes:
        stack: which.
        model: with the whole model's head counts.
        ranks: on one rank, with what the command sets.
        fields: what the command sets, and what follows from the device.
        derived: field → why, for what the command does not say.
        skips: the layers whose cache keeps the model's type.
        overrides: what replaced keys of its config.
    """

    stack: Stack
    model: Model
    ranks: Model
    fields: Mapping[str, Value | Domain]
    derived: Mapping[str, str]
    skips: Skips
    overrides: Mapping[str, object] = MappingProxyType({})


class _Reader:
    """Collects parts, refusals and notes."""

    def __init__(self, command: Command, words: Vocabulary, device: Device) -> None:
        self.command = command
        self.words = words
        self.device = device
        self.refusals: list[Refusal] = []
        self.notes: list[Note] = []

    def read(self, model: Model, draft: Model | None, no_draft: str) -> Parts:
        self._name_others()
        fields = self._fields(drafter=False)
        model, lost = as_engine_reads(model, latent=fields.get("mla") is not False)
        if lost and "kv_cache_dtype" not in fields:
            self.notes.append(Note("overridden", "config.json", lost))
        derived = self._settle_dtype(model, fields)
        ranks = self._override(model, fields, "target")
        for text in clashes(self._whole(model, fields), fields):
            self._refuse(Refusal("parallel sizes", "target", words=text))
        skips = skips_of(self.command, ranks)
        overrides = self.command.hf_overrides or {}
        target = _Build("target", model, ranks, fields, derived, skips, overrides)
        parts: list[Part] = []
        if not self._is("mm_encoder_only"):
            self.notes += skips.notes
            parts += self._stack(target)
            parts += self._drafter(target, draft, no_draft)
        if not self._is("language_model_only"):
            parts += self._towers(target)
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

    def _name_others(self) -> None:
        platform = self.command.setting("platform")
        if platform is not None:
            self._note("unmodelled", platform, "the device is the one that was asked about")
        overrides = self.command.setting("hf_overrides")
        for key, value in (self.command.hf_overrides or {}).items():
            if overrides is not None and key in _NAMES:
                text = f"{key} {one_line(value)} replaces that of the config.json"
                self._note("overridden", overrides, text)

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
            for field, own in DRAFTERS_OWN.items():
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
            without = {n: v for n, v in fields.items() if n not in _RANKS}
            try:
                found = override(model, without)
            except AttnselError as other:
                return self._override_without(model, fields, stack, str(other))
            self._refuse(Refusal("parallel sizes", stack, words=str(error)))
            for name in _RANKS:
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

    def _whole(self, model: Model, fields: Mapping[str, Value | Domain]) -> Model:
        """The model with all its heads, and the kind of layers that will be built."""
        try:
            return override(model, {n: v for n, v in fields.items() if n not in _SIZES})
        except AttnselError:
            return model

    def _settle_dtype(self, model: Model, fields: dict[str, Value | Domain]) -> dict[str, str]:
        """Puts in what ``--dtype auto`` comes to; gives why, where it is not what was declared."""
        setting = self.command.setting("dtype")
        if setting is not None and "dtype" in fields:
            why = refused_dtype(str(fields["dtype"]), model, self.device)
            if why:
                words = f"{one_line(setting.origin)} {fields['dtype']} {why}"
                self._refuse(Refusal("command", words=words))
            return {}
        declared = model.groups[0].layer.get("dtype") if model.groups else None
        if not isinstance(declared, str):
            return {}
        pooling = pools(self.command, model)
        made = settled_dtype(declared, model, self.device, pooling=pooling)
        if made == declared:
            return {}
        fields["dtype"] = made
        return {"dtype": model.groups[0].keys.get("dtype", "")}

    # -- stacks -----------------------------------------------------------------------------------

    def _stack(self, build: _Build) -> Iterator[Part]:
        settings = self._settings(drafter=build.stack == "drafter")
        before = {group.name: group for group in build.model.groups}
        for whole in build.ranks.groups:
            self._note_replaced(before.get(whole.name), whole, settings)
            for group, why in build.skips.split(whole, numbered=build.stack == "target"):
                traces = self._traces(group, settings, build)
                sharder = _sharder(build.model, build.fields, whole.name)
                yield Part(
                    build.stack,
                    build.model,
                    group,
                    tuple(_skipped(trace, why) for trace in traces) if why else traces,
                    pins_of(self.command, build.stack, group.layer),
                    self._request(),
                    _skipping(sharder) if why else sharder,
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

    def _traces(
        self, group: LayerGroup, settings: Mapping[str, Setting], build: _Build
    ) -> tuple[Trace, ...]:
        return tuple(
            self._trace(name, group, settings, build)
            for name in self.words.fields
            if group.layer.get(name) is not None
        )

    def _trace(
        self, name: str, group: LayerGroup, settings: Mapping[str, Setting], build: _Build
    ) -> Trace:
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
        kind, key = _KINDS.get(origin, "derived"), build.derived.get(name) or key
        replaced, where = self._where(key, build.overrides)
        if replaced and kind in ("config", "checkpoint"):
            kind = "flag"
        return Trace(name, text, kind, where)

    def _where(self, keys: str, overrides: Mapping[str, object]) -> tuple[bool, str]:
        """Keys of the config, those that ``--hf-overrides`` replaced with its spelling."""
        setting = self.command.setting("hf_overrides")
        if setting is None or not overrides or not keys:
            return False, keys
        replaced, said = False, list[str]()
        for key in keys.split(", "):
            mine = _holds(overrides, key)
            replaced = replaced or mine
            said.append(f"{one_line(setting.origin)}.{key}" if mine else key)
        return replaced, ", ".join(said)

    def _drafter(self, target: _Build, draft: Model | None, no_draft: str) -> Sequence[Part]:
        said = self.command.speculative
        if said is None:
            return ()
        method, name = str(said.get("method") or ""), said.get("model")
        if method in _NO_LAYERS:
            return ()
        if "mtp" in method:
            model = target.model if draft is None else draft
            counted = model.drafters[0] if model.drafters else None
            build = self._drafting(model, target)
            if draft is None:
                build = build._replace(overrides=target.overrides)
            parts = [*self._stack(build)]
            named = [p for p in parts if counted is not None and p.group.name == counted.like]
            group = (named or parts)[-1:]
            count = counted.count if counted is not None else 1
            return [
                msgspec.structs.replace(p, group=msgspec.structs.replace(p.group, count=count))
                for p in group
            ]
        if draft is None:
            what = one_line(name) if name else f"of method {one_line(method) or 'unknown'}"
            why = f": {no_draft}" if no_draft else ""
            text = f"the drafter {what} is not read, so nothing is said of its layers{why}"
            self.notes.append(Note("unmodelled", "--speculative-config", text))
            return ()
        return [*self._stack(self._drafting(draft, target))]

    def _drafting(self, model: Model, target: _Build) -> _Build:
        """How a drafter is built: it computes in the type of its target."""
        fields, derived = self._fields(drafter=True), dict[str, str]()
        own = [group.layer.get("dtype") for group in model.groups[:1]]
        used = [group.layer.get("dtype") for group in target.ranks.groups[:1]]
        if used and own != used and used[0] is not None and "dtype" not in fields:
            fields["dtype"] = used[0]
            derived["dtype"] = "that of the target"
        ranks = self._override(model, fields, "drafter")
        return _Build("drafter", model, ranks, fields, derived, target.skips)

    def _towers(self, target: _Build) -> Iterator[Part]:
        for tower in target.model.towers:
            beside = Model(f"{tower.kind} tower", tower.model_type, tower.groups)
            if not tower.groups:
                said = tower.notes[0] if tower.notes else "not read"
                self.notes.append(Note("unmodelled", tower.key, f"{tower.key}: {said}"))
            for group in tower.groups:
                yield Part(
                    "tower",
                    beside,
                    group,
                    self._traces(group, {}, target._replace(derived={})),
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


def _skipped(trace: Trace, why: str) -> Trace:
    """Where the cache type of a layer that is skipped comes from."""
    if trace.field != "kv_cache_dtype":
        return trace
    flag = why.startswith("-") or ": " in why
    return Trace(trace.field, trace.value, "flag" if flag else "derived", why)


def _skipping(shard: Callable[[int], Layer | None]) -> Callable[[int], Layer | None]:
    """The same for layers that are skipped."""

    def layer_at(size: int) -> Layer | None:
        layer = shard(size)
        return kept_layer(layer) if layer is not None else None

    return layer_at


def _holds(overrides: Mapping[str, object], key: str) -> bool:
    """Whether overrides hold a key of the config, which may be dotted."""
    found: object = overrides
    for part in key.split("."):
        if part == "*":
            return True
        if not isinstance(found, Mapping) or part not in found:
            return False
        found = found[part]
    return True
