"""Ways to compute, counted: the same counts as by asking every question of the definition."""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from random import Random
from types import MappingProxyType

import msgspec
import pytest

from selector import ManifestError, Selector
from selector.analysis import paths
from selector.analysis.comparing import Comparison, Limits, Region, _Comparer, compare, pick_of
from selector.analysis.paths import Paths
from selector.analysis.rerouting import way_of
from selector.analysis.space import representative
from selector.analysis.tails import Way
from selector.analysis.witness import Witness, witness_of
from selector.asking import lengths_of
from selector.domains import Domain, Value
from selector.errors import ContradictionError
from selector.manifest import Manifest
from selector.plan.computed import Need, Relation
from selector.plan.plan import Pick, Plan
from selector.plan.terms import Rules
from selector.report.differences import region_words
from selector.values import Layer, Phase, Request
from tests.laws.drawing import Choices, Tree, a_manifest, a_question, question, request

from .turning import LONGEST, pair, plain_entry

Classes = Mapping[str, Domain]
Cell = tuple[int, ...]
"""For each length the place of its class; for each bound whether it holds."""

Ends = tuple[Value, ...]
"""What bounds lengths."""


def compared(old: Manifest, new: Manifest) -> tuple[Comparison, Paths]:
    """The differences, and what counted those of paths."""
    comparer = _Comparer(old, new, Limits())
    found = comparer.compare()
    return found, comparer._counted_paths()[0]


class Everything:
    """Every question of two manifests, asked of the definition at lengths one by one."""

    def __init__(self, old: Manifest, new: Manifest) -> None:
        self.manifests = (old, new)
        self.found, self.counted = compared(old, new)
        counted = self.counted
        self._lengths = [n for n in counted._classes if n in counted._requests]
        self._bounds = {n: Relation(old.vocabulary, t) for n, t in counted._bounds.items()}
        self._bounds = {n: r for n, r in self._bounds.items() if n in counted._classes}
        self.ends = sorted({n for r in self._bounds.values() for n in r.names[1:]})
        whens = [rule.when for one in (old, new) for rule in one.priorities]
        self.simple = not any("seq_len" in when.reads for when in whens)
        self._plans = (Plan(old), Plan(new))

    def layers(self) -> Iterator[tuple[Classes, Witness]]:
        """Yields every combination of classes but of lengths."""
        space = self.found.space
        assert space is not None
        away = {"platform", "capability", *self.counted._requests, *self.counted._bounds}
        names = [name for name in self.counted._classes if name not in away]
        for device in space.devices:
            for chosen in product(*(self.counted._classes[name] for name in names)):
                both = zip(("platform", "capability", *names), (*device, *chosen), strict=True)
                classes = dict(both)
                witness = witness_of(space, classes)
                assert witness is not None
                yield classes, witness

    @cache  # noqa: B019 - one pair of manifests
    def cells(self, ends: tuple[Domain, ...]) -> Mapping[Cell, tuple[Ends, int, int]]:
        """Classes of all lengths, for classes of what bounds them → one of each."""
        cells: dict[Cell, tuple[Ends, int, int]] = {}
        for chosen in product(*map(_members, ends)):
            bounds = dict(zip(self.ends, chosen, strict=True))
            for seq in range(1, LONGEST + 1):
                for query in range(1, seq + 1):
                    values = {**bounds, **lengths_of(self.manifests[0], query, seq)}
                    key = [self._place(name, values[name]) for name in self._lengths]
                    key += [int(relation.of(values) is True) for relation in self._bounds.values()]
                    if tuple(key) not in cells or (query + seq) % 7 == 0:
                        cells[tuple(key)] = chosen, query, seq
        return cells

    @cache  # noqa: B019
    def _place(self, name: str, value: Value) -> int:
        return next(i for i, c in enumerate(self.counted._classes[name]) if c.admits(value))

    def questions(self) -> Iterator[tuple[Classes, Classes, Pick, Pick]]:
        """Yields what can be asked, each question once, and both answers."""
        for number, (classes, witness) in enumerate(self.layers()):
            layers: dict[Ends, Layer] = {}
            for cell, (ends, *lengths) in self.cells(tuple(classes[n] for n in self.ends)).items():
                if ends not in layers:
                    layers[ends] = witness.layer.replace(**dict(zip(self.ends, ends, strict=True)))
                asked = witness.device, layers[ends], witness.facts, Request(*lengths)
                try:
                    before, after = (plan.resolve(*asked) for plan in self._plans)
                except ContradictionError:
                    break
                if number % 16 == 0:
                    assert [before, after] == [pick_of(m, Witness(*asked)) for m in self.manifests]
                yield classes, self._classes_of(cell), before, after
                backends = (before.prefill, before.decode)
                if self.simple and backends not in self.counted._tails:
                    break  # the same for all lengths, or not about paths

    def _classes_of(self, cell: Cell) -> Classes:
        lengths, bounds = cell[: len(self._lengths)], cell[len(self._lengths) :]
        found = {
            n: self.counted._classes[n][i] for n, i in zip(self._lengths, lengths, strict=True)
        }
        held = zip(self._bounds, bounds, strict=True)
        return {**found, **{name: Domain.of(bool(holds)) for name, holds in held}}


