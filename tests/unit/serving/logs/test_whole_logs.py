"""Logs as they are found: errors, and what else they say of the engine."""

from __future__ import annotations

from pathlib import Path

from selector.serving.logs.log import EngineError, read_log

LOGS = Path(__file__).parent


def codes_of(error: EngineError) -> dict[str, list[str | None]]:
    return {name: [r.code for r in reasons] for name, reasons in error.reasons.items()}


def test_a_log_of_two_workers() -> None:
    log = read_log((LOGS / "sparse_mla_tp8.log").read_text("utf-8"))
    (error,) = log.errors
    assert (error.line, error.count, error.platform) == (8, 2, "cuda")
    assert codes_of(error)["FLASHMLA"] == ["SPARSE", "CAPABILITY", "FLASHMLA_SPARSE_DEVICE"]
    assert log.version is not None
    assert (log.version.text, log.version.line) == ("0.14.0", 1)
    assert log.model is not None
    assert (log.model.text, log.model.line) == ("/models/sparse-small", 2)
    assert {name: stated.value for name, stated in log.settings.items()} == {
        "tp_size": 2,
        "speculative_method": "mtp",
        "speculative_tokens": 1,
    }
    assert log.gpu is None


def test_a_log_of_kubernetes() -> None:
    with (LOGS / "forced_by_kubernetes.log").open(encoding="utf-8") as lines:
        log = read_log(lines)
    (error,) = log.errors
    assert (error.kind, error.backend, error.line) == ("forced", "FLASHINFER", 5)
    assert codes_of(error) == {"FLASHINFER": ["SINK", "KV_CONNECTOR"]}
    assert log.gpu is not None
    assert log.gpu.text == "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    assert log.model is not None
    assert log.model.text == "org/sinks-20b"
    assert {name: (stated.value, stated.origin) for name, stated in log.settings.items()} == {
        "backend": ("FLASHINFER", "--attention-backend"),
        "tp_size": (2, "--tensor-parallel-size"),
    }


def test_a_log_of_docker() -> None:
    log = read_log((LOGS / "docker_json.log").read_text("utf-8"))
    (error,) = log.errors
    assert error.asked["per_head_quant_scales"] is False
    assert error.asked["kv_cache_dtype"] == "fp8"
    assert codes_of(error)["FLASHINFER_MLA_SPARSE_SM120"] == ["FI_SM120_MISSING"]
    assert log.gpu is not None
    assert log.gpu.text == "NVIDIA GeForce RTX 5090"
    assert log.capability is not None
    assert (log.capability.text, log.capability.line) == ("12.0", 3)


def test_a_log_from_before_the_config_class() -> None:
    log = read_log((LOGS / "before_the_config_class.log").read_text("utf-8"))
    (error,) = log.errors
    assert error.asked == {
        "head_size": 80,
        "dtype": "float16",
        "kv_cache_dtype": "fp8",
        "block_size": 16,
        "mla": False,
        "sink": True,
        "sparse": False,
    }
    assert codes_of(error) == {
        "FLASH_ATTN": ["KV_CACHE_DTYPE", "SINK"],
        "FLASHINFER": ["HEAD_SIZE"],
    }
    assert log.version is not None
    assert log.version.text == "0.11.1"
    assert log.model is not None
    assert log.model.text == "org/small"


def test_a_log_of_a_missing_prefill_backend() -> None:
    (error,) = read_log((LOGS / "mla_prefill.log").read_text("utf-8")).errors
    assert error.prefill
    assert error.kind == "none"
    assert error.asked["qk_nope_head_dim"] == 256
    assert error.asked["qk_rope_head_dim"] == 0
    assert codes_of(error) == {"FLASH_ATTN": ["MLA_DIMENSIONS"]}
