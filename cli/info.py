"""``attnsel info``: what a bug report needs."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import Format, FormatOption, ManifestOption

__all__ = ["info"]


def info(
    manifest: ManifestOption = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="List every product that is known.")] = False,
    fields: Annotated[
        bool, typer.Option("--fields", help="List every field and fact that can be set.")
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show versions, device and facts: what a bug report needs.

    Example: attnsel info --gpus
    """
    from cli.terminal import places, show, show_json
    from selector.report.machine import (
        Machine,
        field_lines,
        fields_json,
        gpu_lines,
        gpus_json,
        machine_json,
        machine_lines,
        versions,
    )

    if gpus and fields:
        raise typer.BadParameter("--gpus and --fields each print a list; give one of them")
    if gpus:
        if form is Format.JSON:
            show_json(gpus_json())
        else:
            show(gpu_lines())
        return
    from selector.binding import Selector

    stated = Selector.load(manifest).manifest
    if fields:
        if form is Format.JSON:
            show_json(fields_json(stated))
        else:
            show(field_lines(stated))
        return
    from backends.probe import probe_device, probe_facts

    machine = Machine(versions(), probe_device(), probe_facts(), stated.ref)
    if form is Format.JSON:
        show_json(machine_json(machine))
    else:
        show(machine_lines(machine, places(stated.ref.file)))
