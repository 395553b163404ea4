"""What two versions of an engine's code say differently: as text and as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from selector.drift.between.changes import (
    BackendChange,
    Change,
    EngineDifference,
    GuardChange,
    Kind,
    Side,
    Version,
    What,
)
from selector.drift.reading import Answer
from selector.drift.saying import FUTURE, name_of, place_of, why_words
from selector.drift.saying import listed as shortened
from selector.report.data import to_json
from selector.report.findings import finding_lines
from selector.report.text import BLANK, Line, Style, faint, grid, line, strong, warn
from selector.report.text import Piece as Styled
from selector.report.wording import Places, capabilities_words, counted, listed
from selector.values import Position

__all__ = ["TITLES", "engines_json", "engines_lines"]

_ROLES = {
    "registry": "registry",
    "backend": "backend",
    "impl": "implementation",
    "builder": "builder",
    "operator": "operator",
}
TITLES = {
    Kind.NARROWED: "Narrower: accepts less",
    Kind.WIDENED: "Wider: accepts more",
    Kind.CHANGED: "Otherwise, neither wider nor narrower",
    Kind.UNSTATED: "No longer stated, inherited; no other value is known",
    Kind.STATED: "Stated, no longer inherited; no other value is known",
    Kind.MOVED: "From another class; no other value is known",
    Kind.REMOVED: "No longer said by any class",
    Kind.ADDED: "Said for the first time",
    Kind.OPENED: "No longer known from the code alone",
    Kind.SETTLED: "Known from the code alone, and was not",
    Kind.UNCOMPARED: "Not compared, as known in neither",
}
"""Kinds of changes, in the order in which they are told."""
_STYLES = {
    Kind.NARROWED: Style.BAD,
    Kind.WIDENED: Style.GOOD,
    Kind.UNSTATED: Style.WARN,
    Kind.OPENED: Style.WARN,
}
_GUARDS = {Kind.ADDED: "refuses anew", Kind.REMOVED: "refuses no longer"}


def engines_json(difference: EngineDifference) -> dict[str, Any]:
    """Everything, as JSON values."""
    return {"different": difference.is_different, **to_json(difference)}


def engines_lines(difference: EngineDifference) -> Iterator[Line]:
    """Yields what changed: backends, what narrowed, what widened and so on; what is not known."""
    yield line(
        strong(f"{_version(difference.old)} → {_version(difference.new)}"),
        f": {_summary(difference)}",
        hang=2,
    )
    yield line("  ", faint(f"{difference.old.source} → {difference.new.source}"), hang=4)
    yield from _backend_lines(difference.backends)
    for kind, title in TITLES.items():
        changes = [one for one in difference.changes if one.kind is kind]
        if changes:
            yield BLANK
            yield line(strong(title), f" ({len(changes)})")
            style = _STYLES.get(kind, Style.PLAIN)
            yield from _change_lines(changes, difference.capabilities, style)
    yield from _guard_lines(difference.guards)
    yield from _open_lines(difference)
    for version in (difference.old, difference.new):
        if version.findings:
            yield BLANK
            yield line(strong(f"What could not be read of {version.source}"))
            yield from finding_lines(version.findings, {}, Places())


def _version(version: Version) -> str:
    return f"{version.engine} {version.version}".rstrip()


def _summary(difference: EngineDifference) -> str:
    """How much changed, how much did not, and how much nobody knows."""
    if not difference.is_readable:
        return "nothing was compared: no backend could be read"
    kinds = ((difference.shared, "backend"), (difference.shared_operators, "operator"))
    shared = listed([counted(len(names), noun) for names, noun in kinds if names], "and")
    same = f"{difference.same:,} claims of the {shared or 'none'} that both have say the same"
    open_ = len(difference.uncompared) + len(difference.unread)
    rest = f"{open_:,} could not be compared"
    number = len(difference.changes) + len(difference.guards) + len(difference.backends)
    lead = counted(number, "change") if difference.is_different else "nothing changed"
    return f"{lead}; {same}; {rest}"


def _backend_lines(changes: Sequence[BackendChange]) -> Iterator[Line]:
    if not changes:
        return
    yield BLANK
    yield line(strong("Came, went or are others"), f" ({len(changes)})")
    yield from grid([_backend_row(one) for one in changes], indent=2, gap=2)


def _backend_row(one: BackendChange) -> list[str]:
    before, after = (
        _placed(words, at, one.name)
        for words, at in ((one.before, one.before_at), (one.after, one.after_at))
    )
    said = {Kind.ADDED: after, Kind.REMOVED: before}.get(one.kind, f"{before} → {after}")
    return [one.kind, one.name, _ROLES[one.role], said]


def _placed(words: str, at: Position | None, name: str) -> str:
    """A class and its place; the place alone of what stands there under its own name."""
    if at is None:
        return words
    return place_of(at) if words == name else f"{words} ({place_of(at)})"


def _change_lines(
    changes: Sequence[Change], everywhere: Sequence[str], style: Style
) -> Iterator[Line]:
    """Changes under the name of what changes, each with where, by which class, and for whom."""
    for subject, group in _by_subject(changes).items():
        yield line("  ", strong(subject))
        for one in group:
            where = _where(one.capabilities, everywhere)
            yield line("    ", Styled(_delta(one), style), "   ", faint(where), hang=6)
            yield line("      ", faint(_sources(one)), hang=8)
            yield line("      ", *_who(one), hang=8)


def _by_subject(changes: Iterable[Change]) -> dict[str, list[Change]]:
    groups: dict[str, list[Change]] = {}
    for one in changes:
        name = f"{one.name} of constructors" if one.what is What.ARGUMENT else one.name
        groups.setdefault(f"{name} ({_ROLES[one.role]})", []).append(one)
    return groups


def _where(capabilities: Sequence[str], everywhere: Sequence[str]) -> str:
    """``on 8.0–9.0 and future ones``; ``everywhere``."""
    if len(capabilities) == len(everywhere):
        return "everywhere"
    known = [one for one in capabilities if one != FUTURE]
    parts = [capabilities_words(", ".join(known))] if known else []
    parts += ["future ones"] if FUTURE in capabilities else []
    return f"on {' and '.join(parts)}"


def _delta(one: Change) -> str:
    """From what to what: values that are accepted, or whole answers."""
    if one.gained or one.lost:
        words = ("accepts {} too", "accepts {} no longer")
        if one.what is What.ARGUMENT:
            words = ("refuses {} no longer", "refuses {}")
        parts = zip(words, (one.gained, one.lost), strict=True)
        return "; ".join(text.format(_values(values)) for text, values in parts if values)
    before, after = (_said(side, one.what) for side in (one.before, one.after))
    if one.before is None or one.after is None:
        return after or before
    return before if before == after else f"{before} → {after}"


def _values(values: Sequence[Any]) -> str:
    """Values in words; many are cut, and those of several fields at once sooner."""
    few = values[:2] if any(isinstance(value, (list, tuple)) for value in values) else values
    more = len(values) - len(few)
    words = shortened([_one(value) for value in few])
    return f"{words} and {more} more" if more else words


def _one(value: Any) -> str:
    return f"({', '.join(map(str, value))})" if isinstance(value, (list, tuple)) else str(value)


def _said(side: Side | None, what: What) -> str:
    """What one version says."""
    if side is None:
        return ""
    words = _answer_words(side.answer)
    if what is What.METHOD:
        words = words or "does its work"
    elif not words:
        words = "by architecture"
    if side.missing:
        words += f", and reads {listed(side.missing, 'and')} that no class sets"
    return words


def _answer_words(answer: Answer | None) -> str:
    if answer is None:
        return ""
    if answer.raises:
        return f"raises {answer.raises}"
    if answer.undecided:
        return f"not known of {_values(answer.undecided)}"
    if answer.dynamic is not None:
        return "not known"
    if isinstance(answer.value, (list, tuple)):
        return f"[{_values(answer.value)}]"
    if isinstance(answer.value, dict):
        return shortened([f"{key}: {value}" for key, value in answer.value.items()])
    return str(answer.value)


def _sources(one: Change) -> str:
    """The classes that say it, then and now; the list it comes from; why it is not known."""
    words = [_both(one.before, one.after)]
    if one.by is not None:
        words.append(f"by the list of {_both(*one.by)}")
    for side in (one.before, one.after):
        doubt = side.answer.dynamic if side is not None and side.answer is not None else None
        if doubt is not None and one.kind in (Kind.OPENED, Kind.SETTLED):
            words.append(why_words(doubt))
        if side is not None:
            then = "constructors set" if side is one.after else "constructors set before"
            words += [f"{then} {set_.expression} ({place_of(set_.at)})" for set_ in side.assigned]
    return "; ".join(words)


def _both(before: Side | None, after: Side | None) -> str:
    """``Base a.py:12 → Impl b.py:30``; the name once where it is one."""
    said = [_owner(side) for side in (before, after) if side is not None]
    places = [place_of(side.at) for side in (before, after) if side is not None]
    if len(set(said)) == 1:
        return f"{said[0]} {' → '.join(dict.fromkeys(places))}"
    return " → ".join(f"{name} {place}" for name, place in zip(said, places, strict=True))


def _owner(side: Side) -> str:
    return name_of(side.defined_in) or "a class that is not known"


def _who(one: Change) -> Iterator[str | Styled]:
    """The backends, by whether their own class says it, now or then."""
    if one.what is What.OPERATOR:
        yield _names(one.backends)
        return
    before, after = set(one.own_before), set(one.own_after)
    both = one.before is not None and one.after is not None
    if not both:  # there is no then, or no now
        before = after = before | after
    parts = (
        ("stated by", [n for n in one.backends if n in after and n in before], ""),
        ("stated by", [n for n in one.backends if n in after and n not in before],
         ", inherited before"),
        ("inherited by", [n for n in one.backends if n in before and n not in after],
         ", stated before"),
        ("inherited by", [n for n in one.backends if n not in before | after], ""),
    )  # fmt: skip
    between = ""
    for verb, names, rest in parts:
        if names:
            words = f"{between}{verb} {_names(names)}{rest}"
            yield warn(words) if rest == ", stated before" else words
            between = "; "
    if one.overridden_by:
        number = len(one.overridden_by)
        yield f"; {number} {'overrides' if number == 1 else 'override'} it"


def _names(names: Sequence[str]) -> str:
    lead = f"{len(names)}: " if len(names) > 3 else ""
    return lead + ", ".join(names)


def _guard_lines(guards: Sequence[GuardChange]) -> Iterator[Line]:
    if not guards:
        return
    yield BLANK
    yield line(strong("Refusals of constructors"), f" ({len(guards)})")
    for one in guards:
        guard = one.after or one.before
        if guard is None:
            continue
        message = f": {guard.message}" if guard.message else ""
        verb = _GUARDS.get(one.kind, "tests otherwise")
        places = " → ".join(place_of(side.at) for side in (one.before, one.after) if side)
        yield line(
            "  ",
            strong(f"{name_of(guard.by)} ({_ROLES[one.role]})"),
            f" {verb}: {guard.exception}{message}",
            hang=4,
        )
        tests = [" and ".join(side.tests) for side in (one.before, one.after) if side]
        yield line("      ", faint(f"{places}: {' → '.join(dict.fromkeys(tests))}"), hang=8)
        yield line("      ", _names(one.backends), hang=8)


def _open_lines(difference: EngineDifference) -> Iterator[Line]:
    """What is known in neither version: never the same, never a change."""
    if not (difference.uncompared or difference.unread):
        return
    yield BLANK
    number = len(difference.uncompared) + len(difference.unread)
    yield line(strong(TITLES[Kind.UNCOMPARED]), f" ({number})")
    for subject, group in _by_subject(difference.uncompared).items():
        names = list(dict.fromkeys(name for one in group for name in one.backends))
        side = group[0].after
        why = side.answer.dynamic if side is not None and side.answer is not None else None
        reason = f"   {why_words(why)}" if why is not None else ""
        yield line("  ", strong(subject), f"   {_names(names)}", faint(reason), hang=4)
    for one in difference.unread:
        yield line("  ", strong(f"{one.name} ({_ROLES[one.role]})"), f"   {one.after}", hang=4)
