"""``attnsel info``: what a bug report needs."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import Format, FormatOption, ManifestOption

__all__ = ["info"]


def info(
    manifest: ManifestOption = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="List every product that is known.")] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show versions, device and facts: what a bug report needs.

    Example: attnsel info --gpus
    """
    from cli.terminal import places, show, show_json
    from selector.report.machine import (
        Machine,
        gpu_lines,
        gpus_json,
        machine_json,
        machine_lines,
        versions,
    )

    if gpus:
        if form is Format.JSON:
            show_json(gpus_json())
        else:
            show(gpu_lines())
        return
    from backends.probe import probe_device, probe_facts
    from selector.binding import Selector

    ref = Selector.load(manifest).manifest.ref
    machine = Machine(versions(), probe_device(), probe_facts(), ref)
    if form is Format.JSON:
        show_json(machine_json(machine))
    else:
        show(machine_lines(machine, places(ref.file)))
