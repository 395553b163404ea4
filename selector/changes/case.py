"""What was asked and what was answered, together: the unit that reports speak of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType

import msgspec

from selector.binding import Bound, Selector
from selector.domains import Value
from selector.manifest import Manifest, Priority
from selector.values import (
    Candidate,
    Choice,
    Code,
    Device,
    Facts,
    Layer,
    LayerGroup,
    Model,
    Outcome,
    Phase,
    Policy,
    Request,
    Resolution,
    Verdict,
)

__all__ = [
    "USABLE",
    "Case",
    "Inquiry",
    "Shard",
    "candidate_of",
    "choice_of",
    "list_of",
    "rarest_first",
    "usable_in",
    "verdict_of",
]

USABLE = (Outcome.SELECTED, Outcome.ELIGIBLE, Outcome.CONDITIONAL)
"""Outcomes of a candidate that could run the layer."""

Shard = Callable[[int], Layer | None]
"""Tensor-parallel size → the layer on one rank; ``None`` when heads cannot be dealt out."""


class Inquiry(msgspec.Struct, frozen=True):
    """Everything that a resolution is computed from, beside the manifest."""

    device: Device
    layer: Layer
    facts: Facts = Facts()
    policy: Policy = Policy()
    request: Request = Request()
    closed_world: bool = False

    def bind(self, selector: Selector) -> Bound:
        """The manifest, bound to everything but the request.

        Raises:
            ContradictionError: no such layer can exist.
        """
        return selector.bind(
            self.device, self.layer, self.facts, self.policy, closed_world=self.closed_world
        )

    def resolve(self, selector: Selector, *, brief: bool = False) -> Resolution:
        """The answer; a brief one leaves out the candidates that are never chosen.

        Raises:
            ContradictionError: no such layer can exist.
            UnknownBackendError: the policy names a backend that is not in the manifest.
        """
        return self.bind(selector).resolve_one(self.request, brief=brief)

    def with_field(self, name: str, value: Value) -> Inquiry:
        """The same inquiry with one field of the layer changed."""
        fields = MappingProxyType({**self.layer.fields, name: value})
        return msgspec.structs.replace(self, layer=Layer(fields))

    def with_fact(self, name: str, value: str | bool) -> Inquiry:
        """The same inquiry with one fact changed."""
        facts = Facts(MappingProxyType({**self.facts.values, name: value}))
        return msgspec.structs.replace(self, facts=facts)


class Case(msgspec.Struct, frozen=True):
    """One answer, with what a reader must know to place it.

    Attributes:
        inquiry: what was asked.
        resolution: the answer.
        model: the model the layers are of, when one was given.
        group: its layers that this answer is about.
        planning: the device is not this machine's, so its facts are unknown.
        shard: the layer for another tensor-parallel size, when that can be computed.
        as_claimed: the answer is from what engines claim, not from what is true.
    """

    inquiry: Inquiry
    resolution: Resolution
    model: Model | None = None
    group: LayerGroup | None = None
    planning: bool = False
    shard: Shard | None = None
    as_claimed: bool = False

    @property
    def assumed(self) -> frozenset[str]:
        """The facts that nobody knows and that the closed world takes not to be there."""
        if not self.inquiry.closed_world:
            return frozenset()
        known = self.inquiry.facts.values
        return frozenset(
            rejection.field
            for candidate in self.resolution.candidates
            for verdict in (candidate.prefill, candidate.decode)
            for rejection in verdict.rejections
            if rejection.code == Code.NOT_INSTALLED
            and rejection.field
            and rejection.field not in known
        )


def verdict_of(candidate: Candidate, phase: Phase) -> Verdict:
    """What was said of a candidate in a phase."""
    return candidate.prefill if phase is Phase.PREFILL else candidate.decode


def candidate_of(resolution: Resolution, backend: str) -> Candidate:
    """The candidate of that name."""
    return next(c for c in resolution.candidates if c.backend == backend)


def choice_of(resolution: Resolution, phase: Phase) -> Choice:
    """The decision for one phase."""
    return resolution.prefill if phase is Phase.PREFILL else resolution.decode


def list_of(choice: Choice, manifest: Manifest) -> Priority | None:
    """The priority list that decided; ``None`` when none did."""
    return next((p for p in manifest.priorities if p.position == choice.rule), None)


def usable_in(resolution: Resolution, phase: Phase) -> tuple[str, ...]:
    """The entries that could run a phase, in the order of the manifest."""
    return tuple(c.backend for c in resolution.candidates if verdict_of(c, phase).outcome in USABLE)


def rarest_first(cases: Sequence[Case]) -> list[Case]:
    """The odd layers first: they are the ones a reader did not expect."""
    return sorted(cases, key=lambda case: case.group.count if case.group else 0)
