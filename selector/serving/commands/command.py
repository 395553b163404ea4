"""A vLLM serve command: read into settings, without running anything."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from selector.fields import one_line
from selector.serving.commands.configfile import FileFlags, named_file, overrule, scan_config
from selector.serving.commands.editing import without_key
from selector.serving.commands.errors import CommandError
from selector.serving.commands.launch import Launch, find_serve, looks_bare
from selector.serving.commands.scanning import Scan, scan
from selector.serving.commands.settling import Settled, settle
from selector.serving.commands.shell import split_line
from selector.serving.commands.values import Note, Setting

__all__ = ["Command", "quoted", "read_command"]

_MOST_WORDS = 20_000
_LONGEST = 1 << 22
_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Command(msgspec.Struct, frozen=True):
    """A serve command, as its engine would read it.

    Attributes:
        engine: ``vllm``.
        model: a name or a folder; ``None`` when none is named.
        settings: what it sets, each field once, in the order of the table of flags; what nobody
            said is not there.
        speculative: the drafter's config, keys merged from wherever they stand.
        hf_overrides: keys that replace those of the ``config.json``.
        notes: what an operator should know of it, in the order of the line.
        argv: the words; of ``sh -c TEXT`` those inside.
        variables: the variables it runs with, those on the line included.
        start: the position of the server's first argument.
        config_file: the file that ``--config`` names.
        config: what it holds; ``None`` when it was not read.
    """

    engine: Literal["vllm"]
    model: str | None
    settings: tuple[Setting, ...]
    speculative: Mapping[str, Any] | None
    hf_overrides: Mapping[str, Any] | None
    notes: tuple[Note, ...]
    argv: tuple[str, ...]
    variables: Mapping[str, str] = _NOTHING
    start: int = 0
    config_file: str | None = None
    config: Mapping[str, Any] | None = None

    def setting(self, field: str) -> Setting | None:
        """The setting of a field; ``None`` when the command does not set it."""
        return next((s for s in self.settings if s.field == field), None)

    def with_setting(self, field: str, value: Any) -> list[str]:
        """The words with one field set, in place or at the end; all others as they were.

        Args:
            field: the field.
            value: as a setting holds it; ``None`` takes the flag away.

        Raises:
            CommandError: no flag sets the field, or not to that value.
        """
        flags = _file_flags(self.config, self.config_file)
        return overrule(self.argv, self.start, flags.given, field, value)

    def without_key(self, name: str) -> Command:
        """The command read again without a key, spelled ``--flag.key``, wherever it stands.

        Raises:
            CommandError: what is left cannot be read.
        """
        return self.again(without_key(self.argv, self.start, name))

    def again(self, argv: Sequence[str], variables: Mapping[str, str] | None = None) -> Command:
        """Other words in its place, with the same config file.

        Raises:
            CommandError: they cannot be read.
        """
        known = self.variables if variables is None else variables
        return read_command(argv, known, config=self.config, bare=self.start == 0)

    def with_config(self, config: Mapping[str, Any]) -> Command:
        """The same, with what its config file holds.

        Raises:
            CommandError: a value in it is not of its flag's type.
        """
        return read_command(self.argv, self.variables, config=config, bare=self.start == 0)


def quoted(argv: Sequence[str]) -> str:
    """Words as a line for a shell."""
    return shlex.join(argv)


def read_command(
    argv: Sequence[str],
    variables: Mapping[str, str] = _NOTHING,
    *,
    config: Mapping[str, Any] | None = None,
    bare: bool | None = None,
) -> Command:
    """Reads the words of a serve command.

    Args:
        argv: the words, as a shell would hand them over.
        variables: the environment it would run in; only those of vLLM matter.
        config: what the file named by ``--config`` holds, if the caller read it.
        bare: whether words that start no program are arguments of the official image; ``None``:
            when they begin with a flag, or with ``owner/model`` and a flag.

    Raises:
        CommandError: it is no serve command, or a value is missing or not of its flag's type.
    """
    words = [str(word) for word in argv]
    if len(words) > _MOST_WORDS or sum(map(len, words)) > _LONGEST:
        raise CommandError(f"{len(words):,} words are too many, or too long, for a command")
    launch = find_serve(words)
    if launch is None and words and (looks_bare(words) if bare is None else bare):
        launch = Launch(0, True, {}, bare=True)
    if launch is None:
        shown = one_line(" ".join(words[:8])) or "nothing"
        raise CommandError(
            f'"{shown}" is no serve command; write vllm serve MODEL and its flags, or '
            "python -m vllm.entrypoints.openai.api_server --model MODEL"
        )
    known = {**variables, **launch.variables}
    if launch.shell is not None:
        return _read_inner(launch.shell, known, config)
    scanned = scan(words, launch.start)
    file, notes = named_file(scanned.given)
    flags = _file_flags(config, file)
    settled = settle(flags.given, scanned, known)
    notes += [*settled.notes, *flags.notes]
    model = _model(launch, scanned, settled, flags.model, notes)
    if config is None and file is not None:
        text = f"{one_line(file)} is not read; give its flags in the command"
        notes.append(Note("unmodelled", "--config", text))
    elif model is None:
        notes.append(Note("unmodelled", "model", "no model is named; vLLM would serve its default"))
    return Command(
        "vllm",
        model,
        settled.settings,
        settled.speculative,
        settled.hf_overrides,
        tuple(sorted(notes, key=lambda note: (note.position < 0, note.position))),
        tuple(words),
        MappingProxyType(known),
        launch.start,
        file,
        config if file is not None else None,
    )


def _file_flags(config: Mapping[str, Any] | None, file: str | None) -> FileFlags:
    return scan_config(config, file) if config and file else FileFlags()


def _read_inner(
    text: str, variables: Mapping[str, str], config: Mapping[str, Any] | None
) -> Command:
    """Reads the text of ``sh -c``; one inside another is too much."""
    inner, argv = split_line(text)
    launch = find_serve(argv)
    if launch is not None and launch.shell is not None:
        raise CommandError(f'"{one_line(text)}" starts another shell; write the command itself')
    return read_command(argv, {**variables, **inner}, config=config, bare=False)


def _model(
    launch: Launch, scanned: Scan, settled: Settled, file_model: str | None, notes: list[Note]
) -> str | None:
    """The model; words that are nothing else are noted."""
    words = list(scanned.words)
    model = settled.model or file_model
    if launch.serve and not launch.bare and settled.model is not None:
        notes.append(
            Note(
                "deprecated",
                "--model",
                "behind vllm serve the model stands first, without a flag",
                settled.model_position,
            )
        )
    if launch.old:
        notes.append(
            Note("deprecated", "api_server", "this module goes; write vllm serve MODEL", 0)
        )
    if launch.serve and words and settled.model is None:
        model = words.pop(0)[1]
    sure = settled.model is None and not scanned.unknown  # else it may be the word of another
    for position, word in words:
        text = f'"{one_line(word)}" belongs to no flag'
        note = Note("unknown", one_line(word), f"{text}; vLLM refuses or ignores it", position)
        if sure:
            note = Note("contradiction", one_line(word), f"{text}; vLLM refuses it", position)
        notes.append(note)
    if model is None and scanned.unknown and launch.serve:
        raise CommandError(
            f"no model is named, unless {one_line(scanned.unknown[0][1])}, which is unknown, takes "
            "no value; write vllm serve MODEL and then its flags"
        )
    return model
