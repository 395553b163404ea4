"""Flags → what to ask: the manifest, the device, the facts, the layers, the request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from selector.errors import AttnselError, ContradictionError, UnknownDeviceError, ValueRefusedError

if TYPE_CHECKING:
    from cli.options import FactsFrom
    from selector.binding import Selector
    from selector.changes.case import Case
    from selector.changes.layers import Layers
    from selector.domains import Domain, Value
    from selector.manifest import Manifest
    from selector.remote import RemoteSelector
    from selector.values import Device, Facts, Policy, Request

__all__ = [
    "Asked",
    "Flags",
    "UsageError",
    "ask_all",
    "device_here",
    "layers_of",
    "named_device",
    "putting",
    "read_settings",
]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Flags:
    """What was said on the command line."""

    manifest: str | None = None
    overlay: list[str] = field(default_factory=list)
    arch: str | None = None
    gpu: str | None = None
    model: str | None = None
    settings: list[str] = field(default_factory=list)
    facts: FactsFrom | None = None
    query_len: int | None = None
    seq_len: int | None = None
    backend: str | None = None
    prefill_backend: str | None = None
    decode_backend: str | None = None
    deny: list[str] = field(default_factory=list)
    as_claimed: bool = False
    closed_world: bool = False
    server: str | None = None
    timeout: float | None = None
    token_file: Path | None = None
    fallback: str | None = None

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> Flags:
        """The flags among a command's parameters; what was not given keeps its default."""
        names = {f.name for f in fields(cls)}
        return cls(**{k: v for k, v in parameters.items() if k in names and v is not None})


@dataclass(frozen=True, slots=True)
class Asked:
    """The manifest and one case for each group of layers, the rarest first."""

    selector: Selector
    cases: list[Case]


Put = Callable[["Selector", "Selector | RemoteSelector"], Asked]


class UsageError(AttnselError, ValueError):
    """Flags that do not go together."""

    code = "USAGE"


