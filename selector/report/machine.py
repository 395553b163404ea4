"""This machine, for a bug report; and the products that are known by name."""

from __future__ import annotations

import platform
import sys
from importlib import metadata
from typing import Any

import msgspec

from selector.devices import architectures
from selector.manifest import Manifest
from selector.report.data import to_json
from selector.report.text import BLANK, Line, Part, faint, grid, line, strong
from selector.report.wording import Places, device_words
from selector.values import Device, Facts, ManifestRef

__all__ = [
    "Machine",
    "field_lines",
    "fields_json",
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
    return [
        *lines,
        line(strong("facts"), faint("  what is not listed is unknown")),
        *grid(facts, 2),
    ]


_SET_ELSEWHERE = {
    "platform": "--arch",
    "capability": "--arch",
    "query_len": "--query-len",
    "seq_len": "--seq-len",
    "context_len": "--seq-len",
    "has_context": "--seq-len",
}


def fields_json(manifest: Manifest) -> dict[str, Any]:
    """Every field of the vocabulary, and every fact that the manifest declares."""
    declared = {*manifest.facts, *manifest.derive}
    return {
        "fields": [
            {
                "name": field.name,
                "type": field.type,
                "role": field.role,
                "description": field.description,
                "values": list(field.values),
                "symbols": list(field.symbols),
                "off": field.off,
                "aliases": list(field.aliases),
                "set_by": _SET_ELSEWHERE.get(field.name, f"--set {field.name}="),
            }
            for field in manifest.vocabulary.fields.values()
            if field.name not in declared
        ],
        "facts": dict(manifest.facts),
    }


def field_lines(manifest: Manifest) -> list[Line]:
    """Every field with its values and spellings, and every fact."""
    listed = fields_json(manifest)
    rows: list[list[Part]] = [[faint(t) for t in ("field", "type", "role", "what it says")]]
    for field in listed["fields"]:
        name = field["name"]
        rows.append([strong(name), field["type"], field["role"], field["description"]])
        values = [*field["values"], *field["symbols"]]
        if values:
            rows.append(["", "", "", line(faint("values "), ", ".join(values))])
        if field["aliases"]:
            rows.append(["", "", "", line(faint("also "), ", ".join(field["aliases"]))])
        if name in _SET_ELSEWHERE:
            rows.append(["", "", "", line(faint("set by "), _SET_ELSEWHERE[name])])
    facts: list[list[Part]] = [[strong(name), kind] for name, kind in listed["facts"].items()]
    head = [
        line(strong(manifest.ref.name), "  what --set takes, and what manifests speak of"),
        BLANK,
    ]
    lines = [*head, *grid(rows, indent=2, gap=2)]
    if facts:
        lines += [BLANK, line(strong("facts"), faint("  about software; --set takes them too"))]
        lines += grid(facts, indent=2)
    return lines


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
