"""Entries against the operators that their ``sources`` name, in an engine without a registry."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from selector.drift.machines import Machines, machines_of, stated_at
from selector.drift.reading import EngineReading, Operator
from selector.drift.rules import CLAIM, GONE, REFUSED, UNDECIDED, UNLISTED
from selector.drift.saying import called, listed, name_of, on_words, place_of, why_answer
from selector.fields import parse_capability
from selector.manifest import Entry, Manifest
from selector.values import Finding, Position, Severity

__all__ = ["compare_operators"]


def compare_operators(manifest: Manifest, reading: EngineReading) -> Iterator[Finding]:
    """Where an entry and the operators that it names differ; operators that no entry names.

    Args:
        manifest: as claimed.
        reading: of the engine; without operators, nothing is found.
    """
    known = {one.name: one for one in reading.operators}
    machines = machines_of(manifest, reading)
    used: set[str] = set()
    for entry in manifest.entries.values() if known else ():
        if entry.library != reading.library:
            continue
        names = _named(entry, known)
        used.update(names)
        if not names:
            words = f"its sources name no operator of {called(reading)}: not compared"
            yield UNDECIDED.finding(entry.position, f"{entry.name}: {words}")
        for name, field in names.items():
            if (operator := known.get(name)) is not None:
                yield from _compare(entry, operator, reading, machines)
                continue
            words = f"{entry.name} {field}: {name} is its source, and {called(reading)}"
            at = stated_at(entry, field)
            yield GONE.finding(at, f"{words} declares nothing there", "name what declares it")
    yield from _unlisted(manifest, reading, used)


def _named(entry: Entry, known: Mapping[str, Operator]) -> dict[str, str]:
    """The dotted names among an entry's sources, each with the first field that it states."""
    packages = {name.partition(".")[0] for name in known}
    found: dict[str, str] = {}
    for field, source in entry.sources.items():
        parts = source.split(".")
        if len(parts) > 1 and parts[0] in packages and all(map(str.isidentifier, parts)):
            found.setdefault(source, field)
    return found


def _compare(
    entry: Entry, operator: Operator, reading: EngineReading, machines: Machines
) -> Iterator[Finding]:
    stated = {
        one: on.accepts(entry, "capability", parse_capability(one)) for one, on in machines.items()
    }
    yield from _lists(entry, operator, stated)
    yield from _plans(entry, operator, stated)
    here = {one: on for one, on in machines.items() if stated[one] is not False}
    for field, (name, value) in reading.vocabulary.features.items():
        if name in operator.features:
            said = {on.accepts(entry, field, value) for on in here.values()}
            yield from _feature(entry, operator, field, name, said)
    for field, name in reading.vocabulary.lists.items():
        if name in operator.features:
            yield from _listing(entry, operator, field, name)
    for name, answer in operator.features.items():
        if not answer.known and operator.features.keys() == {name}:
            words = f"{entry.name}: {_source(operator)}: {why_answer(answer)}"
            yield UNDECIDED.finding(entry.position, words)


def _lists(
    entry: Entry, operator: Operator, stated: Mapping[str, bool | None]
) -> Iterator[Finding]:
    """The capabilities that its list, or any of its backends' lists, names."""
    answers = [*operator.backends.values()]
    answers += [] if operator.accepts is None else [operator.accepts]
    if not answers:
        return
    at = stated_at(entry, "capability")
    accepted = {one for answer in answers if answer.known for one in answer.value or ()}
    doubt = next((one for one in answers if not one.known or one.raises), None)
    mark = "" if operator.enforced else ", by a list that nothing enforces"
    subject = f"{entry.name} capability: the manifest"
    wrong = [one for one, said in stated.items() if said is True and one not in accepted]
    missing = [one for one, said in stated.items() if said is False and one in accepted]
    if wrong and doubt is None:
        words = f"accepts {', '.join(wrong)}, and {_source(operator)} refuses {_them(wrong)}{mark}"
        yield CLAIM.finding(at, f"{subject} {words}")
    if missing:
        words = f"refuses {', '.join(missing)}, and {_source(operator)} accepts {_them(missing)}"
        yield CLAIM.finding(at, f"{subject} {words}{mark}")
    unsure = [one for one, said in stated.items() if said is None]
    unsure += [one for one in stated if doubt is not None and one not in accepted]
    if unsure:
        words = f"{subject} lets it depend on what is not known here"
        if doubt is not None:
            words = f"{_source(operator)}: {why_answer(doubt)}"
        head = f"{entry.name} capability {on_words(list(dict.fromkeys(unsure)))}"
        yield UNDECIDED.finding(at, f"{head}: {words}")


