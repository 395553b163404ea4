"""Where a serve command begins, behind the programs that start it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from selector.fields import one_line
from selector.serving.commands.errors import CommandError
from selector.serving.commands.flags import normalise, table

__all__ = ["Launch", "find_serve", "looks_bare"]

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
_PYTHON = re.compile(r"python(3(\.[0-9]+)?)?")
_SERVER = ("vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server")
_MAIN = ("vllm.entrypoints.cli.main", "vllm")
_SHELLS = {"sh", "bash", "dash", "zsh", "ash"}
_CONTAINERS = {"docker", "podman", "nerdctl"}
_WRAPPERS: Mapping[str, str] = {  # their options that take a word
    "env": "-u --unset -C --chdir -S",
    "exec": "-a",
    "nohup": "",
    "time": "-f -o",
    "setsid": "",
    "sudo": "-u -g -h -p -C -r -t -U -T --user --group",
    "nice": "-n --adjustment",
    "ionice": "-c -n -p",
    "timeout": "-s -k --signal --kill-after",
    "stdbuf": "-i -o -e",
    "numactl": "-N -m -C -i -l --cpunodebind --membind --physcpubind --interleave",
    "taskset": "-c --cpu-list",
    "uv": "--with --python -p --directory --project --extra --group --env-file --index-url",
    "uvx": "--with --python -p --from --index-url",
    "poetry": "-C --directory",
    "pipenv": "",
    "pixi": "-e --environment",
    "conda": "-n -p --name --prefix --cwd",
    "mamba": "-n -p --name --prefix",
    "micromamba": "-n -p --name --prefix",
    "tini": "-p -e",
    "dumb-init": "-r",
    "catchsegv": "",
}
_PLAIN_WORDS = {
    "uv": 1,
    "poetry": 1,
    "pipenv": 1,
    "pixi": 1,
    "conda": 1,
    "mamba": 1,
    "micromamba": 1,
    "timeout": 1,
    "taskset": 1,
}
"""Words that a wrapper has before the command: ``run`` of ``uv run``, the time of ``timeout``."""

_DOCKER_SWITCHES = {
    "--detach",
    "--disable-content-trust",
    "--init",
    "--interactive",
    "--no-healthcheck",
    "--oom-kill-disable",
    "--privileged",
    "--publish-all",
    "--quiet",
    "--read-only",
    "--replace",
    "--rm",
    "--sig-proxy",
    "--tty",
}
_DOCKER_LETTERS = frozenset("ditPq")
_DEEPEST = 8


class Launch(NamedTuple):
    """Where the arguments of a server begin.

    Attributes:
        start: the position of the first argument; ``None`` when ``shell`` holds the command.
        serve: the model may stand without a flag, as behind ``vllm serve``.
        variables: those set on the way: ``env A=b``, ``docker run -e A=b``.
        bare: only arguments were given, as to the official image.
        shell: the text of ``sh -c TEXT``.
        old: it is the module that vLLM calls deprecated.
    """

    start: int
    serve: bool
    variables: Mapping[str, str]
    bare: bool = False
    shell: str | None = None
    old: bool = False


def looks_bare(argv: Sequence[str], *, anywhere: bool = False) -> bool:
    """Whether words can be the arguments of the official image, without a program.

    They begin with a flag of vLLM, or with ``owner/model`` and then one; ``anywhere`` asks for one
    that touches attention, or ``--model``, at any place.
    """
    if anywhere:
        return any(_is_flag(word, telling=True) for word in argv)
    if not argv or _is_flag(argv[0]):
        return bool(argv)
    named = re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", argv[0]) is not None
    return named and len(argv) > 1 and _is_flag(argv[1])


def _is_flag(word: str, *, telling: bool = False) -> bool:
    known = table().options.get(normalise(word.partition("=")[0]).partition(".")[0])
    if known is None:
        return False
    return not telling or known.flag.kind == "flag" or known.flag.name == "--model"


def find_serve(argv: Sequence[str]) -> Launch | None:
    """Where the arguments of a serve command begin; ``None`` when it is none.

    Raises:
        CommandError: it is a command of vLLM, but not one that serves.
    """
    return _find(argv, 0, {}, _DEEPEST)


def _find(argv: Sequence[str], at: int, variables: dict[str, str], depth: int) -> Launch | None:
    if at >= len(argv) or not depth:
        return None
    program = argv[at].rsplit("/", 1)[-1]
    if program == "vllm":
        return _after_vllm(argv, at + 1, variables)
    if _PYTHON.fullmatch(program):
        return _after_python(argv, at + 1, variables)
    if program in _SHELLS:
        return _after_shell(argv, at + 1, variables)
    if program in _CONTAINERS:
        return _after_container(argv, at + 1, variables, depth)
    if program in _WRAPPERS:
        return _find(argv, _skip_wrapper(argv, at, program, variables), variables, depth - 1)
    return None


def _skip_wrapper(argv: Sequence[str], at: int, program: str, variables: dict[str, str]) -> int:
    """The position of the command that a wrapper starts."""
    with_word = set(_WRAPPERS[program].split())
    plain = _PLAIN_WORDS.get(program, 0)
    if program == "taskset" and any(word in with_word for word in argv[at + 1 : at + 3]):
        plain = 0
    at += 1
    while at < len(argv):
        word = argv[at]
        found = _ASSIGNMENT.fullmatch(word)
        if word == "--" or (word.startswith("-") and word not in with_word):
            at += 1
        elif word in with_word:
            at += 2
        elif found and program in ("env", "sudo"):
            variables[found[1]] = found[2]
            at += 1
        elif plain:
            plain -= 1
            at += 1
        else:
            break
    return at


def _after_vllm(argv: Sequence[str], at: int, variables: Mapping[str, str]) -> Launch | None:
    if argv[at : at + 1] == ["serve"]:
        return Launch(at + 1, True, variables)
    said = f"vllm {one_line(argv[at])}" if at < len(argv) else "vllm"
    raise CommandError(f"{said} is no serve command; write vllm serve MODEL")


def _after_python(argv: Sequence[str], at: int, variables: Mapping[str, str]) -> Launch | None:
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-m":
        at += 2 if argv[at] in ("-X", "-W") else 1
    if argv[at : at + 1] == ["-m"]:
        module = argv[at + 1] if at + 1 < len(argv) else ""
        if module in _MAIN:
            return _after_vllm(argv, at + 2, variables)
        return Launch(at + 2, False, variables, old=True) if module in _SERVER else None
    script = argv[at] if at < len(argv) else ""
    if script.rsplit("/", 1)[-1] == "vllm":
        return _after_vllm(argv, at + 1, variables)
    if script.endswith("vllm/entrypoints/openai/api_server.py"):
        return Launch(at + 1, False, variables, old=True)
    return None


def _after_shell(argv: Sequence[str], at: int, variables: Mapping[str, str]) -> Launch | None:
    while at < len(argv) and argv[at].startswith("-"):
        if re.fullmatch(r"-[a-z]*c", argv[at]):
            if at + 1 < len(argv):
                return Launch(at + 1, True, variables, shell=argv[at + 1])
            raise CommandError(f"{argv[at]} of a shell has no command after it")
        at += 2 if argv[at] == "-o" else 1
    return None


def _after_container(
    argv: Sequence[str], at: int, variables: dict[str, str], depth: int
) -> Launch | None:
    """Behind ``docker run``: its variables, the image, and what the image is given."""
    while at < len(argv) and argv[at] != "run":  # docker --context X container run
        at += 1
    at += 1
    entry: str | None = None
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "-":
        name, equals, value = argv[at].partition("=")
        letters = set(name[1:])
        if name in _DOCKER_SWITCHES or (not name.startswith("--") and letters <= _DOCKER_LETTERS):
            at += 1
            continue
        if name.startswith("-e") and len(name) > 2:  # -eVAR=value
            name, value, equals = "-e", argv[at][2:], "="
        if not equals:
            at += 1
            value = argv[at] if at < len(argv) else ""
        if name in ("-e", "--env") and (found := _ASSIGNMENT.fullmatch(value)):
            variables[found[1]] = found[2]
        elif name == "--entrypoint":
            entry = value
        at += 1
    start = at + 1  # behind the image
    if at >= len(argv):
        return None
    if entry:
        return _entered(argv, start, entry, variables, depth)
    found_inside = _find(argv, start, variables, depth - 1)
    if found_inside is not None:
        return found_inside
    if "vllm" not in argv[at]:
        return None
    return Launch(start, True, variables, bare=True)


def _entered(
    argv: Sequence[str], start: int, entry: str, variables: dict[str, str], depth: int
) -> Launch | None:
    """What an entry point makes of the words behind the image."""
    padded = [entry if index == start - 1 else word for index, word in enumerate(argv)]
    return _find(padded, start - 1, variables, depth - 1)
