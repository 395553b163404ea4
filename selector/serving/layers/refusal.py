"""Why an engine will not start: where it stops, for which layers, and what was refused."""

from __future__ import annotations

from typing import Literal

import msgspec

from selector.values import Phase, Rejection

__all__ = ["Refusal", "Refused", "Stack", "Stage"]

Stack = Literal["target", "drafter", "tower"]
Stage = Literal["command", "parallel sizes", "selection", "mla prefill", "constructor"]


class Refused(msgspec.Struct, frozen=True):
    """A backend, and why it cannot run these layers."""

    backend: str
    rejections: tuple[Rejection, ...]


class Refusal(msgspec.Struct, frozen=True):
    """One reason why it will not start.

    Attributes:
        stage: where it stops: at the ``command`` itself, when heads are dealt out (``parallel
            sizes``), at the ``selection`` of a backend, at that of an ``mla prefill`` backend, or
            in the ``constructor`` of the backend that was selected.
        stack: whose layers; ``None`` when it is about all of them.
        group: the name of the group of layers; empty when it is about all of them.
        phases: the phases that are refused.
        backend: the backend that was forced, or selected and then refused.
        pin: the spelling that forced it; empty when nothing did.
        candidates: who was refused, and why.
        words: what is wrong, where no rule of the manifest says it.
    """

    stage: Stage
    stack: Stack | None = None
    group: str = ""
    phases: tuple[Phase, ...] = ()
    backend: str | None = None
    pin: str = ""
    candidates: tuple[Refused, ...] = ()
    words: str = ""
