"""A manifest's rules as conjunctions: what refuses an entry, what makes a list hold.

A *term* maps fields to sets and holds when every field lies within its set. Negations are taken
out: an entry is refused in a phase when one of its terms holds. Two things that are no fields of a
question become fields here, with the values true and false: a bound that another field gives
(``v_head_size within head_size``), and a requirement (``flashinfer >=0.6``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from selector.domains import ANY, Domain, Value
from selector.errors import TooManyTermsError
from selector.fields import REQUEST_FIELDS
from selector.manifest import Entry, Manifest, PhaseSpec, Requirement
from selector.rules import Bound, Constraint, FirstMatch, Test, When
from selector.values import Phase, Position

__all__ = [
    "DEVICE_FIELDS",
    "KIND_FIELDS",
    "Rules",
    "Slot",
    "Term",
    "UndecidedError",
    "conditions_of_pair",
    "derived_behind",
    "rules_of",
    "term_of",
    "tests_after",
    "tests_behind",
    "tests_of_choice",
    "tests_of_pair",
]

Term = Mapping[str, Domain]
"""Field → the values it must have; all of them."""

DEVICE_FIELDS = ("platform", "capability")
"""What a device is."""

KIND_FIELDS = (*DEVICE_FIELDS, "mla", "sparse", "attn_type")
"""What tells most entries apart."""

_MOST_TERMS = 2_000
"""No rule becomes more terms than this."""

_TRUE, _FALSE = Domain.of(True), Domain.of(False)


class UndecidedError(Exception):
    """Something that is unknown decides which rule is the first to hold."""


class Slot(msgspec.Struct, frozen=True):
    """One entry in one phase, and all that refuses it.

    Attributes:
        backend: the entry's name.
        phase: in which it serves.
        alone: fields, and values of each that refuse it by themselves.
        terms: what refuses it when several fields come together.
    """

    backend: str
    phase: Phase
    alone: tuple[tuple[str, Domain], ...]
    terms: tuple[Term, ...] = ()


class Rules(msgspec.Struct, frozen=True):
    """What decides the backends of a question, without negations.

    Attributes:
        slots: every entry that serves, in every phase.
        lists: phase → when a priority list holds, and its names; the first that holds decides.
        derive: derived field → the terms in order and what follows from each.
        joint: when two backends must share something, and what.
        relations: fields that stand for a bound by another field.
        requirements: fields that stand for a requirement.
        impossible: what no layer can be.
        strict: fields that must be known: a first match looks at them.
    """

    slots: tuple[Slot, ...]
    lists: Mapping[Phase, tuple[tuple[Term, tuple[str, ...]], ...]]
    derive: Mapping[str, tuple[tuple[Term, Value], ...]]
    joint: tuple[tuple[Term, tuple[str, ...]], ...]
    relations: Mapping[str, Test]
    requirements: Mapping[str, Requirement]
    impossible: tuple[Term, ...]
    strict: frozenset[str]


def rules_of(manifest: Manifest) -> Rules:
    """The rules of a manifest.

    Raises:
        TooManyTermsError: a rule cannot be written out.
    """
    return _Reader(manifest).read()


def term_of(manifest: Manifest, when: When) -> tuple[Term | None, Mapping[str, Test]]:
    """A condition as a term (``None``: it can never hold), and the bounds by other fields in it."""
    reader = _Reader(manifest)
    return reader._holds(when), reader.relations


class _Reader:
    """Writes rules out as terms; collects the fields that stand for something else."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.relations: dict[str, Test] = {}
        self.requirements: dict[str, Requirement] = {}
        self.strict: set[str] = set()

    def read(self) -> Rules:
        manifest = self.manifest
        slots = tuple(
            self._slot(entry, phase, spec)
            for entry in manifest.entries.values()
            for phase, spec in entry.phases.items()
            if not spec.disabled
        )
        lists = {phase: tuple(self._lists(phase)) for phase in Phase}
        derive = {name: tuple(self._in_order(match)) for name, match in manifest.derive.items()}
        joint = tuple(
            (term, joint.same)
            for joint in manifest.joint
            if (term := self._holds(joint.when)) is not None
        )
        firsts = (term for terms in (*lists.values(), *derive.values(), joint) for term, _ in terms)
        self.strict.update(name for term in firsts for name in term)
        for entry in manifest.entries.values():
            for test in tests_after(manifest, entry, entry):
                if test.allowed.bounds:
                    self._relation(test)
        later = {*REQUEST_FIELDS, *manifest.changing, *(m.name for m in manifest.measures)}
        impossible = tuple(
            term
            for rule in manifest.space
            for term in self._broken(rule)
            if later.isdisjoint(term)  # of requests, nothing is checked
        )
        strict = frozenset(self.strict)
        return Rules(
            slots, lists, derive, joint, self.relations, self.requirements, impossible, strict
        )

    def _slot(self, entry: Entry, phase: Phase, spec: PhaseSpec) -> Slot:
        alone: list[tuple[str, Domain]] = []
        terms: list[Term] = []
        for term in self._refusals(entry, spec):
            if len(term) > 1:
                terms.append(term)
                continue
            alone += term.items() or [("platform", ANY)]
        alone = list(dict.fromkeys(alone))
        kept = (t for t in terms if not any(n in t and t[n] <= v for n, v in alone))
        return Slot(entry.name, phase, tuple(alone), tuple(kept))

    def _refusals(self, entry: Entry, spec: PhaseSpec) -> Iterator[Term]:
        """Yields what refuses an entry in a phase."""
        for accepted in spec.accepts.values():
            yield from self._not_accepted(accepted)
        for constraint in spec.constraints:
            yield from self._broken(constraint)
        for need in entry.requires:
            if self.manifest.facts.get(need.fact) == "boolean":
                yield {need.fact: _FALSE}
                continue
            name = f"{need.fact} {need.specifier or 'true'}"
            self.requirements[name] = need
            yield {name: _FALSE}
        for denial in self.manifest.deny:
            if denial.backend == entry.name:
                holds = self._holds(denial.when)
                if holds is not None:
                    yield holds

    def _not_accepted(self, accepted: FirstMatch[Test]) -> Iterator[Term]:
        """Yields what makes the first rule that holds refuse its field."""
        earlier: list[list[Term]] = []
        for rule in accepted.rules:
            holds = self._holds(rule.when)
            if holds is None:
                continue
            if len(accepted.rules) > 1:
                self.strict.update(holds)
            yield from _products(rule.position, [[holds], *earlier, [self._refuses(rule.result)]])
            earlier.append(self._fails(rule.when))

    def _broken(self, constraint: Constraint) -> Iterator[Term]:
        """Yields what breaks a constraint."""
        applies = self._holds(constraint.when)
        if applies is None:
            return
        if not constraint.require.tests and not constraint.any_of:
            yield applies
            return
        for test in constraint.require.tests:
            yield from _products(constraint.position, [[applies], [self._refuses(test)]])
        if constraint.any_of:
            ways = (self._fails(way) for way in constraint.any_of)
            yield from _products(constraint.position, [[applies], *ways])

    def _lists(self, phase: Phase) -> Iterator[tuple[Term, tuple[str, ...]]]:
        for priority in self.manifest.priorities:
            if phase in priority.orders:
                holds = self._holds(priority.when)
                if holds is not None:
                    yield holds, priority.orders[phase]

    def _in_order(self, match: FirstMatch[Value]) -> Iterator[tuple[Term, Value]]:
        for rule in match.rules:
            holds = self._holds(rule.when)
            if holds is not None:
                yield holds, rule.result

    # -- tests ------------------------------------------------------------------------------------

    def _holds(self, when: When) -> Term | None:
        """A conjunction as a term; ``None`` when it can never hold."""
        term: Term | None = {}
        for test in when.tests:
            if term is not None:
                term = _meet(term, self._accepts(test))
        return term

    def _fails(self, when: When) -> list[Term]:
        """What makes a conjunction fail; nothing when it is empty."""
        return [self._refuses(test) for test in when.tests]

    def _accepts(self, test: Test) -> Term:
        if test.allowed.bounds:
            return {self._relation(test): _TRUE}
        return {test.field: test.allowed.fixed}

    def _refuses(self, test: Test) -> Term:
        if test.allowed.bounds:
            return {self._relation(test): _FALSE}
        return {test.field: ~test.allowed.fixed}

    def _relation(self, test: Test) -> str:
        name = _relation_name(test)
        self.relations[name] = test
        self.strict.add(name)
        return name


