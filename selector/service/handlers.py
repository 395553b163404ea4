"""What each route answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from selector.errors import UnknownBackendError
from selector.live import LiveManifest, Snapshot
from selector.models import presets
from selector.plan.memo import remember
from selector.report.data import json_text, to_json
from selector.report.entries import entries_json
from selector.report.matrix import matrix_json, support_matrix
from selector.report.verified import backend_json
from selector.resources import packaged
from selector.service import slow
from selector.service.access import EXPLORER
from selector.service.batches import FORMS, Readers, read_batch
from selector.service.bodies import Asks, Sides, read_body
from selector.service.calls import JSON, Answer, Call
from selector.service.openapi import description
from selector.service.problems import Problem

if TYPE_CHECKING:
    from selector.service.app import Service

__all__ = ["ROUTES"]

T = TypeVar("T")

_MOST_DIFFS = 16
_YAML = ("application/yaml", "text/yaml", "application/x-yaml", "text/x-yaml", "text/plain")


def _json(value: object) -> bytes:
    return json_text(value).encode("utf-8")


def _kept(snapshot: Snapshot, name: str, make: Callable[[], T]) -> T:
    """What was made once from a snapshot, or for it."""
    found: T | None = snapshot.worked_out.get(name)
    if found is None:
        found = snapshot.worked_out[name] = make()
    return found


def _expect(call: Call, *kinds: str) -> None:
    """Refuses a body of another type; one that is not said is taken as the first.

    Raises:
        Problem: the type is another.
    """
    if call.media and call.media not in kinds:
        detail = f'a body of type "{call.media[:60]}" is not read; send {" or ".join(kinds)}'
        raise Problem(415, "MEDIA_TYPE", detail)


async def _resolve(service: Service, call: Call) -> Answer:
    _expect(call, JSON)
    call.query()
    data = await call.body(service.limits.body_bytes)
    return Answer(service.quick.answer(call, data))


async def _explain(service: Service, call: Call) -> Answer:
    _expect(call, JSON)
    call.query()
    data = await call.body(service.limits.body_bytes)
    depth = service.limits.depth
    asks = read_body(data, Asks, depth)
    snapshot = service.take(call, asks.manifest)
    work = slow.explain if asks.log is UNSET else slow.explain_log
    return Answer(await service.work(work, slow.Source.of(snapshot), data, depth))


async def _batch(service: Service, call: Call) -> Answer:
    _expect(call, *FORMS)
    query = call.query("manifest", "device", "as_claimed", "closed_world")
    snapshot = service.take(call, query.get("manifest"))
    readers: Readers = _kept(snapshot, "readers", Readers)
    reader = readers.take(snapshot, query)
    await service.batches.take(service.limits.deadline_s)
    try:
        data = await call.body(service.limits.batch_bytes)
        batch = await asyncio.to_thread(read_batch, call, data, reader, service.limits)
    except BaseException:
        service.batches.give_back()
        raise
    service.metrics.rows.inc(batch.rows)

    def end(sent: bool) -> None:
        service.batches.give_back()
        if sent:  # else a thread may still be at it
            readers.give_back(query, reader)

    return Answer(batch.stream(), media=batch.media, end=end)


async def _lint(service: Service, call: Call) -> Answer:
    _expect(call, *_YAML)
    call.query()
    data = await call.body(service.limits.body_bytes)
    return Answer(await service.work(slow.lint, "<body>", data))


async def _diff(service: Service, call: Call) -> Answer:
    _expect(call, JSON)
    call.query()
    data = await call.body(service.limits.body_bytes)
    depth = service.limits.depth
    sides = read_body(data, Sides, depth)
    snapshots = [service.take(call, name) for name in sides.names]
    served = {one.name: slow.Source.of(one) for one in snapshots}
    if len(snapshots) < 2:
        return Answer(await service.work(slow.compare, data, depth, served))
    known: dict[object, bytes] = _kept(snapshots[1], "diffs", dict)
    asked = (snapshots[0].digest, msgspec.json.encode(sides))
    found = known.get(asked)
    if found is None:
        found = await service.work(slow.compare, data, depth, served)
        remember(known, asked, found, _MOST_DIFFS)
    return Answer(found)


# -- what a manifest states ----------------------------------------------------------------------


async def _backends(service: Service, call: Call) -> Answer:
    snapshot = service.take(call, call.query("manifest").get("manifest"))
    stated = snapshot.selector.manifest
    return Answer(_kept(snapshot, "backends", lambda: _json(entries_json(stated))))


async def _backend(service: Service, call: Call) -> Answer:
    snapshot = service.take(call, call.query("manifest").get("manifest"))
    stated = snapshot.selector.manifest
    try:
        entry = stated.entry(call.scope["path_params"]["name"])
    except UnknownBackendError as error:
        raise Problem(404, error.code, str(error)) from None
    made = _kept(snapshot, f"backend {entry.name}", lambda: _json(backend_json(entry, stated)))
    return Answer(made)


async def _manifest(service: Service, call: Call) -> Answer:
    query = call.query("manifest", "source")
    snapshot = service.take(call, query.get("manifest"))
    tag = f'W/"{snapshot.digest}"'  # weak: it says what is meant, not how it is written
    names = ",".join(quote(name, errors="surrogateescape") for name, _ in snapshot.sources)
    headers = {"etag": tag, "attnsel-sources": names}
    text = _source(snapshot, query.get("source", "0"))
    if call.header(b"if-none-match") in (tag, tag[2:], "*"):
        return Answer(b"", media=_YAML[0], status=304, headers=headers)
    return Answer(text, media=_YAML[0], headers=headers)


def _source(snapshot: Snapshot, number: str) -> bytes:
    """What one of the files behind a snapshot held.

    Raises:
        Problem: there are not so many.
    """
    last = len(snapshot.sources) - 1
    if number.isdecimal() and number.isascii() and len(number) < 4 and int(number) <= last:
        return snapshot.sources[int(number)][1]
    takes = f"0 to {last}" if last else "0"
    raise Problem(422, "PARAMETER", f'source "{number[:60]}" is not there; it takes {takes}')


async def _matrix(service: Service, call: Call) -> Answer:
    snapshot = service.take(call, call.query("manifest").get("manifest"))

    def make() -> bytes:
        selector = snapshot.selector
        return _json(matrix_json([support_matrix(selector)], selector))

    return Answer(await asyncio.to_thread(_kept, snapshot, "matrix", make))


async def _models(service: Service, call: Call) -> Answer:
    call.query()
    return Answer(_json({"presets": presets()}))


# -- how the service is --------------------------------------------------------------------------


async def _healthz(service: Service, call: Call) -> Answer:
    call.query()
    return Answer(_json({"status": "alive"}))


async def _readyz(service: Service, call: Call) -> Answer:
    call.query()
    manifests = [_state(live, call.trusted) for live in service.live.values()]
    degraded = any(live.is_degraded for live in service.live.values())
    status = "draining" if service.draining else "degraded" if degraded else "ready"
    body = _json({"status": status, "manifests": manifests})
    return Answer(body, status=503 if service.draining else 200)


def _state(live: LiveManifest, trusted: bool) -> dict[str, Any]:
    """What is served, and, to whom may know it, what is wrong with the file."""
    now, trouble, current = time.time(), live.trouble, live.current
    state: dict[str, Any] = {
        "name": live.name,
        "status": "ready" if trouble is None else "degraded",
        "digest": current.digest,
        "generation": current.generation,
        "age_s": round(max(0.0, now - current.loaded_at), 3),
        "trouble": None,
    }
    if trouble is not None and trusted:
        state["trouble"] = {
            "code": trouble.code,
            "detail": trouble.message,
            "age_s": round(max(0.0, now - trouble.since), 3),
            "findings": [to_json(finding) for finding in trouble.findings],
        }
    return state


async def _metrics(service: Service, call: Call) -> Answer:
    call.query()
    return Answer(service.metrics.text(), media="text/plain; version=1.0.0; charset=utf-8")


async def _openapi(service: Service, call: Call) -> Answer:
    call.query()
    return Answer(_json(description()))


async def _explorer(service: Service, call: Call) -> Answer:
    name, media = EXPLORER[call.scope["path"]]
    try:
        return Answer(packaged(f"service/explorer/{name}").read_bytes(), media=media)
    except OSError:
        raise Problem(404, "NO_SUCH_PATH", f"{name} is not part of this installation") from None


ROUTES = (
    ("POST", "/v1/resolve", _resolve),
    ("POST", "/v1/resolve:batch", _batch),
    ("POST", "/v1/explain", _explain),
    ("POST", "/v1/lint", _lint),
    ("POST", "/v1/diff", _diff),
    ("GET", "/v1/manifest", _manifest),
    ("GET", "/v1/backends", _backends),
    ("GET", "/v1/backends/{name}", _backend),
    ("GET", "/v1/matrix", _matrix),
    ("GET", "/v1/models", _models),
    ("GET", "/healthz", _healthz),
    ("GET", "/readyz", _readyz),
    ("GET", "/metrics", _metrics),
    ("GET", "/openapi.json", _openapi),
    *(("GET", path, _explorer) for path in EXPLORER),
)
"""Method, path and what answers it."""
