"""What must never happen: proved over all questions, or refuted with one that shows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial

import msgspec

from selector.analysis.bounds import upper_bound
from selector.analysis.diagram import Decision, Outcome
from selector.analysis.examples import Example, Shows, breaks, example_of, is_eligible
from selector.analysis.faults import Fault, faults_of
from selector.analysis.gaps import Rivals, Totals, accepted_by, is_named, rivals_of
from selector.analysis.routes import Suspicion, suspicions_of
from selector.analysis.survey import BUDGET, Part, Region, Survey
from selector.binding import Selector
from selector.domains import Domain
from selector.fields import ABSENT
from selector.manifest import Invariant, Manifest
from selector.paths import decode_path
from selector.plan.terms import DEVICE_FIELDS, Term
from selector.values import Phase, Position, Resolution

__all__ = ["LISTED", "REACHABLE", "Hidden", "Proof", "Verdict", "prove_all"]

REACHABLE = "every backend that a priority list names can be chosen"
LISTED = "no backend is chosen for an architecture that it does not list"

_TRIES = 6

Breaks = Callable[[Decision], bool]


class Verdict(StrEnum):
    """What came out."""

    PROVED = "proved"
    REFUTED = "refuted"
    UNDECIDED = "not decided"


class Hidden(msgspec.Struct, frozen=True):
    """A backend that is named and never chosen; ``said``: an invariant says so and was proved."""

    backend: str
    phase: Phase
    rivals: Rivals
    said: bool


class Proof(msgspec.Struct, frozen=True):
    """What is known of one promise.

    Attributes:
        name: what is promised.
        reason: why.
        position: where the manifest says so; ``None``: it is asked of every manifest.
        verdict: what came out.
        questions: how many it is about, of the kinds that were looked at.
        broken: how many of them break it.
        suspected: how many could take a path that it excludes, as far as the rule that gives the
            path was looked at.
        example: a question that breaks it.
        faults: the lines that let it happen.
        hidden: backends that are named and never chosen.
        drawn: how many questions were drawn, of the kinds with too many to look at.
        bound: the largest share of those kinds that can break it, with 95 % confidence.
        open: how many questions only the definition can tell, one by one.
    """

    name: str
    reason: str
    position: Position | None
    verdict: Verdict
    questions: int
    broken: int = 0
    suspected: int = 0
    example: Example | None = None
    faults: tuple[Fault, ...] = ()
    hidden: tuple[Hidden, ...] = ()
    drawn: int = 0
    bound: float | None = None
    open: int = 0


def prove_all(manifest: Manifest, budget: int = BUDGET) -> tuple[Proof, ...]:
    """A verdict on every invariant of a manifest, and on what is asked of every manifest.

    All of them speak of questions of which everything is known.

    Args:
        manifest: what is looked at.
        budget: how many places of diagrams may be looked at; beyond, questions are drawn.
    """
    promises = manifest.invariants
    suspicions = [tuple(suspicions_of(manifest, promise)) for promise in promises]
    whens = [promise.when for promise in promises]
    whens += [when for found in suspicions for one in found for when in one.whens]
    prover = _Prover(manifest, Survey(manifest, whens, budget))
    terms, others = prover.survey.terms[: len(promises)], iter(prover.survey.terms[len(promises) :])
    proofs = []
    for promise, term, found in zip(promises, terms, suspicions, strict=True):
        regions = [(one, one.region(term, [next(others) for _ in one.whens])) for one in found]
        proofs.append(prover.invariant(promise, term, regions))
    return (*proofs, *prover.always(proofs))


class _Tally:
    """What has been seen of one promise."""

    def __init__(self, prover: _Prover, shows: Shows) -> None:
        self._prover = prover
        self._shows = shows
        self._bound = 0.0
        self._tries = _TRIES
        self.questions = self.broken = self.suspected = self.drawn = self.open = 0
        self.prefills: set[str | None] = set()
        self.example: Example | None = None

    @property
    def exact(self) -> bool:
        return not self.drawn and not self.open

    def look(self, part: Part, breaks: Breaks) -> None:
        """Counts the questions of one kind, and takes one that breaks the promise."""
        if part.drawn:
            seen = sum(n for (one,), n in part.total.items() if one is not None and breaks(one))
            self._bound = max(self._bound, upper_bound(seen, part.drawn))
            self.drawn += part.drawn
        for (decision,), number in part.total.items():
            exactly = 0 if part.drawn else number
            self.questions += exactly
            if decision is None:
                self.open += number
                continue
            self.prefills.add(decision[0])
            self.broken += exactly if breaks(decision) else 0
        self._take(part, lambda decision: decision is None or breaks(decision), ())

    def suspect(self, part: Part, backend: str, lengths: Sequence[tuple[int, int]]) -> None:
        """Counts the questions for which a backend is chosen, and takes one that shows more."""
        for (decision,), number in part.total.items():
            if decision is None or decision[0] == backend:
                self.suspected += number
        self._take(part, lambda decision: decision is None or decision[0] == backend, lengths)

    def _take(
        self,
        part: Part,
        wanted: Callable[[Decision | None], bool],
        lengths: Sequence[tuple[int, int]],
    ) -> None:
        if self.example is not None or not self._tries:
            return

        def is_wanted(outcome: Outcome | None) -> bool:
            return outcome is not None and wanted(outcome[0])

        classes = part.one(is_wanted) if any(map(is_wanted, part.total)) else None
        if classes is not None:
            self._tries -= 1
            self.example = self._prover.example(classes, self._shows, lengths)

    def proof(
        self, name: str, reason: str, position: Position | None, faults: Sequence[Fault]
    ) -> Proof:
        """The verdict."""
        verdict = Verdict.PROVED
        if self.example is not None:
            verdict = Verdict.REFUTED
        elif not self.exact or self.broken or self.suspected:
            verdict = Verdict.UNDECIDED
        return Proof(
            name=name,
            reason=reason,
            position=position,
            verdict=verdict,
            questions=self.questions,
            broken=self.broken,
            suspected=self.suspected,
            example=self.example,
            faults=tuple(faults),
            drawn=self.drawn,
            bound=self._bound if self.drawn else None,
            open=self.open,
        )


class _Prover:
    """Looks at all questions to one manifest."""

    def __init__(self, manifest: Manifest, survey: Survey) -> None:
        self.manifest = manifest
        self.survey = survey
        self.selector = Selector(manifest)

    def example(
        self,
        classes: Mapping[str, Domain],
        shows: Shows,
        lengths: Sequence[tuple[int, int]] = (),
    ) -> Example | None:
        """A question of these classes whose answer shows something."""
        return example_of(self.survey.space, self.selector, classes, shows, lengths)

    # -- invariants -------------------------------------------------------------------------------

    def invariant(
        self,
        promise: Invariant,
        term: Term | None,
        suspected: Iterable[tuple[Suspicion, Region | None]],
    ) -> Proof:
        """The verdict on what the manifest promises."""
        entries = self.manifest.entries.items()
        prefills = promise.never_backends
        decodes = prefills | {n for n, e in entries if decode_path(e) in promise.never_paths}

        def excluded(decision: Decision) -> bool:
            return decision[0] in prefills or decision[1] in decodes

        tally = _Tally(self, breaks(promise))
        for part in self.survey.parts(Region((term,))) if term is not None else ():
            tally.look(part, excluded)
        for one, region in suspected:
            if region is None or (tally.exact and one.entry.name not in tally.prefills):
                continue
            for part in self.survey.parts(region):
                tally.suspect(part, one.entry.name, one.lengths(self.manifest))
        faults = faults_of(self.selector, promise, tally.example) if tally.example else ()
        return tally.proof(promise.name, promise.reason, promise.position, faults)

    # -- what is asked of every manifest ----------------------------------------------------------

    def always(self, proofs: Sequence[Proof]) -> Iterator[Proof]:
        """Yields the verdicts on what is asked of every manifest."""
        totals, listed = Totals(), _Tally(self, lambda answer: any(self._not_listed(answer)))
        for part in self.survey.parts(Region()):
            totals.add(part)
            device = {name: part.kind.classes[name] for name in DEVICE_FIELDS}
            listed.look(part, partial(self._some_do_not_list, device))
        found = list(self._hidden(totals, proofs))
        yield self._reachable(listed, found)
        faults = list(self._not_listed(listed.example.answer)) if listed.example else []
        yield listed.proof(
            LISTED, "What an entry does not list, it was not made for.", None, faults
        )

    def _some_do_not_list(self, device: Mapping[str, Domain], decision: Decision) -> bool:
        """Whether a backend of a decision lists a device in none of its cases."""
        return any(
            name is not None and not self._lists(name, phase, device)
            for phase, name in zip(Phase, decision, strict=True)
        )

    def _lists(self, name: str, phase: Phase, device: Mapping[str, Domain]) -> bool:
        for field, values in device.items():
            accepts = self.manifest.entries[name].phases[phase].accepts.get(field)
            allowed = [rule.result.allowed for rule in accepts.rules] if accepts else []
            if allowed and all(not a.bounds and (a.fixed & values).is_empty() for a in allowed):
                return False
        return True

    def _not_listed(self, answer: Resolution) -> Iterator[Fault]:
        """Yields the chosen backends that do not list the device."""
        code = answer.device.code
        device = {
            "platform": Domain.of(answer.device.platform),
            "capability": Domain.of(ABSENT if code is None else code),
        }
        for phase, choice in ((Phase.PREFILL, answer.prefill), (Phase.DECODE, answer.decode)):
            if choice.backend is not None and not self._lists(choice.backend, phase, device):
                at = self.manifest.entries[choice.backend].position
                yield Fault(at, f"{choice.backend} does not list {answer.device}")

    def _hidden(self, totals: Totals, proofs: Sequence[Proof]) -> Iterator[Hidden]:
        """Yields what priority lists name and nothing chooses, in a phase that it is named for."""
        said = {
            name
            for promise, proof in zip(self.manifest.invariants, proofs, strict=True)
            if not promise.when.tests and proof.verdict is Verdict.PROVED
            for name in promise.never_backends
        }
        for entry in self.manifest.entries.values():
            phases = [
                phase
                for phase, spec in entry.phases.items()
                if not spec.disabled and is_named(self.manifest, entry.name, phase)
            ]
            if any(totals.ever(entry.name, phase) for phase in phases):
                continue
            if phases:
                rivals = rivals_of(self.survey, entry)
                if any(rivals[phase].chosen for phase in phases):
                    continue  # seen where more was drawn
                for phase in phases:
                    yield Hidden(entry.name, phase, rivals[phase], entry.name in said)

    def _reachable(self, seen: _Tally, found: Sequence[Hidden]) -> Proof:
        """The verdict on what priority lists name."""
        bad = [hidden for hidden in found if not hidden.said]
        names = {hidden.backend for hidden in bad}
        verdict = Verdict.PROVED
        if bad:
            verdict = Verdict.REFUTED if seen.exact else Verdict.UNDECIDED
        faults = [
            Fault(priority.position, f"this list names {name}")
            for priority in self.manifest.priorities
            for name in sorted(names.intersection(*[sum(priority.orders.values(), ())]))
        ]
        proof = seen.proof(REACHABLE, "What is never chosen is named for nothing.", None, faults)
        example = self._instead(bad) if verdict is Verdict.REFUTED else None
        return msgspec.structs.replace(
            proof,
            verdict=verdict,
            broken=len(names),
            example=example,
            hidden=tuple(found),
        )

    def _instead(self, hidden: Sequence[Hidden]) -> Example | None:
        """A question that a hidden backend would run, and for which another one is chosen."""
        for one in hidden:
            region = accepted_by(self.survey, self.manifest.entries[one.backend], one.phase)
            for part in self.survey.few_parts(region):
                classes = part.one(lambda outcome: outcome is not None)
                shows = partial(is_eligible, backend=one.backend, phase=one.phase)
                example = self.example(classes, shows) if classes is not None else None
                if example is not None:
                    return example
        return None
