"""From claims to cases: what to run, to find out whether an entry of a manifest tells the truth.

A **case** is one question, put to the manifest and to the kernel alike: a layer, one request, a
phase. What the manifest says to it is asked of the selector itself, with the entry alone in the
manifest and no policy, so a case never has an opinion of its own.

**Base.** For each phase that an entry serves, one ordinary question: head size 64, bfloat16, pages
of 16, eight query heads on two KV heads, causal, a request with cached context (a decode: one
query). Where the entry does not accept such a value, the nearest that it accepts.

**One factor at a time.** From the base, one field at a time takes other values, and all else stays,
except what cannot (a query longer than its sequence). Every field that reaches a kernel is varied,
stated or not: a ``context`` field about which an entry is silent is a claim of "any", a feature is
a claim of "never".

**Inside.** For numbers: both ends of every span of the accepted set, the members next to them, and
the members among a ladder of sizes that kernels like or dislike (1, 7, 8, 64, 65, 80, 257, …).
For names, symbols and booleans: every member.

**Outside.** For numbers: the nearest non-members below and above each end, and the rungs of the
ladder that are not members. For names, symbols and booleans: every non-member of the vocabulary.

**Accepts by cases, and constraints.** For every rule of an accepted set that is chosen by cases,
the base is first steered to where that rule decides. Every constraint gets a case on each side: its
``when`` holds and its ``require`` too; its ``when`` holds and one part of ``require`` does not.

**What is left out is said.** The device's own fields, sizes of a deployment, facts, bounds too
large to run here, and rules that no question on this device reaches are listed as untested with
their line: evidence never covers more than was run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from backends.contract import Batch
from selector.asking import ask, check_space, with_request
from selector.domains import Domain, Value
from selector.errors import AttnselError
from selector.fields import ABSENT, UNSET, Field, show
from selector.judge import judge_all
from selector.manifest import Entry, Manifest
from selector.rules import Answer, Constraint, FirstMatch, Question, Test, When
from selector.values import (
    Device,
    Facts,
    Layer,
    Outcome,
    Phase,
    Policy,
    Position,
    Rejection,
    Request,
    Verdict,
)

__all__ = ["Case", "CaseSet", "Untested", "find_cases"]

BASE: Mapping[str, Value] = MappingProxyType(
    {
        "head_size": 64,
        "v_head_size": UNSET,  # as head_size
        "dtype": "bfloat16",
        "kv_cache_dtype": "auto",
        "block_size": 16,
        "attn_type": "decoder",
        "num_heads": 8,
        "num_kv_heads": 2,
        "query_len": 33,
        "seq_len": 70,
    }
)

FEATURES = ("mla", "sparse", "alibi", "chunked", "mm_prefix", "per_head_quant_scales", "rswa")
"""Features that a kernel would have to implement and that the contract only knows by name."""

VARIED = (
    *("head_size", "v_head_size", "dtype", "kv_cache_dtype", "block_size", "attn_type"),
    *("sliding_window", "non_causal", "sink", "soft_cap", *FEATURES),
    *("gqa_group", "num_heads", "num_kv_heads", "query_len", "seq_len", "has_context"),
)
"""Every field that reaches a kernel."""

LADDER = (
    *(1, 2, 3, 4, 7, 8, 12, 16, 17, 24, 31, 32, 33, 40, 64, 65, 72, 80, 96, 100, 112, 120),
    *(127, 128, 129, 136, 160, 192, 248, 256, 257, 264, 320, 512, 576, 1000, 1024),
)

LIMITS: Mapping[str, int] = MappingProxyType(
    {
        "head_size": 1024,
        "v_head_size": 1024,
        "block_size": 256,
        "sliding_window": 128,
        "gqa_group": 32,
        "num_heads": 64,
        "num_kv_heads": 16,
        "query_len": 320,
        "seq_len": 4096,
    }
)
"""The largest values run, so that certifying a laptop's CPU takes seconds."""

SOFT_CAP = 2.0
"""Small enough for standard-normal logits that leaving it out is a large error."""

NOT_STATED = "not stated"
"""The reason that loading gives where an entry does not mention a feature."""

