"""What was said of every entry that was not chosen, with the lines that say it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from selector.changes.case import USABLE, Case, choice_of, list_of, verdict_of
from selector.manifest import Manifest
from selector.report.text import BLANK, GLUE, Line, Part, faint, grid, joined, line, strong
from selector.report.wording import Places, conditions_words, ordinal, reasons
from selector.values import Candidate, Outcome, Phase, Position, Rejection, Resolution, Verdict

__all__ = ["Refusals"]

_ORDER = (
    Outcome.SELECTED,
    Outcome.ELIGIBLE,
    Outcome.CONDITIONAL,
    Outcome.UNAVAILABLE,
    Outcome.PINNED,
    Outcome.DENIED,
    Outcome.UNSUPPORTED,
)


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

    def lines(self, case: Case) -> list[Line]:
        """Every entry that is not chosen in some phase, what could run first."""
        needed = case.resolution.needed
        rows: list[tuple[tuple[int, int], list[Part]]] = []
        for candidate in case.resolution.candidates:
            verdicts = {p: verdict_of(candidate, p) for p in needed}
            left = {p: v for p, v in verdicts.items() if v.outcome is not Outcome.SELECTED}
            if left:
                words = self.words(case.resolution, candidate, tuple(left))
                (first, verdict), *more = left.items()
                if len(needed) > 1 and not more and not _is_unserved(verdict):
                    words = line(faint(f"{first}: "), words)  # the other phase is chosen
                rows.append((_nearness(left.values()), [candidate.backend, words]))
        if not rows:
            return []
        rows.sort(key=lambda row: row[0])
        head = line("  ", strong("not chosen"), "  ", self.legend)
        return [BLANK, head, *grid([cells for _, cells in rows], indent=4, gap=2)]

    def words(self, resolution: Resolution, candidate: Candidate, phases: Sequence[Phase]) -> Line:
        """All that was said of a candidate; once, where the phases agree."""
        served = [p for p in phases if not _is_unserved(verdict_of(candidate, p))]
        if served and len(served) < len(phases):
            only = line(f"serves {served[0]} only{GLUE}", faint(self.place(candidate.position)))
            return joined([only, self.words(resolution, candidate, served)])
        said = {phase: tuple(self._said(resolution, candidate, phase)) for phase in phases}
        if len(set(said.values())) == 1:
            return joined(next(iter(said.values())))
        common = [w for w in said[phases[0]] if all(w in words for words in said.values())]
        apart = [
            line(faint(f"{phase}: "), joined(w for w in words if w not in common))
            for phase, words in said.items()
            if any(w not in common for w in words)
        ]
        return joined([*common, joined(apart, " / ")])

    def _said(self, resolution: Resolution, candidate: Candidate, phase: Phase) -> Iterator[Line]:
        verdict = verdict_of(candidate, phase)
        if verdict.outcome in USABLE:
            yield self._usable(resolution, candidate, phase)
        yield from self.reasons(verdict.rejections)

    def reasons(self, rejections: Sequence[Rejection]) -> Iterator[Line]:
        """Yields each reason with its line."""
        for text, position in reasons(rejections):
            yield line(text, GLUE, faint(self.place(position)))

    def place(self, position: Position) -> str:
        """``:198`` in the manifest itself; with the file, elsewhere."""
        if position.file == self.manifest.ref.file:
            return f":{position.line}"
        return self.places.at(position)

    def _usable(self, resolution: Resolution, candidate: Candidate, phase: Phase) -> Line:
        """That a candidate could run, on what that depends, and its place in the list."""
        verdict = verdict_of(candidate, phase)
        if verdict.outcome is Outcome.SELECTED:
            return line("chosen")
        place = self._rank(resolution, candidate.backend, phase)
        if not verdict.conditions:
            return line("eligible", place)
        wanted = " and ".join(conditions_words(verdict.conditions))
        return line(f"eligible if {wanted}", place)

    def _rank(self, resolution: Resolution, backend: str, phase: Phase) -> str:
        choice = choice_of(resolution, phase)
        found = list_of(choice, self.manifest)
        if found is None:
            return ""
        order = found.orders[phase]
        if backend not in order:
            return "; in no list that applies here, so only when forced"
        return f", {ordinal(order.index(backend) + 1)} of {choice.of}"


def _nearness(verdicts: Collection[Verdict]) -> tuple[int, int]:
    """What could run comes first, then what is refused for the fewest reasons."""
    said = [v for v in verdicts if not _is_unserved(v)] or list(verdicts)
    refused = {r for v in said for r in v.rejections}
    return min(_ORDER.index(v.outcome) for v in said), len(refused)


def _is_unserved(verdict: Verdict) -> bool:
    return any(r.code == "PHASE" for r in verdict.rejections)
