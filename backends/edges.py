"""Which values of a field are worth running: the ends of a set, what lies next to them, and rungs.

A **ladder** is a list of sizes that kernels like or dislike. How far and how densely values are
tried is a :class:`Reach`: a CPU tries every rung and stays small, so that certifying takes seconds.
A GPU goes to long contexts, and tries few sizes that a kernel is compiled for, since each of them
can cost minutes of a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from selector.domains import Domain, Value

__all__ = ["CUDA", "LADDER", "LIMITS", "Reach", "edges", "member_near", "names", "near"]

LADDER = (
    *(1, 2, 3, 4, 7, 8, 12, 16, 17, 24, 31, 32, 33, 40, 64, 65, 72, 80, 96, 100, 112, 120),
    *(127, 128, 129, 136, 160, 192, 248, 256, 257, 264, 320, 512, 576, 1000, 1024),
)
"""Rungs where nothing else is said."""

LONG = (*LADDER, 2048, 4096, 8191, 8192, 32768, 131072)
"""Rungs of lengths on a GPU."""

LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "head_size": 1024,
        "v_head_size": 1024,
        "qk_nope_head_dim": 256,
        "qk_rope_head_dim": 128,
        "v_head_dim": 256,
        "block_size": 256,
        "sliding_window": 128,
        "gqa_group": 32,
        "num_heads": 64,
        "num_kv_heads": 16,
        "index_topk": 2048,
        "query_len": 320,
        "seq_len": 4096,
    }
)
"""The largest values run on a CPU."""


class Reach(msgspec.Struct, frozen=True):
    """How far, and how densely, values are tried on a kind of device.

    Attributes:
        limits: field → the largest value run.
        rungs: field → its ladder, where that is not :data:`LADDER`; ``latent`` is the head size
            of MLA.
        outer: fields of which only values beyond the outermost ends are tried outside, not those
            between members, and of which silence is tried on rungs alone.
    """

    limits: Mapping[str, int] = LIMITS
    rungs: Mapping[str, tuple[int, ...]] = MappingProxyType({})
    outer: frozenset[str] = frozenset()


_COMPILED: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "head_size": (64, 96, 128, 192, 256),
        "latent": (512,),
        "v_head_size": (128,),
        "qk_nope_head_dim": (64, 128, 192),
        "v_head_dim": (64, 128, 256),
        "block_size": (1, 8, 16, 32, 64, 128, 256, 1024),
        "index_topk": (1, 4, 63, 64, 65, 512, 1024, 2047, 2048),
    }
)
"""Rungs of sizes that a kernel is compiled for."""

CUDA = Reach(
    limits=MappingProxyType(
        {
            **LIMITS,
            "block_size": 1024,
            "num_heads": 128,
            "sliding_window": 4096,
            "query_len": 8192,
            "seq_len": 131072,
        }
    ),
    rungs=MappingProxyType({**_COMPILED, "query_len": LONG, "seq_len": LONG}),
    outer=frozenset(_COMPILED),
)


def edges(
    inside: Domain, outside: Domain, rungs: tuple[int, ...], outer: bool = False, ends: bool = True
) -> tuple[list[Value], list[Value]]:
    """Members at the edges of a set and on a ladder; non-members next to the edges, likewise.

    Args:
        inside: the members.
        outside: the non-members.
        rungs: the ladder.
        outer: only the outermost ends have non-members next to them.
        ends: the ends are limits that somebody stated, and worth trying.
    """
    spans = inside.spans if ends else ()
    edge = {end for s in spans for end in (s.low, s.high) if end is not None}
    beside = {s.first_from(s.low + 1) for s in spans if s.low is not None}
    beside |= {s.last_to(s.high - 1) for s in spans if s.high is not None}
    members = {n for n in (*edge, *beside, *rungs) if n is not None and inside.admits(n)}
    strangers = {n for n in rungs if outside.admits(n)}
    if outer and edge:
        strangers.update(n for n in near(outside, min(edge)) if n < min(edge))
        strangers.update(n for n in near(outside, max(edge)) if n > max(edge))
    else:
        strangers.update(n for end in edge for n in near(outside, end))
    return [*sorted(members), *names(inside)], [*sorted(strangers), *names(outside)]


def near(domain: Domain, value: Value | None) -> list[int]:
    """The numbers among the members next below and next above a number; else the smallest."""
    if not isinstance(value, int) or isinstance(value, bool):
        value = 0
    below = [n for s in domain.spans if (n := s.last_to(value)) is not None]
    above = [n for s in domain.spans if (n := s.first_from(value)) is not None]
    return [*([max(below)] if below else []), *([min(above)] if above else [])]


def names(domain: Domain) -> list[Value]:
    """The names, symbols and booleans among the members, where they can be listed."""
    return [] if domain.all_names_but else sorted(domain.names, key=str)


def member_near(domain: Domain, wanted: Value | None) -> Value | None:
    """A member: the nearest to what is wanted where that means something, else the first."""
    found = None if wanted is None else domain.nearest(wanted)
    if found is not None:
        return found
    smallest = [s.low for s in domain.spans if s.low is not None]
    return min(smallest) if smallest else next(iter(names(domain)), None)
