"""A page of the explorer and the service behind it, as the tests here use them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip(
    "playwright.sync_api", reason="needs playwright: pip install playwright"
)

from tests.server import Server  # noqa: E402

__all__ = ["NARROW", "SMALL", "WIDE", "Browse", "Browsed", "expect", "served"]

SMALL = Path(__file__).parents[1] / "unit" / "cli" / "small.yaml"
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 360, "height": 740}
ANSWER_MS = 60_000
"""No answer takes as long, even on a machine that does much else."""

expect = sync_api.expect
expect.set_options(timeout=ANSWER_MS)


class Browsed:
    """A page, and everything that went wrong on it."""

    def __init__(self, page: Any, url: str) -> None:
        self.page = page
        self.url = url
        self.troubles: list[str] = []
        page.set_default_timeout(ANSWER_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.troubles.append(f"page: {error}"))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def open(self, fragment: str = "") -> Browsed:
        """Loads a link of the explorer; lists are filled when this returns."""
        self.page.goto("about:blank")  # a link that differs after # only would not be loaded
        self.page.goto(f"{self.url}/#{fragment}")
        self.page.locator("#health", has_text=re.compile(".")).wait_for()
        return self

    def answered(self) -> Browsed:
        """Waits for the answer."""
        expect(self.page.locator("#message")).to_contain_text("Answered")
        return self

    def look(self) -> None:
        """Lets the seconds pass after which the page looks at the service again."""
        self.page.clock.run_for(5_000)

    def shoot(self, name: str) -> None:
        """Keeps a picture of the whole page, in which nothing is cut off at the side."""
        wide, inner = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)
        assert wide <= inner, f"{name} is {wide} wide where {inner} are seen"
        if inner < 640:  # a row is a card; pictures alone scroll, in a box of their own
            tables = self.page.locator(".wide:not(.high)")
            assert not any(
                tables.evaluate_all("(a) => a.map((b) => b.scrollWidth - b.clientWidth)")
            )

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.troubles.append(f"console: {message.text}")

    def _failed(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # the page gives up what is no longer wanted
            self.troubles.append(f"request: {request.url} {request.failure}")

    def _answered(self, answer: Any) -> None:
        if answer.status >= 400:
            self.troubles.append(f"answer: {answer.url} {answer.status}")


Browse = Callable[..., Browsed]


def served(*options: str) -> Server:
    """A service that runs; its log says what becomes of its manifests, and no requests."""
    return Server([], "--no-log-requests", *options)