_LENGTHS = ("query_len", "seq_len")

_FULL_CONTEXT = ("encoder", "encoder_only")
"""Attention types without a cache: all tokens are queries."""


class Case(msgspec.Struct, frozen=True):
    """One question to put to a kernel.

    Attributes:
        backend: the entry's name.
        phase: what the request is.
        field: the field varied, or the constraint's code.
        value: its value, as the manifest writes it.
        claim: the line that decides what the entry says to it; the entry's own where it says
            nothing of the field.
        accepts: whether the entry accepts it.
        reason: the manifest's own words for refusing it, if it has any.
        batch: the same question for the kernel.
    """

    backend: str
    phase: Phase
    field: str
    value: str
    claim: Position
    accepts: bool
    batch: Batch
    reason: str = ""


class Untested(msgspec.Struct, frozen=True):
    """A claim that no case covers, and why."""

    backend: str
    phase: Phase
    field: str
    claim: Position
    why: str


class CaseSet(msgspec.Struct, frozen=True):
    """How an entry is certified on a device.

    Attributes:
        cases: every question once.
        untested: claims that no case covers.
        skipped: why the entry cannot run here at all; empty when it can.
    """

    cases: tuple[Case, ...] = ()
    untested: tuple[Untested, ...] = ()
    skipped: str = ""


def find_cases(manifest: Manifest, entry: Entry, device: Device, facts: Facts) -> CaseSet:
    """The cases that judge an entry's claims on a device, and what is left out.

    Args:
        manifest: gives the vocabulary and the rules for what can exist.
        entry: whose claims.
        device: where the cases will run.
        facts: what is installed there.
    """
    cases: dict[tuple[Phase, Batch, bool], Case] = {}
    untested: list[Untested] = []
    for phase, spec in entry.phases.items():
        if spec.disabled:
            untested.append(Untested(entry.name, phase, "", spec.position, "switched off"))
            continue
        finder = _Finder(manifest, entry, device, facts, phase)
        skipped = finder.obstacle()
        if skipped:
            return CaseSet(skipped=skipped)
        for case in finder.cases():
            cases.setdefault((phase, case.batch, case.accepts), case)
        untested += finder.untested
    return CaseSet(tuple(cases.values()), tuple(dict.fromkeys(untested)))


_Values = dict[str, Value]


