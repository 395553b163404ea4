"""What follows from a manifest's rules together: exactly what asking all questions gives."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from random import Random

import pytest

from selector.analysis.gaps import find_gaps
from selector.analysis.space import classes_of
from selector.binding import Selector
from selector.document import read_text
from selector.domains import Domain
from selector.lint import covering, lint
from selector.lint.context import Context
from selector.lint.numbering import Values, values_of
from selector.lint.questions import Questions
from selector.lint.reaching import Reach, Reaching, Slot
from selector.lint.solving import Goal, OverBudgetError, Solver, Way
from selector.lint.witnesses import chosen_in
from selector.loading import load, loads, read
from selector.manifest import Manifest
from selector.values import Finding, Phase, Severity
from tests.unit.analysis.drawing import drawn

ROOT = Path(__file__).parents[3]
SHIPPED = ("capabilities.yaml", "manifests/vllm-0.33.0.yaml")


@cache
def shipped(name: str) -> Manifest:
    return load(ROOT / name)


def slots_of(reaching: Reaching) -> Iterator[Slot]:
    """Every entry in every phase that some list names it for."""
    for name, phase in product(reaching.manifest.entries, Phase):
        if reaching.lists_of(name, phase):
            yield name, phase


def never_chosen(manifest: Manifest) -> set[Slot]:
    """What all questions, counted, say is never chosen though a list names it."""
    gaps = find_gaps(manifest)
    assert gaps.totals.exact
    return {(one.backend, one.phase) for one in gaps.idle if one.named}


# -- the search ----------------------------------------------------------------------------------


def drawn_goals(random: Random, fields: int, values: int) -> list[Goal]:
    """Goals of few ways, some of which bring goals of their own."""

    def way(deep: bool) -> Way:
        narrows = {random.randrange(fields): random.randrange(1, 1 << values) for _ in range(2)}
        goals = tuple(goal(False) for _ in range(random.randrange(3))) if deep else ()
        return Way(tuple(narrows.items()), goals)

    def goal(deep: bool) -> Goal:
        return tuple(way(deep) for _ in range(random.randrange(1, 4)))

    return [goal(True) for _ in range(random.randrange(1, 9))]


def is_met(goals: list[Goal] | tuple[Goal, ...], chosen: tuple[int, ...]) -> bool:
    return all(
        any(
            all(mask >> chosen[field] & 1 for field, mask in way.narrows)
            and is_met(way.goals, chosen)
            for way in goal
        )
        for goal in goals
    )


def test_the_search_finds_what_trying_all_values_finds() -> None:
    random = Random(5)
    fields, values = 4, 3
    full = [(1 << values) - 1] * fields
    found = {True: 0, False: 0}
    for _ in range(400):
        goals = drawn_goals(random, fields, values)
        all_ = [c for c in product(range(values), repeat=fields) if is_met(goals, c)]
        left = Solver(full, goals, [()] * fields).solve(Way(), 10_000)
        assert (left is not None) == bool(all_)
        if left is not None:  # whatever is left may be taken
            kept = [[n for n in range(values) if mask >> n & 1] for mask in left]
            assert all(is_met(goals, chosen) for chosen in product(*kept))
        found[left is not None] += 1
    assert min(found.values()) > 40


def test_a_field_that_is_narrowed_brings_what_it_follows_from() -> None:
    follows: Goal = (Way(((0, 0b01), (1, 0b10))), Way(((0, 0b10), (1, 0b01))))
    solver = Solver([0b11, 0b11], (), [(follows,), ()])
    assert solver.solve(Way(((0, 0b01),)), 100) == [0b01, 0b10]
    assert solver.solve(Way(((0, 0b01), (1, 0b01))), 100) is None
    assert solver.solve(Way(), 100) == [0b11, 0b11]


def test_a_search_beyond_its_steps_says_so() -> None:
    goals: list[Goal] = [
        (Way(((0, 0b01),)), Way(((1, 0b01),))),
        (Way(((0, 0b10),)), Way(((1, 0b10),))),
    ]
    with pytest.raises(OverBudgetError):
        Solver([0b11, 0b11], goals, [(), ()]).solve(Way(), 1)


def test_all_that_one_solver_is_asked_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("selector.lint.solving.MOST_WORK", 5)
    solver = Solver([0b11], [(Way(((0, 0b01),)),)], [()])
    for _ in range(5):
        assert solver.solve(Way(), 10) == [0b01]
    with pytest.raises(OverBudgetError):
        solver.solve(Way(), 10)
    monkeypatch.setattr("selector.lint.solving.MOST_WORK", 0)
    found = found_in(BOTH)
    assert found
    assert {one.severity for one in found} == {Severity.NOTE}


def test_every_class_of_values_has_one_that_stands_for_it() -> None:
    random = Random(3)
    universe = Domain.between(1, None) | Domain.of("unset")
    for _ in range(60):
        sets = [
            Domain.between(random.choice((None, 1, 8, 65)), random.choice((None, 64, 200)), step)
            for step in random.choices((1, 1, 4, 8, 12), k=random.randrange(1, 6))
        ]
        values = Values(values_of(universe, sets))
        for one in classes_of(universe, sets):
            assert any(value is not None and one.admits(value) for value in values.values)


def test_multiples_of_too_many_numbers_are_not_told_apart() -> None:
    sets = [Domain.between(1, None, step) for step in (3, 5, 7, 11, 13, 17, 19)]
    with pytest.raises(OverBudgetError):
        list(values_of(Domain.between(1, None), sets))


# -- what lists reach ----------------------------------------------------------------------------


JOINT = (
    "",
    "joint:\n  - {same: [backend], reason: R.}\n",
    "joint:\n  - {when: {head_size: {max: 64}}, same: [backend], reason: R.}\n",
)


@pytest.mark.parametrize("joint", JOINT)
@pytest.mark.parametrize("seed", range(12))
def test_what_is_never_chosen_is_what_counting_all_questions_gives(seed: int, joint: str) -> None:
    manifest = loads(drawn(seed, 4 + seed % 5, seed % 9) + joint, "drawn.yaml")
    reaching = Reaching(Questions(manifest))
    found = {slot: reaching.chosen(*slot) for slot in slots_of(reaching)}
    assert Reach.OPEN not in found.values()
    assert {slot for slot, reach in found.items() if reach is Reach.NO} == never_chosen(manifest)


@pytest.mark.parametrize("name", SHIPPED)
def test_of_shipped_manifests_too(name: str) -> None:
    reaching = Reaching(Questions(shipped(name)))
    found = {slot: reaching.chosen(*slot) for slot in slots_of(reaching)}
    assert Reach.OPEN not in found.values()
    hidden = {slot for slot, reach in found.items() if reach is Reach.NO}
    assert hidden == never_chosen(shipped(name))
    said = {n for one in shipped(name).invariants for n in one.never_backends if not one.when.tests}
    assert {backend for backend, _ in hidden} <= said


@pytest.mark.parametrize("name", SHIPPED)
def test_every_question_that_shows_a_choice_has_it_by_the_whole_definition(name: str) -> None:
    reaching = Reaching(Questions(shipped(name)))
    for slot in slots_of(reaching):
        reaching.chosen(*slot)
    selector = Selector(shipped(name))
    assert len(reaching.shown) > 30
    for (backend, phase), asked in reaching.shown.items():
        bound = selector.bind(asked.device, asked.layer, asked.facts)
        assert chosen_in(bound.resolve_one(asked.request), phase) == backend


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_manifests_are_clean(name: str) -> None:
    document = read_text((ROOT / name).read_bytes(), name)
    assert [str(finding) for finding in lint(document)] == []


# -- rules ---------------------------------------------------------------------------------------

HEAD = """\
attnsel: 1
name: example
version: "1"
source: https://example.org/engine/1.0
definitions:
  common: &common
    source: https://example.org/engine
    mla: false
    sparse: false
    accepts: &accepted
      platform: [cuda]
      capability: ["9.0", "12.0"]
      dtype: [bfloat16]
      kv_cache_dtype: [auto]
      head_size: any
      block_size: any
      attn_type: [decoder]
    phases: {prefill: {}, decode: {}}
    decode_threshold: 1
    prefill_paths: [{path: mha, reason: The only way.}]
