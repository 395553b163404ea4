"""``attnsel explain --log``: an engine's log in, an answer out."""

from __future__ import annotations

import gzip
import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from selector.schema import load_schema

from .conftest import Run

LOGS = Path(__file__).parents[1] / "serving" / "logs"
CONFIG = (
    "head_size=64, dtype=torch.bfloat16, kv_cache_dtype=fp8_ds_mla, block_size=None, "
    "use_mla=False, has_sink=False, use_sparse=False, use_mm_prefix=False, attn_type=decoder"
)
NONE = (
    "ValueError: No valid attention backend found for cuda with "
    f"AttentionSelectorConfig({CONFIG}). Reasons: {{FLASH_ATTN: [kv_cache_dtype not supported]}}.\n"
)
FORCED = (
    "ValueError: Selected backend AttentionBackendEnum.FLASH_ATTN is not valid for this "
    "configuration. Reason: ['sink setting not supported']\n"
)


def written(folder: Path, text: str) -> Path:
    path = folder / "engine.log"
    path.write_text(text, "utf-8")
    return path


def test_first_what_to_do_then_what_was_asked(run: Run, tmp_path: Path) -> None:
    text = "INFO [api_server.py:1] vLLM API server version 0.19.1\n" + NONE
    ran = run("explain", "--log", written(tmp_path, text), "--arch", "9.0")
    lines = [line for line in ran.out.splitlines() if line]
    assert ran.code == 3
    assert ran.err == ""
    assert lines[0].startswith("--kv-cache-dtype auto")
    assert "makes FLASH_ATTN the choice" in lines[0]
    asked = next(n for n, line in enumerate(lines) if "no valid attention backend" in line)
    assert "compute capability 9.0 · vLLM 0.19.1" in lines[asked]
    assert "head_size 64" in lines[asked + 1]
    assert "kv_cache_dtype fp8_ds_mla" in lines[asked + 1]
    assert any(line.split() == ["FLASH_ATTN", *line.split()[1:]] for line in lines)
    assert "only in the manifest" in ran.out
    assert "probably the target model's" in lines[-2] + lines[-1]


def test_both_marks_are_shown(run: Run, tmp_path: Path) -> None:
    text = NONE.replace("[kv_cache_dtype not", "[sparse not")
    ran = run("explain", "--log", written(tmp_path, text), "--arch", "9.0")
    row = next(line for line in ran.out.splitlines() if line.startswith("    FLASH_ATTN "))
    assert "only in the manifest: kv_cache_dtype fp8_ds_mla; accepts" in row
    assert "only in the log: sparse not supported" in row


def test_it_reads_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\x80\xfe\0" + NONE.encode())))
    assert run("explain", "--log", "-", "--arch", "9.0").code == 3


@pytest.mark.parametrize(
    "written_as",
    [
        gzip.compress,
        lambda data: data.decode().encode("utf-16"),
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
    ],
    ids=["gzip", "utf-16", "bom", "crlf"],
)
def test_a_log_in_another_form_is_the_same_log(
    run: Run, tmp_path: Path, written_as: Callable[[bytes], bytes]
) -> None:
    data = (LOGS / "docker_json.log").read_bytes()
    path = tmp_path / "log"
    path.write_bytes(data)
    plain = run("explain", "--log", str(path))
    path.write_bytes(written_as(data))
    assert run("explain", "--log", str(path)).out == plain.out
    assert "no attention error" not in plain.out


def test_half_a_compressed_log_is_said_to_be_half(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress((LOGS / "docker_json.log").read_bytes())[:300])
    said = run("explain", "--log", str(path))
    assert said.code == 2
    assert "no whole gzip file" in said.complaint


def test_options_override_what_the_log_says(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-0)\n" + NONE)
    assert "H100 (9.0)" in run("explain", "--log", path).out
    ran = run("explain", "--log", path, "--gpu", "RTX 5090", "--set", "kv_cache_dtype=auto")
    assert "RTX 5090 (12.0)" in ran.out
    assert "kv_cache_dtype auto (given)" in ran.out
    assert ran.code == 0


def test_without_a_gpu_it_says_how_to_name_one(run: Run) -> None:
    ran = run("explain", "--log", LOGS / "sparse_mla_tp8.log")
    assert ran.code == 0
    first = " ".join(ran.out.partition("\n\n")[0].split())
    assert first.startswith("say which GPU, with --gpu")
    assert "its reasons are those of 7.0–8.9" in first


def test_an_error_about_mla_prefill_says_which_phase_fails(run: Run) -> None:
    path = LOGS / "mla_prefill.log"
    given = ("--log", path, "--arch", "9.0", "--set", "qk_nope_head_dim=100")
    first, second, *_ = run("explain", *given).out.splitlines()
    assert (first, second) == ("no setting that was tried helps MLA prefill", "")
    both = run("explain", *given, "--set", "kv_cache_dtype=fp8_inc").out.splitlines()
    assert both[0] == first
    assert both[1].strip().startswith("or  the error is about MLA prefill; decode has no backend")


def test_software_that_lacks_is_said_in_words(run: Run) -> None:
    ran = run("explain", "--log", LOGS / "docker_json.log")
    assert ran.out.startswith("installing software so that FlashInfer has sparse MLA for 12.x (")
    assert "makes FLASHINFER_MLA_SPARSE_SM120 the choice" in " ".join(ran.out.split())


def test_a_name_that_is_no_backend_is_said_to_be_none(run: Run, tmp_path: Path) -> None:
    text = "ValueError: Unknown attention backend: 'FLASHINFERR'. Valid options are: FLASHINFER\n"
    ran = run("explain", "--log", written(tmp_path, text), "--arch", "9.0")
    first = "FLASHINFERR is no backend of vLLM 0.33.0; did you mean FLASHINFER?"
    assert ran.out.startswith(first)


