"""Whether two backends can work on one KV cache."""

from __future__ import annotations

from selector.manifest import Manifest
from selector.plan.kind import Agree
from selector.plan.terms import UndecidedError

__all__ = ["agreement"]


def agreement(manifest: Manifest) -> Agree:
    """What a manifest's entries say of two backends that must share something.

    It raises :class:`UndecidedError` where only the definition knows.
    """
    entries = manifest.entries

    def agree(shared: tuple[str, ...], prefill: str, decode: str) -> bool:
        if prefill == decode:
            return True
        here, there = entries[prefill], entries[decode]
        for name in shared:
            if name == "backend":
                return False
            if name == "kv_layout":
                layouts = here.kv_layout, there.kv_layout
                if all(layouts) and layouts[0].isdisjoint(layouts[1]):
                    return False
            elif name in here.coerce or name in there.coerce:
                raise UndecidedError
        return True

    return agree
