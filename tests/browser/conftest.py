"""The system's Chromium, and what it asks; test modules skip where Playwright is missing."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.browser.page import Browse, Browsed

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
_FLAGS = [
    "--no-sandbox",  # which root cannot have
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser; of a module, for Playwright's event loop would be in the way of others' loops."""
    if _CHROMIUM is None:
        pytest.skip("needs a browser: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS)
        yield found
        found.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a small, the default and a large manifest are served."""
    from tests.browser.page import SMALL, served

    file = tmp_path_factory.mktemp("served") / "small.yaml"
    file.write_bytes(SMALL.read_bytes())
    names = ["capabilities.yaml", str(file), "vllm-0.33.0"]
    with served(*(part for name in names for part in ("--manifest", name))) as server:
        yield f"http://127.0.0.1:{server.port}"


@pytest.fixture
def browse(browser: Any, request: pytest.FixtureRequest) -> Iterator[Browse]:
    """Opens pages; in the end nothing may have gone wrong on them but what a test expects."""
    from tests.browser.page import WIDE, Browsed

    with ExitStack() as stack:
        pages: list[tuple[Browsed, str | None]] = []

        def start(url: str | None = None, fails: str | None = None, **options: Any) -> Browsed:
            context = browser.new_context(**{"viewport": WIDE, **options})
            stack.callback(context.close)
            context.clock.install()
            found = Browsed(context.new_page(), url or request.getfixturevalue("service"))
            pages.append((found, fails))
            return found

        yield start
        for page, fails in pages:
            bad = [one for one in page.troubles if fails is None or not re.search(fails, one)]
            assert not bad
