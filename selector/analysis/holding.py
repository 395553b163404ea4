"""Bounds that other fields give: which of them hold together, and values that show it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from math import lcm

from selector.analysis.excluding import excluded
from selector.domains import Domain, Value
from selector.rules import Test

__all__ = ["classes_of", "groups_of", "impossible_in", "representative", "ways_of"]

Holds = tuple[bool, ...]
"""Of each test, whether it holds."""

_MOST_CLASSES = 20_000
"""Combinations of classes that are looked at for tests with several fields."""

_FAR = 1 << 20


def groups_of(tests: Mapping[str, Test]) -> Iterator[dict[str, Test]]:
    """Yields the tests that are to be looked at together, by their names.

    Those about one field, as far as the same fields bound it, and as far as those of two do.
    """
    groups: dict[tuple[str, frozenset[str]], None] = {}
    for one, other in product(tests.values(), repeat=2):
        if one.field == other.field:
            groups[one.field, frozenset((*one.reads, *other.reads))] = None
    for field, read in groups:
        yield {n: t for n, t in tests.items() if t.field == field and read.issuperset(t.reads)}


def impossible_in(
    tests: Mapping[str, Test], classes: Mapping[str, tuple[Domain, ...]]
) -> Iterator[Mapping[str, Domain]]:
    """Yields what of the classes of fields, and of whether tests about them hold, excludes itself.

    Nothing where there are too many classes: more is taken to be possible then.

    Args:
        tests: by the name of the field that stands for each.
        classes: of every field that a test reads.
    """
    fields = [*dict.fromkeys(field for test in tests.values() for field in test.reads)]
    sides = [classes[field] for field in fields]
    sizes = [len(side) for side in sides]
    number = 1
    for size in sizes:
        number *= size
    if number > _MOST_CLASSES:
        return
    rows: set[tuple[int, ...]] = set()
    for chosen in product(*map(range, sizes)):
        one = {field: side[i] for field, side, i in zip(fields, sides, chosen, strict=True)}
        rows |= {(*chosen, *map(int, holds)) for holds, _ in ways_of([*tests.values()], one)}
    truths = (Domain.of(False), Domain.of(True))
    names, values = [*fields, *tests], [*sides, *(truths for _ in tests)]
    for told in excluded(rows, [*sizes, *(2 for _ in tests)]):
        yield {names[n]: Domain.union(values[n][i] for i in side) for n, side in told.items()}


def ways_of(
    tests: Sequence[Test], classes: Mapping[str, Domain]
) -> Iterator[tuple[Holds, Mapping[str, Value]]]:
    """Yields which of some tests hold, in every way in which fields of these classes can be.

    Each way comes once, with values of the classes that show it.
    """
    ends = [*dict.fromkeys(end for test in tests for end in test.ends)]
    own = [*dict.fromkeys(test.field for test in tests if test.field not in ends)]
    steps = {bound.multiple_of for test in tests for bound in test.allowed.bounds}
    steps |= {1, lcm(*steps)}
    others = [classes[name] for name in (*ends, *own)]
    seen: set[Holds] = set()
    for chosen in product(*(_telling(classes[end], others, steps) for end in ends)):
        known: dict[str, Value] = dict(zip(ends, chosen, strict=True))
        allowed = [_allowed(test, known) for test in tests]
        parts = [
            classes_of(
                classes[name],
                [a for a, test in zip(allowed, tests, strict=True) if test.field == name],
            )
            for name in own
        ]
        for ones in product(*parts):
            values = {**known, **dict(zip(own, map(representative, ones), strict=True))}
            holds = tuple(a.admits(values[t.field]) for a, t in zip(allowed, tests, strict=True))
            if holds not in seen:
                seen.add(holds)
                yield holds, values
        if len(seen) == 1 << len(tests):
            return


def _allowed(test: Test, known: Mapping[str, Value]) -> Domain:
    allowed = test.allowed.fixed
    for bound in test.allowed.bounds:
        low, high = (known[end] if isinstance(end, str) else end for end in (bound.low, bound.high))
        if isinstance(low, str) or isinstance(high, str):
            continue  # a symbol bounds nothing
        allowed = allowed | Domain.between(low, high, bound.multiple_of)
    return allowed


def _telling(values: Domain, others: Sequence[Domain], steps: Collection[int]) -> list[Value]:
    """Members of a class that tell most when other fields are held against them."""
    found: dict[Value, None] = dict.fromkeys(values.names) if not values.all_names_but else {}
    ones = dict.fromkeys((values, *(values & one for one in others)))
    for one, step in product(ones, steps):
        for span in (one & Domain.between(None, None, step)).spans:
            low = span.low or 0
            near = (span.low, span.first_from(low + 1), span.first_from(low + _FAR), span.high)
            found |= {end: None for end in near if end is not None}
    return list(found) or [representative(values)]


def classes_of(universe: Domain, sets: Sequence[Domain]) -> tuple[Domain, ...]:
    """The coarsest partition of a universe that every set is a union of."""
    parts = [universe]
    for values in dict.fromkeys(sets):
        split = []
        for part in parts:
            inside = part & values
            if inside.is_empty():
                split.append(part)
                continue
            outside = part - values
            split += [inside] if outside.is_empty() else [inside, outside]
        parts = split
    return tuple(parts)


def representative(values: Domain) -> Value:
    """A member of a class: the smallest number of at least 1, else the first name."""
    number = values.nearest(1)
    if isinstance(number, int) and not isinstance(number, bool):
        return number
    if values.all_names_but:
        name = "other"
        while name in values.names:
            name += "_"
        return name
    return min(values.names, key=str)
