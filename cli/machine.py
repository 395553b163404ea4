"""What the commands that run kernels on this machine share: its device, options, the same again."""

from __future__ import annotations

import shlex
import warnings
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import complete_backend

if TYPE_CHECKING:
    from selector.values import Device

__all__ = ["BackendsOption", "DeviceOption", "SeedOption", "Where", "command_text", "find_device"]


class Where(StrEnum):
    """Which of this machine's devices to run on."""

    CPU = "cpu"
    CUDA = "cuda"


DeviceOption = Annotated[
    Where | None, typer.Option(help="Where to run. Default: the GPU, else the CPU.")
]
BackendsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME", help="Run only this backend. Repeatable.", autocompletion=complete_backend
    ),
]
SeedOption = Annotated[int, typer.Option(metavar="N", help="Seed of the random inputs.")]


def find_device(wanted: Where | None) -> Device:
    """This machine's device, for kernels to run on.

    Raises:
        UnknownDeviceError: there is no such device.
    """
    from backends.probe import probe_device
    from selector.errors import UnknownDeviceError
    from selector.values import Device

    # Nothing here hands an array to NumPy, so torch need not say that it found none.
    warnings.filterwarnings("ignore", message="Failed to initialize NumPy")
    if wanted is Where.CPU:
        return Device("cpu")
    found = probe_device()
    if wanted is Where.CUDA and found.platform != "cuda":
        raise UnknownDeviceError("no CUDA device is seen on this machine; --device cpu runs here")
    return found


def command_text(command: str, **flags: object) -> str:
    """The command that runs the same again.

    Args:
        command: its name.
        flags: by name; several values are said one by one, ``None`` and ``False`` not at all.
    """
    words = ["attnsel", command]
    for name, value in flags.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            for one in value if isinstance(value, list) else [value]:
                words += [flag, str(one)]
    return shlex.join(words)
