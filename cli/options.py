"""Options that several commands share, and what the shell completes for them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "ENGINE",
    "Arch",
    "AsClaimed",
    "BackendName",
    "ClosedWorld",
    "DecodeBackend",
    "Deny",
    "FactsFrom",
    "FactsOption",
    "FallbackOption",
    "Format",
    "FormatOption",
    "Gpu",
    "ManifestOption",
    "ModelOption",
    "OverlayOption",
    "PrefillBackend",
    "QueryLen",
    "SeqLen",
    "ServerOption",
    "Settings",
    "TimeoutOption",
    "TokenFileOption",
]


ENGINE = "vllm-0.33.0"
"""The manifest that answers for an engine's command or log, when none is named."""


class Format(StrEnum):
    """Form of the output."""

    TABLE = "table"
    JSON = "json"


class FactsFrom(StrEnum):
    """Where facts about software come from."""

    PROBE = "probe"
    UNKNOWN = "unknown"


def complete_gpu(incomplete: str) -> list[str]:
    """Product names that begin so."""
    from selector.devices import architectures

    lowered = incomplete.lower()
    return [p for a in architectures() for p in a["products"] if p.lower().startswith(lowered)]


def complete_arch(incomplete: str) -> list[str]:
    """Compute capabilities, and the CPU."""
    from selector.devices import known_capabilities

    return [c for c in (*known_capabilities(), "cpu") if c.startswith(incomplete)]


def complete_model(incomplete: str) -> list[str]:
    """Models that ship with attnsel."""
    from selector.models import presets

    return [name for name in presets() if name.startswith(incomplete.lower())]


def complete_manifest(incomplete: str) -> list[str]:
    """Manifests that ship with attnsel."""
    from selector.resources import manifest_names

    return [name for name in manifest_names() if name.startswith(incomplete)]


def complete_setting(ctx: typer.Context, incomplete: str) -> list[str]:
    """Fields and facts of the manifest given so far, or of the shipped one."""
    from selector.binding import Selector
    from selector.errors import AttnselError

    try:
        stated = Selector.load(ctx.params.get("manifest")).manifest
    except (AttnselError, OSError):
        return []
    before, comma, last = incomplete.rpartition(",")
    names = [*stated.vocabulary.fields, *stated.facts]
    return [
        f"{before}{comma}{name}="
        for name in dict.fromkeys(names)
        if name.startswith(last) and name not in stated.derive
    ]


def complete_backend(ctx: typer.Context, incomplete: str) -> list[str]:
    """Entries of the manifest given so far, or of the shipped one."""
    from selector.binding import Selector
    from selector.errors import AttnselError

    try:
        selector = Selector.load(ctx.params.get("manifest"))
    except (AttnselError, OSError):
        return []
    return [name for name in selector.manifest.entries if name.startswith(incomplete)]


ManifestOption = Annotated[
    str | None,
    typer.Option(
        "--manifest",
        metavar="NAME|PATH",
        help="Name or path; default: the shipped one.",
        autocompletion=complete_manifest,
    ),
]
OverlayOption = Annotated[
    list[str] | None,
    typer.Option("--overlay", metavar="PATH", help="Local changes to the manifest. Repeatable."),
]
Arch = Annotated[
    str | None,
    typer.Option(
        metavar="ARCH",
        help="Device by architecture: sm120, 12.0, cpu.",
        autocompletion=complete_arch,
    ),
]
Gpu = Annotated[
    str | None,
    typer.Option(
        metavar="PRODUCT",
        help='Device by product: "RTX PRO 6000". Default: this machine\'s GPU.',
        autocompletion=complete_gpu,
    ),
]
ModelOption = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="PRESET|PATH",
        help="Preset, config.json or checkpoint folder whose layers to ask about.",
        autocompletion=complete_model,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="A field of the layer or a fact, such as tp=8 or flashinfer-python=0.7.4; "
        "none: not installed. Repeat, or separate by commas.",
        autocompletion=complete_setting,
    ),
]
FactsOption = Annotated[
    FactsFrom | None,
    typer.Option(
        "--facts",
        help="Facts about software: probe this machine, or leave them unknown. "
        "Default: unknown with --arch or --gpu, else probe.",
    ),
]
QueryLen = Annotated[
    int | None, typer.Option("--query-len", metavar="N", help="New tokens of the request.")
]
SeqLen = Annotated[
    int | None,
    typer.Option(
        "--seq-len", metavar="N", help="New plus cached tokens. Default: nothing is cached."
    ),
]
BackendName = Annotated[
    str | None,
    typer.Option(
        "--backend",
        metavar="NAME",
        help="Force this backend in the phases it serves: it runs, or the command says why it "
        "cannot.",
        autocompletion=complete_backend,
    ),
]
PrefillBackend = Annotated[
    str | None,
    typer.Option(
        "--prefill-backend",
        metavar="NAME",
        help="Force this backend for prefill only.",
        autocompletion=complete_backend,
    ),
]
DecodeBackend = Annotated[
    str | None,
    typer.Option(
        "--decode-backend",
        metavar="NAME",
        help="Force this backend for decode only.",
        autocompletion=complete_backend,
    ),
]
Deny = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Never this backend. Repeat, or separate by commas.",
        autocompletion=complete_backend,
    ),
]
AsClaimed = Annotated[
    bool,
    typer.Option("--as-claimed", help="Answer with what engines claim, not with what is true."),
]
ClosedWorld = Annotated[
    bool, typer.Option("--closed-world", help="Take software that is unknown as not installed.")
]
ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        help="Ask this server (`attnsel serve`); --manifest then names one that it serves. "
        "Default: its first.",
    ),
]
TimeoutOption = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help="Longest time for each answer of the server. Default: 5."),
]
TokenFileOption = Annotated[
    Path | None,
    typer.Option(metavar="PATH", help="Show the server the bearer token that this file holds."),
]
FallbackOption = Annotated[
    str | None,
    typer.Option(
        "--fallback",
        metavar="NAME|PATH",
        help="The manifest that answers here, and says so, if the server cannot.",
        autocompletion=complete_manifest,
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="Form of the output.")]
