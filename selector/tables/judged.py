"""Verdicts of every entry, where many questions ask alike: a rule is asked once for each value.

The rules of a manifest read few fields each, and many read the same ones. What the rules that
read the same fields say to their values is kept for all entries together, so that a question
costs a lookup for each such group of fields. The verdicts are those of :mod:`selector.judge`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from selector.asking import with_request
from selector.binding import Bound
from selector.choose import choose
from selector.domains import Value
from selector.judge import Heard, Judged, Rule, Said, judge, said_of, weigh
from selector.manifest import Entry, Manifest, PhaseSpec
from selector.plan.memo import remember
from selector.resolve import answer
from selector.rules import Question
from selector.values import Facts, Policy, Request, Resolution

__all__ = ["Judge"]

_MOST_VALUES = 1 << 12

_Words = list[tuple[int, tuple[int, Heard]]]
"""Which spec, and what one of its rules says, with the rule's place."""


class _Placed(NamedTuple):
    """A rule, the spec it belongs to, its place there, and who states it."""

    spec: int
    place: int
    rule: Rule
    source: str


class _Group:
    """The rules that read the same fields."""

    def __init__(self, reads: tuple[str, ...], mixed: bool) -> None:
        self.reads = reads
        self.rules: list[_Placed] = []
        self._mixed = mixed
        self._known: dict[tuple[object, ...], _Words] = {}

    def hear(self, asked: Question) -> _Words:
        """What the rules say that say anything."""
        values = asked.plain(self.reads)
        if values is None:
            return self._weigh(asked)
        key: tuple[object, ...] = tuple(values)
        if self._mixed:  # 1 is no true
            key = (*key, *map(type, values))
        found = self._known.get(key)
        if found is None:
            said = zip(self.reads, values, strict=True)
            known: dict[str, Value] = {name: value for name, value in said if value is not None}
            found = self._weigh(Question(asked.vocabulary, known))
            remember(self._known, key, found, _MOST_VALUES)
        return found

    def _weigh(self, asked: Question) -> _Words:
        found: _Words = []
        for one in self.rules:
            heard = weigh(one.rule, one.source, asked)
            if any(heard):
                found.append((one.spec, (one.place, heard)))
        return found


class Judge:
    """Judges questions to one manifest."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._specs: dict[int, int] = {}
        groups: dict[tuple[str, ...], _Group] = {}
        for entry in manifest.entries.values():
            for spec in entry.phases.values():
                self._add(entry, spec, groups)
        self._groups = [*groups.values()]

    def _add(self, entry: Entry, spec: PhaseSpec, groups: dict[tuple[str, ...], _Group]) -> None:
        number = self._specs[id(spec)] = len(self._specs)
        named = [(rule, entry.sources.get(name, "")) for name, rule in spec.accepts.items()]
        stated: list[tuple[Rule, str]] = [*named, *((rule, "") for rule in spec.constraints)]
        for place, (rule, source) in enumerate(stated):
            reads = tuple(sorted({*rule.reads}))
            if reads not in groups:
                groups[reads] = _Group(reads, not self.manifest.derive.keys().isdisjoint(reads))
            groups[reads].rules.append(_Placed(number, place, rule, source))

    def resolve(self, bound: Bound, request: Request) -> Resolution:
        """The resolution of one request, alone in its batch, without notes on the device.

        Raises:
            UnknownBackendError: the policy names a backend that is not in the manifest.
        """
        manifest, facts, policy = self.manifest, bound.facts, bound.policy
        for name in policy.deny:
            manifest.entry(name)
        asked = with_request(manifest, bound.question, request)
        judged = self.judge_all(asked, facts, policy)
        chosen = choose(manifest, asked, judged, policy)
        return answer(manifest, bound.device, asked, request, chosen, judged, facts, policy)

    def judge_all(self, asked: Question, facts: Facts, policy: Policy) -> Judged:
        """Every entry's verdict in every phase."""
        heard: dict[int, list[tuple[int, Heard]]] = defaultdict(list)
        for group in self._groups:
            for spec, words in group.hear(asked):
                heard[spec].append(words)

        def listen(_: Manifest, __: Entry, spec: PhaseSpec, ___: Question) -> Said:
            return said_of(spec, heard.get(self._specs[id(spec)], []))

        return {
            entry.name: judge(self.manifest, entry, asked, facts, policy, listen)
            for entry in self.manifest.entries.values()
        }
