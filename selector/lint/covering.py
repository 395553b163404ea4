"""On which devices something can be: lists that decide, entries that run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

from selector.devices import known_capabilities
from selector.domains import Domain
from selector.fields import ABSENT, parse_capability
from selector.lint.questions import Questions
from selector.lint.solving import Way
from selector.values import Phase
from selector.words import listed_and

__all__ = ["CUDA", "Covering", "Devices", "in_words"]

CUDA = "cuda"
_STEPS = 500

Devices = frozenset[str]
"""Compute capabilities, and platforms that have none."""


class Covering:
    """Where the lists of a manifest decide, and where their entries run.

    Raises:
        OverBudgetError: from every question, when it cannot be decided within so many steps.
    """

    def __init__(self, questions: Questions) -> None:
        self.questions = questions
        platforms, capabilities = (
            questions.values[questions.fields[name]] for name in ("platform", "capability")
        )
        self._codes = {
            text: capabilities.mask(Domain.of(parse_capability(text)))
            for text in known_capabilities()
        }
        self._platforms = {
            str(name): platforms.mask(Domain.of(str(name)))
            for name in platforms.values
            if name != CUDA
        }
        self._cuda = platforms.mask(Domain.of(CUDA))
        self._absent = capabilities.mask(Domain.of(ABSENT))
        self._decided: dict[tuple[Phase, int], Devices] = {}
        self._run: dict[tuple[Phase, int, str], Devices] = {}

    @cached_property
    def all(self) -> Devices:
        """All known devices."""
        return frozenset((*self._codes, *self._platforms))

    @property
    def cuda(self) -> Devices:
        """Known compute capabilities."""
        return frozenset(self._codes)

    def devices(self, way: Way, within: Devices) -> Devices:
        """The devices, of some, on which all of it can hold."""
        fields = self.questions.fields
        found: set[str] = set()
        for names, field in ((self._codes, "capability"), (self._platforms, "platform")):
            rest = {name: mask for name, mask in names.items() if name in within}
            while rest:
                mask = sum(rest.values())
                on = (self._cuda, mask) if field == "capability" else (mask, self._absent)
                left = self.questions.solver.solve(way & self.questions.device(*on), _STEPS)
                if left is None:
                    break
                here = {name for name, one in rest.items() if one & left[fields[field]]}
                found |= here
                rest = {name: one for name, one in rest.items() if name not in here}
        return frozenset(found)

    def on(self, devices: Devices) -> Way:
        """That the device is one of some."""
        codes = sum(mask for name, mask in self._codes.items() if name in devices)
        platforms = sum(mask for name, mask in self._platforms.items() if name in devices)
        ways = (
            self.questions.device(self._cuda, codes),
            self.questions.device(platforms, self._absent),
        )
        return Way((), (tuple(way for way in ways if all(mask for _, mask in way.narrows)),))

    def decided(self, phase: Phase, index: int) -> Devices:
        """Where a list is ever the first to hold."""
        key = (phase, index)
        if key not in self._decided:
            way = self.questions.decides(phase, index)
            self._decided[key] = self.devices(way, self.all)
        return self._decided[key]

    def runs(self, phase: Phase, index: int, name: str) -> Devices:
        """Where an entry ever runs something that a list decides."""
        key = (phase, index, name)
        if key not in self._run:
            way = self.questions.decides(phase, index) & self.questions.alive(name, phase)
            self._run[key] = self.devices(way, self.decided(phase, index))
        return self._run[key]

    def served(self, phase: Phase, index: int) -> Devices:
        """Where any entry of a list ever runs something that the list decides."""
        found: Devices = frozenset()
        for name in self.questions.names(phase, index):
            found |= self.runs(phase, index, name)
            if found == self.decided(phase, index):
                break
        return found

    def lists(self, phase: Phase) -> Iterator[int]:
        """Yields the lists of a phase."""
        for index, one in enumerate(self.questions.manifest.priorities):
            if phase in one.orders:
                yield index

    @cached_property
    def everywhere(self) -> dict[Phase, Devices]:
        """Phase → the devices on which anything ever runs."""
        return {
            phase: frozenset().union(*(self.served(phase, index) for index in self.lists(phase)))
            for phase in Phase
        }


def in_words(devices: Iterable[str]) -> str:
    """Devices, oldest first: ``9.0, 10.3 and rocm``."""
    order = {text: place for place, text in enumerate(known_capabilities())}
    return listed_and(sorted(devices, key=lambda name: (order.get(name, len(order)), name)))