"""


def found_in(text: str, overlay: str | None = None) -> list[Finding]:
    overlays = [] if overlay is None else [read_text(overlay, "local.yaml")]
    return lint(read_text(text, "engine.yaml"), overlays)


def said_of(findings: list[Finding]) -> list[tuple[str, str, int]]:
    return [(one.code, one.file, one.line) for one in findings]


BOTH = f"""{HEAD}backends:
  - {{<<: *common, name: general}}
  - {{<<: *common, name: fast, accepts: {{<<: *accepted, head_size: [64, 128]}}}}
priorities:
  - {{order: [fast, general], reason: The fast one first.}}
"""


def test_an_invariant_says_that_a_backend_is_meant_to_be_hidden() -> None:
    hidden = BOTH.replace("[fast, general]", "[general, fast]")
    assert said_of(found_in(hidden)) == [("CAP121", "engine.yaml", 25)]
    promise = "invariants:\n  - {name: hidden, never: {backend: [fast]}, reason: Later.}\n"
    assert found_in(hidden + promise) == []


def test_what_is_denied_lets_those_behind_be_chosen() -> None:
    hidden = BOTH.replace("[fast, general]", "[general, fast]")
    denied = 'deny:\n  - {backend: general, when: {capability: "12.0"}, reason: A fault.}\n'
    assert found_in(hidden + denied) == []


def test_an_overlay_may_hide_lists_of_its_manifest_but_not_force_what_never_runs() -> None:
    overlay = "attnsel: 1\noverlay: ours\npriorities:\n  - {{{}order: [fast], reason: Ours.}}\n"
    wide = found_in(BOTH, overlay.format(""))
    assert said_of(wide) == [("CAP125", "local.yaml", 4)]
    assert "general (line 22) would" in wide[0].message
    assert found_in(BOTH, overlay.format("when: {head_size: 128}, ")) == []
    never = found_in(BOTH, overlay.format("when: {head_size: 256}, "))
    assert ("CAP202", "local.yaml", 4) in said_of(never)
    assert {one.file for one in never} == {"local.yaml"}


def test_a_forced_backend_that_is_denied_never_runs() -> None:
    overlay = """\
