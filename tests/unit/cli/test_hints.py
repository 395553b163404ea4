"""What a newcomer gets wrong is answered with what was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Run


def test_a_serve_command_needs_two_dashes_before_it(run: Run) -> None:
    ran = run("preflight", "vllm", "serve", "llama-3.1-8b", "--kv-cache-dtype", "fp8")
    assert ran.code == 2
    assert ran.complaint.startswith(
        "no such option: --kv-cache-dtype; the serve command goes after --: "
        "attnsel preflight --gpu A100 -- vllm serve …; see"
    )


def test_an_option_of_preflight_misspelt_is_not_one_of_the_serve_command(run: Run) -> None:
    ran = run("preflight", "--gup", "A100", "--", "vllm", "serve", "llama-3.1-8b")
    assert "--gpu" in ran.complaint
    assert "goes after --" not in ran.complaint


@pytest.mark.parametrize("name", ["run.log", "run.log.gz", "output"])
def test_a_log_is_explained_with_an_option(run: Run, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("ValueError: No valid attention backend found for cuda\n")
    ran = run("explain", path)
    assert ran.code == 2
    assert f"; did you mean --log {path}? see" in ran.complaint


def test_a_model_is_named_with_an_option(run: Run) -> None:
    assert "did you mean --model qwen3-8b?" in run("explain", "qwen3-8b").complaint
    assert "did you mean" not in run("explain", "FLASHINFER").complaint


@pytest.mark.parametrize("kind", ["csv", "TSV", "xlsx", "jsonl.gz"])
def test_a_table_of_another_kind_is_refused_at_once(run: Run, tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"rows.{kind}"
    path.write_text("head_size\n64\n")
    ran = run("batch", path)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.complaint.startswith(f"{path} is .{kind.lower().rpartition('.')[2]}; a batch is")
    assert "JSON lines (.jsonl, one object a row) or Parquet (.parquet)" in ran.complaint


@pytest.mark.parametrize(
    "command",
    [
        ("resolve", "--gpu", "H100", "--manifest"),
        ("inspect", "--manifest"),
        ("inspect", "--gaps"),
        ("verify",),
        ("lint",),
        ("diff", "vllm-0.33.0"),
    ],
)
def test_a_manifest_that_is_meant_is_named(run: Run, command: tuple[str, ...]) -> None:
    ran = run(*command, "vllm-0.33")
    assert ran.code == 2
    assert ran.complaint == "vllm-0.33: no such file or directory; did you mean vllm-0.33.0?"


def test_manifests_that_ship_are_listed_where_none_is_near(run: Run) -> None:
    said = run("verify", "tgi").complaint
    assert said == (
        "tgi: no such file or directory, and no manifest that ships is called so (capabilities, "
        "vllm-0.33.0)"
    )


def test_a_shipped_manifest_is_linted_by_its_name(run: Run) -> None:
    assert run("lint", "vllm-0.33.0").code == 0


def test_values_that_are_left_out_of_a_change_show_as_dots(run: Run) -> None:
    asked = ("--manifest", "vllm-0.33.0", "--gpu", "A100", "--model", "gpt-oss-120b")
    ran = run("explain", *asked, "--set", "kv_cache_dtype=fp8")
    said = "kv_cache_dtype fp8 → auto (or bfloat16, float16, int4_per_token_head, …)"
    assert said in " ".join(ran.out.split())
    assert "→ auto (or bfloat16, unset):" in " ".join(ran.out.split())


def test_a_column_that_is_misspelt_is_named_with_its_field(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"headsize": 128, "mine": 1}\n')
    ran = run("batch", path, "--gpu", "H100")
    assert ran.code == 0
    first, second = ran.err.splitlines()
    assert first.startswith("attnsel: 1 row, ")
    assert second.endswith("passed through unread: headsize (did you mean head_size?), mine")


def test_a_batch_takes_a_product_for_rows_that_name_no_device(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"model": "llama-3.1-8b"}\n')
    assert run("batch", path, "--gpu", "H100").out == run("batch", path, "--arch", "9.0").out != ""
    both = run("batch", path, "--gpu", "H100", "--arch", "9.0")
    assert "--arch and --gpu both name a device" in both.complaint
