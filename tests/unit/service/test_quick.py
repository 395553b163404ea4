"""Single questions that are answered from what is kept: always as if nothing were."""

from __future__ import annotations

import gc
import itertools
import json
import pickle
import random
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from selector.live import LiveManifests
from selector.manifest import PhaseSpec
from selector.report.data import answer_json, json_text
from selector.service.answers import Asked, _Text
from selector.service.bodies import Question, read_body
from selector.service.limits import Limits
from selector.service.problems import Problem
from selector.service.quick import Quick, _cut, _is_whole
from selector.values import Request

SMALL = Path(__file__).parent.parent / "cli" / "small.yaml"
LIVE = LiveManifests.load([str(SMALL), "capabilities.yaml", "vllm-0.33.0"])
BODIES: list[dict[str, Any]] = [
    {"device": "9.0", "layer": {"head_size": 128, "dtype": "bfloat16", "attn_type": "decoder"}},
    {"device": "12.0", "model": "glm-5.2-fp8", "layer": {"tp": 8}},
    {"device": "9.0", "model": "glm-5.2-fp8", "layer": {"tp": 8}},
    {"device": "B200", "model": "gpt-oss-120b"},
    {"device": "B200", "model": "deepseek-v3.2", "layer": {"tp": 8}, "closed_world": True},
    {"device": "A100", "model": "gpt-oss-120b", "policy": {"deny": ["FLASH_ATTN"]}},
]
EDGES = (1, 2, 3, 8, 16, 64, 127, 128, 129, 512, 1024, 2047, 2048, 2049, 4096, 8192, 100_000)


def call() -> Any:
    return SimpleNamespace(limits=Limits(), snapshot=None)


def encoded(body: dict[str, Any], **lengths: int | None) -> bytes:
    return json.dumps(body | {"request": lengths}).encode()


def plain(data: bytes) -> bytes:
    """The answer to a body, as the library gives it."""
    body = read_body(data, Question, 32)
    asked = Asked(LIVE.current(body.manifest), body)
    return json_text(answer_json(asked.cases(body.request.request()))).encode()


@pytest.mark.parametrize("manifest", [*LIVE])
@pytest.mark.parametrize("body", BODIES, ids=lambda b: str(b)[:40])
def test_what_is_kept_changes_no_answer(manifest: str, body: dict[str, Any]) -> None:
    if manifest != "vllm-0.33.0":
        body = {k: v for k, v in body.items() if k != "policy"}
    quick, chance = Quick(LIVE), random.Random(1)
    pairs = [(q, s) for q, s in itertools.product(EDGES, EDGES) if q <= s]
    pairs = chance.sample(pairs, 40) * 2
    pairs += [(q, q + chance.randint(0, 50)) for q in (chance.randint(1, 5000) for _ in range(20))]
    asked = Asked(LIVE.current(manifest), read_body(encoded(body), Question, 32))
    for query_len, seq_len in pairs:
        for draft in (0, 3):
            lengths = {"query_len": query_len, "seq_len": seq_len, "speculative_tokens": draft}
            data = encoded(body | {"manifest": manifest}, **lengths)
            expected = json_text(answer_json(asked.cases(Request(query_len, seq_len, draft))))
            assert quick.answer(call(), data).decode() == expected, lengths


def test_most_answers_are_not_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, asked = Quick(LIVE), 0
    real = Asked.cases

    def count(self: Asked, request: Request) -> Any:
        nonlocal asked
        asked += 1
        return real(self, request)

    monkeypatch.setattr(Asked, "cases", count)
    for query_len in range(200, 1200):
        quick.answer(call(), encoded(BODIES[0], query_len=query_len, seq_len=query_len + 7))
    assert asked < 20


def test_lengths_that_an_answer_shows_elsewhere_are_not_taken_for_another_s() -> None:
    def write(request: Request) -> bytes:
        shown = {"request": msgspec.to_builtins(request), "observed": str(request.query_len)}
        return json_text(shown).encode()

    text = _Text(Request(5, 5), write(Request(5, 5)))
    for length in (6, 7, 5, 6):
        assert text.of(Request(length, length), write) == write(Request(length, length))


