"""The program as a whole: help, version, pipes, terminals, start-up."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from cli import options, terminal

from .conftest import GQA, SMALL, Run

COMMANDS = ("resolve", "explain", "inspect", "lint", "model", "batch", "certify", "info")
SPARSES = ("sparse_sm100", "sparse_sm120")
START = "import sys; from cli.main import main; sys.exit(main())"


def attnsel(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START, *arguments],
        capture_output=True,
        text=True,
        **more,  # type: ignore[call-overload]
    )


def test_help_lists_commands_and_exit_codes(run: Run) -> None:
    ran = run("--help")
    assert ran.code == 0
    for command in COMMANDS:
        assert f"\n  {command} " in ran.out
    for code in ("0 fine", "1 findings", "2 wrong use", "3 no backend"):
        assert code in ran.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_an_example(run: Run, command: str) -> None:
    ran = run(command, "--help")
    assert ran.code == 0
    assert f"attnsel {command}" in ran.out.split("Options:")[0]


def test_version(run: Run) -> None:
    assert run("--version").out == f"attnsel {version('attnsel')}\n"


def test_nothing_to_do(run: Run) -> None:
    ran = run()
    assert ran.code == 2
    assert "Usage: attnsel" in ran.err
    assert ran.err.splitlines()[-1].startswith("attnsel: say what to do: resolve, ")


def test_unknown_command(run: Run) -> None:
    said = run("lin").complaint
    assert said.startswith('no such command "lin"; did you mean "lint"')
    assert said.endswith("? see `attnsel --help`")


def test_help_imports_little() -> None:
    check = (
        "import sys; from cli.main import main; main(['--help']); "
        "heavy = {'torch', 'yaml', 'jsonschema', 'numpy', 'pyarrow', 'rich'}; "
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_command_imports_torch() -> None:
    check = (
        "import sys; from cli.main import main; "
        f"main(['resolve', '--arch', '9.0', '--set', '{GQA}', '--manifest', '{SMALL}']); "
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", check], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_early_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-c", START, "info", "--gpus"],
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == b""


def test_output_that_cannot_show_a_character_shows_something() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    arguments = ("resolve", "--arch", "9.0", "--set", GQA, "--manifest", str(SMALL))
    done = attnsel(*arguments, env=environment)
    assert done.returncode == 0, done.stderr
    assert "one layer ? compute capability 9.0" in done.stdout
    done = attnsel(*arguments, "--format", "json", env=environment)
    assert done.returncode == 0, done.stderr


def test_wrong_use_in_a_process_of_its_own() -> None:
    done = attnsel("resolve", "--arch", "9.0", "--set", "hed_size=1")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == (
        'attnsel: unknown field "hed_size"; did you mean head_size? '
        "`attnsel info --fields` lists them\n"
    )


def test_interrupt(run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from selector.report import answer

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(answer, "answer_lines", stop)
    ran = run("resolve", "--arch", "9.0", "--set", GQA, *small)
    assert ran.code == 130
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("environment", "colored"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_colour_only_on_a_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], colored: bool
) -> None:
    assert "\x1b" not in run("info", "--gpus").out
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert terminal._colored(sys.stdout) is colored


def test_lines_are_wrapped_between_words_only(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    question = ("resolve", "--arch", "12.0", "--set", GQA.replace("128", "96"), *small)
    wide = run(*question).out
    monkeypatch.setenv("COLUMNS", "80")
    wrapped = run(*question).out
    assert max(map(len, wrapped.splitlines())) <= 80 + len(str(SMALL))
    assert wrapped.split() == wide.split()


def test_piped_output_is_wrapped_as_on_a_wide_terminal(
    run: Run, small: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS")
    question = ("resolve", "--arch", "12.0", "--set", GQA.replace("128", "96"), *small)
    assert max(map(len, run(*question).out.splitlines())) <= 110
    table = run("inspect", *small, "--format", "markdown").out.splitlines()
    assert all(line.startswith("| ") and line.endswith(" |") for line in table)


def test_files_in_the_working_folder_are_named_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SMALL.parent)
    assert terminal.places(str(SMALL)).file(str(SMALL)) == "small.yaml"
    assert terminal.places("x/y.yaml").file("x/y.yaml") == "x/y.yaml"
    assert terminal.places("/elsewhere/y.yaml").file("/elsewhere/y.yaml") == "/elsewhere/y.yaml"


def test_completion(monkeypatch: pytest.MonkeyPatch) -> None:
    assert options.complete_gpu("rtx pro 6") == ["RTX PRO 6000 Blackwell"]
    assert options.complete_arch("12.") == ["12.0", "12.1"]
    assert options.complete_model("glm-5") == ["glm-5.2-fp8"]

    class Context:
        def __init__(self, manifest: str) -> None:
            self.params = {"manifest": manifest}

    assert options.complete_backend(Context(str(SMALL)), "sparse") == [
        "sparse_sm100",
        "sparse_sm120",
    ]  # type: ignore[arg-type]
    assert options.complete_backend(Context("nowhere.yaml"), "") == []  # type: ignore[arg-type]
    names = options.complete_setting(Context(str(SMALL)), "mla=true,head_")  # type: ignore[arg-type]
    assert names == ["mla=true,head_size="]
    assert options.complete_setting(Context("nowhere.yaml"), "") == []  # type: ignore[arg-type]
    assert all(isinstance(name, str) for name in options.complete_manifest(""))


def test_the_shell_can_ask_for_completions() -> None:
    environment = {
        **os.environ,
        "_ATTNSEL_COMPLETE": "complete_bash",
        "COMP_WORDS": "attnsel resolve --model qwen3-8",
        "COMP_CWORD": "3",
    }
    done = attnsel(env=environment)
    assert done.stdout.split() == ["qwen3-8b"], done.stderr


def test_every_file_of_the_command_line_leaves_torch_to_backends() -> None:
    for file in Path(terminal.__file__).parent.glob("*.py"):
        assert "import torch" not in file.read_text("utf-8")
