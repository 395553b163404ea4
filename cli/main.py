"""``attnsel``: the commands, and one way to fail."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Any

import typer

from cli.batch import batch
from cli.bench import bench
from cli.certify import certify
from cli.diff import diff
from cli.drift import drift
from cli.exits import Exit
from cli.explain import explain
from cli.extract import extract
from cli.hints import hint
from cli.info import info
from cli.inspect import inspect
from cli.lint import lint
from cli.model import model
from cli.preflight import preflight
from cli.resolve import resolve
from cli.rule import rule
from cli.serve import serve
from cli.tune import tune
from cli.verify import verify

__all__ = ["app", "main"]


_EPILOG = """\b
Exit codes: 0 fine, 1 findings, 2 wrong use or unreadable input,
3 no backend, 4 manifests differ.

\b
Example:
  attnsel resolve --gpu "RTX PRO 6000" --model glm-5.2-fp8 --set tp=8 --query-len 3300
"""

app = typer.Typer(
    name="attnsel",
    help="Which attention kernel runs prefill and which runs decode, and why not the others.",
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

_COMMANDS: dict[Callable[..., None], str] = {
    resolve: "Say which backends run a layer, and why not the others.",
    explain: "Say why not, and the smallest change that would help.",
    inspect: "Show all backends, one backend, or a support matrix.",
    lint: "Check manifests and show what to correct.",
    rule: "Say what a rule of lint means.",
    verify: "Prove what a manifest promises, or show a question that breaks it.",
    diff: "Say for which questions two manifests decide differently.",
    drift: "Compare a manifest with an engine's code, which is not imported.",
    extract: "Draft a manifest from an engine's code, which is not imported.",
    model: "Show what was read from a model's config, and from where.",
    batch: "Answer every row of a JSONL or Parquet file.",
    preflight: "Say whether a vLLM serve command will start, and what to change.",
    certify: "Run what a manifest claims on this machine, and write evidence.",
    bench: "Time every backend that accepts a shape, on this machine.",
    tune: "Derive priority lists from timings, and say what each choice costs.",
    serve: "Serve manifests over HTTP, with a page for people.",
    info: "Show versions, device and facts: what a bug report needs.",
}


def _until_nobody_reads(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which ends quietly when whoever reads its output has seen enough."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            try:
                command(*arguments, **options)
            finally:
                sys.stdout.flush()
        except BrokenPipeError:
            # Python must not complain either, when it flushes at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(Exit.BROKEN_PIPE) from None

    return run


for _command, _summary in _COMMANDS.items():
    app.command(short_help=_summary)(_until_nobody_reads(_command))


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"attnsel {version('attnsel')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Which attention kernel runs prefill and which runs decode, and why not the others."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and gives the exit code; errors are one line on stderr."""
    for name in ("stdout", "stderr"):  # closed by whoever started us
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open until the end)
    try:
        result = app(arguments, prog_name="attnsel", standalone_mode=False)
    except KeyboardInterrupt:
        return Exit.INTERRUPTED
    except Exception as error:
        return _fail(error)
    return result if isinstance(result, int) else Exit.FINE


def _fail(error: Exception) -> int:
    """Says what is wrong on one line of stderr, and gives the exit code."""
    from cli.terminal import complain
    from selector.errors import AttnselError, os_words

    if isinstance(error, typer.Abort):
        return Exit.INTERRUPTED
    if isinstance(error, AttnselError):
        complain(_with_all_findings(error) + _advice(error))
        return Exit.USAGE
    if isinstance(error, OSError):
        complain(os_words(error))
        return Exit.USAGE
    if (words := _usage_words(error)) is not None:
        complain(words)
        return Exit.USAGE
    if os.environ.get("ATTNSEL_TRACEBACK"):
        raise error
    complain(
        f"{type(error).__name__}: {error}; this is a bug in attnsel: "
        "set ATTNSEL_TRACEBACK=1 to see where, and report it with `attnsel info`"
    )
    return Exit.BUG


def _with_all_findings(error: Exception) -> str:
    findings: Sequence[Any] = getattr(error, "findings", ())
    if len(findings) < 2:
        return str(error)
    return f"{findings[0]} (and {len(findings) - 1} more; run `attnsel lint {findings[0].file}`)"


def _advice(error: Exception) -> str:
    """Which command lists what can be named, for a name that is not known."""
    from selector.errors import UnknownBackendError, UnknownFieldError, UnknownRuleError

    lists: dict[type[Exception], str] = {
        UnknownBackendError: "attnsel inspect",
        UnknownFieldError: "attnsel info --fields",
        UnknownRuleError: "attnsel rule",
    }
    command = lists.get(type(error))
    if command is None:
        return ""
    return f"{'' if str(error).endswith('?') else ';'} `{command}` lists them"


_QUOTED = re.compile(r"(?<!\w)'([^']*)'(?!\w)")


def _usage_words(error: Any) -> str | None:
    """Typer's own complaint, whatever class its version gives it; ``None`` for other errors."""
    if not hasattr(error, "format_message"):
        return None
    words = str(error.format_message()).rstrip(".").replace("Value error, ", "")
    words = _QUOTED.sub(r'"\1"', words)  # quoted as everywhere else
    words = words.replace(". Did you mean", "; did you mean").replace("?.", "?")
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(words, err=True)
        return f"say what to do: {', '.join(c.__name__ for c in _COMMANDS)}"
    path = context.command_path if context else "attnsel"
    words += hint(path.rpartition(" ")[2], error)
    between = " see" if words.endswith("?") else "; see"
    return f"{words[:1].lower()}{words[1:]}{between} `{path} --help`"
