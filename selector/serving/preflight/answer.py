"""Whether a serve command will start on a device, what it selects, and what to change."""

from __future__ import annotations

import msgspec

from selector.changes.case import Case
from selector.changes.search import elsewhere
from selector.serving.commands.command import Command
from selector.serving.commands.values import Note
from selector.serving.layers.refusal import Refusal
from selector.serving.preflight.judging import (
    Engine,
    Judged,
    Judgement,
    Question,
    check_platform,
    conditions_of,
    judge,
)
from selector.serving.preflight.mending import Mended, command_line, mend
from selector.values import Device, Model

__all__ = ["Engine", "Preflight", "preflight"]


class Preflight(msgspec.Struct, frozen=True):
    """What becomes of a command.

    Attributes:
        command: as read.
        model: the target.
        device: where it is to run.
        engine: the manifest that decides, as claimed and in truth.
        parts: the layers of the target, its drafter and its towers.
        refusals: why it will not start; none when it will.
        mended: the smallest change after which it starts, if one was found.
        notes: what an operator should know.
        assumed: software that was taken to be there, and on which the selection depends.
        elsewhere: when no change helps: the architectures on which all parts run as they are.
    """

    command: Command
    model: Model
    device: Device
    engine: Engine
    parts: tuple[Judged, ...]
    refusals: tuple[Refusal, ...]
    mended: Mended | None
    notes: tuple[Note, ...]
    assumed: tuple[str, ...]
    elsewhere: tuple[str, ...] = ()

    @property
    def will_start(self) -> bool:
        """Whether nothing refuses."""
        return not self.refusals

    @property
    def line_read(self) -> str:
        """The command as a shell line, as it was given."""
        return command_line(self.command)

    @property
    def line(self) -> str:
        """The command as a shell line, mended when that is needed and possible."""
        return command_line(self.mended.command if self.mended else self.command)


def preflight(
    command: Command,
    model: Model,
    device: Device,
    engine: Engine,
    draft: Model | None = None,
    no_draft: str = "",
) -> Preflight:
    """Looks ahead: what is selected, what then refuses, and the smallest change.

    Args:
        command: as read.
        model: as ``load_model`` gives it.
        device: where it is to run.
        engine: the manifest.
        draft: the drafter's model, when the command names one that can be read.
        no_draft: why it cannot.

    Raises:
        UnknownDeviceError: the manifest says nothing of the device's platform.
    """
    asked = Question(model, device, engine, draft, no_draft)
    found = judge(command, asked)
    check_platform(found.judged, engine)
    mended = mend(command, found, asked)
    return Preflight(
        command,
        model,
        device,
        engine,
        found.judged,
        found.refusals,
        mended,
        found.notes,
        tuple(conditions_of(found.judged, engine)),
        _elsewhere(found, engine) if found.refusals and mended is None else (),
    )


def _elsewhere(found: Judgement, engine: Engine) -> tuple[str, ...]:
    """The architectures on which every part runs; none when it is not the device that refuses."""
    if any(refusal.stage in ("command", "parallel sizes") for refusal in found.refusals):
        return ()
    runs: tuple[str, ...] | None = None
    for one in found.judged:
        if one.inquiry is None or one.truth is None:
            continue
        runs = elsewhere(Case(one.inquiry, one.truth, one.part.model), engine.truth, runs)
    return runs or ()