def _plans(
    entry: Entry, operator: Operator, stated: Mapping[str, bool | None]
) -> Iterator[Finding]:
    """The capabilities on which it raises; it need not run on the others."""
    if operator.refuses is None:
        return
    at = stated_at(entry, "capability")
    refused: defaultdict[Position, list[str]] = defaultdict(list)
    for one, said in stated.items():
        if said is not False and one in operator.refuses:
            refused[operator.refuses[one]].append(one)
    for place, where in refused.items():
        words = f"accepts {', '.join(where)}, and {_source(operator)} raises ({place_of(place)})"
        yield REFUSED.finding(at, f"{entry.name} capability: the manifest {words}")
    free = [one for one, said in stated.items() if said is False and one not in operator.refuses]
    if free:
        words = f"the manifest refuses it, and whether {_source(operator)} does is not known"
        yield UNDECIDED.finding(at, f"{entry.name} capability {on_words(free)}: {words}")


def _feature(
    entry: Entry, operator: Operator, field: str, name: str, said: set[bool | None]
) -> Iterator[Finding]:
    answer, at = operator.features[name], stated_at(entry, field)
    source = f"{name} of {_source(operator)}"
    if not answer.known or answer.raises or None in said:
        why = why_answer(answer) or "the manifest lets it depend on what is not known here"
        yield UNDECIDED.finding(at, f"{entry.name} {field}: {source}: {why}")
    elif said and said != {answer.value}:
        verb = "refuses" if answer.value else "accepts"
        words = f"the manifest {verb} it, and {source} is {answer.value}"
        yield CLAIM.finding(at, f"{entry.name} {field}: {words}")


def _listing(entry: Entry, operator: Operator, field: str, name: str) -> Iterator[Finding]:
    """A property of the entry whose values the operator lists; it may list more."""
    answer = operator.features[name]
    source = f"{name} of {_source(operator)}"
    if not answer.known or not isinstance(answer.value, list):
        yield UNDECIDED.finding(
            entry.position, f"{entry.name} {field}: {source}: {why_answer(answer)}"
        )
        return
    missing = sorted(getattr(entry, field) - set(answer.value))
    if missing:
        words = f"the manifest says {', '.join(missing)}, and {source} says {listed(answer.value)}"
        yield CLAIM.finding(entry.position, f"{entry.name} {field}: {words}")


def _unlisted(manifest: Manifest, reading: EngineReading, used: set[str]) -> Iterator[Finding]:
    """Operators for attention that no entry names, those of one file together."""
    rest: defaultdict[str, list[Operator]] = defaultdict(list)
    for one in reading.operators:
        if one.attention and one.name not in used and (one.features or not _is_private(one)):
            rest[one.at.file].append(one)
    described = f"{manifest.ref.name} {manifest.ref.version}"
    for operators in rest.values():
        words = listed([name_of(one.name) for one in operators])
        verb = "say" if len(operators) > 1 else "says"
        yield UNLISTED.finding(
            operators[0].at,
            f"{words} {verb} here where to run, and no entry of {described} names "
            f"{_them(operators)} as a source",
            severity=Severity.NOTE,
        )


def _is_private(operator: Operator) -> bool:
    return name_of(operator.name).startswith("_")


def _source(operator: Operator) -> str:
    return f"{name_of(operator.name)} ({place_of(operator.at)})"


def _them(some: Sequence[object]) -> str:
    return "them" if len(some) > 1 else "it"