class _Finder:
    """The cases of one phase of one entry."""

    def __init__(
        self, manifest: Manifest, entry: Entry, device: Device, facts: Facts, phase: Phase
    ) -> None:
        alone = MappingProxyType({entry.name: entry})
        self.manifest = msgspec.structs.replace(manifest, entries=alone, deny=())
        self.entry, self.device, self.facts, self.phase = entry, device, facts, phase
        self.spec = entry.phases[phase]
        self.words = manifest.vocabulary
        self.untested: list[Untested] = []

    def obstacle(self) -> str:
        """Why nothing of this entry can run here; empty when something can."""
        asked = self._ask(self._base())
        if asked is None:
            return "accepts no question that can exist"
        verdict = self._judge(asked)
        blocking = [r for r in verdict.rejections if r.field in ("platform", "capability")]
        if verdict.outcome is Outcome.UNAVAILABLE:
            blocking += verdict.rejections
        return _plain(blocking[0]) if blocking else ""

    def cases(self) -> Iterator[Case]:
        """Yields every case, some perhaps twice."""
        base = self._base()
        yield from self._case(base, "base", "")
        for name in VARIED:
            accepted = self.spec.accepts.get(name)
            for values in self._bases(base, name, accepted):
                inside, outside = self._values_around(name, values, accepted)
                for value in (*inside, *outside):
                    changed = self._change(values, name, value)
                    if changed is not None:
                        text = show(self.words.fields[name], value)
                        yield from self._case(changed, name, text)
        for constraint in self.spec.constraints:
            yield from self._constraint_cases(base, constraint)
        for name, accepted in self.spec.accepts.items():
            stated = any(rule.reason != NOT_STATED for rule in accepted.rules)
            if name not in VARIED and stated:
                self._leave_out(name, accepted.rules[0].position, "reaches no kernel")

    # -- questions ---------------------------------------------------------------------------

    def _base(self) -> _Values:
        """An ordinary question that the entry accepts, as far as one field at a time can tell."""
        values = dict(BASE)
        if self.phase is Phase.DECODE:
            values["query_len"] = 1
        for name, accepted in self.spec.accepts.items():
            field = self.words.fields[name]
            if name in ("platform", "capability"):
                continue
            wanted = values.get(name, _nothing_asked(field))
            allowed = self._allowed(values, accepted)
            if allowed is None or (wanted is not None and allowed.admits(wanted)):
                continue
            found = _member_near(allowed & field.universe(), wanted)
            if found is not None:
                values = self._change(values, name, found) or values
        return values

    def _ask(self, values: _Values) -> Question | None:
        """The question these values make, or ``None`` when no such thing can exist."""
        try:
            layer = Layer.read({k: v for k, v in values.items() if k not in _LENGTHS}, self.words)
            question = ask(self.manifest, self.device, layer, self.facts)
            check_space(self.manifest, question)
            request = Request(int(values["query_len"]), int(values["seq_len"]))
        except AttnselError:
            return None
        return with_request(self.manifest, question, request)

    def _judge(self, asked: Question) -> Verdict:
        """What the entry says to a question."""
        judged = judge_all(self.manifest, asked, self.facts, Policy())
        return judged[self.entry.name][self.phase]

    def _allowed(self, values: _Values, accepted: FirstMatch[Test]) -> Domain | None:
        """The set that an accepted set comes to for this question."""
        question = self._ask(values)
        if question is None:
            return None
        matches = accepted.matches(question)
        return matches[0].rule.result.allowed.within(question)[1] if matches else Domain()

    def _bases(
        self, base: _Values, name: str, accepted: FirstMatch[Test] | None
    ) -> Iterator[_Values]:
        """The base, steered to where each rule of a set chosen by cases decides."""
        if accepted is None or len(accepted.rules) == 1:
            yield base
            return
        for index, rule in enumerate(accepted.rules):
            values = self._steer(base, rule.when)
            earlier = tuple(r.when for r in accepted.rules[:index])
            values = values and self._steer_clear(values, earlier)
            question = values and self._ask(values)
            decides = question and accepted.matches(question)[:1]
            if values and decides and decides[0].rule is rule:
                yield values
            else:
                self._leave_out(name, rule.position, "no question on this device reaches this rule")

    def _steer(self, values: _Values, when: When) -> _Values | None:
        """The values nearest to these for which a condition holds."""
        for test in when.tests:
            question = self._ask(values)
            if question is None:
                return None
            if test.answer(question) is Answer.YES:
                continue
            target = self._member(test, question)
            changed = None if target is None else self._change(values, test.field, target)
            if changed is None:
                return None
            values = changed
        question = self._ask(values)
        return values if question and when.answer(question) is Answer.YES else None

    def _steer_clear(self, values: _Values, whens: tuple[When, ...]) -> _Values | None:
        """Values one field away, at most, for which none of some conditions holds."""
        question = self._ask(values)
        if question is None:
            return None
        holding = [w for w in whens if w.answer(question) is not Answer.NO]
        if not holding:
            return values
        for test in holding[0].tests:
            outside = self.words.fields[test.field].universe() - test.allowed.within(question)[1]
            accepted = self.spec.accepts.get(test.field)
            allowed = None if accepted is None else self._allowed(values, accepted)
            members = outside if allowed is None else outside & allowed
            for target in _edges(members, Domain())[0]:
                changed = self._change(values, test.field, target)
                asked = changed and self._ask(changed)
                if changed and asked and all(w.answer(asked) is Answer.NO for w in whens):
                    return changed
        return None

    def _member(self, test: Test, question: Question) -> Value | None:
        field = self.words.fields[test.field]
        allowed = test.allowed.within(question)[0] & field.universe()
        return _member_near(allowed, question.known(test.field))

    def _change(self, values: _Values, name: str, value: Value) -> _Values | None:
        """The values with one field changed, and what must follow it; ``None``: impossible."""
        if name in ("platform", "capability", *self.manifest.facts, *self.manifest.derive):
            return None
        changed = {**values, name: value}
        query_len, seq_len = int(values["query_len"]), int(values["seq_len"])
        heads, kv_heads = int(values["num_heads"]), int(values["num_kv_heads"])
        if name == "query_len" and isinstance(value, int):
            changed["seq_len"] = max(seq_len, value)
        elif name == "seq_len" and isinstance(value, int):
            changed["query_len"] = min(query_len, value)
        elif name == "has_context":
            changed.pop(name)
            changed["seq_len"] = max(seq_len, query_len + 1) if value else query_len
        elif name == "context_len" and isinstance(value, int):
            changed.pop(name)
            changed["seq_len"] = query_len + value
        elif name in ("gqa_group", "num_heads", "num_kv_heads") and not isinstance(value, int):
            return None  # a kernel always has a number of heads
        elif name == "gqa_group":
            changed.pop(name)
            changed["num_heads"] = int(value) * kv_heads
        elif name == "num_heads" and int(value) % kv_heads:
            changed["num_kv_heads"] = 1
        elif name == "num_kv_heads":
            changed["num_heads"] = heads // kv_heads * int(value)
        elif name == "attn_type" and value in _FULL_CONTEXT:
            changed["query_len"] = changed["seq_len"] = query_len
            return None if self.phase is Phase.DECODE else changed
        return changed

    # -- values ------------------------------------------------------------------------------

    def _values_around(
        self, name: str, values: _Values, accepted: FirstMatch[Test] | None
    ) -> tuple[list[Value], list[Value]]:
        """Members at the edges of what a field may be, and non-members just outside."""
        universe = self.words.fields[name].universe()
        allowed = universe if accepted is None else self._allowed(values, accepted)
        if allowed is None:
            return [], []
        limit = LIMITS.get(name)
        if name == "query_len" and self.phase is Phase.DECODE:
            limit = self._threshold(values)
        if limit is not None:
            beyond = [s.high for s in (allowed & universe).spans if s.high and s.high > limit]
            if beyond and accepted is not None:
                why = f"{max(beyond):,} is beyond the largest run here, {limit:,}"
                self._leave_out(name, accepted.rules[0].position, why)
            universe &= Domain.between(None, limit) | Domain(names=universe.names)
        return _edges(allowed & universe, universe - allowed)

    def _threshold(self, values: _Values) -> int:
        """The longest query that counts as a decode."""
        question = self._ask(values)
        rules = self.entry.decode_threshold
        matches = rules.matches(question) if rules and question else ()
        return min((m.rule.result for m in matches), default=1)

    # -- cases -------------------------------------------------------------------------------

    def _case(
        self, values: _Values, name: str, text: str, claim: Position | None = None
    ) -> Iterator[Case]:
        """Yields the case that these values make, unless no such question exists."""
        asked = self._ask(values)
        if asked is None:
            return
        verdict, effective = self._judge(asked), self.entry.coerced(asked)
        accepts = verdict.outcome is not Outcome.UNSUPPORTED
        reason = ""
        if not accepts:
            mine = [r for r in verdict.rejections if r.field == name]
            first = (mine or list(verdict.rejections))[0]
            claim = claim or first.position
            reason = "" if first.reason == NOT_STATED else first.reason or ""
        if claim is None:
            accepted = self.spec.accepts.get(name)
            matches = accepted.matches(asked) if accepted else ()
            claim = matches[0].rule.position if matches else self.entry.position
        batch = self._batch(effective, int(values["query_len"]), int(values["seq_len"]))
        yield Case(self.entry.name, self.phase, name, text, claim, accepts, batch, reason)

    def _batch(self, asked: Question, query_len: int, seq_len: int) -> Batch:
        """The question in the contract's terms."""

        def known(name: str) -> Value | None:
            value = asked.known(name)
            return None if value in (UNSET, ABSENT) else value

        def size(name: str, default: int) -> int:
            value = known(name)
            return value if isinstance(value, int) else default

        window = known("sliding_window")
        head_size = size("head_size", 64)
        return Batch(
            query_lens=(query_len,),
            seq_lens=(seq_len,),
            num_heads=size("num_heads", 8),
            num_kv_heads=size("num_kv_heads", 2),
            head_size=head_size,
            v_head_size=size("v_head_size", head_size),
            page_size=size("block_size", 16),
            dtype=str(known("dtype")),
            kv_dtype=str(known("kv_cache_dtype") or "auto"),
            causal=known("attn_type") == "decoder" and known("non_causal") is not True,
            sliding_window=window if isinstance(window, int) else None,
            soft_cap=SOFT_CAP if known("soft_cap") is True else None,
            sinks=known("sink") is True,
            features=frozenset(name for name in FEATURES if known(name) is True),
        )

    def _constraint_cases(self, base: _Values, constraint: Constraint) -> Iterator[Case]:
        """Yields a case where the constraint is met, and one for each way to break it."""
        within = self._steer(base, constraint.when)
        question = within and self._ask(within)
        if not within or not question:
            why = "no question on this device reaches this constraint"
            self._leave_out(constraint.code, constraint.position, why)
            return
        if not constraint.require.tests and not constraint.any_of:
            yield from self._case(within, constraint.code, "broken", constraint.position)
            return
        for either in constraint.any_of or (When(),):
            met = self._steer(within, When((*constraint.require.tests, *either.tests)))
            if met is not None:
                yield from self._case(met, constraint.code, "met", constraint.position)
        required = (constraint.require, *constraint.any_of)
        for test in (test for when in required for test in when.tests):
            universe = self.words.fields[test.field].universe()
            outside = universe - test.allowed.within(question)[1]
            for value in (*_near(outside, question.known(test.field)), *_names(outside)):
                broken = self._change(within, test.field, value)
                if broken is not None:
                    yield from self._case(broken, constraint.code, "broken", constraint.position)

    def _leave_out(self, name: str, claim: Position, why: str) -> None:
        self.untested.append(Untested(self.entry.name, self.phase, name, claim, why))


