"""How much a client may ask for at once."""

from __future__ import annotations

import msgspec

__all__ = ["Limits"]


class Limits(msgspec.Struct, frozen=True):
    """What is refused beyond; every one can be configured.

    Attributes:
        body_bytes: longest body of a request, but for batches.
        batch_bytes: longest body of a batch.
        batch_rows: most rows of a batch.
        depth: deepest nesting of a JSON body.
        deadline_s: longest time for a head or a body to come, for a slow question (explain, lint,
            diff) to be answered, for a batch to begin, and for an answer to be taken.
        at_once: so many slow questions are worked on together, and so many batches.
    """

    body_bytes: int = 4 << 20
    batch_bytes: int = 256 << 20
    batch_rows: int = 1_000_000
    depth: int = 32
    deadline_s: float = 30.0
    at_once: int = 4
