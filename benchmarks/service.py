"""The service under load, beside an application that only echoes: ``make load``; needs wrk."""

from __future__ import annotations

import http.client
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow

from selector.resources import manifest_path

from .batch import a_table
from .harness import Figure, report

_HERE = Path(__file__).parent
_COMMAND = "import sys; from cli.main import main; sys.exit(main(sys.argv[1:]))"
_MANIFEST = "vllm-0.33.0"
_SECONDS = 10
_CONNECTIONS = 16
_ROWS = {"arrow": 1_000_000, "lines": 200_000, "array": 200_000}
_FORMS = {
    "arrow": "application/vnd.apache.arrow.stream",
    "lines": "application/jsonl",
    "array": "application/json",
}
_CHANGES = 200
_QUESTION = {"device": "H200", "model": "qwen3-8b", "request": {"query_len": 512}}


@contextmanager
def _served(*references: str) -> Iterator[tuple[int, int]]:
    """The port and the process id of ``attnsel serve``."""
    command = [sys.executable, "-c", _COMMAND, "serve", "--port", "0"]
    for reference in references:
        command += ["--manifest", reference]
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "ATTNSEL_CACHE_DIR": cache}
        with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as server:
            assert server.stderr is not None
            try:
                for line in server.stderr:
                    said = json.loads(line)
                    if said["event"] == "listening":
                        break
                drain = subprocess.Popen(["cat"], stdin=server.stderr, stdout=subprocess.DEVNULL)
                yield int(said["address"][0].rpartition(":")[2]), server.pid
            finally:
                server.terminate()
                server.wait()
        drain.wait()


@contextmanager
def _echo(size: int) -> Iterator[int]:
    command = [sys.executable, "-m", "benchmarks.echo", str(size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        try:
            yield int(server.stdout.readline())
        finally:
            server.terminate()


def _load(port: int, *arguments: str) -> dict[str, Any]:
    """What wrk measures."""
    url = f"http://127.0.0.1:{port}"
    script = str(_HERE / "service.lua")
    how = ["-t1", f"-c{_CONNECTIONS}", f"-d{_SECONDS}s", "-s", script]
    done = subprocess.run(
        ["wrk", *how, url, "--", *arguments], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if found["failed"]:
        raise SystemExit(f"{found['failed']} of {found['requests']} requests failed")
    return found


def _asked(port: int, body: bytes, path: str = "/v1/resolve", kind: str = _FORMS["array"]) -> bytes:
    """An answer of the service.

    Raises:
        SystemExit: it is an error.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", path, body, {"content-type": kind})
    answer = connection.getresponse()
    data = answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {data[:200]!r}")
    return data


def single() -> Iterator[Figure]:
    """Single questions, and an echo of as many bytes."""
    with _served(_MANIFEST, "capabilities.yaml") as (port, _):
        size = len(_asked(port, json.dumps(_QUESTION).encode()))
        runs = {"one": _load(port), "one again": _load(port), "many": _load(port, "many")}
    with _echo(size) as port:
        runs["echo"] = _load(port)
    what = {
        "echo": f"bare ASGI echo of {size:,} bytes",
        "one again": "resolve, lengths that change",
        "many": "resolve, of 24 layers and devices",
    }
    for place, (name, words) in enumerate(what.items()):
        found = runs[name]
        each = found["seconds"] / found["requests"] * 1e6
        bound = (100, 5) if name == "one again" else (None, None)
        yield Figure(f"SERVICE{place}0", f"{words}: a request", each, "µs", bound[0])
        yield Figure(f"SERVICE{place}1", f"{words}: median", found["p50_ms"], "ms")
        yield Figure(f"SERVICE{place}2", f"{words}: p99", found["p99_ms"], "ms", bound[1])


def tables() -> Iterator[Figure]:
    """Tables of questions of 200 layers; first when nothing of them is known, then again."""
    with _served(_MANIFEST) as (port, pid):
        for place, (form, rows) in enumerate(_ROWS.items(), 3):
            body = _table(form, rows)
            for again in range(2):
                began = time.perf_counter()
                _asked(port, body, "/v1/resolve:batch?closed_world=true", _FORMS[form])
                each = (time.perf_counter() - began) / rows * 1e6
                bound = 1e6 / 300_000 if form == "arrow" else None
                what = f"batch, {form}{', again' if again else ''}: a row of {rows:,}"
                yield Figure(f"SERVICE{place}{again}", what, each, "µs", bound)
        status = Path(f"/proc/{pid}/status").read_text()
        most = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        yield Figure("SERVICE60", "batch: most memory", int(most.split()[1]) / 1024, "MiB", 1024)


def _table(form: str, rows: int) -> bytes:
    table = a_table(rows)
    if form == "arrow":
        stream = io.BytesIO()
        with pyarrow.ipc.new_stream(stream, table.schema) as writer:
            writer.write_table(table, 1 << 16)
        return stream.getvalue()
    said = [{k: v for k, v in row.items() if v is not None} for row in table.to_pylist()]
    if form == "array":
        return json.dumps(said).encode()
    return b"".join(json.dumps(row).encode() + b"\n" for row in said)


def changes() -> Iterator[Figure]:
    """From the moment a file is replaced until an answer comes from what it holds."""
    for place, reference in enumerate(("capabilities.yaml", _MANIFEST), 7):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "engine.yaml")
            text = manifest_path(reference).read_text("utf-8")
            file.write_text(text)
            with _served(str(file)) as (port, _):
                times = sorted(_changes(file, text, port))
        for part, name, at in ((0, "median", 0.5), (1, "p99", 0.99)):
            what = f"a change of {reference} is served: {name} of {len(times)}"
            bound = 100 if part else None
            yield Figure(f"SERVICE{place}{part}", what, times[int(len(times) * at)], "ms", bound)


def _changes(file: Path, text: str, port: int) -> Iterator[float]:
    """Yields milliseconds, for one change after another."""
    connection = http.client.HTTPConnection("127.0.0.1", port)

    def generation() -> int:
        connection.request("GET", "/v1/backends/none")
        answer = connection.getresponse()
        answer.read()
        return int(answer.headers["attnsel-generation"])

    time.sleep(2)  # what loads manifests has started
    now = generation()
    for number in range(_CHANGES):
        written = file.with_name("new")
        written.write_text(text.replace("description: ", f"description: Change {number}. ", 1))
        began = time.perf_counter()
        written.replace(file)
        while (served := generation()) == now:
            time.sleep(0.001)
        yield (time.perf_counter() - began) * 1e3
        now = served
        time.sleep(0.15)


def figures() -> Iterator[Figure]:
    """All figures of this file."""
    yield from single()
    yield from tables()
    yield from changes()


if __name__ == "__main__":
    if shutil.which("wrk") is None:
        sys.exit("the load is made by wrk, which is not installed; run: apt-get install wrk")
    sys.exit(not report(figures(), _HERE / "results"))