def _nothing_asked(field: Field) -> Value | None:
    """The value that asks for nothing, for features and for sizes that can be unset or absent."""
    if field.role == "feature":
        return field.off
    return field.symbols[0] if field.symbols else None


def _plain(rejection: Rejection) -> str:
    return f"{rejection.field} is {rejection.observed}, not {rejection.allowed}"


def _edges(inside: Domain, outside: Domain) -> tuple[list[Value], list[Value]]:
    """Members at the edges of a set and on the ladder; non-members next to the edges, likewise."""
    ends = {end for s in inside.spans for end in (s.low, s.high) if end is not None}
    beside = {s.first_from(s.low + 1) for s in inside.spans if s.low is not None}
    beside |= {s.last_to(s.high - 1) for s in inside.spans if s.high is not None}
    members = {n for n in (*ends, *beside, *LADDER) if n is not None and inside.admits(n)}
    strangers = {n for n in LADDER if outside.admits(n)}
    for end in ends:
        strangers.update(_near(outside, end))
    return [*sorted(members), *_names(inside)], [*sorted(strangers), *_names(outside)]


def _near(domain: Domain, value: Value | None) -> list[int]:
    """The numbers among the members next below and next above a number; else the smallest."""
    if not isinstance(value, int) or isinstance(value, bool):
        value = 0
    below = [n for s in domain.spans if (n := s.last_to(value)) is not None]
    above = [n for s in domain.spans if (n := s.first_from(value)) is not None]
    return [*([max(below)] if below else []), *([min(above)] if above else [])]


def _names(domain: Domain) -> list[Value]:
    return [] if domain.all_names_but else sorted(domain.names, key=str)


def _member_near(domain: Domain, wanted: Value | None) -> Value | None:
    """A member: the nearest to what is wanted where that means something, else the first."""
    near = None if wanted is None else domain.nearest(wanted)
    if near is not None:
        return near
    smallest = [s.low for s in domain.spans if s.low is not None]
    return min(smallest) if smallest else next(iter(_names(domain)), None)
