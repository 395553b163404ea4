"""Questions of bodies put to a snapshot. What is bound once is kept with the snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from selector.binding import Bound
from selector.changes.case import Case, Inquiry, rarest_first
from selector.changes.layers import Layers, layers_of
from selector.errors import ValueRefusedError
from selector.fields import close_matches, one_line
from selector.live import Snapshot
from selector.models.reader import read_config
from selector.service.bodies import Said
from selector.tables.rows import load_preset
from selector.values import Layer, Model, Request

__all__ = ["Asked", "ask"]


class Asked:
    """A question but for its lengths, bound to a snapshot.

    Attributes:
        snapshot: answers it.
    """

    def __init__(self, snapshot: Snapshot, said: Said) -> None:
        """Binds each group of layers.

        Raises:
            AttnselError: something said is unknown, refused or contradictory.
        """
        self.snapshot = snapshot
        self.as_claimed = said.as_claimed
        self.selector = snapshot.claimed if said.as_claimed else snapshot.selector
        manifest = self.selector.manifest
        device, facts, policy = said.device_meant(), said.facts_known(), said.policy_said()
        _refuse_misspelt(said.facts, manifest.facts)
        fields = Layer.read(said.layer, manifest.vocabulary).fields
        self._groups: list[tuple[Inquiry, Bound, Layers]] = []
        for group in layers_of(_model_of(said), fields):
            inquiry = Inquiry(device, group[2], facts, policy, closed_world=said.closed_world)
            self._groups.append((inquiry, inquiry.bind(self.selector), group))

    def cases(self, request: Request) -> list[Case]:
        """One case for each group of layers, the rarest first.

        Raises:
            UnknownBackendError: the policy names a backend that is not in the manifest.
        """
        return rarest_first([self._case(*group, request) for group in self._groups])

    def _case(self, inquiry: Inquiry, bound: Bound, group: Layers, request: Request) -> Case:
        model, of, _, shard = group
        asked = msgspec.structs.replace(inquiry, request=request)
        answer = bound.resolve_one(request)
        return Case(asked, answer, model, of, True, shard, self.as_claimed)


def ask(snapshot: Snapshot, said: Said) -> Asked:
    """The question bound to a snapshot.

    Raises:
        AttnselError: something said is unknown, refused or contradictory.
    """
    return Asked(snapshot, said)


def _model_of(said: Said) -> Model | None:
    """The model: a preset or an object; a path is never read."""
    if said.model is None:
        return None
    return load_preset(said.model) if isinstance(said.model, str) else read_config(said.model)


def _refuse_misspelt(said: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Refuses a fact that reads like one of the manifest's and is none; others mean nothing to it.

    Raises:
        ValueRefusedError: there is one.
    """
    for name in said:
        near = [] if name in known else close_matches(name[:100], known, 0.85)
        if near:
            raise ValueRefusedError(
                f'no fact is called "{one_line(name)}"; did you mean {near[0]}?'
            )
