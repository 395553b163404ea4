"""How long ``attnsel lint`` takes: from a cold start, and over the manifests of a large team."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from selector.document import read_document
from selector.lint import lint
from selector.lint.fixing import mend
from selector.resources import manifest_path, resource

from .harness import Figure, median_of
from .manifests import write

_RUNS = 11


def figures() -> list[Figure]:
    """All figures of this file."""
    return [*cold(), *warm(), *many()]


def cold() -> list[Figure]:
    """The command on the default manifest, each time in a new process that has nothing kept."""
    shipped = str(resource("capabilities.yaml"))
    with TemporaryDirectory() as empty:
        bare = _median_ms(["--version"], empty)
        whole = _median_ms(["lint", shipped], empty)
        vllm = _median_ms(["lint", str(manifest_path("vllm-0.33.0"))], empty)
    return [
        Figure("LINT00", "attnsel --version, for scale", bare, "ms"),
        Figure("LINT01", "attnsel lint capabilities.yaml, cold", whole, "ms", 400),
        Figure("LINT02", "attnsel lint vllm-0.33.0.yaml, cold", vllm, "ms"),
    ]


def warm() -> list[Figure]:
    """The shipped manifests in a process that has linted before, as an editor's would."""
    found = []
    for place, name in enumerate(("capabilities.yaml", "vllm-0.33.0")):
        path = resource(name) if name.endswith(".yaml") else manifest_path(name)
        lint(read_document(path))
        again = median_of(lambda path=path: lint(read_document(path)), number=1, repeat=5)
        found.append(Figure(f"LINT1{place}", f"lint of {name}, again", again / 1e6, "ms"))
    data = resource("capabilities.yaml").read_bytes().replace(b"mla: false", b"mla: no", 5)
    spent = median_of(lambda: mend([("a.yaml", data)]), number=1, repeat=5)
    found.append(Figure("LINT12", "mending five words of capabilities.yaml", spent / 1e6, "ms"))
    return found


def many() -> list[Figure]:
    """200 manifests of 40 entries in a folder."""
    with TemporaryDirectory() as folder:
        write(Path(folder), 200)
        begin = time.perf_counter()
        ran = _run(["lint", folder, "--statistics"], folder)
        took = time.perf_counter() - begin
    if ran.returncode > 1:
        raise RuntimeError(ran.stderr)
    return [Figure("LINT20", "attnsel lint of 200 manifests of 40 entries", took, "s", 30)]


def _median_ms(arguments: Sequence[str], cache: str) -> float:
    """The median wall time of a command in a new process, after one run that is not counted."""
    spent = []
    for _ in range(_RUNS + 1):
        begin = time.perf_counter()
        ran = _run(arguments, cache)
        spent.append((time.perf_counter() - begin) * 1e3)
        if ran.returncode > 1:
            raise RuntimeError(ran.stderr)
    return sorted(spent[1:])[_RUNS // 2]


def _run(arguments: Sequence[str], cache: str) -> subprocess.CompletedProcess[str]:
    command = str(Path(sys.executable).with_name("attnsel"))
    environment = {**os.environ, "ATTNSEL_CACHE_DIR": "", "TMPDIR": cache}
    return subprocess.run([command, *arguments], env=environment, capture_output=True, text=True)
