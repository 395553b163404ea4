from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import GQA, SPARSE, Run


def prospects(run: Run, small: list[str], *arguments: object) -> dict[str, dict[str, object]]:
    ran = run("explain", *arguments, *small, "--format", "json")
    return {p["backend"]: p for p in ran.json["prospects"]}


def changes(prospect: dict[str, object]) -> list[tuple[str, str, str]]:
    found = prospect["changes"]
    assert isinstance(found, list)
    return [(c["field"], c["before"], c["after"]) for c in found]


def test_nearest_first_with_the_change_and_every_reason(run: Run, small: list[str]) -> None:
    layer = GQA + ",block_size=128"
    ran = run("explain", "--arch", "12.0", "--set", layer, *small)
    assert ran.code == 0
    refused = ran.out.split("refused, nearest first")[1].splitlines()[1:]
    assert refused[0].split("  ")[2] == "fa2"
    assert "1 change away" in refused[0]
    assert "block_size 128 → 64 (or 16, 32, unset) :" in refused[0]
    assert "1 change away, decode only" in refused[1]
    assert [("never on 12.0" in r) or ("other kind of layer" in r) for r in refused[2:]] == [
        True
    ] * 3
    assert "math" in ran.out.split("refused")[0]


def test_two_changes_are_two(run: Run, small: list[str]) -> None:
    layer = GQA.replace("128", "96").replace("auto", "fp8_e5m2")
    found = prospects(run, small, "--arch", "12.0", "--set", layer)
    assert changes(found["math"]) == [("kv_cache_dtype", "fp8_e5m2", "auto")]
    assert changes(found["fa2"]) == [
        ("head_size", "96", "64"),
        ("kv_cache_dtype", "fp8_e5m2", "fp8_e4m3"),
    ]
    assert list(found)[:2] == ["math", "fa2"]  # a change of the model comes after one of a setting


def test_every_suggestion_holds_when_it_is_followed(run: Run, small: list[str]) -> None:
    layer = GQA.replace("128", "96").replace("auto", "fp8_e5m2") + ",block_size=8"
    question = ("--arch", "12.0", "--set", "flashinfer-python=none", *small)
    fields = dict(part.split("=") for part in layer.split(","))
    found = prospects(run, [], *question, "--set", layer)
    for name in ("math", "fa2", "xqa"):
        made = {c[0]: c[2] for c in changes(found[name])}
        facts = made.pop("flashinfer-python", ">=none").removeprefix(">=")
        changed = ",".join(f"{k}={v}" for k, v in (fields | made).items())
        ran = run(
            *("resolve", "--arch", "12.0", "--set", changed, "--backend", name, *small),
            *("--set", f"flashinfer-python={facts}", "--format", "json"),
        )
        for phase in found[name]["phases"]:  # type: ignore[attr-defined]
            assert ran.json[phase]["backend"] == name


def test_never_is_said_with_its_reason(run: Run, small: list[str]) -> None:
    ran = run("explain", "--arch", "12.0", "--set", SPARSE, *small)
    assert ran.code == 0
    assert "never on 12.0" in next(r for r in ran.out.splitlines() if "sparse_sm100" in r)
    assert "other kind of layer" in next(r for r in ran.out.splitlines() if "math  " in r)
    found = prospects(run, small, "--arch", "12.0", "--set", SPARSE)
    assert found["sparse_sm100"]["phases"] == []
    assert [o["field"] for o in found["sparse_sm100"]["obstacles"]] == ["capability"]  # type: ignore[attr-defined]


def test_combinations_that_must_never_be_are_avoided(run: Run, small: list[str]) -> None:
    layer = GQA.replace("auto", "fp8_e4m3") + ",sliding_window=128"
    found = prospects(run, small, "--arch", "8.0", "--set", layer)
    assert changes(found["fa2"]) == [("kv_cache_dtype", "fp8_e4m3", "auto")]


def test_the_smallest_change_when_nothing_fits(run: Run, small: list[str]) -> None:
    layer = GQA.replace("bfloat16", "float32").replace("auto", "fp8_e4m3")
    ran = run("explain", "--arch", "12.0", "--set", layer, *small)
    assert ran.code == 3
    row = next(r for r in ran.out.splitlines() if "nothing fits" in r)
    assert "nearest: " in row
    assert row.split("nearest: ")[1] in ran.complaint
    assert row.endswith(" makes math the choice")


def test_nothing_fits_and_nothing_helps(run: Run, small: list[str]) -> None:
    ran = run("explain", "--arch", "7.5", "--set", SPARSE, *small)
    assert ran.code == 3
    assert ran.complaint.endswith(
        "no setting that was tried helps; as it is, it runs on 10.0, 10.3, 12.0, 12.1"
    )
    assert "nothing fits" in ran.out