def _members(values: Domain) -> Sequence[Value]:
    """The symbols of a class, and its numbers as far as they can differ."""
    numbers = [n for n in range(LONGEST + 2) if values.admits(n)]
    return [*numbers, *(n for n in sorted(map(str, values.names)))]


def holds(region: Region, classes: Classes) -> bool:
    """Whether a question is in a region."""
    device = (classes["platform"], classes["capability"])
    if region.devices and device not in region.devices:
        return False
    return all(
        values.admits(representative(classes[name])) for name, values in region.sides.items()
    )


@pytest.mark.parametrize("seed", [5, 3, 22, 26, 28])
def test_asking_every_question_counts_the_same(seed: int) -> None:
    every = Everything(*pair(seed))
    changes = every.found.paths
    assert changes
    assert not every.found.drawn_paths
    assert check(every) == {(c.backends, c.before, c.after): c.count for c in changes}


def check(every: Everything) -> Counter[object]:
    """How many questions change so, one by one; each is in a region that says so, in no other."""
    counts, kept = Counter[object](), Counter[object]()
    changes = [change for change in every.found.paths if change.regions]
    regions = [(change, region) for change in changes for region in change.regions]
    for classes, cell, before, after in every.questions():
        backends = (before.prefill, before.decode)
        if backends != (after.prefill, after.decode):
            continue
        kept[backends] += 1
        ways = (way_of(before), way_of(after))
        inside = [
            (change, region)
            for change, region in regions
            if change.backends == backends and holds(region, {**classes, **cell})
        ]
        if ways[0] != ways[1]:
            counts[backends, *ways] += 1
            assert ways in [(change.before, change.after) for change, _ in inside]
        exact = [change for change, region in inside if region.count == region.holds]
        assert all((change.before, change.after) == ways for change in exact)
        assert len(exact) <= 1
    for change in changes:
        assert change.count == sum(region.count for region in change.regions)
        assert change.count <= change.asked <= kept[change.backends]
        for region in change.regions:
            assert every.found.path_witness(change, region) is not None
    return counts


# -- the whole language --------------------------------------------------------------------------


def drawn_pair(seed: int) -> tuple[Tree, Manifest, Manifest]:
    """Two manifests that use the whole language; entries say of paths what others were drawn to."""
    random = Random(seed)
    while True:
        tree, other = (a_manifest(Choices(random.randbytes(600))) for _ in range(2))
        new = copy.deepcopy(tree)
        for entry, donor in zip(new["backends"], other["backends"], strict=False):
            for name in ("prefill_paths", "decode_threshold", "dense_prefill", "rationale"):
                if name in entry and name in donor and entry["sparse"] == donor["sparse"]:
                    entry[name] = donor[name]
        for entry in (*tree["backends"], *new["backends"]):
            for rule in entry.get("prefill_paths", ())[:-1]:
                if entry["sparse"] and rule["path"] != "sparse_mqa" and random.random() < 0.5:
                    rule["by"] = "dense_backend"
        try:
            old, after = (Selector.loads(json.dumps(one)).manifest for one in (tree, new))
        except ManifestError:
            continue
        return tree, old, after


