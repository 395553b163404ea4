"""From timings to priority lists: the rules of each phase, and the YAML to paste."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

import msgspec

from selector.tuning.regret import Regret, first_of, regret_of
from selector.tuning.results import Measured
from selector.tuning.rules import Rule, Test, questions_of, values_of
from selector.tuning.search import Aims, find_rules
from selector.tuning.timings import Timings
from selector.values import Phase

__all__ = ["Ordered", "Tuned", "overlay_text", "priorities_text", "tune"]

_WIDTH = 118
_ABBREVIATIONS = ("cuda", "fa2", "fa3", "mla", "sdpa", "xqa")


class Ordered(msgspec.Struct, frozen=True):
    """A rule as a manifest writes it.

    Attributes:
        rule: when it holds, and the order of the candidates that were timed.
        rest: entries that were not, and that the manifest lists there; tried last.
        reason: in words, with figures.
    """

    rule: Rule
    rest: tuple[str, ...]
    reason: str


class Tuned(msgspec.Struct, frozen=True):
    """The lists of one phase, the first that holds decides; the last holds always."""

    phase: Phase
    lists: tuple[Ordered, ...]


def tune(
    timings: Timings,
    phase: Phase,
    measured: Sequence[Measured],
    aims: Aims,
    rest: Sequence[str] = (),
) -> Tuned:
    """The lists for one phase.

    Args:
        timings: where the shapes are from.
        phase: what the shapes are.
        measured: the shapes to tune on, with the candidates to choose from; at least one.
        aims: how long the list may be, and what it is worth.
        rest: entries to try after the candidates, in order.
    """
    rules = find_rules(measured, aims)
    open_ = [(one, values_of(one.shape, told)) for one, told in questions_of(measured)]
    lists = []
    for rule in rules:
        mine = [*{one.shape: one for one, values in open_ if rule.holds(values)}.values()]
        open_ = [(one, values) for one, values in open_ if not rule.holds(values)]
        left = tuple(name for name in rest if name not in rule.order)
        lists.append(Ordered(rule, left, _reason(timings, rule, mine)))
    return Tuned(phase, tuple(lists))


def _reason(timings: Timings, rule: Rule, mine: Sequence[Measured]) -> str:
    """What was measured of the shapes that come to a rule, and what the next best would cost."""
    device = timings.device
    where = device.product or device.capability or device.platform
    when = f"({where.removeprefix('NVIDIA ')}, {timings.days})."
    if not mine:
        return f"Best over all shapes, with none of its own {when}"
    shapes = f"{len(mine)} shape{'s' if len(mine) > 1 else ''}"
    regrets = {name: regret_of(first_of((name,)), mine) for name in rule.order}
    ran = {name: found for name, found in regrets.items() if found.mean is not None}
    first, *others = ran
    words = _words(rule.order)
    if not others:
        return f"{words[first]} alone ran the {shapes} {when}"
    second = min(others, key=lambda name: (ran[name].unserved, ran[name].mean))
    said = ", ".join(f"{words[name]} {_took(ran[name])}" for name in (first, second))
    return f"{said} the fastest's time on {shapes} {when}"


def _words(names: Sequence[str]) -> dict[str, str]:
    """What a sentence calls entries: FA3 and CUDA cores, without the library where it is one."""
    libraries = {name.partition("_")[0] for name in names}
    found = {}
    for name in names:
        words = name.split("_")[1:] if len(libraries) == 1 < len(names) else name.split("_")
        found[name] = " ".join(w.upper() if w in _ABBREVIATIONS else w for w in words)
    return found


def _took(regret: Regret) -> str:
    some = f" on the {regret.shapes} it ran" if regret.unserved else ""
    return f"{regret.mean:.2f}×{some}"


def priorities_text(timings: Timings, tuned: Sequence[Tuned]) -> str:
    """The lists as YAML: items of ``priorities``, indented by two.

    They speak of layers of the kind that was timed, on the device that was timed.
    """
    commands = dict.fromkeys(results.command for results in timings.files.values())
    lines = [f"  # Timed with {command}" for command in commands]
    for one in tuned:
        for ordered in one.lists:
            lines += _item(timings, one.phase, ordered)
    return "\n".join(lines) + "\n"


def overlay_text(timings: Timings, tuned: Sequence[Tuned]) -> str:
    """The lists as an overlay, which puts them before those of a manifest."""
    head = f"attnsel: 1\noverlay: tuned-{timings.newest.grid}\npriorities:\n"
    return head + priorities_text(timings, tuned)


def _item(timings: Timings, phase: Phase, ordered: Ordered) -> Iterator[str]:
    when = {**_kind(timings), **_tests(ordered.rule.when)}
    parts = ", ".join(f"{field}: {text}" for field, text in when.items())
    names = ", ".join((*ordered.rule.order, *ordered.rest))
    yield from _wrapped("  - when: ", f"{{{parts}}}")
    yield from _wrapped(f"    {phase}: ", f"[{names}]")
    yield f"    reason: {json.dumps(ordered.reason, ensure_ascii=False)}"
    yield from _wrapped("    source: ", timings.sources)


def _wrapped(begin: str, text: str) -> list[str]:
    return wrap(
        text,
        _WIDTH,
        initial_indent=begin,
        subsequent_indent=" " * 6,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _kind(timings: Timings) -> dict[str, str]:
    """What all shapes have in common that decides who can run them."""
    device = timings.device
    where = {"platform": device.platform}
    if device.capability is not None:
        where = {"capability": json.dumps(device.capability)}
    latent = {one.shape.mla is not None for one in timings.measured}
    if len(latent) == 1:
        where["mla"] = json.dumps(latent.pop())
        where["sparse"] = "false"
    return where


def _tests(tests: Sequence[Test]) -> Mapping[str, str]:
    found = {}
    for test in tests:
        bounds = {"min": test.least, "max": test.most}
        said = ", ".join(f"{word}: {at}" for word, at in bounds.items() if at is not None)
        found[test.field] = f"{{{said}}}"
    return found
