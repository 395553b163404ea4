"""Timings that go together: of one device and the same libraries, from one file or several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from selector.errors import AttnselError
from selector.tuning.results import Measured, Results, Runner, Shape, read_results
from selector.values import Device, Facts, Phase

__all__ = ["MixedTimingsError", "Timings", "check_alike", "read_timings"]

_BESIDE = ("python", "driver")
"""Facts that may differ: no kernel is theirs."""


class MixedTimingsError(AttnselError, ValueError):
    """Files of timings that nothing can be derived from together."""

    code = "MIXED_TIMINGS"


class Timings(msgspec.Struct, frozen=True):
    """What was timed on one device.

    Attributes:
        files: name without suffix → what the file says, oldest first; at least one.
    """

    files: dict[str, Results]

    @property
    def names(self) -> str:
        """The files, in words."""
        return ", ".join(self.files)

    @property
    def sources(self) -> str:
        """The files, as a manifest's ``source`` names them."""
        return ", ".join(f"evidence/timings/{name}.json" for name in self.files)

    @property
    def newest(self) -> Results:
        """The last file that was begun."""
        return [*self.files.values()][-1]

    @property
    def device(self) -> Device:
        """What ran."""
        return self.newest.device

    @property
    def facts(self) -> Facts:
        """What was installed, as the selector takes it."""
        return Facts({**self.newest.facts})

    @property
    def days(self) -> str:
        """When: a date, or the first and the last."""
        days = [results.date[:10] for results in self.files.values()]
        return days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"

    @property
    def runners(self) -> dict[str, Runner]:
        """Candidates that ran."""
        return {k: v for results in self.files.values() for k, v in results.runners.items()}

    @property
    def defaults(self) -> dict[Phase, tuple[str, ...]]:
        """Phase → candidates that the library prefers by itself, as the newest file says it."""
        return {k: v for results in self.files.values() for k, v in results.defaults.items()}

    @property
    def measured(self) -> tuple[Measured, ...]:
        """Every shape once; of one that was measured again, the newer times."""
        found: dict[Shape, Measured] = {}
        for results in reversed(self.files.values()):
            for one in results.measured:
                found.setdefault(msgspec.structs.replace(one.shape, held_out=False), one)
        return tuple(found.values())

    @property
    def again(self) -> int:
        """How many measurements are not counted, since a newer one is."""
        return sum(len(one.measured) for one in self.files.values()) - len(self.measured)

    @property
    def left(self) -> int:
        """Shapes of the grids that were not reached."""
        return sum(results.left for results in self.files.values())


def read_timings(paths: Sequence[Path]) -> Timings:
    """The timings of some files, at least one.

    Raises:
        MixedTimingsError: they are of several devices or versions, or two have one name.
        UnreadableResultsError: a file holds no timings, or of another version.
        OSError: a file cannot be opened.
    """
    read = sorted(((path.stem, read_results(path)) for path in paths), key=_age)
    files: dict[str, Results] = {}
    for name, results in read:
        if name in files:
            raise MixedTimingsError(f"two files are called {name}; a source names a file by that")
        files[name] = results
        check_alike(Timings(dict(read[:1])), Timings({name: results}))
    return Timings(files)


def _age(named: tuple[str, Results]) -> tuple[str, str]:
    name, results = named
    return results.date, name


def check_alike(first: Timings, second: Timings) -> None:
    """Holds that two are of one device and of the same libraries.

    Raises:
        MixedTimingsError: they are not.
    """
    sides = [{"device": str(side.device), **side.newest.facts} for side in (first, second)]
    for what in dict.fromkeys(key for side in sides for key in side):
        one, other = (side.get(what) for side in sides)
        if one != other and what not in _BESIDE:
            said = " and ".join(
                f"{name} has {what} {value or 'unknown'}"
                for name, value in ((first.names, one), (second.names, other))
            )
            raise MixedTimingsError(f"{said}: tune on the timings of each alone")