def within(region: Region, manifest: Manifest, rules: Rules, asked: Witness) -> bool:
    """Whether a question is in a region, as its fields are known to a manifest; with all bounds."""
    question = Selector(manifest).bind(asked.device, asked.layer, asked.facts).asked(asked.request)
    values = dict(question.items())
    for name, test in rules.relations.items():
        values[name] = Relation(manifest.vocabulary, test).of(values) is True
    for name, need in rules.requirements.items():
        values[name] = Need(need).of(asked.facts) is True
    device = values["platform"], values["capability"]
    there = [p.admits(device[0]) and c.admits(device[1]) for p, c in region.devices]
    if region.devices and not any(there):
        return False
    return all(sides.admits(values[name]) for name, sides in region.sides.items())


def look(seed: int, questions: int) -> Counter[str]:
    """Asks random questions of two manifests that use the whole language; what was seen."""
    tree, old, new = drawn_pair(seed)
    found, random = compare(old, new), Random(f"{seed} asked")
    plans = (Plan(old), Plan(new))
    rules = msgspec.structs.replace(
        plans[0].rules,
        relations={n: t for plan in plans for n, t in plan.rules.relations.items()},
        requirements={n: r for plan in plans for n, r in plan.rules.requirements.items()},
    )
    seen = Counter[str]()
    exact = not found.drawn and not found.drawn_paths
    turns = {(c.backends, c.before, c.after): c for c in found.paths if c.regions}
    for _ in range(questions):
        drawn = a_question(Choices(random.randbytes(200)), tree)
        device, layer, facts = question(old, drawn)
        asked = Witness(device, layer, facts, request(drawn))
        try:
            before, after = (plan.resolve(device, layer, facts, asked.request) for plan in plans)
        except ContradictionError:
            continue
        backends = (before.prefill, before.decode)
        if backends != (after.prefill, after.decode):
            continue
        ways = (way_of(before), way_of(after))
        inside = [c for c in turns.values() if c.backends == backends]
        inside = [c for c in inside if any(within(r, old, rules, asked) for r in c.regions)]
        seen["kept"] += 1
        if ways[0] != ways[1]:
            seen["turned"] += 1
            assert found.is_different
            if exact:
                seen["counted"] += 1
                assert turns[backends, *ways] in inside
    return seen + Counter({"exact": exact, "pairs": 1})


@pytest.mark.parametrize("seed", [1, 2, 3, 5, 8])
def test_the_whole_language_is_counted_or_said_not_to_be(seed: int) -> None:
    seen = sum((look(10 * seed + turn, 60) for turn in range(3)), Counter[str]())
    assert seen["kept"] > 50
    assert seen["exact"]


# -- the question that started it ----------------------------------------------------------------

SM120 = "flashinfer_sparse_mla_sm120"


def flipped(manifest: Manifest) -> Manifest:
    """The manifest with the word that was inherited by mistake."""
    entries = dict(manifest.entries)
    entries[SM120] = msgspec.structs.replace(entries[SM120], dense_prefill=True)
    ref = msgspec.structs.replace(manifest.ref, digest="0" * 64)
    return msgspec.structs.replace(manifest, entries=MappingProxyType(entries), ref=ref)


def test_the_pin_that_is_flipped_is_counted_with_its_prompts() -> None:
    """Longer than what counts as a decode, and within the top-k of 2,048 tokens."""
    old = Selector.load().manifest
    new = flipped(old)
    found = compare(old, new)
    assert not found.totals
    assert not found.drawn_paths
    (change,) = found.paths
    assert change.backends == (SM120, SM120)
    assert change.before == Way(Phase.PREFILL, "sparse_mqa", None)
    assert change.after == Way(Phase.PREFILL, "dense_mha", None)
    assert 0 < change.count == sum(region.count for region in change.regions) < change.asked
    assert all(region.count == region.holds for region in change.regions)
    assert found.space is not None
    words = [", ".join(region_words(region, found.space)) for region in change.regions]
    assert any(
        "num_heads 8, 16, 32, query_len 129–256, seq_len up to index_topk" in w for w in words
    )
    for region in change.regions:
        assert all(capability <= Domain.of(1200, 1201) for _, capability in region.devices)
        asked = found.path_witness(change, region)
        assert asked is not None
        assert asked.layer.get("index_topk") == 2048
        assert 128 < (asked.request.query_len or 0) <= (asked.request.seq_len or 0) <= 2048