def test_a_text_is_kept_once_and_still_that_of_the_first_request() -> None:
    def write(request: Request) -> bytes:
        shown = {"a": "a" * 9000, "request": msgspec.to_builtins(request), "z": "z" * 9000}
        return json_text(shown).encode()

    first = write(Request(5, 5))
    text = _Text(Request(5, 5), first)
    text.of(Request(6, 6), write)
    assert len(pickle.dumps(text)) < 1.1 * len(first)
    assert text.of(Request(5, 5), lambda _: b"written anew") == first


@pytest.mark.parametrize(
    "lengths",
    [
        '{"query_len": 5, "query_len": 6}',
        '{"query\\u005flen": 5, "query_len": 6}',
        '{"query_len": 5, "other": 6}',
        '{"query_len": "5"}',
        '{"query_len": 5',
        '{"query_len": 5}}',
        '{"query_len": 0}',
        "[]",
        "null",
    ],
)
def test_bad_lengths_are_refused_though_the_rest_is_known(lengths: str) -> None:
    quick, known = Quick(LIVE), '{"device": "9.0", "request": %s}'
    quick.answer(call(), (known % '{"query_len": 5}').encode())
    with pytest.raises((Problem, ValueError)):
        quick.answer(call(), (known % lengths).encode())


@pytest.mark.parametrize(
    "data",
    [
        b'{"device": "9.0", "model": {"request": {}}}',
        b'{"device": "9.0", "request": {}, "model": {"request": {}}}',
        b'{"device": "9.0\\"request\\":{}", "request": {}}',
        b'{"request": {}, "device": "\\"request\\": {}"}',
        b'{"device": "request", "layer": {}}',
    ],
)
def test_a_request_that_stands_elsewhere_is_none(data: bytes) -> None:
    cut = _cut(data)
    assert cut is None or not _is_whole(data, cut[1])


@given(st.binary(max_size=60))
def test_any_bytes_are_answered_or_refused(tail: bytes) -> None:
    quick, known = Quick(LIVE), b'{"device": "9.0", "request": {"query_len": 5}}'
    quick.answer(call(), known)
    for data in (tail, known[:-1] + tail, known[:28] + tail + known[46:], known + tail):
        try:
            found = quick.answer(call(), data)
        except (Problem, ValueError, LookupError):
            continue
        assert found == plain(data)


def test_a_changed_manifest_answers_at_once(tmp_path: Path) -> None:
    file = tmp_path / "engine.yaml"
    file.write_bytes(SMALL.read_bytes())
    live = LiveManifests.load([str(file)])
    quick, data = Quick(live), encoded(BODIES[0], query_len=5)
    for version in ("1", "2", "3"):
        file.write_bytes(
            SMALL.read_bytes().replace(b'version: "1"', f'version: "{version}"'.encode())
        )
        live["engine"].reload()
        for _ in range(3):
            assert json.loads(quick.answer(call(), data))["manifest"]["version"] == version


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    import selector.service.quick as module

    monkeypatch.setattr(module, "_MOST_TEXT", 100_000)
    monkeypatch.setattr(module, "_MOST_KNOWN", 5)
    quick = Quick(LIVE)
    for size in range(8, 400, 8):
        quick.answer(call(), encoded(BODIES[0] | {"layer": {"head_size": size}}, query_len=size))
        assert len(quick._known) <= 5
        assert quick._text <= 200_000


def test_what_was_replaced_is_gone_though_other_things_are_asked(tmp_path: Path) -> None:
    """Every generation is asked something else: nothing of an old one is found by its key again."""
    file = tmp_path / "engine.yaml"
    file.write_bytes(SMALL.read_bytes())
    live = LiveManifests.load([str(file), "capabilities.yaml"])
    quick, snapshots, specs = Quick(live), [], []
    for number in range(6):
        for manifest in ("engine", "capabilities"):
            layer = {**BODIES[0]["layer"], "num_heads": number + 1}
            body = {"manifest": manifest, "device": "9.0", "layer": layer}
            for query_len in (1, 7, 9):
                quick.answer(call(), encoded(body, query_len=query_len))
        snapshots.append(weakref.ref(live.current("engine")))
        file.write_bytes(SMALL.read_bytes().replace(b'version: "1"', b'version: "2.%d"' % number))
        live["engine"].reload()
        gc.collect()
        specs.append(sum(type(one) is PhaseSpec for one in gc.get_objects()))
    assert live["engine"].current.generation == 7
    assert [found() for found in snapshots[:-1]] == [None] * 5
    assert len({*specs[1:]}) == 1, f"the rules of old ones stay: {specs}"
