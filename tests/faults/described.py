"""Requests made from the description of the service: right and wrong ones, for each operation."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from selector.service.calls import JSON
from selector.service.openapi import description
from tests.faults.malformed import Figures, serving
from tests.server import memory_kib

__all__ = ["run"]

_CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    negative_data_rejection,
]


def run(count: int, number: int, folder: Path) -> Figures:
    """Asks about so many questions; a seed gives others.

    Raises:
        AssertionError: an answer is not as described, or 5xx, or takes what is wrong as right.
    """
    results: Counter[str] = Counter()
    began = time.monotonic()
    with serving(folder, "--deadline", "120") as server, requests.Session() as session:
        plain, varied = _operations()
        tries = [(one, GenerationMode.POSITIVE, 1) for one in plain]
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):
            tries += [(one, mode, count // (2 * len(varied)) + 1) for one in varied]
        for operation, mode, times in tries:
            _ask(operation, mode, times, number, partial(_check, session, server.port, results))
        most = memory_kib(server.process.pid, "VmHWM") // 1024
    return Figures("described requests", results, most, time.monotonic() - began)


def _operations() -> tuple[list[Any], list[Any]]:
    """Those that are always asked alike, and those that take something."""
    found = [one.ok() for one in schemathesis.openapi.from_dict(description()).get_all_operations()]
    varied = [one for one in found if [*one.iter_parameters(), *one.body]]
    return [one for one in found if one not in varied], varied


def _ask(
    operation: Any,
    mode: GenerationMode,
    count: int,
    number: int,
    ask: Callable[[Any], None],
) -> None:
    """Tries an operation so often."""

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(operation.as_strategy(generation_mode=mode))
    def tried(case: Any) -> None:
        ask(case)

    tried()


def _check(session: Any, port: int, results: Counter[str], case: Any) -> None:
    answer = case.call(base_url=f"http://127.0.0.1:{port}", session=session)
    checks = list(_CHECKS)
    if case.media_type not in (None, JSON):  # any text is a document to look into
        checks.remove(negative_data_rejection)
    if not answer.headers["content-type"][0].endswith("json"):  # a schema is of the text
        checks.remove(response_schema_conformance)
    case.validate_response(answer, checks=checks)
    results[str(answer.status_code)] += 1
