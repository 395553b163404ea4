"""Kinds of layers, and on which devices lists give them a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from selector.domains import Domain
from selector.lint.covering import Covering, Devices
from selector.lint.solving import Way
from selector.values import Phase
from selector.words import listed_and

__all__ = ["KindOf", "in_words_of", "kind_way", "kinds_served"]

KindOf = tuple[bool, bool, str]
"""MLA, sparse, and what it attends to."""


def kinds_served(covering: Covering) -> dict[tuple[KindOf, Phase], Devices]:
    """Kind of layer and phase → the devices on which some backend ever runs it.

    Raises:
        OverBudgetError: that was not decided.
    """
    questions = covering.questions
    attn = questions.fields["attn_type"]
    types = {str(name): 1 << n for n, name in enumerate(questions.values[attn].values)}
    found: dict[tuple[KindOf, Phase], Devices] = {}
    for phase in Phase:
        for index in covering.lists(phase):
            for name in questions.names(phase, index):
                where = covering.runs(phase, index, name)
                entry = questions.manifest.entries[name]
                way = questions.decides(phase, index) & questions.alive(name, phase)
                possible = questions.values[attn].all
                for field, kept in way.narrows:
                    possible &= kept if field == attn else possible
                for attn_type, mask in types.items():
                    key = ((entry.mla, entry.sparse, attn_type), phase)
                    left = where - found.get(key, frozenset()) if mask & possible else frozenset()
                    if left and mask != possible:
                        left = covering.devices(way & Way(((attn, mask),)), left)
                    found[key] = found.get(key, frozenset()) | left
    return {key: devices for key, devices in found.items() if devices}


def kind_way(covering: Covering, kind: KindOf) -> Way:
    """That a layer is of a kind."""
    questions = covering.questions
    values: Mapping[str, bool | str] = dict(zip(("mla", "sparse", "attn_type"), kind, strict=True))
    return Way(
        tuple(
            (
                questions.fields[name],
                questions.values[questions.fields[name]].mask(Domain.of(value)),
            )
            for name, value in values.items()
        )
    )


def in_words_of(kinds: Sequence[tuple[KindOf, Sequence[Phase]]]) -> str:
    """Kinds of layers: ``sparse MLA (decoder)``."""
    types: dict[tuple[str, str], list[str]] = {}
    for (mla, sparse, attn_type), phases in kinds:
        word = {(True, True): "sparse MLA", (True, False): "MLA", (False, True): "sparse"}
        phase = "" if len(phases) == len(Phase) else f"the {phases[0]} of "
        types.setdefault((phase, word.get((mla, sparse), "plain")), []).append(attn_type)
    return listed_and(
        f"{phase}{word} ({', '.join(names)})" for (phase, word), names in types.items()
    )
