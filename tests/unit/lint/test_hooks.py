"""The pre-commit hook and the GitHub action: what they run is run, with no network."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
GOOD = (ROOT / "tests/manifests/good/smallest.yaml").read_text("utf-8")
HOOK: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text("utf-8"))[0]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a clean manifest, and one that is not, whose name has a space."""
    (tmp_path / "manifests").mkdir()
    (tmp_path / "capabilities.yaml").write_text(GOOD, "utf-8")
    (tmp_path / "manifests/our engine.yaml").write_text(GOOD + "nom: x\n", "utf-8")
    (tmp_path / "compose.yaml").write_text("services: {}\n", "utf-8")
    return tmp_path


def line_of_error() -> int:
    return GOOD.count("\n") + 1


# -- the hook ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "capabilities.yaml",
        "capabilities.yml",
        "engine/capabilities.yaml",
        "manifests/vllm-0.33.0.yaml",
        "manifests/nested/ours.yml",
        "serving/manifests/our engine.yaml",
    ],
)
def test_the_hook_takes_manifests(path: str) -> None:
    assert re.search(HOOK["files"], path)


@pytest.mark.parametrize(
    "path",
    [
        "compose.yaml",
        "manifests/README.md",
        "manifests/vllm.yaml.orig",
        "mymanifests/a.yaml",
        "capabilities.yaml/other.json",
        "docs/capabilities.yaml.md",
        "xcapabilities.yaml",
        ".github/workflows/lint.yml",
    ],
)
def test_the_hook_leaves_other_files_alone(path: str) -> None:
    assert not re.search(HOOK["files"], path)


def test_the_hook_takes_what_ships() -> None:
    shipped = [ROOT / "capabilities.yaml", *(ROOT / "manifests").glob("*.yaml")]
    for path in shipped:
        assert re.search(HOOK["files"], path.relative_to(ROOT).as_posix())


def test_the_hook_is_written_as_pre_commit_reads_it() -> None:
    assert {"id", "name", "entry", "language", "files"} <= HOOK.keys()
    assert HOOK["language"] == "python"
    assert HOOK["types"] == ["yaml"]
    assert "\n" not in HOOK["files"]


