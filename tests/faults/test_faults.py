"""A small part of ``make faults``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("pyarrow")

from tests.faults import kills, malformed, reloads, slow


def test_files_that_change_in_every_way_under_load(tmp_path: Path) -> None:
    figures = reloads.run(60, 1, tmp_path, connections=2)
    assert figures.answers.total() > 100


def test_servers_that_are_killed_and_start_again(tmp_path: Path) -> None:
    kills.run(3, 1, tmp_path)


def test_malformed_bytes(tmp_path: Path) -> None:
    malformed.run_raw(300, 1, tmp_path)


def test_requests_made_from_the_description(tmp_path: Path) -> None:
    pytest.importorskip("schemathesis")
    from tests.faults import described

    described.run(300, 1, tmp_path)


def test_slow_clients(tmp_path: Path) -> None:
    slow.run(14, 1, tmp_path)


def test_a_server_that_ends_answers_what_is_under_way(tmp_path: Path) -> None:
    kills.drain(tmp_path)
