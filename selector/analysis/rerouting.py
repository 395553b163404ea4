"""What known models are given instead; and ways to compute that are drawn, not counted.

Where the ways of questions cannot be counted, layers are drawn, each is asked about at lengths
where rules change their answer, and what is found is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from random import Random
from types import MappingProxyType

import msgspec

from selector.analysis.bounds import upper_bound
from selector.analysis.paths import PathChange
from selector.analysis.tails import Way
from selector.analysis.witness import Witness
from selector.asking import lengths_of
from selector.devices import architectures
from selector.domains import Domain
from selector.errors import AttnselError
from selector.fields import REQUEST_FIELDS
from selector.manifest import Manifest
from selector.plan.kind import Pair
from selector.plan.plan import Pick, Plan
from selector.plan.terms import tests_after
from selector.rules import Test
from selector.values import Device, Facts, Layer, Request

__all__ = ["DrawnPaths", "ModelChange", "Rerouted", "models_changed", "way_of"]

_EACH = 24
"""Lengths that a drawn layer is asked about."""

_FAR = (1, 2, 17, 129, 2049, 8193, 100_000)


def way_of(pick: Pick) -> Way:
    """The way of a choice."""
    return Way(pick.phase, pick.path, pick.by)


class DrawnPaths(msgspec.Struct, frozen=True):
    """Questions that keep their backends and whose ways were drawn, not counted.

    Attributes:
        of: how many questions they stand for, whatever the lengths.
        why: what kept them from being counted.
        number: how many were drawn, each with many lengths.
        seen: of how many of them some lengths are computed in another way.
    """

    of: int
    why: str
    number: int
    seen: int

    @property
    def at_most(self) -> float:
        """The share that changes is at most this, with 95 % confidence."""
        return upper_bound(self.seen, self.number)


class ModelChange(msgspec.Struct, frozen=True):
    """Layers of a known model that are given something else.

    Attributes:
        model: its name.
        group: which of its layers.
        before: the backends for prefill and for decode.
        after: the same, in the new manifest.
        archs: the architectures on which that is so.
        paths: where the backends stay: the path of a request before, and after.
    """

    model: str
    group: str
    before: Pair
    after: Pair
    archs: tuple[str, ...]
    paths: tuple[str, str] | None = None


def _lengths_of(manifests: Sequence[Manifest], names: Sequence[str]) -> list[tuple[int, int]]:
    """Query and sequence lengths: some of every sort that the rules of entries tell apart."""
    edges: dict[int, None] = dict.fromkeys(_FAR)
    thresholds: dict[int, None] = {}
    sets: dict[str, list[Domain]] = {}
    for manifest in manifests:
        for test in _tests_of(manifest, names):
            if test.allowed.fixed not in sets.setdefault(test.field, []):
                sets[test.field].append(test.allowed.fixed)
        for entry in (manifest.entries[n] for n in names if n in manifest.entries):
            thresholds.update(dict.fromkeys(entry.thresholds))
    for name in REQUEST_FIELDS:
        edges.update((n, None) for values in sets.get(name, ()) for n in _edges(values))
    numbers = sorted({*edges, *thresholds, *(n + 1 for n in thresholds)})
    found: dict[tuple[object, ...], tuple[int, int]] = {}
    for query, seq in product(numbers, numbers):
        if query <= seq:
            key: list[object] = [query <= one for one in thresholds]
            for manifest in manifests:
                for name, value in lengths_of(manifest, query, seq).items():
                    if not isinstance(value, Domain):
                        key += [values.admits(value) for values in sets.get(name, ())]
            found.setdefault(tuple(key), (query, seq))
    return [*found.values()]


def _tests_of(manifest: Manifest, names: Sequence[str]) -> Iterator[Test]:
    for entry in (manifest.entries[n] for n in names if n in manifest.entries):
        yield from tests_after(manifest, entry, entry)


def _edges(values: Domain) -> Iterator[int]:
    for span in values.spans:
        for end in (span.low, span.high):
            if end is not None:
                yield from (n for n in (end - 1, end, end + 1) if n >= 1)


# -- known models --------------------------------------------------------------------------------

_REQUESTS = (Request(1, 4096), Request(512, 512), Request(8192, 8192), Request(512, 8192))


def models_changed(plans: tuple[Plan, Plan]) -> tuple[ModelChange, ...]:
    """The layers of known models that are decided otherwise on some architecture.

    All software that either manifest asks for is taken to be there.
    """
    declared = [pair for plan in plans for pair in plan.manifest.facts.items()]
    switches = {name: True for name, kind in declared if kind == "boolean"}
    facts = Facts(MappingProxyType(switches))
    found: dict[ModelChange, list[str]] = {}
    known: dict[tuple[str, Layer], ModelChange | None] = {}
    devices = [
        (row["capability"] or row["platform"], Device(row["platform"], row["capability"]))
        for row in architectures()
    ]
    for name, group, layer in _known_layers():
        for arch, device in devices:
            if (arch, layer) not in known:
                known[arch, layer] = _change(plans, device, layer, facts)
            change = known[arch, layer]
            if change is not None:
                named = msgspec.structs.replace(change, model=name, group=group)
                found.setdefault(named, []).append(arch)
    return tuple(
        msgspec.structs.replace(change, archs=tuple(archs)) for change, archs in found.items()
    )


def _known_layers() -> Iterator[tuple[str, str, Layer]]:
    from selector.models import load_model, override, presets

    for name in presets():
        for group in override(load_model(name), {}).groups:
            yield name, group.name, group.layer


def _change(
    plans: tuple[Plan, Plan], device: Device, layer: Layer, facts: Facts
) -> ModelChange | None:
    try:
        before, after = (
            [plan.resolve(device, layer, facts, r) for r in _REQUESTS] for plan in plans
        )
    except AttnselError:
        return None  # no such layer in one of them
    for here, there in zip(before, after, strict=True):
        if (here.prefill, here.decode) != (there.prefill, there.decode):
            pairs = (here.prefill, here.decode), (there.prefill, there.decode)
            return ModelChange("", "", *pairs, ())
    for here, there in zip(before, after, strict=True):
        if way_of(here) != way_of(there):
            pair = (here.prefill, here.decode)
            return ModelChange("", "", pair, pair, (), (str(here.path), str(there.path)))
    return None


# -- paths ---------------------------------------------------------------------------------------


class Rerouted:
    """Collects questions that keep their backends and are computed in another way."""

    def __init__(self, plans: tuple[Plan, Plan]) -> None:
        self.manifests = tuple(plan.manifest for plan in plans)
        self._plans = plans
        self._random = Random(0)
        self._lengths: dict[Pair, list[tuple[int, int]]] = {}
        self._ends: dict[Pair, frozenset[str]] = {}
        self._asked: dict[Pair, int] = {}
        self._found: dict[tuple[Pair, Way, Way], list[Witness]] = {}

    def look(self, backends: Pair, asked: Witness) -> bool | None:
        """Asks both manifests about a layer at some of the lengths that their rules tell apart.

        Returns:
            Whether it is computed in another way at some of them; ``None``: it cannot be asked.
        """
        ways: dict[tuple[Way, Way], Request] = {}
        looked = False
        for request in self._requests(backends, asked.layer.fields):
            try:
                before, after = (
                    plan.resolve(asked.device, asked.layer, asked.facts, request)
                    for plan in self._plans
                )
            except AttnselError:
                return None
            if (before.prefill, before.decode) == backends == (after.prefill, after.decode):
                looked = True
                ways.setdefault((way_of(before), way_of(after)), request)
        if not looked:
            return None
        self._asked[backends] = self._asked.get(backends, 0) + 1
        changed = False
        for (here, there), request in ways.items():
            if here != there:
                changed = True
                witness = msgspec.structs.replace(asked, request=request)
                self._found.setdefault((backends, here, there), []).append(witness)
        return changed

    def ends(self, backends: Pair) -> frozenset[str]:
        """The fields that bound lengths in what two backends say of paths."""
        if backends not in self._ends:
            names = [name for name in backends if name is not None]
            self._lengths[backends] = _lengths_of(self.manifests, names)
            self._ends[backends] = frozenset(
                end
                for manifest in self.manifests
                for test in _tests_of(manifest, names)
                for end in test.ends
            )
        return self._ends[backends]

    def _requests(self, backends: Pair, fields: Mapping[str, object]) -> Iterator[Request]:
        ends = self.ends(backends)
        known = self._lengths[backends]
        yield from (Request(*one) for one in self._random.sample(known, min(_EACH, len(known))))
        for name in ends:
            end = fields.get(name)
            if type(end) is int:
                yield from (Request(min(2, s), s) for s in (end, end + 1) if s >= 1)
                yield from (Request(s, s) for s in (end, end + 1) if s >= 1)

    def changes(self) -> Iterator[PathChange]:
        """Yields what was found."""
        for (backends, before, after), ones in self._found.items():
            asked = self._asked[backends]
            yield PathChange(backends, before, after, len(ones), asked, witness=ones[0])
