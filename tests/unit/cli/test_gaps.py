"""``attnsel inspect --gaps``."""

from __future__ import annotations

import pytest
from jsonschema import Draft202012Validator

from selector.schema import load_schema

from .conftest import Run

TYPES = ("decoder", "encoder", "encoder_only", "encoder_decoder")


def test_the_three_lists(run: Run) -> None:
    ran = run("inspect", "--gaps", "small.yaml")
    assert ran.code == 0
    assert "layers that no list gives a backend, and where" in ran.out
    (gap,) = [line for line in ran.out.splitlines() if line.startswith("  sparse MLA   decoder")]
    assert "prefill and decode" in gap
    assert gap.endswith("7.0–9.0, 10.7, 11.0, rocm, xpu, tpu, npu, cpu")
    assert "only their order in a list decides" in ran.out
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


@pytest.mark.parametrize("said", [("--arch", "9.0"), ("--gpu", "RTX PRO 6000"), ("--arch", "cpu")])
def test_one_device_has_the_gaps_that_all_have_there(
    run: Run, small: list[str], said: tuple[str, str]
) -> None:
    def gaps(*options: str) -> set[tuple[object, ...]]:
        found = run("inspect", "--gaps", *small, *options, "--format", "json").json
        Draft202012Validator(load_schema("inspection")).validate(found)
        return {
            (gap["mla"], gap["sparse"], one, device, *gap["phases"])
            for gap in found["gaps"]
            for device in gap["devices"]
            for one in gap["attn_types"] or TYPES
        }

    here = {"RTX PRO 6000": "12.0"}.get(said[1], said[1])
    assert gaps(*said) == {gap for gap in gaps() if gap[3] == here} != set()


def test_what_is_made_for_other_devices_is_one_line(run: Run, small: list[str]) -> None:
    ran = run("inspect", "--gaps", *small, "--arch", "9.0")
    assert "compute capability 9.0 only" in ran.out.splitlines()[0]
    assert "made for other devices: sparse_sm100, sparse_sm120" in ran.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gaps", "--matrix"), "--gaps and --matrix do not go together: give one of them"),
        (("--gaps", "--set", "mla=true"), "--set does not go with --gaps, which looks at all"),
        (("--gaps", "--model", "qwen3-8b"), "--model does not go with --gaps, which looks at all"),
        (("--matrix", "--arch", "9.0"), "--arch goes with --gaps; --matrix shows every"),
        (("--gpu", "H100"), "--gpu goes with --gaps; --matrix shows every architecture"),
    ],
)
def test_what_says_nothing_to_what_is_shown_is_refused(
    run: Run, options: tuple[str, ...], words: str
) -> None:
    ran = run("inspect", *options)
    assert ran.code == 2
    assert ran.complaint.startswith(words)