attnsel: 1
overlay: ours
priorities:
  - {when: {head_size: 128}, order: [fast], reason: Ours.}
deny:
  - {backend: fast, reason: A fault of its own.}
"""
    found = [one for one in found_in(BOTH, overlay) if one.code == "CAP202"]
    assert said_of(found) == [("CAP202", "local.yaml", 4)]
    assert found[0].column == 38
    assert "denies it" in found[0].message


def test_an_overlay_that_denies_every_backend_of_a_kind_is_told() -> None:
    overlay = """\
attnsel: 1
overlay: ours
deny:
  - {backend: general, reason: Slow.}
  - {backend: fast, when: {capability: "12.0"}, reason: A fault.}
"""
    found = found_in(BOTH, overlay)
    assert said_of(found) == [("CAP201", "local.yaml", 5)]
    assert "with general (line 4)" in found[0].message
    assert found[0].message.endswith("plain (decoder) on 12.0")
    assert found_in(BOTH, overlay.replace('capability: "12.0"', "head_size: 64")) == []


def test_a_pin_that_an_overlay_flips_is_told_where_the_overlay_says_it() -> None:
    overlay = "attnsel: 1\noverlay: ours\nbackends:\n  - {name: fast, accepts: {head_size: 64}}\n"
    pinned = BOTH.replace("name: fast,", "name: fast, pinned: [accepts],")
    found = found_in(pinned, overlay)
    assert [(f.code, f.file, f.line, f.column) for f in found] == [("CAP026", "local.yaml", 4, 18)]


def test_a_constraint_that_only_what_is_claimed_needs_fires() -> None:
    text = f"""{HEAD}backends:
  - <<: *common
    name: general
    constraints:
      - {{when: {{capability: "10.0"}}, require: {{head_size: 64}}, code: C, reason: So it is.}}
