"""Questions that take a while, as functions of plain values: a process of its own answers them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from selector.binding import Selector
from selector.devices import find_device
from selector.judge import forget
from selector.live import Snapshot
from selector.loading import load_sources, loads
from selector.manifest import Manifest
from selector.report.data import json_text
from selector.resources import manifest_path
from selector.service.answers import Asked
from selector.service.bodies import Logged, Question, Side, Sides, read_body
from selector.values import Layer

__all__ = ["Source", "compare", "explain", "explain_log", "lint"]

Sources = Sequence[tuple[str, bytes]]


class Source(NamedTuple):
    """A snapshot as another process can have it."""

    name: str
    generation: int
    sources: tuple[tuple[str, bytes], ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Source:
        """That of a snapshot."""
        return cls(snapshot.name, snapshot.generation, tuple(snapshot.sources))


@lru_cache(8)
def _snapshot(source: Source) -> Snapshot:
    forget()
    selector = Selector(load_sources(source.sources))
    return Snapshot(source.name, source.generation, selector, source.sources, 0.0)


def explain(source: Source, data: bytes, depth: int) -> bytes:
    """The body of ``/v1/explain`` → why not, and what would help.

    Raises:
        AttnselError: the question is unknown, refused or contradictory.
        Problem: the body cannot be read.
    """
    from selector.report import explanation

    body = read_body(data, Question, depth)
    asked = Asked(_snapshot(source), body)
    cases = asked.cases(body.request.request())
    found = [explanation.explain(case, asked.selector) for case in cases]
    return _json(explanation.explanation_json(found))


def explain_log(source: Source, data: bytes, depth: int) -> bytes:
    """The same of an engine's log.

    Raises:
        AttnselError: the log has no attention error, or what is said beside it is refused.
        Problem: the body cannot be read.
    """
    from selector.report.diagnosis import diagnosis_json
    from selector.serving.diagnosis.answer import Given
    from selector.serving.diagnosis.whole import diagnose_log
    from selector.serving.logs.log import read_log

    body = read_body(data, Logged, depth)
    selector = _snapshot(source).selector
    device = None if body.device is None else find_device(body.device)
    log = read_log(iter(body.log.split("\n")), selector.manifest.vocabulary)

    def given(manifest: Manifest) -> Given:
        return Given(Layer.read(body.layer, manifest.vocabulary).fields, body.facts)

    found = diagnose_log(log, selector, device, given)
    return _json(diagnosis_json(found.diagnoses, found.selector))


def lint(name: str, data: bytes) -> bytes:
    """A document → what is wrong with it."""
    from selector.lint.many import check_bytes
    from selector.lint.running import Selection
    from selector.report.findings import findings_json

    found = check_bytes(data, name, (), Selection())
    return _json(findings_json(sorted({*found.findings})))


def compare(data: bytes, depth: int, served: dict[str, Source]) -> bytes:
    """The body of ``/v1/diff`` → for which questions two manifests decide differently.

    Raises:
        ManifestError: a document has errors; all are listed.
        Problem: the body cannot be read.
    """
    from selector.analysis import comparing
    from selector.report import showing
    from selector.report.asking import chosen_words
    from selector.report.differences import Diff, diff_json

    def side(said: str | Side, file: str) -> showing.Side:
        one = Side(name=said) if isinstance(said, str) else said
        if isinstance(one.document, str):
            selector, reference = Selector(loads(one.document, file)), file
        else:
            assert isinstance(one.name, str)  # the service looked it up
            selector = _snapshot(served[one.name]).selector
            reference = _reference(one.name, selector)
        manifest = selector.manifest.as_claimed() if one.as_claimed else selector.manifest
        chosen = chosen_words(reference, (), one.as_claimed)
        return showing.Side(manifest, chosen, one.as_claimed)

    forget()
    body = read_body(data, Sides, depth)
    old, new = side(body.old, "old.yaml"), side(body.new, "new.yaml")
    return _json(
        diff_json(Diff(old, new, comparing.compare(old.manifest, new.manifest), body.limit))
    )


def _reference(name: str, selector: Selector) -> str:
    """How a command names a manifest that is served."""
    file = selector.manifest.ref.file
    return name if manifest_path(name) == Path(file) else file


def _json(value: object) -> bytes:
    return json_text(value).encode("utf-8")
