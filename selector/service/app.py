"""The ASGI application: routes, and one way to answer, to fail, to count and to log."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import threading
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router

from selector.errors import AttnselError, os_words
from selector.fields import one_line
from selector.live import LiveManifest, LiveManifests, Snapshot, Watcher
from selector.process import BugError
from selector.service import handlers
from selector.service.access import Access, headers_of
from selector.service.calls import Answer, Call, GoneError, Slots
from selector.service.limits import Limits
from selector.service.log import Log
from selector.service.metrics import Metrics
from selector.service.problems import PROBLEM_TYPE, Problem, problem_body, problem_of
from selector.service.quick import Quick
from selector.service.workers import Work, Workers
from selector.stored import is_wanted

__all__ = ["Service"]

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

Handler = Callable[["Service", Call], Awaitable[Answer]]


class _Endpoint:
    """What answers one route."""

    def __init__(self, route: str, handler: Handler, service: Service) -> None:
        self.route = route
        self.handler = handler
        self.service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        call: Call = scope["attnsel"]
        call.route = self.route
        call.answer = await self.handler(self.service, call)


class Service:
    """The application.

    Attributes:
        live: the manifests that answer.
        limits: what is refused beyond.
        batches: how many are worked on together.
        quick: answers single questions.
        draining: whether it is about to end.
    """

    def __init__(
        self,
        live: LiveManifests,
        log: Log,
        *,
        limits: Limits | None = None,
        access: Access | None = None,
        watch_s: float = 0.005,
    ) -> None:
        """Makes the application.

        Args:
            live: the manifests that answer.
            log: takes what happens.
            limits: what is refused beyond.
            access: who may ask; ``None``: everyone.
            watch_s: time between two looks at the files.
        """
        self.live = live
        self.log = log
        self.limits = limits or Limits()
        self.access = access or Access(None)
        self.metrics = Metrics(live)
        self.quick = Quick(live)
        self.batches = Slots(self.limits.at_once)
        self._workers = Workers(self.limits.at_once)
        self.draining = False
        self._reloading = threading.Lock()
        self._wanted = False
        self._watch_s = watch_s
        self._ids = map("{}-{:x}".format, itertools.repeat(os.urandom(6).hex()), itertools.count(1))
        self._router = Router(
            [
                Route(path, _Endpoint(path, handler, self), methods=[method])
                for method, path, handler in handlers.ROUTES
            ],
            redirect_slashes=False,
            lifespan=self._lifespan,
        )

    def tell(self, manifest: LiveManifest) -> None:
        """Logs what became of a live manifest."""
        trouble, now = manifest.trouble, manifest.current
        what = {
            "manifest": manifest.name,
            "generation": now.generation,
            "digest": now.digest,
            "kept": manifest.is_kept,
        }
        if trouble is None:
            is_fine = manifest.is_kept or not is_wanted()
            self.log.write("info" if is_fine else "warning", "manifest served", **what)
            return
        found = [str(finding) for finding in trouble.findings[:20]]
        self.log.write(
            "warning",
            "manifest degraded",
            **what,
            code=trouble.code,
            detail=trouble.message,
            findings=found,
        )

    def take(self, call: Call, name: str | None) -> Snapshot:
        """The snapshot that answers a call, from its start to its end.

        Raises:
            UnknownManifestError: none of that name is served.
        """
        call.snapshot = self.live.current(name)
        return call.snapshot

    async def work(self, work: Work, *arguments: object) -> bytes:
        """What slow work gives, within the deadline.

        Raises:
            Problem: what the work raises; or the deadline passed.
        """
        return await self._workers.do(work, *arguments, deadline_s=self.limits.deadline_s)

    def reload_soon(self, *_: object) -> None:
        """Reads manifests and the token anew, on another thread; a handler of a signal.

        One reload that has not begun is enough for all who want one.
        """
        if self._wanted:
            return
        self._wanted = True
        threading.Thread(target=self._reload, name="attnsel-reload", daemon=True).start()

    def _reload(self) -> None:
        with self._reloading:
            self._wanted = False
            self._read_token()
            for one in self.live.values():
                one.reload()
            states = {
                name: {"generation": one.current.generation, "status": one.status}
                for name, one in self.live.items()
            }
            self.log.write("info", "reloaded", manifests=states)

    def _read_token(self) -> None:
        """Takes the token anew; where there is none, the old one stays."""
        try:
            if self.access.read_again():
                self.log.write("info", "token replaced")
        except AttnselError as error:
            self.log.write("warning", "token kept", detail=str(error))
        except OSError as error:
            self.log.write("warning", "token kept", detail=os_words(error))

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        watcher = Watcher(self.live.values(), self._watch_s)
        watcher.start()
        try:
            yield
        finally:
            self._workers.stop()
            await asyncio.to_thread(watcher.stop)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers one request, or the server's own start and end."""
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        started = time.perf_counter()
        given = next((str(v, "latin-1") for k, v in scope["headers"] if k == b"x-request-id"), "")
        id = given if _ID.fullmatch(given) else next(self._ids)
        call = Call(scope, receive, id, self.limits, self.access.admits(scope))
        answer = await self._answer(call, scope, receive, send)
        sent = False
        try:
            sent = answer is not None and await self._send(call, answer, send)
        finally:
            if answer is not None and answer.end is not None:
                answer.end(sent)
        status = answer.status if answer is not None and sent else 499
        self._account(call, status, time.perf_counter() - started)

    async def _answer(self, call: Call, scope: Any, receive: Any, send: Any) -> Answer | None:
        """The answer, or a problem; ``None`` when the client is gone."""
        scope["attnsel"] = call
        scope["app"] = self  # so that the router raises what it refuses
        try:
            if not call.trusted and not self.access.is_open(scope["path"]):
                raise self.access.refusal()
            await self._router(scope, receive, send)
            return call.answer
        except Problem as problem:
            return _problem_answer(problem)
        except AttnselError as error:
            return _problem_answer(problem_of(error))
        except HTTPException as error:
            code = "NO_SUCH_PATH" if error.status_code == 404 else "NO_SUCH_METHOD"
            path = one_line(scope["path"])
            detail = f"{scope['method'][:20]} {path} is not answered; /openapi.json lists what is"
            return _problem_answer(Problem(error.status_code, code, detail, (), error.headers))
        except GoneError:
            return None
        except Exception as error:
            self._log_bug(call, error)
            detail = "this is a bug in attnsel; the log has more under the request's id"
            return _problem_answer(Problem(500, "BUG", detail))
        finally:
            del scope["attnsel"]  # they hold each other: a collector would have to find them

    def _log_bug(self, call: Call, error: BaseException) -> None:
        where = "".join(traceback.format_tb(error.__traceback__))
        if isinstance(error, BugError):
            where = str(error)
        what = type(error).__name__  # its words may hold what the request holds
        self.log.write("error", "bug", request_id=call.id, error=what, traceback=where)

    async def _send(self, call: Call, answer: Answer, send: Any) -> bool:
        """Sends an answer; whether all of it could be sent."""
        headers = headers_of(answer, call.id, call.snapshot or self.live.first.current)
        body = answer.body
        if isinstance(body, bytes):
            headers.append((b"content-length", b"%d" % len(body)))
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            body = b"" if call.scope["method"] == "HEAD" else body
            await send({"type": "http.response.body", "body": body})
            return True
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        try:
            async for piece in body:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
                if await call.is_gone():
                    return False
        except Exception as error:  # too late for a problem: the connection is cut instead
            self._log_bug(call, error)
            raise
        await send({"type": "http.response.body", "body": b""})
        return True

    def _account(self, call: Call, status: int, seconds: float) -> None:
        route = call.route or "none"
        self.metrics.add(route, status, seconds)
        if not self.log.requests:
            return
        answered = call.snapshot
        self.log.write(
            "info" if status < 500 else "error" if status == 500 else "warning",
            "request",
            request_id=call.id,
            method=call.scope["method"][:20],
            route=route,
            status=status,
            ms=round(seconds * 1e3, 3),
            manifest=answered.name if answered else None,
            generation=answered.generation if answered else None,
        )


def _problem_answer(problem: Problem) -> Answer:
    return Answer(
        problem_body(problem),
        media=PROBLEM_TYPE,
        status=problem.status,
        headers=problem.headers,
    )
