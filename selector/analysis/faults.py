"""The lines that let a promise about the path of a decode be broken."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from selector.analysis.proving import Fault, Proof
from selector.manifest import Manifest
from selector.paths import decode_path
from selector.values import Phase

__all__ = ["with_decode_faults"]


def with_decode_faults(manifest: Manifest, proof: Proof) -> Proof:
    """The proof, with the lines for a decode that takes a path which its promise excludes.

    No rule gives the path of a decode: it follows from what the entry is, and the list chose that.
    """
    found = tuple(_faults(manifest, proof))
    return msgspec.structs.replace(proof, faults=(*dict.fromkeys((*proof.faults, *found)),))


def _faults(manifest: Manifest, proof: Proof) -> Iterator[Fault]:
    promise = next((p for p in manifest.invariants if p.position == proof.position), None)
    if promise is None or proof.example is None:
        return
    answer = proof.example.answer
    taken = [(answer.decode, answer.decode.path)]
    if answer.phase is Phase.DECODE:
        taken.append((answer.prefill, answer.prefill.path))
    for choice, path in taken:
        if choice.backend is None or choice.path_rules or path not in promise.never_paths:
            continue
        entry = manifest.entries[choice.backend]
        if path == decode_path(entry):
            yield Fault(entry.position, f"{entry.name} decodes by {path}, as what it is")
        if choice.rule is not None:
            yield Fault(choice.rule, f"this list gives {entry.name}")
