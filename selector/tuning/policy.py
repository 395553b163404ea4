"""From timings to priority lists: the rules of each phase, and the YAML to paste."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from textwrap import wrap

import msgspec

from selector.tuning.regret import Regret, first_of, regret_of
from selector.tuning.results import Measured, Results
from selector.tuning.rules import Rule, Test, values_of
from selector.tuning.search import Aims, find_rules
from selector.values import Phase

__all__ = ["Ordered", "Tuned", "overlay_text", "priorities_text", "tune"]

_WIDTH = 118


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
    results: Results,
    phase: Phase,
    measured: Sequence[Measured],
    aims: Aims,
    rest: Sequence[str] = (),
) -> Tuned:
    """The lists for one phase.

    Args:
        results: where the shapes are from.
        phase: what the shapes are.
        measured: the shapes to tune on, with the candidates to choose from; at least one.
        aims: how long the list may be, and what it is worth.
        rest: entries to try after the candidates, in order.
    """
    rules = find_rules(measured, aims)
    open_ = [*measured]
    lists = []
    for rule in rules:
        mine = [one for one in open_ if rule.holds(values_of(one.shape))]
        open_ = [one for one in open_ if not rule.holds(values_of(one.shape))]
        left = tuple(name for name in rest if name not in rule.order)
        lists.append(Ordered(rule, left, _reason(results, rule, mine)))
    return Tuned(phase, tuple(lists))


def _reason(results: Results, rule: Rule, mine: Sequence[Measured]) -> str:
    """What was measured where a rule holds, and what the next best choice would cost."""
    where = results.device.product or results.device.capability or results.device.platform
    when = f"Measured on {where}, {results.date[:10]}"
    if not mine:
        return f"{when}: no shape of its own; what is best over all others."
    first, *others = rule.order
    shapes = f"{len(mine)} shape{'s' if len(mine) > 1 else ''}"
    said = f"{when}, {shapes}: {first} {_took(regret_of(first_of((first,)), mine))}"
    regrets = {name: regret_of(first_of((name,)), mine) for name in others}
    ran = {name: found.mean for name, found in regrets.items() if found.mean is not None}
    if not ran:
        return f"{said}; nothing else ran."
    second = min(ran, key=lambda name: (regrets[name].unserved, ran[name]))
    return f"{said}, {second} {_took(regrets[second])}."


def _took(regret: Regret) -> str:
    if regret.mean is None or regret.worst is None:
        return "did not run"
    some = f" of those {regret.shapes} it ran" if regret.unserved else ""
    return (
        f"takes {regret.mean:.2f} times the fastest's time in the mean{some}, "
        f"{regret.worst:.2f} at worst"
    )


def priorities_text(results: Results, tuned: Sequence[Tuned]) -> str:
    """The lists as YAML: items of ``priorities``, indented by two.

    They speak of layers of the kind that was timed, on the device that was timed.
    """
    lines = [f"  # Timings {results.id}: {results.command}"]
    for one in tuned:
        for ordered in one.lists:
            lines += _item(results, one.phase, ordered)
    return "\n".join(lines) + "\n"


def overlay_text(results: Results, tuned: Sequence[Tuned]) -> str:
    """The lists as an overlay, which puts them before those of a manifest."""
    head = f"attnsel: 1\noverlay: tuned-{results.grid}\npriorities:\n"
    return head + priorities_text(results, tuned)


def _item(results: Results, phase: Phase, ordered: Ordered) -> Iterator[str]:
    when = {**_kind(results), **_tests(ordered.rule.when)}
    parts = ", ".join(f"{field}: {text}" for field, text in when.items())
    yield f"  - when: {{{parts}}}"
    names = ", ".join((*ordered.rule.order, *ordered.rest))
    yield from wrap(
        f"[{names}]",
        _WIDTH,
        initial_indent=f"    {phase}: ",
        subsequent_indent="      ",
        break_on_hyphens=False,
    )
    yield "    reason: >-"
    indent = " " * 6
    yield from wrap(ordered.reason, _WIDTH, initial_indent=indent, subsequent_indent=indent)
    yield f"    source: timings {results.id}"


def _kind(results: Results) -> dict[str, str]:
    """What all shapes have in common that decides who can run them."""
    device = results.device
    where = {"platform": device.platform}
    if device.capability is not None:
        where = {"capability": json.dumps(device.capability)}
    latent = {one.shape.mla is not None for one in results.measured}
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
