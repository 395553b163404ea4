"""A manifest's rules as goals of a search: what entries accept, which list decides, what is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, product
from typing import Any

from selector.analysis.space import versions_about
from selector.devices import known_capabilities
from selector.domains import Domain, Value
from selector.fields import ABSENT, REQUEST_FIELDS, parse_capability
from selector.lint.numbering import Values, values_of
from selector.lint.solving import ALWAYS, Goal, Solver, Way
from selector.manifest import Entry, Manifest, Requirement
from selector.rules import Allowed, Bound, Constraint, FirstMatch, Rule, Test, When
from selector.values import Phase

__all__ = ["Questions"]

_TRUE = Allowed(Domain.of(True))


class Questions:
    """All questions to a manifest of which everything is known.

    More is taken to be possible than is: what follows by arithmetic (a group from two numbers of
    heads, one length from two others) is free here. What cannot be here, cannot be.

    Args:
        manifest: what is asked.

    Attributes:
        fields: field → its number; what the numbers of a :class:`Solver` mean.
        values: by number.
        solver: searches for questions.

    Raises:
        OverBudgetError: a field's values cannot be told apart.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._versions = {n for n, kind in manifest.facts.items() if kind == "version"}
        sets, bounds = _sets_of(_tests_of(manifest))
        found = dict(self._values(sets, bounds))
        self.fields = {name: number for number, name in enumerate(found)}
        self.values = (*found.values(),)
        self._alive: dict[tuple[str, Phase], Way] = {}
        self._refused: dict[tuple[str, Phase], Goal] = {}
        self._firsts: dict[int, Way] = {}
        self._tests: dict[tuple[int, bool], tuple[Test, Goal]] = {}
        self._spelled: dict[object, Goal] = {}
        self._failing: dict[int, tuple[When, Goal]] = {}
        self._decides: dict[tuple[Phase, int | None], Way] = {}
        self._names: dict[tuple[Phase, int], tuple[str, ...]] = {}
        self._accepted: dict[tuple[str, Phase], Way] = {}
        self._needs: dict[tuple[str, str | None], tuple[int, int]] = {}
        always = [goal for rule in manifest.space for goal in self._space(rule)]
        attached: list[tuple[Goal, ...]] = [() for _ in self.values]
        for name, match in manifest.derive.items():
            if name in self.fields:
                attached[self.fields[name]] += (self._derived(name, match),)
        device = (self._device(),)
        for name in ("platform", "capability"):
            attached[self.fields[name]] += device
        self.solver = Solver([v.all for v in self.values], always, attached)

    def _values(
        self, sets: dict[str, list[Domain]], bounds: dict[str, set[str]]
    ) -> Iterator[tuple[str, Values]]:
        """Yields every field that rules look at, and its values."""
        manifest, universes = self.manifest, self.manifest.vocabulary.universes
        known = Domain.of(ABSENT, *map(parse_capability, known_capabilities()))
        for name in ("platform", "capability", "mla", "sparse", "attn_type"):
            sets.setdefault(name, [])
        for name, told in sets.items():
            if name in manifest.derive:
                results = {rule.result: None for rule in manifest.derive[name].rules}
                yield name, Values(results)
                continue
            universe = known if name == "capability" else universes[name]
            both = name in bounds
            for other in bounds.get(name, ()):
                told = [*told, *sets.get(other, ())]
            yield name, Values(values_of(universe, told, both))
        for fact in self._versions:
            needs = [n for e in manifest.entries.values() for n in e.requires if n.fact == fact]
            versions = versions_about(need.specifier for need in needs)
            yield fact, Values("1.0" if version is True else version for version in versions)

    # -- tests ------------------------------------------------------------------------------------

    def holds(self, test: Test) -> Goal:
        """The ways in which a test holds."""
        return self._ways(test, False)

    def fails(self, test: Test) -> Goal:
        """The ways in which a test fails."""
        return self._ways(test, True)

    def _ways(self, test: Test, negated: bool) -> Goal:
        key = (id(test), negated)
        kept = self._tests.get(key)
        if kept is None:
            fixed = test.allowed.fixed
            spelled = (fixed.spans, fixed.names, fixed.all_names_but)
            same = (test.field, *spelled, test.allowed.bounds, negated)
            found = self._spelled.get(same)
            if found is None:
                found = self._spelled[same] = self._new_ways(test, negated)
            kept = self._tests[key] = (test, found)  # so that its id stays its own
        return kept[1]

    def _new_ways(self, test: Test, negated: bool) -> Goal:
        field = self.fields[test.field]
        values, allowed = self.values[field], test.allowed
        if not allowed.bounds:
            mask = values.mask(allowed.fixed)
            return (Way(((field, values.all & ~mask if negated else mask),)),)
        ends = [*dict.fromkeys(end for bound in allowed.bounds for end in bound.ends)]
        places = [self.fields[end] for end in ends]
        ways: dict[int, list[tuple[int, ...]]] = {}
        for chosen in product(*(range(len(self.values[place].values)) for place in places)):
            given = {
                end: self.values[place].values[n]
                for end, place, n in zip(ends, places, chosen, strict=True)
            }
            within = Domain.union((allowed.fixed, *(_within(b, given) for b in allowed.bounds)))
            mask = values.mask(within)
            ways.setdefault(values.all & ~mask if negated else mask, []).append(chosen)
        return tuple(self._bounded(field, places, ways))

    def _bounded(
        self, field: int, places: Sequence[int], ways: dict[int, list[tuple[int, ...]]]
    ) -> Iterator[Way]:
        """Yields a way for each set that a field may lie in, whatever gives that set its bounds."""
        for mask, found in ways.items():
            if not mask:
                continue
            if len(places) == 1:
                ends = sum(1 << chosen[0] for chosen in found)
                yield Way(((places[0], ends), (field, mask)))
                continue
            for chosen in found:
                yield Way(
                    (*((p, 1 << n) for p, n in zip(places, chosen, strict=True)), (field, mask))
                )

    def all_hold(self, when: When) -> Way:
        """That all tests of a condition hold."""
        narrows: list[tuple[int, int]] = []
        goals: list[Goal] = []
        for test in when.tests:
            ways = self.holds(test)
            if len(ways) == 1 and not ways[0].goals:
                narrows += ways[0].narrows
            else:
                goals.append(ways)
        return Way(tuple(narrows), tuple(goals))

    def some_fail(self, when: When) -> Goal:
        """The ways in which a condition does not hold."""
        kept = self._failing.get(id(when))
        if kept is None:
            found = tuple(chain.from_iterable(map(self.fails, when.tests)))
            kept = self._failing[id(when)] = (when, found)
        return kept[1]

    def unless(self, when: When) -> Way:
        """That a condition does not hold."""
        return Way((), (self.some_fail(when),))

    def first(self, rules: Sequence[Rule[Any]], index: int) -> Way:
        """That a rule is the first to hold."""
        if not index and not rules[0].when.tests:
            return ALWAYS
        earlier = tuple(self.some_fail(rule.when) for rule in rules[:index])
        return Way((), earlier) & self.all_hold(rules[index].when)

    def device(self, platform: int, capability: int) -> Way:
        """That the device is one of some."""
        return Way(((self.fields["platform"], platform), (self.fields["capability"], capability)))

    def _device(self) -> Goal:
        """What goes together: only CUDA devices have a compute capability."""
        platforms, capabilities = (
            self.values[self.fields[name]] for name in ("platform", "capability")
        )
        cuda = platforms.mask(Domain.of("cuda"))
        absent = capabilities.mask(Domain.of(ABSENT))
        return (
            self.device(cuda, capabilities.all & ~absent),
            self.device(platforms.all & ~cuda, absent),
        )

    def _derived(self, name: str, match: FirstMatch[Value]) -> Goal:
        """The ways in which a derived value comes to be."""
        place = self.fields[name]
        known = {value: n for n, value in enumerate(self.values[place].values)}
        return tuple(
            Way(((place, 1 << known[rule.result]),)) & self.first(match.rules, index)
            for index, rule in enumerate(match.rules)
        )

    def _space(self, rule: Constraint) -> Iterator[Goal]:
        """Yields what a rule about what can exist demands; of requests, nothing is checked."""
        manifest = self.manifest
        later = {*REQUEST_FIELDS, *manifest.changing, *(m.name for m in manifest.measures)}
        if later.isdisjoint(test.field for test in _tests_in(rule)):
            yield from self.kept(rule)

    # -- entries ----------------------------------------------------------------------------------

    def kept(self, rule: Constraint) -> Iterator[Goal]:
        """Yields what must hold so that a constraint is not broken."""
        unless = self.some_fail(rule.when)
        if not rule.require.tests and not rule.any_of:
            yield unless
        for test in rule.require.tests:
            yield unless + self.holds(test)
        if rule.any_of:
            yield unless + tuple(map(self.all_hold, rule.any_of))

    def broken(self, rule: Constraint) -> Goal:
        """The ways in which a constraint is broken."""
        applies = self.all_hold(rule.when)
        if not rule.require.tests and not rule.any_of:
            return (applies,)
        ways = [applies & way for test in rule.require.tests for way in self.fails(test)]
        if rule.any_of:
            ways.append(applies & Way((), tuple(map(self.some_fail, rule.any_of))))
        return tuple(ways)

    def accepts(self, match: FirstMatch[Test]) -> Way:
        """That a field is accepted."""
        found = self._firsts.get(id(match))
        if found is None:
            ways: list[Way] = []
            for index, rule in enumerate(match.rules):
                found = self.first(match.rules, index)
                ways += (found & way for way in self.holds(rule.result))
            if match.rules[-1].when.tests:
                ways.append(Way((), tuple(self.some_fail(rule.when) for rule in match.rules)))
            found = ways[0] if len(ways) == 1 else Way((), (tuple(ways),))
            self._firsts[id(match)] = found
        return found

    def accepted(self, entry: Entry, phase: Phase) -> Way:
        """That an entry accepts all fields; of its constraints, nothing."""
        key = self._slot(entry, phase)
        if key not in self._accepted:
            ways = [*map(self.accepts, entry.phases[phase].accepts.values())]
            narrows = tuple(chain.from_iterable(way.narrows for way in ways))
            goals = tuple(chain.from_iterable(way.goals for way in ways))
            self._accepted[key] = Way(narrows, goals)
        return self._accepted[key]

    def alive(self, name: str, phase: Phase) -> Way:
        """That nothing refuses an entry."""
        entry = self.manifest.entries[name]
        key = self._slot(entry, phase)
        if key not in self._alive:
            spec = entry.phases[phase]
            goals = [goal for rule in spec.constraints for goal in self.kept(rule)]
            denied = (one.when for one in self.manifest.deny if one.backend == name)
            goals += map(self.some_fail, denied)
            needs = Way(tuple(self._need(need) for need in entry.requires), tuple(goals))
            self._alive[key] = self.accepted(entry, phase) & needs
        return self._alive[key]

    def refused(self, name: str, phase: Phase) -> Goal:
        """The ways in which an entry is refused."""
        entry = self.manifest.entries[name]
        key = self._slot(entry, phase)
        if key not in self._refused:
            self._refused[key] = tuple(self._refusals(entry, phase))
        return self._refused[key]

    def _refusals(self, entry: Entry, phase: Phase) -> Iterator[Way]:
        spec = entry.phases[phase]
        for match in spec.accepts.values():
            for index, rule in enumerate(match.rules):
                first = self.first(match.rules, index)
                yield from (first & way for way in self.fails(rule.result) if _can_be(way))
        for need in entry.requires:
            place, mask = self._need(need)
            yield Way(((place, self.values[place].all & ~mask),))
        yield from chain.from_iterable(map(self.broken, spec.constraints))
        denied = (one.when for one in self.manifest.deny if one.backend == entry.name)
        yield from map(self.all_hold, denied)

    def _slot(self, entry: Entry, phase: Phase) -> tuple[str, Phase]:
        """An entry and the first phase in which it says what it says in this one."""
        mine = entry.phases[phase]
        first = next(one for one in entry.phases if entry.phases[one].says_as_much_as(mine))
        return entry.name, first

    def serves(self, name: str, phase: Phase) -> bool:
        """Whether an entry is there in a phase."""
        spec = self.manifest.entries[name].phases.get(phase)
        return spec is not None and not spec.disabled

    def _need(self, need: Requirement) -> tuple[int, int]:
        """A fact, and what meets a requirement."""
        key = (need.fact, need.specifier)
        if key not in self._needs:
            self._needs[key] = self._new_need(need)
        return self._needs[key]

    def _new_need(self, need: Requirement) -> tuple[int, int]:
        place = self.fields[need.fact]
        values = self.values[place]
        if need.fact not in self._versions:
            return place, values.mask(Domain.of(True))
        from packaging.specifiers import SpecifierSet

        wanted = SpecifierSet(need.specifier) if need.specifier else None
        met = (
            1 << n
            for n, version in enumerate(values.values)
            if isinstance(version, str) and (wanted is None or wanted.contains(version, True))
        )
        return place, sum(met)

    # -- lists ------------------------------------------------------------------------------------

    def decides(self, phase: Phase, index: int | None) -> Way:
        """That a priority list is the first to hold in a phase; ``None``: that none holds."""
        key = (phase, index)
        if key not in self._decides:
            lists = self.manifest.priorities
            before = lists if index is None else lists[:index]
            goals = tuple(self.some_fail(one.when) for one in before if phase in one.orders)
            holds = ALWAYS if index is None else self.all_hold(lists[index].when)
            self._decides[key] = holds & Way((), goals)
        return self._decides[key]

    def names(self, phase: Phase, index: int | None) -> tuple[str, ...]:
        """The entries that a list names and that serve in a phase."""
        if index is None:
            return ()
        key = (phase, index)
        if key not in self._names:
            order = self.manifest.priorities[index].orders[phase]
            self._names[key] = tuple(name for name in order if self.serves(name, phase))
        return self._names[key]


