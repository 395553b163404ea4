"""A server's answers and refusals are the library's own; a fallback answers, and says so."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from selector import (
    Device,
    Facts,
    Layer,
    Policy,
    RemoteSelector,
    Selector,
    ServerError,
)
from selector.domains import Domain
from selector.errors import (
    ContradictionError,
    UnknownBackendError,
    UnknownDeviceError,
    UnknownFieldError,
    UnknownManifestError,
    ValueRefusedError,
)
from selector.models import load_model
from selector.report.data import json_text, resolution_json
from tests.cases.test_conformance import CASES, bound_to, device_of, facts_of, layer_of, served_as
from tests.unit import listening
from tests.unit.listening import LAYER, NOBODY, ask, read_request, said, scripted, write_overlay

SMALL = Path(__file__).parents[1] / "cli" / "small.yaml"

# -- the same answers ----------------------------------------------------------------------------


def test_rows_of_the_table() -> None:
    for served, cases in groupby(CASES, served_as):
        with listening.service(*served) as url, RemoteSelector(url) as remote:
            for case in cases:
                question = case["question"]
                deny = dict.fromkeys(question.get("deny", ()), "test")
                policy = Policy(deny, question.get("backend"))
                device, layer, facts = device_of(question), layer_of(question), facts_of(question)
                lengths = question["query_len"], question["seq_len"]
                answer = remote.bind(device, layer, facts, policy).resolve(*lengths)
                expected = bound_to(case).resolve(*lengths)
                assert answer == expected, case["id"]
                assert json_text(resolution_json(answer)) == json_text(resolution_json(expected))


@pytest.mark.parametrize("lengths", [(), (5,), (None, 5), (5, 9), (1, 2**40)])
def test_lengths_that_are_not_known(url: str, here: Selector, lengths: tuple[Any, ...]) -> None:
    with RemoteSelector(url) as remote:
        answer = remote.bind("H200", LAYER).resolve(*lengths, speculative_tokens=3)
    assert answer == here.bind("H200", LAYER).resolve(*lengths, speculative_tokens=3)


def test_devices_worlds_and_claims(url: str) -> None:
    for claimed in (False, True):
        here = Selector.load("vllm-0.33.0", as_claimed=claimed)
        file = here.manifest.ref.file
        with RemoteSelector(url, manifest="vllm-0.33.0", as_claimed=claimed) as remote:
            for device in ("sm120", "B200", "cpu", Device("rocm"), Device("cuda", "13.7", "X")):
                for closed in (False, True):
                    answer = remote.bind(device, LAYER, closed_world=closed).resolve(1, 10)
                    expected = here.bind(device, LAYER, closed_world=closed).resolve(1, 10)
                    assert answer == expected
                    assert answer.manifest.file == file


@pytest.mark.parametrize("preset", ["glm-5.2-fp8", "gpt-oss-120b", "deepseek-v3.2"])
def test_layers_of_models(url: str, here: Selector, preset: str) -> None:
    with RemoteSelector(url) as remote:
        for group in load_model(preset).groups:
            answer = remote.bind("B200", group.layer).resolve(64, 128)
            assert answer == here.bind("B200", group.layer).resolve(64, 128)


def test_a_window_of_a_size_that_is_not_known(url: str, here: Selector) -> None:
    layer = LAYER.replace(has_sliding_window=True)
    with RemoteSelector(url) as remote:
        assert remote.bind("9.0", layer).resolve(7) == here.bind("9.0", layer).resolve(7)
        with pytest.raises(ValueRefusedError, match="sliding_window is a set of values"):
            remote.bind("9.0", Layer({"sliding_window": Domain.between(5, 9)}))


def test_the_manifest_is_fetched_with_its_overlays(tmp_path: Path) -> None:
    overlay = write_overlay(tmp_path / "own, ünd.yaml", "torch_sdpa_math")
    files = ["capabilities.yaml"], [overlay]
    with listening.service(*files) as url:
        for claimed in (False, True):
            expected = Selector.load(files[0][0], overlays=files[1], as_claimed=claimed).manifest
            with RemoteSelector(url, as_claimed=claimed) as remote:
                found = remote.fetch().manifest
                answer = remote.bind("9.0", LAYER).resolve(7)
            assert found.ref == expected.ref == answer.manifest
            assert [p.position for p in found.priorities] == [
                p.position for p in expected.priorities
            ]
            assert answer.prefill.reason == "Mine."


def test_a_manifest_that_changes_while_it_is_fetched(tmp_path: Path) -> None:
    """To one that the overlay which was read with it does not fit."""
    own, new = tmp_path / "own.yaml", tmp_path / "new.yaml"
    with (
        listening.service([str(SMALL)], [write_overlay(own, "math")]) as one,
        listening.service(["capabilities.yaml"], [write_overlay(new, "torch_sdpa_math")]) as other,
        listening.between(one, other, other, other) as url,
        RemoteSelector(url) as remote,
    ):
        with pytest.raises(ServerError, match="changed while it was read; ask again") as raised:
            remote.fetch()
        assert raised.value.code == "CHANGED"
        expected = Selector.load("capabilities.yaml", overlays=[new]).manifest
        assert remote.fetch().manifest.ref == expected.ref


def test_a_manifest_that_means_something_else_here() -> None:
    headers = "attnsel-digest: 1", "attnsel-sources: small.yaml"
    answer = said("200 OK", *headers, body=SMALL.read_bytes())
    with scripted(answer) as server, RemoteSelector(server.url) as remote:
        with pytest.raises(ServerError, match="another version: its manifest means") as raised:
            remote.fetch()
        assert raised.value.code == "NOT_ATTNSEL"


# -- questions that are refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"layer": Layer({"head_sise": 1})}, UnknownFieldError),
        ({"layer": Layer({"head_size": "x"})}, ValueRefusedError),
        ({"layer": LAYER.replace(mla=False, kv_lora_rank=512)}, ContradictionError),
        ({"policy": Policy(backend="flashinfer_fa")}, UnknownBackendError),
        ({"facts": Facts({"torch": "new"})}, ValueRefusedError),
    ],
)
def test_a_question_is_refused_as_here(
    url: str, here: Selector, said: dict[str, Any], kind: type[Exception]
) -> None:
    asked = {"device": "9.0", "layer": LAYER, **said}
    if "layer" in said and kind is not ContradictionError:
        words = None  # made by hand: the library does not look at it again
    else:
        with pytest.raises(kind) as refused:
            here.bind(**asked).resolve(7)
        words = str(refused.value)
    with (
        RemoteSelector(url, fallback=here) as remote,
        pytest.raises(kind) as raised,
    ):
        remote.bind(**asked).resolve(7)
    assert words in (None, str(raised.value))


def test_what_is_refused_before_anybody_is_asked() -> None:
    remote = RemoteSelector(NOBODY)
    with pytest.raises(TypeError, match="a Layer"):
        remote.bind("9.0", {"head_size": 1})  # type: ignore[arg-type]
    with pytest.raises(UnknownDeviceError):
        remote.bind("H2000", LAYER)
    with pytest.raises(ContradictionError):
        remote.bind("9.0", LAYER).resolve(5, 3)


def test_a_manifest_that_is_not_served(url: str) -> None:
    with pytest.raises(UnknownManifestError, match="there are capabilities, vllm"):
        ask(url, manifest="zzz", fallback="capabilities.yaml")
    with RemoteSelector(url, manifest="a&b=%/\n") as remote, pytest.raises(UnknownManifestError):
        remote.fetch()


# -- the fallback --------------------------------------------------------------------------------


def test_without_a_failure_nothing_tells_of_a_fallback(url: str, here: Selector) -> None:
    answer = ask(url, fallback=here)
    assert answer == here.bind("9.0", LAYER).resolve(7, 9)
    assert not answer.fallback
    assert "fallback" not in resolution_json(answer)


@pytest.mark.parametrize("fallback", ["capabilities.yaml", Path("capabilities.yaml"), None])
def test_the_fallback_answers_and_says_so(here: Selector, fallback: Any) -> None:
    answer = ask(NOBODY, fallback=fallback or here)
    assert answer.fallback
    assert (answer.fallback.server, answer.fallback.code) == (NOBODY, "UNREACHABLE")
    plain = resolution_json(answer)
    assert plain.pop("fallback")["reason"].endswith("connection refused")
    assert plain == resolution_json(here.bind("9.0", LAYER).resolve(7, 9))
    with RemoteSelector(NOBODY, fallback=here) as remote:
        assert remote.fetch() is here


def test_a_fallback_that_is_broken_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnknownManifestError):
        RemoteSelector(NOBODY, fallback=tmp_path / "none.yaml")


def test_the_fallback_answers_as_claimed(url: str) -> None:
    name = "vllm-0.33.0"
    there = ask(url, manifest=name, as_claimed=True)
    here = ask(NOBODY, fallback=name, as_claimed=True)
    assert here.manifest.digest == there.manifest.digest


def test_a_server_that_is_down_rests_and_is_tried_by_one(here: Selector) -> None:
    body = json_text(resolution_json(here.bind("9.0", LAYER).resolve(7, 9))).encode()
    good = said("200 OK", "attnsel-digest: 1", "connection: close", body=body)
    bad = said("503 Later")
    now = 100.0
    with (
        scripted(bad, bad, good, good) as server,
        RemoteSelector(server.url, fallback=here, rest_s=5, clock=lambda: now) as remote,
    ):
        bound = remote.bind("9.0", LAYER)
        for asked in (1, 1, 1):  # one question is put to the server, the others are not
            assert bound.resolve(7, 9).fallback
            assert len(server.requests) == asked
        now = 105.0
        assert bound.resolve(7, 9).fallback
        assert bound.resolve(7, 9).fallback
        assert len(server.requests) == 2
        now = 110.0
        for asked in (3, 4):
            assert not bound.resolve(7, 9).fallback
            assert len(server.requests) == asked


def test_while_one_tries_the_server_again_others_do_not_wait(here: Selector) -> None:
    trying, going_on = threading.Event(), threading.Event()

    def hold(connection: socket.socket) -> None:
        read_request(connection)
        trying.set()
        going_on.wait(30)

    now = 100.0
    with (
        scripted(said("503 Later"), hold) as server,
        RemoteSelector(server.url, fallback=here, timeout_s=30, clock=lambda: now) as remote,
        ThreadPoolExecutor(1) as pool,
    ):
        bound = remote.bind("9.0", LAYER)
        assert bound.resolve(7, 9).fallback
        now = 200.0
        first = pool.submit(bound.resolve, 7, 9)
        assert trying.wait(30)
        told = bound.resolve(7, 9).fallback
        assert told
        assert told.code == "FAILED"  # as the first question found it
        assert not first.done()
        going_on.set()
        assert first.result(30).fallback


def test_importing_the_library_imports_no_http() -> None:
    script = "import sys, selector; selector.Selector; sys.exit('http.client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