def test_claims_and_truth_of_vllm_compute_some_requests_in_another_way() -> None:
    """In truth the backend that computes densely for FLASHMLA_SPARSE refuses some of its layers."""
    truth = Selector.load("vllm-0.33.0").manifest
    found = compare(truth.as_claimed(), truth)
    assert not found.drawn_paths
    assert {change.backends for change in found.paths} == {("FLASHMLA_SPARSE", "FLASHMLA_SPARSE")}
    assert {(c.before.path, c.after.path, c.after.by) for c in found.paths} == {
        ("dense_mha", "sparse_mqa", None),
        ("masked_mha", "sparse_mqa", None),
    }
    for change in found.paths:
        assert change.count == sum(region.count for region in change.regions)
        for region in change.regions:
            assert found.path_witness(change, region) is not None


def test_beyond_the_limit_paths_are_drawn_and_not_called_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(paths, "_MOST_LENGTHS", 3)
    old = Selector.load().manifest
    new = flipped(old)
    found = compare(old, new)
    (drawn,) = found.drawn_paths
    assert drawn.why == "the many lengths that are told apart"
    assert 0 < drawn.seen < drawn.number
    assert drawn.seen / drawn.number < drawn.at_most < 1
    (change,) = found.paths
    assert not change.regions
    assert change.after.path == "dense_mha"
    assert found.path_witness(change) is not None
    entries = dict(old.entries)
    entries[SM120] = msgspec.structs.replace(
        entries[SM120], uniform_decodes=True
    )  # alone: the same
    ref = msgspec.structs.replace(old.ref, digest="1" * 64)
    same = msgspec.structs.replace(old, entries=MappingProxyType(entries), ref=ref)
    found = compare(old, same)
    (drawn,) = found.drawn_paths
    assert drawn.seen == 0 < drawn.at_most
    assert found.is_different
    assert not found.paths
    monkeypatch.undo()
    found = compare(old, same)
    assert not found.paths  # counted, so that it is known
    assert not found.drawn_paths
    assert found.able_of_paths
    assert [aside.backends for aside in found.asides] == [(SM120,)]  # of several requests it is not


def test_paths_are_asked_for_too_where_only_the_definition_can_decide() -> None:
    """Two backends that share a coerced cache type: no mask says whether they can."""

    def manifest(threshold: int) -> Manifest:
        coerce = [{"when": {"kv_cache_dtype": ["auto"]}, "value": "fp8"}, {"value": "same"}]
        one = {**plain_entry("one", "decode"), "coerce": {"kv_cache_dtype": coerce}}
        two = {**plain_entry("two", "prefill"), "coerce": {"kv_cache_dtype": coerce}}
        one["decode_threshold"] = threshold
        two["prefill_paths"] = [{"path": "mha", "reason": "The only way."}]
        made = {"attnsel": 1, "name": "open", "version": "1", "backends": [one, two]}
        made["priorities"] = [{"order": ["two", "one"], "reason": "Drawn."}]
        made["joint"] = [{"same": ["kv_cache_dtype"], "reason": "One cache."}]
        return Selector.loads(json.dumps(made)).manifest

    found = compare(manifest(1), manifest(4))
    assert [drawn.seen for drawn in found.drawn] == [0]
    (drawn,) = found.drawn_paths
    assert drawn.seen == drawn.number > 0
    (change,) = found.paths
    assert (change.before.phase, change.after.phase) == (Phase.PREFILL, Phase.DECODE)
    assert found.path_witness(change) is not None
