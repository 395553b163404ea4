"""``attnsel drift --engine-diff`` on two versions of a small engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from selector.schema import load_schema

from .conftest import line_of
from .test_drift import engine, old  # noqa: F401 (engine is a fixture)

SPARSE = "vllm/v1/attention/sparse.py"


@pytest.fixture
def versions(engine: Path, tmp_path: Path) -> tuple[Path, Path]:  # noqa: F811
    """The engine before its sparse implementation stated its dense prefill, and as it is."""
    new = tmp_path / "new"
    engine.rename(new)
    before = tmp_path / "old"
    for path in sorted(new.rglob("*.py")):
        copy = before / path.relative_to(new)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    return old(before), new


def test_a_difference_ends_with_4_and_names_both_places(
    run: Any, versions: tuple[Path, Path]
) -> None:
    ran = run("drift", "--engine-diff", *versions)
    assert (ran.code, ran.err) == (4, "")
    assert ": 1 change; " in ran.out.splitlines()[0]
    told = ran.out[ran.out.index("Narrower: accepts less (1)") :]
    assert "supports_dense_mha_prefill (implementation)\n    True → False   everywhere\n" in told
    base, own = (
        f"{file}:{line_of('supports_dense_mha_prefill', file=versions[1] / file)}"
        for file in ("vllm/v1/attention/backend.py", SPARSE)
    )
    assert f"ImplBase {base} → SparseSM120Impl {own}\n" in told
    assert "stated by SPARSE_SM120, inherited before" in told
    assert "Not compared, as known in neither" in told


def test_the_other_direction_says_that_it_is_no_longer_stated(
    run: Any, versions: tuple[Path, Path]
) -> None:
    ran = run("drift", "--engine-diff", *reversed(versions))
    assert "Wider: accepts more (1)" in ran.out
    assert "inherited by SPARSE_SM120, stated before" in ran.out


def test_a_version_and_itself_end_with_0(run: Any, versions: tuple[Path, Path]) -> None:
    ran = run("drift", "--engine-diff", versions[0], versions[0])
    assert ran.code == 0
    assert ": nothing changed; " in ran.out
    assert "could not be compared" in ran.out


def test_json_is_as_its_schema_says(run: Any, versions: tuple[Path, Path]) -> None:
    validator = Draft202012Validator(load_schema("engine-difference"))
    ran = run("drift", "--engine-diff", *versions, "--format", "json")
    validator.validate(ran.json)
    assert (ran.code, ran.json["different"]) == (4, True)
    (change,) = ran.json["changes"]
    assert (change["kind"], change["backends"]) == ("narrowed", ["SPARSE_SM120"])
    assert change["after"]["at"][0] == SPARSE
    more = {SPARSE: ('raise NotImplementedError("no such', 'raise ValueError("no such')}
    registry = "vllm/v1/attention/backends/registry.py"
    more[registry] = ("    COMPOSITE =", "    OTHER =")
    more["vllm/v1/attention/flash.py"] = ("class FlashImpl", "class class FlashImpl")
    for file, (before, after) in more.items():
        path = versions[1] / file
        path.write_text(path.read_text(encoding="utf-8").replace(before, after), encoding="utf-8")
        ran = run("drift", "--engine-diff", *versions, "--format", "json")
        validator.validate(ran.json)
    assert ran.json["guards"]
    assert {one["kind"] for one in ran.json["backends"]} >= {"renamed", "opened"}
    assert ran.json["new"]["findings"][0]["code"] == "DRF104"


def test_a_module_that_is_broken_is_shown_and_the_rest_is_compared(
    run: Any, versions: tuple[Path, Path]
) -> None:
    (versions[1] / "vllm/v1/attention/flash.py").write_text("class class\n", encoding="utf-8")
    ran = run("drift", "--engine-diff", *versions)
    assert ran.code == 4
    assert "DRF104" in ran.out
    rows = [line.split()[:3] for line in ran.out.splitlines()]
    assert ["opened", "FLASH", "backend"] in rows
    assert "stated by SPARSE_SM120, inherited before" in ran.out


def test_where_no_backend_can_be_read_nothing_is_said_to_be_the_same(
    run: Any, versions: tuple[Path, Path]
) -> None:
    for root in versions:
        for path in root.rglob("registry.py"):
            path.write_text("", encoding="utf-8")
    ran = run("drift", "--engine-diff", *versions)
    assert ran.code == 2
    assert "nothing was compared: no backend could be read" in ran.out
    assert "DRF107" in ran.out


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (("--source", "a"), "--source does not go with --engine-diff"),
        (("--manifest", "vllm-0.33.0"), "--manifest does not go with --engine-diff"),
        (("--overlay", "o.yaml"), "--overlay does not go with --engine-diff"),
        (("--format", "sarif"), "--engine-diff is written as text or json, not sarif"),
        (("--engine", "nope"), 'no reader knows the code of "nope"'),
    ],
)
def test_what_does_not_go_together_is_one_line(
    run: Any, versions: tuple[Path, Path], more: tuple[str, ...], words: str
) -> None:
    ran = run("drift", "--engine-diff", *versions, *more)
    assert (ran.code, words in ran.complaint) == (2, True), ran.err


def test_without_sources_both_uses_are_named(run: Any, versions: tuple[Path, Path]) -> None:
    ran = run("drift")
    assert ran.code == 2
    assert "--source WHEEL|DIR" in ran.complaint
    assert "--engine-diff OLD NEW" in ran.complaint
    assert run("drift", "--engine-diff", versions[0]).code == 2
    ran = run("drift", "--engine-diff", versions[0], versions[0] / "none.whl")
    assert (ran.code, "no such file or folder" in ran.complaint) == (2, True)
