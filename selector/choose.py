"""Choosing: the prefill and the decode backend, from what each entry says by itself.

The first pair in priority order that agrees is chosen, decode leading; when none agrees, decode is
chosen alone. What may be so is taken to be so, and named among the conditions. A choice without
conditions is the same whatever the unknown turns out to be.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import msgspec

from selector.domains import Domain
from selector.judge import Judged, judge
from selector.manifest import Entry, Joint, Manifest
from selector.rules import Answer, FirstMatch, Match, Question, Rule, When
from selector.values import (
    Choice,
    Code,
    Condition,
    Facts,
    Outcome,
    Phase,
    Policy,
    Position,
    Rejection,
    Verdict,
)

__all__ = ["choosable", "choose", "dense_backend"]

_USABLE = (Outcome.ELIGIBLE, Outcome.CONDITIONAL)
_NOTHING = Choice(None)


class _Option(msgspec.Struct, frozen=True):
    """What can be chosen in a phase, and whether it would do for certain."""

    choice: Choice
    certain: bool

    @property
    def name(self) -> str:
        return str(self.choice.backend)


class _List(msgspec.Struct, frozen=True):
    """One priority list that can be the first to hold, and what can be chosen from it, in order."""

    names: tuple[str, ...]
    options: tuple[_Option, ...]


_Lists = tuple[_List, ...]


def _options(lists: _Lists) -> Iterator[_Option]:
    return chain.from_iterable(one.options for one in lists)


def choose(
    manifest: Manifest, asked: Question, judged: Judged, policy: Policy
) -> tuple[Choice, Choice]:
    """The prefill and the decode choice.

    Candidates that cannot work beside the choice are marked ``UNSUPPORTED`` in ``judged``.
    """
    pairs = _Pairs(manifest, asked)
    decodes = _lists(manifest, asked, judged, policy, Phase.DECODE)
    prefills = _lists(manifest, asked, judged, policy, Phase.PREFILL)
    prefill, decode = _first_pair(decodes, prefills, pairs)
    leading = _possible_decodes(decodes, prefills, pairs)
    following = _possible_prefills(prefills, leading, pairs)
    if leading == [decode.backend] and decode.backend is not None:
        _refuse_others(judged, pairs, decode.backend, prefills)
    tied = any(pairs.agree(p, d) is not Answer.YES for p in following for d in leading)
    doubts = pairs.conditions(prefill.backend, decode.backend)
    both = (*prefill.conditions, *doubts, *decode.conditions) if tied else ()
    return (
        _settled(prefill, prefills, following, (*prefill.conditions, *both)),
        _settled(decode, decodes, leading, (*decode.conditions, *both)),
    )


def _first_pair(decodes: _Lists, prefills: _Lists, pairs: _Pairs) -> tuple[Choice, Choice]:
    for decode in _options(decodes):
        for prefill in _options(prefills):
            if pairs.agree(prefill.name, decode.name) is not Answer.NO:
                return prefill.choice, decode.choice
    for decode in _options(decodes):
        return _NOTHING, decode.choice
    for prefill in _options(prefills):
        return prefill.choice, _NOTHING
    return _NOTHING, _NOTHING


def _settled(
    choice: Choice,
    lists: _Lists,
    possible: list[str | None],
    conditions: tuple[Condition, ...],
) -> Choice:
    """The choice with all that can be chosen instead; certain when that is nothing else."""
    others = [name for name in possible if name not in (None, choice.backend)]
    names = [name for name in (choice.backend, *others) if name is not None]
    certain = possible == [choice.backend]
    return msgspec.structs.replace(
        choice,
        possible=tuple(names),
        tried=lists[0].names if len(lists) == 1 else None,
        conditions=() if certain else tuple(dict.fromkeys(conditions)),
    )


def _possible_decodes(decodes: _Lists, prefills: _Lists, pairs: _Pairs) -> list[str | None]:
    """Every decode backend that can be the choice, first choice first; ``None`` for none."""
    found: dict[str | None, None] = {}
    for one in decodes:
        for option in one.options:
            partner = _has_partner(option.name, prefills, pairs)
            if partner is not Answer.NO:
                found[option.name] = None
            if option.certain and partner is Answer.YES:
                break
        else:  # perhaps no pair agrees: then decode is chosen alone
            found.update(dict.fromkeys(_until_certain(one.options)))
    return list(found)


def _has_partner(decode: str, prefills: _Lists, pairs: _Pairs) -> Answer:
    """Whether some prefill backend that can be chosen agrees with a decode backend."""
    if all(
        any(o.certain and pairs.agree(o.name, decode) is Answer.YES for o in one.options)
        for one in prefills
    ):
        return Answer.YES
    some = (pairs.agree(o.name, decode) is not Answer.NO for o in _options(prefills))
    return Answer.MAYBE if any(some) else Answer.NO


def _possible_prefills(
    prefills: _Lists, leading: list[str | None], pairs: _Pairs
) -> list[str | None]:
    """Every prefill backend that can be the choice, first choice first; ``None`` for none."""
    found: dict[str | None, None] = {}
    for decode in leading:
        for one in prefills:
            agreeing = [
                _Option(o.choice, o.certain and pairs.agree(o.name, decode) is Answer.YES)
                for o in one.options
                if pairs.agree(o.name, decode) is not Answer.NO
            ]
            found.update(dict.fromkeys(_until_certain(agreeing)))
    return list(found)


def _until_certain(options: list[_Option] | tuple[_Option, ...]) -> Iterator[str | None]:
    for option in options:
        yield option.name
        if option.certain:
            return
    yield None


# -- the lists -----------------------------------------------------------------------------------


def _lists(
    manifest: Manifest, asked: Question, judged: Judged, policy: Policy, phase: Phase
) -> _Lists:
    """For each list that can be the first to hold: its entries that are usable in a phase."""
    found: list[_List] = []
    earlier: tuple[Condition, ...] = ()
    matches = _orders(manifest, asked, policy, phase)
    for match in matches:
        doubts = (*earlier, *(test.condition(asked) for test in match.doubts))
        earlier += tuple(test.counter(asked) for test in match.doubts)
        options = tuple(_usable(match.rule, doubts, judged, phase))
        found.append(_List(match.rule.result, options))
    if not matches or matches[-1].doubts:  # perhaps no list holds
        found.append(_List((), ()))
    return tuple(found)


def _usable(
    rule: Rule[tuple[str, ...]], doubts: tuple[Condition, ...], judged: Judged, phase: Phase
) -> Iterator[_Option]:
    for place, name in enumerate(rule.result, 1):
        verdict = judged[name][phase]
        if verdict.outcome in _USABLE:
            choice = Choice(
                backend=name,
                rule=rule.position,
                reason=rule.reason,
                source=rule.source or None,
                rank=place if rule.position.line else 0,
                of=len(rule.result),
                conditions=(*doubts, *verdict.conditions),
            )
            yield _Option(choice, verdict.outcome is Outcome.ELIGIBLE)


def _orders(
    manifest: Manifest, asked: Question, policy: Policy, phase: Phase
) -> tuple[Match[tuple[str, ...]], ...]:
    forced = manifest.forced(policy, phase)
    if forced is not None:
        position = Position("policy", 0, 0)
        return (Match(Rule(When(), (forced,), position, "forced by the caller")),)
    lists = (
        Rule(p.when, p.orders[phase], p.position, p.reason, p.source)
        for p in manifest.priorities
        if phase in p.orders
    )
    return FirstMatch(tuple(lists)).matches(asked)


def choosable(manifest: Manifest, asked: Question, policy: Policy) -> frozenset[str]:
    """The entries that a list names which can be the first to hold, or that are forced."""
    return frozenset(
        name
        for phase in Phase
        for match in _orders(manifest, asked, policy, phase)
        for name in match.rule.result
    )


def dense_backend(
    manifest: Manifest, asked: Question, facts: Facts, policy: Policy
) -> tuple[Answer, str | None]:
    """The prefill backend that the priorities give for the same layer, were it not sparse.

    Returns:
        Whether there is one, and which, where that is certain.
    """
    dense = asked.plus({"sparse": False}).derived(manifest.derive)
    free = Policy(deny=policy.deny)
    orders = _orders(manifest, dense, free, Phase.PREFILL)
    names = dict.fromkeys(name for match in orders for name in match.rule.result)
    judged = {n: judge(manifest, manifest.entries[n], dense, facts, free) for n in names}
    lists = _lists(manifest, dense, judged, free, Phase.PREFILL)
    firsts = {one.options[0] if one.options else None for one in lists}
    only = firsts.pop() if len(firsts) == 1 else None
    name = only.name if only and only.certain else None
    if all(any(option.certain for option in one.options) for one in lists):
        return Answer.YES, name
    return (Answer.MAYBE if any(one.options for one in lists) else Answer.NO), None


# -- what two backends must share ----------------------------------------------------------------


class _Agreement(msgspec.Struct, frozen=True):
    """Whether two backends can work on one KV cache: why not, or on what that depends."""

    answer: Answer
    conditions: tuple[Condition, ...] = ()
    joint: Joint | None = None
    shared: str = ""


_AGREED = _Agreement(Answer.YES)


class _Pairs:
    """What pairs of backends say to the ``joint`` rules; each pair is looked at once."""

    def __init__(self, manifest: Manifest, asked: Question) -> None:
        self.manifest = manifest
        self.asked = asked
        self._seen: dict[tuple[str, str], _Agreement] = {}

    def agree(self, prefill: str | None, decode: str | None) -> Answer:
        """Whether they can work together; nothing agrees with everything."""
        return self._of(prefill, decode).answer

    def conditions(self, prefill: str | None, decode: str | None) -> tuple[Condition, ...]:
        """On what it depends whether they agree."""
        return self._of(prefill, decode).conditions

    def rejection(self, prefill: str, decode: str, phase: Phase) -> Rejection:
        """Why one of them, the one in ``phase``, cannot work beside the other."""
        agreement = self._of(prefill, decode)
        assert agreement.joint is not None
        entries = (self.manifest.entries[prefill], self.manifest.entries[decode])
        mine, other = entries if phase is Phase.PREFILL else entries[::-1]
        runs = "decode" if phase is Phase.PREFILL else "prefill"
        return Rejection(
            code=Code.JOINT,
            position=agreement.joint.position,
            field=agreement.shared,
            observed=self._text(agreement.shared, mine),
            allowed=f"{self._text(agreement.shared, other)} ({runs} runs {other.name})",
            reason=agreement.joint.reason,
            source=agreement.joint.source or None,
        )

    def _of(self, prefill: str | None, decode: str | None) -> _Agreement:
        if prefill is None or decode is None or not self.manifest.joint:
            return _AGREED
        if (prefill, decode) not in self._seen:
            a, b = self.manifest.entries[prefill], self.manifest.entries[decode]
            self._seen[prefill, decode] = self._compare(a, b)
        return self._seen[prefill, decode]

    def _compare(self, prefill: Entry, decode: Entry) -> _Agreement:
        conditions: list[Condition] = []
        for joint in self.manifest.joint:
            applies = joint.when.answer(self.asked)
            if applies is Answer.NO:
                continue
            for shared in joint.same:
                same = self._same(shared, prefill, decode)
                if same is Answer.NO and applies is Answer.YES:
                    return _Agreement(Answer.NO, (), joint, shared)
                if same is Answer.MAYBE:
                    wanted = f"{self._text(shared, decode)} for {prefill.name}"
                    conditions.append(Condition(shared, wanted, joint.position))
                elif same is Answer.NO:
                    conditions += [t.counter(self.asked) for t in joint.when.doubtful(self.asked)]
        return _Agreement(Answer.MAYBE, tuple(conditions)) if conditions else _AGREED

    def _same(self, shared: str, prefill: Entry, decode: Entry) -> Answer:
        if shared == "backend":
            return Answer.YES if prefill.name == decode.name else Answer.NO
        if shared == "kv_layout":
            a, b = prefill.kv_layout, decode.kv_layout
            return Answer.NO if a and b and a.isdisjoint(b) else Answer.YES
        if prefill is decode or (shared not in prefill.coerce and shared not in decode.coerce):
            return Answer.YES  # whatever it is
        here, there = self._values(shared, prefill), self._values(shared, decode)
        if (here & there).is_empty():
            return Answer.NO
        return Answer.MAYBE if here.only() is None or here != there else Answer.YES

    def _values(self, shared: str, entry: Entry) -> Domain:
        return entry.coerced(self.asked).possible(shared)

    def _text(self, shared: str, entry: Entry) -> str:
        if shared == "backend":
            return entry.name
        if shared == "kv_layout":
            return ", ".join(sorted(entry.kv_layout))
        return entry.coerced(self.asked).text(shared)


def _refuse_others(judged: Judged, pairs: _Pairs, decode: str, prefills: _Lists) -> None:
    """Marks prefills that clash with the decode choice, and decodes that no prefill goes with."""
    paired = _has_partner(decode, prefills, pairs) is Answer.YES
    for name, verdicts in judged.items():
        for phase in (p for p in Phase if verdicts[p].outcome in _USABLE):
            if phase is Phase.PREFILL:
                clashes = pairs.agree(name, decode) is Answer.NO
            else:
                clashes = paired and _has_partner(name, prefills, pairs) is Answer.NO
            if clashes:
                prefill = name if phase is Phase.PREFILL else next(_options(prefills)).name
                other = decode if phase is Phase.PREFILL else name
                rejection = pairs.rejection(prefill, other, phase)
                alone = all(verdict.outcome in _USABLE for verdict in verdicts.values())
                if rejection.field == "backend" and alone:
                    continue  # it would go with itself; another one is only preferred
                verdicts[phase] = Verdict(Outcome.UNSUPPORTED, (rejection,))
