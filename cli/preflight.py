"""``attnsel preflight``: will this serve command start, with which backends, and if not, why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cli.asking import UsageError, device_here, named_device
from cli.exits import Exit
from cli.options import (
    ENGINE,
    Arch,
    Format,
    FormatOption,
    Gpu,
    ModelOption,
    complete_manifest,
    complete_model,
)
from selector.errors import AttnselError, UnknownModelError

if TYPE_CHECKING:
    from selector.serving.commands import Command
    from selector.serving.preflight.answer import Preflight
    from selector.values import Model

__all__ = ["preflight"]

_LONGEST = 1 << 22


def preflight(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND…", help="A serve command; several, with -- between."),
    ] = None,
    manifest: Annotated[
        str,
        typer.Option(
            metavar="NAME|PATH",
            help="The engine's manifest.",
            autocompletion=complete_manifest,
        ),
    ] = ENGINE,
    arch: Arch = None,
    gpu: Gpu = None,
    model: ModelOption = None,
    drafter: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|PRESET",
            help="The drafter of the speculative config, where its name is no folder here.",
            autocompletion=complete_model,
        ),
    ] = None,
    file: Annotated[
        str | None, typer.Option(metavar="FILE", help="Serve commands, one a line; - for stdin.")
    ] = None,
    container: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A container, pod or deployment, as JSON or YAML."),
    ] = None,
    only_print: Annotated[
        bool,
        typer.Option("--print", help="Print the command, mended where it would not start."),
    ] = False,
    form: FormatOption = Format.TABLE,
) -> None:
    """Say whether a vLLM serve command will start, which backends it gets, and what to change.

    Example: attnsel preflight --gpu A100 -- vllm serve openai/gpt-oss-120b --kv-cache-dtype fp8
    """
    from selector.serving.preflight.answer import Engine
    from selector.serving.preflight.answer import preflight as look_ahead

    if only_print and form is Format.JSON:
        raise UsageError("--print and --format json do not go together: the JSON has the command")
    device = named_device(arch, gpu) or device_here("--arch 12.0")
    commands = [*_read_words(command or []), *_read_file(file), *_read_container(container)]
    if not commands:
        raise UsageError("say which command: -- vllm serve MODEL …, --file FILE, --container FILE")
    if drafter is not None and all(one.speculative is None for _, one in commands):
        raise UsageError("--drafter goes with a speculative config, and no command has one")
    engine = Engine.load(manifest)
    models = _Models(model, drafter)
    found = []
    for where, one in commands:
        try:
            target = models.target(one)
        except AttnselError as error:
            raise UnknownModelError(f"{where}{error}") from None
        found.append(look_ahead(one, target, device, engine, *models.draft(one)))
    _show(found, form, only_print)
    if not all(one.will_start for one in found):
        raise typer.Exit(Exit.NO_BACKEND)


def _show(found: Sequence[Preflight], form: Format, only_print: bool) -> None:
    from cli.terminal import places, show, show_json
    from selector.report.preflight import preflight_json, preflight_lines
    from selector.report.text import BLANK, GLUE, faint, line

    if only_print:
        show([line(one.line.replace(" ", GLUE)) for one in found])
    elif form is Format.JSON:
        show_json(preflight_json(found))
    else:
        where = places(found[0].engine.truth.manifest.ref.file)
        for number, one in enumerate(found, 1):
            if len(found) > 1:
                gap = [BLANK] if number > 1 else []
                show([*gap, line(faint(f"{number} of {len(found)}  {one.line_read}"), hang=4)])
            show(preflight_lines(one, where))


# -- commands ------------------------------------------------------------------------------------


def _read_words(words: Sequence[str]) -> Iterator[tuple[str, Command]]:
    """Yields the commands on the command line, and what to put before an error of theirs."""
    from selector.serving.commands import read_command
    from selector.serving.commands.several import split_words

    for variables, argv in split_words(words):
        yield "", _with_config(read_command(argv, variables))


def _with_config(command: Command) -> Command:
    """The command with the config file that it names, where that is here."""
    from selector.serving.commands.configfile import read_config_file

    name = command.config_file
    if name is None:
        return command
    try:
        data = _bytes(name)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or type(error).__name__
        return _unread(command, f"{why.lower()}; put it there, or give its flags in the command")
    return command.with_config(read_config_file(data, name))


def _unread(command: Command, why: str) -> Command:
    """The command with the reason why its config file is not read."""
    import msgspec

    from selector.fields import one_line

    text = f"{one_line(command.config_file)} is not read: {why}"
    notes = [
        msgspec.structs.replace(n, text=text)
        if (n.kind, n.flag) == ("unmodelled", "--config")
        else n
        for n in command.notes
    ]
    return msgspec.structs.replace(command, notes=tuple(notes))


def _read_file(name: str | None) -> Iterator[tuple[str, Command]]:
    """Yields the commands of a file, one a line."""
    if name is None:
        return
    from selector.serving.commands import CommandError, read_command, split_line
    from selector.serving.commands.several import split_file

    where = f"{_shown(name)}: "
    try:
        for number, text in split_file(_text(name)):
            where = f"{_shown(name)}:{number}: "
            variables, argv = split_line(text)
            yield where, _with_config(read_command(argv, variables))
    except CommandError as error:
        raise CommandError(f"{where}{error}") from None


def _read_container(name: str | None) -> Iterable[tuple[str, Command]]:
    if name is None:
        return []
    from selector.serving.commands import CommandError, read_container

    where = f"{_shown(name)}: "
    try:
        found = [_without_secrets(one) for one in read_container(_text(name))]
    except CommandError as error:
        raise CommandError(f"{where}{error}") from None
    inside = "it is inside the container; give its flags as arguments"
    return [(where, _unread(one, inside)) for one in found]


def _without_secrets(command: Command) -> Command:
    """The command with the engine's own variables only: a container holds tokens too."""
    import msgspec

    kept = {n: v for n, v in command.variables.items() if n.startswith("VLLM_")}
    return msgspec.structs.replace(command, variables=kept)