def run_hook(folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    command, *arguments = shlex.split(HOOK["entry"])
    return subprocess.run(
        [str(BIN / command), *arguments, *files], cwd=folder, capture_output=True, text=True
    )


def test_the_hook_fails_for_the_file_that_is_wrong(repository: Path) -> None:
    assert run_hook(repository, "capabilities.yaml").returncode == 0
    ran = run_hook(repository, "capabilities.yaml", "manifests/our engine.yaml")
    assert ran.returncode == 1
    assert ran.stdout.startswith(f"manifests/our engine.yaml:{line_of_error()}:1: CAP003 ")


# -- the action ----------------------------------------------------------------------------------


def run_action(folder: Path, **inputs: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """What the action's lint step does with these inputs, and the outputs it sets."""
    step = STEPS["Lint"]
    values = {name: str(said["default"]) for name, said in ACTION["inputs"].items()}
    values |= {name.replace("_", "-"): value for name, value in inputs.items()}
    environment = {}
    for name, said in step["env"].items():
        found = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", said)
        environment[name] = values[found[1]] if found else said
    outputs = folder / "outputs"
    outputs.write_text("")
    environment |= {
        "ATTNSEL": str(BIN / "attnsel"),
        "GITHUB_OUTPUT": str(outputs),
        "PATH": "/usr/bin:/bin",
    }
    script = folder / "step.sh"
    script.write_text(step["run"], "utf-8")
    ran = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", str(script)],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    return ran, outputs.read_text()


def test_the_action_annotates_lines(repository: Path) -> None:
    ran, outputs = run_action(repository)
    assert ran.returncode == 1
    place = f"file=manifests/our engine.yaml,line={line_of_error()},col=1,title=CAP003"
    assert ran.stdout.startswith(f"::error {place}")
    assert "in 2 files." in ran.stdout
    assert outputs == "exit-code=1\n"


def test_the_action_is_quiet_where_nothing_is_wrong(repository: Path) -> None:
    ran, outputs = run_action(repository, paths="capabilities.yaml\n")
    assert ran.returncode == 0
    assert ran.stdout == "No problems in capabilities.yaml.\n"
    assert outputs == "exit-code=0\n"


def test_the_action_takes_a_path_and_an_argument_a_line(repository: Path) -> None:
    ran, _ = run_action(
        repository,
        paths="capabilities.yaml\n\nmanifests/*.yaml\n",
        args="--select=CAP9\n--ignore=CAP902\n",
        format="json",
    )
    assert ran.returncode == 1
    assert [f["code"] for f in json.loads(ran.stdout)] == ["CAP003"]


def test_the_action_writes_sarif_and_fails_all_the_same(repository: Path) -> None:
    ran, outputs = run_action(repository, format="sarif", sarif_file="found here.sarif")
    assert ran.returncode == 1
    assert ran.stdout == ""
    log = json.loads((repository / "found here.sarif").read_text("utf-8"))
    location = log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == "manifests/our%20engine.yaml"
    assert outputs == "exit-code=1\n"


@pytest.mark.parametrize("paths", ["", "\n  \n"])
def test_the_action_never_passes_without_a_file(repository: Path, paths: str) -> None:
    ran, outputs = run_action(repository, paths=paths)
    assert ran.returncode == 2
    assert "0 files checked" in ran.stdout
    assert outputs == "exit-code=2\n"


def test_the_action_takes_a_path_for_a_path_whatever_it_is(repository: Path) -> None:
    ran, outputs = run_action(repository, paths="--\n")
    assert ran.stderr.startswith("attnsel: --: no such file")
    assert outputs == "exit-code=2\n"


@pytest.mark.parametrize("word", ["$(touch hacked)", "`touch hacked`", "a; touch hacked", "--fix"])
def test_what_is_given_to_the_action_is_never_run(repository: Path, word: str) -> None:
    before = (repository / "manifests/our engine.yaml").read_bytes()
    ran, _ = run_action(repository, paths=word)
    assert ran.returncode == 2
    assert not (repository / "hacked").exists()
    assert (repository / "manifests/our engine.yaml").read_bytes() == before


def test_no_step_of_the_action_writes_inputs_into_its_script() -> None:
    for step in STEPS.values():
        assert "${{" not in step.get("run", "")


def test_the_action_installs_what_it_was_taken_from_or_a_version(tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    said = tmp_path / "said"
    makes = 'if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi'
    fake = f'#!/bin/sh\necho "$@" >> "{said}"\n{makes}\n'
    python.write_text(fake)
    python.chmod(0o755)
    for version, wanted in (("", "/where/it is"), ("1.2", "attnsel==1.2")):
        said.unlink(missing_ok=True)
        subprocess.run(
            ["bash", "-eo", "pipefail", "-c", STEPS["Install"]["run"]],
            env={
                "PATH": f"{python.parent}:/usr/bin:/bin",
                "VERSION": version,
                "SOURCE": "/where/it is",
                "FOLDER": str(tmp_path / "venv"),
            },
            check=True,
        )
        assert said.read_text().splitlines()[-1].endswith(f"--disable-pip-version-check {wanted}")


# -- editors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [ROOT / "capabilities.yaml", *sorted((ROOT / "manifests").glob("*.yaml"))],
    ids=lambda path: path.name,
)
def test_editors_find_the_schema_that_a_shipped_manifest_names(path: Path) -> None:
    first = path.read_text("utf-8").splitlines()[0]
    found = re.fullmatch(r"# yaml-language-server: \$schema=(\S+)", first)
    assert found is not None
    schema = json.loads((path.parent / found[1]).resolve(strict=True).read_text("utf-8"))
    assert schema["title"] == "attnsel manifest"
