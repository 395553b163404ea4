"""Several commands on one command line, or in one file."""

import pytest

from selector.serving.commands import CommandError
from selector.serving.commands.several import split_file, split_words


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("vllm serve a -- vllm serve b", ["vllm serve a", "vllm serve b"]),
        ("-- vllm serve a -- -- vllm serve b --", ["vllm serve a", "vllm serve b"]),
        ("env -- vllm serve a", ["env -- vllm serve a"]),
        ("A=1 B=2 vllm serve a -- C=3 vllm serve b", ["vllm serve a", "vllm serve b"]),
        ("vllm bench -- vllm serve a", ["vllm bench", "vllm serve a"]),
        ("", []),
    ],
)
def test_commands_stand_between_dashes(line: str, commands: list[str]) -> None:
    assert [" ".join(argv) for _, argv in split_words(line.split())] == commands


def test_what_is_set_before_a_command_is_its_own() -> None:
    words = ["A=1", "B=", "vllm", "serve", "a", "--x=1", "--", "vllm", "serve", "b"]
    found = list(split_words(words))
    assert [variables for variables, _ in found] == [{"A": "1", "B": ""}, {}]
    assert found[0][1] == ["vllm", "serve", "a", "--x=1"]


def test_a_quoted_line_is_a_shells() -> None:
    words = ["A=1 vllm serve a | tee log", "--", "vllm", "serve", "b"]
    assert list(split_words(words)) == [
        ({"A": "1"}, ["vllm", "serve", "a"]),
        ({}, ["vllm", "serve", "b"]),
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a\n\n  # b\nc", [(1, "a"), (4, "c")]),
        ("a \\\nb\nc", [(1, "a  b"), (3, "c")]),
        ("a \\", [(1, "a  ")]),
        ("# a \\\nb", [(2, "b")]),
        ("", []),
    ],
)
def test_lines_of_a_file_and_where_they_begin(text: str, lines: list[tuple[int, str]]) -> None:
    assert list(split_file(text)) == lines


def test_a_file_has_not_too_many_lines() -> None:
    with pytest.raises(CommandError, match="too many"):
        list(split_file("a\n" * 10_001))