def _shown(name: str) -> str:
    return "stdin" if name == "-" else name


def _text(name: str) -> str:
    import sys

    data = sys.stdin.buffer.read(_LONGEST + 1) if name == "-" else _bytes(name)
    if len(data) > _LONGEST:
        raise UsageError(f"{_shown(name)}: longer than {_LONGEST:,} bytes; split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{_shown(name)}: not UTF-8 text at byte {error.start:,}") from None


def _bytes(name: str) -> bytes:
    """What a file holds, as far as one may be long."""
    with open(name, "rb") as stream:
        return stream.read(_LONGEST + 1)


# -- models --------------------------------------------------------------------------------------


class _Models:
    """Models that commands name, each read once.

    Args:
        reference: the model to take in place of what the commands name.
        drafter: the same for their drafters.
    """

    def __init__(self, reference: str | None, drafter: str | None) -> None:
        self._reference = reference
        self._drafter = drafter
        self._read: dict[tuple[str, str], Model] = {}

    def target(self, command: Command) -> Model:
        """The target.

        Raises:
            AttnselError: it cannot be found or read.
        """
        overrides = command.hf_overrides or {}
        reference = self._target(command)
        try:
            return self._load(reference, overrides)
        except AttnselError as error:
            if not overrides:
                raise
            raise UnknownModelError(f"with --hf-overrides, {error}") from None

    def draft(self, command: Command) -> tuple[Model | None, str]:
        """The drafter's own model, where it is here, else why it is not."""
        said: Mapping[str, object] = command.speculative or {}
        name = said.get("model")
        if self._drafter is None and not (isinstance(name, str) and name):
            if "mtp" in str(said.get("method")) and command.hf_overrides:
                return self._load(self._target(command)), ""  # they reach the target alone
            return None, ""
        try:
            return self._load(self._drafter or self._find(str(name), "--drafter")), ""
        except (AttnselError, OSError) as error:
            if self._drafter is not None:
                raise
            return None, str(error)

    def _target(self, command: Command) -> str:
        """What to load for the target."""
        if self._reference is not None:
            return self._reference
        if command.model is None:
            raise UnknownModelError("no model is named; give its config with --model PATH|PRESET")
        return self._find(command.model, "--model")

    def _find(self, name: str, option: str) -> str:
        """A folder or file, else a preset by the last part of the name."""
        from pathlib import Path

        from selector.fields import close_matches, one_line
        from selector.models import presets

        last = name.rstrip("/").rsplit("/", 1)[-1].lower()
        try:
            here = Path(name).exists()
        except (OSError, ValueError):
            here = False
        if here:
            return f"./{name}" if name.lower() in presets() else name
        if last in presets():
            return last
        near = close_matches(last, presets(), 0.6)
        hint = f", such as {option} {near[0]}" if near else ""
        raise UnknownModelError(
            f'no folder, config.json or preset "{one_line(name)}"; give its config with '
            f"{option} PATH|PRESET{hint}"
        )

    def _load(self, reference: str, overrides: Mapping[str, object] | None = None) -> Model:
        import json

        from selector.models import load_model

        key = reference, json.dumps(overrides or {})
        if key not in self._read:
            self._read[key] = load_model(reference, overrides)
        return self._read[key]
