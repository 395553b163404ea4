"""One backend as an entry of a draft: what its class claims, what its constructor takes of that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from selector.domains import Value
from selector.drift.dense import inherited_words
from selector.drift.drafting_combinations import draft_constraints
from selector.drift.drafting_refusals import (
    Refusals,
    read_refusals,
    refused_architectures,
)
from selector.drift.drafting_sets import (
    ANY,
    Accepted,
    by_capability,
    capability_set,
    feature_set,
    read_set,
)
from selector.drift.drafting_yaml import Block, Node, Plain, Rows, Text, Todo
from selector.drift.reading import Attribute, Backend, ClassReading, EngineReading
from selector.drift.saying import (
    FUTURE,
    answer_on,
    called,
    listed,
    name_of,
    on_words,
    place_of,
    refuser_name,
    says,
    source_of,
    why_open,
)
from selector.drift.todo import DENSE_OFF, NOT_DRAFTED, NOT_KNOWN, PROBED, REFUSED_LATER
from selector.fields import Field
from selector.lint.catalogue import Rule

__all__ = ["Subject", "draft_entry"]


class Subject(NamedTuple):
    """The backend that an entry is drafted for.

    Attributes:
        name: of the entry.
        backend: as it was read.
        cls: its class.
        reading: of the engine.
        fields: those that the draft can speak of.
        common: the classes that all backends of its registry share.
    """

    name: str
    backend: Backend
    cls: ClassReading
    reading: EngineReading
    fields: Mapping[str, Field]
    common: frozenset[str]

    @property
    def is_prefill(self) -> bool:
        """Whether it only computes the prefill of latent attention."""
        return any(one is self.backend for one in self.reading.prefill)

    def attribute(self, name: str) -> Attribute | None:
        """What its class states or inherits."""
        return self.cls.attributes.get(name)

    def refusals(self, field: str, capabilities: Sequence[str]) -> Refusals:
        """What the constructors of its implementation refuse of a field."""
        return read_refusals(self.backend, self.reading.vocabulary, field, capabilities)

    def todo(self, rule: Rule, field: str, words: str) -> Todo:
        """Something left to do in its entry."""
        return Todo(rule, self.name, field, words)


class _Stated(NamedTuple):
    """What an entry says of a field.

    Attributes:
        field: its name.
        truth: what works; ``None``: nothing is written.
        claim: what the class claims instead; ``None``: the same.
        source, claim_source: who says so.
        todos: what is left to do.
    """

    field: str
    truth: Plain | Block | None
    claim: Plain | Block | None = None
    source: str = ""
    claim_source: str = ""
    todos: tuple[Todo, ...] = ()


def draft_entry(subject: Subject) -> tuple[Node, ...]:
    """The keys of an entry."""
    mla, sparse = _kind(subject, "mla"), _kind(subject, "sparse")
    is_sparse = sparse.value is True
    capability, accepted = _capability(subject, is_sparse)
    stated = [capability, *_values(subject, accepted), *_features(subject, accepted)]
    dense, claimed_by = _dense_prefill(subject, mla) if is_sparse else ((), "")
    class_at = f"{subject.cls.path} ({place_of(subject.cls.at)})"
    platform = Node("platform", [subject.reading.platform])
    return (
        Node("name", subject.name, tuple(_not_translated(subject))),
        Node("source", Text(f"{called(subject.reading)}, {class_at}")),
        mla,
        sparse,
        *dense,
        Node("accepts", Block([platform, *_accepts(stated)])),
        *_sources(stated),
        *_constraints(subject, accepted),
        *_work(subject, mla.value is True, is_sparse),
        *_claimed(stated, claimed_by),
    )


def _kind(subject: Subject, field: str) -> Node:
    """Whether it is for such layers: what the class says, else what its implementation says."""
    if subject.is_prefill:
        return Node(field, field == "mla")
    name, impl = subject.reading.vocabulary.kinds.get(field, ""), subject.backend.impl
    own = subject.attribute(name)
    for attribute in (own, impl.attributes.get(name) if impl is not None else None):
        if says(attribute, True) or says(attribute, False):
            return Node(field, says(attribute, True))
    asked = subject.reading.capabilities
    away = refused_architectures(subject.backend, asked).refused
    refused = [*subject.refusals(field, [one for one in asked if not away[one]]).refused.values()]
    for value in (True, False):
        if refused and all((not value) in away and value not in away for away in refused):
            return Node(field, value)
    why = why_open(own, subject.reading.capabilities) if own is not None else "no class says it"
    return Node(field, False, (subject.todo(NOT_KNOWN, field, why or "it depends on more"),))


def _capability(subject: Subject, is_sparse: bool) -> tuple[_Stated, list[str]]:
    """The architectures, and the list of those that the class accepts."""
    asked = subject.reading.capabilities
    attribute = subject.attribute(subject.reading.vocabulary.capability)
    if attribute is None:
        said = dict.fromkeys(asked, True)
        todos = [subject.todo(NOT_KNOWN, "capability", "no class says which it accepts")]
        source = ""
    else:
        raw = {one: answer_on(attribute, one) for one in asked}
        said = {one: bool(a and a.known and a.value is True) for one, a in raw.items()}
        unknown = [one for one, a in raw.items() if a is None or not isinstance(a.value, bool)]
        todos = [_unknown(subject, "capability", attribute, unknown, [])] if unknown else []
        source = source_of(attribute)
    refusals = refused_architectures(subject.backend, asked)
    accepted = [one for one in asked if said[one]]
    works = [one for one in accepted if not refusals.refused[one]]
    truth = capability_set(works, asked, closed=is_sparse)
    claim = capability_set(accepted, asked, closed=False)
    if is_sparse and FUTURE in works:
        words = f"{source} accepts every future one; a sparse entry lists those that it knows"
        todos.append(subject.todo(NOT_DRAFTED, "capability", words))
    if works != accepted:
        away = [one for one in accepted if one not in works]
        words = f"{refusals.by} raises {on_words(away)}, whatever it is given"
        todos.append(subject.todo(REFUSED_LATER, "capability", words))
    differs = truth != claim and attribute is not None
    by = refusals.by if works != accepted else source
    stated = _Stated("capability", truth, claim if differs else None, by, source, tuple(todos))
    return stated, accepted or [*asked]


def _values(subject: Subject, accepted: Sequence[str]) -> Iterator[_Stated]:
    """The fields of which a class accepts some values; every core field is stated."""
    vocabulary, unasked = subject.reading.vocabulary, {*_unasked(subject)}
    for field in subject.fields.values():
        attribute = subject.attribute(vocabulary.values.get(field.name, ""))
        listing = subject.attribute(vocabulary.lists.get(field.name, ""))
        if attribute is not None:

            def ask(
                capability: str,
                field: Field = field,
                attribute: Attribute = attribute,
                listing: Attribute | None = listing,
            ) -> Accepted:
                return read_set(field, attribute, listing, capability)

            yield _field(subject, field, attribute, accepted, ask)
        elif field.name in unasked:
            yield _unclaimed(subject, field, accepted)


def _unclaimed(subject: Subject, field: Field, accepted: Sequence[str]) -> _Stated:
    """A field of which the class says nothing: all that its constructor does not refuse."""
    refusals = subject.refusals(field.name, accepted)
    todos = [subject.todo(NOT_KNOWN, field.name, why) for why in refusals.why]
    refused = {one for values in refusals.refused.values() for one in values}
    if not refused:
        return _Stated(field.name, ANY, todos=tuple(todos))
    every = field.names() or tuple(refusals.asked)
    left: dict[str, Plain] = {
        one: [value for value in every if value not in away] if away else ANY
        for one, away in refusals.refused.items()
    }
    words = f"{refusals.by} refuses {listed(sorted(refused, key=str))}"
    if field.names():
        words += "; if the engine changes the value before, accept it and say so under `coerce`"
        todos.append(subject.todo(REFUSED_LATER, field.name, words))
    else:
        words += f" of {len(refusals.asked)} values asked; say what it takes of all"
        todos.append(subject.todo(PROBED, field.name, words))
    return _Stated(field.name, by_capability(left), source=refusals.by, todos=tuple(todos))


def _features(subject: Subject, accepted: Sequence[str]) -> Iterator[_Stated]:
    """The features that a class says it has; those that it lacks need no word."""
    for name, (asked, value) in subject.reading.vocabulary.features.items():
        field, attribute = subject.fields.get(name), subject.attribute(asked)
        if field is None:
            continue
        if attribute is not None:

            def ask(
                capability: str,
                field: Field = field,
                attribute: Attribute = attribute,
                value: Value = value,
            ) -> Accepted:
                return feature_set(field, attribute, value, capability)

            yield _field(subject, field, attribute, accepted, ask)
        elif subject.is_prefill:  # the backend that decodes is asked
            yield _Stated(name, ANY)


def _field(
    subject: Subject,
    field: Field,
    attribute: Attribute,
    accepted: Sequence[str],
    ask: Callable[[str], Accepted],
) -> _Stated:
    """What works of what a class claims, architecture by architecture."""
    refusals = subject.refusals(field.name, accepted)
    claims = {one: ask(one) for one in accepted}
    truths = {
        one: claim.without(field, refusals.refused.get(one, ())) for one, claim in claims.items()
    }
    claim = by_capability({one: said.allow for one, said in claims.items()})
    truth = by_capability({one: said.allow for one, said in truths.items()})
    listing = subject.attribute(subject.reading.vocabulary.lists.get(field.name, ""))
    by_list = listing is not None and any(said.by_list for said in claims.values())
    claimed_by = source_of(listing if by_list and listing is not None else attribute)
    differs = truth != claim
    todos = tuple(_todos(subject, field, attribute, claims, truths, refusals))
    is_off = field.role == "feature" and not differs and not any(
        said.values for said in claims.values()
    )  # fmt: skip
    return _Stated(
        field.name,
        None if is_off else truth,
        claim if differs else None,
        "" if is_off else refusals.by if differs else claimed_by,
        claimed_by,
        todos,
    )


def _todos(
    subject: Subject,
    field: Field,
    attribute: Attribute,
    claims: Mapping[str, Accepted],
    truths: Mapping[str, Accepted],
    refusals: Refusals,
) -> Iterator[Todo]:
    where = [one for one, said in claims.items() if said.unknown]
    if where:
        values = [*dict.fromkeys(one for said in claims.values() for one in said.unknown)]
        yield _unknown(subject, field.name, attribute, where, values)
    if any(not said.whole for said in truths.values()):
        words = (
            f"{source_of(attribute)} was asked with {len(attribute.asked)} values and accepts "
            "these; say what it accepts of all"
        )
        yield subject.todo(PROBED, field.name, words)
    if foreign := [*dict.fromkeys(one for said in claims.values() for one in said.foreign)]:
        words = f"{source_of(attribute)} accepts {listed(foreign)}, which a manifest cannot name"
        yield subject.todo(NOT_DRAFTED, field.name, words)
    lost = {
        one: [v for v in said.values if v not in truths[one].values] for one, said in claims.items()
    }
    if where := [one for one, values in lost.items() if values]:
        values = [*dict.fromkeys(one for values in lost.values() for one in values)]
        words = (
            f"the class claims {listed(values)}, and {refusals.by} raises "
            f"{on_words(where)}; if the engine changes the value before, accept it and say "
            "so under `coerce`"
        )
        yield subject.todo(REFUSED_LATER, field.name, words)
    for why in refusals.why:
        yield subject.todo(NOT_KNOWN, field.name, why)


def _unknown(
    subject: Subject, field: str, attribute: Attribute, where: list[str], values: Sequence[Value]
) -> Todo:
    what = f"{listed(values)} is" if field in subject.reading.vocabulary.values else "it is"
    why = why_open(attribute, where) or f"{source_of(attribute)} says no yes or no"
    words = f"whether {what} accepted is not known {on_words(where)}: {why}"
    return subject.todo(NOT_KNOWN, field, words)


def _accepts(stated: Sequence[_Stated]) -> Iterator[Node]:
    for one in stated:
        if one.truth is not None:
            yield Node(one.field, one.truth, one.todos)
        elif one.todos:
            yield Node("", "", one.todos)


def _constraints(subject: Subject, accepted: Sequence[str]) -> Iterator[Node]:
    """What the class refuses only together; of values that nobody asked, that is not known."""
    rows: list[tuple[Node, ...]] = []
    todos = []
    for one in draft_constraints(subject.backend, subject.reading, subject.fields, accepted):
        rows += one.constraints
        name, source = one.method.name, source_of(one.method)
        if one.constraints:
            words = f"{source} was asked with {len(one.method.asked)} combinations, and these are "
            words += "what it refuses of them; say what it refuses of all"
            todos.append(subject.todo(PROBED, name, words))
        if one.unknown:
            where, why = on_words(one.unknown), why_open(one.method, one.unknown)
            words = f"some of what {source} refuses is not known {where}: {why}"
            todos.append(subject.todo(NOT_KNOWN, name, words))
        if one.left:
            words = f"{one.left} refusals of {source} take more than a few fields to tell"
            todos.append(subject.todo(NOT_DRAFTED, name, words))
    if rows:
        yield Node("constraints", Rows(rows), tuple(todos))
    elif todos:
        yield Node("", "", tuple(todos))


def _sources(stated: Sequence[_Stated]) -> Iterator[Node]:
    sources = [Node(one.field, Text(one.source)) for one in stated if one.source]
    if sources:
        yield Node("sources", Block(sources))


def _dense_prefill(subject: Subject, mla: Node) -> tuple[tuple[Node, ...], str]:
    """That a sparse entry may not compute prefill densely, and who claims that it may."""
    impl, vocabulary = subject.backend.impl, subject.reading.vocabulary
    stated = impl.attributes.get(vocabulary.dense_prefill) if impl is not None else None
    claimed_by, why = "", "say why"
    if impl is None:
        problem = subject.backend.impl_problem or "names none"
        words = f"{name_of(subject.cls.path)} has no implementation class: {problem}"
    elif stated is None:
        words = f"no class of {name_of(impl.path)} ({place_of(impl.at)}) says whether it has one"
    elif says(stated, False):
        words = f"{source_of(stated)} states false"
    elif not says(stated, True):
        words = f"{source_of(stated)} is not known: {why_open(stated, [*stated.answers()])}"
        why = "say whether it has one, and why"
    elif mla.value is False and not mla.todos:
        owner = name_of(subject.cls.path)
        words = f"only layers with a latent ask for it, and {owner} has none; {source_of(stated)} "
        words += "is never read"
    else:
        claimed_by = source_of(stated)
        why = "say whether that is so, and why"
        words = (
            f"{source_of(stated)} states true"
            if stated.defined_in == impl.path
            else inherited_words(impl, stated, vocabulary)
        )
        words += "; off until somebody decides"
    todo = subject.todo(DENSE_OFF, "dense_prefill", f"{words}; {why}")
    return (
        Node("dense_prefill", False, (todo,)),
        Node("rationale", Text(f"As read, not decided: {words}.")),
    ), claimed_by


def _work(subject: Subject, mla: bool, is_sparse: bool) -> Iterator[Node]:
    """Phases, paths and threshold: the usual ones of such a layer, but for what is read."""
    phases: dict[str, Plain] = {"prefill": {}, "decode": {}}
    if subject.is_prefill:
        del phases["decode"]
    elif mla and not is_sparse and subject.reading.prefill:
        del phases["prefill"]
    yield Node("phases", phases)
    if "decode" in phases:
        yield _threshold(subject)
    if "prefill" in phases:
        latent = mla and not subject.is_prefill
        path = "sparse_mqa" if is_sparse else "mqa" if latent else "mha"
        row = (Node("path", path), Node("reason", "Not read; the usual path of such a layer."))
        yield Node("prefill_paths", Rows([row]))


def _threshold(subject: Subject) -> Node:
    """The longest query that its builder counts as a decode; none: one token."""
    builder = subject.backend.builder
    for name, attribute in builder.attributes.items() if builder is not None else ():
        said = attribute.answer
        if name.endswith("batch_threshold") and said is not None and said.known:
            value = said.value if isinstance(said.value, int) and said.value > 0 else 1
            cases = Node("cases", Rows([(Node("value", value),)]))
            source = Node("source", Text(source_of(attribute)))
            return Node("decode_threshold", Block((cases, source)))
    words = subject.backend.builder_problem or "no class says how long a query counts as a decode"
    return Node("decode_threshold", 1, (subject.todo(NOT_KNOWN, "decode_threshold", words),))


def _claimed(stated: Sequence[_Stated], dense: str) -> Iterator[Node]:
    differing = [one for one in stated if one.claim is not None]
    if not differing and not dense:
        return
    sources = [*dict.fromkeys(one.claim_source for one in differing), *([dense] if dense else [])]
    nodes = [Node("source", Text(", ".join(sources)))]
    if differing:
        claims = [Node(one.field, one.claim) for one in differing if one.claim is not None]
        nodes.append(Node("accepts", Block(claims)))
    if dense:
        nodes.append(Node("dense_prefill", True))
    yield Node("claimed", Block(nodes))


def _not_translated(subject: Subject) -> Iterator[Todo]:
    """Tests that the class itself or its constructor has, and that no field holds."""
    vocabulary = subject.reading.vocabulary
    told = {*vocabulary.values.values(), *vocabulary.lists.values(), *vocabulary.kinds.values()}
    told |= {name for name, _ in vocabulary.features.values()} | {vocabulary.capability}
    for name, attribute in subject.cls.attributes.items():
        if not name.startswith("supports_") or name in told:
            continue
        if name in vocabulary.combinations and attribute.asked:
            continue
        if attribute.defined_in not in subject.common and not attribute.known:
            yield subject.todo(NOT_DRAFTED, name, f"{source_of(attribute)} is not translated")
    impl = subject.backend.impl
    others: dict[str, list[str]] = {}
    for guard in impl.guards if impl is not None else ():
        if not any(one.name in vocabulary.arguments for one in guard.refuses):
            owner = f"{refuser_name(guard)} ({guard.at.file}"
            others.setdefault(owner, []).append(str(guard.at.line))
    if others:
        places = [f"{owner}:{', '.join(lines)})" for owner, lines in others.items()]
        words = f"raises under tests that are not translated: {'; '.join(places)}"
        yield subject.todo(NOT_DRAFTED, "constructor", words)
    if unasked := [*_unasked(subject)]:
        words = f"no method of {name_of(subject.cls.path)} is asked for it, so any is accepted"
        yield subject.todo(NOT_KNOWN, ", ".join(unasked), words)


def _unasked(subject: Subject) -> Iterator[str]:
    """Core fields of which the class says nothing."""
    asked = subject.reading.vocabulary.values
    for field in subject.fields.values():
        said = subject.attribute(asked.get(field.name, ""))
        if said is None and field.role == "core" and field.name not in ("platform", "capability"):
            yield field.name
