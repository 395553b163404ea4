"""Lengths that go together: the same as by trying all lengths."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from selector.analysis.diagram import Level
from selector.analysis.lengths import InexactError, Lengths
from selector.analysis.space import classes_of
from selector.asking import lengths_of
from selector.domains import Domain
from selector.fields import ABSENT, Vocabulary
from selector.manifest import Measure
from selector.plan.computed import Relation
from selector.rules import Allowed, Bound, Test
from selector.values import Position

MEASURE = Measure("mask_words", small_tile=2, large_tile=4, word_align=1)
MOST_CACHED = 140
"""Tokens: more are like some of these."""

NOWHERE = Position("here", 1, 1)
UNIVERSES = {
    "index_topk": Domain.between(0, None) | Domain.of(ABSENT),
    "query_len": Domain.between(1, None),
    "seq_len": Domain.between(1, None),
    "context_len": Domain.between(0, None),
    "has_context": Domain.of(True, False),
    "mask_words": Domain.between(1, None),
}


class Told:
    """A manifest, as far as lengths are concerned."""

    measures = (MEASURE,)


def bounded(field: str, **ends: object) -> Test:
    return Test(field, Allowed(Domain(), (Bound(**ends),)), NOWHERE)  # type: ignore[arg-type]


BOUNDS = {
    "within": bounded("seq_len", high="index_topk"),
    "beyond": bounded("seq_len", low="index_topk"),
    "short": bounded("query_len", low=3, high="index_topk"),
}


def drawn(random: Random, name: str) -> list[Domain]:
    """Sets that a field is held against."""
    if name == "index_topk":
        edges = [Domain.between(random.randint(3, 12), None), Domain.of(random.randint(3, 14))]
        return [Domain.between(None, None), *edges[: random.randint(1, 2)]]
    if name == "has_context":
        return [Domain.of(True)]
    if name == "mask_words":
        return [Domain.between(1, random.choice((2, 4, 5, 8)))]
    most = {"query_len": 9, "seq_len": 12, "context_len": 40}[name]
    low = random.randint(1, most)
    return [Domain.between(low, random.choice((None, low, low + 5))), Domain.between(1, low // 2)]


def ways(lengths: Lengths, index: int, state: int) -> list[tuple[int, ...]]:
    """Every combination of classes that can be, by their places."""
    if index == len(lengths.order):
        return [()]
    return [
        (place, *rest)
        for place, following in enumerate(lengths.next(index, state))
        if following is not None
        for rest in ways(lengths, index + 1, following)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_lengths_that_are_tried_one_by_one(seed: int) -> None:
    random = Random(seed)
    names = [
        "index_topk",
        *random.sample(["query_len", "seq_len", "context_len", "has_context"], 2),
    ]
    bounds = dict(random.sample(sorted(BOUNDS.items()), 2))
    order = [Level(n, classes_of(UNIVERSES[n], drawn(random, n))) for n in names]
    order += [Level(n, (Domain.of(True), Domain.of(False))) for n in bounds]
    order.append(
        Level("mask_words", classes_of(UNIVERSES["mask_words"], drawn(random, "mask_words")))
    )
    relations = {name: Relation(Vocabulary(), test) for name, test in bounds.items()}
    seen: set[tuple[int, ...]] = set()
    edges = [
        n for values in order[0].classes for span in values.spans for n in (span.low, span.high)
    ]
    for query, cached in product(range(1, 26), range(MOST_CACHED)):
        said = lengths_of(Told, query, query + cached)  # type: ignore[arg-type]
        near = (
            e + by for e in (*edges, query, query + cached) if e is not None for by in (-1, 0, 1)
        )
        for end in (*(n for n in near if n >= 0), ABSENT):
            values = {**said, "index_topk": end}
            values |= {name: one.of(values) is True for name, one in relations.items()}
            seen.add(tuple(place_of(level, values[level.name]) for level in order))
    lengths = Lengths(order, bounds, (MEASURE,))
    able = ways(lengths, 0, lengths.start)
    assert len(able) == len(set(able))
    assert set(able) == seen
    for way in able:
        classes = {level.name: level.classes[i] for level, i in zip(order, way, strict=True)}
        solved = lengths.solved(classes)
        assert solved is not None
        query, seq, end = (solved.get(n) for n in ("query_len", "seq_len", "index_topk"))
        assert query is not None
        assert seq is not None
        values = lengths_of(Told, query.only(), seq.only())  # type: ignore[arg-type]
        values["index_topk"] = ABSENT if end is None else end.only() or 0
        values |= {name: one.of(values) is True for name, one in relations.items()}
        assert way == tuple(place_of(level, values[level.name]) for level in order)


def place_of(level: Level, value: object) -> int:
    """The class of a value."""
    return next(i for i, values in enumerate(level.classes) if values.admits(value))  # type: ignore[arg-type]


def test_multiples_of_lengths_are_refused() -> None:
    order = [Level("seq_len", classes_of(UNIVERSES["seq_len"], [Domain.between(1, None, 8)]))]
    with pytest.raises(InexactError, match="multiples of seq_len"):
        Lengths(order, {}, ())


def test_a_bound_that_has_steps_and_bounds_two_lengths_is_refused() -> None:
    steps = classes_of(Domain.between(0, None), [Domain.between(1, None, 4)])
    order = [Level("index_topk", steps), Level("within", (Domain.of(True), Domain.of(False)))]
    Lengths(order, BOUNDS, ())
    order.append(Level("beyond", order[-1].classes))
    with pytest.raises(InexactError, match="multiples of index_topk"):
        Lengths(order, BOUNDS, ())
