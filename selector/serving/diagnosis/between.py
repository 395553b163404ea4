"""The same question under the manifests of two versions of an engine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec
from packaging.version import InvalidVersion, Version

from selector.changes.case import USABLE, Case, choice_of, verdict_of
from selector.manifest import Manifest
from selector.resources import resource
from selector.serving.diagnosis.comparison import names_in, phase_of
from selector.serving.logs.log import EngineError
from selector.values import ManifestRef, Outcome, Phase, Rejection

__all__ = ["Across", "Moved", "View", "across", "are_same", "known_versions", "public"]


class View(msgspec.Struct, frozen=True):
    """What becomes of a backend by one manifest, as the engine's code claims.

    Attributes:
        known: whether that manifest has it.
        outcome: what becomes of it; ``None`` when it is not known.
        rejections: why it is refused.
    """

    known: bool
    outcome: Outcome | None = None
    rejections: tuple[Rejection, ...] = ()

    @property
    def means(self) -> tuple[object, ...]:
        """What two views must have in common to say the same."""
        said = {(r.code, r.field, r.allowed) for r in self.rejections}
        return self.known, self.outcome in USABLE, frozenset(said)


class Moved(msgspec.Struct, frozen=True):
    """A backend of which the two versions say different things."""

    backend: str
    here: View
    there: View


class Across(msgspec.Struct, frozen=True):
    """The question under another version.

    Attributes:
        manifest: the other version's.
        moved: backends of which it says something else.
        runs: whether it has a backend for every phase of the layer.
        chosen: phase → which, where it does.
        contradiction: why there is no such layer in that version.
        sure: whether that depends on nothing unknown.
        case: its answer, as the engine's code claims.
    """

    manifest: ManifestRef
    moved: tuple[Moved, ...] = ()
    runs: bool = False
    chosen: Mapping[Phase, str] = MappingProxyType({})
    sure: bool = True
    contradiction: str | None = None
    case: Case | None = None


def known_versions(manifest: Manifest) -> dict[str, Path]:
    """Versions of the manifest's engine that are known here, and the files that state them.

    Those are ``NAME-VERSION.yaml`` beside the manifest, then the shipped ones.
    """
    name = manifest.ref.name.partition("+")[0]
    found: dict[str, Path] = {}
    for folder in (Path(manifest.ref.file).parent, resource("manifests")):
        for path in sorted(folder.glob(f"{name}-*.yaml")):
            found.setdefault(path.stem.removeprefix(f"{name}-"), path)
    return found


def are_same(one: str, other: str) -> bool:
    """Whether two versions are the same but for what a build adds behind a ``+``."""
    try:
        return Version(public(one)) == Version(public(other))
    except InvalidVersion:
        return one == other


def public(version: str) -> str:
    """A version without what a build adds behind a ``+``; text that is none, as it is."""
    try:
        return Version(version).public
    except InvalidVersion:
        return version


def across(
    error: EngineError, here: tuple[Manifest, Case], there: tuple[Manifest, Case], truth: Case
) -> Across:
    """What another version says of the question.

    Args:
        error: the engine's.
        here: the manifest that answers, and its answer as claimed.
        there: the other one, and its.
        truth: the other one's answer of what works.
    """
    answer = truth.resolution
    choices = {} if answer.missing else {p: choice_of(answer, p) for p in answer.needed}
    return Across(
        there[0].ref,
        tuple(_moved(error, here, there)),
        runs=bool(choices),
        chosen=MappingProxyType({p: str(choice.backend) for p, choice in choices.items()}),
        sure=not any(choice.conditions for choice in choices.values()),
        case=there[1],
    )


def _moved(
    error: EngineError, here: tuple[Manifest, Case], there: tuple[Manifest, Case]
) -> Iterator[Moved]:
    """Yields the error's backends that are judged otherwise, then what only one version runs."""
    mine, theirs = _views(error, *here), _views(error, *there)
    said = [*names_in(error, here[0]), *names_in(error, there[0])]
    for name in dict.fromkeys((*said, *mine, *theirs)):
        one, other = mine.get(name, View(False)), theirs.get(name, View(False))
        usable = [view.outcome in USABLE for view in (one, other)]
        if (name in said or any(usable)) and one.means != other.means:
            yield Moved(name, one, other)


def _views(error: EngineError, manifest: Manifest, case: Case) -> dict[str, View]:
    """Every backend that the engine would look at, in the order of its list."""
    found = {}
    for one in case.resolution.candidates:
        verdict = verdict_of(one, phase_of(error, manifest, one.backend))
        found[one.backend] = View(True, verdict.outcome, verdict.rejections)
    return found
