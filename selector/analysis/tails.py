"""What follows once the backends are chosen, as rules like those that choose them.

A rule that gives a path refuses a request as an entry does: by what it requires and is not so. The
first rule of the list that is left gives the path. So phase and path are decided by the same masks,
and counted in the same diagrams, as backends are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import msgspec

from selector.analysis.lengths import InexactError
from selector.analysis.stating import path_statements
from selector.domains import Domain, Value
from selector.errors import TooManyTermsError
from selector.fields import REQUEST_FIELDS
from selector.manifest import SPARSE_PATH, Entry, Manifest, PathRule, PhaseSpec, Priority
from selector.paths import decode_path
from selector.plan.kind import Kind, Pair, narrowed
from selector.plan.terms import KIND_FIELDS, Rules, rules_of, tests_after
from selector.rules import Allowed, Constraint, FirstMatch, Test, When, inputs_of
from selector.values import Phase, Position

__all__ = ["After", "Tail", "Way", "same_dense", "same_tail", "tests_of_tails"]

Use = Callable[[Value], Value]
"""What a backend makes of a value."""

_NOWHERE = Position("", 0, 0)
_ANY = When()
_EITHER = "either"


class Way(msgspec.Struct, frozen=True):
    """How a request is computed: as what, by which path, by whom else."""

    phase: Phase | None
    path: str | None
    by: str | None


class After(msgspec.Struct, frozen=True):
    """How a request is computed, but for what the backend of a layer that is not sparse decides.

    Attributes:
        phase: what it counts as.
        lent: the path, where there is such a backend; ``None``: it is not asked for.
        own: the path otherwise.
    """

    phase: Phase | None
    lent: str | None = None
    own: str | None = None

    def way(self, by: str | None) -> Way:
        """How it is computed with a backend that computes dense paths, or without any."""
        if by is None or self.lent is None:
            return Way(self.phase, self.own, None)
        return Way(self.phase, self.lent, by)


class Tail:
    """What two backends of a manifest make of requests.

    Args:
        manifest: states it.
        backends: for prefill and for decode.

    Attributes:
        rules: what decides phase and path, as terms.
        lends: whether some path is computed by the backend of the same layer, were it not sparse.

    Raises:
        InexactError: it is more than masks of fields can say.
    """

    def __init__(self, manifest: Manifest, backends: Pair) -> None:
        self.manifest = manifest
        self.prefill, self.decode = (manifest.entries.get(name or "") for name in backends)
        self._paths: dict[str, PathRule] = {}
        entries = {entry.name: entry for entry in (*self._ways_out(), *self._phases())}
        orders = {p: tuple(n for n, e in entries.items() if p in e.phases) for p in Phase}
        told = msgspec.structs.replace(
            manifest,
            entries=entries,
            priorities=(Priority(_ANY, orders, "", _NOWHERE),),
            **dict.fromkeys(("deny", "joint", "space"), ()),
        )
        try:
            self.rules = rules_of(told)
        except TooManyTermsError as error:
            raise InexactError("the many ways to a path") from error
        self.lends = any(rule.by_dense_backend for rule in self._paths.values())
        self._check_thresholds()

    def _ways_out(self) -> Iterator[Entry]:
        """Yields an entry for each way in which a rule can give its path."""
        entry = self.prefill
        for index, rule in enumerate(entry.prefill_paths if entry else ()):
            constraints: list[Constraint] = []
            if entry is not None and entry.sparse and rule.path != SPARSE_PATH:
                if entry.dense_prefill is not True:
                    continue
                word = Test("dense_prefill", Allowed(Domain.of(True)), _NOWHERE)
                constraints += _required(When((word,)))
                constraints += [
                    Constraint(one.when, _ANY, (), "", "", _NOWHERE)
                    for one in entry.dense_prefill_except
                ]
            for place, row in enumerate(rule.steps.tests() if rule.steps else (_ANY,)):
                name = f"{index}.{place}"
                self._paths[name] = rule
                yield _entry(name, Phase.PREFILL, [*constraints, *_required(rule.when, row)])

    def _phases(self) -> Iterator[Entry]:
        """Yields an entry for each rule of the threshold, for decodes by it and for the rest."""
        rules = (
            self.decode.decode_threshold.rules
            if self.decode and self.decode.decode_threshold
            else ()
        )
        for index, rule in enumerate(rules):
            short = Test("query_len", Allowed(Domain.between(1, rule.result)), rule.position)
            needs = _required(rule.when, When((short,)))
            yield _entry(f"decode {index}", Phase.DECODE, needs)
            yield _entry(f"prefill {index}", Phase.DECODE, _required(rule.when))
        yield _entry(_EITHER, Phase.DECODE, [])

    def _check_thresholds(self) -> None:
        """Refuses thresholds by what a backend makes of a value."""
        coerced = {n for e in (self.prefill, self.decode) if e for n in e.coerce}
        rules = self.decode.decode_threshold if self.decode else None
        derive = self.manifest.derive
        read = {
            n for name in (rules.reads if rules else ()) for n in (name, *inputs_of(name, derive))
        }
        if coerced & read:
            raise InexactError(f"a threshold that looks at a coerced {min(coerced & read)}")

    # -- of one kind of question ------------------------------------------------------------------

    def kind(self, known: Mapping[str, Value]) -> Kind:
        """The masks of phase and path.

        Raises:
            InexactError: it looks at what a backend makes of several fields.
        """
        return self._as_used(narrowed(self.rules, known), known)

    def dense_kind(self, rules: Rules, known: Mapping[str, Value]) -> Kind:
        """The masks of the prefill backend of the same layer, were it not sparse.

        Raises:
            InexactError: it looks at what a backend makes of several fields.
        """
        return self._as_used(_dense(rules, known), known)

    def _as_used(self, rules: Rules, known: Mapping[str, Value]) -> Kind:
        """Masks of what the prefill backend makes of values."""
        kind = Kind(rules, self.manifest.vocabulary.universes)
        coerce = self.prefill.coerce if self.prefill else {}
        for name, test in rules.relations.items():
            if name in kind.masks and not {*coerce}.isdisjoint(test.reads):
                raise InexactError(f"a bound by a coerced {min({*coerce} & {*test.reads})}")
            if name in kind.masks and not {*self.manifest.derive}.isdisjoint(test.reads):
                raise InexactError(f"a bound by what is derived, {name}")
        for name, first in coerce.items():
            if name in kind.masks:
                used = _Used(kind, name, _use(name, first, known))
                kind.masks[name] = used  # type: ignore[assignment]  # bits and masks, as walks ask
        return kind

    @property
    def unsure(self) -> tuple[str, ...]:
        """The ways that do not hold when there is no such dense backend."""
        return tuple(name for name, rule in self._paths.items() if rule.by_dense_backend)

    def after(self, kind: Kind, mask: int) -> After:
        """What follows for a request, as a settled mask says."""
        choices = kind.choices(mask)
        said = (choices.decode.first(mask) or _EITHER).split()[0]
        phase = None if said == _EITHER else Phase(said)
        if self.prefill is None:
            return After(phase)
        if phase is Phase.DECODE and self.decode is not None:
            return After(phase, None, decode_path(self.decode))
        lent: str | None = None
        for name in choices.prefill.alive(mask):
            rule = self._paths[name]
            if not rule.by_dense_backend:
                return After(phase, lent, rule.path)
            lent = lent or rule.path
        return After(phase, lent)


def _entry(name: str, phase: Phase, constraints: Sequence[Constraint]) -> Entry:
    nothing: Mapping[str, FirstMatch[Test]] = MappingProxyType({})
    phases = {phase: PhaseSpec(nothing, tuple(constraints), _NOWHERE)}
    return Entry(name, _NOWHERE, "", False, False, nothing, phases)


def _required(*whens: When) -> list[Constraint]:
    """What must hold, where that is anything."""
    return [Constraint(_ANY, when, (), "", "", _NOWHERE) for when in whens if when.tests]


def _dense(rules: Rules, known: Mapping[str, Value]) -> Rules:
    """What chooses the prefill backend of a layer of this kind, were it not sparse."""
    left = narrowed(rules, {**known, "sparse": False})
    slots = tuple(slot for slot in left.slots if slot.phase is Phase.PREFILL)
    lists = {Phase.PREFILL: left.lists[Phase.PREFILL], Phase.DECODE: (({}, ()),)}
    return msgspec.structs.replace(left, slots=slots, lists=lists, joint=(), impossible=())


class _Used(dict[object, int]):
    """A field's value → the mask of what a backend makes of it."""

    def __init__(self, kind: Kind, name: str, use: Use) -> None:
        super().__init__()
        self._masks = kind.masks[name]
        self.bits = self._masks.bits
        self._use = use

    def __missing__(self, value: Value) -> int:
        return self._masks[self._use(value)]


