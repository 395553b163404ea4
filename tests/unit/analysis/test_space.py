"""What can be and what cannot: versions of one package, bounds by one field, of two manifests."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from selector import Selector
from selector.analysis.comparing import compare
from selector.analysis.excluding import excluded
from selector.analysis.holding import classes_of, groups_of, impossible_in
from selector.analysis.proving import Verdict, prove_all
from selector.analysis.space import Space
from selector.domains import Domain
from selector.manifest import Manifest
from selector.rules import Allowed, Bound, Test
from selector.values import Position

from .test_diff import OLD, SMALL, changed

NOWHERE = Position("", 0, 0)


def test_the_smallest_that_no_row_is() -> None:
    random = Random(0)
    for _ in range(300):
        widths = [random.randint(1, 3) for _ in range(random.randint(1, 5))]
        every = [*product(*map(range, widths))]
        rows = {*random.sample(every, random.randint(1, len(every)))}
        found = [*excluded(rows, widths)]
        for row in every:
            meant = any(all(row[n] in side for n, side in one.items()) for one in found)
            assert meant is (row not in rows)


def test_what_follows_one_from_another_is_said_of_neighbours_only() -> None:
    """Of 40 least versions, 39 implications are enough; there are 780 of them."""
    rows = {tuple(int(at > n) for n in range(40)) for at in range(41)}
    found = [*excluded(rows, [2] * 40)]
    assert len(found) == 39
    assert all(len(one) == 2 for one in found)


# -- bounds by another field ---------------------------------------------------------------------


def bound_test(random: Random, field: str, ends: tuple[str, ...]) -> Test:
    low = random.choice((None, None, 4, *ends))
    high = random.choice((*ends, *ends, 9)) if not isinstance(low, str) else None
    bound = Bound(low, high, random.choice((1, 1, 2, 3)))
    fixed = random.choice((Domain(), Domain.of(5), Domain.of("unset")))
    return Test(field, Allowed(fixed, (bound,)), NOWHERE)


@pytest.mark.parametrize("seed", range(40))
def test_bounds_exclude_what_no_values_show(seed: int) -> None:
    """Every value of three fields is tried."""
    random = Random(seed)
    universe = {"a": Domain.between(1, 12) | Domain.of("unset"), "b": Domain.between(1, 12)}
    universe["c"] = Domain.between(3, 8)
    tests = {f"t{n}": bound_test(random, "a", ("b", "c")) for n in range(2)}
    tests["t2"] = bound_test(random, "b", ("c",))
    cuts = {name: [Domain.between(1, random.randint(2, 9))] for name in universe}
    classes = {name: classes_of(universe[name], cuts[name]) for name in universe}
    for group in groups_of(tests):
        fields = [*dict.fromkeys(field for test in group.values() for field in test.reads)]
        told = [*impossible_in(group, classes)]
        able = set()
        for values in product(*(members(universe[field]) for field in fields)):
            known = dict(zip(fields, values, strict=True))
            place = tuple(next(c for c in classes[f] if c.admits(known[f])) for f in fields)
            able.add((place, tuple(holds(test, known) for test in group.values())))
        for chosen in product(*(classes[field] for field in fields)):
            for truths in product((False, True), repeat=len(group)):
                one = {**dict(zip(fields, chosen, strict=True))}
                one |= {n: Domain.of(t) for n, t in zip(group, truths, strict=True)}
                excludes = any(all(one[n] <= side for n, side in t.items()) for t in told)
                assert excludes is ((chosen, truths) not in able)


def members(values: Domain) -> list[int | str]:
    return [*(n for n in range(1, 13) if values.admits(n)), *map(str, values.names)]


def holds(test: Test, known: dict[str, int | str]) -> bool:
    value = known[test.field]
    (bound,) = test.allowed.bounds
    low, high = (known[end] if isinstance(end, str) else end for end in (bound.low, bound.high))
    if isinstance(value, str) or isinstance(low, str) or isinstance(high, str):
        return test.allowed.fixed.admits(value)
    within = (low is None or low <= value) and (high is None or value <= high)
    return test.allowed.fixed.admits(value) or (within and value % bound.multiple_of == 0)


BOUND = "      v_head_size: [{max: {field: head_size}}, unset]\n"


def bounded(words: str) -> Manifest:
    """The small manifest, where ``math`` bounds a size by another."""
    return changed(("      head_size: {min: 1}\n", f"      head_size: {{min: 1}}\n{words}"))


def test_a_bound_that_adds_nothing_changes_nothing() -> None:
    more = "{max: {field: head_size}, multiple_of: 2}"
    found = compare(bounded(BOUND), bounded(BOUND.replace("unset", f"unset, {more}")))
    assert found.able
    assert not found.is_different


def test_a_narrower_bound_only_refuses() -> None:
    old, new = bounded(BOUND), bounded(BOUND.replace("}}", "}, multiple_of: 8}"))
    found = compare(old, new)
    assert found.totals
    assert all("math" in before and "math" not in after for before, after in found.totals)
    for region in found.regions:
        assert found.witness(region.one, region.change) is not None


# -- versions ------------------------------------------------------------------------------------


def test_a_higher_least_version_only_refuses() -> None:
    new = changed(('requires: {torch: ">=2.5"}', 'requires: {torch: ">=2.6"}'))
    found = compare(OLD, new)
    assert found.totals
    assert all("math" in before and "math" not in after for before, after in found.totals)
    for region in found.regions:
        assert found.witness(region.one, region.change) is not None


def test_a_version_that_was_excluded_anyway_changes_nothing() -> None:
    new = changed(('requires: {torch: ">=2.5"}', 'requires: {torch: ">=2.5,!=1.5"}'))
    found = compare(OLD, new)
    assert found.able
    assert not found.is_different


@pytest.mark.parametrize(
    "specifier",
    [
        *("==1.2.post1", "==1.2rc1", "==2.9.0+cu128", "==1!2.0", ">1.0,<1.0.1", "<0.0.1"),
        *("==1.2.*", ">1.2rc1,<1.2rc2", "===1.2.post1", "~=1.4.2"),
    ],
)
def test_what_some_version_satisfies_can_be_chosen(specifier: str) -> None:
    manifest = changed(('requires: {torch: ">=2.5"}', f'requires: {{torch: "{specifier}"}}'))
    assert {proof.verdict for proof in prove_all(manifest)} == {Verdict.PROVED}


def test_many_versions_of_one_package_are_few_cases() -> None:
    """Their combinations double with each."""
    entry = SMALL[SMALL.index("  - name: math\n") : SMALL.index("  - name: fa2\n")]
    more = "".join(
        entry.replace("math", f"math{n}").replace('">=2.5"', f'">=2.{n}"') for n in range(40)
    )
    text = SMALL.replace(entry, entry + more).replace("[fa2, math]", "[fa2, math0, math39]")
    manifest = Selector.loads(text).manifest
    assert len(Space([manifest]).rules[0].impossible) < 200
