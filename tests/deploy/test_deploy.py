"""Container file and Kubernetes manifest say what is so: the same command, user and paths run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

dockerfile_parse = pytest.importorskip("dockerfile_parse")
kubernetes_validate = pytest.importorskip("kubernetes_validate")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MANIFEST = (ROOT / "tests" / "unit" / "cli" / "small.yaml").read_text()


@pytest.fixture(scope="module")
def objects() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))


@pytest.fixture(scope="module")
def pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = objects[0]["spec"]["template"]["spec"]
    return found


@pytest.fixture(scope="module")
def container(pod: dict[str, Any]) -> dict[str, Any]:
    (found,) = pod["containers"]
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def image() -> list[tuple[str, str]]:
    """Instructions of the container file and what they say."""
    with (FOLDER / "Containerfile").open("rb") as stream:
        found = dockerfile_parse.DockerfileParser(fileobj=stream).structure
    return [(one["instruction"], one["value"]) for one in found if one["instruction"] != "COMMENT"]


def said(image: list[tuple[str, str]], instruction: str) -> list[str]:
    return [value for name, value in image if name == instruction]


def option(container: dict[str, Any], name: str) -> str:
    args: list[str] = container["args"]
    return args[args.index(name) + 1]


def test_kubernetes_takes_every_object(objects: list[dict[str, Any]]) -> None:
    assert [one["kind"] for one in objects] == ["Deployment", "Service", "PodDisruptionBudget"]
    for one in objects:
        kubernetes_validate.validate(one, "1.30", strict=True)


def test_the_service_finds_the_pods(
    objects: list[dict[str, Any]], container: dict[str, Any]
) -> None:
    deployment, service, budget = (one["spec"] for one in objects)
    labels = deployment["template"]["metadata"]["labels"]
    assert service["selector"] == deployment["selector"]["matchLabels"] == labels
    (spread,) = deployment["template"]["spec"]["topologySpreadConstraints"]
    assert budget["selector"] == spread["labelSelector"] == deployment["selector"]
    assert 0 < budget["minAvailable"] < deployment["replicas"]
    (port,) = container["ports"]
    assert [one["targetPort"] for one in service["ports"]] == [port["name"]]
    assert str(port["containerPort"]) == option(container, "--port")


def test_image_and_pod_agree(
    image: list[tuple[str, str]], pod: dict[str, Any], container: dict[str, Any]
) -> None:
    context = pod["securityContext"]
    assert said(image, "USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert json.loads(said(image, "ENTRYPOINT")[0]) == ["attnsel"]
    command = json.loads(said(image, "CMD")[0])
    assert container["args"][: len(command)] == command
    assert said(image, "EXPOSE") == [str(container["ports"][0]["containerPort"])]
    cache = {one["name"]: one["value"] for one in container["env"]}["ATTNSEL_CACHE_DIR"]
    assert f"ATTNSEL_CACHE_DIR={cache}" in said(image, "ENV")
    (made,) = [line for line in said(image, "RUN") if line.startswith("install -d")]
    assert made.endswith(f" {cache}")
    assert cache in [one["mountPath"] for one in container["volumeMounts"]]
    assert container["image"] == f"attnsel:{PROJECT['project']['version']}"


@pytest.mark.parametrize("file", ["Containerfile", "kubernetes.yaml"])
def test_comments_build_and_run_this_image(file: str, container: dict[str, Any]) -> None:
    text = (FOLDER / file).read_text()
    assert f"podman build -f deploy/Containerfile -t {container['image']} .\n" in text
    named = re.findall(r"(?:run --rm .* |-t )(attnsel\S*)", text)
    assert {*named} == {container["image"]}


def test_a_pod_has_time_to_drain(pod: dict[str, Any], container: dict[str, Any]) -> None:
    assert "lifecycle" not in container, "the delay is the server's own"
    assert pod["terminationGracePeriodSeconds"] > float(option(container, "--drain-delay")) + 30


def test_no_manifest_is_applied_before_it_is_linted() -> None:
    text = (FOLDER / "kubernetes.yaml").read_text()
    made = [line for line in text.splitlines() if "create configmap" in line]
    assert len(made) == 2
    assert all("  attnsel lint capabilities.yaml && kubectl create" in line for line in made)


def test_the_image_is_built_from_all_that_is_installed(image: list[tuple[str, str]]) -> None:
    copied = [path for line in said(image, "COPY") if "--from" not in line for path in line.split()]
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = {"pyproject.toml", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    needed |= {*wheel["packages"], *wheel["force-include"]}
    assert needed <= {*copied}
    assert all((ROOT / path).exists() for path in needed)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert needed == {line[1:] for line in ignored if line.startswith("!")}


def test_the_image_installs_extras_that_exist_on_a_python_that_will_do(
    image: list[tuple[str, str]],
) -> None:
    (line,) = [line for line in said(image, "RUN") if "pip install" in line]
    extras = Requirement(line.split('"')[1].replace(".", "attnsel", 1)).extras
    assert extras == {"serve", "parquet"}
    assert extras <= {*PROJECT["project"]["optional-dependencies"]}
    versions = {value.split(":")[1].partition("-")[0] for value in said(image, "FROM")}
    (version,) = versions
    assert version in SpecifierSet(PROJECT["project"]["requires-python"])


@pytest.mark.skipif(
    os.name != "posix" or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="wants root and Linux namespaces, as in a container of CI",
)
def test_a_pod_lives(pod: dict[str, Any], container: dict[str, Any]) -> None:
    """The pod's command under its user, paths and volumes, on a root that cannot be written."""
    environment = {one["name"]: one["value"] for one in container["env"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    mounts = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
    kinds = {name: next(key for key in one if key != "name") for name, one in volumes.items()}
    assert kinds == {"manifests": "configMap", "cache": "emptyDir"}
    file = Path(option(container, "--manifest"))
    assert str(file.parent) == mounts["manifests"]
    assert container["securityContext"]["readOnlyRootFilesystem"]
    probes = ("startupProbe", "livenessProbe", "readinessProbe")
    asked = {
        "command": [shutil.which("attnsel", path=f"{sys.prefix}/bin"), *container["args"]],
        "environment": environment | {"PATH": f"{sys.prefix}/bin:/usr/bin:/bin"},
        "user": pod["securityContext"]["runAsUser"],
        "group": pod["securityContext"]["runAsGroup"],
        "port": container["ports"][0]["containerPort"],
        "probes": {name: container[name]["httpGet"]["path"] for name in probes},
        "manifests": mounts["manifests"],
        "cache": mounts["cache"],
        "file": file.name,
        "texts": [
            MANIFEST,
            MANIFEST.replace('version: "1"', 'version: "2"'),
            MANIFEST.replace("backends:", "backens:"),
        ],
        "needed": [str(ROOT), sys.prefix, sys.base_prefix],
    }
    script = str(Path(__file__).with_name("pod.py"))
    alone = ["unshare", "--mount", "--net", sys.executable, script, json.dumps(asked)]
    done = subprocess.run(alone, capture_output=True, text=True, check=False)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip(f"no namespaces here: {done.stderr.splitlines()[0]}")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    name = {"name": file.stem}
    assert seen["probes"] == dict.fromkeys(probes, 200)
    assert seen["started"] == name | {"status": "ready", "generation": 1}
    assert seen["changed"] == name | {"status": "ready", "generation": 2}
    assert seen["broken"] == [name | {"status": "degraded", "generation": 2}, 200]
    assert seen["killed"] == [name | {"status": "degraded", "generation": 1}, 200]
    assert seen["mended"]["status"] == "ready"
    assert seen["draining"] == [503, 200]
    assert seen["exit"] == 0
    assert not [line for line in seen["log"] if json.loads(line)["level"] == "error"]
