"""A server, and what it must answer; the environment names no proxy."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from selector import Selector
from tests.unit import listening


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening.service(["capabilities.yaml", "vllm-0.33.0"]) as url:
        yield url


@pytest.fixture(scope="module")
def here() -> Selector:
    return Selector.load("capabilities.yaml")
