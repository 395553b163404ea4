"""``attnsel resolve --server``: what it prints is what it prints without, and why it does not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from selector.schema import load_schema
from tests.cases.test_conformance import CASES, overlays_of, question_words, served_as
from tests.unit import listening

from .conftest import GQA, SMALL, SPARSE, Ran, Run

QUESTION = ["--arch", "9.0", "--set", GQA, "--query-len", "512"]
TOKEN = "correct-horse-battery"
VLLM = ["--manifest", "vllm-0.33.0"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with listening.service(["capabilities.yaml", "vllm-0.33.0", str(SMALL)]) as url:
        yield url


@pytest.fixture(autouse=True)
def _at_the_top(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.chdir(Path(__file__).parents[3])  # files are called the same by both sides


def test_rows_of_the_table(run: Run) -> None:
    for (manifests, overlays), group in groupby(CASES, served_as):
        names = ["--manifest", *manifests] if manifests else []
        with listening.service(manifests, overlays) as url:
            for case in group:
                asked = ["resolve", *names, *question_words(case)]
                local = [word for path in overlays_of(case) for word in ("--overlay", path)]
                for form in ("table", "json"):
                    here = run(*asked, *local, "--format", form)
                    assert run(*asked, "--server", url, "--format", form) == here, case["id"]
                    assert here.out


CONFIG = {"model_type": "qwen3", "num_hidden_layers": 2, "hidden_size": 1024, "head_dim": 128}
CONFIG |= {"num_attention_heads": 8, "num_key_value_heads": 2, "torch_dtype": "bfloat16"}

ANSWERED = [
    ["--gpu", "RTX PRO 6000", "--model", "glm-5.2-fp8", "--set", "tp=8,pp=2", "--query-len", 3300],
    ["--gpu", "A100", "--model", "gpt-oss-120b", "--seq-len", 4096, "--query-len", 1],
    ["--gpu", "B200", "--model", "gpt-oss-20b", "--deny", "flashinfer_trtllm_gen, flashinfer_fa2"],
    [*VLLM, "--gpu", "A100", "--model", "gpt-oss-120b", "--set", "kv_cache_dtype=fp8"],
    [*VLLM, "--gpu", "A100", "--model", "gpt-oss-120b", "--as-claimed", "--closed-world"],
    [*VLLM, "--gpu", "B200", "--model", "deepseek-v3.2", "--set", "tp=8", "--query-len", 1800],
    [*VLLM, "--arch", "xpu", "--set", "head_size=128"],
    ["--arch", "9.0", "--set", GQA],
    ["--arch", "9.0", "--set", GQA, "--seq-len", 100],
    ["--arch", "9.0", "--set", "head_size=128"],
    ["--arch", "9.0", "--set", GQA, "--set", "has_sliding_window=true"],
    ["--arch", "9.0", "--set", GQA, "--set", "sliding_window=none,block_size=16"],
    ["--arch", "9.0", "--set", GQA, "--closed-world"],
    ["--arch", "9.0", "--set", GQA, "--set", "torch=2.9,flashinfer-python=none,cuda=13.0"],
    ["--arch", "9.0", "--set", GQA, "--facts", "probe"],
    ["--arch", "9.0", "--set", GQA, "--backend", "flashinfer_mla_fa2"],
    ["--arch", "9.0", "--set", GQA, "--prefill-backend", "flashinfer_fa3"],
    ["--arch", "9.0", "--set", GQA, "--decode-backend", "flashinfer_trtllm_gen"],
    ["--arch", "9.0", "--set", GQA, "--deny", "flashinfer_fa2", "--backend", "flashinfer_fa2"],
    ["--arch", "13.7", "--set", GQA],
    ["--arch", "cpu", "--set", GQA],
    ["--arch", "12.0", "--set", SPARSE, "--as-claimed", "--query-len", 3300],
    ["--arch", "9.0", "--model", "{dir}/config.json", "--query-len", 5],
    ["--arch", "9.0", "--model", "{dir}", "--set", "tp=2"],
]
REFUSED = [
    ["--arch", "9.0", "--set", "head_sise=128"],
    ["--arch", "9.0", "--set", "head_size=many"],
    ["--arch", "9.0", "--set", "head_size=64,head_size=128"],
    ["--arch", "9.0", "--set", "torch=new"],
    ["--arch", "9.0", "--set", "query_len=1"],
    ["--arch", "9.0", "--set", GQA, "--backend", "flashinfer_fa"],
    ["--arch", "9.0", "--set", GQA, "--deny", "flashinfer_fa"],
    ["--arch", "9.0", "--set", GQA, "--query-len", 5, "--seq-len", 3],
    ["--arch", "9.0", "--set", "mla=false,kv_lora_rank=512"],
    ["--arch", "sm"],
    ["--gpu", "H2000"],
    ["--gpu", "H200", "--arch", "9.0"],
    ["--arch", "9.0", "--model", "qwen"],
    ["--arch", "9.0", "--model", "{dir}/none.json"],
    ["--arch", "9.0", "--model", "qwen3-8b", "--set", "tp=7"],
]


def both(run: Run, server: str, folder: Path, words: list[object], form: str) -> tuple[Ran, Ran]:
    (folder / "config.json").write_text(json.dumps(CONFIG))
    asked = ["resolve", "--format", form, *(str(word).format(dir=folder) for word in words)]
    local = asked if "--manifest" in asked else [*asked, "--manifest", "capabilities.yaml"]
    return run(*local), run(*asked, "--server", server)


@pytest.mark.parametrize("form", ["table", "json"])
@pytest.mark.parametrize("words", ANSWERED, ids=lambda words: " ".join(map(str, words)))
def test_it_prints_the_same(
    run: Run, server: str, tmp_path: Path, words: list[object], form: str
) -> None:
    here, there = both(run, server, tmp_path, words, form)
    assert there == here
    assert here.out
    assert here.code in (0, 3)


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(map(str, words)))
def test_it_refuses_the_same(run: Run, server: str, tmp_path: Path, words: list[object]) -> None:
    here, there = both(run, server, tmp_path, words, "table")
    assert there == here
    assert here.code == 2
    assert here.complaint


def test_another_of_its_manifests(run: Run, server: str) -> None:
    here = run("resolve", *QUESTION, "--manifest", SMALL)
    assert run("resolve", *QUESTION, "--manifest", "small", "--server", server) == here
    assert "small.yaml" in here.out


def test_facts_of_this_machine_that_its_manifest_does_not_declare(run: Run, tmp_path: Path) -> None:
    """A server refuses what reads like a fact and is none; this is no slip of the pen."""
    file = tmp_path / "own.yaml"
    fact = "facts:\n  pythons: {type: version, description: Reads like one that is probed.}\n"
    file.write_text(SMALL.read_text().replace("facts:\n", fact))
    asked = ["resolve", *QUESTION, "--facts", "probe"]
    here = run(*asked, "--manifest", file)
    assert here.code == 0
    with listening.service([str(file)]) as url:
        assert run(*asked, "--server", url) == here


def test_a_server_with_a_token(run: Run, tmp_path: Path) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text(f"{TOKEN}\n")
    bad.write_text("another-horse-battery\n")
    with listening.service(["capabilities.yaml"], token=TOKEN) as url:
        asked = ["resolve", *QUESTION, "--server", url]
        assert run(*asked, "--token-file", good).code == 0
        refused = run(*asked)
        assert (refused.code, refused.complaint) == (2, f"{url}: wants a bearer token")
        refused = run(*asked, "--token-file", bad)
        assert (refused.code, refused.complaint) == (2, f"{url}: refuses the token")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--manifest", "./small.yaml"], "is a path, and --server reads none"),
        (["--manifest", "small.yml"], "is a path, and --server reads none"),
        (["--overlay", "x.yaml"], "has its own overlays"),
        (["--manifest", "smal"], 'no manifest "smal" is served; did you mean small?'),
        (["--manifest", "x&y=%"], "there are capabilities, vllm-0.33.0, small"),
        (["--timeout", "0"], "not above 0"),
        (["--timeout", "nan"], "not above 0"),
        (["--token-file", "none"], "none: no such file"),
        (["--fallback", "none"], "no manifest that ships"),
    ],
)
def test_options_that_a_server_cannot_serve(
    run: Run, server: str, words: list[str], complaint: str
) -> None:
    ran = run("resolve", *QUESTION, "--server", server, *words)
    assert ran.code == 2
    assert complaint in ran.complaint
    assert ran.out == ""


@pytest.mark.parametrize("option", ["--timeout=3", "--token-file=x", "--fallback=x"])
def test_options_that_are_for_a_server(run: Run, option: str) -> None:
    ran = run("resolve", *QUESTION, option)
    assert ran.code == 2
    assert ran.complaint.endswith("goes with --server")


def test_nobody_is_there(run: Run) -> None:
    ran = run("resolve", *QUESTION, "--server", "http://127.0.0.1:1")
    assert ran.code == 2
    assert ran.complaint == "http://127.0.0.1:1: cannot be reached: connection refused"
    assert ran.out == ""


def test_a_local_manifest_answers_and_says_so(run: Run) -> None:
    local = ["resolve", *QUESTION, "--manifest", "capabilities.yaml"]
    asked = ["resolve", *QUESTION, "--server", "http://127.0.0.1:1", "--fallback"]
    asked.append("capabilities.yaml")
    reason = "http://127.0.0.1:1: cannot be reached: connection refused"
    ran = run(*asked)
    assert ran.code == 0
    note = f"note the local manifest answers, not the server: {reason}"
    assert [line for line in ran.out.splitlines() if line != note] == run(*local).out.splitlines()
    assert ran.out.splitlines()[1] == note
    answer = run(*asked, "--format", "json").json
    Draft202012Validator(load_schema("resolution")).validate(answer)
    said = answer.pop("fallback")
    assert said == {"server": "http://127.0.0.1:1", "code": "UNREACHABLE", "reason": reason}
    assert answer == run(*local, "--format", "json").json


def test_a_manifest_that_changes_between_two_answers_is_asked_again(run: Run) -> None:
    """What words the answer is the manifest that gave it, or there is no answer."""
    with listening.service([str(SMALL)]) as one, listening.service(["capabilities.yaml"]) as other:
        with listening.between(one, other) as url:  # the last one for ever
            ran = run("resolve", *QUESTION, "--server", url)
            here = run("resolve", *QUESTION, "--manifest", "capabilities.yaml")
            assert ran == here
        with listening.between(*[one, other, other] * 3) as url:
            ran = run("resolve", *QUESTION, "--server", url)
            assert ran.code == 2
            assert ran.complaint == f"{url}: its manifest keeps changing; ask again"


def test_servers_that_differ_and_answer_in_turn(run: Run, tmp_path: Path) -> None:
    own = listening.write_overlay(tmp_path / "own.yaml", "math")
    new = listening.write_overlay(tmp_path / "new.yaml", "torch_sdpa_math")
    local = ["--manifest", str(SMALL), "--overlay", own]
    with (
        listening.service([str(SMALL)], [own]) as one,
        listening.service(["capabilities.yaml"], [new]) as other,
        listening.between(*[one, other] * 9) as url,
    ):
        assert run("resolve", *QUESTION, "--server", url) == run("resolve", *QUESTION, *local)


def test_a_manifest_that_changes_before_its_overlay_is_read_is_asked_again(
    run: Run, tmp_path: Path
) -> None:
    own = listening.write_overlay(tmp_path / "own.yaml", "math")
    new = listening.write_overlay(tmp_path / "new.yaml", "torch_sdpa_math")
    local = ["--manifest", "capabilities.yaml", "--overlay", new]
    with (
        listening.service([str(SMALL)], [own]) as one,
        listening.service(["capabilities.yaml"], [new]) as other,
    ):
        with listening.between(one, other, other) as url:
            ran = run("resolve", *QUESTION, "--server", url)
            assert ran == run("resolve", *QUESTION, *local)
        with listening.between(*[one, other, other] * 3) as url:
            ran = run("resolve", *QUESTION, "--server", url)
            assert ran.code == 2
            assert ran.complaint == f"{url}: its manifest keeps changing; ask again"
