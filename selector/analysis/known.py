"""Questions about known models that break a promise about paths.

What is counted has no lengths: that a rule could give a forbidden path is known there, and not at
which lengths it does. Layers of known models are asked at the lengths where rules change.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

import msgspec

from selector.analysis.examples import Example, breaks, shorten
from selector.analysis.faults import faults_of
from selector.analysis.proving import Proof, Verdict
from selector.analysis.routes import Suspicion, suspicions_of
from selector.analysis.space import needs_by_fact, versions_about
from selector.analysis.witness import Witness
from selector.binding import Selector
from selector.devices import architectures
from selector.errors import AttnselError
from selector.manifest import Invariant, Manifest
from selector.models import load_model, override, presets
from selector.plan.plan import Plan
from selector.values import Device, Facts, Layer, Request

__all__ = ["with_known_example"]

_MOST_LENGTHS = 60


def with_known_example(manifest: Manifest, proof: Proof) -> Proof:
    """The proof; refuted where it was open and a known model breaks it."""
    promise = next((p for p in manifest.invariants if p.position == proof.position), None)
    if promise is None or proof.verdict is not Verdict.UNDECIDED or not proof.suspected:
        return proof
    selector = Selector(manifest)
    example = next(_examples(selector, promise), None)
    if example is None:
        return proof
    faults = faults_of(selector, promise, example)
    return msgspec.structs.replace(
        proof, verdict=Verdict.REFUTED, example=example, faults=(*proof.faults, *faults)
    )


def _examples(selector: Selector, promise: Invariant) -> Iterator[Example]:
    """Yields questions that break the promise, as short as they can be said."""
    plan = Plan(selector.manifest)
    facts = _everything(plan)
    shows = breaks(promise)
    for one in suspicions_of(plan.manifest, promise):
        for device, layer, request in _taken(plan, one, promise, facts):
            answer = selector.bind(device, layer, facts).resolve_one(request)
            if shows(answer):
                asked = Witness(device, layer, facts, request)
                yield shorten(selector, Example(asked, answer), shows)


def _taken(
    plan: Plan, one: Suspicion, promise: Invariant, facts: Facts
) -> Iterator[tuple[Device, Layer, Request]]:
    """Yields questions about known layers for which an entry takes a forbidden path."""
    pairs = one.lengths(plan.manifest)
    lengths = [Request(q, s) for q, s in pairs[:: 1 + len(pairs) // _MOST_LENGTHS]]
    devices = [Device(row["platform"], row["capability"]) for row in architectures()]
    layers = dict.fromkeys(g.layer for n in presets() for g in override(load_model(n), {}).groups)
    for layer in layers:
        for device in devices:
            try:
                if plan.resolve(device, layer, facts, lengths[0]).prefill != one.entry.name:
                    continue
                for request in lengths:
                    if plan.resolve(device, layer, facts, request).path in promise.never_paths:
                        yield device, layer, request
            except AttnselError:
                continue  # no such layer


def _everything(plan: Plan) -> Facts:
    """Software that meets as many requirements as one version of each can."""
    found: dict[str, str | bool | None] = {}
    for name, kind in plan.manifest.facts.items():
        if kind == "boolean":
            found[name] = True
    for fact, needs in needs_by_fact([plan.rules]).items():
        versions = versions_about(need.requirement.specifier for need in needs.values())
        texts = [version for version in versions if isinstance(version, str)]
        if fact not in found and texts:
            found[fact] = max(
                texts, key=lambda v: sum(n.of(Facts({fact: v})) is True for n in needs.values())
            )
    return Facts(MappingProxyType(found))
