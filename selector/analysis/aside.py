"""What two manifests may answer otherwise where no question was counted: said, never ruled out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from selector.analysis.holding import classes_of, representative
from selector.analysis.stating import plain
from selector.devices import known_capabilities
from selector.domains import Domain
from selector.fields import parse_capability
from selector.manifest import Entry
from selector.plan.plan import Plan
from selector.plan.terms import Rules

__all__ = ["Aside", "asides_of"]


class Aside(msgspec.Struct, frozen=True):
    """Backends of which something was not compared.

    Attributes:
        backends: which ones state it otherwise.
        capabilities: compute capabilities that no known architecture has; ``None``: it is not
            about these.
        coerced: fields of which they make other values; none: it is not about these. Where it is
            about neither, it is about requests that run together.
    """

    backends: tuple[str, ...]
    capabilities: Domain | None = None
    coerced: tuple[str, ...] = ()


def asides_of(plans: tuple[Plan, Plan]) -> tuple[Aside, ...]:
    """What two manifests, the old one first, state otherwise of questions that are not counted."""
    old, new = (plan.manifest for plan in plans)
    both = [name for name in old.entries if name in new.entries]
    together = [n for n in both if _together(old.entries[n]) != _together(new.entries[n])]
    found = [Aside((*together,))] if together else []
    for name in both:
        here, there = old.entries[name].coerce, new.entries[name].coerce
        fields = [n for n in {**here, **there} if plain(here.get(n)) != plain(there.get(n))]
        if fields:
            found.append(Aside((name,), coerced=(*fields,)))
    return (*found, *_elsewhere(*(plan.rules for plan in plans)))


def _together(entry: Entry) -> Any:
    """What an entry says of requests that run together."""
    several = any(rule.batch for rule in entry.prefill_paths)
    return plain([entry.prefill_paths if several else (), entry.uniform_decodes])


def _elsewhere(old: Rules, new: Rules) -> Iterator[Aside]:
    """Yields the backends that take other capabilities, of those that no architecture has."""
    codes = [parse_capability(text) for text in known_capabilities()]
    unknown = Domain.between(min(codes), None) - Domain.of(*codes)
    by_backends: dict[tuple[str, ...], Domain] = {}
    refused = [_refused(rules) for rules in (old, new)]
    sets = [values for one in refused for values in one.values()]
    for values in classes_of(unknown, sets):
        code = representative(values)
        names = dict.fromkeys(
            name
            for (name, phase), away in refused[0].items()
            if (name, phase) in refused[1]
            and away.admits(code) is not refused[1][name, phase].admits(code)
        )
        if names:
            known = by_backends.get((*names,), Domain())
            by_backends[(*names,)] = known | values
    for backends, values in by_backends.items():
        yield Aside(backends, values)


def _refused(rules: Rules) -> dict[tuple[str, str], Domain]:
    """Backend and phase → the capabilities that refuse it by themselves."""
    return {
        (slot.backend, slot.phase): Domain.union(v for n, v in slot.alone if n == "capability")
        for slot in rules.slots
    }
