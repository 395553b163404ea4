"""The serve commands of a Kubernetes container, pod or deployment, as JSON or YAML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from selector.fields import one_line
from selector.serving.commands.command import Command, read_command
from selector.serving.commands.errors import CommandError
from selector.serving.commands.flags import table
from selector.serving.commands.launch import looks_bare
from selector.serving.commands.values import Note

__all__ = ["read_container"]

_LONGEST = 1 << 20
_MOST_NODES = 100_000
_DEEPEST = 60


def read_container(text: str) -> list[Command]:
    """Reads every container of a document, or documents, that serves a model.

    A container is a mapping with ``command`` or ``args``; it may stand anywhere in what surrounds
    it (``spec.template.spec.containers``), or alone. Its ``env`` gives the variables; those of the
    engine that it takes from elsewhere are noted. One without a command is the official image when
    its name or its flags say so.

    Args:
        text: JSON or YAML of at most 1 MiB.

    Raises:
        CommandError: it is neither, too large, or none of its containers serves.
    """
    if len(text.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise CommandError(f"a container of {len(text):,} characters is too long; most are 1 MiB")
    commands: list[Command] = []
    trouble: CommandError | None = None
    for container in _containers(_documents(text)):
        try:
            commands.append(_read(container))
        except CommandError as error:  # a sidecar beside it
            trouble = trouble or error
    if commands:
        return commands
    raise trouble or CommandError("no container with command or args; give one, or a pod around it")


def _documents(text: str) -> list[Any]:
    import yaml  # JSON is YAML too; only this needs it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for nodes, event in enumerate(yaml.parse(text, Loader=loader)):
            name = type(event).__name__
            depth += name.endswith(("MappingStartEvent", "SequenceStartEvent"))
            depth -= name.endswith(("MappingEndEvent", "SequenceEndEvent"))
            if depth > _DEEPEST or nodes > _MOST_NODES:
                raise CommandError("the document is too deep or has too many parts")
            if name == "AliasEvent":
                raise CommandError("the document has aliases (*name); write them out")
        return list(yaml.safe_load_all(text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = one_line(error.problem or "it cannot be read")
        raise CommandError(f"{where}neither JSON nor YAML: {problem}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        if isinstance(error, CommandError):
            raise
        raise CommandError(f"neither JSON nor YAML: {one_line(error)}") from None


def _containers(documents: list[Any]) -> Iterator[Mapping[str, Any]]:
    """Every mapping that has a command or arguments, from the outside in."""
    waiting = list(reversed(documents))
    while waiting:
        node = waiting.pop()
        if isinstance(node, Mapping):
            if isinstance(node.get("command"), list | str) or isinstance(
                node.get("args"), list | str
            ):
                yield node
                continue
            waiting.extend(reversed(list(node.values())))
        elif isinstance(node, list):
            if node and all(isinstance(item, str) for item in node) and node in documents:
                yield {"args": node}  # args alone
                continue
            waiting.extend(reversed(node))


def _read(container: Mapping[str, Any]) -> Command:
    command = [*_words(container, "entrypoint"), *_words(container, "command")]
    args, image = _words(container, "args"), str(container.get("image", ""))
    variables = _variables(container.get("env") or container.get("environment"))
    for name, value in variables.items():
        command = [word.replace(f"$({name})", value) for word in command]
        args = [word.replace(f"$({name})", value) for word in args]
    words = [*command, *args]
    bare = not command or command[0].startswith("-")
    if bare and "vllm" not in image:
        bare = "sglang" not in image and looks_bare(words, anywhere=True)
    read = read_command(words, variables, bare=bare)
    return msgspec.structs.replace(read, notes=(*read.notes, *_unread(container)))


def _unread(container: Mapping[str, Any]) -> Iterator[Note]:
    """Yields a note of each variable that touches attention, or may, and is not written here."""
    env = container.get("env")
    for item in env if isinstance(env, list) else []:
        name = item.get("name") if isinstance(item, Mapping) and "valueFrom" in item else None
        if isinstance(name, str) and name in table().variables:
            text = f"variable {name} has its value from elsewhere, which is not read; write it out"
            yield Note("unmodelled", name, text)
    for key in ("envFrom", "env_file"):
        if container.get(key):
            text = f"{key} gives more variables, which are not read; write those of vLLM in env"
            yield Note("unmodelled", key, text)


def _words(container: Mapping[str, Any], key: str) -> list[str]:
    held = container.get(key)
    if held is None:
        return []
    if isinstance(held, str):
        from selector.serving.commands.shell import split_line

        variables, words = split_line(held)
        return ["env", *(f"{k}={v}" for k, v in variables.items()), *words] if variables else words
    if not isinstance(held, list):
        raise CommandError(f"{key}: {one_line(held)} is neither text nor a list of words")
    for word in held:
        if not isinstance(word, str | int | float) or isinstance(word, bool):
            raise CommandError(
                f"{key}: {one_line(word)} is no text; every word of a container is one, so quote it"
            )
    return [str(word) for word in held]


def _variables(env: Any) -> dict[str, str]:
    """Names and values; those that come from elsewhere (``valueFrom``) are not known."""
    if isinstance(env, Mapping):  # docker compose
        return {str(k): str(v) for k, v in env.items() if v is not None}
    variables: dict[str, str] = {}
    for item in env if isinstance(env, list) else []:
        if isinstance(item, Mapping) and "name" in item and item.get("value") is not None:
            variables[str(item["name"])] = str(item["value"])
        elif isinstance(item, str) and "=" in item:
            name, _, value = item.partition("=")
            variables[name] = value
    return variables
