"""From claims to cases: what to run, to find out whether an entry of a manifest tells the truth.

A **case** is one question, put to the manifest and to the kernel alike: a layer, one request, a
phase. What the manifest says to it is asked of the selector itself, with the entry alone in the
manifest and no policy, so a case never has an opinion of its own.

**Base.** For each phase that an entry serves, one ordinary question: head size 64, bfloat16, pages
of 16, eight query heads on two KV heads, causal, a request with cached context (a decode: one
query); for MLA, sixteen heads over a latent of 512 + 64, and for sparse MLA the top 64 of 300
tokens. Where the entry does not accept such a value, the nearest that it accepts. How an MLA entry
computes it, on the latent or on expanded heads, is asked of its own ``prefill_paths``.

**One factor at a time.** From the base, one field at a time takes other values, and all else stays,
except what cannot (a query longer than its sequence). Every field that reaches a kernel is varied,
stated or not: a ``context`` field about which an entry is silent is a claim of "any", a feature is
a claim of "never".

**Several requests.** One batch mixes lengths: the base's, a single token, a prompt without
context, a longer context; those of them that the entry accepts.

**Inside.** For numbers: both ends of every span of the accepted set, the members next to them, and
the members among a ladder of sizes that kernels like or dislike (1, 7, 8, 64, 65, 80, 257, …).
For names, symbols and booleans: every member.

**Outside.** For numbers: the nearest non-members below and above each end, and the rungs of the
ladder that are not members. For names, symbols and booleans: every non-member of the vocabulary.

**Accepts by cases, and constraints.** For every rule of an accepted set that is chosen by cases,
the base is first steered to where that rule decides. Every constraint gets a case on each side: its
``when`` holds and its ``require`` too; its ``when`` holds and one part of ``require`` does not.

**How far** depends on the device: :mod:`backends.edges`.

**What is left out is said.** The device's own fields, sizes of a deployment, facts, bounds too
large to run here, and rules that no question on this device reaches are listed as untested with
their line: evidence never covers more than was run. Only which kind of layer an entry is for
(``mla``, ``sparse``) is no case: another kind is another question, with other fields.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from backends.batches import FEATURES
from backends.contract import Batch
from backends.edges import CUDA, LADDER, Reach, edges, names, near
from backends.questions import LENGTHS, Questions, Values, lengths_of
from selector.domains import Domain, Value
from selector.fields import show
from selector.manifest import Entry, Manifest
from selector.rules import Constraint, FirstMatch, Test, When
from selector.values import Device, Facts, Outcome, Phase, Position, Rejection

__all__ = ["Case", "CaseSet", "Untested", "find_cases"]

_ALWAYS = (
    *("head_size", "dtype", "kv_cache_dtype", "block_size", "attn_type"),
    *("sliding_window", "non_causal", "sink", "soft_cap"),
)
_LENGTHS = ("query_len", "seq_len", "has_context")
_MLA_SIZES = ("qk_nope_head_dim", "v_head_dim", "num_heads")
PLAIN_FIELDS = (*_ALWAYS, "v_head_size", "gqa_group", "num_heads", "num_kv_heads", *_LENGTHS)
MLA_FIELDS = (*_ALWAYS, *_MLA_SIZES, *_LENGTHS)
SPARSE_FIELDS = (*_ALWAYS, *_MLA_SIZES, "index_topk", "dense_prefill", *_LENGTHS)
"""Every field that reaches a kernel, for each kind of layer."""

_KIND = ("mla", "sparse")
"""What an entry is for: a layer of another kind is another question, with other fields."""

NOT_STATED = "not stated"
"""The reason that loading gives where an entry does not mention a feature."""


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


class _Finder:
    """The cases of one phase of one entry."""

    def __init__(
        self, manifest: Manifest, entry: Entry, device: Device, facts: Facts, phase: Phase
    ) -> None:
        self.asked = Questions(manifest, entry, device, facts, phase)
        self.entry, self.phase, self.spec = entry, phase, entry.phases[phase]
        self.words = manifest.vocabulary
        self.reach = Reach() if device.platform == "cpu" else CUDA
        self.varied: tuple[str, ...] = PLAIN_FIELDS
        if entry.mla:
            self.varied = SPARSE_FIELDS if entry.sparse else MLA_FIELDS
        self.untested: list[Untested] = []

    def obstacle(self) -> str:
        """Why nothing of this entry can run here; empty when something can."""
        asked = self.asked.ask(self.asked.base())
        if asked is None:
            return "accepts no question that can exist"
        verdict = self.asked.judge(asked)
        blocking = [r for r in verdict.rejections if r.field in ("platform", "capability")]
        if verdict.outcome is Outcome.UNAVAILABLE:
            blocking += verdict.rejections
        return _plain(blocking[0]) if blocking else ""

    def cases(self) -> Iterator[Case]:
        """Yields every case, some perhaps twice."""
        base = self.asked.base()
        yield from self._case(base, "base", "")
        yield from self._mixed_case(base)
        for name in self.varied:
            accepted = self.spec.accepts.get(name)
            for values in self._bases(base, name, accepted):
                inside, outside = self._values_around(name, values, accepted)
                for value in (*inside, *outside):
                    changed = self.asked.change(values, name, value)
                    if changed is not None:
                        text = show(self.words.fields[name], value)
                        yield from self._case(changed, name, text)
        for constraint in self.spec.constraints:
            yield from self._constraint_cases(base, constraint)
        for name, accepted in self.spec.accepts.items():
            stated = any(rule.reason != NOT_STATED for rule in accepted.rules)
            if name in FEATURES and stated:
                self._leave_out(name, accepted.rules[0].position, "no adapter can ask it")
            elif name not in (*self.varied, *_KIND) and stated:
                self._leave_out(name, accepted.rules[0].position, "reaches no kernel")

    # -- values ------------------------------------------------------------------------------

    def _bases(
        self, base: Values, name: str, accepted: FirstMatch[Test] | None
    ) -> Iterator[Values]:
        """The base, steered to where each rule of a set chosen by cases decides."""
        if accepted is None or len(accepted.rules) == 1:
            yield base
            return
        for index, rule in enumerate(accepted.rules):
            values = self.asked.steer(base, rule.when)
            earlier = tuple(r.when for r in accepted.rules[:index])
            values = values and self.asked.steer_clear(values, earlier)
            question = values and self.asked.ask(values)
            decides = question and accepted.matches(question)[:1]
            if values and decides and decides[0].rule is rule:
                yield values
            else:
                self._leave_out(name, rule.position, "no question on this device reaches this rule")

    def _values_around(
        self, name: str, values: Values, accepted: FirstMatch[Test] | None
    ) -> tuple[list[Value], list[Value]]:
        """Members at the edges of what a field may be, and non-members just outside."""
        universe = self.words.fields[name].universe()
        allowed = universe if accepted is None else self.asked.allowed(values, accepted)
        if allowed is None:
            return [], []
        limit = self.reach.limits.get(name)
        if name == "query_len" and self.phase is Phase.DECODE:
            limit = self.asked.threshold(values)
        if limit is not None:
            beyond = [s.high for s in (allowed & universe).spans if s.high and s.high > limit]
            if beyond and accepted is not None:
                why = f"{max(beyond):,} is beyond the largest run here, {limit:,}"
                self._leave_out(name, accepted.rules[0].position, why)
            universe &= Domain.between(None, limit) | Domain(names=universe.names)
        rungs, outer = self.reach.rungs.get(name, LADDER), name in self.reach.outer
        if name == "head_size" and self.entry.mla:
            rungs = self.reach.rungs.get("latent", LADDER)
        ends = accepted is not None or not outer
        return edges(allowed & universe, universe - allowed, rungs, outer, ends)

    # -- cases -------------------------------------------------------------------------------

    def _case(
        self, values: Values, name: str, text: str, claim: Position | None = None
    ) -> Iterator[Case]:
        """Yields the case that these values make, unless no such question exists."""
        asked = self.asked.ask(values)
        batch = None if asked is None else self.asked.batch(asked, [lengths_of(values)])
        if asked is None or batch is None:
            return
        verdict = self.asked.judge(asked)
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
        yield Case(self.entry.name, self.phase, name, text, claim, accepts, batch, reason)

    def _mixed_case(self, base: Values) -> Iterator[Case]:
        """Yields one case with requests of several lengths, where the entry accepts several."""
        query_len, seq_len = lengths_of(base)
        wanted = [(query_len, seq_len), (1, 1), (query_len, query_len), (query_len, seq_len + 231)]
        if self.phase is Phase.PREFILL:
            wanted.append((query_len // 2 + 1, seq_len))
        taken: list[tuple[int, int]] = []
        for lengths in dict.fromkeys(wanted):
            asked = self.asked.ask({**base, **dict(zip(LENGTHS, lengths, strict=True))})
            if asked and self.asked.judge(asked).outcome is not Outcome.UNSUPPORTED:
                taken.append(lengths)
        asked = self.asked.ask(base)
        batch = self.asked.batch(asked, taken) if asked and len(taken) > 1 else None
        if batch is not None:
            at = self.entry.position
            yield Case(self.entry.name, self.phase, "requests", "mixed", at, True, batch)

    def _constraint_cases(self, base: Values, constraint: Constraint) -> Iterator[Case]:
        """Yields a case where the constraint is met, and one for each way to break it."""
        within = self.asked.steer(base, constraint.when)
        question = within and self.asked.ask(within)
        if not within or not question:
            why = "no question on this device reaches this constraint"
            self._leave_out(constraint.code, constraint.position, why)
            return
        if not constraint.require.tests and not constraint.any_of:
            yield from self._case(within, constraint.code, "broken", constraint.position)
            return
        for either in constraint.any_of or (When(),):
            met = self.asked.steer(within, When((*constraint.require.tests, *either.tests)))
            if met is not None:
                yield from self._case(met, constraint.code, "met", constraint.position)
        required = (constraint.require, *constraint.any_of)
        for test in (test for when in required for test in when.tests):
            universe = self.words.fields[test.field].universe()
            outside = universe - test.allowed.within(question)[1]
            for value in (*near(outside, question.known(test.field)), *names(outside)):
                broken = self.asked.change(within, test.field, value)
                if broken is not None:
                    yield from self._case(broken, constraint.code, "broken", constraint.position)

    def _leave_out(self, name: str, claim: Position, why: str) -> None:
        self.untested.append(Untested(self.entry.name, self.phase, name, claim, why))


def _plain(rejection: Rejection) -> str:
    return f"{rejection.field} is {rejection.observed}, not {rejection.allowed}"
