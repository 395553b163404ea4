"""The lines that let a promise about paths be broken."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from selector.analysis.proving import Fault, Proof
from selector.manifest import Manifest
from selector.paths import decode_path

__all__ = ["with_path_faults"]


def with_path_faults(manifest: Manifest, proof: Proof) -> Proof:
    """The proof, with the lines for a path which its promise excludes.

    Of a prefill, these are the rule that gives the path and the word that allows a dense one. No
    rule gives the path of a decode: it follows from what the entry is, and the list chose that.
    """
    found = tuple(_faults(manifest, proof))
    return msgspec.structs.replace(proof, faults=(*dict.fromkeys((*proof.faults, *found)),))


def _faults(manifest: Manifest, proof: Proof) -> Iterator[Fault]:
    promise = next((p for p in manifest.invariants if p.position == proof.position), None)
    if promise is None or proof.example is None:
        return
    answer = proof.example.answer
    taken = [(answer.decode, answer.decode.path), (answer.prefill, answer.prefill.path)]
    for choice, path in taken:
        if choice.backend is None or path not in promise.never_paths:
            continue
        entry = manifest.entries[choice.backend]
        for position in choice.path_rules:
            yield Fault(position, f"this rule of {entry.name} gives {path}")
        if choice.path_rules and entry.dense_prefill_at is not None:
            yield Fault(entry.dense_prefill_at, f"{entry.name} may compute prefill densely")
        if not choice.path_rules and path == decode_path(entry):
            yield Fault(entry.position, f"{entry.name} decodes by {path}, as what it is")
        if choice.rule is not None:
            yield Fault(choice.rule, f"this list gives {entry.name}")
