"""Reads released engines, compares them with manifests that describe them, and writes pages.

    python tools/drift_engines.py WHEELS

WHEELS is a folder; wheels that are not in it are fetched there from the package index, up to 340 MB
each. Pages go to ``docs/drift-<engine>-<version>.md``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from selector.binding import Selector
from selector.drift.against import compare
from selector.drift.reader import read_engine
from selector.drift.reading import Answer, Backend, EngineReading
from selector.drift.rules import UNDECIDED
from selector.drift.saying import CAPABILITIES, name_of, place_of
from selector.report.wording import counted
from selector.values import Finding, Position, Severity

DOCS = Path(__file__).parent.parent / "docs"


class Release(NamedTuple):
    """A release, and the manifest that describes the engine."""

    engine: str
    distribution: str
    version: str
    manifest: str | None


RELEASES = (
    Release("vllm", "vllm", "0.33.0", "vllm-0.33.0"),
    Release("vllm", "vllm", "0.28.0", "vllm-0.33.0"),
    Release("flashinfer", "flashinfer-python", "0.7.4", "attnsel"),
    Release("sglang", "sglang", "0.5.23", None),
)


def main(folder: str) -> int:
    """Writes every page."""
    for release in RELEASES:
        wheel = find_wheel(release, Path(folder))
        started = time.perf_counter()
        reading = read_engine(release.engine, wheel, CAPABILITIES)
        found: Sequence[Finding] = reading.findings
        if release.manifest is not None:
            manifest = None if release.manifest == "attnsel" else release.manifest
            found = compare(Selector.load(manifest).manifest, reading)
        seconds = time.perf_counter() - started
        page = DOCS / f"drift-{release.engine}-{release.version}.md"
        lines = page_lines(release, wheel, reading, found, seconds)
        page.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{page.name}: {_counts(found)}, {seconds:.0f} s")
    return 0


def find_wheel(release: Release, folder: Path) -> Path:
    """The wheel of a release, fetched where it is not there."""
    stem = f"{release.distribution.replace('-', '_')}-{release.version}-"
    folder.mkdir(parents=True, exist_ok=True)
    if not [*folder.glob(f"{stem}*.whl")]:
        kinds = (
            "manylinux_2_34",
            "manylinux_2_31",
            "manylinux_2_28",
            "manylinux2014",
            "manylinux1",
        )
        platforms = [f"--platform={kind}_x86_64" for kind in kinds]
        asked = f"{release.distribution}=={release.version}"
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--only-binary=:all:", "--python-version=3.11", *platforms]
        subprocess.run([*command, "--dest", str(folder), asked], check=True)
    return next(folder.glob(f"{stem}*.whl"))


def page_lines(
    release: Release,
    wheel: Path,
    reading: EngineReading,
    found: Sequence[Finding],
    seconds: float,
) -> Iterator[str]:
    """Yields the lines of a page."""
    yield f"# Drift: {release.engine} {release.version}"
    yield ""
    yield (
        f"Written by `make drift-engines` on {datetime.now(UTC).date()}, from `{wheel.name}`, "
        f"read and not imported: {counted(reading.modules, 'module')}, {seconds:.0f} s."
    )
    yield ""
    if release.manifest is None:
        yield "No manifest describes this engine here; this is what was read."
    else:
        yield (
            f"Compared with the manifest `{release.manifest}`: {_counts(found)}. "
            "[What the codes mean](drift-findings.md); [how code is read](drift.md)."
        )
    yield ""
    yield from _registry(reading)
    yield from _operators(reading)
    yield from _dense_prefill(reading)
    for severity in (Severity.ERROR, Severity.WARNING, Severity.NOTE):
        decided = [f for f in found if f.severity is severity and f.code != UNDECIDED.code]
        yield from _findings(f"{severity.value.capitalize()}s", decided)
    yield from _findings("Not decided", [f for f in found if f.code == UNDECIDED.code])


def _counts(found: Sequence[Finding]) -> str:
    kinds = Counter("open" if f.code == UNDECIDED.code else f.severity.value for f in found)
    parts = [counted(kinds[kind], kind) for kind in ("error", "warning", "note")]
    return f"{', '.join(parts)}, {kinds['open']} not decided"


def _operators(reading: EngineReading) -> Iterator[str]:
    """What functions and plans of attention declare of architectures."""
    if not (declared := [one for one in reading.operators if one.attention]):
        return
    yield "## What attention declares"
    yield ""
    yield "| operator | runs on | its backends |"
    yield "| --- | --- | --- |"
    for one in declared:
        kinds = "; ".join(f"{name}: {_said(answer)}" for name, answer in one.backends.items())
        accepted = "" if one.accepts is None else _said(one.accepts)
        if one.refuses:
            accepted = f"{accepted} raises on {', '.join(one.refuses)}".strip()
        yield f"| `{one.name}` {_place(one.at)} | {accepted} | {_cell(kinds)} |"
    yield ""


def _said(answer: Answer) -> str:
    if answer.dynamic is not None:
        return "not known"
    return ", ".join(answer.value) if isinstance(answer.value, (list, tuple)) else str(answer.value)


def _registry(reading: EngineReading) -> Iterator[str]:
    """What was read of each backend."""
    if not (rows := [*reading.backends, *reading.prefill]):
        return
    yield "## Backends"
    yield ""
    yield "| backend | class | implementation | guards |"
    yield "| --- | --- | --- | --- |"
    for one in rows:
        built = [product.cls for product in one.products] or [cls for cls in [one.cls] if cls]
        classes = ", ".join(f"`{name_of(cls.path)}` {_place(cls.at)}" for cls in built)
        own = one.impl is not None and one.impl not in built and not one.products
        impl = f"`{name_of(one.impl.path)}`" if one.impl is not None and own else ""
        guards = {guard.at for part in one.classes().values() for guard in part.guards}
        row = classes or _cell(one.problem), impl, str(len(guards) or "")
        yield f"| {one.name} | {' | '.join(row)} |"
    yield ""


def _dense_prefill(reading: EngineReading) -> Iterator[str]:
    """Which implementations say that they have a dense prefill, and which class says it."""
    name = reading.vocabulary.dense_prefill
    rows = [row for one in reading.backends if (row := _dense_row(one, name))]
    if not rows:
        return
    yield f"## `{name}` of sparse backends"
    yield ""
    yield "| backend | implementation | says | stated by |"
    yield "| --- | --- | --- | --- |"
    yield from rows
    yield ""


def _dense_row(backend: Backend, name: str) -> str:
    impl = backend.impl
    stated = impl.attributes.get(name) if impl else None
    sparse = [cls.attributes.get("is_sparse") for cls in backend.classes().values()]
    said = [one.answer.value for one in sparse if one is not None and one.answer is not None]
    if impl is None or stated is None or True not in said:
        return ""
    value = stated.answer.value if stated.answer and stated.known else "not known"
    own = "itself" if stated.defined_in == impl.path else f"**{name_of(stated.defined_in)}**"
    where = _place(impl.at)
    return f"| {backend.name} | {where} | {value} | {own} {_place(stated.at)} |"


def _findings(title: str, found: Sequence[Finding]) -> Iterator[str]:
    if not found:
        return
    yield f"## {title}"
    yield ""
    yield "| where | code | what |"
    yield "| --- | --- | --- |"
    for one in found:
        at = Position(Path(one.file).name if one.file.startswith("/") else one.file, one.line, 1)
        yield f"| {_place(at)} | `{one.code}` | {_cell(one.message)} |"
    yield ""


def _place(at: Position) -> str:
    return place_of(at).removeprefix("manifests/")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*").replace("<", "&lt;")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
