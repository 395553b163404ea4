"""What was said of every entry that was not chosen, with the lines that say it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from selector.changes.case import USABLE, Case, choice_of, list_of, verdict_of
from selector.manifest import Manifest
from selector.report.text import BLANK, GLUE, Line, Part, faint, grid, joined, line, strong
from selector.report.wording import (
    Places,
    capabilities_words,
    conditions_words,
    kind_words,
    listed,
    ordinal,
    reasons,
)
from selector.values import Candidate, Code, Outcome, Phase, Position, Rejection, Verdict

__all__ = ["Refusals", "Row", "no_platform"]

_ORDER = (
    Outcome.SELECTED,
    Outcome.ELIGIBLE,
    Outcome.CONDITIONAL,
    Outcome.UNAVAILABLE,
    Outcome.PINNED,
    Outcome.DENIED,
    Outcome.UNSUPPORTED,
)
_RUNS_ON = ("platform", "capability")
_KIND = ("mla", "sparse")
_LONGEST = 74
"""Characters of a short row after the name, not counting ``+n more``."""

Row = tuple[str, Line]
"""An entry's name and what is said of it."""


class Refusals:
    """Puts verdicts in words.

    Args:
        manifest: whose entries were judged.
        places: how its files are named.
    """

    def __init__(self, manifest: Manifest, places: Places) -> None:
        self.manifest = manifest
        self.places = places

    @property
    def legend(self) -> Line:
        """What ``:198`` means."""
        return line(faint(f"(:n is a line of {self.places.file(self.manifest.ref.file)})"))

    def rows(self, case: Case) -> list[Row]:
        """Each entry that is not chosen in some phase, on one short line.

        What could run comes first, then what is refused for the fewest reasons; entries for
        another kind of layer come last.
        """
        needed = case.resolution.needed
        found: list[tuple[tuple[bool, int, int], Row]] = []
        for candidate in case.resolution.candidates:
            verdicts = {p: verdict_of(candidate, p) for p in needed}
            left = {p: v for p, v in verdicts.items() if v.outcome is not Outcome.SELECTED}
            if left:
                words = self._short(case, candidate, tuple(left))
                (first, verdict), *more = left.items()
                if len(needed) > 1 and not more and not _is_unserved(verdict):
                    words = line(faint(f"{first}: "), words)  # the other phase is chosen
                found.append((_nearness(left.values()), (candidate.backend, words)))
        return [row for _, row in sorted(found, key=lambda one: one[0])]

    def lines(self, rows: Sequence[Row], of: str = "") -> list[Line]:
        """The rows under their title; nothing when there are none."""
        if not rows:
            return []
        more = any(words.pieces[-1].text.endswith(" more") for _, words in rows)
        tail = [faint("  all: `attnsel explain`")] if more else []
        head = line("  ", strong("not chosen"), of, "  ", self.legend, *tail)
        shown: list[list[Part]] = [[name, words] for name, words in rows]
        return [BLANK, head, *grid(shown, indent=4, gap=2)]

    def words(self, case: Case, candidate: Candidate, phases: Sequence[Phase]) -> Line:
        """All that was said of a candidate; once, where the phases agree."""
        return joined(self._parts(case, candidate, phases, brief=False))

    def reasons(
        self, case: Case, rejections: Sequence[Rejection], brief: bool = False
    ) -> Iterator[Line]:
        """Yields each reason with its line; a denial by the caller has none."""
        for text, position in reasons(rejections, case.assumed, brief):
            if text.removeprefix("denied: ") in case.inquiry.policy.deny.values():
                yield line(text)
            else:
                yield line(text, GLUE, faint(self.place(position)))

    def place(self, position: Position) -> str:
        """``:198`` in the manifest itself; with the file, elsewhere."""
        if position.file == self.manifest.ref.file:
            return f":{position.line}"
        return self.places.at(position)

    # -- one short line --------------------------------------------------------------------------

    def _short(self, case: Case, candidate: Candidate, phases: Sequence[Phase]) -> Line:
        """Where it never runs and which layers it serves, if that decides; else some reasons."""
        verdicts = [verdict_of(candidate, p) for p in phases]
        served = [v.rejections for v in verdicts if not _is_unserved(v)]
        device = next((r for said in served for r in said if r.field in _RUNS_ON), None)
        if not all(any(r.field in _RUNS_ON for r in said) for said in served):
            device = None
        if served and all(any(r.field in _KIND for r in said) for said in served):
            return self._kind(case, candidate, served[0], device)
        if device is not None:
            return next(self.reasons(case, [device]))
        parts = self._parts(case, candidate, phases, brief=True)
        full = self._parts(case, candidate, phases, brief=False)
        if len(parts) == 1:
            return full[0] if full[0].width <= _LONGEST else parts[0]
        fitting = [parts[0]]
        for part in parts[1:]:
            if joined([*fitting, part]).width > _LONGEST:
                break
            fitting.append(part)
        left = len(parts) - len(fitting)
        return joined([*fitting, *([faint(f"+{left} more")] if left else [])])

    def _kind(
        self, case: Case, candidate: Candidate, said: Sequence[Rejection], device: Rejection | None
    ) -> Line:
        """``sparse MLA layer; plain only :80``; before it, where the entry never runs here."""
        entry = self.manifest.entries[candidate.backend]
        layer = case.resolution.layer
        sparse = layer.get("sparse") is True
        seen = kind_words(layer.get("mla") is True, sparse)
        served = kind_words(entry.mla, entry.sparse)
        if served == "MLA" and sparse:
            served = "dense MLA"
        at = next(r.position for r in said if r.field in _KIND)
        words = line(f"{seen} layer; serves {served} only{GLUE}", faint(self.place(at)))
        if device is None:
            return words
        has = capabilities_words(device.allowed or "")
        where = line(
            f"{device.observed}; has {has}{GLUE}", faint(self.place(device.position)), " · "
        )
        return line("arch ", where, f"{seen} layer; {served} only{GLUE}", faint(self.place(at)))

    # -- all that was said -----------------------------------------------------------------------

    def _parts(
        self, case: Case, candidate: Candidate, phases: Sequence[Phase], brief: bool
    ) -> list[Line]:
        """All that was said of a candidate, in parts; what the phases share, once and first."""
        served = [p for p in phases if not _is_unserved(verdict_of(candidate, p))]
        parts: list[Line] = []
        if len(served) < len(phases):
            only = listed([p.value for p in Phase if p in self._entry_phases(candidate)], "and")
            parts.append(line(f"serves {only} only{GLUE}", faint(self.place(candidate.position))))
        if not served:
            return parts
        if all(verdict_of(candidate, p).outcome in USABLE for p in served):
            return [*parts, *self._usable(case, candidate, served)]
        said = {phase: tuple(self._said(case, candidate, phase, brief)) for phase in served}
        first = said[served[0]]
        common = [words for words in first if all(words in other for other in said.values())]
        parts += common
        for phase, each in said.items():
            parts += [line(faint(f"{phase}: "), w) for w in each if w not in common]
        return parts

    def _entry_phases(self, candidate: Candidate) -> Collection[Phase]:
        return self.manifest.entries[candidate.backend].phases

    def _said(self, case: Case, candidate: Candidate, phase: Phase, brief: bool) -> Iterator[Line]:
        verdict = verdict_of(candidate, phase)
        if verdict.outcome in USABLE:
            yield from self._usable(case, candidate, [phase])
        yield from self.reasons(case, verdict.rejections, brief)

    def _usable(self, case: Case, candidate: Candidate, phases: Sequence[Phase]) -> Iterator[Line]:
        """Yields that a candidate could run, on what that depends, and its place in the list."""
        said = {p: _status(verdict_of(candidate, p)) for p in phases}
        places = {p: self._rank(case, candidate.backend, p) for p in phases}
        if len(set(said.values())) > 1:
            for phase in phases:
                yield line(faint(f"{phase}: "), f"{said[phase]}{places[phase]}")
            return
        status = said[phases[0]]
        if len(set(places.values())) == 1 or status == "chosen":
            yield line(f"{status}{places[phases[0]]}")
            return
        ranks = [f"{at.lstrip(',; ')} for {phase}" for phase, at in places.items() if at]
        yield line(f"{status}; {', '.join(ranks)}")

    def _rank(self, case: Case, backend: str, phase: Phase) -> str:
        choice = choice_of(case.resolution, phase)
        if choice.backend == backend:
            return ""
        found = list_of(choice, self.manifest)
        if found is None:
            return ""
        order = found.orders.get(phase, ())
        if backend not in order:
            return "; in no list that applies here, so only when forced"
        return f", {ordinal(order.index(backend) + 1)} of {choice.of}"