def _relation_name(test: Test) -> str:
    """The field that stands for a test whose bounds other fields give."""
    ends = [_in_words(bound) for bound in test.allowed.bounds]
    fixed = test.allowed.fixed
    if not fixed.is_empty():
        ends.append(f"{fixed.spans} {sorted(map(str, fixed.names))} {fixed.all_names_but}")
    return f"{test.field} within {' or '.join(ends)}"


def _in_words(bound: Bound) -> str:
    step = f" by {bound.multiple_of}" if bound.multiple_of > 1 else ""
    if bound.low == bound.high:
        return f"{bound.low}{step}"
    low, high = ("" if end is None else end for end in (bound.low, bound.high))
    return f"{low}..{high}{step}"


def tests_after(manifest: Manifest, prefill: Entry | None, decode: Entry | None) -> Iterator[Test]:
    """Yields every test that decides the phase and the path once both backends are chosen."""
    yield from tests_behind(manifest, tests_of_pair(prefill, decode))


def tests_behind(manifest: Manifest, tests: Iterable[Test]) -> Iterator[Test]:
    """Yields the tests; in place of those of derived values, the ones that decide these."""
    pending = [*tests]
    seen: set[str] = set()
    while pending:
        test = pending.pop()
        derived = manifest.derive.get(test.field)
        if derived is None:
            yield test
        elif test.field not in seen:
            seen.add(test.field)
            pending += _tests_in(derived)


