"""A question that two manifests answer differently: with as little said as will do, and why."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from types import MappingProxyType

import msgspec

from selector.analysis.causes import Answered, Cause, Reason, reasons_of
from selector.analysis.witness import Witness
from selector.binding import Bound, Selector
from selector.errors import AttnselError
from selector.fields import ABSENT, UNSET
from selector.manifest import Manifest
from selector.plan.plan import Pick
from selector.report.asking import resolve_words, settings_of
from selector.report.wording import Places, listed, reasons
from selector.values import Facts, Layer, Position, Request

__all__ = ["Shown", "Side", "path_places", "path_positions", "reason_words", "show_question"]

_ALWAYS_SAID = ("mla", "sparse", "head_size", "dtype", "kv_cache_dtype", "attn_type")
_KINDS = ("mla", "sparse")
_FIRST = 2
"""Rejections of one backend that are said."""

Sides = tuple["Side", "Side"]
Shows = Callable[[Pick], object]


class Side(msgspec.Struct, frozen=True):
    """One of the two manifests, and the words of the command line that choose it."""

    manifest: Manifest
    chosen: tuple[str, ...]
    as_claimed: bool = False

    @property
    def name(self) -> str:
        """What it is called: as it was said, and whether its claims count."""
        said = " + ".join(w for w in self.chosen[1:] if not w.startswith("--")) or "the shipped one"
        return f"{said} as claimed" if self.as_claimed else said

    def pick(self, asked: Witness) -> Pick | None:
        """What the definition picks; ``None``: the question cannot be asked."""
        known = _known_to(self.manifest, asked)
        try:
            return Pick.of(self._bound(known).resolve_one(known.request, brief=True))
        except AttnselError:
            return None

    def answered(self, asked: Witness) -> Answered | None:
        """The whole answer; ``None``: the question cannot be asked."""
        known = _known_to(self.manifest, asked)
        try:
            bound = self._bound(known)
        except AttnselError:
            return None
        answer = bound.resolve_one(known.request)
        return Answered(self.manifest, bound.asked(known.request), answer)

    def _bound(self, asked: Witness) -> Bound:
        return Selector(self.manifest).bind(asked.device, asked.layer, asked.facts)

    def command(self, asked: Witness) -> str:
        """The command that asks it."""
        known = _known_to(self.manifest, asked)
        settings = settings_of(known, self.manifest)
        request = None if known.request == Request() else known.request
        return shlex.join(resolve_words(self.chosen, known.device, settings, request))


class Shown(msgspec.Struct, frozen=True):
    """A question to paste.

    Attributes:
        commands: that ask it of the old manifest, and of the new one.
        reasons: why the answers differ.
        answers: of both.
    """

    commands: tuple[str, str]
    reasons: tuple[Reason, ...]
    answers: tuple[Answered, Answered]


def show_question(
    sides: Sides,
    witness: Witness,
    needed: Collection[str],
    shows: Shows,
    wanted: tuple[object, ...],
) -> Shown | None:
    """The question with as little said as shows what is wanted; both were asked.

    Args:
        sides: the manifests.
        witness: the question, with everything said.
        needed: fields that are said in any case, unless they are off.
        shows: what is looked at in an answer.
        wanted: what that is in the old answer, and in the new one.

    Returns:
        ``None`` where the answers do not show it.
    """

    def holds(asked: Witness) -> bool:
        for side, expected in zip(sides, wanted, strict=True):
            pick = side.pick(asked)
            if pick is None or shows(pick) != expected:
                return False
        return True

    asked = _shortest(witness, needed, holds)
    if asked is None:
        return None
    answers = _answered(sides, asked)
    assert answers is not None
    old, new = answers
    found = reasons_of(old, new)
    if (everything := _answered(sides, witness)) is not None:  # what is unsaid may have decided
        known = {phase for reason in found for phase in reason.phases}
        more = reasons_of(*everything)
        found = found if all(known.issuperset(r.phases) for r in more) else more
    return Shown((sides[0].command(asked), sides[1].command(asked)), found, answers)


def _answered(sides: Sides, asked: Witness) -> tuple[Answered, Answered] | None:
    old, new = (side.answered(asked) for side in sides)
    return None if old is None or new is None else (old, new)


# -- the shortest question -----------------------------------------------------------------------


def _shortest(
    witness: Witness, needed: Collection[str], holds: Callable[[Witness], bool]
) -> Witness | None:
    """The question with what must be said, and of the rest no more than is needed."""
    alone = (witness.request.query_len, witness.request.seq_len) == (1, 1)
    fields, facts = witness.layer.fields, witness.facts.values
    must = [name for name in (*fields, *facts) if _is_said(name, witness, needed)]
    rest = [name for name in (*fields, *facts) if name not in must]
    for request in (Request(), witness.request) if alone else (witness.request,):

        def saying(names: Collection[str], request: Request = request) -> Witness:
            layer = {n: v for n, v in fields.items() if n in names}
            seen = {n: v for n, v in facts.items() if n in names}
            return Witness(
                witness.device,
                Layer(MappingProxyType(layer)),
                Facts(MappingProxyType(seen)),
                request,
            )

        def enough(names: Collection[str]) -> bool:
            return holds(saying(names))

        if enough(must):
            return saying(must)
        if enough([*must, *rest]):
            fewest = [*must, *_fewest(must, rest, enough)]
            return saying(fewest if enough(fewest) else [*must, *rest])
    return None


def _is_said(name: str, witness: Witness, needed: Collection[str]) -> bool:
    """Whether a reader looks for a field: what a region says, unless it is off."""
    if name in witness.facts.values:
        return name in needed
    off = witness.layer.fields[name] in (False, UNSET, ABSENT)
    return not off if name in needed or name in _KINDS else name in _ALWAYS_SAID


def _fewest(
    must: Sequence[str], rest: Sequence[str], enough: Callable[[Collection[str]], bool]
) -> list[str]:
    """Of the rest, names without which it does not do: halves are left out while it does.

    Source: U. Junker, QuickXplain, AAAI 2004.
    """
    if enough(must):
        return []
    if len(rest) == 1:
        return [*rest]
    half = len(rest) // 2
    first, second = rest[:half], rest[half:]
    kept = _fewest([*must, *second], first, enough)
    return [*kept, *_fewest([*must, *kept], second, enough)]


def _known_to(manifest: Manifest, witness: Witness) -> Witness:
    """The question without what a manifest has no word for."""
    fields = {n: v for n, v in witness.layer.fields.items() if n in manifest.vocabulary.fields}
    facts = {n: v for n, v in witness.facts.values.items() if n in manifest.facts}
    return msgspec.structs.replace(
        witness, layer=Layer(MappingProxyType(fields)), facts=Facts(MappingProxyType(facts))
    )


# -- reasons in words ----------------------------------------------------------------------------


def reason_words(shown: Shown, places: Places) -> Iterator[tuple[str, str]]:
    """Yields why the answers differ, and the lines that say so."""
    for reason in shown.reasons:
        lead = f"{reason.phases[0]}: " if len(shown.reasons) > 1 and len(reason.phases) == 1 else ""
        yield f"{lead}{_cause_words(reason)}", _places_words(reason, places)


def _cause_words(reason: Reason) -> str:
    name = reason.backend
    plain = {
        Cause.REMOVED: f"{name} is gone",
        Cause.ADDED: f"{name} is new",
        Cause.UNLISTED: f"the list that decides no longer names {name}",
        Cause.LISTED: f"the list that decided did not name {name}",
        Cause.ORDER: f"{reason.other} now stands before {name}",
    }
    if (words := plain.get(reason.cause)) is not None:
        return words
    said = [text for text, _ in reasons(reason.rejections)]
    more = f", and {len(said) - _FIRST} more reasons" if len(said) > _FIRST else ""
    lead = "is refused now" if reason.cause is Cause.REFUSED else "was refused before"
    return f"{name} {lead}: {'; '.join(text.rstrip('.') for text in said[:_FIRST])}{more}"


def _places_words(reason: Reason, places: Places) -> str:
    if reason.cause is Cause.ORDER and reason.old is not None and reason.new is not None:
        return f"{places.at(reason.new)}, before: {places.at(reason.old)}"
    if reason.rejections:
        at = dict.fromkeys(places.at(position) for _, position in reasons(reason.rejections))
        return " ".join([*at][:_FIRST])
    return places.at(reason.old or reason.new or Position("", 0, 0))


def path_positions(answered: Answered) -> list[Position]:
    """The lines that give the path of a request's prefill, and those that switch others off."""
    answer = answered.answer
    found = (*answer.prefill.path_rules, *(off.position for off in answer.off))
    return [*dict.fromkeys(found)]


def path_places(shown: Shown, places: Places) -> str:
    """The same, before and now."""
    said = [
        f"{words}: {listed([places.at(position) for position in found], 'and')}"
        for words, one in zip(("before", "now"), shown.answers, strict=True)
        if (found := path_positions(one))
    ]
    return ", ".join(said)
