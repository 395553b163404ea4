"""What the page of the service shows can be run, and what it lists is there."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import parse_qs

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from tests.server import Client, Server

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text("utf-8")
TOP = PAGE.partition("## Words")[0]
SERVE = shlex.split(*re.findall(r"^    attnsel serve (.*)$", TOP, re.MULTILINE))
QUESTIONS = re.findall(r"^    (?:printf|curl)(?:.*\n    )*.*$", TOP, re.MULTILINE)
LINKS = re.findall(r"http://localhost:8080/#(view=\S+)", PAGE)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The server of the first example, but for its port."""
    with Server((), *SERVE) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with closing(Client(server.port)) as client:
        yield client


@pytest.mark.skipif(shutil.which("curl") is None, reason="asks with curl, as people do")
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_first_questions_are_answered(server: Server, question: str) -> None:
    asked = question.replace("localhost:8080", f"127.0.0.1:{server.port}")
    asked = asked.replace("curl -s ", "curl -sS --noproxy '*' --fail-with-body ")
    done = subprocess.run(["sh", "-c", asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    if "jsonl" in question:
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [(row["query_len"], row["error"]) for row in rows] == [(512, None), (1, None)]
    else:
        json.loads(done.stdout)


def test_every_question_and_link_is_found() -> None:
    assert len(QUESTIONS) == TOP.count("/v1/") - TOP.count("/v1/manifest") == 3
    assert len(LINKS) == PAGE.count("#view=") >= 3


def test_links_name_what_is_served(client: Client) -> None:
    served = {one["name"] for one in client.get("/readyz").json["manifests"]}
    for link in LINKS:
        said = parse_qs(link)
        names = [said[key][0] for key in ("manifest", "old", "new") if key in said]
        assert names
        assert {*names} <= served


def test_all_metrics_are_listed(client: Client) -> None:
    client.get("/healthz")
    text = client.get("/metrics").body.decode()
    there = {*re.findall(r"^# TYPE (\w+) ", text, re.MULTILINE)}
    listed = re.findall(r"^\| `(attnsel_\w+)` \|([^|]*)\|", PAGE, re.MULTILINE)
    assert {name for name, _ in listed} == {one for one in there if not one.endswith("_created")}
    for name, labels in listed:
        (shown, *_) = re.findall(rf"^{name}(?:_count)?({{.*?}})? ", text, re.MULTILINE)
        assert re.findall(r"(\w+)=", shown) == re.findall(r"`(\w+)`", labels)
    alert = re.findall(r"^    max by \(manifest\) \((\w+)\) == 1$", PAGE, re.MULTILINE)
    assert {*alert} <= there
    assert alert
