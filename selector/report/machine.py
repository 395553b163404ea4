"""This machine, for a bug report; and the products that are known by name."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Any

import msgspec

from selector.devices import architectures
from selector.report.data import to_json
from selector.report.text import BLANK, Line, Part, faint, grid, line, strong
from selector.report.wording import Places, device_words
from selector.values import Device, Facts, ManifestRef

__all__ = [
    "Machine",
    "gpu_lines",
    "gpus_json",
    "machine_json",
    "machine_lines",
    "versions",
]

_DISTRIBUTIONS = (
    "attnsel",
    "jsonschema",
    "msgspec",
    "packaging",
    "pyyaml",
    "typer",
    "pyarrow",
    "torch",
    "flashinfer-python",
)


class Machine(msgspec.Struct, frozen=True):
    """What a bug report needs.

    Attributes:
        versions: distribution → version; ``None``: not installed.
        device: what kernels would run on.
        facts: what is installed, by the names manifests use.
        manifest: which manifest answers.
    """

    versions: dict[str, str | None]
    device: Device
    facts: Facts
    manifest: ManifestRef


def versions() -> dict[str, str | None]:
    """Versions of Python, the system, attnsel and what it uses; nothing is imported for it."""
    found: dict[str, str | None] = {
        "python": sys.version.split()[0],
        "system": platform.platform(),
    }
    for name in _DISTRIBUTIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def machine_json(machine: Machine) -> dict[str, Any]:
    """The machine as JSON values."""
    plain: dict[str, Any] = to_json(machine)
    plain["facts"] = dict(machine.facts.values)
    return plain


def machine_lines(machine: Machine, places: Places) -> list[Line]:
    """The machine as a table."""
    ref = machine.manifest
    rows: list[list[Part]] = [
        [faint(name), version or faint("not installed")]
        for name, version in machine.versions.items()
    ]
    facts: list[list[Part]] = [
        [faint(name), faint("not installed") if value is None else str(value)]
        for name, value in sorted(machine.facts.values.items())
    ]
    where: list[list[Part]] = [
        [faint("device"), device_words(machine.device)],
        [faint("manifest"), f"{ref.name} {ref.version}"],
        [faint("file"), places.file(ref.file)],
        [faint("digest"), ref.digest],
    ]
    lines = [line(strong("versions")), *grid(rows, indent=2), BLANK]
    lines += [line(strong("answers from")), *grid(where, indent=2), BLANK]
    return [*lines, line(strong("facts"), faint("  what is missing is unknown")), *grid(facts, 2)]


def gpus_json() -> list[dict[str, Any]]:
    """Every architecture that is known, with its products."""
    return [dict(row) for row in architectures()]


def gpu_lines() -> list[Line]:
    """Every product that is known, by capability."""
    rows: list[list[Part]] = [[faint(t) for t in ("arch", "family", "products")]]
    for row in architectures():
        where = row["capability"] or row["platform"]
        rows.append([strong(where), row["family"], ", ".join(row["products"])])
    return grid(rows, indent=0)
