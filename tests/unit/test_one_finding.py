"""One mistake is one finding, at the place that is wrong, wherever in a manifest it is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from selector.document import Mapping, Sequence, read_text
from selector.loading import read
from selector.values import Finding, Position

GOOD = Path(__file__).parents[1] / "manifests" / "good"
NAMING = ("columns", "derive", "facts", "fields", "measures")
"""Sections whose keys are names that the manifest gives itself."""


def text_of(name: str) -> str:
    return GOOD.joinpath(f"{name}.yaml").read_text("utf-8")


def found(text: str) -> list[Finding]:
    return read(read_text(text, "m.yaml"))[1].findings


def put(text: str, at: Position, old: str, new: str) -> str:
    """The text with something else at a place."""
    lines = text.split("\n")
    line = lines[at.line - 1]
    assert line[at.column - 1 :].startswith(old)
    lines[at.line - 1] = line[: at.column - 1] + new + line[at.column - 1 + len(old) :]
    return "\n".join(lines)


def nodes(
    node: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Every mapping and list below a node, with its path."""
    yield path, node
    steps = node.items() if isinstance(node, Mapping) else enumerate(node)
    for step, child in steps:
        if isinstance(child, Mapping | Sequence):
            yield from nodes(child, (*path, step))


def keys(text: str) -> list[tuple[str, Position]]:
    """The keys that are words of the language, or fields, each once."""
    places: dict[Position, str] = {}
    for path, node in nodes(read_text(text, "m.yaml").tree):
        given = path[:1] == ("definitions",) or (len(path) == 1 and path[0] in NAMING)
        if isinstance(node, Mapping) and not given and path[-1:] != ("values",):
            for key in node:
                if len(key) > 3 and key != "any_of":
                    places[node.keys_at[key]] = key
    return [(key, at) for at, key in sorted(places.items())]


def test_a_misspelt_key_is_one_finding_that_names_what_was_meant() -> None:
    text = text_of("everything")
    some = keys(text)[::3]
    assert len(some) > 60
    for key, at in some:
        middle = len(key) // 2
        (finding,) = found(put(text, at, key, key[:middle] + key[middle + 1 :]))
        assert (finding.line, finding.column) == (at.line, at.column), key
        assert finding.code in ("CAP003", "CAP010", "CAP013")
        assert finding.fix == f"did you mean {key}?"


@pytest.mark.parametrize("wrong", ["{zzz: 1}", "[[1]]", "7", "zzz zzz", "true", ""])
@pytest.mark.parametrize("name", ["smallest", "cases", "steps", "sparse-pinned"])
def test_a_value_of_another_kind_is_one_finding_in_its_line(name: str, wrong: str) -> None:
    """Whatever a form allows, the branches that it is not are not listed."""
    text = text_of(name)
    tried = 0
    for _, node in nodes(read_text(text, "m.yaml").tree):
        if not isinstance(node, Mapping):
            continue
        for key, value in node.items():
            at = node.values_at[key]
            line = text.split("\n")[at.line - 1]
            alone = line[: at.column - 1].strip(" -") == f"{key}:"
            if not isinstance(value, Mapping | Sequence) or not alone:
                continue
            findings = found(put(text, at, line[at.column - 1 :], wrong))
            if (key, wrong) in (("capability", "7"), ("capability", "true")):
                continue  # may be of 12.x: the pin is told too
            tried += 1
            assert len(findings) <= 1, (key, findings)
            assert {f.line for f in findings} <= {at.line}, (key, findings)
    assert tried > 3
