"""Regions: disjoint, exact where they say so, and as many questions as were counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import product

import pytest

from selector import Selector
from selector.analysis.bounds import upper_bound
from selector.analysis.comparing import Limits, Region, compare, decision_of
from selector.analysis.regions import Box, merged
from selector.analysis.space import Space, representative
from selector.analysis.witness import witness_of
from selector.domains import Domain
from selector.manifest import Manifest

from .drawing import drawn

SEEDS = (3, 5, 10, 12)
Classes = Mapping[str, Domain]


def pair(seed: int, entries: int = 3, constraints: int = 2) -> tuple[Manifest, Manifest]:
    texts = drawn(seed, entries, constraints), drawn(seed, entries, constraints, changes=3)
    old, new = (Selector.loads(text).manifest for text in texts)
    return old, new


def questions(space: Space) -> list[Classes]:
    """Every combination of classes, of the fields that both manifests look at."""
    names = [name for name in space.classes if name not in ("platform", "capability")]
    return [
        {"platform": platform, "capability": capability, **dict(zip(names, chosen, strict=True))}
        for platform, capability in space.devices
        for chosen in product(*(space.classes[name] for name in names))
    ]


def holds(region: Region, classes: Classes) -> bool:
    device = (classes["platform"], classes["capability"])
    if region.devices and device not in region.devices:
        return False
    return all(
        values.admits(representative(classes[name])) for name, values in region.sides.items()
    )


@pytest.fixture
def _few_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brute force asks about every question: the sets that are drawn are few."""
    from . import drawing

    kept = ("head_size", "dtype", "kv_cache_dtype", "capability")
    sets = {n: s if n in kept else ["any"] for n, s in drawing.SETS.items()}
    sets["capability"] = [["9.0"], [">=8.0"], "any"]
    sets["head_size"] = [[64], {"max": 256}, "any"]
    conditions = {n: c for n, c in drawing.CONDITIONS.items() if n in ("dtype", "sink")}
    monkeypatch.setattr(drawing, "SETS", sets)
    monkeypatch.setattr(drawing, "CONDITIONS", conditions)


@pytest.mark.usefixtures("_few_fields")
@pytest.mark.parametrize("seed", SEEDS)
def test_brute_force_counts_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every feature stated as `any`, all questions can be asked one by one."""
    from . import drawing

    plain = drawing._entry

    def open_entry(*arguments: object) -> dict[str, object]:
        entry = plain(*arguments)  # type: ignore[arg-type]
        entry["accepts"] |= dict.fromkeys(_FEATURES, "any")
        return entry

    monkeypatch.setattr(drawing, "_entry", open_entry)
    old, new = pair(seed)
    found = compare(old, new)
    assert found.space is not None
    assert found.space.size < 3_000
    able, counts = 0, Counter[object]()
    for classes in questions(found.space):
        asked = witness_of(found.space, classes)
        assert asked is not None
        before, after = decision_of(old, asked), decision_of(new, asked)
        if before is None or after is None:
            continue  # a rule of `space` forbids it
        able += 1
        inside = [region for region in found.regions if holds(region, classes)]
        if before != after:
            counts[before, after] += 1
            assert (before, after) in [region.change for region in inside]
        assert all(r.change == (before, after) for r in inside if r.count == r.holds)
    assert found.able == able
    assert found.totals == counts
    assert counts


def _features() -> list[str]:
    from selector.fields import BUILTIN

    return [
        f.name for f in BUILTIN if f.role == "feature" and f.name not in ("mla", "sparse", "sink")
    ]


_FEATURES = _features()


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_regions_are_disjoint_and_their_counts_sum_to_the_total(seed: int) -> None:
    old, new = pair(seed, 6, 6)
    found = compare(old, new)
    assert found.changed == sum(region.count for region in found.regions)
    for change, number in found.totals.items():
        assert number == sum(r.count for r in found.regions if r.change == change)
    exact = [region for region in found.regions if region.count == region.holds]
    assert exact
    for index, region in enumerate(exact):
        for other in exact[index + 1 :]:
            assert not _can_meet(region, other), (region, other)
    assert [r.count for r in found.regions] == sorted(
        (r.count for r in found.regions), reverse=True
    )


def _can_meet(a: Region, b: Region) -> bool:
    """Whether two boxes share a combination of classes that can exist.

    What no layer can be lies in any box: fields that a rule of `space` joins are not looked at.
    """
    if a.devices and b.devices and not set(a.devices) & set(b.devices):
        return False
    shared = set(a.sides) & set(b.sides)
    if any((a.sides[name] & b.sides[name]).is_empty() for name in shared):
        return False
    joined = {"dtype", "kv_cache_dtype"}
    return not joined & (set(a.sides) ^ set(b.sides))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_every_witness_changes_as_claimed(seed: int) -> None:
    old, new = pair(seed, 6, 6)
    found = compare(old, new)
    assert found.regions
    for region in found.regions:
        assert found.witness(region.one, region.change) is not None


def test_a_region_that_is_not_exact_says_so() -> None:
    """With one box for each change, boxes hold more than what changes; counts stay the same."""
    old, new = pair(3, 8, 8)
    found, rough = compare(old, new), compare(old, new, Limits(boxes=1))
    assert rough.totals == found.totals
    assert rough.changed == sum(region.count for region in rough.regions)
    assert any(region.count < region.holds for region in rough.regions)
    assert len(rough.regions) < len(found.regions)


def test_boxes_that_differ_in_one_field_become_one() -> None:
    one = {"a": 0, "b": 0}
    boxes = [
        Box({"a": frozenset({0}), "b": frozenset({0})}, 2, 2, one),
        Box({"a": frozenset({1}), "b": frozenset({0})}, 3, 3, one),
        Box({"a": frozenset({0}), "b": frozenset({1})}, 1, 1, one),
    ]
    joined = merged(boxes, {"a": 2, "b": 3})
    assert sorted((dict(box.sides), box.count) for box in joined if "a" not in box.sides) == [
        ({"b": frozenset({0})}, 5)
    ]
    assert sum(box.count for box in joined) == 6


@pytest.mark.parametrize(
    ("seen", "number", "at_most"),
    [(0, 20_000, 0.00015), (0, 100, 0.0295), (1, 100, 0.0466), (100, 100, 1.0)],
)
def test_bounds_of_samples(seen: int, number: int, at_most: float) -> None:
    """The exact one-sided bounds of Clopper and Pearson."""
    assert upper_bound(seen, number) == pytest.approx(at_most, rel=0.01)
