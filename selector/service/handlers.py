"""What each route answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from selector.errors import UnknownBackendError
from selector.live import LiveManifest, Snapshot
from selector.report.data import answer_json, json_text, to_json
from selector.report.entries import entries_json
from selector.report.matrix import matrix_json, support_matrix
from selector.report.verified import backend_json
from selector.resources import packaged
from selector.service.access import EXPLORER
from selector.service.answers import ask
from selector.service.bodies import Question, read_body
from selector.service.calls import JSON, Answer, Call
from selector.service.problems import Problem

if TYPE_CHECKING:
    from selector.service.app import Service

__all__ = ["ROUTES"]

T = TypeVar("T")


def _json(value: object) -> bytes:
    return json_text(value).encode("utf-8")


def _kept(snapshot: Snapshot, name: str, make: Callable[[], bytes]) -> bytes:
    """What was made once from a snapshot."""
    found: bytes | None = snapshot.worked_out.get(name)
    if found is None:
        found = snapshot.worked_out[name] = make()
    return found


async def _slowly(service: Service, work: Callable[[], T]) -> T:
    """Does slow work on a thread of its own, within the deadline.

    Raises:
        Problem: the deadline passed.
    """
    try:
        async with asyncio.timeout(service.limits.deadline_s), service.slow:
            return await asyncio.to_thread(work)
    except TimeoutError:
        raise Problem(503, "DEADLINE", "no answer was found in time") from None


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
    data = await call.body(service.limits.body_bytes)
    body = read_body(data, Question, service.limits.depth)
    snapshot = service.live.current(body.manifest)
    request = body.request.request()
    cases = ask(snapshot, body).cases(request)
    return Answer(_json(answer_json(cases)), snapshot)


# -- what a manifest states ----------------------------------------------------------------------


async def _backends(service: Service, call: Call) -> Answer:
    snapshot = service.live.current(call.query("manifest").get("manifest"))
    stated = snapshot.selector.manifest
    return Answer(_kept(snapshot, "backends", lambda: _json(entries_json(stated))), snapshot)


async def _backend(service: Service, call: Call) -> Answer:
    snapshot = service.live.current(call.query("manifest").get("manifest"))
    stated = snapshot.selector.manifest
    try:
        entry = stated.entry(call.scope["path_params"]["name"])
    except UnknownBackendError as error:
        raise Problem(404, error.code, str(error)) from None
    made = _kept(snapshot, f"backend {entry.name}", lambda: _json(backend_json(entry, stated)))
    return Answer(made, snapshot)


async def _matrix(service: Service, call: Call) -> Answer:
    snapshot = service.live.current(call.query("manifest").get("manifest"))

    def make() -> bytes:
        selector = snapshot.selector
        return _json(matrix_json([support_matrix(selector)], selector))

    return Answer(await _slowly(service, lambda: _kept(snapshot, "matrix", make)), snapshot)


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


async def _explorer(service: Service, call: Call) -> Answer:
    name, media = EXPLORER[call.scope["path"]]
    try:
        return Answer(packaged(f"service/explorer/{name}").read_bytes(), media=media)
    except OSError:
        raise Problem(404, "NO_SUCH_PATH", f"{name} is not part of this installation") from None


ROUTES = (
    ("POST", "/v1/resolve", _resolve),
    ("GET", "/v1/backends", _backends),
    ("GET", "/v1/backends/{name}", _backend),
    ("GET", "/v1/matrix", _matrix),
    ("GET", "/healthz", _healthz),
    ("GET", "/readyz", _readyz),
    ("GET", "/metrics", _metrics),
    *(("GET", path, _explorer) for path in EXPLORER),
)
"""Method, path and what answers it."""
