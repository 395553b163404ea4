"""A service within the test, without a port; its files are looked at when the test says so."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

testclient = pytest.importorskip("starlette.testclient")

from selector.live import LiveManifests  # noqa: E402
from selector.service.access import Access  # noqa: E402
from selector.service.app import Service  # noqa: E402
from selector.service.limits import Limits  # noqa: E402
from selector.service.log import Log  # noqa: E402

SMALL = Path(__file__).parent.parent / "cli" / "small.yaml"


class Served:
    """A service, what asks it, its manifest's file and its log."""

    def __init__(self, service: Service, client: Any, file: Path, log: io.StringIO) -> None:
        self.service = service
        self.client = client
        self.file = file
        self.log = log

    def logged(self) -> list[dict[str, Any]]:
        """The lines of the log."""
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


Serve = Callable[..., Served]


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(token: str | None = None, **limits: Any) -> Served:
            file = tmp_path / "engine.yaml"
            file.write_bytes(SMALL.read_bytes())
            log = io.StringIO()
            live = LiveManifests.load([str(file), "capabilities.yaml", "vllm-0.33.0"])
            service = Service(
                live,
                Log(log),
                limits=Limits(**limits),
                access=Access(token),
                watch_s=3600,  # the test looks by itself
            )
            client = testclient.TestClient(service, raise_server_exceptions=False)
            return Served(service, stack.enter_context(client), file, log)

        yield start


@pytest.fixture
def served(serve: Serve) -> Served:
    return serve()
