"""``attnsel serve``: the selector over HTTP."""

from __future__ import annotations

import logging
import math
import os
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.asking import UsageError
from cli.options import OverlayOption, complete_manifest
from cli.tokens import read_token

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

    from selector.service.access import Access
    from selector.service.app import Service
    from selector.service.limits import Limits

__all__ = ["serve"]

_SWITCH_S = 0.001
"""Requests wait no longer than this for a manifest that is being read, nor it for them."""


def serve(
    manifest: Annotated[
        list[str] | None,
        typer.Option(
            "--manifest",
            metavar="NAME|PATH",
            help="Name or path; more may follow it, or repeat it. The first answers who names "
            "none. Default: the shipped one.",
            autocompletion=complete_manifest,
        ),
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME|PATH", help="More of them.", show_default=False),
    ] = None,
    overlay: OverlayOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")
    ] = 8080,
    token_file: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Ask for the bearer token that this file holds."),
    ] = None,
    body_bytes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Longest body, but for batches.")
    ] = 4 << 20,
    batch_bytes: Annotated[
        int, typer.Option(metavar="N", min=1, help="Longest body of a batch.")
    ] = 256 << 20,
    batch_rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Most rows of a batch.")
    ] = 1_000_000,
    depth: Annotated[
        int, typer.Option(metavar="N", min=4, max=256, help="Deepest nesting of a JSON body.")
    ] = 32,
    deadline: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0.1, help="Longest time for a body or an answer."),
    ] = 30.0,
    drain_delay: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=3600,
            help="Answer on for so long after SIGTERM, while /readyz says 503.",
        ),
    ] = 0.0,
    at_once: Annotated[
        int,
        typer.Option(
            metavar="N", min=1, max=64, help="Slow questions that are worked on together."
        ),
    ] = 4,
    log_requests: Annotated[
        bool, typer.Option("--log-requests/--no-log-requests", help="Log every request.")
    ] = True,
) -> None:
    """Serve manifests over HTTP, with a page for people, and read them again when they change.

    Example: attnsel serve --manifest my-engine.yaml --port 8080
    """
    try:
        import uvicorn

        from selector.service.access import Access
        from selector.service.app import Service
        from selector.service.connections import connections
    except ImportError as error:
        raise UsageError(
            f"serve needs {error.name}, which is not installed; run: pip install 'attnsel[serve]'"
        ) from None
    from selector.service.limits import Limits

    limits = Limits(body_bytes, batch_bytes, batch_rows, depth, deadline, at_once)
    access = Access(None)
    if token_file is not None:
        access = Access(read_token(token_file), partial(read_token, token_file))
    service = _service(
        Service, [*(manifest or ()), *(more or ())], overlay or [], limits, access, log_requests
    )
    listening = _listening(host, port)
    for one in service.live.values():
        service.tell(one)
    config = uvicorn.Config(
        service,
        http=connections(deadline),
        ws="none",
        proxy_headers=False,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=30,
        lifespan="on",
    )
    sys.setswitchinterval(_SWITCH_S)
    _server(uvicorn, config, service, drain_delay).run([listening])
    if hasattr(signal, "SIGHUP"):  # while the process ends, handlers no longer do
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _service(
    kind: type[Service],
    manifests: Sequence[str],
    overlays: Sequence[str],
    limits: Limits,
    access: Access,
    log_requests: bool,
) -> Service:
    """The application, which logs on stderr what becomes of its manifests.

    Raises:
        AttnselError: a manifest has errors, or there is none of that name.
        OSError: a file cannot be opened.
    """
    from selector.live import LiveManifests
    from selector.service.log import Forward, Log

    log = Log(sys.stderr, requests=log_requests)
    server_log = logging.getLogger("uvicorn")
    server_log.addHandler(Forward(log))
    server_log.propagate = False
    live = LiveManifests.load(manifests, overlays, lambda changed: service.tell(changed))
    service = kind(live, log, limits=limits, access=access)
    return service


def _listening(host: str, port: int) -> socket.socket:
    """A socket that listens.

    Raises:
        OSError: the address is taken, or none of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        named = isinstance(error, socket.gaierror)  # its numbers are not those of other errors
        words = error.strerror if named else os.strerror(error.errno or 0)
        raise OSError(error.errno, words, f"{host}:{port}") from None


def _server(uvicorn: Any, config: Any, service: Service, drain_delay_s: float) -> Any:
    """A server that says where it listens, reloads on SIGHUP and drains on SIGTERM."""

    class Server(uvicorn.Server):  # type: ignore[misc]
        started: bool
        should_exit: bool
        force_exit: bool
        drains_at = math.inf

        async def startup(self, sockets: Any = None) -> None:
            if hasattr(signal, "SIGHUP"):
                signal.signal(signal.SIGHUP, service.reload_soon)
            await super().startup(sockets)
            if self.started:
                where = [one.getsockname()[:2] for one in sockets]
                service.log.write("info", "listening", address=[f"{h}:{p}" for h, p in where])

        async def on_tick(self, counter: int) -> bool:
            if time.monotonic() >= self.drains_at:
                self.should_exit = True
            ends: bool = await super().on_tick(counter)
            return ends

        def handle_exit(self, number: int, frame: FrameType | None) -> None:
            waits = drain_delay_s > 0 and self.started and not service.draining
            service.draining = True
            if waits:
                self.drains_at = time.monotonic() + drain_delay_s
            else:  # uvicorn's own way would end the process by the signal
                self.force_exit = self.should_exit and number == signal.SIGINT  # asked twice
                self.should_exit = True
            delay_s = drain_delay_s if waits else 0.0
            name = signal.Signals(number).name
            service.log.write("info", "draining", signal=name, delay_s=delay_s)

    return Server(config)