def derived_behind(manifest: Manifest, tests: Iterable[Test]) -> set[str]:
    """The derived values that tests look at, and those that these are derived from."""
    pending, found = {test.field for test in tests}, set[str]()
    while pending:
        name = pending.pop()
        if name in manifest.derive and name not in found:
            found.add(name)
            pending.update(test.field for test in _tests_in(manifest.derive[name]))
    return found


def tests_of_choice(manifest: Manifest) -> Iterator[Test]:
    """Yields every test that decides which backends are chosen, or what is derived."""
    for entry in manifest.entries.values():
        for spec in entry.phases.values():
            for accepted in spec.accepts.values():
                yield from _tests_in(accepted)
                yield from (rule.result for rule in accepted.rules)
            for constraint in spec.constraints:
                for when in (constraint.when, constraint.require, *constraint.any_of):
                    yield from when.tests
    whens = [r.when for r in manifest.priorities] + [r.when for r in manifest.deny]
    for when in (*whens, *(r.when for r in manifest.joint)):
        yield from when.tests
    for derived in manifest.derive.values():
        yield from _tests_in(derived)


def tests_of_pair(prefill: Entry | None, decode: Entry | None) -> Iterator[Test]:
    """Yields the tests that two backends' own rules make: coercions, the threshold, the paths."""
    for when in conditions_of_pair(prefill, decode):
        yield from when.tests


def conditions_of_pair(prefill: Entry | None, decode: Entry | None) -> Iterator[When]:
    """Yields the conditions of two backends' own rules; each row of a table is one."""
    matches: list[FirstMatch[Any]] = []
    for entry in (prefill, decode):
        matches += entry.coerce.values() if entry else ()
    if decode is not None and decode.decode_threshold is not None:
        matches.append(decode.decode_threshold)
    yield from (rule.when for match in matches for rule in match.rules)
    if prefill is None:
        return
    for path in prefill.prefill_paths:
        if path.steps is None or path.by_dense_backend:
            yield path.when
        for row in path.steps.tests() if path.steps else ():
            yield When((*path.when.tests, *row.tests))
    yield from (exception.when for exception in prefill.dense_prefill_except)


def _tests_in(match: FirstMatch[Any]) -> Iterator[Test]:
    for rule in match.rules:
        yield from rule.when.tests


def _meet(a: Term, b: Term) -> Term | None:
    """Both terms; ``None`` when they exclude each other."""
    both = dict(a)
    for name, values in b.items():
        if name in both:
            values = both[name] & values
        if values.is_empty():
            return None
        both[name] = values
    return both


def _products(position: Position, alternatives: Iterable[list[Term]]) -> list[Term]:
    """One of each list of alternatives, in every way that can be.

    Raises:
        TooManyTermsError: there are too many ways.
    """
    found: list[Term] = [{}]
    for ways in alternatives:
        found = [both for term in found for way in ways if (both := _meet(term, way)) is not None]
        if len(found) > _MOST_TERMS:
            raise TooManyTermsError(
                f"{position}: this rule has more than {_MOST_TERMS:,} combinations, too many for "
                "an exact analysis; split it into rules of fewer alternatives"
            )
    return found
