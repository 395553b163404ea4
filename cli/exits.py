"""What the exit code says."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Exit"]


class Exit(IntEnum):
    """Exit codes, a public contract; the last three are those of any program."""

    FINE = 0
    FINDINGS = 1
    USAGE = 2
    NO_BACKEND = 3
    DIFFERENT = 4
    BUG = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141