priorities:
  - {{order: [general], reason: There is one.}}
"""
    assert said_of(found_in(text)) == [("CAP120", "engine.yaml", 25)]
    wider = 'accepts: {capability: ["9.0", "10.0", "12.0"]}'
    claim = f'    claimed: {{source: "https://example.org/engine/1.0", {wider}}}\n'
    assert found_in(text.replace("priorities:", f"{claim}priorities:")) == []
    restated = text.replace("code: C,", 'code: C, source: "https://example.org/engine/1.0",')
    assert found_in(restated) == []
    nobody = restated.replace('capability: "10.0"', "platform: cpu, capability: any")
    both = nobody.replace("capability: any", 'capability: "9.0"')
    assert [one.code for one in found_in(both)] == ["CAP120"]


def test_an_invariant_says_that_layers_are_meant_to_have_no_backend() -> None:
    text = f"""{HEAD}backends:
  - {{<<: *common, name: general}}
  - {{<<: *common, name: latent, mla: true, accepts: {{<<: *accepted, capability: ["9.0"]}}}}
priorities:
  - {{order: [general, latent], reason: One of each.}}
"""
    found = found_in(text)
    assert said_of(found) == [("CAP126", "engine.yaml", 24)]
    assert "MLA (decoder) on 12.0" in found[0].message
    promise = """\
invariants:
  - {name: none, when: {capability: 12.x, mla: true}, never: {backend: any}, reason: R.}
"""
    assert found_in(text + promise) == []
    assert [f.code for f in found_in(text + promise.replace("12.x", "9.x"))] == ["CAP126"]


def test_an_empty_list_says_that_there_is_nothing() -> None:
    swallows = BOTH.replace(
        "priorities:", 'priorities:\n  - {when: {capability: "12.0"}, order: [ ], reason: R.}'
    )
    assert "CAP123" not in [one.code for one in found_in(swallows)]
    named = BOTH.replace(
        "priorities:", 'priorities:\n  - {when: {capability: "10.0"}, order: [fast], reason: R.}'
    )
    assert said_of(found_in(named)) == [("CAP123", "engine.yaml", 25)]


def test_what_was_cut_by_its_budget_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(covering, "_STEPS", 0)
    monkeypatch.setattr("selector.lint.reaching.STEPS", 0)
    monkeypatch.setattr(Reaching.__init__, "__defaults__", (0,))
    found = found_in(BOTH)
    assert found
    assert {one.severity for one in found} == {Severity.NOTE}
    assert all(one.message.startswith("not decided: ") for one in found)


def test_a_manifest_whose_values_cannot_be_told_apart_is_not_decided() -> None:
    many = ", ".join(f"{{multiple_of: {step}}}" for step in (3, 5, 7, 11, 13, 17, 19))
    found = found_in(BOTH.replace("head_size: [64, 128]", f"head_size: [{many}]"))
    assert [(one.code, one.severity) for one in found] == [("CAP121", Severity.NOTE)]


def test_questions_are_read_once_for_all_rules() -> None:
    manifest, document = read(read_text(BOTH, "engine.yaml"))
    assert manifest is not None
    context = Context(document, manifest)
    assert context.reaching is context.reaching_policed
    assert context.questions is context.claimed is context.policed