def ask_all(flags: Flags) -> Asked:
    """Resolves every group of layers that the flags speak of.

    Raises:
        AttnselError: something given is unknown, refused or contradictory.
        OSError: a file cannot be read.
    """
    from selector.binding import Selector

    for name in ("timeout", "token_file", "fallback"):
        if getattr(flags, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with --server")
    put = putting(flags)
    selector = Selector.load(flags.manifest, overlays=flags.overlay, as_claimed=flags.as_claimed)
    return put(selector, selector)


def putting(flags: Flags) -> Put:
    """What asks a question: takes the manifest that says what its words mean, and who answers.

    Raises:
        AttnselError: the lengths or the device are unknown, refused or contradictory.
    """
    request = _request(flags)
    named = named_device(flags.arch, flags.gpu)
    device = named or device_here("--arch 12.0 or --arch cpu")
    return partial(_put_to, flags, request, device, named is not None)


def _put_to(
    flags: Flags,
    request: Request,
    device: Device,
    elsewhere: bool,
    selector: Selector,
    asked: Selector | RemoteSelector,
) -> Asked:
    """Asks about every group of layers; the selector's manifest says what the words mean."""
    from selector.changes.case import Case, Inquiry, rarest_first

    settings = read_settings(selector.manifest, flags.settings)
    probed = not elsewhere if flags.facts is None else flags.facts.value == "probe"
    facts = _facts(probed, settings.facts, selector.manifest)
    policy = _policy(flags)
    closed = flags.closed_world
    cases: list[Case] = []
    for model, group, layer, shard in layers_of(flags.model, settings.fields):
        bound = asked.bind(device, layer, facts, policy, closed_world=closed)
        inquiry = Inquiry(device, layer, facts, policy, request, closed)
        answer = bound.resolve_one(request)
        planning = elsewhere and not probed
        cases.append(Case(inquiry, answer, model, group, planning, shard, flags.as_claimed))
    return Asked(selector, rarest_first(cases))


def _request(flags: Flags) -> Request:
    from selector.values import Request

    query, seq = flags.query_len, flags.seq_len
    for name, length in (("--query-len", query), ("--seq-len", seq)):
        if length is not None and length < 1:
            raise ContradictionError(f"{name} {length} is not at least 1")
    if query is not None and seq is not None and query > seq:
        raise ContradictionError(f"--query-len {query} is longer than --seq-len {seq}")
    return Request(query, query if seq is None else seq)


def named_device(arch: str | None, gpu: str | None) -> Device | None:
    """The device that was named; ``None`` when none was.

    Raises:
        UnknownDeviceError: it is not known.
        UsageError: both flags name one.
    """
    from selector.devices import find_device, find_gpu

    if arch is not None and gpu is not None:
        raise UsageError("--arch and --gpu both name a device; give one of them")
    if arch is not None:
        return find_device(arch)
    return None if gpu is None else find_gpu(gpu)


def device_here(archs: str) -> Device:
    """This machine's GPU.

    Args:
        archs: the ``--arch`` that an error offers.

    Raises:
        UnknownDeviceError: it has none.
    """
    from backends.probe import probe_device

    device = probe_device()
    if device.platform == "cpu":
        raise UnknownDeviceError(
            f'no GPU is seen on this machine; say which to plan for: --gpu "RTX PRO 6000", {archs}'
        )
    return device


def _facts(probed: bool, said: Mapping[str, str | bool | None], manifest: Manifest) -> Facts:
    """What is installed: what was said, beside what this machine shows if it is to be asked."""
    from selector.values import Facts

    if not probed:
        return Facts(MappingProxyType(dict(said)))
    from backends.probe import probe_facts

    shown = {k: v for k, v in probe_facts().values.items() if k in manifest.facts}
    return Facts(MappingProxyType({**shown, **said}))


def _policy(flags: Flags) -> Policy:
    from selector.values import Policy

    names = (part.strip() for said in flags.deny for part in said.split(","))
    deny = {name: f"--deny {name}" for name in names if name}
    return Policy(
        MappingProxyType(deny), flags.backend, flags.prefill_backend, flags.decode_backend
    )


# -- settings ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Settings:
    fields: Mapping[str, Value | Domain]
    facts: Mapping[str, str | bool | None]


_ASKED_OTHERWISE = {
    "query_len": "--query-len {}",
    "seq_len": "--seq-len {}",
    "context_len": "--seq-len, which counts cached tokens too",
    "has_context": "--seq-len, which counts cached tokens too",
    "num_prefills": "`attnsel batch`",
    "platform": "--arch {}",
    "capability": "--arch {}",
}


def read_settings(manifest: Manifest, settings: Iterable[str]) -> _Settings:
    """Reads ``field=value`` texts into fields of the layer and facts.

    Raises:
        AttnselError: a field is unknown or set elsewhere, or a value is refused.
    """
    fields: dict[str, Value | Domain] = {}
    facts: dict[str, str | bool | None] = {}
    for text in (part for setting in settings for part in setting.split(",") if part.strip()):
        name, equals, raw = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise UsageError(f'--set "{text.strip()[:60]}" is not field=value')
        if name in manifest.facts:
            _put(facts, name, _fact(name, raw, manifest.facts[name]))
        else:
            known = manifest.vocabulary.field(name)
            _refuse_elsewhere(known.name, raw, manifest)
            nothing = raw.lower() in ("none", "null") and known.symbols
            _put(fields, known.name, known.read(None if nothing else raw))
    return _Settings(fields, facts)


def _put(values: dict[str, T], name: str, value: T) -> None:
    if name in values and values[name] != value:
        raise ContradictionError(f"{name} is set twice, with different values")
    values[name] = value


def _refuse_elsewhere(name: str, raw: str, manifest: Manifest) -> None:
    if name in _ASKED_OTHERWISE:
        raise UsageError(
            f"{name} is no field of a layer: say {_ASKED_OTHERWISE[name].format(raw[:40])}"
        )
    if name in manifest.derive or any(m.name == name for m in manifest.measures):
        raise UsageError(f"{name} follows from other fields and cannot be set")


def _fact(name: str, raw: str, kind: str) -> str | bool | None:
    """A version, ``None`` for "not installed", or a probe's answer."""
    from packaging.version import InvalidVersion, Version

    from selector.fields import LONGEST_VERSION

    lowered = raw.lower()
    if kind == "boolean":
        if lowered not in ("true", "false", "none"):
            raise ValueRefusedError(f'{name} "{raw[:60]}" is not true, false or none')
        return lowered == "true"
    if lowered == "none":
        return None
    try:
        if len(raw) <= LONGEST_VERSION:
            return str(Version(raw))
        raise InvalidVersion(raw[:60])
    except InvalidVersion:
        raise ValueRefusedError(
            f'{name} "{raw[:60]}" is not a version such as 0.6.14, or none'
        ) from None


# -- layers --------------------------------------------------------------------------------------


def layers_of(reference: str | None, fields: Mapping[str, Value | Domain]) -> list[Layers]:
    """Each group of layers of the model, with the fields that were set; else just these."""
    from selector.changes import layers
    from selector.models import load_model

    return layers.layers_of(None if reference is None else load_model(reference), fields)