def _can_be(way: Way) -> bool:
    return all(mask for _, mask in way.narrows)


def _within(bound: Bound, given: dict[str, Value | None]) -> Domain:
    """What a bound admits, when the fields that give it are these."""
    low, high = (given[end] if isinstance(end, str) else end for end in (bound.low, bound.high))
    for stated, end in ((bound.low, low), (bound.high, high)):
        if stated is not None and (not isinstance(end, int) or isinstance(end, bool)):
            return Domain()  # a symbol bounds nothing
    return Domain.between(low, high, bound.multiple_of)  # type: ignore[arg-type]


def _tests_in(rule: Constraint) -> Iterator[Test]:
    for when in (rule.when, rule.require, *rule.any_of):
        yield from when.tests


def _tests_of(manifest: Manifest) -> Iterator[Test]:
    """Yields every test that is looked at, each once or more."""
    seen: set[int] = set()
    constraints: list[Constraint] = [*manifest.space]
    whens = [one.when for one in manifest.priorities]
    whens += (one.when for one in manifest.deny)
    whens += (one.when for one in manifest.joint)
    whens += (one.when for one in manifest.invariants)
    for entry in manifest.entries.values():
        for spec in entry.phases.values():
            constraints += spec.constraints
            for match in spec.accepts.values():
                if id(match) not in seen:
                    seen.add(id(match))
                    whens += (rule.when for rule in match.rules)
                    yield from (rule.result for rule in match.rules)
        for need in entry.requires:
            if manifest.facts[need.fact] == "boolean":
                yield Test(need.fact, _TRUE, need.position)
        whens += (rule.when for match in entry.coerce.values() for rule in match.rules)
        if entry.decode_threshold is not None:
            whens += (rule.when for rule in entry.decode_threshold.rules)
    for derived in manifest.derive.values():
        whens += (rule.when for rule in derived.rules)
    yield from chain.from_iterable(map(_tests_in, constraints))
    yield from chain.from_iterable(when.tests for when in whens)


def _sets_of(tests: Iterable[Test]) -> tuple[dict[str, list[Domain]], dict[str, set[str]]]:
    """Field → the sets it is held against, and the fields that it shares bounds with."""
    sets: dict[str, dict[object, Domain]] = {}
    bounds: dict[str, set[str]] = {}
    for test in tests:
        fixed = test.allowed.fixed
        known = sets.setdefault(test.field, {})
        known[fixed.spans, fixed.names, fixed.all_names_but] = fixed
        for bound in test.allowed.bounds:
            low, high = (end if isinstance(end, int) else None for end in (bound.low, bound.high))
            known[low, high, bound.multiple_of] = Domain.between(low, high, bound.multiple_of)
            for end in bound.ends:
                sets.setdefault(end, {})
                for one, other in ((test.field, end), (end, test.field)):
                    bounds.setdefault(one, set()).add(other)
    return {name: [*found.values()] for name, found in sets.items()}, bounds
