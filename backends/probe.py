"""What this machine is and what is installed on it: the only place that looks.

Whatever cannot be found out is left out, which means unknown; nothing here raises.
"""

from __future__ import annotations

import ast
import os
import platform
import re
import shutil
from importlib import metadata
from pathlib import Path
from types import MappingProxyType

from selector.fields import capability_text
from selector.values import Device, Facts

__all__ = ["find_missing_tools", "probe_device", "probe_facts"]

_DISTRIBUTIONS = (
    *("attnsel", "torch", "flashinfer-python", "flashinfer-jit-cache", "nvidia-cudnn-frontend"),
)

_DRIVER_FILES = ("/proc/driver/nvidia/version", "/sys/module/nvidia/version")


def probe_device() -> Device:
    """The device that kernels would run on: the first CUDA device that torch sees, else the CPU.

    Imports torch only when an installed build of it could see a device.
    """
    if _torch_build("cuda") is None and _torch_build("hip") is None:
        return Device("cpu")
    try:
        import torch

        if not torch.cuda.is_available():
            return Device("cpu")
        product = str(torch.cuda.get_device_name())
        if torch.version.hip:
            return Device("rocm", product=product)
        major, minor = torch.cuda.get_device_capability()
        return Device("cuda", capability_text(100 * major + minor), product)
    except Exception:  # a broken torch or driver is no device; what broke is theirs to say
        return Device("cpu")


def probe_facts() -> Facts:
    """What is installed, without importing it.

    Returns:
        Versions by distribution name (``None``: not installed), and ``python``; ``cuda`` and
        ``cudnn``, the versions that torch was built with and brings (``None``: torch is not
        installed or is built without); ``driver``, NVIDIA's. A missing name is unknown.
    """
    found: dict[str, str | bool | None] = {"python": platform.python_version()}
    for name in _DISTRIBUTIONS:
        _put(found, name, _version(name))
    _put(found, "cuda", _torch_build("cuda"))
    _put(found, "cudnn", _cudnn(found.get("cuda", _UNKNOWN)))
    _put(found, "driver", _driver())
    return Facts(MappingProxyType(found))


def find_missing_tools(facts: Facts) -> tuple[str, ...]:
    """What compiling FlashInfer's kernels on first use needs and this machine lacks.

    Looks where FlashInfer does: ``FLASHINFER_NVCC``, ``CUDA_HOME``, ``CUDA_PATH``, the search path,
    ``/usr/local/cuda``. With ``flashinfer-jit-cache`` installed, kernels come compiled.
    """
    if facts.values.get("flashinfer-jit-cache"):
        return ()
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = os.environ.get("FLASHINFER_NVCC") or (home and f"{home}/bin/nvcc")
    nvcc = nvcc or shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    found = {"nvcc": Path(nvcc).is_file(), "ninja": shutil.which("ninja") is not None}
    return tuple(name for name, there in found.items() if not there)


_UNKNOWN = False
"""Stands for "could not be found out"; no version is a boolean."""


def _put(found: dict[str, str | bool | None], name: str, value: str | bool | None) -> None:
    if value is not _UNKNOWN:
        found[name] = value


def _version(distribution: str) -> str | bool | None:
    """The installed version, ``None`` when not installed."""
    try:
        version: str | None = metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
    except Exception:  # metadata that cannot be read: installed, but as what?
        return _UNKNOWN
    return version or _UNKNOWN


def _torch_build(name: str) -> str | bool | None:
    """A constant of ``torch/version.py``, read as text: importing torch takes seconds."""
    try:
        home = metadata.distribution("torch")
    except metadata.PackageNotFoundError:
        return None
    try:
        text = Path(str(home.locate_file("torch/version.py"))).read_text("utf-8")
        found = re.search(rf"^{name}\s*(?::[^=\n]+)?=\s*(.+)$", text, re.MULTILINE)
        value = ast.literal_eval(found[1]) if found else _UNKNOWN
    except Exception:  # an editable build, a layout of tomorrow
        return _UNKNOWN
    return value if value is None or isinstance(value, str) else _UNKNOWN


def _cudnn(cuda: str | bool | None) -> str | bool | None:
    """The version of the cuDNN that torch's wheel depends on."""
    if not isinstance(cuda, str):
        return cuda
    version = _version(f"nvidia-cudnn-cu{cuda.split('.')[0]}")
    return _UNKNOWN if version is None else version  # a build may carry its own


def _driver() -> str | bool:
    for path in _DRIVER_FILES:
        try:
            found = re.search(r"\b\d{3,}(?:\.\d+)+\b", Path(path).read_text("utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
        if found:
            return found[0]
    return _UNKNOWN
