"""The error of a serve command that cannot be read."""

from __future__ import annotations

from selector.errors import AttnselError

__all__ = ["CommandError"]


class CommandError(AttnselError, ValueError):
    """Text is no serve command, or a flag in it has no value or a wrong one."""

    code = "COMMAND"
