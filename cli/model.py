"""``attnsel model``: what was read from a config, and from where each value came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import Format, FormatOption, complete_model

if TYPE_CHECKING:
    from selector.values import Model

__all__ = ["model"]


def model(
    reference: Annotated[
        str | None,
        typer.Argument(
            metavar="CONFIG|PRESET|DIR|-",
            help="A config.json, a checkpoint folder, a preset, or - for standard input.",
            autocompletion=complete_model,
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--list", help="Show the presets and their pages.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="FIELD=VALUE",
            help="A field of every layer, such as tp=8 or kv_cache_dtype=fp8. "
            "Repeat, or separate by commas.",
        ),
    ] = None,
    form: FormatOption = Format.TABLE,
) -> None:
    """Show the attention layers of a model, and where each value came from.

    Example: attnsel model gemma-3-27b --set tp=4
    """
    from cli.terminal import show, show_json
    from selector.report import model as report

    if every:
        found = _presets(reference)
        if form is Format.JSON:
            show_json(report.models_json(found))
        else:
            show(report.models_lines(found))
        return
    read = _read(reference, settings or [])
    if form is Format.JSON:
        show_json(report.model_json(read))
    else:
        show(report.model_lines(read))


def _presets(wanted: str | None) -> list[Model]:
    """The presets, or those with this word in their name."""
    from selector.models import load_model, presets

    word = (wanted or "").lower()
    return [load_model(name) for name in presets() if word in name]


def _read(reference: str | None, settings: list[str]) -> Model:
    from cli.asking import read_settings
    from selector.binding import Selector
    from selector.errors import ContradictionError, UnknownModelError
    from selector.models import load_model, override

    if reference is None:
        raise UnknownModelError(
            "say which model: a config.json, a checkpoint folder, a preset or -; "
            "`attnsel model --list` shows the presets"
        )
    whole = load_model(reference)
    if not settings:
        return whole
    said = read_settings(Selector.load().manifest, settings)
    if said.facts:
        raise ContradictionError(
            f"{next(iter(said.facts))} is a fact about software, not a field of a layer"
        )
    return override(whole, said.fields)