def test_what_is_not_understood_is_shown(run: Run, tmp_path: Path) -> None:
    strange = "[TensorRT-LLM][ERROR] Assertion failed: attention sinks only on SM90\n"
    ran = run("explain", "--log", written(tmp_path, strange))
    assert ran.code == 2
    assert "line 1 is not understood: Assertion failed: attention sinks only on SM90" in (
        ran.complaint
    )
    ran = run("explain", "--log", written(tmp_path, NONE + strange), "--arch", "9.0")
    assert "not understood" in ran.out
    assert ran.out.rstrip().splitlines()[-1].split()[:2] == ["line", "2"]


def test_each_error_gets_an_answer(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, NONE + FORCED + NONE)
    ran = run("explain", "--log", path, "--arch", "9.0", "--format", "json")
    assert [d["error"]["kind"] for d in ran.json["diagnoses"]] == ["none", "forced"]
    assert ran.json["diagnoses"][0]["error"]["count"] == 2
    out = run("explain", "--log", path, "--arch", "9.0").out
    assert out.index("no valid attention backend") < out.index("FLASH_ATTN was asked for")


def test_one_layer_that_nothing_runs_is_enough_to_fail(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, NONE + NONE.replace("fp8_ds_mla", "auto"))
    ran = run("explain", "--log", path, "--arch", "9.0", "--format", "json")
    assert [d["runs"] for d in ran.json["diagnoses"]] == [False, True]
    assert ran.code == 3


def test_of_very_many_errors_the_first_are_answered(run: Run, tmp_path: Path) -> None:
    text = "".join(NONE.replace("head_size=64", f"head_size={64 + n}") for n in range(20))
    ran = run("explain", "--log", written(tmp_path, text), "--arch", "9.0", "--format", "json")
    assert len(ran.json["diagnoses"]) == 12
    assert ran.err.count("\n") == 1
    assert "8 more different errors" in ran.err


@pytest.mark.parametrize("name", sorted(p.name for p in LOGS.glob("*.log")))
@pytest.mark.parametrize("device", [(), ("--arch", "12.0"), ("--arch", "cpu")])
def test_the_json_is_what_the_schema_says(run: Run, name: str, device: tuple[str, ...]) -> None:
    ran = run("explain", "--log", LOGS / name, *device, "--format", "json")
    assert list(Draft202012Validator(load_schema("diagnosis")).iter_errors(ran.json)) == []
    assert ran.code == (0 if ran.json["runs"] else 3)


# -- wrong use -----------------------------------------------------------------------------------


def test_a_log_without_an_error_says_what_was_looked_for(run: Run, tmp_path: Path) -> None:
    for text in ("", "INFO all is well\n", "\0" * 1000):
        ran = run("explain", "--log", written(tmp_path, text))
        assert ran.code == 2
        assert "No valid attention backend found" in ran.complaint
        assert "Selected backend" in ran.complaint


@pytest.mark.parametrize(
    "option",
    [
        ("--model", "qwen3-8b"),
        ("--query-len", "5"),
        ("--seq-len", "5"),
        ("--backend", "FLASHINFER"),
        ("--deny", "FLASHINFER"),
        ("--as-claimed",),
        ("--closed-world",),
        ("--facts", "probe"),
    ],
)
def test_what_does_not_go_with_a_log(run: Run, tmp_path: Path, option: tuple[str, ...]) -> None:
    ran = run("explain", "--log", written(tmp_path, NONE), *option)
    assert ran.code == 2
    assert ran.complaint.startswith(f"{option[0]} does not go with --log: ")


@pytest.mark.parametrize(
    "options",
    [
        ("--log", "nowhere.log"),
        ("--log", "."),
        ("--log", "LOG", "--arch", "9.0", "--gpu", "H100"),
        ("--log", "LOG", "--gpu", "GTX 1"),
        ("--log", "LOG", "--set", "head_size=none"),
        ("--log", "LOG", "--set", "has_flashinfer=perhaps"),
        ("--log", "LOG", "--manifest", "nowhere.yaml"),
    ],
)
def test_mistakes_are_one_line(run: Run, tmp_path: Path, options: tuple[str, ...]) -> None:
    path = str(written(tmp_path, NONE))
    ran = run("explain", *(path if option == "LOG" else option for option in options))
    assert ran.code == 2
    assert ran.complaint


def test_a_layer_that_cannot_exist_is_said_to_be_so(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path, NONE)
    ran = run("explain", "--log", path, "--arch", "9.0", "--set", "num_heads=7,num_kv_heads=2")
    assert ran.code == 3
    assert "no answer: num_heads 7 is not a multiple of num_kv_heads 2" in ran.out


def test_another_manifest_may_answer(run: Run, tmp_path: Path, small: list[str]) -> None:
    ran = run("explain", "--log", written(tmp_path, NONE), "--arch", "9.0", *small)
    assert ran.code in (0, 3)
    assert "not in the manifest" in ran.out


# -- size ----------------------------------------------------------------------------------------


def test_a_log_of_twenty_megabytes_takes_seconds_not_minutes(run: Run, tmp_path: Path) -> None:
    line = "INFO 11-29 10:00:00 [loggers.py:1] Engine 000: Avg prompt throughput: 1.0 tokens/s\n"
    text = line * (20_000_000 // len(line)) + NONE
    path = written(tmp_path, text)
    start = time.process_time()
    ran = run("explain", "--log", path, "--arch", "9.0", "--format", "json")
    assert time.process_time() - start < 30
    found: Any = ran.json
    assert found["error"]["line"] == text.count("\n")
    assert json.dumps(found)