def no_platform(case: Case) -> str | None:
    """That no entry serves the platform at all, and which ones they serve; else ``None``."""
    candidates = case.resolution.candidates
    served: dict[str, None] = {}
    for candidate in candidates:
        refused = [r for v in (candidate.prefill, candidate.decode) for r in v.rejections]
        found = [r for r in refused if r.field == "platform"]
        if not found:
            return None
        served |= dict.fromkeys(name for r in found for name in (r.allowed or "").split(", "))
    if not candidates:
        return None
    platform = case.resolution.device.platform
    return f"no entry serves {platform}; they serve {listed(sorted(served), 'and')}"


def _status(verdict: Verdict) -> str:
    if verdict.outcome is Outcome.SELECTED:
        return "chosen"
    if not verdict.conditions:
        return "eligible"
    return f"eligible if {' and '.join(conditions_words(verdict.conditions))}"


def _nearness(verdicts: Collection[Verdict]) -> tuple[bool, int, int]:
    """The right kind first, then what could run, then what is refused for the fewest reasons."""
    said = [v for v in verdicts if not _is_unserved(v)] or list(verdicts)
    refused = {r for v in said for r in v.rejections}
    other_kind = any(r.field in _KIND for r in refused)
    return other_kind, min(_ORDER.index(v.outcome) for v in said), len(refused)


def _is_unserved(verdict: Verdict) -> bool:
    return any(r.code == Code.PHASE for r in verdict.rejections)
