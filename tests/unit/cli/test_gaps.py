"""``attnsel inspect --gaps``."""

from __future__ import annotations

from .conftest import Run


def test_the_three_lists(run: Run) -> None:
    ran = run("inspect", "--gaps", "small.yaml")
    assert ran.code == 0
    assert "without a backend" in ran.out
    (gap,) = [line for line in ran.out.splitlines() if line.startswith("  sparse MLA   decoder")]
    assert "prefill and decode" in gap
    assert gap.endswith("7.0–9.0, 10.7, 11.0, rocm, xpu, tpu, npu, cpu")
    assert "decided by order alone" in ran.out
    assert any(line.split()[:3] == ["fa2", "before", "math"] for line in ran.out.splitlines())


def test_the_manifest_can_be_named_in_both_ways(run: Run, small: list[str]) -> None:
    said = run("inspect", "--gaps", "small.yaml", "--format", "json").json
    named = run("inspect", "--gaps", *small, "--format", "json").json
    assert said["gaps"] == named["gaps"]
    assert said["unserved"]["prefill"] > 0
    assert said["questions"] > said["unserved"]["prefill"]


def test_markdown_is_a_block(run: Run, small: list[str]) -> None:
    lines = run("inspect", "--gaps", *small, "--format", "markdown").out.splitlines()
    assert (lines[0], lines[-1]) == ("```text", "```")