def test_another_tensor_parallel_size_is_a_change(run: Run, small: list[str]) -> None:
    found = prospects(
        run,
        small,
        "--arch",
        "12.0",
        "--model",
        "glm-5.2-fp8",
        "--set",
        "tp=32",
        "--set",
        "kv_cache_dtype=fp8_ds_mla",
    )
    assert changes(found["sparse_sm120"]) == [("tp_size", "32", "8")]
    found = prospects(
        run, small, "--arch", "12.0", "--set", SPARSE.replace("num_heads=8", "num_heads=2")
    )
    assert changes(found["sparse_sm120"]) == [("num_heads", "2", "8")]


def test_a_denial_can_be_dropped(run: Run, small: list[str]) -> None:
    ran = run("explain", "--arch", "12.0", "--set", SPARSE, "--deny", "sparse_sm120", *small)
    assert ran.code == 3
    assert "dropping --deny sparse_sm120 makes sparse_sm120 the choice" in ran.complaint


def test_a_phase_that_runs_already_is_said(run: Run, small: list[str]) -> None:
    layer = GQA.replace("num_kv_heads=8", "num_kv_heads=2")
    found = prospects(run, small, "--arch", "8.0", "--set", layer)
    assert changes(found["fa2"]) == [("gqa_group", "16", "8")]
    assert found["fa2"]["changes"][0]["kind"] == "model"  # type: ignore[index]


@pytest.mark.parametrize("model", ["gpt-oss-20b", "gemma-3-27b"])
def test_several_kinds_of_layers(run: Run, small: list[str], model: str) -> None:
    ran = run("explain", "--arch", "12.0", "--model", model, *small, "--format", "json")
    assert len(ran.json["layers"]) == 2
    ran = run("explain", "--arch", "12.0", "--model", model, *small)
    assert ran.out.count("refused, nearest first") == 2


def test_what_nobody_can_change_is_no_change(run: Run, small: list[str]) -> None:
    question = ("--arch", "8.0", "--model", "gpt-oss-20b", *small)
    ran = run("explain", *question, "--set", "kv_cache_dtype=fp8_e5m2,sink=true")
    rows = [r for r in ran.out.splitlines() if r.strip().startswith(("fa2 ", "math "))]
    assert all("never for this model" in r for r in rows if "sink true" in r)
    assert "(the layer's own)" not in ran.err


def test_software_comes_before_what_was_asked_for(run: Run, small: list[str]) -> None:
    layer = GQA.replace("auto", "fp8_e4m3")
    facts = "flashinfer-python=0.5,torch=2.9"
    found = prospects(run, small, "--arch", "8.0", "--set", layer, "--set", facts)
    assert list(found)[:2] == ["fa2", "math"]
    assert changes(found["fa2"]) == [("flashinfer-python", "0.5", ">=0.6.14")]
    assert changes(found["math"]) == [("kv_cache_dtype", "fp8_e4m3", "auto")]


def test_the_backend_that_was_asked_for_comes_first(run: Run, small: list[str]) -> None:
    question = ("explain", "--arch", "9.0", "--set", GQA, *small)
    out = run(*question, "--backend", "sparse_sm120").out
    first = out.split("asked for")[1].splitlines()[1]
    assert first.split()[:4] == ["sparse_sm120", "never", "on", "9.0"]
    assert out.count("  sparse_sm120 ") == 1 + out.count("sparse_sm120 is forced")


def test_on_what_it_depends_is_said_as_in_resolve(run: Run, small: list[str]) -> None:
    question = ("--arch", "9.0", "--set", GQA, *small)
    blocks = [
        run(c, *question).out.split("  if ")[1].split("\n\n")[0] for c in ("explain", "resolve")
    ]
    assert blocks[0] == blocks[1]


def test_what_a_list_was_made_from_is_said(run: Run, small: list[str], tmp_path: Path) -> None:
    overlay = tmp_path / "timed.yaml"
    overlay.write_text(
        "attnsel: 1\noverlay: timed\npriorities:\n"
        '  - {when: {capability: "9.0"}, decode: [xqa], reason: Fastest., source: timings.json}\n'
        '  - {when: {capability: "12.0"}, order: [fa2], reason: Fastest., source: timings.json}\n'
    )

    def sources(*arguments: object) -> tuple[list[str], list[str | None]]:
        asked = ("--set", GQA, "--query-len", 7, *small, *arguments)
        said = [r for r in run("explain", *asked).out.splitlines() if r.startswith("  source")]
        answer = run("explain", *asked, "--format", "json").json["resolution"]
        return said, [answer[phase]["source"] for phase in ("prefill", "decode")]

    timed = ("--overlay", overlay)
    assert sources("--arch", "9.0") == ([], [None, None])
    assert sources("--arch", "9.0", *timed) == (
        ["  source      timings.json (for decode)"],
        [None, "timings.json"],
    )
    assert sources("--arch", "12.0", *timed) == (
        ["  source      timings.json"],
        ["timings.json", "timings.json"],
    )
