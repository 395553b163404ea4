"""Public reports of findings that code scanning refused, and of hooks that checked nothing.

F22 to F24 are about SARIF, F28 and F29 about pre-commit.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RIGHT = ROOT.joinpath("tests/manifests/good/smallest.yaml").read_text("utf-8")
WRONG = f"{RIGHT}nom: x\n"
PLAIN = re.compile(r"(?:[\w.~/-]|%[0-9A-F]{2})+", re.ASCII)
"""A relative reference: no scheme, no space, nothing that is not escaped."""


def attnsel(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("attnsel")), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def run_of(folder: Path, *paths: str) -> dict[str, Any]:
    """The one run of the log about some files."""
    (run,) = json.loads(attnsel(folder, "lint", "--format", "sarif", *paths).stdout)["runs"]
    return dict(run)


def put(folder: Path, name: str, text: str = WRONG) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")
    return name


def addresses(run: dict[str, Any]) -> list[str]:
    places = [place for result in run["results"] for place in result["locations"]]
    return [place["physicalLocation"]["artifactLocation"]["uri"] for place in places]


def test_f22_what_has_no_place_points_at_a_file_or_is_a_notification(tmp_path: Path) -> None:
    empty, wrong = put(tmp_path, "empty.yaml", ""), put(tmp_path, "wrong.yaml")
    run = run_of(tmp_path, empty, wrong, "missing one.yaml")
    assert [len(result["locations"]) for result in run["results"]] == [1, 1]
    assert addresses(run) == ["empty.yaml", "wrong.yaml"]
    region = run["results"][0]["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"]) == (1, 1)
    (invocation,) = run["invocations"]
    (notification,) = invocation["toolExecutionNotifications"]
    assert "missing one.yaml" in notification["message"]["text"]
    assert all(PLAIN.fullmatch(uri) for uri in re.findall(r'"uri": "([^"]*)"', json.dumps(run)))


def test_f23_addresses_need_no_base(tmp_path: Path) -> None:
    put(tmp_path, "manifests/nested/ours.yaml")
    (tmp_path / "here").mkdir()
    run = run_of(tmp_path, "manifests/nested/ours.yaml", "here/../manifests/nested/ours.yaml")
    assert set(addresses(run)) == {"manifests/nested/ours.yaml"}
    assert addresses(run_of(tmp_path, str(tmp_path / "manifests/nested/ours.yaml"))) == [
        "manifests/nested/ours.yaml"
    ]
    text = json.dumps(run)
    assert "uriBaseId" not in text
    assert "originalUriBaseIds" not in text
    assert '"uri": ""' not in text


@pytest.mark.parametrize(
    "name",
    ["my manifests/größe attn.yaml", "a#b.yaml", "100%.yaml", "x:y.yaml", "a?b&c.yaml", "[1].yaml"],
)
def test_f24_addresses_are_escaped(tmp_path: Path, name: str) -> None:
    run = run_of(tmp_path, put(tmp_path, name))
    (uri,) = addresses(run)
    assert PLAIN.fullmatch(uri)
    assert unquote(uri) == name
    if "größe" in name:
        assert uri == "my%20manifests/gr%C3%B6%C3%9Fe%20attn.yaml"
    (result,) = run["results"]
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["startColumn"]) == (RIGHT.count("\n") + 1, 1)


def hook() -> dict[str, Any]:
    (one,) = yaml.safe_load(ROOT.joinpath(".pre-commit-hooks.yaml").read_text("utf-8"))
    return dict(one)


@pytest.mark.parametrize(
    "path", ["capabilities.yaml", "manifests/ours.yaml", "pkg/manifests/a.yml"]
)
def test_f28_the_hook_takes_the_usual_places(path: str) -> None:
    assert re.search(hook()["files"], path)
    assert "exclude" not in hook()


def test_f28_no_file_checked_is_visible_and_fails(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    put(tmp_path, "folder/compose.yaml", "services: {}\n")
    for arguments in (("folder",), ("nothing/*.yaml",)):
        ran = attnsel(tmp_path, "lint", *arguments)
        assert ran.returncode == 2
        assert ran.stdout + ran.stderr
        assert "No problems" not in ran.stdout


def test_f29_the_pattern_of_the_hook_is_on_one_line() -> None:
    pattern = hook()["files"]
    assert not re.search(r"\s", pattern)
    both = ("manifests/ours.yaml", "capabilities.yaml")
    assert all(re.search(pattern, path) for path in both)
    folded = yaml.safe_load("files: >-\n  (^manifests/.*\\.yaml$|\n  ^capabilities\\.yaml$)\n")
    assert [bool(re.search(folded["files"], path)) for path in both] == [True, False]