def _use(name: str, first: FirstMatch[Value], known: Mapping[str, Value]) -> Use:
    """What a backend makes of a field's value, where that depends on nothing else.

    Raises:
        InexactError: it does.
    """
    rules: list[tuple[Domain | None, Value]] = []
    for rule in first.rules:
        within: Domain | None = None
        for test in rule.when.tests:
            if test.allowed.bounds or test.field not in (name, *KIND_FIELDS):
                raise InexactError(f"what becomes of {name} by {test.field}")
            if test.field == name:
                within = test.allowed.fixed if within is None else within & test.allowed.fixed
            elif not test.allowed.fixed.admits(known[test.field]):
                within = Domain()
        rules.append((within, rule.result))
    return partial(_becomes, rules)


def _becomes(rules: list[tuple[Domain | None, Value]], value: Value) -> Value:
    for within, result in rules:
        if within is None or within.admits(value):
            return value if result == "same" else result
    return value


# -- what can differ -----------------------------------------------------------------------------


def same_tail(old: Manifest, new: Manifest, backends: Pair) -> bool:
    """Whether two manifests state the same of what two backends make of requests."""
    return all(
        path_statements(old, name) == path_statements(new, name)
        for name in backends
        if name is not None
    )


def same_dense(rules: tuple[Rules, Rules], known: Mapping[str, Value]) -> bool:
    """Whether two manifests choose the same for a layer of this kind, were it not sparse."""
    old, new = (_dense(one, known) for one in rules)
    return (old.slots, old.lists, old.derive) == (new.slots, new.lists, new.derive)


def tests_of_tails(manifest: Manifest, names: Iterable[str]) -> list[When]:
    """What the paths of entries depend on beside lengths, as conditions to tell apart."""
    skipped = {*REQUEST_FIELDS, *(measure.name for measure in manifest.measures)}
    skipped |= {*manifest.changing}
    found: dict[Test, None] = {}
    for entry in (manifest.entries[name] for name in names if name in manifest.entries):
        for test in tests_after(manifest, entry, entry):
            if test.field not in skipped:
                found[test] = None
                continue
            for end in test.ends:
                found[Test(end, Allowed(Domain.between(None, None)), _NOWHERE)] = None
        if entry.sparse:
            found[Test("dense_prefill", Allowed(Domain.of(True)), _NOWHERE)] = None
    return [When((test,)) for test in found]
