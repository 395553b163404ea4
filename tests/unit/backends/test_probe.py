import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from backends import probe
from selector.values import Device


def test_this_machine_is_probed_without_importing_torch() -> None:
    code = (
        "import sys; from backends import probe; probe.probe_facts();"
        "print('torch' in sys.modules, probe.probe_device().platform)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported, seen = done.stdout.split()
    assert imported == "False"
    assert seen in ("cpu", "cuda", "rocm")


def test_facts_are_versions_of_what_is_installed() -> None:
    values = probe.probe_facts().values
    assert values["python"] == platform.python_version()
    assert values["torch"] == metadata.version("torch")


def build(monkeypatch: pytest.MonkeyPatch, home: Path, text: str, **versions: str) -> None:
    """Pretends that just these distributions are installed, torch's version.py being ``text``."""
    (home / "torch").mkdir()
    (home / "torch" / "version.py").write_text(text)
    installed = {"torch": "2.13.0"} | {k.replace("_", "-"): v for k, v in versions.items()}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(
        metadata, "distribution", lambda _: SimpleNamespace(locate_file=lambda path: home / path)
    )


CUDA_BUILD = (
    "from typing import Optional\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n"
)
CPU_BUILD = "cuda: Optional[str] = None\nhip = None\n"
ROCM_BUILD = "cuda = None\nhip: Optional[str] = '7.1'\n"


def test_a_cuda_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build(monkeypatch, tmp_path, CUDA_BUILD, nvidia_cudnn_cu13="9.20.0.48", flashinfer_python="0.7")
    values = probe.probe_facts().values
    assert (values["cuda"], values["cudnn"]) == ("13.0", "9.20.0.48")
    assert values["flashinfer-python"] == "0.7"
    assert values["flashinfer-jit-cache"] is None


def test_a_cuda_build_with_a_cudnn_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build(monkeypatch, tmp_path, CUDA_BUILD)
    assert "cudnn" not in probe.probe_facts().values


def test_a_cpu_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build(monkeypatch, tmp_path, CPU_BUILD)
    values = probe.probe_facts().values
    assert (values["cuda"], values["cudnn"]) == (None, None)
    assert probe.probe_device() == Device("cpu")


@pytest.mark.parametrize("text", ["", "cuda = f()\n", "cuda = 13\n", "cuda: str = '13\n"])
def test_a_build_that_says_nothing_is_unknown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    build(monkeypatch, tmp_path, text)
    assert not {"cuda", "cudnn"} & set(probe.probe_facts().values)


def test_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    monkeypatch.setattr(metadata, "distribution", missing)
    values = probe.probe_facts().values
    assert [values[name] for name in ("torch", "cuda", "cudnn")] == [None, None, None]
    assert probe.probe_device() == Device("cpu")


def test_broken_metadata_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> str:
        raise OSError(name)

    monkeypatch.setattr(metadata, "version", broken)
    assert "torch" not in probe.probe_facts().values


def fake_torch(monkeypatch: pytest.MonkeyPatch, hip: str | None = None, **cuda: Any) -> None:
    answers = {
        "is_available": lambda: True,
        "get_device_name": lambda: "NVIDIA H200",
        "get_device_capability": lambda: (9, 0),
    }
    module = SimpleNamespace(
        cuda=SimpleNamespace(**(answers | cuda)), version=SimpleNamespace(hip=hip)
    )
    monkeypatch.setitem(sys.modules, "torch", module)


def broken_driver() -> bool:
    raise RuntimeError("driver too old")


def test_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    build(monkeypatch, tmp_path, CUDA_BUILD)
    fake_torch(monkeypatch)
    assert probe.probe_device() == Device("cuda", "9.0", "NVIDIA H200")
    fake_torch(monkeypatch, get_device_capability=lambda: (12, 1))
    assert probe.probe_device().capability == "12.1"
    fake_torch(monkeypatch, is_available=lambda: False)
    assert probe.probe_device() == Device("cpu")
    fake_torch(monkeypatch, is_available=broken_driver)
    assert probe.probe_device() == Device("cpu")


def test_a_rocm_device_has_no_compute_capability(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    build(monkeypatch, tmp_path, ROCM_BUILD)
    fake_torch(monkeypatch, hip="7.1", get_device_name=lambda: "AMD Instinct MI300X")
    assert probe.probe_device() == Device("rocm", None, "AMD Instinct MI300X")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Aug  4\n", "580.159.04"),
        ("580.65\n", "580.65"),
        ("nothing here", None),
        (None, None),
    ],
)
def test_the_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None, expected: str | None
) -> None:
    file = tmp_path / "version"
    if text is not None:
        file.write_text(text)
    monkeypatch.setattr(probe, "_DRIVER_FILES", (str(file),))
    assert probe.probe_facts().values.get("driver") == expected
