"""The same question under two versions: made from the shipped manifest by changing one entry."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from cli.main import main
from selector.binding import Selector
from selector.devices import find_device
from selector.report.diagnosis import diagnosis_lines
from selector.report.text import paint
from selector.report.wording import Places
from selector.resources import resource
from selector.serving.diagnosis.answer import Diagnosis, diagnose
from selector.serving.diagnosis.between import are_same, known_versions
from selector.serving.logs.log import read_log
from selector.values import Outcome, Phase

SHIPPED = resource("manifests") / "vllm-0.33.0.yaml"
NO_SINKS = (
    '{when: {capability: ["9.0", 12.x], trtllm_decode: true}, allow: any}',
    '{when: {capability: "9.0", trtllm_decode: true}, allow: any}',
)
"""FLASHINFER had no sinks on 12.x before."""

CONFIG = (
    "head_size=64, dtype=torch.bfloat16, kv_cache_dtype=auto, block_size=None, use_mla=False, "
    "has_sink=True, use_sparse=False, use_mm_prefix=False, attn_type=AttentionType.DECODER"
)


def older(*changes: tuple[str, str]) -> str:
    """The shipped manifest as that of 0.19.1, with some text of it changed."""
    text = SHIPPED.read_text("utf-8").replace('version: "0.33.0"', 'version: "0.19.1"', 1)
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    return text


@cache
def new() -> Selector:
    return Selector.load("vllm-0.33.0")


@cache
def old(*changes: tuple[str, str]) -> Selector:
    return Selector.loads(older(*changes))


FORCED = (
    "INFO vLLM API server version 0.19.1\n"
    "GPU 0: NVIDIA RTX PRO 6000 Blackwell Server Edition (UUID: GPU-0)\n"
    "ValueError: Selected backend AttentionBackendEnum.FLASHINFER is not valid for this "
    "configuration. Reason: ['sink setting not supported']\n"
)
NONE = (
    "INFO vLLM API server version 0.19.1\nGPU 0: NVIDIA GB10\n"
    "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig("
    f"{CONFIG}). Reasons: {{FLASHINFER: [sink setting not supported]}}.\n"
)


def across(text: str, *changes: tuple[str, str]) -> Diagnosis:
    mine = old(*changes)
    log = read_log(text, mine.manifest.vocabulary)
    return diagnose(log.errors[0], log, mine, other=new())


def shown(found: Diagnosis, *changes: tuple[str, str]) -> str:
    return " ".join(paint(diagnosis_lines([found], old(*changes), Places())).split())


def test_the_logs_own_version_gives_its_reasons() -> None:
    found = across(FORCED, NO_SINKS)
    assert (found.versions.manifest, found.versions.differ) == ("0.19.1", False)
    assert not found.runs
    assert not found.differs
    assert not found.only_other_version
    assert [c.both for c in found.candidates] == [("SINK",)]


def test_what_both_versions_say_of_a_backend_of_the_error() -> None:
    found = across(FORCED, NO_SINKS)
    assert found.other is not None
    assert found.other.runs
    assert not found.other.sure
    (moved,) = (m for m in found.other.moved if m.backend == "FLASHINFER")
    assert [r.code for r in moved.here.rejections] == ["SINK"]
    assert moved.there.outcome in (Outcome.SELECTED, Outcome.CONDITIONAL, Outcome.ELIGIBLE)
    assert not moved.there.rejections


def test_the_answer_says_what_changed_and_that_the_newer_starts() -> None:
    text = shown(across(FORCED, NO_SINKS), NO_SINKS)
    assert "vLLM 0.19.1 → 0.33.0, which has an answer as it is: FLASHINFER" in text
    assert "not forcing FLASHINFER: TRITON_ATTN runs prefill and decode" in text
    assert "between 0.19.1 and 0.33.0" in text
    assert "0.19.1: sink true; accepts false → 0.33.0: could run it" in text


def test_versions_that_agree_say_so() -> None:
    found = across(FORCED)
    assert found.other is not None
    assert found.other.moved == ()
    assert "0.19.1 and 0.33.0 say the same of these backends" in shown(found)


def test_a_newer_version_that_does_not_help_is_said_not_to() -> None:
    config = CONFIG.replace("kv_cache_dtype=auto", "kv_cache_dtype=fp8_ds_mla")
    found = across(NONE.replace(CONFIG, config), NO_SINKS)
    assert found.other is not None
    assert not found.other.runs
    assert found.other.chosen == {}
    assert "vLLM 0.19.1 → 0.33.0 does not help" in shown(found, NO_SINKS)


def test_a_backend_that_one_version_lacks_is_not_there() -> None:
    text = older().replace("FLASHINFER_MLA_SPARSE_SM120", "FLASHINFER_OF_OLD")
    mine = Selector.loads(text)
    config = CONFIG.replace("use_mla=False", "use_mla=True").replace(
        "head_size=64", "head_size=576"
    )
    config = config.replace("use_sparse=False", "use_sparse=True").replace(
        "sink=True", "sink=False"
    )
    log = read_log(NONE.replace(CONFIG, config), mine.manifest.vocabulary)
    found = diagnose(log.errors[0], log, mine, other=new())
    assert found.other is not None
    moved = {m.backend: (m.here.known, m.there.known) for m in found.other.moved}
    assert moved["FLASHINFER_MLA_SPARSE_SM120"] == (False, True)
    assert moved["FLASHINFER_OF_OLD"] == (True, False)


def test_a_layer_that_the_other_version_cannot_have() -> None:
    log = read_log(NONE, new().manifest.vocabulary)
    rule = "\nspace:\n  - {when: {sink: true}, require: {mla: true}, reason: Made up.}\n"
    strict = Selector.loads(older(("\nspace:\n", rule)))
    found = diagnose(log.errors[0], log, new(), find_device("12.1"), other=strict)
    assert found.other is not None
    assert "Made up" in (found.other.contradiction or "")
    assert not found.other.runs


# -- where manifests are found -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0.33.0", "0.33.0+cu129", True),
        ("0.33.0", "0.33", True),
        ("0.33.0", "0.33.0rc1", False),
        ("a fork", "a fork", True),
        ("a fork", "0.33.0", False),
    ],
)
def test_versions_are_the_same_but_for_the_build(one: str, other: str, same: bool) -> None:
    assert are_same(one, other) is same


def laid(folder: Path, *changes: tuple[str, str]) -> Path:
    """The two manifests beside each other; gives the newer one."""
    (folder / "vllm-0.19.1.yaml").write_text(older(*changes), "utf-8")
    newer = folder / "vllm-0.33.0.yaml"
    newer.write_text(SHIPPED.read_text("utf-8"), "utf-8")
    (folder / "engine.log").write_text(FORCED, "utf-8")
    return newer


def test_manifests_beside_the_one_given_are_known(tmp_path: Path) -> None:
    newer = laid(tmp_path)
    known = known_versions(Selector.load(newer).manifest)
    assert list(known) == ["0.19.1", "0.33.0"]
    assert known["0.33.0"] == newer
    assert list(known_versions(new().manifest)) == ["0.33.0"]


def test_the_command_finds_the_logs_own_version(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    newer, log = str(laid(tmp_path, NO_SINKS)), str(tmp_path / "engine.log")
    assert main(["explain", "--log", log, "--manifest", newer]) == 3
    said = capsys.readouterr()
    assert said.err == ""
    assert "0.19.1: sink true; accepts false → 0.33.0: could run it" in said.out
    assert main(["explain", "--log", log]) == 0
    assert "only a manifest of 0.19.1 could tell" in capsys.readouterr().out


def test_one_beside_it_that_is_broken_is_said_and_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer, log = str(laid(tmp_path)), str(tmp_path / "engine.log")
    (tmp_path / "vllm-0.19.1.yaml").write_text("name: [", "utf-8")
    assert main(["explain", "--log", log, "--manifest", newer]) == 0
    said = capsys.readouterr()
    assert said.err.count("\n") == 1
    assert "vllm-0.19.1.yaml is of the log's version but not used" in said.err


def test_phases_are_chosen_in_the_other_version() -> None:
    found = across(NONE, NO_SINKS)
    assert found.other is not None
    assert set(found.other.chosen) == set(Phase)
